"""gunicorn and granian as serving/ configures them: promises of both, and what differs.

docs/servers.md lists the differences.
"""

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
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from programs import free_port
from waiting import PATIENCE, wait_until

from benchmarks.servers import processor_time
from commands.running import SERVER_MODULES
from identity.site.settings import ROOT

from .running import ANSWER_TIMEOUT, STOP_TIMEOUT, RunningServer, is_free, kill_group
from .test_log import send_raw

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def server(each_server: RunningServer) -> RunningServer:
    """A server of each kind."""
    return each_server


# -- requests to the app --------------------------------------------------------------------------


def test_head_over_a_limit_closes_the_connection(server: RunningServer, subtests):
    own = f"HTTP/1.1\r\nHost: {urlsplit(server.address).netloc}\r\nConnection: close"
    for start, status in (
        (f"GET /{'a' * 8100} {own}", 404),
        (f"GET /{'a' * 8192} {own}", 414),
        (f"GET /sign-in?{'a' * 8100} {own}", 200),
        (f"GET /sign-in?{'a' * 8192} {own}", 414),
        (f"GET /sign-in {own}\r\nCookie: {'a' * 8100}", 200),
        (f"GET /sign-in {own}\r\nCookie: {'a' * 8192}", 431),
        (f"GET /sign-in {own}\r\nContent-Type: {'a' * 9000}\r\nX: y", 431),
        ("\r\n".join([f"GET /sign-in {own}", *["a: b"] * 150, "c: d"]), 431),
        ('nonsense "\x80', 400),
    ):
        with subtests.test(start[:40], status=status):
            head, _, body = send_raw(server.address, f"{start}\r\n\r\n").partition("\r\n\r\n")
            assert head.startswith(f"HTTP/1.1 {status} ")
            head = f"{head.lower()}\r\n"  # granian sends names in lower case
            assert "\r\nconnection: close\r\n" in head
            assert f"\r\ncontent-length: {len(body.encode('latin-1'))}\r\n" in head


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


def test_unread_body_is_no_next_request(server: RunningServer, subtests):
    """gunicorn closes the connection; granian reads the body, and refuses a chunked one."""
    body = b"grant_type=authorization_code"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for path, chunked in (
        *(("/api/oauth/token", False), ("/api/oauth/token", True)),
        *(("/api/nowhere", False), ("/api/nowhere", True)),
    ):
        netloc = urlsplit(server.address).netloc
        client = http.client.HTTPConnection(netloc, timeout=ANSWER_TIMEOUT)
        with subtests.test(path, chunked=chunked), contextlib.closing(client):
            client.request("POST", path, iter([body]) if chunked else body, headers)
            answer = client.getresponse()
            closes = chunked if server.kind == "granian" else path == "/api/nowhere"
            assert (answer.headers["Connection"] == "close") == closes
            assert (answer.status == 411) == (server.kind == "granian" and chunked)


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


def test_image_health_check(server: RunningServer):
    """It connects to an address that is independent of the base URL."""
    dockerfile = (Path(ROOT) / "deploy" / "Dockerfile").read_text()
    [check] = re.findall(r"^HEALTHCHECK .*CMD (.*)$", dockerfile, re.MULTILINE)
    _, *arguments = json.loads(check)
    statuses = []
    for address in (urlsplit(server.address).netloc, f"127.0.0.1:{free_port()}"):
        asked = [each.replace("127.0.0.1:8000", address) for each in arguments]
        done = subprocess.run([sys.executable, *asked], capture_output=True)
        statuses.append(done.returncode)
    assert statuses == [0, 1]


# -- processes, signals and connections -----------------------------------------------------------

