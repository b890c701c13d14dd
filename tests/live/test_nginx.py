"""deploy/nginx.conf, with nginx in front of gunicorn."""

import base64
import contextlib
import functools
import hashlib
import json
import re
import secrets
import shlex
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from conftest import FOREIGN_LINK
from programs import free_port
from waiting import wait_until

from identity.oauth.clients import CLIENT_FAILURES, TOKEN_BODY_LIMIT
from identity.site.settings import ROOT
from identity_server import PAGE_BODY_LIMIT
from images.pictures import generate_picture
from storage import Storage

from . import behind_nginx
from .behind_nginx import FORM, Answer, Nginx, Sender, ServerBehindNginx, send_http
from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, PASSWORD

pytestmark = [pytest.mark.live, pytest.mark.nginx]
server = behind_nginx.server
# What a browser sends for an image in a page of a sibling subdomain.
FOREIGN_LOAD = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}
FOREIGN_LOAD |= {"Sec-Fetch-Dest": "image"}
TOKEN_QUESTIONS = ("/oauth/revoke", "/oauth/introspect")
OAUTH_POSTS = ("/oauth/token", *TOKEN_QUESTIONS)


@pytest.fixture
def form_browser(server: ServerBehindNginx) -> Iterator[FormBrowser]:
    """A form browser that is signed out and connects to nginx."""
    form_browser = FormBrowser(server.address)
    form_browser.session.verify = str(server.nginx.certificate)
    form_browser.session.trust_env = False  # otherwise REQUESTS_CA_BUNDLE takes precedence
    yield form_browser
    form_browser.close()


@pytest.fixture
def connect_from(server: ServerBehindNginx) -> Iterator[Callable[..., Sender]]:
    """A function that connects to nginx, or to another nginx, from a loopback address."""
    with contextlib.ExitStack() as opened:

        def connect_from(address: str = "127.0.0.1", nginx: Nginx = server.nginx) -> Sender:
            return opened.enter_context(contextlib.closing(Sender(nginx, address)))

        yield connect_from


@pytest.fixture
def send(connect_from: Callable[..., Sender]) -> Callable[..., Answer]:
    """A function that sends a request through nginx: `send("GET", path)`."""
    return connect_from().send_request


@pytest.fixture(scope="module")
def nginx_without_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """nginx in front of a server that does not run."""
    nginx = Nginx(tmp_path_factory.mktemp("dead") / "nginx")
    with nginx.running(f"127.0.0.1:{free_port()}"):
        yield nginx


def send_raw(connection: socket.socket, sent: bytes) -> None:
    """Send these bytes; return when the connection ends or is silent for a tenth of a second."""
    connection.settimeout(0.1)
    with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
        connection.sendall(sent)
        while connection.recv(65536):
            pass


# -- responses of the server ----------------------------------------------------------------------


def test_grant_with_the_longest_state_works_through_nginx(
    form_browser: FormBrowser, ada: dict, client: dict, send, subtests
):
    """With sign-in and consent, and then with a remembered consent."""
    for state in ("x" * 7000, '{"' * 450, "xyz"):
        query = {"response_type": "code", "client_id": client["client_id"], "state": state}
        with subtests.test(state[:10]):
            answer = form_browser.allow(f"/oauth/authorize?{urlencode(query)}", "ada").answer
            assert answer["state"] == state
            form = {"grant_type": "authorization_code", "code": answer["code"], **client}
            got = send("POST", "/api/oauth/token", urlencode(form), FORM)
            assert got.status == 200
            bearer = {"Authorization": f"Bearer {json.loads(got.body)['access_token']}"}
            who = send("GET", "/api/oauth/whois", headers=bearer)
            assert (who.status, json.loads(who.body)["name"]) == (200, "ada")


