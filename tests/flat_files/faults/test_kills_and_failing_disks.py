"""Each operation with a kill or a failing system call at each of its steps.

injection.py defines steps. `.ci/run --all`, or `pytest -m ci --all-faults`, takes every step.
The default run takes every step for kills and I/O errors of composite operations, and a sample of
the others.
"""

import stat
from collections.abc import Iterator

import injection
import pytest
from injection import (
    CALLS,
    CTRL_C,
    FULL_DISK,
    IO_ERROR,
    KILL,
    QUOTA_EXCEEDED,
    FaultResult,
    Injector,
    Step,
    TracedProgram,
    each_error,
    failed_sync_and_later_ones,
)
from needs import STRACE
from operations import (
    BOB,
    DONE,
    FAILED,
    FIRST_START,
    FULL,
    OLD_PICTURE,
    OPERATIONS,
    UNCONFIRMED,
    Installation,
    picture_of,
    prepare,
)

from storage import Storage
from storage.errors import StorageError
from storage.flat_files import problems
from storage.flat_files.check import check

pytestmark = [pytest.mark.faults, STRACE]
disk, repeatable_calls = injection.disk, injection.repeatable_calls

# Operations that change more than one record, or a record and its index entries or pictures.
COMPOSITE = {
    *(FIRST_START, "adding a user", "adding an invited user", "deleting an account"),
    *("renaming a user", "changing an email address", "changing a picture"),
}
NOT_SYNCED = {"adding a code", "using a code"}  # a power cut makes all codes invalid
UNCOUNTED = {FIRST_START}  # no file there makes a change count
SAVED = (DONE, UNCONFIRMED)  # as far as a process sees that was not cut off
assert OPERATIONS.keys() >= COMPOSITE | NOT_SYNCED


@pytest.fixture(scope="module")
def program(repeatable_calls) -> Iterator[TracedProgram]:
    with TracedProgram("operations.py") as program:
        yield program


@pytest.fixture(scope="module")
def templates(repeatable_calls, tmp_path_factory) -> dict[str, Installation]:
    """The installation of each operation, which is copied for each fault."""
    prepared = Installation(tmp_path_factory.mktemp("prepared"))
    prepare(prepared.open())
    empty = Installation(tmp_path_factory.mktemp("nothing"))
    return dict.fromkeys(OPERATIONS, prepared) | {FIRST_START: empty}


@pytest.fixture
def injector(program, templates, disk, pytestconfig, subtests, monkeypatch) -> Injector:
    monkeypatch.setattr(problems, "ORPHAN_AGE", -1)  # seconds: leftover files count as old at once
    return Injector(program, templates, disk, pytestconfig, subtests)


def check_bystander(storage: Storage) -> None:
    bob = storage.users.read(BOB)
    assert (bob.name, bob.email) == ("Bob", "bob@example.org")
    assert (
        storage.users.find_by_login("bob") == storage.users.find_by_login("BOB@example.org") == bob
    )
    assert picture_of(storage, BOB) == OLD_PICTURE


def check_repair(name: str, result: FaultResult) -> None:
    """Check that `check --repair` removes leftover files and keeps the state."""
    operation, installation = OPERATIONS[name], result.installation.copy(result.folder / "repaired")
    if installation.data.exists():  # else the first start was killed before it created a folder
        folders = str(installation.data), str(installation.pictures)
        assert all(problem.repaired for problem in check(*folders, repair=True))
        assert list(check(*folders)) == []
        assert not installation.lasting_temporary_files()
        assert operation.state(installation.open()) in (operation.old, operation.new)


def may_be(code: int, step: Step) -> list[int]:
    """Return an exit code if the step may be of the sync of a folder: it is opened before."""
    return [code] if step.kind in ("open", "fsync") else []


def check_not_blocked(name: str, result: FaultResult) -> None:
    """Check that the state is the old or the new one, and that no operation is blocked."""
    operation, storage = OPERATIONS[name], result.installation.open()
    state = operation.state(storage)
    assert state in (operation.old, operation.new)
    if state == operation.old:
        copied_storage = result.installation.copy(result.folder / "copy").open()
        copied_storage.users.register(*operation.free_before, "")
        operation.act(storage)
    assert operation.state(storage) == operation.new
    storage.users.register(*operation.free_after, "")
    if name != FIRST_START:
        check_bystander(storage)