KEEP_ALIVE = 1  # seconds: a shorter wait at each stop and reload of granian
APPLICATION = """
import json, os, time

time.sleep(float(os.environ.get("BOOT", "0")))

def application(environ, start_response):
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    if path.startswith("/fails/"):
        raise RuntimeError("broken")
    if path == "/sleeps":
        time.sleep(float(query))
    body = json.dumps({"worker": os.getpid(), "names": [*environ]}).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


class Probe:
    """A server on a free port with APPLICATION, which responds to any path."""

    def __init__(
        self,
        folder: Path,
        kind: str,
        *options: str,
        target: str = "probe:application",
        **variables: str,
    ) -> None:
        (folder / "probe.py").write_text(APPLICATION)
        self.kind = kind
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.log = folder / "error.log"
        command = [sys.executable, "-m", *SERVER_MODULES[kind], f"--bind=127.0.0.1:{self.port}"]
        python_path = os.pathsep.join([ROOT, str(folder)])
        with self.log.open("w") as log, (folder / "access.log").open("w") as access_log:
            self.process = subprocess.Popen(
                [*command, *options, target],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": python_path} | variables,
                stdout=access_log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for_workers(self, without: set[int] = frozenset()) -> set[int]:
        """Return the ids of two workers that have started, none of them in `without`."""
        self.wait_for(lambda: len(self._started(without)) == 2)
        return self._started(without)

    def _started(self, without: set[int]) -> set[int]:
        lines = self.log.read_text()
        started = re.findall(r"\[(\d+)\] \[INFO\] Started worker|Booting.* pid: (\d+)", lines)
        found = self.children() & {int(one or other) for one, other in started} - without
        return found if found == self.children() else set()

    def wait_for(self, condition: Callable[[], object]) -> None:
        wait_until(condition, self.process, self.log.read_text)

    def children(self) -> set[int]:
        """Return the ids of the workers."""
        master = self.process.pid
        return set(map(int, Path(f"/proc/{master}/task/{master}/children").read_text().split()))

    def get(self, path: str = "/") -> dict:
        """Request a path on a connection of its own; return the decoded body."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(client):
            client.request("GET", path)
            return json.load(client.getresponse())

    def connect(self) -> socket.socket:
        """Return a new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)


@contextlib.contextmanager
def running_probe(folder: Path, kind: str, *options: str, **variables: str) -> Iterator[Probe]:
    """Run a server with two workers until the block ends."""
    options = (f"--keep-alive={KEEP_ALIVE}", "--workers=2", *options)
    server = Probe(folder, kind, *options, **variables)
    try:
        yield server
    finally:
        kill_group(server.process)


@pytest.fixture(params=SERVER_MODULES)
def probe(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Probe]:
    """A server of each kind for one test alone."""
    with running_probe(tmp_path, request.param) as probe:
        probe.wait_for_workers()
        yield probe


@pytest.fixture
def granian(tmp_path: Path) -> Iterator[Probe]:
    """granian for one test alone."""
    with running_probe(tmp_path, "granian") as probe:
        probe.wait_for_workers()
        yield probe


def test_killed_worker_is_replaced(probe: Probe):
    killed, other = probe.wait_for_workers()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: killed not in probe.children() and len(probe.children()) == 2)
    assert other in probe.wait_for_workers()
    assert probe.get()["worker"] != killed


def test_workers_end_when_the_master_is_killed(probe: Probe):
    probe.get()
    probe.process.kill()
    probe.process.wait(PATIENCE)
    wait_until(lambda: is_free(f"127.0.0.1:{probe.port}"))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_stop_signal_exits_with_status_0(probe: Probe, end: signal.Signals):
    """SIGINT from a terminal is for the whole process group."""
    os.killpg(probe.process.pid, end)
    assert probe.process.wait(PATIENCE) == 0
    assert is_free(f"127.0.0.1:{probe.port}")


def test_error_log_omits_the_query_string(probe: Probe):
    """granian's log omits long words of the path, too."""
    secret = secrets.token_urlsafe(32)
    path, shown = ("/fails/", "/fails/")
    if probe.kind == "granian":
        path, shown = f"/fails/{secret}", "/fails/..."
    request = f"GET {path}?code={secret} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert send_raw(probe.address, request).startswith("HTTP/1.1 500 ")
    wait_until(lambda: "RuntimeError: broken" in probe.log.read_text())
    said = probe.log.read_text()
    assert f"Error handling request GET {shown}\n" in said
    assert secret not in said


@pytest.mark.parametrize("kind", SERVER_MODULES)
def test_environment_variable_is_no_header(tmp_path: Path, kind: str):
    misleading = {"HTTP_COOKIE": "session=x", "CONTENT_LENGTH": "3", "HTTP_X_FORWARDED_FOR": "::1"}
    with running_probe(tmp_path, kind, **misleading) as probe:
        probe.wait_for_workers()
        names = probe.get()["names"]
    assert "HTTP_HOST" in names
    assert not misleading.keys() & set(names)


@pytest.mark.parametrize("kind", SERVER_MODULES)
def test_application_that_cannot_be_loaded_stops_the_server(tmp_path: Path, kind: str):
    with running_probe(tmp_path, kind, target="nowhere:application") as probe:
        # gunicorn: 3, or 1 if both workers end at once.
        assert probe.process.wait(PATIENCE) in (1, 3)
        assert "No module named 'nowhere'" in probe.log.read_text()


@pytest.mark.parametrize("kind", SERVER_MODULES)
def test_systemd_is_notified(tmp_path: Path, kind: str):
    """The unit has Type=notify."""
    address = str(tmp_path / "notify")
    with (
        contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd,
        running_probe(tmp_path, kind, NOTIFY_SOCKET=address),
    ):
        systemd.settimeout(PATIENCE)
        systemd.bind(address)
        assert systemd.recv(100).partition(b"\n")[0] == b"READY=1"


# -- gunicorn alone -------------------------------------------------------------------------------

