"""gunicorn as serving/gunicorn_config.py configures it: its own responses, and its logs.

What granian does with the same requests is here, too. docs/servers.md lists the differences.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from programs import free_port
from waiting import wait_until

from benchmarks.servers import processor_time
from identity.settings import ROOT

from .running import ANSWER_TIMEOUT, STOP_TIMEOUT, RunningServer, kill_group
from .test_log import send_raw

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def server(each_server: RunningServer) -> RunningServer:
    """A server of each kind."""
    return each_server


@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("GET /api/users/info?id=" + "1" * 9000 + " HTTP/1.1\r\nHost: 127.0.0.1", 414),
        ("GET /api/users/info HTTP/1.1\r\n" + "a: b\r\n" * 150 + "c: d", 431),
        ("GET /api/users/info HTTP/1.1\r\nCookie: " + "a" * 8192, 431),
        ('nonsense "\x80', 400),
    ],
)
def test_request_refused_by_the_server_closes_the_connection(
    server: RunningServer, start: str, status: int
):
    head, _, body = send_raw(server.address, f"{start}\r\n\r\n").partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    head = f"{head.lower()}\r\n"  # granian sends names in lower case
    assert "\r\nconnection: close\r\n" in head
    assert f"\r\ncontent-length: {len(body)}\r\n" in head


def test_request_that_only_granian_admits(server: RunningServer):
    """The app responds to it: granian takes any method, and a bare LF (RFC 9112 2.2)."""
    own = f"Host: {urlsplit(server.address).netloc}\r\nConnection: close"
    start = f"/api/users/info?id=999999 HTTP/1.1\r\n{own}\r\n\r\n"
    requests_sent = f"G {start}", f"GET {start}".replace("\r", "")
    statuses = [send_raw(server.address, each).split()[1] for each in requests_sent]
    assert statuses == {"gunicorn": ["400", "400"], "granian": ["405", "404"]}[server.kind]


@pytest.mark.load
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_response_arrives_after_an_unread_upload(server: RunningServer, connection: str):
    """A large upload of a signed-out player gets a redirect, and costs little processor time."""
    workers = [Path("/proc", str(worker)) for worker in server.workers()]
    before = sum(map(processor_time, workers))
    for _ in range(20):
        address = urlsplit(server.address).netloc
        client = http.client.HTTPConnection(address, timeout=ANSWER_TIMEOUT)
        with contextlib.closing(client):
            headers = {"Connection": connection}
            client.request("POST", "/account/picture", b"x" * 2**23, headers)
            answer = client.getresponse()
            assert (answer.status, answer.headers["Location"][:8]) == (303, "/sign-in")
            answer.read()
            # granian has read the upload, and the connection can stay open.
            closes = server.kind == "gunicorn" or connection == "close"
            assert (answer.headers["Connection"] == "close") == closes
    # Seconds: 40 if each KiB received copied a megabyte.
    assert sum(map(processor_time, workers)) - before < 15


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/api/oauth/token", "/api/nowhere"])
def test_unread_body_is_no_next_request(server: RunningServer, path: str, chunked: bool):
    """gunicorn closes the connection; granian reads the body, and refuses a chunked one."""
    client = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=ANSWER_TIMEOUT)
    with contextlib.closing(client):
        body = b"grant_type=authorization_code"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        client.request("POST", path, iter([body]) if chunked else body, headers)
        answer = client.getresponse()
        if server.kind == "granian":
            assert (answer.status == 411) == (answer.headers["Connection"] == "close") == chunked
        else:
            closes = path == "/api/nowhere"
            assert answer.headers["Connection"] == ("close" if closes else "keep-alive")


@pytest.mark.load
def test_unclosed_client_connections_do_not_block_a_worker(server: RunningServer):
    """Closed one after the other these 60 connections would take a minute."""
    before = server.workers()
    host, port = urlsplit(server.address).netloc.split(":")
    own = f"Host: {host}:{port}\r\nConnection: close"
    request = f"GET /api/users/info?id=999999 HTTP/1.1\r\n{own}\r\n\r\n"
    with contextlib.ExitStack() as held:
        for _ in range(60):  # enough to exceed `timeout` in each worker
            connection = socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT)
            held.enter_context(contextlib.closing(connection))
            connection.sendall(request.encode())
        assert send_raw(server.address, request).startswith("HTTP/1.1 404 ")
    assert server.workers() == before


BROKEN_APPLICATION = """
def application(environ, start_response):
    raise RuntimeError("broken")
