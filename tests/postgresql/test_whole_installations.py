"""Snapshot and load on PostgreSQL, and archives from one backend to the other."""

import io
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from cached_pictures import generate_picture
from waiting import wait_until

from storage import Storage
from storage.archive import backup, restore
from storage.errors import DamagedRecord, SaveUnconfirmed, StorageFailed
from storage.flat_files.backend import FlatFiles
from storage.kinds import CLIENTS
from storage.postgresql.backend import PostgreSQL
from storage.records import ADMINISTRATOR, PICTURE_SIZES, Client, Grant, Session, Suspension, User
from storage.rules import USER_IDS_END

pytestmark = pytest.mark.postgresql
ROOT = Path(__file__).parent.parent.parent
TIME = 1_700_000_000_000  # milliseconds since 1970
CHESS = "c" * 24  # id


@pytest.fixture
def store(database_url) -> Iterator[PostgreSQL]:
    store = PostgreSQL(database_url)
    yield store
    store.close()


@pytest.fixture
def run(database_url) -> Callable[..., list[tuple]]:
    """Runs a statement behind the server's back; returns the rows."""

    def run(statement: str) -> list[tuple]:
        with psycopg.connect(database_url) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    return run


def user(user_id: int, **values: object) -> User:
    fields = {"name": f"User {user_id}", "email": f"{user_id}@example.org", "password_hash": ""}
    return User(**{"id": user_id} | fields | values)


def chess(**values: object) -> Client:
    return Client(**{"id": CHESS, "name": "Chess", "secret_sha256": "0" * 64} | values)


def fill(store: Storage) -> None:
    """Load players with every field set, and clients."""
    suspension = Suspension(by=7, since=TIME, reason="Insults", until=TIME * 2)
    with store.load() as load:
        load.add_user(
            user(
                7,
                name="Ωμέγα 7",
                mod_level=ADMINISTRATOR,
                bio="Line\nline\t“🙂” \\ ' \" {}",
                flairs=["none", "winner"],
                equipped_flair="winner",
                play_ms=5,
                last_heartbeat=TIME,
                pfp_timestamp=TIME,
                created=TIME,
                grants={CHESS: Grant("g", ["userinfo"], TIME)},
                sessions=[Session("s", TIME, "Firefox")],
            ),
            generate_picture(99),
        )
        load.add_user(user(9, suspension=suspension, pfp_timestamp=TIME), generate_picture(9))
        load.add_user(user(10), {})
        load.add_user(user(11), generate_picture(98))
        load.add_deleted_id(8)
        load.add(
            CLIENTS,
            chess(
                redirect_uris=["https://a.example/cb"],
                owner_id=7,
                created=TIME,
                game_url="https://chess.example/play",
                description="A game",
                listed=True,
            ),
        )
        load.add(
            CLIENTS, Client("d" * 24, "Go", "1" * 64, [], disabled=True, disabled_by="command")
        )
        load.add_audit_log([b'{"time": 1, "act": "x", "by": 7}\n', b'{"time": 2,\n', b"\xff\n"])
        load.next_user_id = 100
    assert store.users.register("Zoe", "zoe@example.org", "").id == 100


def content(store: Storage) -> dict[str, object]:
    """Return all that an archive has, without the lines of the log by commands."""
    users = [store.users.read(each) for each in store.users.ids()]
    for each in users:
        each.sessions = []
    with store.snapshot() as snapshot:
        assert snapshot.users_total == len(list(snapshot.users()))
        deleted = list(snapshot.deleted_ids())
        clients = list(snapshot.records(CLIENTS))
        lines = [each for each in snapshot.audit_lines() if b"command" not in each]
    files = {
        (size, each.id): store.pictures.read(size, each.picture_file)[0]
        for each in users
        for size in PICTURE_SIZES
    }
    return {"users": users, "deleted": deleted, "clients": clients, "log": lines, "files": files}


def test_an_archive_restores_into_the_other_backend_and_back(store, database_url, tmp_path):
    fill(store)
    files = FlatFiles(str(tmp_path / "data"), str(tmp_path / "pfp"))
    reports = []
    there, back = str(tmp_path / "there"), str(tmp_path / "back")
    before = content(store)
    assert backup(store, there, "command", report=reports.append) == 5
    assert restore(files, there, "command") == 5
    assert content(files) == before
    assert backup(files, back, "command", report=reports.append) == 5
    clear(database_url)
    assert restore(store, back, "command") == 5
    assert content(store) == before
    assert reports == []
    assert [each.problem for each in store.verify()] == ["is damaged", "is damaged"]  # two lines


