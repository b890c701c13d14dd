"""Hostile HTTP: malformed bodies, headers, hosts, cookies and forwarded addresses."""

import contextlib
import functools
import gc
import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from conftest import PASSWORD, Browser
from live import conftest
from live.running import ANSWER_TIMEOUT, RunningServer, running_server
from live.shared import start_once

from benchmarks.servers import processor_time
from identity.access.passwords import hash_password
from identity.oauth.clients import CLIENT_FAILURES
from model.grant_records import AuthorizationCode
from model.records import Grant, now_ms
from serving.granian_server import MOST_OF_A_HEAD

FORM = "Content-Type: application/x-www-form-urlencoded"
FOUR_MIB = 4 * 2**20


def test_slow_multipart_is_refused_in_two_seconds(adas_browser, subtests):
    """Measured in thread time, so that other load does not count."""
    boundary = b"--limit"
    start = b'%s\r\nContent-Disposition: form-data; name="picture"; filename="a.png"\r\n\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=limit"}
    for name, content in {
        "CR LF first": b"\r\n" + b"x" * FOUR_MIB,
        "CR first": b"\r" + b"x" * FOUR_MIB,
        "LF first": b"\n" + b"x" * FOUR_MIB,
        "lines of 4,095 bytes": (b"x" * 4093 + b"\r\n") * 1024,
        "CR LF": b"\r\n" * (FOUR_MIB // 2),
        "CR": b"\r" * FOUR_MIB,
        "almost the boundary": (b"\r\n" + boundary[:-1]) * (FOUR_MIB // 8),
        "dashes": b"--" * (FOUR_MIB // 2),
    }.items():
        with subtests.test(name):
            body = b"%b%b\r\n%b--\r\n" % (start % boundary, content, boundary)
            started = time.thread_time()
            answer = adas_browser.post("/account/picture", data=body, headers=headers)
            assert answer.status_code == 415  # read to the end, and not a picture
            assert time.thread_time() - started < 2


@pytest.fixture
def frozen_garbage() -> Iterator[None]:
    """Keep existing objects out of any garbage collection during a time measurement."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_combining_marks_are_normalized_quickly(browser, ada, frozen_garbage, subtests):
    """NFKC is quadratic in a run of combining marks: 60 kB of them took three seconds."""
    marks = "a" + "\u0315" * 8000 + "\u0300" * 8000
    usual = {"name": "Ada", "email": "a@example.org", "password": PASSWORD}
    for field, path in itertools.product(("name", "password"), ("/sign-in", "/sign-up")):
        with subtests.test(field, path=path):
            form = usual | {field: marks}
            started = time.thread_time()
            answer = browser.post(path, data=form, content_type="multipart/form-data")
            assert answer.status_code in (400, 403)
            assert time.thread_time() - started < 0.2


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
    [cookie] = browser.sign_in("Eve").headers.getlist("Set-Cookie")
    own = cookie.partition(";")[0]
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


def test_cookie_of_a_sibling_site_does_not_hide_the_session(anyone, adas_browser):
    """RFC 6265 5.4: browsers do not quote cookies, so a quote in one ends with it."""
    own = f"identity_session={adas_browser.get_cookie('identity_session').value}"
    headers = ["; ".join([*(f"c{number}=x" for number in range(700)), own])]
    for planted in ('x="', 'x="; y="a', '"', '="', "x='", "x=\\", "é", "=", "$Version"):
        headers += [f"{planted}; {own}", f"{own}; {planted}", f'{planted}; {own}; z="']
    for header in headers:
        sent = {"HTTP_COOKIE": header.encode().decode("latin-1")}  # PEP 3333
        assert anyone.get("/account", environ_overrides=sent).status_code == 200, header


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
    lines = answer.split(b"\r\n")
    return [int(line.split()[1]) for line in lines if line.startswith(b"HTTP/1.")]


def head(server: RunningServer, first: str, *lines: str, close: bool = True) -> bytes:
    """Return the request line and the headers of a request to this server."""
    own = f"Host: {server.address.removeprefix('http://')}"
    last = ["Connection: close"] if close else []
    return "\r\n".join([first, own, *lines, *last, "", ""]).encode("latin-1")


def test_truncated_token_request_keeps_the_code(server):
    """A client whose connection broke gets no response, and retries with the same code."""
    user_id = server.add_user("ada")["id"]
    client = server.add_client("Space Game", "https://client.example/callback")
    grant, store = Grant("a grant", ["userinfo"], now_ms()), server.open_storage()
    with store.users.edit(user_id) as user:
        user.grants[client["client_id"]] = grant
    record = AuthorizationCode(client["client_id"], user_id, grant.id, grant.scope, None, None)
    store.codes.add("a code", record)
    fields = {name: client[name] for name in ("client_id", "client_secret")}
    fields |= {"grant_type": "authorization_code", "code": "a code"}
    form = urlencode(fields).encode()

    def exchange(line: str, body: bytes = form) -> list[int]:
        post = head(server, "POST /api/oauth/token HTTP/1.1", FORM, line)
        return status_codes(send(server, post + body, ends=line == complete))

    complete = f"Content-Length: {len(form)}"
    chunk = b"%x\r\n%s" % (len(form) + 50, form)
    refusals = [[400]] if server.kind == "gunicorn" else [[400], [411], []]
    assert exchange(f"Content-Length: {len(form) + 50}") in refusals
    assert exchange("Transfer-Encoding: chunked", chunk) in refusals
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


def test_malformed_request_head_is_refused_quickly(server, subtests):
    workers = [Path("/proc", str(worker)) for worker in server.workers()]
    for kind, lines in MALFORMED_HEADS.items():
        with subtests.test(kind):
            before = sum(map(processor_time, workers))
            request = head(server, "POST /sign-in HTTP/1.1", *lines) + b"x"
            seen = status_codes(send(server, request))
            # granian closes a connection with a part of the head unread, and may lose its response.
            if seen or server.kind == "gunicorn" or len(request) < MOST_OF_A_HEAD:
                [status] = seen
                assert status in (400, 414, 417, 431, 501)
            assert sum(map(processor_time, workers)) - before < 2  # seconds
            assert status_codes(send(server, head(server, "GET /sign-in HTTP/1.1"))) == [200]


def test_request_body_is_never_parsed_as_a_request(server, subtests):
    """Request smuggling: also if the body is too large, and so is not read."""
    hidden = head(server, "GET /sign-up HTTP/1.1", close=False)
    second = head(server, "BREW /sign-in HTTP/1.1")
    paths = ("/sign-in", "/api/oauth/token", "/account/picture", "/nowhere")
    for path, length in itertools.product(paths, (70_000, 20_000)):
        with subtests.test(path, length=length):
            body = hidden * (length // len(hidden))
            lines = f"POST {path} HTTP/1.1", f"Content-Length: {len(body)}"
            first = head(server, *lines, close=False)
            seen = status_codes(send(server, first + body + second))
            assert seen[0] in (303, 400, 403, 404, 413)
            assert seen[1:] in ([], [405])


def test_malformed_chunked_body_is_400_and_not_logged(server, subtests):
    malformed = {
        "not chunked": b"client_secret=do-not-tell&code=do-not-tell\r\n",
        "long extension": b"5;do-not-tell" + b"x" * 9000,
        "too short": b"5\r\ndo-not-tell\r\n0\r\n\r\n",
        "malformed trailer": b"5\r\nxxxxx\r\n0\r\ndo-not-tell\r\n\r\n",
        "cut off": b"5\r\nxx",
        "below zero": b"-5\r\nxxxxx\r\n0\r\n\r\n",
    }
    paths = ("/api/oauth/token", "/sign-in", "/nowhere")
    for path, (name, chunks) in itertools.product(paths, malformed.items()):
        with subtests.test(path, body=name):
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


def test_unknown_host_is_400_and_not_reflected(server, subtests):
    hosts = ("evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "", "a b", "[::2]")
    for host, path in itertools.product(hosts, ("/sign-in", "/api/users/info?id=1")):
        with subtests.test(host, path=path):
            request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            answer = send(server, request.encode())
            assert status_codes(answer) == [400]
            assert b"evil" not in answer
    for target in ("http://evil.example/sign-in", "//evil.example/sign-in", "*"):
        assert b"evil" not in send(server, head(server, f"GET {target} HTTP/1.1"))


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


def test_forged_address_does_not_evade_the_client_rate_limit(server, subtests):
    """RFC 9700 4.13: only the rightmost address counts, which our own proxy adds (192.0.2.7).

    granian believes the last header with underscores, so the proxy must drop those, as nginx does.
    """
    for number in range(CLIENT_FAILURES + 1):  # the control: real addresses, if there is a proxy
        seen = try_wrong_secret(server, f"X-Forwarded-For: 198.51.100.{number}")
    assert (seen == 429) == ("PROXIES" not in server.settings)
    for kind, lines in FORGED.items():
        with subtests.test(kind):
            for number in range(CLIENT_FAILURES + 1):
                forged = [line.format(f"203.0.113.{number}") for line in lines]
                seen = try_wrong_secret(server, *forged)
                if seen == 429:  # at once if another kind reached the limit before
                    break
            is_evaded = (server.kind, kind) == ("granian", "with underscores")
            assert (seen == 429) != is_evaded
