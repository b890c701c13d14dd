"""Restore, import and backup after a sync that failed; and what their tests would find out."""

import tarfile
from collections.abc import Iterator

import pytest
import test_archive_faults
from archive_operations import BACKUP, IMPORT, RESTORE
from injection import FAILING_DISK, KILL, Injector, Program, Step, syncs_after_the_failed_one
from operations import FAILED
from test_archive_faults import check_backup, check_import, check_restore

from storage import StorageError

pytestmark = test_archive_faults.pytestmark
disk, same_calls_each_time = test_archive_faults.disk, test_archive_faults.same_calls_each_time
program, injector = test_archive_faults.program, test_archive_faults.injector
prepared, nothing = test_archive_faults.prepared, test_archive_faults.nothing

SYNCS = [(name, "fsync") for name in (RESTORE, IMPORT, BACKUP)]
SYNCS += [(name, "syncfs") for name in (RESTORE, IMPORT)]


@pytest.mark.parametrize(("name", "call"), SYNCS)
def test_a_failed_sync_is_told_and_not_tried_again(injector, name, call):
    """The kernel may have dropped what it could not write: a second sync would succeed."""
    steps = injector.all_steps(name, call)
    assert len(steps) >= 2
    for step in steps:
        with injector.told(step):
            check_sync(injector, name, step)


def check_sync(injector: Injector, name: str, step: Step) -> None:
    met = injector.meet(name, FAILING_DISK, step)
    path, later = syncs_after_the_failed_one(met.log, step.call)
    assert path.startswith(str(met.folder)) and later == []
    assert met.code == FAILED


# ---------------------------------------------------------------------------------------------
# The tests above, and those of test_archive_faults.py, can fail
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def careless(request, injector) -> Iterator[Injector]:
    """The same, by a program that does this in another way; ARCHIVE is where it was."""
    with Program("archive_operations.py", request.param) as program:
        yield injector.with_program(program)


@pytest.mark.parametrize("careless", ["fsync"], indirect=True)
@pytest.mark.parametrize("name", [RESTORE, IMPORT, BACKUP])
def test_a_second_sync_would_be_found_out(careless, name):
    with pytest.raises(AssertionError):
        for step in careless.all_steps(name, "fsync"):
            check_sync(careless, name, step)


@pytest.mark.parametrize("careless", ["rename"], indirect=True)
def test_a_player_who_is_imported_in_steps_would_be_found_out(careless):
    with pytest.raises((AssertionError, StorageError)):
        for step in careless.all_steps(IMPORT, "write"):
            check_import(careless.meet(IMPORT, KILL, step))


@pytest.mark.parametrize("careless", ["rename"], indirect=True)
def test_players_who_are_restored_in_steps_would_be_found_out(careless):
    with pytest.raises((AssertionError, StorageError)):
        for step in careless.all_steps(RESTORE, "rename"):
            check_restore(careless.meet(RESTORE, KILL, step))


@pytest.mark.parametrize("careless", ["rename"], indirect=True)
def test_an_archive_that_is_there_in_part_would_be_found_out(careless, nothing, monkeypatch):
    with pytest.raises(tarfile.ReadError):
        for step in careless.all_steps(BACKUP, "write"):
            check_backup(careless.meet(BACKUP, KILL, step), nothing, monkeypatch)