def clear(url: str) -> None:
    """Remove every user, client and line of the audit log."""
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM users; DELETE FROM clients; DELETE FROM audit")


# -- snapshot --------------------------------------------------------------------------------------


def test_a_snapshot_does_not_see_what_changes_meanwhile(store):
    fill(store)
    with store.snapshot() as snapshot:
        users = snapshot.users()
        first, _ = next(users)
        store.users.delete(9)
        store.pictures.save(7, generate_picture(50))
        new = store.users.register("New", "new@example.org", "")
        store.clients.delete(CHESS)
        store.audit.write("client delete", 7, client=CHESS)
        rest = list(users)
        assert [first.id, *(each.id for each, _ in rest)] == [7, 9, 10, 11, 100]
        assert list(snapshot.deleted_ids()) == [8]
        assert CHESS in [each.id for each in snapshot.records(CLIENTS)]
        assert not any(b"client delete" in each for each in snapshot.audit_lines())
        assert snapshot.next_user_id == new.id


def test_a_generated_picture_is_in_the_snapshot_without_a_row(store, run):
    user = store.users.register("New", "new@example.org", "")
    assert run("SELECT * FROM pictures") == []
    with store.snapshot() as snapshot:
        [(_, pictures)] = snapshot.users()
    assert pictures == generate_picture(user.id)


# What does the damage, and the beginning of the report.
LEFT_OUT = {
    "a damaged user": ("UPDATE users SET record = '[]' WHERE id = 7", "users/7 is damaged"),
    "a user of another id": (
        "UPDATE users SET record = jsonb_set(record::jsonb, '{id}', '5') WHERE id = 7",
        "users/7 is damaged: its id is 5",
    ),
    "a user with another's name": (
        "UPDATE users SET record = jsonb_set(record::jsonb, '{name}', '\"User 9\"') WHERE id = 7",
        "users/7 is damaged: its column name does not follow from its record",
    ),
    "a user with a mod level that nobody has": (
        "UPDATE users SET record = jsonb_set(record::jsonb, '{mod_level}', '9') WHERE id = 7",
        "users/7.json is damaged: mod_level",
    ),
    "an id that is never given": (
        f"ALTER TABLE pictures DROP CONSTRAINT pictures_user_id_fkey; "
        f"UPDATE users SET id = {USER_IDS_END} WHERE id = 7",
        f"users/{USER_IDS_END} is damaged: its id is 7",
    ),
    "a damaged client": (
        f"UPDATE clients SET record = '{{}}' WHERE id = '{CHESS}'",
        f"clients/{CHESS} is damaged",
    ),
    "a client of another id": (
        f"UPDATE clients SET id = '../..' WHERE id = '{CHESS}'",
        "../.. is damaged: its id is",
    ),
    "the next id": (
        f"UPDATE installation SET next_user_id = {USER_IDS_END + 1}",
        f"next_user_id is {USER_IDS_END + 1}, which is too large",
    ),
    "a picture": (
        "UPDATE pictures SET medium = 'x' WHERE user_id = 7",
        "pictures/7 (medium) is not a whole webp file: left out, player 7 gets a generated",
    ),
    "a picture of another time": (
        "UPDATE pictures SET pfp_timestamp = 5 WHERE user_id = 7",
        "pictures/7 has the timestamp 5, and its player ",
    ),
}


