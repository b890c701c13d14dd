"""HTTP that no browser would send: bodies, headers, hosts and cookies made to hurt."""

import contextlib
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
from live.person import Person
from live.running import ANSWER_TIMEOUT, RunningServer, running_server, stopped
from live.shared import start_once
from PIL import Image
from waiting import wait_until

from benchmarks.servers import processor_time
from identity.limits import ATTEMPTS_PER_NAME
from identity.passwords import hash_password
from identity_server import CLIENT_FAILURES

BOUNDARY = "limit"
MULTIPART = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
FORM = "Content-Type: application/x-www-form-urlencoded"
FOUR_MIB = 4 * 2**20


def part(name: str, content: bytes, file_name: str = "") -> bytes:
    """One field of a multipart form."""
    file = f'; filename="{file_name}"' if file_name else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def upload(browser, *parts: bytes):
    """Send a form to where the largest are taken."""
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return browser.post("/account/picture", data=body, headers=MULTIPART)


# -- forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/sign-in", "/account/picture"])
@pytest.mark.parametrize(("count", "refused"), [(990, False), (1001, True)])
def test_a_form_has_a_thousand_parts_at_most(adas_browser, path, count, refused):
    body = part("a", b"") * count + f"--{BOUNDARY}--\r\n".encode()
    answer = adas_browser.post(path, data=body, headers=MULTIPART)
    assert (answer.status_code == 413) == refused


@pytest.mark.parametrize(("length", "refused"), [(499_000, False), (500_001, True)])
def test_a_field_that_is_no_file_has_half_a_megabyte_at_most(adas_browser, length, refused):
    """It is kept in memory; a file goes to the disk."""
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
        (b"\r\n--" + BOUNDARY[:-1].encode()) * (FOUR_MIB // 8),  # never quite the end
        b"--" * (FOUR_MIB // 2),
    ],
    ids=["CR LF first", "CR first", "LF first", "lines", "CR LF", "CR", "almost", "dashes"],
)
def test_four_megabytes_that_are_hard_to_read_are_refused_in_two_seconds(adas_browser, content):
    """Of this thread's processor time: what else runs here does not count."""
    started = time.thread_time()
    answer = upload(adas_browser, part("picture", content, "a.png"))
    assert answer.status_code == 415  # read to the end, and it is no picture
    assert time.thread_time() - started < 2


