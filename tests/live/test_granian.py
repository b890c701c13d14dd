"""granian as serving/granian_server.py runs it: its processes, signals, connections and log."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import free_port
from waiting import PATIENCE, wait_until

from identity.settings import ROOT

from .conftest import shared_server
from .running import is_free, kill_group
from .test_log import send_raw

pytestmark = pytest.mark.live
KEEP_ALIVE = 1  # seconds: a shorter wait at each stop and reload
CLIENTS = 16
REQUESTS = 20_000
APPLICATION = """
import json, os, time

time.sleep(float(os.environ.get("BOOT", "0")))

def application(environ, start_response):
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    if path == "/fails":
        start_response("200 OK", [])
        return broken_stream()
    if path == "/sleeps":
        time.sleep(float(query))
    body = json.dumps({"worker": os.getpid(), "names": [*environ]}).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

def broken_stream():
    yield b"half of"
    raise RuntimeError("broken")
"""


class Granian:
    """granian on a free port with two workers and APPLICATION, which responds to any path."""

    def __init__(
        self,
        folder: Path,
        target: str = "probe:application",
        keep_alive: int = KEEP_ALIVE,
        **variables: str,
    ) -> None:
        (folder / "probe.py").write_text(APPLICATION)
        self.port = free_port()
        self.log = folder / "error.log"
        command = [sys.executable, "-m", "serving.granian_server", f"--keep-alive={keep_alive}"]
        command += [f"--bind=127.0.0.1:{self.port}", "--workers=2", target]
        python_path = os.pathsep.join([ROOT, str(folder)])
        with self.log.open("w") as log, (folder / "access.log").open("w") as access_log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": python_path} | variables,
                stdout=access_log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for_workers(self, without: set[int] = frozenset()) -> set[int]:
        """Return the ids of two workers that have started, none of them in `without`."""

        def started() -> set[int]:
            lines = re.findall(r"\[(\d+)\] \[INFO\] Started worker", self.log.read_text())
            return self.children() & set(map(int, lines)) - without

        wait_until(
            lambda: len(started()) == 2 and started() == self.children(),
            self.process,
            self.log.read_text,
        )
        return started()

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
def running_granian(folder: Path, **options: object) -> Iterator[Granian]:
    """Run granian until the block ends."""
    server = Granian(folder, **options)
    try:
        server.wait_for_workers()
        yield server
    finally:
        kill_group(server.process)


@pytest.fixture(scope="module")
def granian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Granian]:
    """A running granian for the tests that do not stop it."""
    misleading = {"HTTP_COOKIE": "session=x", "CONTENT_LENGTH": "3", "HTTP_X_FORWARDED_FOR": "::1"}
    with running_granian(tmp_path_factory.mktemp("granian"), **misleading) as server:
        yield server


class Load:
    """Clients that send requests until `end`, some with a new connection for each request.

    `lost` has the requests that got no response, each as "first" or "later" on its connection.
    """

    def __init__(self, server: Granian) -> None:
        self.server = server
        self.answered = [0] * CLIENTS
        self.announced = 0  # connections that the server closed with a response that says so
        self.lost: list[str] = []
        self._is_over = threading.Event()
        each_time = [number % 4 == 0 for number in range(CLIENTS)]
        self._threads = [
            threading.Thread(target=self._send, args=each) for each in enumerate(each_time)
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
            which = "first"
            with contextlib.closing(client):
                while not self._is_over.is_set():
                    try:
                        client.request("GET", "/")
                        response = client.getresponse()
                        response.read()
                    except (OSError, http.client.HTTPException):
                        self.lost.append(which)
                        return
                    which = "later"
                    self.answered[number] += 1
                    self.announced += response.will_close
                    if is_new_each_time or response.will_close:
                        break


@pytest.mark.load
def test_reload_under_load_loses_no_request(tmp_path: Path):
    with running_granian(tmp_path) as server, Load(server) as load:
        workers = server.wait_for_workers()
        for _ in range(3):
            server.process.send_signal(signal.SIGHUP)
            workers = server.wait_for_workers(without=workers)
        wait_until(lambda: sum(load.answered) >= REQUESTS, server.process)
    assert load.lost == []
    assert load.announced >= 3


@pytest.mark.load
def test_stop_under_load_responds_on_each_open_connection(tmp_path: Path):
    """A client loses at most the first request on a new connection, when nobody listens."""
    with running_granian(tmp_path) as server:
        with Load(server) as load, server.connect() as slow:
            slow.sendall(b"GET /sleeps?3 HTTP/1.1\r\nHost: a\r\n\r\n")
            time.sleep(0.2)
            server.process.terminate()
            assert server.process.wait(PATIENCE) == 0
            response = slow.recv(1000)
        assert response.startswith(b"HTTP/1.1 200 OK\r\n")
        assert set(load.lost) <= {"first"}
        assert load.announced >= 1
        assert "[WARNING]" not in server.log.read_text()


def test_idle_connection_is_closed(granian: Granian):
    """Also one with half a head: the time for it starts with the connection."""
    for start in (b"", b"GET / HTTP/1.1\r\nHo", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
        began = time.monotonic()
        with granian.connect() as connection:
            connection.sendall(start)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        assert received.startswith(b"HTTP/1.1 200 OK\r\n" if b"\n\r\n" in start else b"")
        assert time.monotonic() - began > KEEP_ALIVE / 2


def test_environment_variable_is_no_header(granian: Granian):
    names = granian.get()["names"]
    assert {"PATH", "HTTP_HOST"} <= set(names)
    assert not {"HTTP_COOKIE", "CONTENT_LENGTH", "HTTP_X_FORWARDED_FOR"} & set(names)


def test_more_connections_than_threads_are_accepted(tmp_path: Path):
    """Idle connections hold no thread: two workers have 24."""
    with running_granian(tmp_path, keep_alive=600) as server, contextlib.ExitStack() as held:
        for _ in range(100):
            held.enter_context(server.connect())
        assert server.get()["worker"] in server.children()


def test_broken_stream_is_logged_and_looks_complete(granian: Granian):
    """A difference from gunicorn, which ends the connection without the last chunk."""
    request = "GET /fails?code=secret HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert send_raw(f"http://127.0.0.1:{granian.port}", request).endswith("half of\r\n0\r\n\r\n")
    wait_until(lambda: "RuntimeError: broken" in granian.log.read_text())
    assert "secret" not in granian.log.read_text()


def test_killed_worker_is_replaced(tmp_path: Path):
    with running_granian(tmp_path) as server:
        killed, other = server.wait_for_workers()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: killed not in server.children() and len(server.children()) == 2)
        assert other in server.wait_for_workers()
        assert server.get()["worker"] != killed


def test_workers_end_when_the_master_is_killed(tmp_path: Path):
    with running_granian(tmp_path) as server:
        server.get()
        server.process.kill()
        server.process.wait(PATIENCE)
        wait_until(lambda: is_free(f"127.0.0.1:{server.port}"))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_stop_signal_exits_with_status_0(tmp_path: Path, end: signal.Signals):
    """SIGINT from a terminal is for the whole process group."""
    with running_granian(tmp_path) as server:
        os.killpg(server.process.pid, end)
        assert server.process.wait(PATIENCE) == 0
        assert is_free(f"127.0.0.1:{server.port}")


def test_signals_during_worker_boot(tmp_path: Path):
    """A worker that loads the application survives a reload's first signal, and ends at a stop."""
    server = Granian(tmp_path, BOOT="3600")
    try:
        wait_until(lambda: len(server.children()) == 2, server.process, server.log.read_text)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "Stopped old worker-2" in server.log.read_text(), server.process)
        server.process.terminate()
        assert server.process.wait(PATIENCE) == 0
        assert "[ERROR]" not in server.log.read_text()
    finally:
        kill_group(server.process)


