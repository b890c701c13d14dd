"""deploy/nginx.conf, with nginx in front of gunicorn."""

import base64
import contextlib
import functools
import hashlib
import http.client
import json
import re
import secrets
import shlex
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from conftest import FOREIGN_LINK
from programs import free_port
from waiting import wait_until

from identity.clients import CLIENT_FAILURES
from identity.settings import ROOT
from identity_server import PAGE_BODY_LIMIT, TOKEN_BODY_LIMIT
from storage import Storage
from storage.pictures import generate_picture

from .behind_nginx import Nginx, ServerBehindNginx
from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, PASSWORD, running_server

pytestmark = [pytest.mark.live, pytest.mark.nginx]

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# Headers that a proxy adds or replaces; all others must be the server's.
PROXY_HEADERS = {"server", "date", "connection", "keep-alive", "strict-transport-security"}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerBehindNginx]:
    """A running server behind nginx."""
    with running_server(ServerBehindNginx) as server:
        yield server


@pytest.fixture
def form_browser(server: ServerBehindNginx) -> Iterator[FormBrowser]:
    """A form browser that is signed out and connects to nginx."""
    form_browser = FormBrowser(server.address)
    form_browser.session.verify = str(server.nginx.certificate)
    form_browser.session.trust_env = False  # otherwise REQUESTS_CA_BUNDLE takes precedence
    yield form_browser
    form_browser.close()