@pytest.mark.parametrize("name", OPERATIONS)
def test_kill_at_any_step_leaves_the_old_or_new_state_and_blocks_nothing(injector, name):
    for step in injector.chosen_steps(name, KILL, is_whole=name in COMPOSITE):
        with injector.subtest(step):
            result = injector.inject(name, KILL, step)
            check_repair(name, result)
            check_not_blocked(name, result)


@pytest.mark.parametrize("name", OPERATIONS)
def test_ctrl_c_at_any_step_leaves_the_old_or_new_state_and_blocks_nothing(injector, name):
    """There is no rollback: Ctrl-C may come between the last step and the end."""
    for step in injector.chosen_steps(name, CTRL_C, "fsync", "rename"):
        with injector.subtest(step):
            result = injector.inject(name, CTRL_C, step)
            check_repair(name, result)
            check_not_blocked(name, result)


def test_start_after_a_killed_first_start_sets_the_modes(injector):
    for step in injector.chosen_steps(FIRST_START, KILL):
        with injector.subtest(step):
            installation = injector.inject(FIRST_START, KILL, step).installation
            installation.open()
            assert stat.S_IMODE(installation.data.stat().st_mode) == 0o700
            assert stat.S_IMODE((installation.data / "secret_key").stat().st_mode) == 0o600
            assert stat.S_IMODE((installation.pictures / "small").stat().st_mode) == 0o755


@each_error
@pytest.mark.parametrize("name", OPERATIONS)
def test_failing_call_raises_and_changes_nothing_or_is_harmless(injector, name, fault):
    operation, is_whole = OPERATIONS[name], name in COMPOSITE and fault is IO_ERROR
    for step in injector.chosen_steps(name, fault, is_whole=is_whole):
        with injector.subtest(step):
            result = injector.inject(name, fault, step)
            assert result.code in (fault.code, DONE, *may_be(UNCONFIRMED, step))
            if step.kind != "unlink":  # else a temporary file cannot be removed
                assert not result.installation.temporary_files()
            if name != FIRST_START:
                state = operation.state(result.installation.open())
                assert state == (operation.new if result.code in SAVED else operation.old)
            check_repair(name, result)
            check_not_blocked(name, result)


def test_exceeded_quota_raises_storage_full(injector):
    """One step of each kind is enough: see injection.ERRORS."""
    name = "adding an invited user"
    steps = {step.kind: step for step in injector.all_steps(name)}
    assert steps.keys() == CALLS.keys() - {"syncfs", "mkdir", "link"}
    codes = [
        [injector.inject(name, fault, step).code for step in steps.values()]
        for fault in (QUOTA_EXCEEDED, FULL_DISK)
    ]
    assert codes[0] == codes[1]
    assert set(codes[0]) - {UNCONFIRMED} == {FULL, DONE}


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - NOT_SYNCED))
def test_failed_fsync_is_not_retried(injector, name):
    """The kernel may have dropped the unwritten data, so that a second fsync would succeed."""
    codes = []
    for step in injector.all_steps(name, "fsync"):
        with injector.subtest(step):
            result = injector.inject(name, IO_ERROR, step)
            path, later = failed_sync_and_later_ones(result.log)
            assert path.startswith(str(result.folder)) and path not in later
            codes.append(result.code)
    assert FAILED in codes  # the fsync of a file
    assert (UNCONFIRMED in codes) == (name not in UNCOUNTED)  # that of the folder of a record


# ---------------------------------------------------------------------------------------------
# Control: a kill shows faulty code
# ---------------------------------------------------------------------------------------------


def test_record_written_in_place_is_detected_by_a_kill(injector):
    name = "editing a user"
    with TracedProgram("operations.py", "write_in_place") as program:
        faulty = injector.with_program(program)
        with pytest.raises((AssertionError, StorageError)):
            for step in faulty.all_steps(name, "write"):
                check_not_blocked(name, faulty.inject(name, KILL, step))
