"""The pool of connections: who uses one, for how long, and when it is closed."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from waiting import wait_until

from model.errors import StorageFailed
from storage.postgresql.connections import CALL_TIMEOUT, CANCEL_TIMEOUT, Database

pytestmark = pytest.mark.postgresql
ROOT = Path(__file__).parent.parent.parent
MARGIN = 1.5  # seconds, for a busy machine
FORK = """
import os, sys
from storage.postgresql.connections import Database

database = Database(sys.argv[1])
PID = "SELECT pg_backend_pid()"
before = database.execute(PID)
if (child := os.fork()) == 0:
    os._exit(database.execute(PID) == before)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(status or database.execute(PID) != before)
"""


@pytest.fixture
def database(database_url) -> Iterator[Database]:
    """A database of this test, with its tables."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def sessions(database_url) -> Iterator[Callable[[], list[str]]]:
    """A function that returns the last statement of each session of the servers."""
    query = (
        "SELECT query FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name = 'identity-server'"
    )
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield lambda: [query for (query,) in connection.execute(query)]


def test_threads_use_one_connection_after_the_other(database, sessions):
    """A server may start a thread for each request."""
    for _ in range(5):
        thread = threading.Thread(target=database.execute, args=["SELECT 1"])
        thread.start()
        thread.join()
    assert sessions() == ["SELECT 1"]


def test_overdue_call_fails_and_is_cancelled(database, sessions):
    started = time.monotonic()
    with pytest.raises(StorageFailed, match="took too long"):
        database.execute("SELECT pg_sleep(60)")
    assert time.monotonic() - started < CALL_TIMEOUT + CANCEL_TIMEOUT + MARGIN
    wait_until(lambda: "SELECT pg_sleep(60)" not in sessions())
    assert database.execute("SELECT 1") == [(1,)]


def test_child_process_leaves_the_connections_of_its_parent(database_url):
    """As a worker of gunicorn does after --preload."""
    command = [sys.executable, "-c", FORK, database_url]
    assert subprocess.run(command, cwd=ROOT).returncode == 0


def test_error_in_a_transaction_of_its_own_is_a_storage_error(database):
    with pytest.raises(StorageFailed), database.own_transaction() as link:
        link.execute("SELECT 1 / 0")
