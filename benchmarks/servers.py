"""The servers that are measured: real gunicorns on loopback, as a rule with one worker process."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PATIENCE = 20  # seconds for a server to start, and to stop
SERVE = "from identity_admin import main; main()"

_cores = sorted(os.sched_getaffinity(0))
# The servers share a core and the load generator has another, where there are two.
SERVER_CORE, LOAD_CORE = {_cores[-1]}, {_cores[0]}


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    pid: int  # of gunicorn's master process
    first_answer: float  # seconds after its command was started

    def workers(self) -> list[Path]:
        """The folders in /proc of the worker processes, in the order of their ids."""
        ids = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return sorted(Path("/proc", each) for each in ids)

    def worker_memory(self) -> float:
        """What the worker process has in memory (VmRSS), in MiB; of several the sum."""
        return sum(map(_memory, self.workers()))

    def worker_time(self) -> float:
        """The processor time that the one worker process has used, in seconds."""
        (worker,) = self.workers()
        return processor_time(worker)


def processor_time(process: Path) -> float:
    """What the process of this folder in /proc has used, in seconds."""
    user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _memory(process: Path) -> float:
    lines = (process / "status").read_text().splitlines()
    kibibytes = next(line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kibibytes) / 1024


@contextlib.contextmanager
def serve_identity(settings: dict[str, str], workers: int = 1) -> Iterator[Server]:
    """Run the identity server: `identity-server serve` with its defaults but for the workers.

    One worker has a core to itself; several run where they may.
    """
    port = _free_port()
    arguments = ["serve", f"--bind=127.0.0.1:{port}", f"--workers={workers}"]
    command = [sys.executable, "-c", SERVE, *arguments]
    environment = {f"IDENTITY_{name}": value for name, value in settings.items()}
    cores = SERVER_CORE if workers == 1 else set(_cores)
    with _serve(command, port, "/api/users/info?id=1", environment, cores) as server:
        yield server


@contextlib.contextmanager
def serve_floor(like: Server, application: str) -> Iterator[Server]:
    """Run another application under the gunicorn, and with the arguments, that `like` runs with."""
    port = _free_port()
    *arguments, _, _ = Path(f"/proc/{like.pid}/cmdline").read_text().split("\0")
    command = [f"--bind=127.0.0.1:{port}" if "--bind=" in each else each for each in arguments]
    with _serve([*command, application], port, "/", {}) as server:
        yield server


@contextlib.contextmanager
def _serve(
    command: list[str], port: int, path: str, environment: dict, cores: set[int] = SERVER_CORE
) -> Iterator[Server]:
    """Run a server until the block ends, from when it answers at `path`.

    Its standard output, where the access lines go, is /dev/null.
    """
    started = time.perf_counter()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        ) as process,
    ):
        os.sched_setaffinity(process.pid, cores)
        try:
            while not _answers(port, path):
                if process.poll() is not None or time.perf_counter() - started > PATIENCE:
                    errors.seek(0)
                    sys.exit(f"a server did not start:\n{errors.read().decode()}")
                time.sleep(0.005)
            yield Server(port, process.pid, time.perf_counter() - started)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        connection.request("GET", path)
        return connection.getresponse().status == 200
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