class Answer:
    """A response: status, headers by lower-case name, and body."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.body = answer.read()

    @property
    def message(self) -> str:
        """The message of an error response under /api/, which must be its only content."""
        assert self.headers["content-type"] == "application/json"
        [(name, message)] = json.loads(self.body).items()
        assert name == "message" and message
        return message

    def own_headers(self) -> dict:
        return {name: self.headers[name] for name in self.headers.keys() - PROXY_HEADERS}


class Sender(http.client.HTTPSConnection):
    """A connection to nginx from this loopback address; each address has its own rate limits."""

    def __init__(self, nginx: Nginx, address: str = "127.0.0.1") -> None:
        trusted = ssl.create_default_context(cafile=str(nginx.certificate))
        super().__init__(
            *("127.0.0.1", nginx.https_port),
            **{"context": trusted, "timeout": ANSWER_TIMEOUT, "source_address": (address, 0)},
        )

    def send_request(self, method: str, path: str, body=None, headers=None, **options) -> Answer:
        self.request(method, path, body, headers or {}, **options)
        return Answer(self.getresponse())


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


def send_http(
    address: str, method: str, path: str, body: bytes | None = None, headers: dict | None = None
) -> Answer:
    """Send one request by plain HTTP, to gunicorn or to nginx."""
    plain = http.client.HTTPConnection(urlsplit(address).netloc, timeout=ANSWER_TIMEOUT)
    with contextlib.closing(plain):
        plain.request(method, path, body, {"Host": "127.0.0.1"} | (headers or {}))
        return Answer(plain.getresponse())


def send_and_read(connection: socket.socket, sent: bytes) -> Answer:
    """Send these bytes and return the first response."""
    connection.settimeout(ANSWER_TIMEOUT)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused during the upload
        connection.sendall(sent)
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return Answer(answer)


def send_raw(connection: socket.socket, sent: bytes) -> None:
    """Send these bytes; return when the connection ends or is silent for a tenth of a second."""
    connection.settimeout(0.1)
    with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
        connection.sendall(sent)
        while connection.recv(65536):
            pass


# -- requests passed on to the server -----------------------------------------------------------


def test_grant_works_through_nginx(form_browser: FormBrowser, ada: dict, client: dict, send):
    query = {"response_type": "code", "client_id": client["client_id"], "state": "xyz"}
    answer = form_browser.allow(f"/oauth/authorize?{urlencode(query)}", "ada").answer
    assert answer["state"] == "xyz"
    form = {"grant_type": "authorization_code", "code": answer["code"]}
    form |= {each: client[each] for each in ("client_id", "client_secret")}
    got = send("POST", "/api/oauth/token", urlencode(form), FORM)
    assert got.status == 200
    bearer = {"Authorization": f"Bearer {json.loads(got.body)['access_token']}"}
    who = send("GET", "/api/oauth/whois", headers=bearer)
    assert (who.status, json.loads(who.body)["name"]) == (200, "ada")


@pytest.mark.parametrize("state", ["x" * 7000, '{"' * 450])
def test_longest_state_is_returned(form_browser: FormBrowser, ada: dict, client: dict, state: str):
    """With sign-in and consent, and again with a remembered consent."""
    query = {"response_type": "code", "client_id": client["client_id"], "state": state}
    for _ in range(2):
        answer = form_browser.allow(f"/oauth/authorize?{urlencode(query)}", "ada").answer
        assert answer.keys() >= {"code", "state"}
        assert answer["state"] == state


@pytest.mark.parametrize(
    ("method", "path", "headers", "body"),
    [
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
        ("GET", "/oauth/authorize", {}, None),
        ("GET", "/sign-in?next=/account", {}, None),
        ("GET", "/account", {}, None),
        ("GET", "/nothing", {}, None),
        ("POST", "/sign-out", FORM | {"Sec-Fetch-Site": "cross-site"}, b"next=/"),
        ("POST", "/account/picture", FORM, b""),
        ("GET", "/pfp/large/999999.webp", {}, None),
        ("GET", "/pfp/huge/1.webp", {}, None),
        ("GET", "/static/nothing.css", {}, None),
        ("GET", "/static/.hidden", {}, None),
    ],
)
def test_nginx_passes_responses_through_unchanged(
    server: ServerBehindNginx, ada: dict, send, method, path, headers, body
):
    expected = send_http(server.backend, method, path, body, headers)
    answer = send(method, path, body, headers)
    assert answer.status == expected.status
    assert answer.own_headers() == expected.own_headers()
    assert answer.body == expected.body


def test_http_redirects_to_https(server: ServerBehindNginx):
    address = f"http://127.0.0.1:{server.nginx.http_port}"
    elsewhere = {"Host": "elsewhere.example"}
    answer = send_http(address, "GET", "/sign-in?next=/account", headers=elsewhere)
    assert answer.status == 301
    assert answer.headers["location"] == "https://127.0.0.1/sign-in?next=/account"


@pytest.fixture
def another_server() -> Iterator[ServerBehindNginx]:
    """A server for one test alone."""
    with running_server(ServerBehindNginx) as server:
        yield server


def test_reload_fails_none_of_a_thousand_requests(another_server: ServerBehindNginx):
    """Three reloads with the command of the systemd unit, under load of keep-alive connections."""
    server = another_server
    user = server.add_user("ada")
    reloaded = threading.Event()
    answers: Counter[tuple[str, int]] = Counter()

    def use(number: int) -> None:
        with contextlib.closing(Sender(server.nginx, f"127.0.0.{number}")) as sender:
            while not reloaded.is_set() or answers.total() < 1000:
                if number % 2:
                    answer = sender.send_request("POST", "/api/oauth/token", b"", FORM)
                    answers["POST", answer.status] += 1
                    time.sleep(0.02)  # nginx takes fifty a second
                else:
                    answer = sender.send_request("GET", f"/api/users/info?id={user['id']}")
                    answers["GET", answer.status] += 1

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(use, number) for number in range(1, 5)]
        try:
            for _ in range(3):
                before = set(server.workers())
                reload = unit_value("ExecReload").replace("$MAINPID", str(server.process.pid))
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


def unit_value(name: str) -> str:
    """Return the value of this key in the systemd unit."""
    unit = Path(ROOT) / "deploy" / "identity-server.service"
    return re.search(f"^{name}=(.*)$", unit.read_text(), re.MULTILINE)[1]


# -- files ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_upstream_requests(nginx: Nginx) -> Iterator[None]:
    """Check that nginx passes no request on: the log lines have no upstream time."""
    # A line is written after its response, and before the next request is read.
    mark = f"/{secrets.token_hex(8)}"
    send_http(f"http://127.0.0.1:{nginx.http_port}", "GET", mark)
    wait_until(lambda: mark in nginx.access_log.read_text())
    seen = len(lines_of(nginx.access_log))
    yield
    wait_until(lambda: len(lines_of(nginx.access_log)) > seen)
    assert all(line.endswith(" -") for line in lines_of(nginx.access_log)[seen:])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Range": "bytes=0-9"},
        {"Range": "bytes=-10"},
        {"If-None-Match": "*"},
        {"If-Modified-Since": "Sat, 01 Jan 2050 00:00:00 GMT"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_nginx_serves_pictures_like_the_server(
    server: ServerBehindNginx, ada: dict, send, method: str, headers: dict
):
    imported = server.picture_dir / "small" / "77.webp"  # an account without pfpTimestamp
    imported.write_bytes(generate_picture(77)["small"])
    imported.chmod(0o644)
    picture = server.open_storage().users.read(ada["id"]).picture_file
    for path in (f"/pfp/large/{picture}", "/pfp/small/77.webp"):
        expected = send_http(server.backend, method, path, headers=headers)
        with no_upstream_requests(server.nginx):
            answer = send(method, path, headers=headers)
        assert (answer.status, answer.body) == (expected.status, expected.body)
        if answer.status != 200:  # only one of the two repeats these headers
            for each in (answer, expected):
                each.headers.pop("accept-ranges", None)
                each.headers.pop("last-modified", None)
        assert answer.own_headers() == expected.own_headers()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_file_methods_other_than_get_and_head_are_405_with_allow(send, method: str):
    """RFC 9110 15.5.6"""
    for path in ("/static/style.css", "/pfp/large/1.webp"):
        answer = send(method, path)
        assert answer.status == 405
        assert {"GET", "HEAD"} <= set(answer.headers["allow"].split(", "))


STATIC_FILES = sorted(each.name for each in Path(ROOT, "static").iterdir() if each.is_file())


@pytest.mark.parametrize("name", STATIC_FILES)
def test_nginx_serves_static_files_like_the_server(server: ServerBehindNginx, send, name: str):
    expected = send_http(server.backend, "GET", f"/static/{name}")
    with no_upstream_requests(server.nginx):
        answer = send("GET", f"/static/{name}")
        unchanged = {"If-None-Match": answer.headers["etag"]}
        assert send("GET", f"/static/{name}", headers=unchanged).status == 304
    assert (answer.status, answer.body) == (200, expected.body)
    # Flask has another ETag format, and sends `inline`, which is the browsers' default.
    expected.headers |= {"etag": answer.headers["etag"]}
    del expected.headers["content-disposition"]
    assert answer.own_headers() == expected.own_headers()


def test_module_for_other_sites_has_the_headers_of_the_server(server: ServerBehindNginx, send):
    path = "/static/v1/identity.js"
    expected = send_http(server.backend, "GET", path)
    answer = send("GET", path, headers={"Origin": "https://game.example"})
    assert (answer.status, answer.body) == (200, expected.body)
    assert answer.own_headers() == expected.own_headers()
    assert answer.headers["access-control-allow-origin"] == "*"
    assert send("GET", path, headers={"If-None-Match": answer.headers["etag"]}).status == 304


def test_replaced_picture_is_404_at_once(store: Storage, ada: dict, send):
    pictures = [generate_picture(number) for number in (1000, 1001)]
    for number in range(20):
        old = store.users.read(ada["id"]).pfp_timestamp
        paths = [f"/pfp/{size}/{ada['id']}-{old}.webp" for size in ("large", "medium", "small")]
        assert [send("GET", path).status for path in paths] == [200, 200, 200]
        new = store.pictures.save(ada["id"], pictures[number % 2])
        assert [send("GET", path).status for path in paths] == [404, 404, 404]
        answer = send("GET", f"/pfp/large/{ada['id']}-{new}.webp")
        assert answer.body == pictures[number % 2]["large"]


def test_missing_picture_is_requested_from_the_server(server: ServerBehindNginx, send):
    """The server generates the pictures of imported accounts when they are read."""
    seen = len(lines_of(server.access_log))
    send("GET", "/pfp/medium/4242.webp")
    request_line = '"GET /pfp/medium/4242.webp HTTP/1.1"'
    wait_until(lambda: any(request_line in line for line in lines_of(server.access_log)[seen:]))


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
    for _ in range(1000):
        assert send("POST", "/api/x", b"x" * PAGE_BODY_LIMIT, FORM).status == 404


# -- requests refused by nginx --------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("path", "limit"), [("/api/oauth/token", TOKEN_BODY_LIMIT), ("/api/x", PAGE_BODY_LIMIT)]
)
def test_body_over_the_limit_is_413_as_json(send, path, limit, chunked):
    def body(size: int):
        return iter([b"x" * size]) if chunked else b"x" * size

    assert send("POST", path, body(limit), FORM, encode_chunked=chunked).status in (400, 404)
    refused = send("POST", path, body(limit + 1), FORM, encode_chunked=chunked)
    assert refused.status == 413
    assert "larger" in refused.message


def test_body_limits_of_pages_and_picture_uploads(connect_from: Callable[..., Sender]):
    send = connect_from("127.0.0.20").send_request
    assert send("POST", "/account", b"x" * PAGE_BODY_LIMIT, FORM).status == 303
    assert send("POST", "/account", b"x" * (PAGE_BODY_LIMIT + 1), FORM).status == 413
    for _ in range(20):
        # Signed out, so the server responds without reading the body.
        upload = b"x" * (2**23 + PAGE_BODY_LIMIT)
        assert send("POST", "/account/picture", upload, FORM).status == 303
    refused = send("POST", "/account/picture", b"x" * (9 * 2**20 + 1), FORM)
    assert refused.status == 413
    assert refused.headers["content-type"] == "text/html; charset=utf-8"
    assert b"larger than the limit" in refused.body


@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("GET /api/users/info?id=" + "1" * 9000 + " HTTP/1.1\r\nHost: 127.0.0.1", 414),
        ("GET /api/users/info HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + "y" * 9000, 431),
        ("GET /api/users/info HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: x", 400),
        ("GET /api/users/info HTTP/1.1\r\nHost: a b", 400),
        ("GET /api/users/info HTTP/1.1", 400),
        ("GET /api/users/info HTTP/9.9\r\nHost: 127.0.0.1", 505),
        ("GET /api/users/info two HTTP/1.1\r\nHost: 127.0.0.1", 400),
        ("GET /api/\x01 HTTP/1.1\r\nHost: 127.0.0.1", 400),
        ("GET /api/%00 HTTP/1.1\r\nHost: 127.0.0.1", 400),
        ("get /api/users/info HTTP/1.1\r\nHost: 127.0.0.1", 400),
        ("TRACE /api/users/info HTTP/1.1\r\nHost: 127.0.0.1", 405),
        ("POST /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip", 501),
        ("POST /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ", 400),
    ],
)
def test_malformed_request_is_refused_as_json(server: ServerBehindNginx, start: str, status: int):
    sent = f"{start}\r\n\r\n".encode()
    with server.nginx.connect() as connection:
        answer = send_and_read(connection, sent)
    assert answer.status == status and answer.message
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("GET /api/users/info HTTP/1.1\r\nHost: 127.0.0.1\r\n" + "a: b\r\n" * 150 + "c: d", 431),
        ("G /api/users/info HTTP/1.1\r\nHost: 127.0.0.1", 400),
    ],
    ids=["headers", "method"],
)
def test_gunicorn_refusals_are_passed_through(server: ServerBehindNginx, start: str, status: int):
    """nginx accepts these requests and passes on gunicorn's error page."""
    with server.nginx.connect() as connection:
        assert send_and_read(connection, f"{start}\r\n\r\n".encode()).status == status


