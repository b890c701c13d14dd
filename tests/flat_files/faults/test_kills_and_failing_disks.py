"""Each save with a kill or a failing system call at each of its steps.

injection.py defines steps. `.ci/run --all`, or `pytest -m ci --all-faults`, takes every step.
The default run takes every step for kills of composite saves, and a sample of the others.
"""

import functools
import random
import stat
from collections.abc import Iterator

import pytest
from child import DONE, FAILED, MARK, UNCONFIRMED, Child
from disks import STRACE
from injection import (
    CTRL_C,
    IO_ERROR,
    KILL,
    SAMPLE,
    FaultResult,
    Injector,
    Step,
    disk,
    each_error,
    repeatable_calls,
)
from saves import (
    AT_FIRST_START,
    CODE,
    FIRST_START,
    SAVES,
    Installation,
    Plan,
    count_done,
    logins_in,
    prepare,
    read_facts,
)

from model.errors import NameKept, StorageError
from storage.flat_files import problems
from storage.flat_files.backend import FlatFiles
from storage.flat_files.check import check

pytestmark = [pytest.mark.faults, STRACE]
__all__ = ["disk", "repeatable_calls"]  # fixtures

ACTIONS = [FIRST_START, *SAVES]
# Saves that change more than one record, or a record and its index entries or pictures.
COMPOSITE = {
    *(FIRST_START, "add a player", "import a player", "add an invited player", "delete a player"),
    *("rename a player", "change an email address", "change a picture"),
    *("change a cover", "remove a cover", "delete a client"),
    *("start a family", "use an old refresh token"),
}
NOT_SYNCED = {"add a code", "use a code"}  # a power cut makes all codes invalid
SAVED = (DONE, UNCONFIRMED)  # as far as a process sees that was not cut off
assert {*ACTIONS} >= COMPOSITE | NOT_SYNCED
each_action = pytest.mark.parametrize("name", ACTIONS)
read_all_facts = functools.partial(read_facts, code_names=(CODE, MARK))


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as child:
        yield child


@pytest.fixture(scope="module")
def prepared(repeatable_calls, tmp_path_factory) -> Installation:
    installation = Installation(tmp_path_factory.mktemp("prepared"))
    prepare(installation.open())
    return installation


@pytest.fixture
def injector(child, prepared, disk, tmp_path_factory, pytestconfig, subtests, monkeypatch):
    monkeypatch.setattr(problems, "ORPHAN_AGE", -1)  # seconds: leftover files count as old at once
    templates = dict.fromkeys(SAVES, prepared)
    templates[FIRST_START] = Installation(tmp_path_factory.mktemp("nothing"))
    return Injector(child, templates, disk, pytestconfig, subtests)


class Expected:
    """The facts before a save, those that it changes, and checks of what a fault left of it."""

    def __init__(self, name: str, prepared: Installation) -> None:
        self.name, self.known, self.changes = name, {}, AT_FIRST_START
        if name != FIRST_START:
            storage = prepared.open()
            self.known = read_all_facts(storage)
            self.changes, _ = self.plan(storage)

    def plan(self, storage: FlatFiles) -> Plan:
        return SAVES[self.name](storage, MARK, random.Random(0))

    def is_saved(self, storage: FlatFiles) -> bool:
        """Return whether the save is done; check that it is whole, or in part in its order."""
        return count_done(read_all_facts(storage), self.known, self.changes) == len(self.changes)

    def check(self, result: FaultResult) -> None:
        """Check that the save is done or can be made, and that no login is blocked."""
        self.check_repair(result)
        storage = result.installation.open()
        current = read_all_facts(storage)
        if count_done(current, self.known, self.changes) < len(self.changes):
            copied_storage = result.installation.copy(result.folder / "copy").open()
            copied_storage.users.register(MARK, f"{MARK}@example.org", "")
            changes, act = self.plan(storage)
            act()
            current = read_all_facts(storage)
            assert count_done(current, self.known, changes) == len(changes)
        was, now = logins_in(self.known), logins_in(current)
        free_emails = was[1] - now[1]
        storage.users.register("Zed", min(free_emails, default="zed@example.org"), "")
        for name in was[0] - now[0]:  # given up
            with pytest.raises(NameKept):
                storage.users.require_name(name)

    def check_repair(self, result: FaultResult) -> None:
        """Check that `check --repair` removes leftover files and keeps the facts."""
        installation = result.installation.copy(result.folder / "repaired")
        if installation.data.exists():  # else the first start was killed before it created a folder
            assert all(problem.repaired for problem in check(*installation.folders, repair=True))
            assert list(check(*installation.folders)) == []
            assert not installation.lasting_temporary_files()
            self.is_saved(installation.open())


@each_action
def test_kill_at_any_step_leaves_old_or_new_state(injector, prepared, name):
    expected = Expected(name, prepared)

    def check(result: FaultResult) -> None:
        expected.check(result)
        if name == FIRST_START:
            check_modes(result.installation)

    injector.check(name, KILL, check, one_of=1 if name in COMPOSITE else SAMPLE)


def check_modes(installation: Installation) -> None:
    assert stat.S_IMODE(installation.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((installation.data / "secret_key").stat().st_mode) == 0o600
    assert stat.S_IMODE((installation.pictures / "small").stat().st_mode) == 0o755


@each_action
def test_ctrl_c_at_any_step_leaves_old_or_new_state(injector, prepared, name):
    """There is no rollback: Ctrl-C may come between the last step and the end."""
    injector.check(name, CTRL_C, Expected(name, prepared).check, "fsync", "rename")


def may_be(code: int, step: Step) -> list[int]:
    """Return an exit code if the step may be of the sync of a folder: it is opened before."""
    return [code] if step.kind in ("open", "fsync") else []


@each_error
@each_action
def test_failing_call_raises_and_changes_nothing(injector, prepared, name, fault):
    expected = Expected(name, prepared)

    def check(result: FaultResult) -> None:
        codes = [fault.code, DONE, *may_be(UNCONFIRMED, result.step)]
        # An unconfirmed save of the cover alone: the app does not have it, so nothing was saved.
        codes += may_be(FAILED, result.step) if name == "change a cover" else []
        assert result.code in codes
        if result.step.kind != "unlink":  # else a temporary file cannot be removed
            assert not result.installation.temporary_files()
        if name != FIRST_START:
            is_saved = expected.is_saved(result.installation.open())
            # An unconfirmed save of a family alone: no grant names it, so nothing was saved.
            is_alone = name == "start a family" and result.code == UNCONFIRMED
            assert is_alone or is_saved == (result.code in SAVED)
        expected.check(result)

    injector.check(name, fault, check)


@pytest.mark.parametrize("name", [each for each in ACTIONS if each not in NOT_SYNCED])
def test_failed_fsync_is_not_retried(injector, name):
    """Injector.inject checks that it is not, and this test that it is reported."""
    codes = []
    injector.check(name, IO_ERROR, lambda result: codes.append(result.code), "fsync", one_of=1)
    assert FAILED in codes  # the fsync of a file
    # That of the folder of a record; no file makes the first start count.
    assert (UNCONFIRMED in codes) == (name != FIRST_START)


def test_record_written_in_place_is_detected_by_a_kill(injector, prepared):
    """The control of injection.py."""
    name = "write a bio"
    with Child("records written in place") as child:
        injector.child = child
        with pytest.raises((AssertionError, StorageError)):
            for step in injector.all_steps(name, "write"):
                Expected(name, prepared).check(injector.inject(name, KILL, step))