def test_application_that_cannot_be_loaded_stops_the_server(tmp_path: Path):
    server = Granian(tmp_path, "nowhere:application")
    assert server.process.wait(PATIENCE) == 1
    assert "No module named 'nowhere'" in server.log.read_text()


def test_systemd_is_notified(tmp_path: Path):
    """The unit has Type=notify, which gunicorn supports."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE)
        with running_granian(tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify")):
            assert systemd.recv(100) == b"READY=1"


ALIKE = (
    "GET /api/users/info?id=999999 HTTP/1.1",
    "HEAD /sign-in HTTP/1.1",
    "BREW /sign-in HTTP/1.1",
    "GET /%0A%22%1b/%C3%A9/a%20b?code=secret HTTP/1.1",
    f"GET /callback/{'s' * 43} HTTP/1.1",
    "POST /api/oauth/token HTTP/1.1\r\nContent-Length: 5",
    "GET /sign-in HTTP/1.0",
)


def test_access_lines_are_those_of_gunicorn(request: pytest.FixtureRequest):
    """For the same requests both servers write the same lines, except for the times.

    For a file gunicorn logs 0 bytes.
    """
    lines = {}
    for kind in ("gunicorn", "granian"):
        server = shared_server(request.config, kind)
        before = server.access_log.read_text().count("\n")
        own = f"Host: {server.address.removeprefix('http://')}\r\nConnection: close"
        for start in ALIKE:
            send_raw(server.address, f"{start}\r\n{own}\r\n\r\nabcde")
        wait_until(
            lambda s=server, n=before: s.access_log.read_text().count("\n") >= n + len(ALIKE)
        )
        written = server.access_log.read_text().splitlines()[before:]
        lines[kind] = sorted(re.sub(r"\[.*?\]|\S+$", "-", line) for line in written)
    assert lines["gunicorn"] == lines["granian"]
    assert len(lines["granian"]) == len(ALIKE)
