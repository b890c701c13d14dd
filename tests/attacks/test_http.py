"""Hostile HTTP: malformed bodies, headers, hosts, cookies and forwarded addresses."""

import contextlib
import functools
import gc
import io
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from conftest import PASSWORD, Browser
from live import conftest
from live.form_browser import FormBrowser
from live.running import ANSWER_TIMEOUT, RunningServer, paused, running_server
from live.shared import start_once
from PIL import Image
from waiting import wait_until

from benchmarks.servers import processor_time
from identity.clients import CLIENT_FAILURES
from identity.passwords import hash_password
from serving.granian_server import MOST_OF_A_HEAD

BOUNDARY = "limit"
MULTIPART = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
FORM = "Content-Type: application/x-www-form-urlencoded"
FOUR_MIB = 4 * 2**20


def part(name: str, content: bytes, file_name: str = "") -> bytes:
    """Return one part of a multipart form."""
    file = f'; filename="{file_name}"' if file_name else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def upload(browser, *parts: bytes):
    """Post a multipart form to the address with the largest body limit."""
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return browser.post("/account/picture", data=body, headers=MULTIPART)


# -- forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/sign-in", "/account/picture"])
@pytest.mark.parametrize(("count", "refused"), [(990, False), (1001, True)])
def test_form_over_1000_parts_is_413(adas_browser, path, count, refused):
    body = part("a", b"") * count + f"--{BOUNDARY}--\r\n".encode()
    answer = adas_browser.post(path, data=body, headers=MULTIPART)
    assert (answer.status_code == 413) == refused


@pytest.mark.parametrize(("length", "refused"), [(499_000, False), (500_001, True)])
def test_text_field_over_500_kb_is_413(adas_browser, length, refused):
    """Text fields are kept in memory; files go to a temporary file."""
    answer = upload(adas_browser, part("bio", b"x" * length))
    assert (answer.status_code == 413) == refused