def test_nginx_passes_responses_through_unchanged(
    server: ServerBehindNginx, ada: dict, send, subtests
):
    for method, path, headers, body in (
        ("GET", "/api/users/info?id=1", {}, None),
        ("HEAD", "/api/users/info?id=1", {}, None),
        ("OPTIONS", "/api/users/info", {}, None),
        ("POST", "/api/users/info?id=1", {}, b""),
        ("GET", "/api/users/info?id=999999", {}, None),
        ("GET", "/api/users/info?id=%31&id=2", {}, None),
        ("GET", "/api/users/info?id=%ff", {}, None),
        ("GET", "/api//users/info?id=1", {}, None),
        ("GET", "/api/users/../users/info?id=1", {}, None),
        ("GET", "/api/oauth/whois", {}, None),
        ("GET", "/api/oauth/whois", {"Authorization": "Bearer forged"}, None),
        ("GET", "/api/oauth/whois?access_token=a", {"Authorization": "Bearer forged"}, None),
        ("OPTIONS", "/api/oauth/whois", {"Origin": "https://game.example"}, None),
        ("POST", "/api/oauth/token", FORM, b""),
        ("POST", "/api/oauth/token", FORM, b"grant_type=authorization_code&code=a"),
        ("POST", "/api/oauth/token", {"Authorization": "Basic YTpi"}, b"grant_type=x&code=a"),
        ("POST", "/api/oauth/token", {"Content-Type": "application/json"}, b"{}"),
        ("POST", "/api/oauth/token", FORM, b"code=" + b"x" * (TOKEN_BODY_LIMIT - 5)),
        ("GET", "/api/oauth/token", {}, None),
        *(("POST", f"/api/tickets{more}", FORM | FOREIGN_LOAD, b"") for more in ("", "/check")),
        ("OPTIONS", "/api/tickets", {"Origin": "https://game.example"}, None),
        ("POST", "/api/tickets/check", FORM, b"ticket=" + b"x" * (TOKEN_BODY_LIMIT - 7)),
        ("POST", "/oauth/token", FORM | FOREIGN_LOAD, b"grant_type=authorization_code&code=a"),
        ("POST", "/oauth/token", FORM, b"code=" + b"x" * (TOKEN_BODY_LIMIT - 5)),
        *(("POST", path, FORM | FOREIGN_LOAD, b"client_id=x&token=a") for path in TOKEN_QUESTIONS),
        *((method, path, {}, None) for path in TOKEN_QUESTIONS for method in ("GET", "OPTIONS")),
        *((method, "/oauth/userinfo", FORM | FOREIGN_LOAD, b"") for method in ("GET", "POST")),
        ("OPTIONS", "/oauth/userinfo", {"Origin": "https://game.example"}, None),
        ("GET", "/oauth/keys", FOREIGN_LOAD, None),
        ("GET", "/.well-known/openid-configuration", FOREIGN_LOAD, None),
        ("GET", "/oauth/logout", FOREIGN_LINK, None),
        ("POST", "/oauth/logout", FORM | FOREIGN_LINK, b""),
        ("GET", "/oauth/authorize", {}, None),
        ("GET", "/sign-in?next=/account", {}, None),
        ("GET", "/account", {}, None),
        ("GET", "/nothing", {}, None),
        ("POST", "/sign-out", FORM | {"Sec-Fetch-Site": "cross-site"}, b"next=/"),
        ("POST", "/account/picture", FORM, b""),
        # Pictures that the server generates, or that nobody has; the module for other sites.
        ("GET", "/pfp/large/999999.webp", {}, None),
        ("GET", "/pfp/huge/1.webp", {}, None),
        ("GET", "/static/nothing.css", {}, None),
        ("GET", "/static/.hidden", {}, None),
        ("GET", "/static/v1/identity.js", {"Origin": "https://game.example"}, None),
    ):
        with subtests.test(f"{method} {path}"):
            expected = send_http(server.backend, method, path, body, headers)
            assert send(method, path, body, headers).without() == expected.without()


PICTURE_REQUESTS = [
    (method, headers)
    for method in ("GET", "HEAD")
    for headers in (
        *({}, {"Range": "bytes=0-9"}, {"Range": "bytes=-10"}, {"If-None-Match": "*"}),
        {"If-Modified-Since": "Sat, 01 Jan 2050 00:00:00 GMT"},
    )
]


def comparable_picture(answer: Answer) -> tuple:
    """Return the response for a picture; if it has none, the server may omit two headers."""
    return answer.without(*["accept-ranges", "last-modified"] * (answer.status != 200))


def test_nginx_serves_pictures_like_the_server(
    server: ServerBehindNginx, store: Storage, ada: dict, send, subtests
):
    imported = server.picture_dir / "small" / "77.webp"  # an account without pfpTimestamp
    imported.write_bytes(generate_picture(77)["small"])
    imported.chmod(0o644)
    store.pictures.save(ada["id"], generate_picture(1000))
    picture = store.users.read(ada["id"]).picture_file
    with server.nginx.no_upstream_requests():
        for path in (f"/pfp/large/{picture}", "/pfp/small/77.webp"):
            for method, headers in PICTURE_REQUESTS:
                with subtests.test(f"{method} {path}", headers=headers):
                    expected = send_http(server.backend, method, path, headers=headers)
                    answer = send(method, path, headers=headers)
                    assert comparable_picture(answer) == comparable_picture(expected)


def test_nginx_serves_static_files_like_the_server(server: ServerBehindNginx, send, subtests):
    """Flask has another ETag format, and sends `inline`, which is the browsers' default."""
    files = [each for each in Path(ROOT, "static").iterdir() if each.is_file()]
    with server.nginx.no_upstream_requests():
        for path in (f"/static/{each.name}" for each in files):
            with subtests.test(path):
                expected, answer = send_http(server.backend, "GET", path), send("GET", path)
                differing = ("etag", "content-disposition")
                assert answer.without(*differing) == expected.without(*differing)
                unchanged = {"If-None-Match": answer.headers["etag"]}
                assert send("GET", path, headers=unchanged).status == 304


def test_replaced_picture_is_404_at_once(store: Storage, ada: dict, send):
    pictures = [generate_picture(number) for number in (1000, 1001)]
    store.pictures.save(ada["id"], pictures[1])
    for number in range(20):
        old = store.users.read(ada["id"]).pfp_timestamp
        paths = [f"/pfp/{size}/{ada['id']}-{old}.webp" for size in ("large", "medium", "small")]
        assert [send("GET", path).status for path in paths] == [200, 200, 200]
        new = store.pictures.save(ada["id"], pictures[number % 2])
        assert [send("GET", path).status for path in paths] == [404, 404, 404]
        answer = send("GET", f"/pfp/large/{ada['id']}-{new}.webp")
        assert answer.body == pictures[number % 2]["large"]


