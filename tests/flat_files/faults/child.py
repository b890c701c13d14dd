"""A child process that makes saves, runs archive operations or the command, on request.

It runs everything once, so that all modules are imported. Then it forks a process for each request,
which makes only the system calls of what was asked. A request is one JSON line: what to do, and the
two folders. What to do is the name of a save or an operation, the list of the command's arguments,
or a number: to save endlessly with this seed, with a JSON line before each save, [false, facts],
and one after it, [true, facts]. The child prints the id of the forked process, waits for a line
(the tracer is attached), and prints the exit code at the end.
"""

import functools
import itertools
import json
import os
import random
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from archive_operations import BACKUP, OPERATIONS, archive_path
from saves import (
    ANYTHING,
    AT_FIRST_START,
    FIRST_START,
    SAVES,
    UPLOADS,
    Installation,
    generate_picture,
    make_repeatable,
    prepare,
    read_facts,
)

from identity.site.settings import ROOT
from identity_admin import main
from model.errors import SaveUnconfirmed, StorageFailed, StorageFull
from storage import open_storage
from storage.flat_files import disk

DONE, FULL, FAILED, INTERRUPTED, OTHER_ERROR, UNCONFIRMED = 0, 10, 11, 12, 13, 14  # exit codes
EXIT_CODES = {
    StorageFull: FULL,
    SaveUnconfirmed: UNCONFIRMED,
    StorageFailed: FAILED,
    KeyboardInterrupt: INTERRUPTED,
}
KILLED = -9
MARK = "mark"  # of a single save


class Child:
    """The running child, for the tests; the `with` block ends it."""

    def __init__(self, *faulty: str) -> None:
        """Start it, with the code named in FAULTY made faulty."""
        self.process = subprocess.Popen(
            [sys.executable, __file__, *faulty],
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.steps: dict[str, list] = {}  # the traced steps of each action, for injection.py

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def fork(self, action: str | list[str] | int, installation: Installation) -> str:
        """Fork a process for a request; return its id. It waits for `go_on`."""
        return self._send(json.dumps([action, *installation.folders]))

    def go_on(self) -> str:
        """Let the forked process run; return the next line."""
        return self._send("")

    def read_line(self) -> str:
        return self.process.stdout.readline().strip()

    def _send(self, line: str) -> str:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.read_line()


def save_endlessly(seed: int, *folders: str) -> None:
    """Open an installation, and save: first each kind once, then at random."""
    rng = random.Random(seed)
    print_event(False, AT_FIRST_START)
    storage = open_storage(*folders)
    print_event(True, read_facts(storage))
    first, others = [*SAVES.values()][:2], [*SAVES.values()][2:]
    kinds = [*first, *rng.sample(others, len(others))]
    for number in itertools.count():
        kind = kinds[number] if number < len(kinds) else rng.choice(kinds)
        changes, act = kind(storage, f"p{seed}-{number}", rng)
        print_event(False, changes)
        act()
        current = read_facts(storage) if ANYTHING in changes.values() else {}
        print_event(True, {each: current.get(each, new) for each, new in changes.items()})


def print_event(*event: bool | dict) -> None:
    print(json.dumps(event), flush=True)


def run_command(arguments: list[str], data: str, picture_folder: str) -> None:
    """Run the `identity-server` command; its output goes to DATA_FOLDER.printed."""
    sys.argv[1:] = arguments
    os.environ |= {"IDENTITY_DATA_DIR": data, "IDENTITY_PICTURE_DIR": picture_folder}
    with open(f"{data}.printed", "w") as printed:
        os.dup2(printed.fileno(), sys.stdout.fileno())
    try:
        main()
    finally:
        sys.stdout.flush()


def prepare_run(action: str | list[str] | int, *folders: str) -> Callable[[], object]:
    """Return the function for the forked process to call."""
    if action == FIRST_START:
        return functools.partial(open_storage, *folders)
    if not isinstance(action, str):
        run = save_endlessly if isinstance(action, int) else run_command
        return functools.partial(run, action, *folders)
    storage = open_storage(*folders)
    if action in OPERATIONS:
        return functools.partial(OPERATIONS[action], storage)
    return SAVES[action](storage, MARK, random.Random(0))[1]


def exit_code_of(act: Callable[[], object]) -> int:
    try:
        act()
    except (*EXIT_CODES,) as error:
        return next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind))
    except SystemExit as stopped:
        return stopped.code or 0
    except Exception:
        traceback.print_exc()
        return OTHER_ERROR
    return DONE


def serve() -> None:
    for line in sys.stdin:
        act = prepare_run(*json.loads(line))
        read_end, write_end = os.pipe()
        process = os.fork()
        if not process:
            os.read(read_end, 1)
            os._exit(exit_code_of(act))
        print(process, flush=True)
        sys.stdin.readline()
        os.write(write_end, b"\n")
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
        os.close(read_end)
        os.close(write_end)


def run_all(folder: Path) -> None:
    """Run everything once, so that all modules are imported and all pictures are generated."""
    for number in (*range(UPLOADS), *range(10**6, 10**6 + UPLOADS)):
        generate_picture(number)
    installation = Installation(folder)
    storage = installation.open()
    prepare(storage)
    for number, save in enumerate(SAVES.values()):
        save(storage, f"{MARK}-{number}", random.Random(number))[1]()
    os.environ.setdefault("ARCHIVE", str(archive_path(storage)))
    os.environ.setdefault("SOURCE", str(folder))
    for name, act in OPERATIONS.items():
        act(storage if name == BACKUP else Installation(folder / name).open())
    if not os.fork():
        os._exit(
            exit_code_of(functools.partial(run_command, ["check", "--json"], *installation.folders))
        )
    os.wait()


# -- faulty code, which the tests must detect ---------------------------------------------------


def write_in_place(
    path: str, content: bytes, mode: int = 0o600, durable: bool = True, commits: bool = False
) -> None:
    """Replace a file by writing in place, in two parts."""
    with open(path, "wb") as file:
        for part in (content[:20], content[20:]):
            file.write(part)
            file.flush()


def disable_fsync(has_mode: Callable[[int], bool]) -> None:
    """Disable os.fsync for files of this mode."""
    fsync = os.fsync
    os.fsync = lambda each: None if has_mode(os.fstat(each).st_mode) else fsync(each)


FAULTY = {
    "records written in place": lambda: setattr(disk, "write_file", write_in_place),
    "files not synced": functools.partial(disable_fsync, stat.S_ISREG),
    "folders not synced": functools.partial(disable_fsync, stat.S_ISDIR),
}


if __name__ == "__main__":
    sys.stdin.reconfigure(line_buffering=True)
    make_repeatable()
    with tempfile.TemporaryDirectory() as folder:
        run_all(Path(folder))
    for name in sys.argv[1:]:
        FAULTY[name]()
    serve()
