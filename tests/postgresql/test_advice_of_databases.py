"""Warnings about a database: settings that lose saves, standbys, poolers, clocks, addresses."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from databases import query
from postgresql_cluster import USER, Cluster, accepts_connections, find_program, server_command
from programs import free_port
from waiting import wait_until

from model.errors import SaveUnconfirmed
from storage.postgresql import advice

pytestmark = pytest.mark.postgresql
READ_ONLY = "options=-c%20default_transaction_read_only%3Don"


@pytest.fixture(scope="module")
def cluster(databases) -> Cluster:
    """The server of all tests, whose settings each test resets."""
    return databases.cluster


def run(cluster: Cluster, *statements: str) -> list[tuple]:
    """Run statements; return the rows of the last."""
    return [query(cluster.url(), each) for each in statements][-1]


@contextlib.contextmanager
def changed(cluster: Cluster, setting: str, value: str) -> Iterator[None]:
    """Change a setting of the server for the block."""
    show, reload = f"SHOW {setting}", "SELECT pg_reload_conf()"
    before = run(cluster, show)
    run(cluster, f"ALTER SYSTEM SET {setting} = '{value}'", reload)
    # The server reads its settings a moment later.
    wait_until(lambda: run(cluster, show) == [(value,)])
    try:
        yield
    finally:
        run(cluster, f"ALTER SYSTEM RESET {setting}", reload)
        wait_until(lambda: run(cluster, show) == before)


def problems(url: str) -> list[str]:
    return [each.problem for each in advice.check_database(url)]


def test_a_database_in_order_has_no_warnings(cluster):
    assert problems(cluster.url()) == []


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_setting_that_can_destroy_the_database_is_named(cluster, setting):
    with changed(cluster, setting, "off"):
        [found] = advice.check_database(cluster.url())
    assert found.problem == f"{setting} is off: a power cut can destroy the database"
    assert found.fix == f"ALTER SYSTEM RESET {setting}, and SELECT pg_reload_conf()"


@contextlib.contextmanager
def standby(cluster: Cluster) -> Iterator[None]:
    """Attach what the server takes for a standby: a program that receives all changes."""
    attached = "SELECT 1 FROM pg_stat_replication"
    with tempfile.TemporaryDirectory() as folder:
        program = find_program("pg_receivewal")
        process = subprocess.Popen(
            [program, "-D", folder, "-d", cluster.url(), "--synchronous"], stderr=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: run(cluster, attached))
            yield
        finally:
            process.terminate()
            process.wait()
            wait_until(lambda: not run(cluster, attached))


def test_a_standby_that_commits_do_not_wait_for_is_named(cluster):
    run(cluster, "CREATE ROLE identity LOGIN")  # not one who may see all of the statistics
    with standby(cluster):
        [found] = advice.check_database(cluster.url().replace("postgres@", "identity@"))
        assert found.problem.startswith("a standby is attached, and synchronous_standby_names")
        with changed(cluster, "synchronous_standby_names", "FIRST 1 (*)"):
            assert problems(cluster.url()) == []


def test_a_standby_that_is_gone_is_named(cluster):
    with changed(cluster, "synchronous_standby_names", "FIRST 1 (*)"):
        [found] = problems(cluster.url())
    assert found.startswith("synchronous_standby_names is set, and no standby is attached")


def test_an_encoding_without_all_letters_is_named(cluster):
    run(cluster, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    [found] = problems(cluster.url("latin"))
    assert found.startswith("the database has the encoding LATIN1")


@pytest.mark.parametrize("difference, direction", [(100, "behind"), (-100, "ahead of")])
def test_a_clock_that_differs_is_named(cluster, clock, difference, direction):
    clock.shift(difference)
    [found] = problems(cluster.url())
    assert found.startswith("the clock of the database is ")
    assert found.endswith(f" s {direction} this machine's")


@pytest.mark.parametrize(
    "address, problem",
    [
        ("{closed}/postgres", "the database does not answer: Connection refused"),
        ("{port}/postgres?" + READ_ONLY, "the database does not answer: session is read-only"),
        ("{port}/postgres?x=1", "IDENTITY_STORAGE is no URL of a database"),
    ],
    ids=["closed port", "read-only", "unknown option"],
)
def test_an_unusable_address_is_named_without_its_password(cluster, address, problem):
    address = address.format(port=cluster.port, closed=free_port())
    [found] = advice.check_database(f"postgresql://postgres:S3cret%40@127.0.0.1:{address}")
    assert found.problem == problem
    assert "S3cret" not in str(found)


@contextlib.contextmanager
def pooler(cluster: Cluster, mode: str) -> Iterator[str]:
    """Run Debian's PgBouncer in front of a cluster; yield the URL of its database."""
    port, folder = free_port(), cluster.folder / mode
    folder.mkdir()
    if os.geteuid() == 0:
        shutil.chown(folder, USER)
    settings = {"listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": ""}
    settings |= {"auth_type": "any", "pool_mode": mode, "logfile": folder / "log"}
    lines = [f"* = host=127.0.0.1 port={cluster.port} user=postgres", "[pgbouncer]"]
    lines += [f"{name} = {value}" for name, value in settings.items()]
    (folder / "ini").write_text("\n".join(["[databases]", *lines, ""]))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(server_command("pgbouncer", str(folder / "ini")), **quiet)
    url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
    try:
        wait_until(lambda: accepts_connections(url))
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("mode, is_found", [("transaction", True), ("session", False)])
def test_a_pooler_that_takes_connections_away_is_named(cluster, mode, is_found):
    with pooler(cluster, mode) as url:
        found = problems(url)
    assert [each.startswith("a pooler in transaction mode") for each in found] == [True] * is_found


@pytest.mark.parametrize("by", ["an administrator", "the server"])
def test_save_without_its_standby_is_unconfirmed(cluster, storage, database_url, by):
    """PostgreSQL reports such a COMMIT as successful, with a warning."""
    ada = storage.users.register("Ada", "ada@example.org", "")
    waiting = "wait_event = 'SyncRep' AND datname = current_database()"
    cancel = f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {waiting}"

    def save() -> None:
        with pytest.raises(SaveUnconfirmed), storage.users.edit(ada.id) as user:
            user.bio = "new"

    with (
        psycopg.connect(database_url, autocommit=True) as connection,
        changed(cluster, "synchronous_standby_names", "FIRST 1 (*)"),
        ThreadPoolExecutor() as threads,
    ):
        saving = threads.submit(save)
        if by == "an administrator":
            wait_until(lambda: connection.execute(cancel).fetchall())
        saving.result()
        # Nothing keeps the row locked until the standby is back.
        connection.execute("SET synchronous_commit = local")
        lock = "SELECT FROM users FOR UPDATE SKIP LOCKED"
        wait_until(lambda: connection.execute(lock).fetchall())
    assert storage.users.read(ada.id).bio == "new"


def test_check_begins_with_the_warnings(cluster, storage):
    with changed(cluster, "fsync", "off"):
        [found] = storage.verify(repair=True)
    assert (found.place, found.repaired) == ("the database", None)
    assert found.problem.startswith("fsync is off: a power cut can destroy the database: ALTER")