@pytest.mark.parametrize("dead", [True, False])
def test_dead_or_silent_server_is_502_or_504_as_json_or_page(
    tmp_path: Path, connect_from: Callable[..., Sender], dead: bool
):
    """The JSON error has CORS headers, and all errors have Retry-After."""
    nginx = Nginx(tmp_path / "nginx", read_timeout_ms=500)
    silent = socket.create_server(("127.0.0.1", 0))
    backend = f"127.0.0.1:{free_port() if dead else silent.getsockname()[1]}"
    with silent, nginx.running(backend):
        for path in ("/api/users/info?id=1", "/", "/pfp/small/1.webp"):
            answer = connect_from(nginx=nginx).send_request("GET", path)
            assert answer.status == (502 if dead else 504)
            assert answer.headers["retry-after"] == "5"
            assert answer.headers["cache-control"] == "no-store"
            if path.startswith("/api/"):
                assert (
                    answer.message
                    == "The server is not available right now. Try again in a moment."
                )
                assert answer.headers["access-control-allow-origin"] == "*"
            else:
                assert answer.headers["content-type"].startswith("text/html")
                assert (
                    b"The server is not available right now. Try again in a moment." in answer.body
                )
        # The body limit error must not replace the upstream error.
        upload = connect_from(nginx=nginx).send_request("POST", "/account/picture", b"x" * 2**20)
        assert upload.status in (502, 504)