@pytest.fixture
def no_old_garbage() -> Iterator[None]:
    """A collection of garbage while time is taken looks at nothing that was there before."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("field", ["name", "password"])
def test_a_field_of_combining_marks_takes_no_time(browser, ada, field, no_old_garbage):
    """NFKC takes the square of the time for a run of marks: 60 kB of them took three seconds."""
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
def test_of_two_files_the_first_counts(adas_browser):
    output = io.BytesIO()
    Image.new("RGB", (8, 8)).save(output, "PNG")
    good = part("picture", output.getvalue(), "a.png")
    bad = part("picture", b"MZ", "a.png")
    assert upload(adas_browser, bad, good).status_code == 415
    assert upload(adas_browser, good, bad).status_code == 303


# -- cookies --------------------------------------------------------------------------------------


def test_no_cookie_that_a_sibling_site_can_set_stands_for_the_session(make_app):
    """What a browser lets game.example.org set for id.example.org signs nobody in.

    A nameless cookie "=__Host-session=x" is sent as such; and with a space of any script before it
    __Host-session is another name to a browser, but not to a server that strips such spaces.
    """
    app = make_app(BASE_URL="https://id.example.org")
    app.extensions["storage"].add_user("Eve", "eve@example.org", hash_password(PASSWORD))
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
    ]
    for header in planted:
        assert not signed_in(header), header
    assert not signed_in(f"{own}; {own}")


def test_cookies_that_fill_the_header_harm_nobody_else(anyone, adas_browser):
    value = adas_browser.get_cookie("session").value
    crowd = "; ".join(f"c{number}=x" for number in range(700))
    page = anyone.get("/account", headers={"Cookie": f"{crowd}; session={value}"})
    assert page.status_code == 200


# -- a running server -----------------------------------------------------------------------------


no_proxy, plain_server = conftest.no_proxy, conftest.server


@pytest.fixture(
    scope="module", params=[pytest.param(each, marks=pytest.mark.live) for each in "01"]
)
def server(request, plain_server) -> RunningServer:
    """A running server, with and without a proxy of ours before it."""
    if request.param == "0":
        return plain_server
    return start_once(request.config, "behind a proxy", lambda: running_server(PROXIES="1"))


def send(server: RunningServer, request: bytes) -> bytes:
    """All that comes back to these bytes, until the server closes."""
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def statuses(answer: bytes) -> list[int]:
    """The status of each answer."""
    lines = answer.split(b"\r\n")
    return [int(line.split()[1]) for line in lines if line.startswith(b"HTTP/1.")]


def head(server: RunningServer, first: str, *lines: str, close: bool = True) -> bytes:
    """The head of a request to this server."""
    own = f"Host: {server.address.removeprefix('http://')}"
    last = ["Connection: close"] if close else []
    return "\r\n".join([first, own, *lines, *last, "", ""]).encode("latin-1")


def test_a_form_that_ends_early_burns_no_code(server):
    """A client whose connection broke hears no answer, and tries again with the same code."""
    server.add_user("ada")
    client = server.add_client("Space Game", "https://client.example/callback")
    asked = {"response_type": "code", "client_id": client["client_id"]}
    with contextlib.closing(Person(server.address)) as person:
        person.carry_session(server.start_session("ada"))
        code = person.allow(f"{server.address}/oauth/authorize?{urlencode(asked)}", "ada").answer
    fields = {"grant_type": "authorization_code", "code": code["code"], **asked}
    form = urlencode(fields | {"client_secret": client["client_secret"]}).encode()

    def exchange(*lines: str, body: bytes = form) -> list[int]:
        post = head(server, "POST /api/oauth/token HTTP/1.1", FORM, *lines)
        return statuses(send(server, post + body))

    chunk = b"%x\r\n%s" % (len(form) + 50, form)
    assert exchange(f"Content-Length: {len(form) + 50}") == [400]
    assert exchange("Transfer-Encoding: chunked", body=chunk) == [400]
    assert exchange(f"Content-Length: {len(form)}") == [200]


FLOODS = {
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


@pytest.mark.parametrize("flood", FLOODS)
def test_a_malformed_head_is_refused_at_once(server, flood):
    workers = [Path("/proc", str(worker)) for worker in server.workers()]
    before = sum(map(processor_time, workers))
    answer = send(server, head(server, "POST /sign-in HTTP/1.1", *FLOODS[flood]) + b"x")
    [status] = statuses(answer)
    assert status in (400, 414, 417, 431, 501)
    assert sum(map(processor_time, workers)) - before < 2  # seconds
    assert statuses(send(server, head(server, "GET /sign-in HTTP/1.1"))) == [200]


@pytest.mark.parametrize("length", [70_000, 20_000])
@pytest.mark.parametrize("path", ["/sign-in", "/api/oauth/token", "/account/picture", "/nowhere"])
def test_a_body_is_never_taken_for_a_request(server, path, length):
    """Request smuggling: also where the server does not read it, because it is too large."""
    hidden = head(server, "GET /sign-up HTTP/1.1", close=False)
    body = hidden * (length // len(hidden))
    first = head(server, f"POST {path} HTTP/1.1", f"Content-Length: {len(body)}", close=False)
    second = head(server, "BREW /sign-in HTTP/1.1")
    seen = statuses(send(server, first + body + second))
    assert seen[0] in (303, 400, 403, 404, 413)
    assert seen[1:] in ([], [405])


@pytest.mark.parametrize("path", ["/api/oauth/token", "/sign-in", "/nowhere"])
@pytest.mark.parametrize(
    "chunks",
    [
        b"client_secret=do-not-tell&code=do-not-tell\r\n",  # chunked, it says, and is not
        b"5;do-not-tell" + b"x" * 9000,
        b"5\r\ndo-not-tell\r\n0\r\n\r\n",
        b"5\r\nxxxxx\r\n0\r\ndo-not-tell\r\n\r\n",
        b"5\r\nxx",
        b"-5\r\nxxxxx\r\n0\r\n\r\n",
    ],
    ids=["none", "long extension", "too short", "malformed trailer", "cut off", "below zero"],
)
def test_a_malformed_body_is_400_and_not_quoted_in_the_log(server, path, chunks):
    start = head(server, f"POST {path} HTTP/1.1", "Transfer-Encoding: chunked", FORM)
    [status] = statuses(send(server, start + chunks))
    assert status in ((400, 404) if path == "/nowhere" else (400,))
    written = server.error_log.read_text() + server.access_log.read_text()
    assert "do-not-tell" not in written
    assert "Traceback" not in written


CROWD = 200  # clients
WAIT = 1  # second


def waiting_at(port: str) -> int:
    """How many connections to this port nobody has accepted yet (proc(5), /proc/net/tcp)."""
    listening, at_port = "0A", f"0100007F:{int(port):04X}"
    lines = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
    [queues] = [line[4] for line in lines if (line[3], line[1]) == (listening, at_port)]
    return int(queues.partition(":")[2], 16)


@pytest.mark.live
def test_without_nginx_everybody_would_wait_for_two_hundred_slow_clients(plain_server):
    """The negative control of what tests/live/test_nginx.py promises: they hold every thread."""
    server = plain_server
    host, port = server.address.removeprefix("http://").split(":")
    with contextlib.ExitStack() as held:

        def begin(request: bytes) -> socket.socket:
            connection = socket.create_connection((host, int(port)), timeout=WAIT)
            held.enter_context(contextlib.closing(connection))
            connection.sendall(request)
            return connection

        # Which of the workers accepts is chance, and one alone may accept them all.
        for other in server.workers():
            with stopped(other):
                for _ in range(CROWD // 2):
                    # It waits for a body, and costs nothing once that does not come.
                    begin(head(server, "POST /api/oauth/token HTTP/1.1", FORM, "Content-Length: 9"))
                wait_until(lambda: waiting_at(port) == 0)
        with pytest.raises(TimeoutError):
            begin(head(server, "GET /sign-in HTTP/1.1")).recv(1)
    assert statuses(send(server, head(server, "GET /sign-in HTTP/1.1"))) == [200]


BAD_HOSTS = ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "", "a b", "[::2]"]


@pytest.mark.parametrize("host", BAD_HOSTS)
@pytest.mark.parametrize("path", ["/sign-in", "/api/users/info?id=1"])
def test_another_host_is_refused_and_named_nowhere(server, host, path):
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    answer = send(server, request)
    assert statuses(answer) == [400]
    assert b"evil" not in answer


def test_an_address_with_a_host_in_it_leads_nowhere_else(server):
    for target in ("http://evil.example/sign-in", "//evil.example/sign-in", "*"):
        answer = send(server, head(server, f"GET {target} HTTP/1.1"))
        assert b"evil" not in answer


def guess(server: RunningServer, *lines: str) -> int:
    """The answer to one wrong client secret, as sent with these headers."""
    body = urlencode(
        {"grant_type": "authorization_code", "code": "x", "client_id": "x", "client_secret": "x"}
    ).encode()
    start = head(server, "POST /api/oauth/token HTTP/1.1", f"Content-Length: {len(body)}", *lines)
    [status] = statuses(send(server, start + body))
    return status


FORGED = {
    "with underscores": ["X-Forwarded-For: 192.0.2.7", "X_Forwarded_For: {}"],  # one variable
    "left of ours": ["X-Forwarded-For: {}, 192.0.2.7"],
    "in a line before": ["X-Forwarded-For: {}", "X-Forwarded-For: 192.0.2.7"],
    "under other names": ["X-Real-IP: {}", "Forwarded: for={}", "X-Forwarded-For: 192.0.2.7"],
}


@pytest.mark.parametrize("way", FORGED)
def test_no_forged_address_escapes_the_limit_on_guessing(server, way):
    """RFC 9700 4.13: what our own proxy adds counts, and it adds 192.0.2.7 on the right."""
    for number in range(CLIENT_FAILURES + 1):
        seen = guess(server, *(line.format(f"203.0.113.{number}") for line in FORGED[way]))
        if seen == 429:  # at once where another way was tried before
            return
    raise AssertionError("as many guesses as there are addresses")


def test_an_address_is_believed_where_it_is_our_own_proxys(server):
    """The negative control: tries from as many addresses are not limited, behind a proxy."""
    seen = {guess(server, f"X-Forwarded-For: 203.0.113.{number}") for number in range(101)}
    assert (429 in seen) == ("PROXIES" not in server.settings)


@pytest.mark.parametrize("proxies", ["0", "1"])
def test_a_forged_address_gives_no_more_tries_at_a_password(make_app, proxies):
    """RFC 9700 4.13."""
    app = make_app(PROXIES=proxies)
    browser = Browser(app, app.response_class)
    for number in range(ATTEMPTS_PER_NAME + 1):
        browser.environ_base["HTTP_X_FORWARDED_FOR"] = f"203.0.113.{number}, 192.0.2.7"
        answer = browser.sign_in("Ada", "wrong")
    assert answer.status_code == 429