@pytest.mark.parametrize(
    "content",
    [
        b"\r\n" + b"x" * FOUR_MIB,
        b"\r" + b"x" * FOUR_MIB,
        b"\n" + b"x" * FOUR_MIB,
        (b"x" * 4093 + b"\r\n") * 1024,  # lines of 4,095 bytes
        b"\r\n" * (FOUR_MIB // 2),
        b"\r" * FOUR_MIB,
        (b"\r\n--" + BOUNDARY[:-1].encode()) * (FOUR_MIB // 8),  # almost the boundary
        b"--" * (FOUR_MIB // 2),
    ],
    ids=["CR LF first", "CR first", "LF first", "lines", "CR LF", "CR", "almost", "dashes"],
)
def test_slow_to_parse_multipart_is_refused_within_two_seconds(adas_browser, content):
    """Measured in thread time, so that other load does not count."""
    started = time.thread_time()
    answer = upload(adas_browser, part("picture", content, "a.png"))
    assert answer.status_code == 415  # read to the end, and not a picture
    assert time.thread_time() - started < 2


@pytest.fixture
def frozen_garbage() -> Iterator[None]:
    """Keep existing objects out of any garbage collection during a time measurement."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("field", ["name", "password"])
def test_combining_marks_are_normalized_quickly(browser, ada, field, frozen_garbage):
    """NFKC is quadratic in a run of combining marks: 60 kB of them took three seconds."""
    marks = "a" + "\u0315" * 8000 + "\u0300" * 8000
    body = b"".join(
        part(name, marks.encode() if name == field else value.encode())
        for name, value in {"name": "Ada", "email": "a@example.org", "password": PASSWORD}.items()
    )
    for path in ("/sign-in", "/sign-up"):
        started = time.thread_time()
        answer = browser.post(path, data=body + f"--{BOUNDARY}--".encode(), headers=MULTIPART)
        assert answer.status_code in (400, 403)
        assert time.thread_time() - started < 0.2


@pytest.mark.live
def test_first_of_two_uploaded_files_is_used(adas_browser):
    output = io.BytesIO()
    Image.new("RGB", (8, 8)).save(output, "PNG")
    good = part("picture", output.getvalue(), "a.png")
    bad = part("picture", b"MZ", "a.png")
    assert upload(adas_browser, bad, good).status_code == 415
    assert upload(adas_browser, good, bad).status_code == 303


# -- cookies --------------------------------------------------------------------------------------


def test_cookie_set_by_a_sibling_site_is_not_a_session(make_app):
    """A cookie that game.example.org can set for id.example.org never authenticates.

    Browsers send a nameless cookie "=__Host-session=x" as such. With any Unicode space in front,
    __Host-session is another name to a browser, but not to a server that strips such spaces.
    """
    app = make_app(BASE_URL="https://id.example.org")
    app.extensions["storage"].users.register("Eve", "eve@example.org", hash_password(PASSWORD))
    https = {"HTTP_HOST": "id.example.org", "wsgi.url_scheme": "https"}
    browser = Browser(app, app.response_class)
    browser.environ_base |= https
    [own] = [
        each.partition(";")[0] for each in browser.sign_in("Eve").headers.getlist("Set-Cookie")
    ]
    name, _, value = own.partition("=")

    def signed_in(header: str) -> bool:
        sent = https | {"HTTP_COOKIE": header.encode().decode("latin-1")}  # PEP 3333
        anyone = app.test_client(use_cookies=False)
        return anyone.get("/account", environ_overrides=sent).status_code == 200

    assert name == "__Host-session"
    assert signed_in(own)
    spaces = "\u2000\u3000\xa0\x85\u2028\u200b\ufeff\x0b\x0c\x1c\x00"
    planted = [
        *(f"={own}", f"=;{own[:-3]}", f"__host-session={value}", f"__Secure-session={value}"),
        *(f"session={value}", f"x={own}", f"x=y,{own}", f'"{own}"', f'x="; {own}"', f"$x; ={own}"),
        *(f"{space}{own}" for space in spaces),
        *(f"{name}{space}={value}" for space in spaces),
        *(f'{own}"', f'"{own}', f'{name}="{value}"', f"{own}é", f"{own} "),
    ]
    for header in planted:
        assert not signed_in(header), header
    assert not signed_in(f"{own}; {own}")


@pytest.mark.parametrize(
    "planted", ['x="', 'x="; y="a', '"', '="', "x='", "x=\\", "é", "=", "$Version"]
)
def test_cookie_of_a_sibling_site_does_not_hide_the_session(anyone, adas_browser, planted):
    """RFC 6265 5.4: browsers do not quote cookies, so a quote in one ends with it."""
    own = f"session={adas_browser.get_cookie('session').value}"
    for header in (f"{planted}; {own}", f"{own}; {planted}", f'{planted}; {own}; z="'):
        sent = {"HTTP_COOKIE": header.encode().decode("latin-1")}
        assert anyone.get("/account", environ_overrides=sent).status_code == 200, header


def test_session_works_beside_700_other_cookies(anyone, adas_browser):
    value = adas_browser.get_cookie("session").value
    other_cookies = "; ".join(f"c{number}=x" for number in range(700))
    page = anyone.get("/account", headers={"Cookie": f"{other_cookies}; session={value}"})
    assert page.status_code == 200


# -- a running server -----------------------------------------------------------------------------


no_proxy, plain_server = conftest.no_proxy, conftest.server


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=pytest.mark.live)
        for each in ("gunicorn", "gunicorn behind a proxy", "granian behind a proxy")
    ],
)
def server(request, plain_server) -> RunningServer:
    """A running server, with and without IDENTITY_PROXIES=1; granian is only for behind a proxy."""
    if request.param == "gunicorn":
        return plain_server
    kind = request.param.partition(" ")[0]
    start = functools.partial(running_server, kind=kind, PROXIES="1")
    return start_once(request.config, request.param, start)


def send(server: RunningServer, request: bytes, ends: bool = True) -> bytes:
    """Send these bytes and return everything received until the server closes the connection.

    The client closes its side after the bytes, but not with granian if the request `ends`: granian
    does not respond to a client that closed its side.
    """
    host, port = server.address.removeprefix("http://").split(":")
    received = []
    with (
        socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT) as connection,
        contextlib.suppress(BrokenPipeError, ConnectionResetError),
    ):
        connection.sendall(request)
        if server.kind == "gunicorn" or not ends:
            connection.shutdown(socket.SHUT_WR)
        received.extend(iter(lambda: connection.recv(65536), b""))
    return b"".join(received)


def status_codes(answer: bytes) -> list[int]:
    """Return the status code of each response."""
    lines = answer.split(b"\r\n")
    return [int(line.split()[1]) for line in lines if line.startswith(b"HTTP/1.")]


def head(server: RunningServer, first: str, *lines: str, close: bool = True) -> bytes:
    """Return the request line and the headers of a request to this server."""
    own = f"Host: {server.address.removeprefix('http://')}"
    last = ["Connection: close"] if close else []
    return "\r\n".join([first, own, *lines, *last, "", ""]).encode("latin-1")


def test_truncated_token_request_keeps_the_code(server):
    """A client whose connection broke gets no response, and retries with the same code."""
    server.add_user("ada")
    client = server.add_client("Space Game", "https://client.example/callback")
    query = {"response_type": "code", "client_id": client["client_id"]}
    with contextlib.closing(FormBrowser(server.address)) as form_browser:
        form_browser.set_session_cookie(server.start_session("ada"))
        code = form_browser.allow(
            f"{server.address}/oauth/authorize?{urlencode(query)}", "ada"
        ).answer
    fields = {"grant_type": "authorization_code", "code": code["code"], **query}
    form = urlencode(fields | {"client_secret": client["client_secret"]}).encode()

    def exchange(*lines: str, body: bytes = form) -> list[int]:
        post = head(server, "POST /api/oauth/token HTTP/1.1", FORM, *lines)
        is_complete = lines == (complete,)
        return status_codes(send(server, post + body, is_complete))

    complete = f"Content-Length: {len(form)}"
    chunk = b"%x\r\n%s" % (len(form) + 50, form)
    refusals = [[400]] if server.kind == "gunicorn" else [[400], [411], []]
    assert exchange(f"Content-Length: {len(form) + 50}") in refusals
    assert exchange("Transfer-Encoding: chunked", body=chunk) in refusals
    assert exchange(complete) == [200]


MALFORMED_HEADS = {
    "101 headers": [f"X-{number}: y" for number in range(101)],
    "10,000 headers": [f"X-{number}: y" for number in range(10_000)],
    "one name 10,000 times": ["X: y"] * 10_000,
    "a header of 9 kB": ["X: " + "y" * 9000],
    "a header of 2 MB": ["X: " + "y" * 2 * 10**6],
    "a cookie of 9 kB": ["Cookie: a=" + "y" * 9000],
    "a folded header": ["X: y", " folded"],
    "a header without a name": [": y"],
    "a space in a name": ["X : y"],
    "two hosts": ["Host: evil.example"],
    "a length of 4,400 zeros": ["Content-Length: " + "0" * 4400],
    "a length below zero": ["Content-Length: -1"],
    "a length in superscript": ["Content-Length: \xb2"],
    "a null byte": ["X: \0"],
}


@pytest.mark.parametrize("kind", MALFORMED_HEADS)
def test_malformed_request_head_is_refused_quickly(server, kind):
    workers = [Path("/proc", str(worker)) for worker in server.workers()]
    before = sum(map(processor_time, workers))
    request = head(server, "POST /sign-in HTTP/1.1", *MALFORMED_HEADS[kind]) + b"x"
    seen = status_codes(send(server, request))
    # granian closes a connection with a part of the head unread, and its response may be lost.
    if seen or server.kind == "gunicorn" or len(request) < MOST_OF_A_HEAD:
        [status] = seen
        assert status in (400, 414, 417, 431, 501)
    assert sum(map(processor_time, workers)) - before < 2  # seconds
    assert status_codes(send(server, head(server, "GET /sign-in HTTP/1.1"))) == [200]


@pytest.mark.parametrize("length", [70_000, 20_000])
@pytest.mark.parametrize("path", ["/sign-in", "/api/oauth/token", "/account/picture", "/nowhere"])
def test_request_body_is_never_parsed_as_a_request(server, path, length):
    """Request smuggling: also if the body is too large, and so is not read."""
    hidden = head(server, "GET /sign-up HTTP/1.1", close=False)
    body = hidden * (length // len(hidden))
    first = head(server, f"POST {path} HTTP/1.1", f"Content-Length: {len(body)}", close=False)
    second = head(server, "BREW /sign-in HTTP/1.1")
    seen = status_codes(send(server, first + body + second))
    assert seen[0] in (303, 400, 403, 404, 413)
    assert seen[1:] in ([], [405])


@pytest.mark.parametrize("path", ["/api/oauth/token", "/sign-in", "/nowhere"])
@pytest.mark.parametrize(
    "chunks",
    [
        b"client_secret=do-not-tell&code=do-not-tell\r\n",  # declared as chunked, but is not
        b"5;do-not-tell" + b"x" * 9000,
        b"5\r\ndo-not-tell\r\n0\r\n\r\n",
        b"5\r\nxxxxx\r\n0\r\ndo-not-tell\r\n\r\n",
        b"5\r\nxx",
        b"-5\r\nxxxxx\r\n0\r\n\r\n",
    ],
    ids=["none", "long extension", "too short", "malformed trailer", "cut off", "below zero"],
)
def test_malformed_chunked_body_is_400_and_not_logged(server, path, chunks):
    start = head(server, f"POST {path} HTTP/1.1", "Transfer-Encoding: chunked", FORM)
    seen = status_codes(send(server, start + chunks, ends=False))
    if server.kind == "granian":  # which cannot tell a malformed body from a complete one
        assert seen in ([], [411])
    else:
        [status] = seen
        assert status in ((400, 404) if path == "/nowhere" else (400,))
    written = server.error_log.read_text() + server.access_log.read_text()
    assert "do-not-tell" not in written
    assert "Traceback" not in written


SLOW_CLIENTS = 200  # clients
CONNECTION_TIMEOUT = 1  # second


def accept_queue_length(port: str) -> int:
    """Return the length of the accept queue of this port (proc(5), /proc/net/tcp)."""
    listening, at_port = "0A", f"0100007F:{int(port):04X}"
    lines = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
    [queues] = [line[4] for line in lines if (line[3], line[1]) == (listening, at_port)]
    return int(queues.partition(":")[2], 16)


@pytest.mark.live
def test_slow_clients_block_gunicorn_without_nginx(plain_server):
    """Negative control of the slow-client test in tests/live/test_nginx.py: all threads block."""
    server = plain_server
    host, port = server.address.removeprefix("http://").split(":")
    with contextlib.ExitStack() as held:

        def open_connection(request: bytes) -> socket.socket:
            connection = socket.create_connection((host, int(port)), timeout=CONNECTION_TIMEOUT)
            held.enter_context(contextlib.closing(connection))
            connection.sendall(request)
            return connection

        # Any worker may accept a connection, so pause each in turn to fill both.
        for other in server.workers():
            with paused(other):
                for _ in range(SLOW_CLIENTS // 2):
                    # The thread waits for the body, and ends without effect if none comes.
                    open_connection(
                        head(server, "POST /api/oauth/token HTTP/1.1", FORM, "Content-Length: 9")
                    )
                wait_until(lambda: accept_queue_length(port) == 0)
        with pytest.raises(TimeoutError):
            open_connection(head(server, "GET /sign-in HTTP/1.1")).recv(1)
    assert status_codes(send(server, head(server, "GET /sign-in HTTP/1.1"))) == [200]


BAD_HOSTS = ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "", "a b", "[::2]"]


@pytest.mark.parametrize("host", BAD_HOSTS)
@pytest.mark.parametrize("path", ["/sign-in", "/api/users/info?id=1"])
def test_unknown_host_is_400_and_not_reflected(server, host, path):
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    answer = send(server, request)
    assert status_codes(answer) == [400]
    assert b"evil" not in answer


def test_absolute_request_target_is_not_reflected(server):
    for target in ("http://evil.example/sign-in", "//evil.example/sign-in", "*"):
        answer = send(server, head(server, f"GET {target} HTTP/1.1"))
        assert b"evil" not in answer


def try_wrong_secret(server: RunningServer, *lines: str) -> int:
    """Return the status of a token request with a wrong client secret and these headers."""
    body = urlencode(
        {"grant_type": "authorization_code", "code": "x", "client_id": "x", "client_secret": "x"}
    ).encode()
    start = head(server, "POST /api/oauth/token HTTP/1.1", f"Content-Length: {len(body)}", *lines)
    [status] = status_codes(send(server, start + body))
    return status


FORGED = {
    "with underscores": ["X-Forwarded-For: 192.0.2.7", "X_Forwarded_For: {}"],  # same WSGI key
    "left of ours": ["X-Forwarded-For: {}, 192.0.2.7"],
    "in a line before": ["X-Forwarded-For: {}", "X-Forwarded-For: 192.0.2.7"],
    "under other names": ["X-Real-IP: {}", "Forwarded: for={}", "X-Forwarded-For: 192.0.2.7"],
}


@pytest.mark.parametrize("kind", FORGED)
def test_forged_address_does_not_evade_the_client_rate_limit(server, kind):
    """RFC 9700 4.13: only the rightmost address counts, which our own proxy adds (192.0.2.7).

    granian believes the last header with underscores, so the proxy must drop those, as nginx does.
    """
    for number in range(CLIENT_FAILURES + 1):
        seen = try_wrong_secret(
            server, *(line.format(f"203.0.113.{number}") for line in FORGED[kind])
        )
        if seen == 429:  # at once if another parameter set reached the limit before
            break
    assert (seen == 429) == ((server.kind, kind) != ("granian", "with underscores"))


def test_forwarded_address_is_trusted_only_behind_a_proxy(server):
    """Negative control: behind a proxy, attempts from many real addresses are not limited."""
    seen = {
        try_wrong_secret(server, f"X-Forwarded-For: 203.0.113.{number}") for number in range(101)
    }
    assert (429 in seen) == ("PROXIES" not in server.settings)
