"""Faults that strace injects into an operation, for real, at one of its system calls after another.

An operation runs once without a fault. Its system calls are its steps, and each of them can meet a
fault in a run of its own. A run with `--all-faults` takes every step. The everyday run takes every
step of some operations and faults, and of the others a sample, which `--faults-seed` decides.
"""

import copy
import dataclasses
import functools
import itertools
import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from driven import DrivenProgram
from operations import FAILED, FULL, KILLED, STOPPED, Installation, large_disk, stop_windows

from storage import pictures

# What changes files, and what it needs. Regular expressions: some machines have only the newer
# calls, such as renameat for rename.
CALLS = {
    "open": "^open",
    "write": "^write",
    "fsync": "^fsync",
    "syncfs": "^syncfs",
    "rename": "^rename",
    "link": "^link",
    "symlink": "^symlink",
    "unlink": "^unlink",
    "mkdir": "^mkdir",
    "chmod": "chmod",
}
# What else changes files; no fault is injected here.
OTHER_CHANGES = "^(rmdir|ftruncate|sendfile|copy_file_range)$"
TRACED = [f"/{names}" for names in [*CALLS.values(), OTHER_CHANGES]]
SAMPLE = 8  # one step of so many is in a sample, and at least one


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens at a system call."""

    name: str
    action: str  # in strace's words
    code: int  # the operation's exit code, where it tells of the fault
    is_lasting: bool = False  # every later call of the same kind meets it as well


KILL = Fault("a kill", "signal=KILL", KILLED)
CTRL_C = Fault("Ctrl-C", "signal=INT", STOPPED)
FAILING_DISK = Fault("a failing disk", "error=EIO", FAILED)
DYING_DISK = Fault("a dying disk", "error=EIO", FAILED, is_lasting=True)
FULL_DISK = Fault("a disk full for a moment", "error=ENOSPC", FULL)
USED_QUOTA = Fault("a quota used up", "error=EDQUOT", FULL)
# One branch of the code, disk.storage_error_from, takes ENOSPC and EDQUOT: a test of its own
# compares them, and the others leave EDQUOT out.
ERRORS = [DYING_DISK, FAILING_DISK, FULL_DISK]
each_error = pytest.mark.parametrize("fault", ERRORS, ids=lambda fault: fault.name)


@dataclasses.dataclass(frozen=True)
class Step:
    """The operation's nth system call of this name."""

    call: str
    number: int
    kind: str  # a key of CALLS
    # False where the files are as they were at the step before: a kill leaves the same here.
    has_new_state: bool

    def __str__(self) -> str:
        return f"{self.call} {self.number}"


def steps_in(log: Path) -> list[Step]:
    """The steps of a traced operation, in order."""
    steps, counts, has_new_state = [], Counter(), True
    for call, arguments in re.findall(r"^(\w+)\((.*)", log.read_text(), re.MULTILINE):
        counts[call] += 1
        if kind := next((kind for kind, names in CALLS.items() if re.search(names, call)), None):
            steps.append(Step(call, counts[call], kind, has_new_state))
            has_new_state = False
        if kind not in ("open", "fsync", "syncfs") or "O_CREAT" in arguments:
            has_new_state = True
    return steps


class Program(DrivenProgram):
    """operations.py at work, or one like it; `run` traces one operation."""

    def __init__(self, name: str, *arguments: str) -> None:
        super().__init__(name, *arguments)
        self.steps: dict[str, list[Step]] = {}  # of each operation that ran without a fault

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.hear().strip()

    def run(
        self,
        name: str | list[str],
        there: Installation,
        log: Path,
        *injected: str,
        at: Path | None = None,
    ) -> int:
        """The exit code of an operation that meets these faults, at any file or only `at` this."""
        process_id = self.ask(json.dumps([name, str(there.data), str(there.pictures)]))
        traced = ",".join([*TRACED, *(each.partition(":")[0] for each in injected)])
        strace = ["strace", "-y", "-p", process_id, "-o", str(log), "-e", f"trace={traced}"]
        strace += [argument for each in injected for argument in ("-e", f"inject={each}")]
        strace += [f"-P{at}"] if at else []
        with subprocess.Popen(strace, stderr=subprocess.PIPE, text=True) as tracer:
            assert "attached" in tracer.stderr.readline()
            code = int(self.ask(""))
            tracer.communicate()
        return code


@dataclasses.dataclass
class Met:
    """What a fault left."""

    there: Installation
    code: int  # the operation's exit code
    step: Step
    fault: Fault
    folder: Path  # of this fault's own, on the disk
    log: Path  # of the system calls


