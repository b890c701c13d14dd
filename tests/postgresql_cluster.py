"""PostgreSQL servers for tests, in folders and at ports of their own.

Needs Debian's package `postgresql`. PostgreSQL refuses to run as root: tests that root runs start
it as the system user `postgres`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
from programs import free_port
from waiting import wait_until

USER = "postgres"  # of the system, and the superuser of each cluster


class Cluster:
    """A PostgreSQL server whose files are in a folder, which it makes.

    It listens on a free port of 127.0.0.1 and trusts everybody there. The process that starts it
    should stop it; if that process dies, the server ends as well.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self.port = free_port()
        self.process: subprocess.Popen | None = None
        folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(folder, USER)

    def create(self) -> None:
        """Make an empty cluster (initdb)."""
        options = ("--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C")
        self.run("initdb", "--pgdata", str(self.data), *options, "--no-sync")

    def configure(self, **settings: str) -> None:
        """Add settings to postgresql.conf, which are used from the next start on."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL, such as pg_basebackup, as the user of the server."""
        done = subprocess.run(
            server_command(program, *arguments), cwd=self.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start the server; return when it accepts connections."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                server_command(
                    *("postgres", "-D", str(self.data), "-p", str(self.port)),
                    *("-c", "listen_addresses=127.0.0.1", "-k", str(self.folder)),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        wait_until(lambda: accepts_connections(self.url()), self.process, self.log.read_text)

    def stop(self) -> None:
        """Stop the server at once, and cleanly; the sessions of all clients end."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database in this cluster."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"


def accepts_connections(url: str) -> bool:
    """Return whether the server of a URL accepts connections now."""
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@contextlib.contextmanager
def running_cluster(folder: str | None) -> Iterator[Cluster]:
    """Run a cluster whose files are in a temporary folder in `folder`."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="identity-server-") as temporary:
        os.chmod(temporary, 0o711)
        cluster = Cluster(Path(temporary, "cluster"))
        cluster.create()
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


def server_command(program: str, *arguments: str) -> list[str]:
    """Return the command line that runs a program as the user of the server."""
    identity = ["--reuid", USER, "--regid", USER, "--clear-groups"] if os.geteuid() == 0 else []
    # The signal for an immediate shutdown, when the thread that runs this ends.
    return ["setpriv", *identity, "--pdeathsig", "QUIT", find_program(program), *arguments]


def find_program(name: str) -> str:
    """Return the path of a program of the newest PostgreSQL on this machine."""
    versions = Path("/usr/lib/postgresql").glob("*/bin")  # Debian; others have them in the PATH
    folders = sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    path = shutil.which(name, path=os.pathsep.join([*map(str, folders), os.environ["PATH"]]))
    assert path, f"{name} is not installed: apt-get install postgresql"
    return path