def test_dot_files_are_never_served(server: ServerBehindNginx, send):
    """Temporary picture files have such names."""
    for folder in (server.picture_dir / "large", server.picture_dir):
        (folder / ".1-1.webp").write_bytes(b"half")
        (folder / "1-1.webp.0a1b").write_bytes(b"half")
    for name in (".1-1.webp", "%2e1-1.webp", "./.1-1.webp", "x/../.1-1.webp", "1-1.webp.0a1b"):
        for path in (f"/pfp/large/{name}", f"/pfp/{name}", f"//pfp/large/{name}"):
            assert send("GET", path).status in (400, 404)
    for path in ("/pfp/", "/pfp/large/", "/pfp/large", "/static/", "/static/../setup.cfg"):
        assert send("GET", path).status in (400, 404)


def test_unread_body_does_not_break_the_next_request(send):
    """The server closes the upstream connection after an unread body."""
    for _ in range(500):
        assert send("POST", "/api/x", b"x" * PAGE_BODY_LIMIT, FORM).status == 404


def test_reload_fails_none_of_a_thousand_requests(server: ServerBehindNginx, ada: dict):
    """Three reloads with the command of the systemd unit, under load of keep-alive connections."""
    unit = (Path(ROOT) / "deploy" / "identity-server.service").read_text()
    command = re.search(r"^ExecReload=(.*)$", unit, re.MULTILINE)[1]
    reloaded = threading.Event()
    answers: Counter[tuple[str, int]] = Counter()

    def use(number: int) -> None:
        with contextlib.closing(Sender(server.nginx, f"127.0.0.{30 + number}")) as sender:
            while not reloaded.is_set() or answers.total() < 1000:
                if number % 2:
                    answer = sender.send_request("POST", "/api/oauth/token", b"", FORM)
                    answers["POST", answer.status] += 1
                    time.sleep(0.02)  # nginx takes fifty a second
                else:
                    answer = sender.send_request("GET", f"/api/users/info?id={ada['id']}")
                    answers["GET", answer.status] += 1

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(use, number) for number in range(4)]
        try:
            for _ in range(3):
                before = set(server.workers())
                reload = command.replace("$MAINPID", str(server.process.pid))
                subprocess.run(shlex.split(reload), check=True)
                wait_until(functools.partial(workers_replaced, server, before))
        finally:
            reloaded.set()
        for each in running:
            each.result()
    assert answers.keys() == {("GET", 200), ("POST", 400)}


def workers_replaced(server: ServerBehindNginx, before: set[int]) -> bool:
    """Return whether both workers have been replaced."""
    return len(server.workers()) == 2 and not before & set(server.workers())


# -- responses of nginx ---------------------------------------------------------------------------


def test_line_feed_at_the_end_of_an_address_is_no_other_location(
    server: ServerBehindNginx, send, subtests
):
    """It has the limit of unknown addresses, and not that of uploads."""
    paths = ("/account/picture", "/welcome/picture", "/developer/x/cover", "/admin/look/logo")
    for path in (*paths, "/admin/door/refused"):
        for end in ("%0A", "%0a", "%0A?x=1"):
            with subtests.test(path + end), server.nginx.no_upstream_requests():
                answer = send("POST", path + end, b"x" * (PAGE_BODY_LIMIT + 1), FORM)
                assert answer.status == 413


def test_body_over_the_limit_is_413(connect_from: Callable[..., Sender], subtests):
    """The server responds to the others, without reading them: the client is signed out."""
    send = connect_from("127.0.0.20").send_request
    for path, status, accepted, refused in (
        ("/api/oauth/token", 400, TOKEN_BODY_LIMIT, TOKEN_BODY_LIMIT + 1),
        *((each, 400, TOKEN_BODY_LIMIT, TOKEN_BODY_LIMIT + 1) for each in OAUTH_POSTS),
        ("/api/x", 404, PAGE_BODY_LIMIT, PAGE_BODY_LIMIT + 1),
        ("/account", 303, PAGE_BODY_LIMIT, PAGE_BODY_LIMIT + 1),
        ("/account/picture", 303, 2**23 + PAGE_BODY_LIMIT, 9 * 2**20 + 1),
        ("/welcome/picture", 303, 2**23 + PAGE_BODY_LIMIT, 9 * 2**20 + 1),
        ("/developer/x/cover", 303, 2**23 + PAGE_BODY_LIMIT, 9 * 2**20 + 1),
        ("/admin/door/refused", 303, 2**23 + PAGE_BODY_LIMIT, 9 * 2**20 + 1),
        ("/developer/x/cover/remove", 303, PAGE_BODY_LIMIT, PAGE_BODY_LIMIT + 1),
    ):
        for chunked in (False, True):
            with subtests.test(path, chunked=chunked):
                bodies = [b"x" * accepted, b"x" * refused]
                sent = [iter([body]) if chunked else body for body in bodies]
                assert send("POST", path, sent[0], FORM, encode_chunked=chunked).status == status
                answer = send("POST", path, sent[1], FORM, encode_chunked=chunked)
                assert answer.status == 413
                assert b"The body is larger than the limit." in answer.body
                is_json = path in OAUTH_POSTS or path.startswith("/api/")
                content_type = "application/json" if is_json else "text/html; charset=utf-8"
                assert answer.headers["content-type"] == content_type


