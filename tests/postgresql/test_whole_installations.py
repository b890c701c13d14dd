"""Snapshot and load on PostgreSQL, and archives from one backend to the other."""

import signal
import subprocess
import sys
import threading

import pytest
from archives import ADA, BOB, CLEO, DORA, LARGEST, Site, fill, read_archived
from cached_pictures import generate_picture
from waiting import wait_until

from identity.site.settings import ROOT
from model.errors import DamagedRecord, StorageFailed
from model.kinds import CLIENTS
from model.records import Client, User
from model.rules import USER_IDS_END
from storage import Storage
from storage.whole.archive import backup, restore

pytestmark = pytest.mark.postgresql


@pytest.fixture
def chess(storage) -> str:
    """The id of the client of an installation with something of everything."""
    fill(storage)
    [client_id] = storage.clients.ids()
    return client_id


def user(user_id: int, **values: object) -> User:
    fields = {"name": f"User {user_id}", "email": f"{user_id}@example.org", "password_hash": ""}
    return User(**{"id": user_id} | fields | values)


def game(name: str, url: str) -> Client:
    return Client(name.lower() * 6, name, "0" * 64, [], game_url=url)


def read_log(store: Storage) -> list[bytes]:
    """Return the lines of the audit log that no command wrote."""
    with store.snapshot() as snapshot:
        return [line for line in snapshot.audit_lines() if b"command" not in line]


def test_an_archive_restores_into_the_other_backend_and_back(storage, chess, run, tmp_path):
    run("INSERT INTO audit (line) VALUES (%s)", b'{"time": 2,')
    files, there, back = Site(tmp_path / "files"), tmp_path / "there", str(tmp_path / "back")
    before, log = read_archived(storage), read_log(storage)
    assert backup(storage, str(there), "command", report=pytest.fail) == 3
    assert files.restore(there) == 3
    assert (read_archived(files.open()), read_log(files.open())) == (before, log)
    assert files.backup(back, report=pytest.fail) == 3
    run("DELETE FROM users; DELETE FROM clients; DELETE FROM handles; DELETE FROM audit")
    assert restore(storage, back, "command") == 3
    assert (read_archived(storage), read_log(storage)) == (before, log)
    assert [each.problem for each in storage.verify()] == ["is damaged"]  # the line


# -- snapshot ----------------------------------------------------------------------------------


def test_a_snapshot_does_not_see_what_changes_meanwhile(storage, chess):
    with storage.snapshot() as snapshot:
        users = snapshot.users()
        first, _ = next(users)
        storage.users.delete(BOB)
        storage.pictures.save(ADA, generate_picture(50))
        new = storage.users.register("New", "new@example.org", "")
        storage.clients.delete(chess)
        storage.audit.write("client delete", ADA, client=chess)
        assert [first.id, *(each.id for each, _ in users)] == [ADA, BOB, DORA]
        assert list(snapshot.deleted_ids()) == [CLEO]
        assert [each.id for each in snapshot.records(CLIENTS)] == [chess]
        assert not any(b"client delete" in each for each in snapshot.audit_lines())
        assert snapshot.next_user_id == new.id == LARGEST + 1


SET = "UPDATE users SET record = jsonb_set(record::jsonb, '{{{}}}', '{}') WHERE id = 2"
TOO_LARGE = USER_IDS_END + 1
OTHER_ID = "ALTER TABLE pictures DROP CONSTRAINT pictures_user_id_fkey; UPDATE users SET id = "
# Damage, and the beginning of the report. The client has the id CHESS.
BOBS_PICTURE = "UPDATE pictures SET {} WHERE user_id = 2"
LEFT_OUT = {
    "UPDATE users SET record = '[]' WHERE id = 2": "users/2 is damaged",
    SET.format("name", '"Dora"'): "users/2 is damaged: its column name does not follow from",
    SET.format("mod_level", 9): "users/2.json is damaged: mod_level",
    f"{OTHER_ID} {USER_IDS_END} WHERE id = 2": f"users/{USER_IDS_END} is damaged: its id is 2",
    "UPDATE clients SET id = '../..'": "../.. is damaged: its id is",
    f"UPDATE installation SET next_user_id = {TOO_LARGE}": f"next_user_id is {TOO_LARGE}, which is",
    BOBS_PICTURE.format("medium = 'x'"): "pictures/2 (medium) is not a whole webp file: left out, "
    "player 2 gets a generated",
    BOBS_PICTURE.format("pfp_timestamp = 5"): "pictures/2 has the timestamp 5, and its player ",
}


