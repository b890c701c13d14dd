"""Rows of records: damaged ones, a table that is lost, and the log in the same transaction."""

import psycopg
import pytest

from model.errors import StorageFailed, TooManyClients
from model.kind import day_of
from storage.postgresql import schema
from storage.postgresql.backend import PostgreSQL

pytestmark = pytest.mark.postgresql
LIMIT = 3


@pytest.fixture
def clients(storage) -> list[str]:
    """The ids of as many clients of one owner as there may be."""
    return sorted(storage.clients.register("Game", [], 7)[0].id for _ in range(LIMIT))


def damage(run, client_id: str) -> None:
    run("UPDATE clients SET record = '{}' WHERE id = %s", client_id)


def test_a_damaged_client_gives_its_owner_room_for_one_more(storage, run, clients):
    damage(run, clients[0])
    storage.clients.register("Game", [], 7, at_most=LIMIT)
    with pytest.raises(TooManyClients):
        storage.clients.register("Game", [], 7, at_most=LIMIT)


@pytest.mark.parametrize("user_id", [0, 2**70])
def test_number_that_was_never_given_is_no_id(storage, user_id):
    assert storage.users.find(user_id) is None
    assert storage.users.existing([user_id, 1]) == set()


def test_a_table_that_is_lost_is_not_made_again(storage, run, database_url):
    """Else players would sign up, and their ids be those of others in the backup."""
    storage.users.register("Ada", "ada@example.org", "")
    run("DROP TABLE users CASCADE")
    again = PostgreSQL(database_url)
    with pytest.raises(StorageFailed, match="users"):
        again.users.register("Zoe", "zoe@example.org", "")
    again.close()


def test_line_of_an_act_that_cannot_be_saved_is_not_there(storage, run):
    ada = storage.users.register("Ada", "ada@example.org", "")
    run("ALTER TABLE users ADD CHECK (name <> 'grace')")
    with pytest.raises(StorageFailed):
        storage.users.rename(
            ada.id, "Grace", lambda user: storage.audit.write("user set", 9, user=user.id)
        )
    assert [*storage.audit.read(), *storage.audit.about({ada.id})] == []


def test_older_database_gets_the_table_of_who_plays(storage, run, database_url):
    run("DROP TABLE playing, reports")
    run("UPDATE installation SET kinds = array_remove(kinds, 'reports')")
    again = PostgreSQL(database_url)
    again.playing.note(1, "a" * 24)
    assert again.playing.now() == {1: "a" * 24}
    assert run("SELECT relpersistence FROM pg_class WHERE relname = 'playing'") == [("u",)]
    assert run("SELECT indexname FROM pg_indexes WHERE indexname = 'playing_at'")
    again.close()


def test_older_database_gets_new_keys(storage, run, database_url, monkeypatch):
    """The rows are filled some at a time; a process that finds another at it leaves them to it."""
    monkeypatch.setattr(schema, "FILLED_AT_ONCE", 2)
    users = [storage.users.register(name, "", "") for name in ("Ada", "Bob", "Cleo")]
    run("ALTER TABLE users DROP COLUMN joined, DROP COLUMN played")
    run("UPDATE installation SET kinds = array_remove(kinds, 'users.joined')")
    lock = "SELECT pg_advisory_xact_lock(-4)"
    with psycopg.connect(database_url) as other:
        other.execute(lock)
        hindered = PostgreSQL(database_url)
        assert hindered.users.number() == 3  # it serves meanwhile
        hindered.close()
        assert run("SELECT DISTINCT joined FROM users") == [(None,)]
    again = PostgreSQL(database_url)
    day = day_of(users[0].created)
    assert again.users.between("joined", day, day, newest_first=False) == users
    assert run("SELECT 'users.joined' = ANY (kinds) FROM installation") == [(True,)]
    assert list(again.verify()) == []
    again.close()


def test_table_of_who_plays_that_is_lost_fails_nobody(storage, run):
    run("DROP TABLE playing")
    storage.playing.note(1, None)
    assert storage.playing.now() == {}


def test_players_who_left_are_removed_from_the_table(storage, run, database_url):
    storage.playing.note(1, None)
    run("UPDATE playing SET at = 1")
    again = PostgreSQL(database_url)  # one process removes some once a minute
    again.playing.note(2, None)
    assert run("SELECT user_id FROM playing") == [(2,)]
    again.close()
