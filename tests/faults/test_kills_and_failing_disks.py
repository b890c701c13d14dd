"""Each operation is killed, and its system calls fail, at every step in turn, for real.

strace delivers the fault at the nth call of a kind, for n from 1 until the operation ends without
having met it.
"""

import itertools
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from driven import DrivenProgram
from operations import (
    BOB,
    DONE,
    FAILED,
    FIRST_START,
    FULL,
    OLD_PICTURE,
    OPERATIONS,
    STOPPED,
    Installation,
    Operation,
    picture_of,
    prepare,
    small_disk,
)

from storage import Storage, StorageError, problems
from storage.check import check

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("strace"), reason="root and strace"),
]

# What changes files, and what it needs. Regular expressions: some machines have only the newer
# calls, such as renameat for rename.
CALLS = {
    name: f"/^{name}"
    for name in ("open", "write", "fsync", "rename", "link", "symlink", "unlink", "mkdir")
} | {"chmod": "/chmod"}
NEVER_SYNCED = {"adding a code", "spending a code"}  # what a power cut leaves of them is dead
KILLED = -9


class Program(DrivenProgram):
    """operations.py at work, or one like it; `run` traces one operation."""

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.hear().strip()

    def run(self, name: str, there: Installation, fault: str, log: Path) -> tuple[int, bool]:
        """The exit code of an operation, and whether the fault was met."""
        process_id = self.ask(json.dumps([name, str(there.data), str(there.pictures)]))
        strace = ["strace", "-y", "-p", process_id, "-o", str(log), "-e", f"inject={fault}"]
        with subprocess.Popen(strace, stderr=subprocess.PIPE, text=True) as tracer:
            assert "attached" in tracer.stderr.readline()
            code = int(self.ask(""))
            tracer.communicate()
        return code, code in (KILLED, STOPPED) or "(INJECTED)" in log.read_text()


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with Program("operations.py", "write_file") as program:
        yield program


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    with small_disk(tmp_path, files=1000) as folder:
        yield folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Installation:
    """The installation that is copied for each fault."""
    installation = Installation(tmp_path_factory.mktemp("prepared"))
    prepare(installation.open())
    return installation


def faults(program, prepared, name: str, call: str, kind: str, disk, then: str = ""):
    """Meet the fault at the first, second, ... call; yields each installation as it is then.

    With "+" for `then`, every later call meets it as well.
    """
    template = Installation(disk / "nothing") if name == FIRST_START else prepared
    for n in itertools.count(1):
        there = template.copy(disk / str(n))
        log = disk / "log"
        code, met = program.run(name, there, f"{CALLS[call]}:{kind}:when={n}{then}", log)
        if not met:
            assert code == DONE
            return
        yield there, code
        shutil.rmtree(disk / str(n))


def check_bystander(storage: Storage) -> None:
    bob = storage.read_user(BOB)
    assert (bob.name, bob.email) == ("Bob", "bob@example.org")
    assert storage.find_user("bob") == storage.find_user("BOB@example.org") == bob
    assert picture_of(storage, BOB) == OLD_PICTURE


def check_repair(operation: Operation, there: Installation, disk: Path) -> None:
    """`check --repair` leaves nothing behind, and changes nothing that anybody sees."""
    there = there.copy(disk / "repaired")
    if there.data.exists():  # else the first start was killed before it made anything
        folders = str(there.data), str(there.pictures)
        assert all(problem.mended for problem in check(*folders, repair=True))
        assert list(check(*folders)) == []
        assert not there.temporary_files()
        assert operation.state(there.open()) in (operation.old, operation.new)
        shutil.rmtree(disk / "repaired")


def check_goes_on(operation: Operation, there: Installation, disk: Path) -> None:
    """Whatever was left: all can be done from here that could be done before or after."""
    storage = there.open()
    state = operation.state(storage)
    assert state in (operation.old, operation.new)
    if state == operation.old:
        somebody_elses = there.copy(disk / "copy").open()
        somebody_elses.add_user(*operation.wants, "")
        shutil.rmtree(disk / "copy")
        operation.act(storage)
    assert operation.state(storage) == operation.new
    storage.add_user(*operation.frees, "")
    if operation is not OPERATIONS[FIRST_START]:
        check_bystander(storage)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_at_any_step_leaves_the_old_or_the_new_and_blocks_nothing(
    program, prepared, disk, name, call, monkeypatch
):
    monkeypatch.setattr(problems, "ORPHAN_AGE", -1)  # seconds: what is left behind is old at once
    for there, code in faults(program, prepared, name, call, "signal=KILL", disk):
        assert code == KILLED
        check_repair(OPERATIONS[name], there, disk)
        check_goes_on(OPERATIONS[name], there, disk)


