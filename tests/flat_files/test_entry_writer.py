"""A load with so many records that a process of its own writes their entries."""

import multiprocessing
import shutil

import pytest
from contract.loading import ada, load_is_refused

from model.errors import DamagedRecord, StorageFailed
from storage.flat_files import entry_writer
from storage.flat_files.load import staging_of
from storage.maintenance import Load

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def processes(monkeypatch) -> None:
    """Let a process write the entries of two records at a time; none is left at the end."""
    monkeypatch.setattr(entry_writer, "BATCH", 2)
    yield
    assert multiprocessing.active_children() == []


def add(load: Load, *ids: int, **values: str) -> None:
    for number in ids:
        names = {"name": f"ada {number}", "email": f"ada{number}@example.org"}
        load.add_user(ada(**{"id": number, "pfp_timestamp": None} | names | values), {})


def test_entries_of_a_large_load_are_complete(storage):
    with storage.load() as load:
        add(load, *range(1, 8))
        assert multiprocessing.active_children()
        load.next_user_id = 8
    assert list(storage.verify()) == []
    assert [storage.users.find_by_login(f"Ada {each}").id for each in (1, 7)] == [1, 7]


def test_key_that_is_there_twice_is_named(storage):
    with load_is_refused(storage, DamagedRecord) as load:
        add(load, 1, 2, 3)
        with pytest.raises(DamagedRecord, match="users/4.json is damaged: its name is that of us"):
            add(load, 4, *range(5, 9), name="Ada 1")
            load.add_audit_log([])
        raise DamagedRecord("users/4", "as a restore goes on")


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
