"""The measured servers, on a loopback address, with one worker by default."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commands.running import kept_port

ROOT = Path(__file__).parent.parent
TIMEOUT = 20  # seconds for a server to start, and for its first response
SERVE = "from identity_admin import main; main()"
BIND = "--bind="  # in a command, to be completed with an address

_cores = sorted(os.sched_getaffinity(0))
# The servers share a core; the load generator has another one if there are two.
SERVER_CORE, LOAD_CORE = {_cores[-1]}, {_cores[0]}


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    pid: int  # of the master process
    first_response: float  # seconds after its command was started

    def workers(self) -> list[Path]:
        """Return the folders in /proc of the worker processes, in the order of their ids.

        A server without them, such as a peer, works in the process that was started.
        """
        ids = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return sorted(Path("/proc", each) for each in ids or [str(self.pid)])

    def worker_memory(self) -> float:
        """Return the memory of the worker processes (VmRSS), in MiB."""
        return sum(map(_memory, self.workers()))

    def worker_time(self) -> float:
        """Return the processor time of the one worker process, in seconds."""
        (worker,) = self.workers()
        return processor_time(worker)


def processor_time(process: Path) -> float:
    """Return the processor time of the process of a folder in /proc, in seconds.

    It is exact to nanoseconds, and /proc/PID/stat to hundredths of a second: the clock's id is what
    clock_getcpuclockid(3) returns on Linux.
    """
    return time.clock_gettime((~int(process.name) << 3) | 2)


def _memory(process: Path) -> float:
    lines = (process / "status").read_text().splitlines()
    kibibytes = next(line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kibibytes) / 1024


@contextlib.contextmanager
def serve_identity(
    settings: dict[str, str], workers: int = 1, server: str = "gunicorn"
) -> Iterator[Server]:
    """Run `identity-server serve` with this number of workers and other options by default.

    One worker is bound to SERVER_CORE; several may use all cores.
    """
    command = [sys.executable, "-c", SERVE, "serve", BIND, f"--workers={workers}"]
    command += [f"--server={server}"] if server != "gunicorn" else []
    environment = {f"IDENTITY_{name}": value for name, value in settings.items()}
    cores = SERVER_CORE if workers == 1 else set(_cores)
    with running_server(command, "/api/users/info?id=1", environment, cores) as server:
        yield server


@contextlib.contextmanager
def serve_baseline(like: Server, application: str) -> Iterator[Server]:
    """Run another application under the server of `like`, with the same arguments."""
    *arguments, _, _ = Path(f"/proc/{like.pid}/cmdline").read_text().split("\0")
    command = [BIND if "--bind=" in each else each for each in arguments]
    with running_server([*command, application], "/") as server:
        yield server


@contextlib.contextmanager
def running_server(
    command: list[str],
    path: str,
    environment: dict[str, str] | None = None,
    cores: set[int] = SERVER_CORE,
) -> Iterator[Server]:
    """Run a server until the block ends, which begins when the server responds at `path`.

    BIND in its command gets a free port. Its standard output, the access log, goes to /dev/null.
    """
    started = time.perf_counter()
    with (
        kept_port("127.0.0.1", 0) as port,
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [f"--bind=127.0.0.1:{port}" if each == BIND else each for each in command],
            cwd=ROOT,
            env=os.environ | (environment or {}),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        os.sched_setaffinity(process.pid, cores)
        try:
            while not _is_ready(port, path):
                if process.poll() is not None or time.perf_counter() - started > TIMEOUT:
                    errors.seek(0)
                    sys.exit(f"a server did not start:\n{errors.read().decode()}")
                time.sleep(0.005)
            yield Server(port, process.pid, time.perf_counter() - started)
        finally:
            # granian waits seconds for further requests when it is stopped; nothing here is kept.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _is_ready(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        connection.request("GET", path)
        return connection.getresponse().status == 200
    return False