def test_own_error_page_has_a_viewport_and_the_style_that_its_policy_allows(send):
    page = send("POST", "/static/style.css")
    assert b'<meta name="viewport" content="width=device-width, initial-scale=1">' in page.body
    [style] = re.findall(b"<style>(.*?)</style>", page.body, re.DOTALL)
    assert b"prefers-color-scheme: dark" in style
    digest = base64.b64encode(hashlib.sha256(style).digest()).decode()
    policy = page.headers["content-security-policy"]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"


def post_until_refused(sender: Sender, path: str, headers: dict = FORM) -> list[Answer]:
    """Post until a response has the status 429; return all responses."""
    return send_until_refused(sender, "POST", path, headers)


def send_until_refused(
    sender: Sender, method: str, path: str, headers: dict = FORM
) -> list[Answer]:
    """Send requests until a response has the status 429; return all responses."""
    answers: list[Answer] = []
    while not answers or answers[-1].status != 429:
        assert len(answers) < 10_000
        answers.append(sender.send_request(method, path, b"", headers))
    return answers


def test_token_request_rate_limit_per_address(connect_from: Callable[..., Sender]):
    limited, other = connect_from("127.0.0.5"), connect_from("127.0.0.6")
    *accepted, refused = post_until_refused(limited, "/api/oauth/token")
    assert {answer.status for answer in accepted} == {400}
    assert len(accepted) >= 200
    assert refused.message == "Too many requests. Try again in a moment."
    assert refused.headers["retry-after"] == "5"
    assert other.send_request("POST", "/api/oauth/token", b"", FORM).status == 400
    assert limited.send_request("GET", "/api/users/info?id=999999").status == 404


