"""Restore, import and backup with a failed sync; controls for the tests of archive faults."""

import tarfile
from collections.abc import Iterator

import pytest
import test_archive_faults
from archive_operations import BACKUP, IMPORT, RESTORE
from injection import IO_ERROR, KILL, Injector, Step, TracedProgram, failed_sync_and_later_ones
from operations import FAILED, UNCONFIRMED
from test_archive_faults import check_backup, check_import, check_restore

from storage.errors import StorageError

pytestmark = test_archive_faults.pytestmark
disk, repeatable_calls = test_archive_faults.disk, test_archive_faults.repeatable_calls
program, injector = test_archive_faults.program, test_archive_faults.injector
prepared, empty = test_archive_faults.prepared, test_archive_faults.empty

SYNCS = [(name, "fsync") for name in (RESTORE, IMPORT, BACKUP)]
SYNCS += [(name, "syncfs") for name in (RESTORE, IMPORT)]


@pytest.mark.parametrize(("name", "call"), SYNCS)
def test_failed_sync_is_reported_and_not_retried(injector, name, call):
    """The kernel may have dropped the unwritten data, so that a second sync would succeed."""
    steps = injector.all_steps(name, call)
    assert len(steps) >= 2
    for step in steps:
        with injector.subtest(step):
            check_sync(injector, name, step)


def check_sync(injector: Injector, name: str, step: Step) -> None:
    result = injector.inject(name, IO_ERROR, step)
    path, later = failed_sync_and_later_ones(result.log, step.call)
    assert path.startswith(str(result.folder)) and later == []
    assert result.code in (FAILED, UNCONFIRMED)


# ---------------------------------------------------------------------------------------------
# Controls: the tests above and those of test_archive_faults.py detect faulty code
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def faulty_injector(request, injector) -> Iterator[Injector]:
    """An injector for a program with one faulty function."""
    with TracedProgram("archive_operations.py", request.param) as program:
        yield injector.with_program(program)


@pytest.mark.parametrize("faulty_injector", ["fsync"], indirect=True)
@pytest.mark.parametrize("name", [RESTORE, IMPORT, BACKUP])
def test_retried_sync_is_detected(faulty_injector, name):
    with pytest.raises(AssertionError):
        for step in faulty_injector.all_steps(name, "fsync"):
            check_sync(faulty_injector, name, step)


@pytest.mark.parametrize("faulty_injector", ["rename"], indirect=True)
def test_non_atomic_import_is_detected(faulty_injector):
    with pytest.raises((AssertionError, StorageError)):
        for step in faulty_injector.all_steps(IMPORT, "write"):
            check_import(faulty_injector.inject(IMPORT, KILL, step))


@pytest.mark.parametrize("faulty_injector", ["rename"], indirect=True)
def test_non_atomic_restore_is_detected(faulty_injector):
    with pytest.raises((AssertionError, StorageError)):
        for step in faulty_injector.all_steps(RESTORE, "rename"):
            check_restore(faulty_injector.inject(RESTORE, KILL, step))


@pytest.mark.parametrize("faulty_injector", ["rename"], indirect=True)
def test_partial_archive_is_detected(faulty_injector, empty, monkeypatch):
    with pytest.raises(tarfile.ReadError):
        for step in faulty_injector.all_steps(BACKUP, "write"):
            check_backup(faulty_injector.inject(BACKUP, KILL, step), empty, monkeypatch)