@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_ctrl_c_at_any_step_leaves_the_old_or_the_new_and_blocks_nothing(
    program, prepared, disk, name, call, monkeypatch
):
    """Nothing is undone that was done: it may come between the last step and the answer."""
    monkeypatch.setattr(problems, "ORPHAN_AGE", -1)
    for there, code in faults(program, prepared, name, call, "signal=INT", disk):
        assert code == STOPPED
        check_repair(OPERATIONS[name], there, disk)
        check_goes_on(OPERATIONS[name], there, disk)


@pytest.mark.parametrize("call", CALLS)
def test_after_a_killed_first_start_the_next_one_makes_the_right_modes(program, disk, call):
    for there, _ in faults(program, None, FIRST_START, call, "signal=KILL", disk):
        there.open()
        assert stat.S_IMODE(there.data.stat().st_mode) == 0o700
        assert stat.S_IMODE((there.data / "secret_key").stat().st_mode) == 0o600
        assert stat.S_IMODE((there.pictures / "small").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "error, then, told",
    [("EIO", "+", FAILED), ("EIO", "", FAILED), ("ENOSPC", "", FULL), ("EDQUOT", "", FULL)],
    ids=["a dying disk", "a failing disk", "a disk full for a moment", "a quota used up"],
)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_failing_call_is_told_and_changes_nothing_or_does_not_matter(
    program, prepared, disk, name, call, error, then, told, monkeypatch
):
    monkeypatch.setattr(problems, "ORPHAN_AGE", -1)
    operation = OPERATIONS[name]
    for there, code in faults(program, prepared, name, call, f"error={error}", disk, then):
        assert code in (told, DONE)
        if call != "unlink":  # what the disk does not let go of stays
            assert not there.temporary_files()
        if name != FIRST_START:
            storage = there.open()
            assert operation.state(storage) == (operation.new if code == DONE else operation.old)
        check_repair(operation, there, disk)
        check_goes_on(operation, there, disk)


def syncs_after_the_failed_one(log: Path, call: str = "fsync") -> tuple[str, list[str]]:
    """The path whose sync failed, and those that were synced in the same way after it."""
    lines = [line for line in log.read_text().splitlines() if line.startswith(f"{call}(")]
    (failed,) = [number for number, line in enumerate(lines) if "(INJECTED)" in line]
    path, *later = [line.partition("<")[2].partition(">")[0] for line in lines[failed:]]
    return path, later


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - NEVER_SYNCED))
def test_a_failed_fsync_is_not_tried_again(program, prepared, disk, name):
    """The kernel may have dropped what it could not write: a second fsync would succeed."""
    codes = []
    for _, code in faults(program, prepared, name, "fsync", "error=EIO", disk):
        path, later = syncs_after_the_failed_one(disk / "log")
        assert path.startswith(str(disk)) and path not in later
        codes.append(code)
    assert codes.count(FAILED) >= 2  # that of a file, and that of its folder


# ---------------------------------------------------------------------------------------------
# The tests above can fail
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_meets_a_fault(program, prepared, disk, name):
    met = list(faults(program, prepared, name, "rename", "signal=KILL", disk))
    assert met and all(code == KILLED for _, code in met)


def test_a_record_written_in_place_would_be_found_out_by_a_kill(prepared, disk):
    with (
        Program("operations.py", "write_in_place") as careless,
        pytest.raises((AssertionError, StorageError)),
    ):
        for there, _ in faults(careless, prepared, "editing a user", "write", "signal=KILL", disk):
            check_goes_on(OPERATIONS["editing a user"], there, disk)


def test_a_temporary_file_left_behind_would_be_found_out(prepared, disk):
    with Program("operations.py", "write_and_leave") as careless:
        (left,) = [
            there.temporary_files()
            for there, code in faults(
                careless, prepared, "editing a user", "rename", "error=EIO", disk
            )
        ]
    assert left


def test_a_second_try_of_fsync_would_be_found_out(prepared, disk):
    with Program("operations.py", "write_and_try_again") as careless:
        for _ in faults(careless, prepared, "editing a user", "fsync", "error=EIO", disk):
            path, later = syncs_after_the_failed_one(disk / "log")
            assert path in later