def check_oauth_error(answer: Answer, error: str, description: str) -> None:
    """Check an error response for a client (RFC 6749 5.2), which pages of any origin may read."""
    assert json.loads(answer.body) == {"error": error, "error_description": description}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cache-control"] == "no-store"


def test_refusal_of_a_client_request_is_an_oauth_error(server: ServerBehindNginx, send):
    body = b"x" * (TOKEN_BODY_LIMIT + 1)
    for path in (*OAUTH_POSTS, "//oauth/token?a=b", "/%6fauth/token"):
        too_large = "The body is larger than the limit. Send less."
        check_oauth_error(send("POST", path, body, FORM), "invalid_request", too_large)
    for path in ("token", "revoke", "introspect", "userinfo?a=b", "keys"):
        with server.nginx.connect() as connection:
            connection.sendall(f"GET /oauth/{path} two HTTP/1.1\r\n{LOCAL}\r\n\r\n".encode())
            response = HTTPResponse(connection)
            response.begin()
            malformed = "This is not a valid HTTP request."
            check_oauth_error(Answer(response), "invalid_request", malformed)


LOCAL = "Host: 127.0.0.1"
INFO, POST = f"GET /api/users/info HTTP/1.1\r\n{LOCAL}", f"POST /api/x HTTP/1.1\r\n{LOCAL}"


def test_malformed_request_is_refused_as_json(server: ServerBehindNginx, subtests):
    """Except for the last two, which only gunicorn refuses."""
    for start, status in (
        (f"GET /api/users/info?id={'1' * 9000} HTTP/1.1\r\n{LOCAL}", 414),
        (f"{INFO}\r\nX: {'y' * 9000}", 431),
        (f"{INFO}\r\nHost: x", 400),
        ("GET /api/users/info HTTP/1.1\r\nHost: a b", 400),
        ("GET /api/users/info HTTP/1.1", 400),
        (f"GET /api/users/info HTTP/9.9\r\n{LOCAL}", 505),
        (f"GET /api/users/info two HTTP/1.1\r\n{LOCAL}", 400),
        (f"GET /api/\x01 HTTP/1.1\r\n{LOCAL}", 400),
        (f"GET /api/%00 HTTP/1.1\r\n{LOCAL}", 400),
        (f"get /api/users/info HTTP/1.1\r\n{LOCAL}", 400),
        (f"TRACE /api/users/info HTTP/1.1\r\n{LOCAL}", 405),
        (f"{POST}\r\nTransfer-Encoding: gzip", 501),
        (f"{POST}\r\nTransfer-Encoding: chunked\r\n\r\nZZ", 400),
        ("\r\n".join([INFO, *["a: b"] * 150, "c: d"]), 431),
        (f"G /api/users/info HTTP/1.1\r\n{LOCAL}", 400),
    ):
        with subtests.test(start[:60]), server.nginx.connect() as connection:
            connection.sendall(f"{start}\r\n\r\n".encode())
            response = HTTPResponse(connection)
            response.begin()
            answer = Answer(response)
            assert answer.status == status
            if "c: d" not in start and not start.startswith("G "):
                assert answer.message
                assert ("allow" in answer.headers) == (status == 405)


UNAVAILABLE = "The server is not available right now. Try again in a moment."


def test_dead_server_is_502_and_silent_server_is_504(
    tmp_path: Path, nginx_without_server: Nginx, connect_from: Callable[..., Sender], subtests
):
    """As JSON or as a page, with Retry-After; the JSON has CORS headers."""
    in_front = Nginx(tmp_path / "nginx", read_timeout_ms=500)
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, in_front.running(f"127.0.0.1:{silent.getsockname()[1]}"):
        for nginx, status in ((nginx_without_server, 502), (in_front, 504)):
            clients = (*OAUTH_POSTS, "/oauth/userinfo?a=b", "/oauth/keys")
            for path in (*clients, "/oauth/logout", "/api/users/info?id=1", "/pfp/small/1.webp"):
                with subtests.test(f"{status} {path}"):
                    answer = connect_from(nginx=nginx).send_request("GET", path)
                    assert (answer.status, answer.headers["retry-after"]) == (status, "5")
                    assert answer.headers["cache-control"] == "no-store"
                    if path.startswith("/api/"):
                        assert answer.message == UNAVAILABLE
                        assert answer.headers["access-control-allow-origin"] == "*"
                    elif path in clients:
                        check_oauth_error(answer, "temporarily_unavailable", UNAVAILABLE)
                    else:
                        assert answer.headers["content-type"].startswith("text/html")
                        assert UNAVAILABLE.encode() in answer.body
            # The body limit error must not replace the upstream error.
            sender = connect_from(nginx=nginx)
            upload = sender.send_request("POST", "/account/picture", b"x" * 2**20)
            assert upload.status == status


