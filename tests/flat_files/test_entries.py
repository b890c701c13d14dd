"""The entries of keys: of racing edits, of a large load, and of keys that a version adds."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from contract.base import together
from contract.test_loading import ada, load_is_refused

from model.errors import DamagedRecord, StorageFailed
from model.grant_records import Family
from model.kind import DAY_MS, day_of, hour_of
from model.kinds import FAMILIES, USERS
from model.records import now_ms
from storage import Storage, open_storage
from storage.flat_files import entry_writer
from storage.flat_files.entries import Entries
from storage.flat_files.layout import Layout
from storage.flat_files.load import staging_of
from storage.maintenance import Load

DAY = "020783"


def test_racing_edits_keep_their_entries(store):
    """Each holds the lock of another record, and the last to leave removes the folder."""
    entries, key = Entries(store.layout, USERS), USERS.key("suspended")

    def come_and_go(user_id: int) -> None:
        for _ in range(1000):
            entries.put(key, DAY, user_id, durable=False)
            assert user_id in entries.members(key, DAY)
            entries.remove(key, DAY, user_id)

    assert together(come_and_go, range(1, 9)) == [None] * 8
    assert entries.values(key) == []


def test_entry_on_a_broken_disk_holds_nobody(store, monkeypatch):
    """It is there, and nothing more can be known of it."""
    entries, key = Entries(store.layout, USERS), USERS.key("suspended")
    entries.put(key, DAY, 1)
    monkeypatch.setattr("os.path.lexists", lambda path: False)  # its answer to every error
    entries.put(key, DAY, 1)
    assert entries.members(key, DAY) == [1]


# -- records that have expired -------------------------------------------------------------------


def add_family(store: Storage, letter: str, days: int) -> None:
    """Add a family that expires in so many days."""
    now = now_ms()
    store.records(FAMILIES).add(
        Family(16 * letter, 1, "", "", [], "", now, now + days * DAY_MS, "salt", "hash")
    )


def test_entry_of_an_earlier_day_that_a_kill_left_ends_no_record(store, open_installation):
    add_family(store, "a", 5)
    entries, day = Entries(store.layout, FAMILIES), FAMILIES.key("day")
    earlier = day_of(now_ms() - 3 * DAY_MS)
    entries.put(day, earlier, 16 * "a")
    add_family(open_installation(), "b", 5)  # which removes what has expired
    assert store.records(FAMILIES).ids() == [16 * "a", 16 * "b"]
    assert earlier not in entries.values(day)


def test_removal_of_expired_records_holds_the_locks_of_one(store, open_installation, monkeypatch):
    for letter in "abc":
        add_family(store, letter, -3)
    hold, removed = Layout.inner_lock, []

    @contextlib.contextmanager
    def count(layout: Layout, name: str) -> Iterator[None]:
        before = len(store.records(FAMILIES).ids())
        with hold(layout, name):
            yield
        removed.append(before - len(store.records(FAMILIES).ids()))

    monkeypatch.setattr(Layout, "inner_lock", count)
    add_family(open_installation(), "d", 5)
    assert store.records(FAMILIES).ids() == [16 * "d"]
    assert (removed.count(1), max(removed)) == (6, 1)  # the locks of the kind and of the record


# -- a load with so many records that a process of its own writes their entries ------------------


@pytest.fixture
def processes(monkeypatch) -> None:
    """Let a process write the entries of two records at a time; none is left at the end."""
    monkeypatch.setattr(entry_writer, "BATCH", 2)
    yield
    assert multiprocessing.active_children() == []


def add(load: Load, *ids: int, **values: str) -> None:
    for number in ids:
        names = {"name": f"ada {number}", "email": f"ada{number}@example.org"}
        load.add_user(ada(**{"id": number, "pfp_timestamp": None} | names | values), {})


@pytest.mark.live
@pytest.mark.usefixtures("processes")
def test_entries_of_a_large_load_are_complete(storage):
    with storage.load() as load:
        add(load, *range(1, 8))
        assert multiprocessing.active_children()
        load.next_user_id = 8
    assert list(storage.verify()) == []
    assert [storage.users.find_by_login(f"Ada {each}").id for each in (1, 7)] == [1, 7]


@pytest.mark.live
@pytest.mark.usefixtures("processes")
def test_key_that_is_there_twice_is_named(storage):
    with load_is_refused(storage, DamagedRecord) as load:
        add(load, 1, 2, 3)
        with pytest.raises(DamagedRecord, match="users/4.json is damaged: its name is that of us"):
            add(load, 4, *range(5, 9), name="Ada 1")
            load.add_audit_log([])
        raise DamagedRecord("users/4", "as a restore goes on")


@pytest.mark.live
@pytest.mark.usefixtures("processes")
def test_failing_disk_or_process_leaves_nothing(storage, subtests):
    def break_disk() -> None:
        shutil.rmtree(staging_of(storage.layout).path("emails"))

    def kill() -> None:
        for process in multiprocessing.active_children():
            process.kill()
            process.join()

    for fault in (break_disk, kill):
        with subtests.test(fault.__name__), load_is_refused(storage, StorageFailed) as load:
            add(load, 1, 2, 3)
            fault()
            add(load, *range(4, 9))


# -- keys that are new in a version: its first start adds them to the records --------------------

KILLED = """
import os, signal, sys
from storage.flat_files.entries import Entries
put, left = Entries.put, int(sys.argv[3])
def put_or_die(self, *args, **options):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, *args, **options)
Entries.put = put_or_die
from storage import Storage, open_storage
open_storage(sys.argv[1], sys.argv[2])
"""


@pytest.fixture
def older(storage, data):
    """The data folder of an installation from before some of the keys."""
    now = now_ms()
    for name in ("Ada", "Bob", "Cleo"):
        user = storage.users.register(name, "", "")
        with storage.users.edit(user.id) as user:
            user.last_heartbeat = now - 1000
    storage.invites.issue(7)
    storage.close()
    for folder in ("index/users/played", "index/users/joined", "secrets"):
        shutil.rmtree(data / folder)
    (data / "used_invites").mkdir()
    return data


def check_whole(data, pictures) -> None:
    store = open_storage(str(data), str(pictures))
    assert list(store.verify()) == []
    now = now_ms()
    assert store.users.count_between("played", hour_of(now - 3_600_000), hour_of(now)) == 3
    assert sorted(each for each in os.listdir(data) if each in ("added_keys", "used_invites")) == []


def test_racing_starts_add_new_keys_and_see_all(older, pictures):
    """No worker answers before the one that adds them is done."""
    now = now_ms()

    def count(_: int) -> int:
        users = open_storage(str(older), str(pictures)).users
        return users.count_between("played", hour_of(now - 3_600_000), hour_of(now))

    assert together(count, range(4)) == [3] * 4
    check_whole(older, pictures)


@pytest.mark.live
def test_start_that_was_killed_is_repeated(older, pictures, subtests):
    for entries in range(7):
        with subtests.test(entries=entries):
            for folder in ("index/users/played", "index/users/joined", "secrets"):
                shutil.rmtree(older / folder, ignore_errors=True)
            args = [sys.executable, "-c", KILLED, str(older), str(pictures), str(entries)]
            killed = subprocess.run(args, check=False)
            assert killed.returncode == -signal.SIGKILL
            check_whole(older, pictures)