@pytest.mark.parametrize("damage, report", LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_a_restore_would_refuse_is_left_out_and_named(
    store, run, database_url, tmp_path, damage, report
):
    fill(store)
    run(damage)
    reports = []
    players = backup(store, str(tmp_path / "a"), "command", report=reports.append)
    [reported] = [each for each in reports if not each.startswith("audit.log")]
    assert reported.startswith(report)
    assert players == (4 if report.startswith("users") else 5)
    files = FlatFiles(str(tmp_path / "data"), str(tmp_path / "pfp"))
    assert restore(files, str(tmp_path / "a"), "command") == players


def test_one_snapshot_or_load_runs_at_a_time(store, database_url):
    other, reports, events = PostgreSQL(database_url), [], []

    def load() -> None:
        with other.load(report=reports.append) as load:
            events.append("load")
            load.add_user(user(7), {})
        other.close()

    thread = threading.Thread(target=load)
    with store.snapshot() as snapshot:
        thread.start()
        wait_until(lambda: reports)
        assert list(snapshot.users()) == []
        events.append("snapshot")
    thread.join()
    assert reports == ["another backup, restore or copy is running: waiting for its end"]
    assert events == ["snapshot", "load"]
    assert store.users.ids() == [7]


# -- load ------------------------------------------------------------------------------------------


def test_nobody_signs_up_or_registers_a_client_during_a_load(store):
    with store.load() as load:
        load.add_user(user(7), {})
        for add in (
            lambda: store.users.register("Zoe", "zoe@example.org", ""),
            lambda: store.clients.register("Go", [], None),
        ):
            with pytest.raises(StorageFailed):
                add()
        load.next_user_id = 8
    assert store.users.register("Zoe", "zoe@example.org", "").id == 8
    store.clients.register("Go", [], None)
    assert [each.problem for each in store.verify()] == []


def test_what_would_break_an_index_is_refused(store):
    go = Client("e" * 24, "Go", "0" * 64, [], game_url="https://CHESS.example:443/x")
    with pytest.raises(DamagedRecord), store.load() as load:
        load.add(CLIENTS, chess(redirect_uris=[], game_url="https://chess.example/"))
        load.add(CLIENTS, go)
    assert (store.users.ids(), store.clients.ids()) == ([], [])


def test_a_duplicate_is_named_by_its_own_id(store):
    """Also in a later batch than the first."""
    with (
        pytest.raises(DamagedRecord, match="users/9000 is damaged: its name is"),
        store.load() as load,
    ):
        for user_id in range(1, 9000):
            load.add_user(user(user_id), {})
        load.add_user(user(9000, name="user 5"), {})
        load.add_audit_log([])


def test_loaded_lines_stand_before_those_of_earlier_loads(store, database_url):
    for act in ("first", "second"):
        if store.users.ids():
            clear_users(database_url)
        with store.load() as load:
            load.add_user(user(7), {})
            load.add_audit_log(io.BytesIO(b'{"time": 1, "act": "%b", "by": 7}\n' % act.encode()))
        store.audit.write("own", 7)
    acts = ["second", "first", "own", "own"]
    assert [each["act"] for each in store.audit.read()] == acts
    assert [each["act"] for each in store.audit.about({7})] == acts[::-1]


def clear_users(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM users; DELETE FROM clients")


def test_deleted_ids_of_before_do_not_refuse_a_load(store):
    store.users.delete(store.users.register("Old", "old@example.org", "").id)
    with store.load() as load:
        load.add_user(user(1), {})
    assert store.users.ids() == [1]
    assert store.users.register("New", "new@example.org", "").id == 2


def test_a_commit_that_breaks_off_is_unconfirmed(store, run):
    """The server ends the connection in the middle of the COMMIT."""
    store.keys.current()
    run(
        "CREATE FUNCTION break_off() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'; "
        "CREATE CONSTRAINT TRIGGER break_off AFTER INSERT ON users DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION break_off()"
    )
    with pytest.raises(SaveUnconfirmed), store.load() as load:
        load.add_user(user(7), {})
    assert store.users.ids() == []


KILLED = """
import os, signal, sys
from storage.records import User
from storage.postgresql import connections
from storage.postgresql.backend import PostgreSQL

moment, store = sys.argv[1], PostgreSQL(sys.argv[2])

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if moment == "commit":
    connections.Link.commit = kill
with store.load(before=kill if moment == "before" else lambda: None) as load:
    for user_id in range(1, 20_000):
        load.add_user(User(user_id, f"User {user_id}", f"{user_id}@example.org", ""), {})
        if moment == "users" and user_id == 15_000:
            kill()
    load.add_audit_log([b'{"time": 1, "act": "x", "by": 7}'])
kill()
"""


@pytest.mark.parametrize("moment", ["users", "before", "commit", "end"])
def test_a_killed_load_leaves_nothing_or_all(store, database_url, moment):
    keys = store.keys.current()
    killed = subprocess.run([sys.executable, "-c", KILLED, moment, database_url], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    if moment == "end":
        assert len(store.users.ids()) == 19_999
        return
    assert (store.users.ids(), store.clients.ids(), list(store.audit.read())) == ([], [], [])
    assert store.keys.current() == keys
    with store.load() as load:  # when the server has noticed
        load.add_user(user(7), {})
        load.next_user_id = 8
    assert store.users.ids() == [7]
    assert list(store.verify()) == []