def test_own_error_page_has_the_style_that_its_policy_allows(send):
    page = send("POST", "/static/style.css")
    [style] = re.findall(b"<style>(.*?)</style>", page.body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style).digest()).decode()
    policy = page.headers["content-security-policy"]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"


def test_every_https_response_has_strict_transport_security(server: ServerBehindNginx, send):
    """Sender checks every response of these tests; RFC 6797 7.2 forbids it over plain HTTP."""
    for method, path, headers, status in (
        *(("GET", "/", {}, 200), ("GET", "/static/style.css", {}, 200)),
        *(("POST", "/static/style.css", {}, 405), ("GET", "/nothing", {}, 404)),
        ("GET", "/static/style.css", {"Range": "bytes=99999999-"}, 416),
    ):
        assert send(method, path, headers=headers).status == status
    for port, status in ((server.nginx.http_port, 301), (server.nginx.https_port, 400)):
        elsewhere = {"Host": "elsewhere.example"}
        plain = send_http(f"http://127.0.0.1:{port}", "GET", "/sign-in?next=/", headers=elsewhere)
        assert plain.status == status and "strict-transport-security" not in plain.headers
        if status == 301:
            assert plain.headers["location"] == "https://127.0.0.1/sign-in?next=/"


# -- rate limits ----------------------------------------------------------------------------------


def send_until_refused(
    sender: Sender, method: str, path: str, headers: dict = FORM, body: str = ""
) -> list[Answer]:
    """Send requests until a response has the status 429; return all responses."""
    answers: list[Answer] = []
    while not answers or answers[-1].status != 429:
        assert len(answers) < 10_000
        answers.append(sender.send_request(method, path, body, headers))
    return answers


def test_token_request_rate_limit_per_address(connect_from: Callable[..., Sender]):
    limited, other = connect_from("127.0.0.5"), connect_from("127.0.0.6")
    *accepted, refused = send_until_refused(limited, "POST", "/api/oauth/token")
    assert {answer.status for answer in accepted} == {400}
    assert len(accepted) >= 200
    assert refused.message == "Too many requests. Try again in a moment."
    assert refused.headers["retry-after"] == "5"
    for path in OAUTH_POSTS:
        *accepted, refused = send_until_refused(limited, "POST", path)
        assert len(accepted) < 200  # they share the limit
        problem = "Too many requests. Try again in a moment."
        check_oauth_error(refused, "temporarily_unavailable", problem)
    assert other.send_request("POST", "/api/oauth/token", b"", FORM).status == 400
    assert limited.send_request("GET", "/api/users/info?id=999999").status == 404


def test_password_form_rate_limit_per_address(connect_from: Callable[..., Sender]):
    limited, other = connect_from("127.0.0.7"), connect_from("127.0.0.8")
    # Sign-up without an invitation is refused without hashing a password.
    *accepted, _ = send_until_refused(limited, "POST", "/sign-up")
    assert {answer.status for answer in accepted} == {403}
    assert len(accepted) >= 30
    names = ("password", "email", "delete", "picture")
    # All of these share the limit: only its refill is left.
    asking = ("/account/email/letters", "/users/7/mod-level", "/admin/chat/key", "/developer")
    asking += ("/users/7/underage", "/admin/door", "/admin/door/terms", "/admin/networks/lift")
    asking += ("/admin/invitations", "/developer/x/secret", "/admin/reports/x")
    own = (f"/account/{name}" for name in names)
    for path in ("/sign-in", "/recover/password", *own, *asking):
        assert len(send_until_refused(limited, "POST", path)) < 30
    assert limited.send_request("GET", "/account").status == 303
    assert [limited.send_request("GET", "/sign-in").status for _ in range(50)] == [200] * 50
    assert other.send_request("POST", "/sign-up", b"", FORM).status == 403


QR_CODE = "/oauth/device/qr?user_code=BBBB-BBBB"


def test_code_request_rate_limit_per_address(connect_from: Callable[..., Sender]):
    """Every method, and far above what a school behind one address needs."""
    limited, other = connect_from("127.0.0.21"), connect_from("127.0.0.22")
    *accepted, refused = send_until_refused(limited, "GET", "/oauth/authorize")
    assert {answer.status for answer in accepted} == {400}
    assert len(accepted) >= 60
    assert refused.headers["retry-after"] == "5"
    for method, path in (
        *(("HEAD", "/oauth/authorize"), ("POST", "/oauth/authorize"), ("GET", "/oauth")),
        *(("GET", "/%6fauth/authorize"), ("GET", "//oauth/authorize")),
        *(("POST", "/play/x/authorize"), ("GET", "/play/x/authorize")),
        *(("POST", "/device"), ("GET", "/device"), ("POST", "/device/decision")),
    ):  # these share the limit
        assert len(send_until_refused(limited, method, path)) < 60
    assert [limited.send_request("GET", "/play/x").status for _ in range(90)] == [404] * 90
    for path in ("/oauth/userinfo", "/oauth/keys", "/oauth/logout", "/.well-known/x", QR_CODE):
        statuses = {limited.send_request("GET", path).status for _ in range(90)}
        assert len(statuses) == 1 and not statuses & {403, 429}
    assert other.send_request("GET", "/oauth/authorize").status == 400


