"""The storage on a disk that is full of bytes or of files, or read-only."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from child import MARK
from disks import MOUNTS, PAGE, REFUSE, disk_in_memory, fill_bytes, make_usable
from injection import repeatable_calls
from saves import CODE, SAVES, Installation, count_done, prepare, read_facts

from model.errors import StorageFailed, StorageFull
from storage.flat_files.advice import check_folders

pytestmark = [pytest.mark.faults, MOUNTS]
__all__ = ["repeatable_calls"]  # a fixture

# Saves that a full disk allows: it can rename, and create empty files if files are free.
# (Deleting a client writes an audit line, which fits into the last page of the log. Deleting a
# player needs a record that keeps the name: nobody may get it before its time.)
NEEDS_NOTHING = {
    "full of bytes": {"use a code", "delete a client"},
    "full of files": {"use a code", "delete a client"},
    "read-only": set(),
}
CODES = (CODE, MARK)


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    with disk_in_memory(tmp_path) as folder:
        yield folder


@pytest.fixture
def installation(disk) -> Installation:
    installation = Installation(disk)
    prepare(installation.open())
    return installation


@pytest.mark.parametrize("state", REFUSE)
def test_full_disk_keeps_the_old_record(state, tmp_path, subtests):
    """Or on a read-only one."""
    for number, (name, save) in enumerate(SAVES.items()):
        with subtests.test(name), disk_in_memory(tmp_path / str(number)) as disk:
            installation = Installation(disk)
            storage = installation.open()
            prepare(storage)
            known, files = read_facts(storage, CODES), installation.files()
            changes, act = save(storage, MARK, random.Random(0))
            REFUSE[state](disk)
            if name in NEEDS_NOTHING[state]:
                act()
            else:
                with pytest.raises(StorageFailed) as refused:
                    act()
                assert isinstance(refused.value, StorageFull) == (state != "read-only")
                assert count_done(read_facts(storage, CODES), known, changes) < len(changes)
                assert installation.files() == files
                make_usable(disk)
                act()
            assert count_done(read_facts(storage, CODES), known, changes) == len(changes)


def test_start_reports_a_read_only_disk_and_how_to_fix_it(disk, installation):
    REFUSE["read-only"](disk)
    found = list(check_folders(*installation.folders))
    places = [each.problem.partition(" cannot write in ")[2] for each in found]
    assert places == list(installation.folders)
    assert all(each.fix.startswith("mount its disk for writing") for each in found)


def test_audit_line_that_fits_only_in_part_is_rolled_back(disk, installation):
    log = installation.data / "audit.log"
    line = log.read_bytes()
    log.write_bytes((line * PAGE)[len(line) * PAGE - PAGE + 20 :])  # 20 bytes less than a page
    storage = installation.open()
    fill_bytes(disk)
    before = log.read_bytes()
    with pytest.raises(StorageFull):
        storage.audit.write("act", "command")
    assert log.read_bytes() == before