def test_password_form_rate_limit_per_address(connect_from: Callable[..., Sender]):
    limited, other = connect_from("127.0.0.7"), connect_from("127.0.0.8")
    # Sign-up without an invitation is refused without hashing a password.
    *accepted, _ = post_until_refused(limited, "/sign-up")
    assert {answer.status for answer in accepted} == {403}
    assert len(accepted) >= 30
    names = ("password", "email", "delete", "picture")
    # All of these share the limit: only its refill is left.
    for path in ("/sign-in", "/new-password", *(f"/account/{name}" for name in names)):
        assert len(post_until_refused(limited, path)) < 30
    assert limited.send_request("GET", "/account").status == 303
    assert [limited.send_request("GET", "/sign-in").status for _ in range(50)] == [200] * 50
    assert other.send_request("POST", "/sign-up", b"", FORM).status == 403


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
    ):  # these share the limit
        assert len(send_until_refused(limited, method, path)) < 60
    assert [limited.send_request("GET", "/play/x").status for _ in range(90)] == [404] * 90
    assert other.send_request("GET", "/oauth/authorize").status == 400


def test_pages_of_other_sites_do_not_use_up_the_limits(connect_from: Callable[..., Sender]):
    """Their scripts post and load from the visitor's address, which has to stay free to sign in."""
    visitor = connect_from("127.0.0.25")
    forms = ("sign-in", "sign-up", "new-password", "account/password", "account/picture")
    requests = [("POST", f"/{path}") for path in (*forms, "oauth/authorize", "play/x/authorize")]
    requests += [(method, "/oauth/authorize") for method in ("GET", "HEAD", "OPTIONS")]
    image = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    prefetch = FOREIGN_LINK | {"Sec-Fetch-Site": "none", "Sec-Purpose": "prefetch"}
    socket = {"Upgrade": "websocket", "Connection": "Upgrade", "Origin": "https://game.example"}
    foreign = (image, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "x"}, prefetch, socket)
    for _ in range(10):
        for method, path in requests:
            for headers in (*foreign, *[FOREIGN_LINK] * (method == "POST")):
                refused = visitor.send_request(method, path, None, headers)
                assert refused.status == 403
                assert method == "HEAD" or b"This is not allowed." in refused.body
    own = FORM | {"Sec-Fetch-Site": "same-origin"}
    assert visitor.send_request("POST", "/new-password", b"", own).status == 403
    assert visitor.send_request("GET", "/oauth/authorize", headers=FOREIGN_LINK).status == 400
    # Negative control: these count. Clients post to the token endpoint from any site.
    assert len(send_until_refused(visitor, "POST", "/new-password", own)) < 40
    assert len(send_until_refused(visitor, "GET", "/oauth/authorize", FOREIGN_LINK)) < 80
    assert visitor.send_request("POST", "/api/oauth/token", b"", FORM | image).status == 400


