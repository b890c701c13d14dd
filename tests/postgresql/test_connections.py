"""Connections: who uses one and for how long, those that the server ends, and slow commits."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import wait_until

from model.errors import SaveUnconfirmed, StorageFailed
from storage.postgresql.connections import CALL_TIMEOUT, CANCEL_TIMEOUT, Database, Link
from storage.postgresql.watchdog import TESTS

pytestmark = pytest.mark.postgresql
ROOT = Path(__file__).parent.parent.parent
MARGIN = 1.5  # seconds, for a busy machine
OTHERS = (
    "FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'identity-server'"
)
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
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def sessions(run) -> Callable[[], list[str]]:
    """A function that returns the last statement of each session of the servers."""
    return lambda: [query for (query,) in run(f"SELECT query {OTHERS}")]


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


# -- connections that the server ends, between two calls and in a commit -------------------------

# Each commit of a record takes some seconds, as with a standby that is far away, or gone.
SLOW = """
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_sleep({}); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait AFTER INSERT OR UPDATE ON {}
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()
"""
END_OTHERS = f"SELECT pg_terminate_backend(pid) {OTHERS}"


def test_ended_idle_connections_are_replaced(storage, run):
    ada = storage.users.register("Ada", "ada@example.org", "")
    others = set(threading.enumerate())  # of other tests, for example
    calls = [
        lambda: storage.users.read(ada.id),
        lambda: storage.users.rename(ada.id, "Grace"),
        lambda: storage.attempts.count("password", "ada", 3),
        lambda: storage.users.administered_without(ada.id).__enter__(),
    ]
    for call in calls:
        assert run(END_OTHERS)
        call()
        # The next round must not end the connection of the tests that follow a failure.
        wait_until(lambda: TESTS not in {each.name for each in set(threading.enumerate()) - others})
    assert storage.users.find_by_login("grace").id == ada.id


def test_connection_lost_inside_a_transaction_saves_nothing(storage, run):
    ada = storage.users.register("Ada", "ada@example.org", "")
    with pytest.raises(StorageFailed) as error, storage.users.edit(ada.id) as user:
        user.bio = "new"
        run(END_OTHERS)
    assert not isinstance(error.value, SaveUnconfirmed)
    assert storage.users.read(ada.id).bio == ""


def test_connection_lost_in_a_commit_is_told_as_unconfirmed(storage, run, monkeypatch):
    """A deferred trigger holds the commit, as a standby that is gone would."""
    ada = storage.users.register("Ada", "ada@example.org", "")
    run(SLOW.format(60, "users"))
    told = []

    def save() -> None:
        try:
            with storage.users.edit(ada.id) as user:
                user.bio = "new"
        except StorageFailed as error:
            told.append(type(error))

    saving = threading.Thread(target=save)
    saving.start()
    commits = f"SELECT pid {OTHERS} AND query = 'COMMIT' AND state = 'active'"
    wait_until(lambda: run(commits))
    run(END_OTHERS)
    saving.join()
    assert told == [SaveUnconfirmed]
    assert storage.users.read(ada.id).bio == ""  # as a later read tells


def test_commit_after_a_failed_statement_is_no_success(storage, monkeypatch):
    """PostgreSQL answers such a COMMIT with ROLLBACK, and no error."""
    ada, run = storage.users.register("Ada", "ada@example.org", ""), Link.run
    with pytest.raises(StorageFailed), storage.users.edit(ada.id) as user:
        user.bio = "new"
        with monkeypatch.context() as patched, contextlib.suppress(StorageFailed):  # as by a caller
            patched.setattr(Link, "run", lambda self, *args, **kwargs: run(self, "SELECT 1 / 0"))
            storage.audit.write("edit", 1, user=ada.id)
    assert storage.users.read(ada.id).bio == ""


# -- commits that take long: one player's saves leave room for those of others --------------------

SAVERS = 20  # threads of one player; a worker has twelve, and the database is slow


def edit(storage, user_id: int) -> None:
    with storage.users.edit(user_id) as user:
        user.play_ms += 1


def register(storage, user_id: int) -> None:
    storage.clients.register("Game", [], user_id)


SAVES = {
    "users": (edit, lambda storage, user_id: storage.users.read(user_id).play_ms),
    "clients": (register, lambda storage, user_id: len(storage.clients.of_owner(user_id))),
}


@pytest.mark.parametrize("table", SAVES)
def test_one_saving_player_leaves_room_for_others(storage, run, table):
    save, count = SAVES[table]
    mallory, *others = [
        storage.users.register(name, f"{name}@example.org", "")
        for name in ("mallory", "ada", "bob")
    ]
    run(SLOW.format(0.1, table))
    over, saved = threading.Event(), []

    def save_all_the_time() -> None:
        while not over.is_set():
            try:
                save(storage, mallory.id)
                saved.append(True)
            except StorageFailed:
                saved.append(False)

    with ThreadPoolExecutor(SAVERS) as threads:
        try:
            savers = [threads.submit(save_all_the_time) for _ in range(SAVERS)]
            for number in range(20):
                save(storage, others[number % 2].id)  # raises nothing
        finally:
            over.set()
    assert not any(each.exception() for each in savers)
    assert [count(storage, each.id) for each in others] == [10, 10]
    assert count(storage, mallory.id) == saved.count(True)
    assert False in saved  # the player's own saves were too many
