"""A PostgreSQL server for a benchmark, and an installation in it with many players."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.population import PASSWORD, REDIRECT_URI, STEP, draw_upload, make_player, upload_of
from commands.running import kept_port
from identity.access.passwords import hash_password
from model.kinds import CLIENTS
from model.records import Client, sha256
from storage import Storage, open_storage

SECRET = "the secret of a benchmark's client"
CLIENT_ID = "benchmark" * 2


def search_path() -> str:
    """Return where PostgreSQL's programs may be, the newest version first."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name)
    return os.pathsep.join([*map(str, programs[::-1]), os.environ.get("PATH", "")])


def is_installed() -> bool:
    """Return True if this machine can run a PostgreSQL server."""
    return shutil.which("initdb", path=search_path()) is not None


@contextlib.contextmanager
def running_database(cores: set[int]) -> Iterator[str]:
    """Run a PostgreSQL server of its own on these cores; yield its address, without a database.

    PostgreSQL refuses to run as root, who needs the system user `postgres` for it.
    """
    search = search_path()
    if not is_installed():
        sys.exit("PostgreSQL is not installed: apt-get install postgresql")
    user = "postgres" if os.geteuid() == 0 else None

    def start(program: str, *arguments: str) -> subprocess.Popen:
        command = [shutil.which(program, path=search), "-D", f"{folder}/data", *arguments]
        return subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log)

    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        tempfile.TemporaryFile() as log,
        kept_port("127.0.0.1", 0) as port,
    ):
        if user:
            shutil.chown(folder, user)
        options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--data-checksums")
        if start("initdb", *options).wait():
            log.seek(0)
            sys.exit(log.read().decode())
        server = start("postgres", "-p", str(port), "-k", folder, "-c", "max_wal_size=4GB")
        os.sched_setaffinity(server.pid, cores)
        try:
            url = f"postgresql://postgres@127.0.0.1:{port}"
            _wait_for(url, server)
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # SIGTERM would wait for the end of all connections
            server.wait()


def _wait_for(url: str, server: subprocess.Popen) -> None:
    import psycopg  # only where --storage asks for it

    while server.poll() is None:
        with contextlib.suppress(psycopg.OperationalError):
            return psycopg.connect(f"{url}/postgres").close()
    sys.exit("PostgreSQL did not start")


def create_database(url: str, name: str) -> str:
    """Create a database on a server; return its URL."""
    import psycopg

    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{url}/{name}"


def fill_database(
    url: str, _: str, users: int, progress: Callable[[str], None]
) -> tuple[Storage, Client, str]:
    """Add players and a client to an empty database, as `population.populate` does to a folder."""
    storage = open_storage("", "", url)
    client = Client(CLIENT_ID, "Chess", sha256(SECRET), [REDIRECT_URI])
    password_hash = hash_password(PASSWORD)
    with storage.load() as load:
        for user_id in range(1, users + 1):
            user = make_player(user_id, client.id, password_hash)
            load.add_user(user, {} if user.pfp_generated else draw_upload(upload_of(user_id)))
            if user_id % STEP == 0:
                progress(f"{user_id:,} players")
        load.add(CLIENTS, client)
        load.next_user_id = users + 1
    return storage, client, SECRET


def size_of(url: str) -> int:
    """Return the size of a database in bytes, after its statistics are up to date."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]
