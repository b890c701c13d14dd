"""The programs in `examples/`, each in its own process, against a stub of the identity server."""

import ast
import base64
import hashlib
import json
import re
import runpy
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
from forms import parse
from programs import CHAT, CLIENT_ID, CLIENT_SECRET, GAME, GAME_CHAT, ROOT, WEB_APP, running
from test_layout import imported_names
from waiting import PATIENCE

pytestmark = pytest.mark.live
TOKEN = "eyJ1c2VyIjoxfQ.A-token"
PLAYER = {"id": 1, "name": "ada", "pfpTimestamp": 1700000000000}


class IdentityServer(ThreadingHTTPServer):
    """A stub whose responses are in `answers`; records the forms and the access tokens."""

    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), IdentityServerRequest)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.forget()

    def forget(self) -> None:
        token = {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 600}
        whois = f"/api/oauth/whois?client_id={CLIENT_ID}"  # RFC 6749 10.16
        self.answers = {"/api/oauth/token": (200, token), whois: (200, PLAYER)}
        self.exchanged: list[dict[str, str]] = []
        self.tokens: list[str] = []


class IdentityServerRequest(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.exchanged.append(dict(parse_qsl(body, strict_parsing=True)))
        self.server.tokens.append(self.headers.get("Authorization", ""))
        self.do_GET()

    def do_GET(self) -> None:
        status, values = self.server.answers[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(values if isinstance(values, bytes) else json.dumps(values).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def stub_server() -> Iterator[IdentityServer]:
    with IdentityServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def identity_server(stub_server: IdentityServer) -> IdentityServer:
    stub_server.forget()
    return stub_server


class Browser(requests.Session):
    """A browser of one program on this machine."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.trust_env = False  # no proxy

    def request(self, method: str, path: str, **options: object) -> requests.Response:
        options |= {"allow_redirects": False, "timeout": PATIENCE}
        return super().request(method, f"http://127.0.0.1:{self.port}{path}", **options)

    def start_sign_in(self) -> dict[str, str]:
        """Start a sign-in; return the parameters of the authorization request."""
        self.get("/sign-in")
        link = parse(self.get("/")).select_one('[href^="http://127.0.0.1"]')
        return dict(parse_qsl(urlsplit(link["href"]).query, strict_parsing=True))

    def open_callback(self, **answer: str) -> requests.Response:
        return self.get("/callback", params=answer)


@pytest.fixture(scope="module")
def ports(stub_server: IdentityServer, score_file: Path) -> Iterator[tuple[int, int]]:
    """The ports of the running web app and of the running game."""
    with (
        running(WEB_APP, stub_server.address, score_file) as web_app,
        running(GAME, stub_server.address, score_file) as game,
    ):
        yield web_app, game


@pytest.fixture
def web_app(ports: tuple[int, int], identity_server: IdentityServer) -> Browser:
    return Browser(ports[0])


@pytest.fixture(scope="module")
def score_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("game") / "scores.json"


@pytest.fixture
def game(ports: tuple[int, int], identity_server: IdentityServer, score_file: Path) -> Browser:
    score_file.unlink(missing_ok=True)
    return Browser(ports[1])


def test_examples_import_the_standard_library_only_and_are_short():
    others = ("tiny_games/tiny_games.py", "tiny_games/garden.py", "demo/letters.py")
    for program in (WEB_APP, GAME, GAME_CHAT, *(f"examples/{each}" for each in others)):
        modules = imported_names(ast.parse((ROOT / program).read_text()))
        assert {each.partition(".")[0] for each in modules} <= sys.stdlib_module_names | {
            "backend",
            "garden",
        }
    assert (ROOT / WEB_APP).read_text().count("\n") < 150


def test_web_app_sends_the_verifier_and_shows_every_message(web_app, identity_server):
    """Of each secret it shows the first four characters."""
    request = web_app.start_sign_in()
    answer = web_app.open_callback(code="a-code-that-is-secret", state=request["state"])
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    [form] = identity_server.exchanged
    verifier = form.pop("code_verifier")
    digest = hashlib.sha256(verifier.encode()).digest()
    assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == request["code_challenge"]
    assert form == {
        "grant_type": "authorization_code",
        "code": "a-code-that-is-secret",
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "redirect_uri": request["redirect_uri"],
    }
    assert request["redirect_uri"] == f"http://127.0.0.1:{web_app.port}/callback"
    page = web_app.get("/").text
    assert "Hello, <bdi>ada</bdi>!" in page
    for secret in (CLIENT_SECRET, TOKEN, "a-code-that-is-secret", verifier):
        assert f"{secret[:4]}…" in page
        assert secret[:5] not in page


def test_callback_with_a_wrong_state_is_not_exchanged(web_app, identity_server):
    """It does not end this browser's own sign-in. The right state is valid once, in its browser."""
    state = web_app.start_sign_in()["state"]
    other_browser = Browser(web_app.port)
    for wrong in ({}, {"state": ""}, {"state": "another"}, {"state": "é"}):
        web_app.open_callback(code="a-code", **wrong)
        assert "a state that is not this browser" in web_app.get("/").text
        other_browser.open_callback(code="a-code", **wrong)
    other_browser.open_callback(code="a-code", state=state)
    other_browser.start_sign_in()
    other_browser.open_callback(code="a-code", state=state)
    assert identity_server.exchanged == []
    for _ in range(2):
        web_app.open_callback(code="a-code", state=state)
        assert len(identity_server.exchanged) == 1
    assert "Hello, <bdi>ada</bdi>!" in web_app.get("/").text


def test_session_fixation_is_prevented(web_app):
    """An attacker could have planted the cookie."""
    web_app.cookies.set("web_app", "planted", domain="127.0.0.1", path="/")
    request = web_app.start_sign_in()
    [before] = web_app.cookies.values()
    assert before != "planted"
    answer = web_app.open_callback(code="a-code", state=request["state"])
    assert "; HttpOnly; SameSite=Lax; Path=/" in answer.headers["Set-Cookie"]
    for cookie in ("planted", before):
        assert "ada" not in Browser(web_app.port).get("/", cookies={"web_app": cookie}).text
    assert "ada" in web_app.get("/", cookies={"session": "another", "last": "1"}).text


def test_callback_parameters_are_escaped(web_app):
    request = web_app.start_sign_in()
    answer = {"error": "<script>1</script>", "error_description": "<u>", "<i>": '"<em>'}
    web_app.open_callback(state=request["state"], **answer)
    page = web_app.get("/").text
    assert "It says &lt;script&gt;1&lt;/script&gt;: &lt;u&gt;" in page
    assert re.findall("<(script|u|i|em)>", page) == []


ANSWER = {"code": "a-code", "code_verifier": "a-verifier"}  # what identity.js gives the page


def post(game: Browser, path: str, values: object, **headers: str) -> requests.Response:
    """Send a same-origin post, as the game's page does."""
    own = {"Origin": f"http://127.0.0.1:{game.port}", "Sec-Fetch-Site": "same-origin"}
    body = values if isinstance(values, str) else json.dumps(values)
    return game.post(path, body.encode(), headers=own | headers)


def sign_in(game: Browser) -> dict[str, str]:
    """Sign a player in; return the authorization header for scores."""
    token = post(game, "/sign-in", ANSWER).json()["token"]
    return {"Authorization": f"Bearer {token}"}


def scores(game: Browser) -> list[dict[str, int]]:
    return game.get("/scores").json()


def test_game_exchanges_a_code_and_returns_its_own_token(game, identity_server):
    answer = post(game, "/sign-in", ANSWER)
    values = answer.json()
    assert answer.status_code == 200
    assert values.pop("token") != TOKEN
    assert values == {"id": 1}
    credentials = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    form = {"grant_type": "authorization_code", **ANSWER}
    assert identity_server.exchanged == [form | credentials]
    for refusal, status in (((400, {"message": "old"}), 403), ((502, b"<h1>Bad</h1>"), 502)):
        identity_server.answers["/api/oauth/token"] = refusal
        assert post(game, "/sign-in", ANSWER).status_code == status


def test_cross_site_post_is_403(game, identity_server, subtests):
    signed_in, own = sign_in(game), {"Origin": f"http://127.0.0.1:{game.port}"}
    same_origin = own | {"Sec-Fetch-Site": "same-origin"}
    identity_server.forget()
    for headers in (
        {},
        *(same_origin | {"Origin": each} for each in ("http://evil.example", "null", "")),
        same_origin | {"Origin": "http://127.0.0.1:1"},
        *(own | {"Sec-Fetch-Site": each} for each in ("cross-site", "same-site", "none")),
    ):
        with subtests.test(**headers):
            assert game.post("/sign-in", json=ANSWER, headers=headers).status_code == 403
            answer = game.post("/scores", json={"score": 7}, headers=signed_in | headers)
            assert answer.status_code == 403
    assert (identity_server.exchanged, scores(game)) == ([], [])
    assert game.post("/sign-in", json=ANSWER, headers=own).status_code == 200


def test_score_needs_a_number_and_a_valid_token(game):
    signed_in = sign_in(game)
    for score in (-1, 1001, 1.5, "5", True, None, [5], 10**30):
        answer = post(game, "/scores", {"score": score}, **signed_in)
        assert (answer.status_code, "from 0 to 1000" in answer.text) == (400, True), score
    for token in ("", "Bearer ", "Bearer wrong", "Basic eDp5"):
        assert post(game, "/scores", {"score": 5}, Authorization=token).status_code == 401
    assert scores(game) == []
    answer = post(game, "/scores", {"score": 5, "id": 2, "player": 2}, **signed_in)
    assert answer.json() == scores(game) == [{"id": 1, "score": 5}]


def test_ticket_is_for_the_chat_alone(game, identity_server):
    signed_in = sign_in(game)
    identity_server.answers["/api/tickets"] = (200, {"ticket": "a-ticket", "expires_in": 60})
    sent = {"nonce": "a-nonce", "server": "play.example:1"}
    assert post(game, "/ticket", sent, **signed_in).json() == {"ticket": "a-ticket"}
    assert identity_server.exchanged[-1] == {"server": CHAT, "nonce": "a-nonce"}
    assert identity_server.tokens[-1] == f"Bearer {TOKEN}"
    assert post(game, "/ticket", sent).status_code == 401
    for nonce in (None, 5, "\ud800"):
        assert post(game, "/ticket", {"nonce": nonce}, **signed_in).status_code == 400
    identity_server.answers["/api/tickets"] = (401, {"message": "too old"})
    answer = post(game, "/ticket", sent, **signed_in)
    assert answer.status_code == 403 and "too old" in answer.text


def test_invalid_body_is_refused_as_json(game, subtests):
    codes = ('"\\ud800"', '"é"', "null", "7", '["a-code"]')
    for body, status in (
        *((each, 400) for each in ("", "{", "[]", "[" * 400, "null")),
        *((f'{{"code": {each}, "code_verifier": "v"}}', 400) for each in codes),
        (" " * 499 + "{}", 413),
    ):
        with subtests.test(body[:40]):
            answer = post(game, "/sign-in", body)
            assert (answer.status_code, list(answer.json())) == (status, ["message"])
    for length in ("-1", "1" * 5000):
        assert post(game, "/sign-in", "", **{"Content-Length": length}).status_code == 413


def test_only_the_static_files_of_the_game_are_served(game):
    for path in ("/backend.py", "/../web_app.css", "//etc/passwd", "/.", "/..", "/%2e%2e", "/a\0b"):
        with socket.create_connection(("127.0.0.1", game.port), timeout=PATIENCE) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            assert connection.makefile("rb").readline().split()[1] == b"404", path


def test_garden_takes_a_nonce_once_and_needs_a_ticket(identity_server, monkeypatch, subtests):
    monkeypatch.setenv("SERVER", identity_server.address)
    answer = runpy.run_path(f"{ROOT}/examples/tiny_games/garden.py")["answer"]

    def send(path: str, values: object) -> tuple[int, dict]:
        return answer(path, values, "127.0.0.1:5010")

    identity_server.answers["/api/tickets/check"] = (200, {"user": PLAYER})
    form = {"ticket": "a-ticket", "nonce": send("/nonce", {})[1]["nonce"]}
    status, entered = send("/enter", form)
    assert (status, send("/enter", form)[0]) == (200, 403)
    assert identity_server.exchanged == [form | {"server": "127.0.0.1:5010"}]
    assert send("/plant", entered | {"plot": "5"}) == (200, {"5": PLAYER["id"]})
    identity_server.answers["/api/tickets/check"] = (401, {"message": "too old"})
    for path, values, refused in (
        ("/enter", form | send("/nonce", {})[1], 403),
        ("/enter", {"ticket": "a-ticket", "nonce": "another"}, 403),
        ("/plant", {"token": "another", "plot": "5"}, 401),
        *(("/plant", entered | {"plot": each}, 400) for each in ("96", "-1", "05", "٥", "")),
        *(
            ("/plant", each, 400)
            for each in ([], None, "5", entered | {"plot": 5}, form | {"ticket": "\ud800"})
        ),
        ("/another", {}, 404),
    ):
        with subtests.test(path, values=values):
            assert send(path, values)[0] == refused
