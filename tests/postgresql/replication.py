"""A primary server with a standby, between which every byte takes a while."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from databases import query
from postgresql_cluster import USER, Cluster
from programs import free_port
from waiting import PATIENCE, wait_until

DELAY = 0.1  # seconds; without it even asynchronous replication loses next to nothing
STANDBY = "standby"  # its application_name and its slot
DATABASE = "identity"
PRIMARY_SETTINGS = {"wal_log_hints": "on", "wal_keep_size": "128MB", "max_connections": "300"}


class SlowLink:
    """Forwards TCP connections, each chunk after `delay`; `cut` drops what is on its way."""

    def __init__(self, port: int) -> None:
        self.port = free_port()
        self.delay = 0.0  # seconds
        self._target = port
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections without what was not forwarded yet, and accept no other."""
        self._is_cut = True
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while not self._is_cut:
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                self._sockets.append(client)
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # the target does not run now
                    client.close()
                    continue
                self._sockets.append(server)
                for pair in ((client, server), (server, client)):
                    chunks: deque[tuple[float, bytes]] = deque()
                    for work in (self._receive, self._forward):
                        threading.Thread(target=work, args=(*pair, chunks), daemon=True).start()

    def _receive(self, source: socket.socket, _: socket.socket, chunks: deque) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(2**16):
                chunks.append((time.monotonic() + self.delay, chunk))
        chunks.append((time.monotonic() + self.delay, b""))

    def _forward(self, _: socket.socket, target: socket.socket, chunks: deque) -> None:
        with contextlib.suppress(OSError):
            while not self._is_cut:
                if not chunks or chunks[0][0] > time.monotonic():
                    time.sleep(0.002)
                    continue
                _, chunk = chunks.popleft()
                if not chunk:
                    return target.shutdown(socket.SHUT_WR)
                target.sendall(chunk)


class Pair:
    """A primary and a standby that follows it through a slow link."""

    def __init__(self, folder: Path, is_synchronous: bool) -> None:
        self.primary, self.standby = Cluster(folder / "a"), Cluster(folder / "b")
        self._is_synchronous = is_synchronous

    def start(self) -> None:
        """Make both, and return when the standby follows."""
        self.primary.create()
        self.primary.configure(**PRIMARY_SETTINGS)
        self.primary.start()
        self.query(f"CREATE DATABASE {DATABASE}")
        self.link = SlowLink(self.primary.port)
        source = f"host=127.0.0.1 port={self.link.port} user={USER} application_name={STANDBY}"
        options = ("-X", "stream", "-c", "fast", "-C", "-S", STANDBY, "-R", "--no-sync")
        self.standby.run("pg_basebackup", "-d", source, "-D", str(self.standby.data), *options)
        self.standby.start()
        if self._is_synchronous:
            self.query(f"ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 ({STANDBY})'")
            self.query("SELECT pg_reload_conf()")
        wait_until(self.follows)

    def follows(self) -> bool:
        """Return whether the primary has the standby that it should have."""
        state = "sync" if self._is_synchronous else "async"
        return self.query("SELECT sync_state FROM pg_stat_replication") == [(state,)]

    def query(self, statement: str, database: str = "postgres") -> list[tuple]:
        return query(self.primary.url(database), statement)

    @property
    def url(self) -> str:
        """The URL of the database on whichever of the two takes saves."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://{USER}@{hosts}/{DATABASE}?target_session_attrs=read-write"

    def kill_primary(self) -> None:
        """Kill the primary with all its processes, as the loss of its machine would."""
        self.link.cut()
        for each in _processes_of(self.primary):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.primary.process.wait(PATIENCE)

    def promote(self) -> None:
        self.standby.run("pg_ctl", "-D", str(self.standby.data), "-w", "promote")

    def stop(self) -> None:
        for each in (self.standby, self.primary):
            if each.process and each.process.poll() is None:
                each.stop()
        self.link.cut()


def _processes_of(cluster: Cluster) -> list[int]:
    """Return the ids of a server's processes, the first of them its parent."""
    parent = cluster.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii")
    return [parent, *map(int, children.split())]


@contextlib.contextmanager
def frozen(cluster: Cluster) -> Iterator[None]:
    """Stop all processes of a server with SIGSTOP until the block ends."""
    stopped = _processes_of(cluster)
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in stopped:
            os.kill(each, signal.SIGCONT)


@contextlib.contextmanager
def running_pair(is_synchronous: bool = True) -> Iterator[Pair]:
    """Run a primary and a standby, whose files are on the disk."""
    with tempfile.TemporaryDirectory(prefix="identity-server-") as folder:
        os.chmod(folder, 0o711)
        pair = Pair(Path(folder), is_synchronous)
        try:
            pair.start()
            yield pair
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                pair.stop()