def test_pages_of_other_sites_do_not_use_up_the_limits(connect_from: Callable[..., Sender]):
    """Their scripts post and load from the visitor's address, which has to stay free to sign in."""
    visitor = connect_from("127.0.0.25")
    forms = ("sign-in", "sign-up", "recover/password", "account/password", "account/picture")
    forms += ("developer/x/cover", "welcome/picture", "device", "device/decision")
    requests = [("POST", f"/{path}") for path in (*forms, "oauth/authorize", "play/x/authorize")]
    requests += [(method, "/oauth/authorize") for method in ("GET", "HEAD", "OPTIONS")]
    prefetch = FOREIGN_LINK | {"Sec-Fetch-Site": "none", "Sec-Purpose": "prefetch"}
    socket = {"Upgrade": "websocket", "Connection": "Upgrade", "Origin": "https://game.example"}
    foreign = [{"Sec-Fetch-Site": site} for site in ("cross-site", "x")]
    foreign += [FOREIGN_LOAD, prefetch, socket]
    for _ in range(10):
        for method, path in requests:
            is_refused_form = method == "POST" and path != "/oauth/authorize"
            for headers in (*foreign, *[FOREIGN_LINK] * is_refused_form):
                refused = visitor.send_request(method, path, None, headers)
                assert refused.status == 403
                assert method == "HEAD" or b"This is not allowed." in refused.body
    own = FORM | {"Sec-Fetch-Site": "same-origin"}
    assert visitor.send_request("POST", "/recover/password", b"", own).status == 400
    assert visitor.send_request("GET", "/oauth/authorize", headers=FOREIGN_LINK).status == 400
    # Negative control: these count. Clients post to the token endpoint from any site.
    assert len(send_until_refused(visitor, "POST", "/recover/password", own)) < 40
    assert len(send_until_refused(visitor, "GET", "/oauth/authorize", FOREIGN_LINK)) < 80
    for path in ("/api/oauth/token", "/oauth/device"):
        assert visitor.send_request("POST", path, b"", FORM | FOREIGN_LOAD).status == 400


def test_authorization_request_of_another_site_is_a_link_a_form_or_silent(
    connect_from: Callable[..., Sender], client: dict
):
    """The form counts, and a silent request in a frame does not (OpenID Connect Core 3.1.2.1)."""
    visitor = connect_from("127.0.0.26")
    frame = FORM | FOREIGN_LINK | {"Sec-Fetch-Dest": "iframe"}
    asked = f"response_type=code&scope=openid&client_id={client['client_id']}"
    own_text = b"This is not allowed."  # of nginx
    for path in ("/oauth/authorize", "/oauth"):
        for _ in range(80):
            silent = f"{path}?{asked}&prompt=none"
            answer = visitor.send_request("GET", silent, headers=frame)
            assert answer.status == 303
            assert "error=interaction_required" in answer.headers["location"]
        for method, query in (
            *(("GET", "prompt=login"), ("GET", "prompt=none%20login"), ("GET", "xprompt=none")),
            *(("GET", ""), ("POST", "prompt=none")),
        ):
            refused = visitor.send_request(method, f"{path}?{query}", b"", frame)
            assert refused.status == 403 and own_text in refused.body
    game = visitor.send_request("GET", "/play/x/authorize?prompt=none", headers=frame)
    assert game.status == 403 and own_text in game.body
    for sender, site in ((visitor, "same-site"), (connect_from("127.0.0.27"), "cross-site")):
        form = FORM | FOREIGN_LINK | {"Sec-Fetch-Site": site}
        *accepted, _ = send_until_refused(sender, "POST", "/oauth/authorize", form, asked)
        assert {answer.headers["location"] for answer in accepted} == {f"/oauth/authorize?{asked}"}
        assert 60 <= len(accepted) < 80


def test_forged_address_is_ignored(
    server: ServerBehindNginx, connect_from: Callable[..., Sender], client: dict
):
    """RFC 9700 4.13: failures count for the peer address, whatever the headers say."""
    attacker, other = connect_from("127.0.0.9"), connect_from("127.0.0.10")
    form = {"grant_type": "authorization_code", "code": "x", **client, "client_secret": "wrong"}
    wrong = urlencode(form)
    counts: Counter[int] = Counter()
    for number in range(CLIENT_FAILURES + 20):
        forged = f"203.0.113.{number}"
        headers = FORM | {
            "X-Forwarded-For": forged,
            "X_Forwarded_For": forged,
            "X-Forwarded-Host": "elsewhere.example",
            "X-Real-IP": forged,
            "Forwarded": f"for={forged}",
        }
        counts[attacker.send_request("POST", "/api/oauth/token", wrong, headers).status] += 1
    assert counts == {401: CLIENT_FAILURES, 429: 20}
    assert other.send_request("POST", "/api/oauth/token", wrong, FORM).status == 401
    assert f"{attacker.source_address[0]} - -" in server.access_log.read_text()
    assert "203.0.113" not in server.access_log.read_text()