SLOW_START = """
def post_fork(arbiter, worker):
    print("worker boots", flush=True)
    __import__("time").sleep(60)
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_signal_during_worker_boot_stops_gunicorn_at_once(tmp_path: Path, end: signal.Signals):
    configuration = tmp_path / "slow.conf.py"
    own = Path(ROOT, "serving", "gunicorn_config.py").read_text()
    configuration.write_text(own + SLOW_START)
    with running_probe(tmp_path, "gunicorn", f"--config={configuration}") as probe:
        probe.wait_for(lambda: "worker boots" in (tmp_path / "access.log").read_text())
        probe.process.send_signal(end)
        assert probe.process.wait(STOP_TIMEOUT) == 0
        assert "[ERROR]" not in probe.log.read_text()


@pytest.mark.load
def test_busy_connection_does_not_keep_a_thread_from_others(tmp_path: Path):
    """With one thread: a connection stays in it between requests, but not if others wait."""
    options = ("--workers=1", "--threads=1", "--access-logfile=/dev/null")
    with running_probe(tmp_path, "gunicorn", *options) as probe, ThreadPoolExecutor() as busy:
        probe.wait_for(lambda: probe.log.read_text().count("Booting worker") == 1)
        is_busy, is_over = threading.Event(), threading.Event()
        responses = busy.submit(send_without_pause, probe, is_busy, is_over)
        try:
            assert is_busy.wait(PATIENCE)
            for _ in range(5):
                request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                assert send_raw(probe.address, request).startswith("HTTP/1.1 200 OK\r\n")
        finally:
            is_over.set()
        assert responses.result() > 1000


def send_without_pause(probe: Probe, is_busy: threading.Event, is_over: threading.Event) -> int:
    """Send requests in one connection until `is_over`, always 1,000 ahead of the responses.

    Sets `is_busy` at the second thousand. Returns the number of responses.
    """
    requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000
    with probe.connect() as connection:
        connection.sendall(requests)
        responses, sent, rest = 0, 1000, b""
        while responses < sent:
            if sent - responses <= 1000 and not is_over.is_set():
                connection.sendall(requests)
                sent += 1000
                is_busy.set()
            *ends, rest = (rest + connection.recv(65536)).split(b"\r\n\r\n")
            responses += len(ends)
    return responses


# -- granian alone --------------------------------------------------------------------------------

CLIENTS = 16
REQUESTS = 10_000


class Load:
    """Clients that send requests until `end`, some with a new connection for each request.

    `lost` has the requests that got no response, each as "first" or "later" on its connection.
    """

    def __init__(self, server: Probe) -> None:
        self.server = server
        self.answered = [0] * CLIENTS
        self.announced = 0  # connections that the server closed with a response that says so
        self.lost: list[str] = []
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(number, number % 4 == 0))
            for number in range(CLIENTS)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        wait_until(lambda: min(self.answered) > 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _send(self, number: int, is_new_each_time: bool) -> None:
        while not self._is_over.is_set():
            client = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
            with contextlib.closing(client):
                which, stays_open = "first", True
                while stays_open and not self._is_over.is_set():
                    try:
                        client.request("GET", "/")
                        response = client.getresponse()
                        response.read()
                    except (OSError, http.client.HTTPException):
                        self.lost.append(which)
                        return
                    self.answered[number] += 1
                    self.announced += response.will_close
                    which, stays_open = "later", not (is_new_each_time or response.will_close)


@pytest.mark.load
def test_reload_under_load_loses_no_request(granian: Probe):
    with Load(granian) as load:
        workers = granian.wait_for_workers()
        for _ in range(3):
            granian.process.send_signal(signal.SIGHUP)
            workers = granian.wait_for_workers(without=workers)
        wait_until(lambda: sum(load.answered) >= REQUESTS, granian.process)
    assert load.lost == []
    assert load.announced >= 3


@pytest.mark.load
def test_stop_under_load_responds_on_each_open_connection(granian: Probe):
    """A client loses at most the first request on a new connection, when nobody listens."""
    with Load(granian) as load, granian.connect() as slow:
        slow.sendall(b"GET /sleeps?3 HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.2)
        granian.process.terminate()
        assert granian.process.wait(PATIENCE) == 0
        response = slow.recv(1000)
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert set(load.lost) <= {"first"}
    assert load.announced >= 1
    assert "[WARNING]" not in granian.log.read_text()


def test_idle_connection_is_closed(granian: Probe):
    """Also one with half a head: the time for it starts with the connection."""
    starts = (b"", b"GET / HTTP/1.1\r\nHo", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    began = time.monotonic()
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(granian.connect()) for _ in starts]
        for connection, start in zip(connections, starts, strict=True):
            connection.sendall(start)
        for connection, start in zip(connections, starts, strict=True):
            received = b"".join(iter(lambda c=connection: c.recv(65536), b""))
            assert received.startswith(b"HTTP/1.1 200 OK\r\n" if b"\n\r\n" in start else b"")
            assert time.monotonic() - began > KEEP_ALIVE / 2


def test_signals_during_worker_boot_of_granian(tmp_path: Path):
    """A worker that loads the application survives a reload's first signal, and ends at a stop."""
    with running_probe(tmp_path, "granian", BOOT="3600") as granian:
        granian.wait_for(lambda: len(granian.children()) == 2)
        granian.process.send_signal(signal.SIGHUP)
        granian.wait_for(lambda: "Stopped old worker-2" in granian.log.read_text())
        granian.process.terminate()
        assert granian.process.wait(PATIENCE) == 0
        assert "[ERROR]" not in granian.log.read_text()