def test_every_https_response_has_strict_transport_security(
    server: ServerBehindNginx, connect_from: Callable[..., Sender], tmp_path: Path
):
    """Also files and nginx's own errors; RFC 6797 7.2 forbids it over plain HTTP."""
    send = connect_from("127.0.0.23").send_request
    user = server.add_user("hester")
    picture = f"/pfp/large/{user['id']}-{user['pfpTimestamp']}.webp"
    cases = [
        *(("GET", path, 200) for path in ("/", "/static/style.css", picture)),
        *(("GET", path, 404) for path in ("/static/none.css", "/pfp/huge/1.webp", "/nothing")),
        *(("POST", path, 405) for path in ("/static/style.css", picture)),
        ("POST", "/account", 413),
        ("POST", "/api/oauth/token", 413),
    ]
    answers = [send(method, path, b"x" * 2**17 * (status == 413)) for method, path, status in cases]
    assert [answer.status for answer in answers] == [status for _, _, status in cases]
    unchanged = {"If-None-Match": answers[1].headers["etag"]}
    answers += [send("GET", "/static/style.css", headers=unchanged)]
    answers += [send("GET", "/static/style.css", headers={"Range": "bytes=99999999-"})]
    assert [answer.status for answer in answers[-2:]] == [304, 416]
    answers += post_until_refused(connect_from("127.0.0.24"), "/sign-in")[-1:]
    dead = Nginx(tmp_path / "dead")  # no server behind it
    with dead.running(f"127.0.0.1:{free_port()}"):
        for path in ("/", "/api/oauth/whois"):
            answers.append(connect_from(nginx=dead).send_request("GET", path))
    for answer in answers:
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
    for port, path in ((server.nginx.http_port, "/"), (server.nginx.https_port, "/api/x")):
        plain = send_http(f"http://127.0.0.1:{port}", "GET", path)
        assert (plain.status, "strict-transport-security" in plain.headers) in (
            (301, False),
            (400, False),
        )


def test_forged_address_is_ignored(
    server: ServerBehindNginx, connect_from: Callable[..., Sender], client: dict
):
    """RFC 9700 4.13: failures count for the peer address, whatever the headers say."""
    attacker, other = connect_from("127.0.0.9"), connect_from("127.0.0.10")
    form = {"grant_type": "authorization_code", "code": "x", "client_id": client["client_id"]}
    wrong = urlencode(form | {"client_secret": "wrong"})
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


def post(*lines: bytes, body: bytes, path: bytes = b"/api/oauth/token") -> bytes:
    """Return a request whose body is, or may be parsed as, another request."""
    head = (b"POST %s HTTP/1.1" % path, b"Host: 127.0.0.1", *lines)
    return b"\r\n".join((*head, b"", body))