"""


EMPTY_APPLICATION = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "0")])
    return []
"""
CONFIGURATION = Path(ROOT) / "serving" / "gunicorn_config.py"
SLOW_START = """
def post_fork(arbiter, worker):
    print("worker boots", flush=True)
    __import__("time").sleep(60)
"""


@contextlib.contextmanager
def running_gunicorn(
    folder: Path, configuration: Path, *options: str, application: str = BROKEN_APPLICATION
) -> Iterator[tuple[subprocess.Popen, Path]]:
    """Run gunicorn, by default with a broken application. Yields the process and its log file."""
    (folder / "program.py").write_text(application)
    log = folder / "error.log"
    command = [sys.executable, "-m", "gunicorn", f"--config={configuration}", *options]
    command += ["--bind=127.0.0.1:0", "program:application"]
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        wait_until(lambda: "Listening at: " in log.read_text(), process, log.read_text)
        yield process, log
    finally:
        kill_group(process)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_signal_during_worker_boot_stops_at_once(tmp_path: Path, end: signal.Signals):
    configuration = tmp_path / "slow.conf.py"
    configuration.write_text(CONFIGURATION.read_text() + SLOW_START)
    with running_gunicorn(tmp_path, configuration) as (process, log):
        wait_until(lambda: "worker boots" in log.read_text(), process, log.read_text)
        process.send_signal(end)
        assert process.wait(STOP_TIMEOUT) == 0
        assert "[ERROR]" not in log.read_text()


def address_in(log: Path) -> str:
    """Return the URL in gunicorn's log."""
    return re.search(r"Listening at: (http://\S+)", log.read_text())[1]


def test_busy_connection_does_not_keep_a_thread_from_others(tmp_path: Path):
    """With one thread: a connection stays in it between requests, but not if others wait."""
    options = ("--workers=1", "--threads=1", "--access-logfile=/dev/null")
    with (
        running_gunicorn(
            tmp_path, CONFIGURATION, *options, application=EMPTY_APPLICATION
        ) as server,
        concurrent.futures.ThreadPoolExecutor() as busy,
    ):
        address = address_in(server[1])
        is_over = threading.Event()
        responses = busy.submit(send_without_pause, address, is_over)
        try:
            for _ in range(5):
                answer = send_raw(address, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert answer.startswith("HTTP/1.1 200 OK\r\n")
        finally:
            is_over.set()
        assert responses.result() > 1000


def send_without_pause(address: str, is_over: threading.Event) -> int:
    """Send requests in one connection until `is_over`, always 1,000 ahead of the responses.

    Returns the number of responses.
    """
    host, port = urlsplit(address).hostname, urlsplit(address).port
    requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000
    with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT) as connection:
        connection.sendall(requests)
        responses, sent, rest = 0, 1000, b""
        while responses < sent:
            if sent - responses <= 1000 and not is_over.is_set():
                connection.sendall(requests)
                sent += 1000
            *ends, rest = (rest + connection.recv(65536)).split(b"\r\n\r\n")
            responses += len(ends)
    return responses


def test_error_log_omits_the_query_string(tmp_path: Path):
    secret = secrets.token_urlsafe(32)
    with running_gunicorn(tmp_path, CONFIGURATION) as (_, log):
        address = address_in(log)
        answer = send_raw(address, f"GET /callback?code={secret} HTTP/1.1\r\nHost: a\r\n\r\n")
        said = log.read_text()
    assert answer.startswith("HTTP/1.1 500 ")
    assert "Error handling request GET /callback\n" in said
    assert "RuntimeError: broken" in said
    assert secret not in said


def test_image_health_check(server: RunningServer):
    """It connects to an address that is independent of the base URL."""
    dockerfile = (Path(ROOT) / "deploy" / "Dockerfile").read_text()
    [check] = re.findall(r"^HEALTHCHECK CMD (.*)$", dockerfile, re.MULTILINE)
    _, *arguments = json.loads(check)
    statuses = []
    for address in (server.address, f"http://127.0.0.1:{free_port()}"):
        asked = [each.replace("http://127.0.0.1:8000", address) for each in arguments]
        done = subprocess.run([sys.executable, *asked], capture_output=True)
        statuses.append(done.returncode)
    assert statuses == [0, 1]
