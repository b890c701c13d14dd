"""Restore, import and backup after a sync that failed; and what their tests would find out."""

import tarfile
from collections.abc import Iterator

import pytest
import test_archive_faults
from archive_operations import BACKUP, IMPORT, RESTORE
from operations import DONE, FAILED, Installation
from test_archive_faults import FAULTS, faults
from test_kills_and_failing_disks import Program, syncs_after_the_failed_one

from storage import StorageError

pytestmark = test_archive_faults.pytestmark
disk, program = test_archive_faults.disk, test_archive_faults.program
prepared, nothing = test_archive_faults.prepared, test_archive_faults.nothing

FAILING = "error=EIO", "", {FAILED, DONE}
KILLS = FAULTS[0]


@pytest.fixture
def templates(prepared, nothing) -> dict[str, Installation]:
    """What each of them is done to."""
    return {RESTORE: nothing, IMPORT: prepared, BACKUP: prepared}


SYNCS = [(name, "fsync") for name in (RESTORE, IMPORT, BACKUP)]
SYNCS += [(name, "syncfs") for name in (RESTORE, IMPORT)]


@pytest.mark.parametrize(("name", "call"), SYNCS)
def test_a_failed_sync_is_told_and_not_tried_again(program, templates, disk, name, call):
    """The kernel may have dropped what it could not write: a second sync would succeed."""
    codes = []
    for _, code in faults(program, templates[name], name, call, FAILING, disk):
        path, later = syncs_after_the_failed_one(disk / "log", call)
        assert path.startswith(str(disk)) and later == []
        codes.append(code)
    assert set(codes) == {FAILED} and len(codes) >= 2


# ---------------------------------------------------------------------------------------------
# The tests above, and those of test_archive_faults.py, can fail
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def careless(request, program) -> Iterator[Program]:
    """The same program, which does this in another way; ARCHIVE is where it was."""
    with Program("archive_operations.py", request.param) as careless:
        yield careless


@pytest.mark.parametrize("careless", ["fsync"], indirect=True)
@pytest.mark.parametrize("name", [RESTORE, IMPORT, BACKUP])
def test_a_second_sync_would_be_found_out(careless, templates, disk, name):
    with pytest.raises(AssertionError):
        test_a_failed_sync_is_told_and_not_tried_again(careless, templates, disk, name, "fsync")


@pytest.mark.parametrize("careless", ["rename"], indirect=True)
def test_a_player_who_is_imported_in_steps_would_be_found_out(careless, prepared, disk):
    with pytest.raises((AssertionError, StorageError)):
        test_archive_faults.test_an_import_that_meets_a_fault_leaves_whole_players_and_can_be_repeated(
            careless, prepared, disk, "write", KILLS
        )


@pytest.mark.parametrize("careless", ["rename"], indirect=True)
def test_players_who_are_restored_in_steps_would_be_found_out(careless, nothing, disk):
    with pytest.raises((AssertionError, StorageError)):
        test_archive_faults.test_a_restore_that_meets_a_fault_leaves_nobody_or_everybody_and_can_be_repeated(
            careless, nothing, disk, "rename", KILLS
        )


@pytest.mark.parametrize("careless", ["rename"], indirect=True)
def test_an_archive_that_is_there_in_part_would_be_found_out(
    careless, prepared, nothing, disk, monkeypatch
):
    with pytest.raises(tarfile.ReadError):
        test_archive_faults.test_a_backup_that_meets_a_fault_leaves_no_archive_or_a_whole_one(
            careless, prepared, nothing, disk, "write", KILLS, monkeypatch
        )
