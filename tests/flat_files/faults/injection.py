"""Injection of faults by strace at each system call of an operation in turn.

An operation runs once without a fault. Its system calls are its steps. A fault at a step needs a
new run of the operation. With `--all-faults` every step gets every fault. The default run takes
a sample drawn by `--faults-seed`.
"""

import dataclasses
import itertools
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from child import FAILED, FULL, INTERRUPTED, KILLED, Child
from disks import disk_in_memory
from saves import Installation, make_repeatable

# System calls that change files, and those they need. Regular expressions, because some machines
# have only the newer calls, such as renameat for rename.
NAMES = ("open", "write", "fsync", "syncfs", "rename", "link", "symlink", "unlink", "mkdir")
CALLS = {each: f"^{each}" for each in NAMES} | {"chmod": "chmod"}
# Other calls that change files; they are traced without faults.
OTHER_CHANGES = "^(rmdir|ftruncate|sendfile|copy_file_range)$"
TRACED = [f"/{names}" for names in [*CALLS.values(), OTHER_CHANGES]]
SAMPLE = 24  # a sample has one of 24 steps, and at least one; each day others


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
ERRORS = [LASTING_IO_ERRORS, IO_ERROR, FULL_DISK, QUOTA_EXCEEDED]
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


def run_traced(
    child: Child,
    action: str | list[str],
    installation: Installation,
    log: Path,
    *injected: str,
    at: Path | None = None,
) -> int:
    """Let a child act with these faults, at all files or `at` one; return its exit code."""
    process_id = child.fork(action, installation)
    traced = ",".join([*TRACED, *(each.partition(":")[0] for each in injected)])
    strace = ["strace", "-y", "-p", process_id, "-o", str(log), "-e", f"trace={traced}"]
    strace += [argument for each in injected for argument in ("-e", f"inject={each}")]
    strace += [f"-P{at}"] if at else []
    with subprocess.Popen(strace, stderr=subprocess.PIPE, text=True) as tracer:
        assert "attached" in tracer.stderr.readline()
        code = int(child.go_on())
        tracer.communicate()
    return code


@dataclasses.dataclass
class FaultResult:
    """The result of an operation with a fault."""

    installation: Installation
    code: int  # the operation's exit code
    step: Step
    folder: Path  # on the disk, for this fault only


class Injector:
    """Injects faults into what a child does on copies of an installation."""

    def __init__(
        self,
        child: Child,
        templates: dict[str, Installation],
        disk: Path,
        config: pytest.Config,
        subtests: pytest.Subtests,
    ) -> None:
        self.child, self.templates, self.disk = child, templates, disk
        self.options, self._subtests = config.option, subtests
        self._numbers = itertools.count()

    def new_folder(self) -> Path:
        """Create a folder; it is not removed, because the whole disk is unmounted at the end."""
        folder = self.disk / f"{self.child.process.pid}-{next(self._numbers)}"
        folder.mkdir()
        return folder

    def all_steps(self, name: str, *kinds: str) -> list[Step]:
        """Return the steps of a save or an operation of these kinds, by default of all kinds."""
        if name not in self.child.steps:
            folder = self.new_folder()
            installation = self.templates[name].copy(folder / "site")
            assert run_traced(self.child, name, installation, folder / "log") == 0
            self.child.steps[name] = steps_in(folder / "log")
            assert self.child.steps[name], f"{name} has no steps"
        return [step for step in self.child.steps[name] if not kinds or step.kind in kinds]

    def check(
        self,
        name: str,
        fault: Fault,
        check: Callable[[FaultResult], None],
        *kinds: str,
        one_of: int = SAMPLE,
    ) -> None:
        """Inject a fault at each step of these kinds, and check its result, as subtests.

        The default run takes a sample: one of so many steps. Of the steps at which a kill leaves
        the same state, it takes the first.
        """
        steps, seed = self.all_steps(name, *kinds), self.options.faults_seed
        if not self.options.all_faults:
            if fault is KILL:
                steps = [step for step in steps if step.has_new_state]
            rng = random.Random(f"{seed} {name} {fault.name} {kinds}")
            steps = rng.sample(steps, min(len(steps), 1 + len(steps) // one_of))
        for step in steps:
            with self._subtests.test(f"{step}, --faults-seed={seed}"):
                check(self.inject(name, fault, step))

    def inject(self, name: str, fault: Fault, step: Step) -> FaultResult:
        """Run an operation on a copy of its installation with a fault at one step."""
        folder = self.new_folder()
        installation, log = self.templates[name].copy(folder / "site"), folder / "log"
        injected = self._injected(name, fault, step)
        code = run_traced(self.child, name, installation, log, *injected)
        if fault.action.startswith("signal"):
            assert code == fault.code
        else:
            check_log(log, step)
        return FaultResult(installation, code, step, folder)

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


def check_log(log: Path, step: Step) -> None:
    """Check that the first error is that of this step, and that a failed sync is not retried.

    The kernel may have dropped the unwritten data, so that a second sync would succeed.
    """
    lines = log.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.endswith("(INJECTED)"))
    is_same = [line.startswith(f"{step.call}(") for line in lines]
    assert (is_same[first], sum(is_same[: first + 1])) == (True, step.number)
    if step.kind in ("fsync", "syncfs"):
        path, *later = [line.partition("<")[2].partition(">")[0] for line in lines[first:]]
        synced = [each for each, same in zip(later, is_same[first + 1 :], strict=True) if same]
        assert path not in synced


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A disk that is large enough for all copies of an installation."""
    with disk_in_memory(tmp_path, "size=2g"):  # a sync takes no time
        yield tmp_path


@pytest.fixture(scope="module", autouse=True)
def repeatable_calls() -> Iterator[None]:
    """Let the tests and the child use the same time window and the same cached pictures."""
    with pytest.MonkeyPatch.context() as patch:
        make_repeatable(patch.setattr)
        yield
