"""Injection of faults by strace at each system call of an operation in turn.

An operation runs once without a fault. Its system calls are its steps. A fault at a step needs a
new run of the operation. With `--all-faults` every step gets every fault. The default run takes
every step for some operations and faults, and for the others a sample drawn by `--faults-seed`.
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
from operations import (
    FAILED,
    FULL,
    INTERRUPTED,
    KILLED,
    Installation,
    large_disk,
    stop_time_windows,
)

from storage import pictures

# System calls that change files, and those they need. Regular expressions, because some machines
# have only the newer calls, such as renameat for rename.
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
# Other calls that change files; they are traced without faults.
OTHER_CHANGES = "^(rmdir|ftruncate|sendfile|copy_file_range)$"
TRACED = [f"/{names}" for names in [*CALLS.values(), OTHER_CHANGES]]
SAMPLE = 8  # a sample has one of 8 steps, and at least one


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault at a system call."""

    name: str
    action: str  # in strace's syntax
    code: int  # the exit code of an operation that reports the fault
    is_lasting: bool = False  # every later call of the same kind fails too


KILL = Fault("kill", "signal=KILL", KILLED)
CTRL_C = Fault("Ctrl-C", "signal=INT", INTERRUPTED)
IO_ERROR = Fault("I/O error", "error=EIO", FAILED)
LASTING_IO_ERRORS = Fault("lasting I/O errors", "error=EIO", FAILED, is_lasting=True)
FULL_DISK = Fault("disk full once", "error=ENOSPC", FULL)
QUOTA_EXCEEDED = Fault("quota exceeded", "error=EDQUOT", FULL)
# disk.storage_error_from handles ENOSPC and EDQUOT in one branch: one test compares them, and the
# other tests use ENOSPC only.
ERRORS = [LASTING_IO_ERRORS, IO_ERROR, FULL_DISK]
each_error = pytest.mark.parametrize("fault", ERRORS, ids=lambda fault: fault.name)


@dataclasses.dataclass(frozen=True)
class Step:
    """One system call of an operation: the nth one of this name."""

    call: str
    number: int
    kind: str  # a key of CALLS
    # False if the files are as at the previous step: a kill leaves the same state at both.
    has_new_state: bool

    def __str__(self) -> str:
        return f"{self.call} {self.number}"


def steps_in(log: Path) -> list[Step]:
    """Return the steps of a traced operation in order."""
    steps, counts, has_new_state = [], Counter(), True
    for call, arguments in re.findall(r"^(\w+)\((.*)", log.read_text(), re.MULTILINE):
        counts[call] += 1
        if kind := next((kind for kind, names in CALLS.items() if re.search(names, call)), None):
            steps.append(Step(call, counts[call], kind, has_new_state))
            has_new_state = False
        if kind not in ("open", "fsync", "syncfs") or "O_CREAT" in arguments:
            has_new_state = True
    return steps


class TracedProgram(DrivenProgram):
    """A running operations.py or a similar program; `run` traces one operation."""

    def __init__(self, name: str, *arguments: str) -> None:
        super().__init__(name, *arguments)
        self.steps: dict[str, list[Step]] = {}  # by operation

    def request(self, line: str) -> str:
        self.send_line(line)
        return self.read_line().strip()

    def run(
        self,
        name: str | list[str],
        installation: Installation,
        log: Path,
        *injected: str,
        at: Path | None = None,
    ) -> int:
        """Run an operation with these faults, at all files or `at` one; return its exit code."""
        process_id = self.request(
            json.dumps([name, str(installation.data), str(installation.pictures)])
        )
        traced = ",".join([*TRACED, *(each.partition(":")[0] for each in injected)])
        strace = ["strace", "-y", "-p", process_id, "-o", str(log), "-e", f"trace={traced}"]
        strace += [argument for each in injected for argument in ("-e", f"inject={each}")]
        strace += [f"-P{at}"] if at else []
        with subprocess.Popen(strace, stderr=subprocess.PIPE, text=True) as tracer:
            assert "attached" in tracer.stderr.readline()
            code = int(self.request(""))
            tracer.communicate()
        return code


@dataclasses.dataclass
class FaultResult:
    """The result of an operation with a fault."""

    installation: Installation
    code: int  # the operation's exit code
    step: Step
    fault: Fault
    folder: Path  # on the disk, for this fault only
    log: Path  # the trace of the system calls