# -- request smuggling and slow clients -----------------------------------------------------------

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LENGTH = b"Content-Length: %d" % len(SMUGGLED)
CHUNKED_SMUGGLED = b"0\r\n\r\n" + SMUGGLED
CHUNKED = b"Transfer-Encoding: chunked"


def post(*lines: bytes, body: bytes = SMUGGLED, path: bytes = b"/api/oauth/token") -> bytes:
    """Return a request whose body is, or may be parsed as, another request."""
    head = (b"POST %s HTTP/1.1" % path, b"Host: 127.0.0.1", *lines)
    return b"\r\n".join((*head, b"", body))


SMUGGLING_REQUESTS = [
    post(b"Content-Length: %d" % len(CHUNKED_SMUGGLED), CHUNKED, body=CHUNKED_SMUGGLED),
    post(CHUNKED, b"Content-Length: %d" % len(CHUNKED_SMUGGLED), body=CHUNKED_SMUGGLED),
    post(b"Content-Length: 0", LENGTH),
    post(LENGTH, b"Content-Length: 0"),
    post(b"Content-Length: 0, %d" % len(SMUGGLED)),
    post(b"Content-Length: +%d" % len(SMUGGLED)),
    post(b"Content-Length : %d" % len(SMUGGLED)),
    post(LENGTH, b"Transfer_Encoding: chunked"),
    post(LENGTH, b"Transfer-Encoding : chunked"),
    post(LENGTH, b"Transfer-Encoding: xchunked"),
    post(LENGTH, b"Transfer-Encoding: identity, chunked"),
    post(LENGTH, b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x"),
    post(LENGTH, b"Transfer-Encoding:\x0bchunked"),
    # obs-fold (RFC 9112 5.2)
    post(LENGTH, b"Transfer-Encoding:\r\n chunked"),
    post(LENGTH, b"X: y\r\n Transfer-Encoding: chunked"),
    post(b"Content-Length:\r\n %d" % len(SMUGGLED)),
    # If a bare LF ends the chunk extension, the chunk data is parsed as a request.
    post(
        CHUNKED, body=b"2;\nxx\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(CHUNKED_SMUGGLED), CHUNKED_SMUGGLED)
    ),
    post(CHUNKED, body=b'2;a="\n"\r\nxx\r\n%x\r\n%s\r\n0\r\n\r\n' % (len(SMUGGLED), SMUGGLED)),
    post(CHUNKED, body=b"0%x;\r\r\n%s\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)),
    post(CHUNKED, body=b"-1\r\n" + SMUGGLED),
    post(CHUNKED, body=b"1%s\r\n%s" % (b"0" * 16, SMUGGLED)),
    # An unread body must not be parsed as a request either.
    post(LENGTH, path=b"/nothing"),
    post(LENGTH, path=b"/api/oauth/whois"),
    post(LENGTH, path=b"/static/style.css"),
    post(LENGTH, b"Expect: 100-continue", path=b"/nothing"),
]


@pytest.mark.parametrize("through", ["nginx", "gunicorn alone"])
def test_smuggled_request_is_never_answered(
    server: ServerBehindNginx, send, ada: dict, through: str
):
    """Each request comes from an address of its own, 127.0.1.N, which the logs show."""

    def send_smuggling(number: int) -> None:
        address = f"127.0.1.{number}"
        if through == "nginx":
            connection = server.nginx.connect(address)
        else:
            backend = urlsplit(server.backend)
            connection = socket.create_connection(
                (backend.hostname, backend.port), source_address=(address, 0)
            )
        send_raw(connection, SMUGGLING_REQUESTS[number])

    with ThreadPoolExecutor(5) as threads:
        for _ in threads.map(send_smuggling, range(len(SMUGGLING_REQUESTS))):
            # Nor may its response be mixed up with that of the next request to the server.
            for _ in range(5):
                answer = send("GET", f"/api/users/info?id={ada['id']}")
                assert json.loads(answer.body)["user"]["name"] == "ada"
    lines = server.access_log.read_text().splitlines() + server.nginx.logged_lines()
    assert [line for line in lines if "/smuggled" in line] == []


def test_second_request_is_logged(server: ServerBehindNginx):
    """Negative control: two pipelined requests are in both logs."""
    request = SMUGGLED.replace(b"smuggled", b"open")
    last = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with server.nginx.connect() as connection:  # open until both responses have arrived
        connection.sendall(request + last)
        while connection.recv(65536):
            pass
    for log in (server.access_log, server.nginx.access_log):
        wait_until(lambda log=log: log.read_text().count("/open HTTP") == 2)


SLOW_CLIENT_TIMEOUT = 10  # seconds without a byte after which nginx closes a connection


def test_400_slow_clients_do_not_delay_other_requests(
    server: ServerBehindNginx, connect_from: Callable[..., Sender], ada: dict
):
    """Half of them never complete their headers, and half never complete their body."""
    incomplete_requests = (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        b"POST /api/oauth/token HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n",
    )
    with contextlib.ExitStack() as opened:
        slow = [opened.enter_context(server.nginx.connect("127.0.0.12")) for _ in range(400)]
        durations = []  # seconds
        for sent in (incomplete_requests, *[(b"a", b"a")] * 4):
            for number, connection in enumerate(slow):
                with contextlib.suppress(OSError):  # nginx closes slow connections
                    connection.sendall(sent[number % 2])
            started = time.monotonic()
            answer = connect_from().send_request("GET", f"/api/users/info?id={ada['id']}")
            assert answer.status == 200
            durations.append(time.monotonic() - started)
    # With all threads blocked, a request waits until nginx closes a connection.
    assert max(durations) < SLOW_CLIENT_TIMEOUT / 2


# -- logs -----------------------------------------------------------------------------------------

ACCESS_LINE = re.compile(
    r'127\.0\.\d\.\d+ - - \[\S+\] "(-|[A-Za-z]+ \S+) \S*" (\d{3}) \d+ \d+\.\d{3} (-|\d+\.\d{3})'
)


def test_no_log_contains_a_code_token_secret_or_one_time_key(
    server: ServerBehindNginx,
    form_browser: FormBrowser,
    connect_from: Callable[..., Sender],
    ada: dict,
    nginx_without_server: Nginx,
):
    """After a complete grant, failing requests of every kind, and Referers with secrets."""
    client = server.add_client("Logged Game", CALLBACK)
    invitation = server.command("invite")[0]
    sign_in_link = server.command("user", "sign-in-link", "ada")["link"]
    state = secrets.token_urlsafe(16)
    query = {"response_type": "code", "client_id": client["client_id"], "state": state}
    arrived = form_browser.allow(f"/oauth/authorize?{urlencode(query)}", "ada")
    form = {"grant_type": "authorization_code", "code": arrived.answer["code"], **client}
    get, post = form_browser.session.get, form_browser.session.post
    got = post(f"{server.address}/api/oauth/token", form, timeout=ANSWER_TIMEOUT).json()
    token = got["access_token"]
    get(f"{server.address}/api/oauth/whois", headers={"Authorization": f"Bearer {token}"})
    # Secrets that belong into a body or a header, sent in addresses and Referers instead.
    secret = urlencode(form | {"access_token": token, "state": state})
    referring = {"Referer": f"{server.address}/callback?{secret}"}
    for page in (invitation, sign_in_link, referring["Referer"]):
        get(page)
        plain_http = f"http://127.0.0.1:{server.nginx.http_port}"
        get(page.replace(server.address, plain_http), allow_redirects=False)
        headers = {"Referer": page}
        query = page.partition("?")[2]
        for path in ("/static/style.css", "/static/none.css", "/pfp/small/1.webp", "/nothing"):
            get(f"{server.address}{path}?{query}", headers=headers)
        for path in ("/api/oauth/token", "/sign-in", "/account/picture"):
            too_large = b"x" * (9 * 2**20 + 1)
            post(f"{server.address}{path}?{query}", too_large, headers=headers)
        get(f"{server.address}/api/oauth/whois/{token}?{query}", headers=headers)
        start = f"GET /api/x?{query}"
        broken = f"{start} HTTP/1.1\r\nHost: 127.0.0.1\r\nReferer: {page}\r\n"
        post_start = broken.replace("GET", "POST")
        for sent in (
            *(f"{start}{rest}\r\nReferer: {page}" for rest in (" HTTP/9.9", " two HTTP/1.1", "")),
            *(f"{start}{rest}\r\nReferer: {page}" for rest in ("&" + "1" * 9000, "\x01 HTTP/1.1")),
            *(f"{broken}{rest}" for rest in ("Host: again", "X: " + "y" * 9000, page)),
            *(f"{broken}Transfer-Encoding: x", query),
            f"{post_start}Transfer-Encoding: chunked\r\n\r\nZZ",
            f"{post_start}Content-Length: 9\r\n\r\nx",
        ):
            send_raw(server.nginx.connect(), f"{sent}\r\n\r\n".encode())
    headers = FORM | referring
    send_until_refused(connect_from("127.0.0.11"), "POST", f"/sign-up?{secret}", headers)
    for path in ("/", "/pfp/small/1.webp", "/api/oauth/token"):
        sender = connect_from(nginx=nginx_without_server)
        sender.send_request("GET", f"{path}?{secret}", headers=referring)

    both = (server.nginx, nginx_without_server)
    lines = [line for nginx in both for line in nginx.logged_lines()]
    matches = [ACCESS_LINE.fullmatch(line) for line in lines]
    assert [line for line, match in zip(lines, matches, strict=True) if not match] == []
    seen = {match[2] for match in matches}
    assert seen >= {"200", "301", "303", "400", "404", "413", "414", "429", "431", "501", "502"}
    logs = [server.access_log, server.error_log]
    logs += [log for nginx in both for log in nginx.folder.glob("*.log")]
    written = "\n".join(log.read_text() for log in logs)
    session = form_browser.session.cookies["__Host-session"]
    for secret in (
        *(form["code"], token, client["client_secret"], state, PASSWORD),
        *(session, invitation, sign_in_link),
    ):
        assert secret.rpartition("=")[2] not in written
        assert secret.rpartition("=")[2][-20:] not in written