class Injector:
    """Lets the operations of a program meet faults."""

    def __init__(
        self,
        program: Program,
        templates: dict[str, Installation],
        disk: Path,
        config: pytest.Config,
        subtests: pytest.Subtests,
    ) -> None:
        self.program, self.templates, self.disk = program, templates, disk
        self.is_full_run, self.seed = is_full_run(config), seed_of(config)
        self._subtests = subtests
        self._numbers = itertools.count()

    def new_folder(self) -> Path:
        """A folder that nobody removes: the whole disk goes at the end, at no cost."""
        folder = self.disk / f"{self.program.process.pid}-{next(self._numbers)}"
        folder.mkdir()
        return folder

    def with_program(self, program: Program) -> "Injector":
        """The same for another program."""
        another = copy.copy(self)
        another.program = program
        return another

    def all_steps(self, name: str, *kinds: str) -> list[Step]:
        """The steps of an operation that are of these kinds, or of any."""
        if name not in self.program.steps:
            folder = self.new_folder()
            there = self.templates[name].copy(folder / "site")
            assert self.program.run(name, there, folder / "log") == 0
            self.program.steps[name] = steps_in(folder / "log")
        return [step for step in self.program.steps[name] if not kinds or step.kind in kinds]

    def chosen_steps(
        self, name: str, fault: Fault, *kinds: str, is_whole: bool = False
    ) -> list[Step]:
        """The same, but a sample of them in the everyday run unless `is_whole`.

        Of steps at which a kill leaves the same, the everyday run takes the first.
        """
        steps = self.all_steps(name, *kinds)
        if self.is_full_run:
            return steps
        if fault is KILL:
            steps = [step for step in steps if step.has_new_state]
        if is_whole:
            return steps
        dice = random.Random(f"{self.seed} {name} {fault.name} {kinds}")
        return dice.sample(steps, min(len(steps), 1 + len(steps) // SAMPLE))

    def told(self, step: Step) -> AbstractContextManager:
        """A subtest that names the step, and how to take the same ones again."""
        return self._subtests.test(f"{step}, --faults-seed={self.seed}")

    def meet(self, name: str, fault: Fault, step: Step) -> Met:
        """Let a copy of the installation meet a fault at one step."""
        folder = self.new_folder()
        there, log = self.templates[name].copy(folder / "site"), folder / "log"
        code = self.program.run(name, there, log, *self._injected(name, fault, step))
        if fault.action.startswith("signal"):
            assert code == fault.code
        else:
            assert first_injected(log) == (step.call, step.number)
        return Met(there, code, step, fault, folder, log)

    def _injected(self, name: str, fault: Fault, step: Step) -> Iterator[str]:
        if not fault.is_lasting:
            yield f"{step.call}:{fault.action}:when={step.number}"
            return
        # strace counts the calls of each name by themselves. The last expression counts.
        yield f"/{CALLS[step.kind]}:{fault.action}"
        steps = self.all_steps(name, step.kind)
        before = [each.call for each in steps[: steps.index(step)]]
        for call in {each.call for each in steps}:
            yield f"{call}:{fault.action}:when={before.count(call) + 1}+"


def first_injected(log: Path) -> tuple[str, int] | None:
    """The name and the number of the first call that met an error."""
    lines = log.read_text().splitlines()
    for number, line in enumerate(lines):
        if line.endswith("(INJECTED)"):
            call = line.partition("(")[0]
            return call, sum(each.startswith(f"{call}(") for each in lines[: number + 1])
    return None


def syncs_after_the_failed_one(log: Path, call: str = "fsync") -> tuple[str, list[str]]:
    """The path whose sync failed, and those that were synced in the same way after it."""
    lines = [line for line in log.read_text().splitlines() if line.startswith(f"{call}(")]
    (failed,) = [number for number, line in enumerate(lines) if "(INJECTED)" in line]
    path, *later = [line.partition("<")[2].partition(">")[0] for line in lines[failed:]]
    return path, later


def is_full_run(config: pytest.Config) -> bool:
    """Whether every step meets every fault, and the power is cut a hundred times and more."""
    return config.option.all_faults


def seed_of(config: pytest.Config) -> int:
    """What decides the samples: the day, unless the command line says another."""
    return config.option.faults_seed


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    with large_disk(tmp_path) as folder:
        yield folder


@functools.cache
def _drawn_picture(user_id: int, real=pictures.generate_picture) -> dict[str, bytes]:
    return real(user_id)


@pytest.fixture(scope="module", autouse=True)
def same_calls_each_time() -> Iterator[None]:
    """No window ends between two runs of an operation."""
    with pytest.MonkeyPatch.context() as patch:
        stop_windows(patch.setattr)
        patch.setattr(pictures, "generate_picture", _drawn_picture)  # most of a check's time
        yield