@pytest.mark.parametrize("damage, report", LEFT_OUT.items())
def test_what_a_restore_would_refuse_is_left_out(storage, chess, run, tmp_path, damage, report):
    run(damage)
    reports, archive = [], tmp_path / "archive"
    players = backup(storage, str(archive), "command", report=reports.append)
    [reported] = reports
    assert reported.replace(chess, "CHESS").startswith(report)
    assert players == (2 if report.startswith("users") else 3)
    restored = Site(tmp_path / "files")
    assert restored.restore(archive) == players
    if report.startswith("pictures"):  # not drawn at the address where caches have the old one
        assert restored.open().users.read(BOB).pfp_timestamp is None


def test_one_snapshot_or_load_runs_at_a_time(storage, open_installation):
    other, reports, events = open_installation(), [], []

    def load() -> None:
        with other.load(report=reports.append) as load:
            events.append("load")
            load.add_user(user(7), {})

    thread = threading.Thread(target=load)
    with storage.snapshot() as snapshot:
        thread.start()
        wait_until(lambda: reports)
        assert list(snapshot.users()) == []
        events.append("snapshot")
    thread.join()
    assert reports == ["another backup, restore or copy is running: waiting for its end"]
    assert events == ["snapshot", "load"]
    assert storage.users.ids() == [7]


# -- load --------------------------------------------------------------------------------------


def test_nobody_signs_up_or_registers_a_client_during_a_load(storage):
    with storage.load() as load:
        load.add_user(user(7), {})
        with pytest.raises(StorageFailed):
            storage.users.register("Zoe", "zoe@example.org", "")
        with pytest.raises(StorageFailed):
            storage.clients.register("Go", [], None)
        load.next_user_id = 8
    assert storage.users.register("Zoe", "zoe@example.org", "").id == 8
    storage.clients.register("Go", [], None)
    assert list(storage.verify()) == []


def test_load_of_a_second_game_on_an_origin_is_refused(storage):
    with pytest.raises(DamagedRecord), storage.load() as load:
        load.add(CLIENTS, game("Chess", "https://chess.example/"))
        load.add(CLIENTS, game("Go", "https://CHESS.example:443/x"))
    assert storage.clients.ids() == []


def test_deleted_ids_of_before_do_not_refuse_a_load(storage):
    storage.users.delete(storage.users.register("Old", "old@example.org", "").id)
    with storage.load() as load:
        load.add_user(user(1), {})
    assert storage.users.ids() == [1]
    assert storage.users.register("New", "new@example.org", "").id == 2


KILLED = """
import os, signal, sys
from model.records import User
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
def test_a_killed_load_leaves_nothing_or_all(storage, database_url, moment):
    keys = storage.keys.current()
    killed = subprocess.run([sys.executable, "-c", KILLED, moment, database_url], cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    if moment == "end":
        assert len(storage.users.ids()) == 19_999
        return
    assert (storage.users.ids(), storage.clients.ids(), list(storage.audit.read())) == ([], [], [])
    assert storage.keys.current() == keys
    with storage.load() as load:  # when the server has noticed
        load.add_user(user(7), {})
        load.next_user_id = 8
    assert storage.users.ids() == [7]
    assert list(storage.verify()) == []
