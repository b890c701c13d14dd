"""Clients that are silent or slow, without a proxy in front of the server.

tests/live/test_servers.py has clients that do not close their connection.
"""

import contextlib
import http.client
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE

from .running import ANSWER_TIMEOUT, STOP_TIMEOUT, RunningServer
from .test_servers import running_probe

pytestmark = pytest.mark.live
HALF_A_HEAD = b"GET /api/users/info?id=1 HTTP/1.1\r\nHost: "
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"


def netloc(server: RunningServer) -> str:
    """Return the HOST:PORT of a server."""
    return server.address.removeprefix("http://")


@pytest.fixture
def connect() -> Iterator[Callable[..., socket.socket]]:
    """A function that opens a connection to a HOST:PORT and sends bytes; closed after the test."""
    with contextlib.ExitStack() as opened:

        def connect(address: str, sent: bytes = b"") -> socket.socket:
            host, _, port = address.partition(":")
            connection = socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT)
            opened.enter_context(connection)
            connection.sendall(sent)
            return connection

        yield connect


def head(server: RunningServer, line: str, more: bytes = b"") -> bytes:
    """Return the head of a request to this server."""
    return f"{line} HTTP/1.1\r\nHost: {netloc(server)}\r\n".encode() + more + b"\r\n"


def read_responses(connection: socket.socket, number: int) -> list[int]:
    """Read so many responses with a Content-Length. Return their status codes.

    Without a buffer, which would lose the beginning of the next response.
    """
    statuses = []
    with connection.makefile("rb", buffering=0) as file:
        for _ in range(number):
            statuses.append(int(file.readline().split()[1]))
            length = int(http.client.parse_headers(file)["Content-Length"])
            body = b""
            while len(body) < length:
                body += file.read(length - len(body))
    return statuses


def test_400_silent_clients_do_not_delay_others(
    each_server: RunningServer, connect: Callable[..., socket.socket]
):
    """One call took 15 seconds behind 40 that sent nothing, and none returned behind 40 heads."""
    address = netloc(each_server)
    for _ in range(200):
        connect(address)
        connect(address, HALF_A_HEAD)
    for _ in range(200):
        client = http.client.HTTPConnection(address, timeout=5)
        with contextlib.closing(client):
            client.request("GET", "/api/users/info?id=999999")
            assert client.getresponse().status == 404


@pytest.mark.load
def test_clients_that_do_not_finish_a_request_lose_the_connection(
    server: RunningServer, connect: Callable[..., socket.socket]
):
    """After five seconds, also if bytes arrive; and ten seconds without a byte of other bodies."""
    post = head(server, "POST /api/oauth/token", FORM)[:-2]
    starts = {
        "nothing": b"",
        "half a head": HALF_A_HEAD,
        "a second head": head(server, "GET /api/users/info?id=999999") + HALF_A_HEAD,
        "a byte at a time": HALF_A_HEAD,
        "a small body": post + b"Content-Length: 00999\r\n\r\na=b",
        "a chunked body": post + b"Transfer-Encoding: chunked\r\n\r\n9\r\na",
        "an expected body": post + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\na",
    }
    opened = {name: connect(netloc(server), sent) for name, sent in starts.items()}
    received = dict.fromkeys(opened, b"")
    waiting = {connection: name for name, connection in opened.items()}
    deadline = time.monotonic() + PATIENCE
    while waiting:
        assert time.monotonic() < deadline, waiting.values()
        with contextlib.suppress(OSError):
            opened["a byte at a time"].send(b"a")
        for connection in select.select(waiting, (), (), 0.1)[0]:
            try:
                data = connection.recv(65536)
            except ConnectionResetError:  # by a byte that came too late
                data = b""
            received[waiting[connection]] += data
            if not data:
                del waiting[connection]
    assert received.pop("a second head").startswith(b"HTTP/1.1 404 ")
    assert received.pop("a chunked body").startswith(b"HTTP/1.1 400 ")
    expected = received.pop("an expected body").split(b"\r\n\r\n")
    assert [each[:13] for each in expected[:2]] == [b"HTTP/1.1 100 ", b"HTTP/1.1 400 "]
    assert set(received.values()) == {b""}
    assert "Traceback" not in server.error_log.read_text()


def test_request_in_pieces_gets_a_response(
    server: RunningServer, connect: Callable[..., socket.socket]
):
    connection = connect(netloc(server))
    form = b"grant_type=authorization_code"
    post = head(server, "POST /api/oauth/token", FORM + b"content-length:\t%d \r\n" % len(form))
    get = b"\r\n" + head(server, "GET /api/users/info?id=999999", b"Content-Length: 0\r\n")
    for request, status in ((post + form, 400), (get, 404), (post + form, 400)):
        for byte in request:
            connection.send(bytes([byte]))
        assert read_responses(connection, 1) == [status]


def test_pipelined_requests_get_responses_in_order(
    server: RunningServer, connect: Callable[..., socket.socket]
):
    form = b"grant_type=authorization_code"
    post = head(server, "POST /api/oauth/token", FORM + b"Content-Length: %d\r\n" % len(form))
    get = head(server, "GET /api/users/info?id=999999")
    sent = (get + post + form + get) * 20
    for cut in (0, 30, len(get) + 40, len(get + post) + 5):
        connection = connect(netloc(server), sent + (get + post + form)[:cut])
        assert read_responses(connection, 60) == [404, 400, 404] * 20
        connection.sendall((get + post + form)[cut:])
        assert read_responses(connection, 2) == [404, 400]


def test_nothing_behind_a_malformed_body_is_a_request(
    server: RunningServer, connect: Callable[..., socket.socket], subtests
):
    for path in ("/api/oauth/token", "/sign-in", "/nowhere"):
        with subtests.test(path):
            post = head(server, f"POST {path}", FORM + b"Transfer-Encoding: chunked\r\n")
            get = head(server, "GET /api/users/info?id=999999")
            connection = connect(netloc(server), post + b"no length\r\n" + get)
            assert read_responses(connection, 1)[0] in (400, 404)
            assert connection.recv(1) == b""


def test_endless_head_is_431(server: RunningServer, connect: Callable[..., socket.socket]):
    """Before its end, and so that the client gets the response."""
    connection = connect(netloc(server), HALF_A_HEAD + b"x\r\nX: y" * 5000)
    assert read_responses(connection, 1) == [431]
    assert connection.recv(1) == b""


def test_client_that_expects_a_response_to_its_head_gets_it(
    server: RunningServer, connect: Callable[..., socket.socket]
):
    expects = b"Content-Length: 9\r\nExpect: 100-continue\r\n"
    connection = connect(netloc(server), head(server, "POST /api/oauth/token", FORM + expects))
    assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(b"code=abcd")
    assert read_responses(connection, 1) == [400]


@pytest.mark.load
def test_silent_clients_do_not_delay_a_stop(tmp_path: Path, connect: Callable[..., socket.socket]):
    with running_probe(tmp_path, "gunicorn") as probe:
        probe.wait_for_workers()
        for sent in (b"", HALF_A_HEAD) * 20:
            connect(probe.address.removeprefix("http://"), sent)
        probe.get()
        probe.process.terminate()
        assert probe.process.wait(STOP_TIMEOUT) == 0  # earlier than `graceful_timeout`