@pytest.mark.parametrize("through", ["nginx", "gunicorn alone"])
@pytest.mark.parametrize(
    "sent",
    [
        post(b"Content-Length: %d" % len(CHUNKED_SMUGGLED), CHUNKED, body=CHUNKED_SMUGGLED),
        post(CHUNKED, b"Content-Length: %d" % len(CHUNKED_SMUGGLED), body=CHUNKED_SMUGGLED),
        post(b"Content-Length: 0", LENGTH, body=SMUGGLED),
        post(LENGTH, b"Content-Length: 0", body=SMUGGLED),
        post(b"Content-Length: 0, %d" % len(SMUGGLED), body=SMUGGLED),
        post(b"Content-Length: +%d" % len(SMUGGLED), body=SMUGGLED),
        post(b"Content-Length : %d" % len(SMUGGLED), body=SMUGGLED),
        post(LENGTH, b"Transfer_Encoding: chunked", body=SMUGGLED),
        post(LENGTH, b"Transfer-Encoding : chunked", body=SMUGGLED),
        post(LENGTH, b"Transfer-Encoding: xchunked", body=SMUGGLED),
        post(LENGTH, b"Transfer-Encoding: identity, chunked", body=SMUGGLED),
        post(LENGTH, b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", body=SMUGGLED),
        post(LENGTH, b"Transfer-Encoding:\x0bchunked", body=SMUGGLED),
        # obs-fold (RFC 9112 5.2)
        post(LENGTH, b"Transfer-Encoding:\r\n chunked", body=SMUGGLED),
        post(LENGTH, b"X: y\r\n Transfer-Encoding: chunked", body=SMUGGLED),
        post(b"Content-Length:\r\n %d" % len(SMUGGLED), body=SMUGGLED),
        # If a bare LF ends the chunk extension, the chunk data is parsed as a request.
        post(
            CHUNKED,
            body=b"2;\nxx\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(CHUNKED_SMUGGLED), CHUNKED_SMUGGLED),
        ),
        post(CHUNKED, body=b'2;a="\n"\r\nxx\r\n%x\r\n%s\r\n0\r\n\r\n' % (len(SMUGGLED), SMUGGLED)),
        post(CHUNKED, body=b"0%x;\r\r\n%s\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)),
        post(CHUNKED, body=b"-1\r\n" + SMUGGLED),
        post(CHUNKED, body=b"1%s\r\n%s" % (b"0" * 16, SMUGGLED)),
        # An unread body must not be parsed as a request either.
        post(LENGTH, body=SMUGGLED, path=b"/nothing"),
        post(LENGTH, body=SMUGGLED, path=b"/api/oauth/whois"),
        post(LENGTH, body=SMUGGLED, path=b"/static/style.css"),
        post(LENGTH, b"Expect: 100-continue", body=SMUGGLED, path=b"/nothing"),
    ],
)
def test_smuggled_request_is_never_answered(
    server: ServerBehindNginx, send, ada: dict, sent: bytes, through: str
):
    if through == "nginx":
        connection = server.nginx.connect()
    else:
        host, port = urlsplit(server.backend).netloc.split(":")
        connection = socket.create_connection((host, int(port)))
    send_raw(connection, sent)
    # Nor may its response be mixed up with that of the next request on an upstream connection.
    for _ in range(5):
        answer = send("GET", f"/api/users/info?id={ada['id']}")
        assert json.loads(answer.body)["user"]["name"] == "ada"
    assert "/smuggled" not in server.access_log.read_text()
    assert "/smuggled" not in server.nginx.access_log.read_text()


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
    assert (
        max(durations) < SLOW_CLIENT_TIMEOUT / 2
    )  # with all threads blocked, a request waits for LETS_GO


# -- logs -----------------------------------------------------------------------------------------

ACCESS_LINE = re.compile(
    r'127\.0\.0\.\d+ - - \[\S+\] "(-|[A-Za-z]+ \S+) \S*" \d{3} \d+ \d+\.\d{3} (-|\d+\.\d{3})'
)


def test_no_log_contains_a_code_token_secret_or_one_time_key(
    server: ServerBehindNginx,
    form_browser: FormBrowser,
    connect_from: Callable[..., Sender],
    ada: dict,
    tmp_path: Path,
):
    """After a complete grant, failing requests of every kind, and Referers with secrets."""
    client = server.add_client("Logged Game", CALLBACK)
    invitation = server.command("invite")[0]
    sign_in_link = server.command("user", "sign-in-link", "ada")["link"]
    state = secrets.token_urlsafe(16)
    query = {"response_type": "code", "client_id": client["client_id"], "state": state}
    arrived = form_browser.allow(f"/oauth/authorize?{urlencode(query)}", "ada")
    form = {"grant_type": "authorization_code", "code": arrived.answer["code"]}
    form |= {each: client[each] for each in ("client_id", "client_secret")}
    get, post = form_browser.session.get, form_browser.session.post
    got = post(f"{server.address}/api/oauth/token", form, timeout=ANSWER_TIMEOUT).json()
    token = got["access_token"]
    get(f"{server.address}/api/oauth/whois", headers={"Authorization": f"Bearer {token}"})
    # Secrets that belong into a body or a header, sent in addresses and Referers instead.
    secret = urlencode(form | {"access_token": token, "state": state})
    pages = [invitation, sign_in_link, f"{server.address}/callback?{secret}"]
    for page in pages:
        get(page)
        get(
            page.replace(server.address, f"http://127.0.0.1:{server.nginx.http_port}"),
            allow_redirects=False,
        )
        referring = {"Referer": page}
        query = page.partition("?")[2]
        for path in ("/static/style.css", "/static/none.css", "/pfp/small/1.webp", "/nothing"):
            get(f"{server.address}{path}?{query}", headers=referring)
        for path in ("/api/oauth/token", "/sign-in", "/account/picture"):
            too_large = b"x" * (9 * 2**20 + 1)
            post(f"{server.address}{path}?{query}", too_large, headers=referring)
        get(f"{server.address}/api/oauth/whois/{token}?{query}", headers=referring)
        start = f"GET /api/x?{query}"
        for rest in (" HTTP/9.9", "&" + "1" * 9000, " two HTTP/1.1", "\x01 HTTP/1.1", ""):
            send_raw(server.nginx.connect(), f"{start}{rest}\r\nReferer: {page}\r\n\r\n".encode())
        send_raw(server.nginx.connect(), f"{query}\r\n\r\n".encode())
        broken = f"{start} HTTP/1.1\r\nHost: 127.0.0.1\r\nReferer: {page}\r\n"
        for rest in ("Host: again", "X: " + "y" * 9000, "Transfer-Encoding: x", page):
            send_raw(server.nginx.connect(), f"{broken}{rest}\r\n\r\n".encode())
        post_start = broken.replace("GET", "POST")
        for body in ("Transfer-Encoding: chunked\r\n\r\nZZ\r\n", "Content-Length: 9\r\n\r\nx"):
            send_raw(server.nginx.connect(), f"{post_start}{body}".encode())
    post_until_refused(
        connect_from("127.0.0.11"), f"/sign-up?{secret}", FORM | {"Referer": pages[2]}
    )
    dead = Nginx(tmp_path / "dead")  # no server behind it
    with dead.running(f"127.0.0.1:{free_port()}"):
        for path in ("/", "/pfp/small/1.webp", "/api/oauth/token"):
            referring = {"Referer": pages[2]}
            connect_from(nginx=dead).send_request("GET", f"{path}?{secret}", headers=referring)

    seen = {"200", "301", "303", "400", "404", "413", "414", "429", "431", "501", "502"}
    access_logs = (server.nginx.access_log, dead.access_log)
    wait_until(lambda: seen <= {status_of(line) for log in access_logs for line in lines_of(log)})
    lines = [line for log in access_logs for line in lines_of(log)]
    assert [line for line in lines if not ACCESS_LINE.fullmatch(line)] == []
    logs = [server.access_log, server.error_log]
    logs += [*server.nginx.folder.glob("*.log"), *dead.folder.glob("*.log")]
    written = "\n".join(log.read_text() for log in logs)
    secrets_used = [
        *(form["code"], token, client["client_secret"], state, PASSWORD),
        *(form_browser.session.cookies["__Host-session"], invitation, sign_in_link),
    ]
    for secret in secrets_used:
        assert secret.rpartition("=")[2] not in written
        assert secret.rpartition("=")[2][-20:] not in written


def status_of(line: str) -> str:
    return line.rpartition('" ')[2].split()[0]


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines()
