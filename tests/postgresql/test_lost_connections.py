"""Connections that the server ends: between two calls, and in the middle of a commit."""

import contextlib
import threading

import pytest
from waiting import wait_until

from model.errors import SaveUnconfirmed, StorageFailed
from storage.postgresql.connections import Link
from storage.postgresql.watchdog import TESTS

pytestmark = pytest.mark.postgresql
OTHERS = (
    "FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'identity-server'"
)


HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER hold AFTER UPDATE ON users
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold()
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
    run(HOLD)
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