class Injector:
    """Injects faults into the operations of a program."""

    def __init__(
        self,
        program: TracedProgram,
        templates: dict[str, Installation],
        disk: Path,
        config: pytest.Config,
        subtests: pytest.Subtests,
    ) -> None:
        self.program, self.templates, self.disk = program, templates, disk
        self.is_full_run, self.seed = is_full_run(config), sample_seed(config)
        self._subtests = subtests
        self._numbers = itertools.count()

    def new_folder(self) -> Path:
        """Create a folder; it is not removed, because the whole disk is unmounted at the end."""
        folder = self.disk / f"{self.program.process.pid}-{next(self._numbers)}"
        folder.mkdir()
        return folder

    def with_program(self, program: TracedProgram) -> "Injector":
        """Return an injector for another program."""
        another = copy.copy(self)
        another.program = program
        return another

    def all_steps(self, name: str, *kinds: str) -> list[Step]:
        """Return the steps of an operation of these kinds, by default of all kinds."""
        if name not in self.program.steps:
            folder = self.new_folder()
            installation = self.templates[name].copy(folder / "site")
            assert self.program.run(name, installation, folder / "log") == 0
            self.program.steps[name] = steps_in(folder / "log")
            assert self.program.steps[name], f"{name} has no steps"
        return [step for step in self.program.steps[name] if not kinds or step.kind in kinds]

    def chosen_steps(
        self, name: str, fault: Fault, *kinds: str, is_whole: bool = False
    ) -> list[Step]:
        """Return the steps that the default run takes: a sample, or all if `is_whole`.

        Of the steps at which a kill leaves the same state, the default run takes the first.
        With --all-faults return all steps.
        """
        steps = self.all_steps(name, *kinds)
        if self.is_full_run:
            return steps
        if fault is KILL:
            steps = [step for step in steps if step.has_new_state]
        if is_whole:
            return steps
        rng = random.Random(f"{self.seed} {name} {fault.name} {kinds}")
        return rng.sample(steps, min(len(steps), 1 + len(steps) // SAMPLE))

    def subtest(self, step: Step) -> AbstractContextManager:
        """Return a subtest named after the step and the seed that repeats the sample."""
        return self._subtests.test(f"{step}, --faults-seed={self.seed}")

    def inject(self, name: str, fault: Fault, step: Step) -> FaultResult:
        """Run an operation on a copy of its installation with a fault at one step."""
        folder = self.new_folder()
        installation, log = self.templates[name].copy(folder / "site"), folder / "log"
        code = self.program.run(name, installation, log, *self._injected(name, fault, step))
        if fault.action.startswith("signal"):
            assert code == fault.code
        else:
            assert first_injected(log) == (step.call, step.number)
        return FaultResult(installation, code, step, fault, folder, log)

    def _injected(self, name: str, fault: Fault, step: Step) -> Iterator[str]:
        if not fault.is_lasting:
            yield f"{step.call}:{fault.action}:when={step.number}"
            return
        # strace counts the calls of each name separately. The last matching expression applies.
        yield f"/{CALLS[step.kind]}:{fault.action}"
        steps = self.all_steps(name, step.kind)
        before = [each.call for each in steps[: steps.index(step)]]
        for call in {each.call for each in steps}:
            yield f"{call}:{fault.action}:when={before.count(call) + 1}+"


def first_injected(log: Path) -> tuple[str, int] | None:
    """Return the name and the number of the first call with an injected error."""
    lines = log.read_text().splitlines()
    for number, line in enumerate(lines):
        if line.endswith("(INJECTED)"):
            call = line.partition("(")[0]
            return call, sum(each.startswith(f"{call}(") for each in lines[: number + 1])
    return None


def failed_sync_and_later_ones(log: Path, call: str = "fsync") -> tuple[str, list[str]]:
    """Return the path whose sync failed, and the paths that were synced after it."""
    lines = [line for line in log.read_text().splitlines() if line.startswith(f"{call}(")]
    (failed,) = [number for number, line in enumerate(lines) if "(INJECTED)" in line]
    path, *later = [line.partition("<")[2].partition(">")[0] for line in lines[failed:]]
    return path, later


def is_full_run(config: pytest.Config) -> bool:
    """Return whether all faults are tested at all steps, with more power cuts."""
    return config.option.all_faults


def sample_seed(config: pytest.Config) -> int:
    """Return the seed of the samples: today's date, or the option --faults-seed."""
    return config.option.faults_seed


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    with large_disk(tmp_path) as folder:
        yield folder


@functools.cache
def _cached_picture(user_id: int, real=pictures.generate_picture) -> dict[str, bytes]:
    return real(user_id)


@pytest.fixture(scope="module", autouse=True)
def repeatable_calls() -> Iterator[None]:
    """Make an operation repeat the same system calls: no time window ends between two runs."""
    with pytest.MonkeyPatch.context() as patch:
        stop_time_windows(patch.setattr)
        patch.setattr(pictures, "generate_picture", _cached_picture)  # else most of a check's time
        yield
