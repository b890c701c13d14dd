"""Finding and repairing what is wrong with the files of an installation.

A `look_at_` function yields findings and changes nothing. It is called without a lock first. A
finding may be a write that is under way: it counts if it is found again while the locks of such a
write are held.
"""

import contextlib
import functools
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass

from model.errors import StorageError
from storage.files import user_name
from storage.flat_files.disk import translate_os_errors
from storage.flat_files.layout import Layout, Lock
from storage.maintenance import Problem, Steps

ORPHAN_AGE = 3600  # seconds: no write takes so long


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a file."""

    file: str
    problem: str  # continues a sentence that begins with the file: "is missing"
    repair: Callable[[str], str] | None = None  # repairs the file, and returns what was done


Findings = Iterator[Finding]
Problems = Iterator[Problem]


# -- a single file ------------------------------------------------------------------------------


def is_old(path: str) -> bool:
    """Return True if no write that is under way can have made this file or folder."""
    try:
        # Not the time of modification: a hard link to an older file keeps it.
        return time.time() - os.lstat(path).st_ctime > ORPHAN_AGE
    except FileNotFoundError:
        return False


def remove(path: str) -> str:
    """Remove a file or a folder, unless the server does at the same time."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    return "removed"


def look_at_access(path: str, mode: int, owner: int, spare: int = 0) -> Findings:
    """Look at permissions, of which bits in `spare` may be set or not, and at the owner."""
    with contextlib.suppress(FileNotFoundError):
        actual = os.stat(path)
        if stat.S_ISDIR(actual.st_mode) and not mode & 0o111:
            return  # in place of a file: another look tells
        if (actual.st_mode ^ mode) & 0o777 & ~spare:
            problem = f"has the mode {stat.S_IMODE(actual.st_mode):04o} and not {mode:04o}"
            yield Finding(path, problem, functools.partial(_set_mode, mode))
        if actual.st_uid != owner:  # only root could repair it
            yield Finding(path, f"belongs to {user_name(actual.st_uid)}: chown {user_name(owner)}")


def _set_mode(mode: int, path: str) -> str:
    os.chmod(path, mode)
    return f"{mode:04o} is set"


def look_at_orphan(path: str) -> Findings:
    """Look at a file whose name the server does not use, unless it is new."""
    if is_old(path):
        if os.path.basename(path).startswith(".") and not os.path.isdir(path):
            yield Finding(path, "is a temporary file that was left behind", remove)
        else:
            yield Finding(path, "is nothing that the server keeps there")


# -- all files ----------------------------------------------------------------------------------


class Walk:
    """A walk through the files of an installation that goes on after errors of the disk.

    With `repair` each finding that has a repair is repaired.
    """

    def __init__(self, layout: Layout, repair: bool, steps: Steps) -> None:
        self.layout = layout
        self.owner = os.stat(layout.data_dir).st_uid  # to whom all files should belong
        self.refused: set[str] = set()  # files and folders that the disk refuses to open
        self.steps = steps  # files, and lines of the audit log
        self._named: set[str] = set()  # places of problems
        self._repair = repair

    def check_folder(
        self,
        folder: str,
        names: re.Pattern,
        look: Callable[[str], Findings] = lambda path: iter(()),
        locks_of: Callable[[str], Iterable[Lock]] = lambda path: (),
        mode: int | None = 0o600,
        sound: int = 0,
    ) -> Problems:
        """Look at each file whose name matches `names`; the others were left behind.

        `mode` is that of each file, None for any. `sound` is the sum of the hashes of the names
        that are known to be sound: if there are no others, the folder is skipped.
        """
        there = yield from self._names_in(folder)
        if sum(map(hash, there)) == sound:
            self.steps.advance(len(there))
            return
        for name in self.steps.each(there):
            path = f"{folder}/{name}"
            if not names.fullmatch(name):
                yield from self.confirmed(look_at_orphan, path)
                continue
            if mode is not None:
                yield from self.confirmed(look_at_access, path, mode, self.owner)
            yield from self.confirmed(look, path, locks=locks_of(path))

    def paths_in(self, folder: str) -> Generator[Problem, None, Iterator[str]]:
        """Return the paths in a folder (9 before 10); yield the problem if the disk refuses it."""
        names = yield from self._names_in(folder)
        return (f"{folder}/{name}" for name in names)

    def _names_in(self, folder: str) -> Generator[Problem, None, list[str]]:
        """Return the names in a folder (9 before 10); yield the problem if the disk refuses it."""
        try:
            return sorted(sorted(os.listdir(folder)), key=len)
        except OSError as error:
            if folder in self.layout.folders() or os.path.lexists(folder):  # else just removed
                yield from self._refusal(error)
            return []

    def _refusal(self, error: OSError) -> Problems:
        """Yield the problem of a file that cannot be opened, once."""
        file = error.filename or self.layout.data_dir
        if file not in self.refused | self._named:
            is_file = isinstance(error, NotADirectoryError)
            problem = "is not a folder" if is_file else f"the disk refused: {error.strerror}"
            yield Problem(file, problem)
        self.refused.add(file)

    def confirmed(
        self, look: Callable[..., Findings], *what: object, locks: Iterable[Lock] = ()
    ) -> Problems:
        """Yield what `look` finds, and finds again while the locks are held; repair it under them.

        An error of the disk ends this look alone. If a lock cannot be taken, as on a read-only
        disk, the first findings are yielded, and nothing is repaired.
        """
        found: list[Finding] = []
        try:
            found = list(look(*what))
            if not found:
                return
            with contextlib.ExitStack() as held:
                for lock in locks:
                    held.enter_context(lock)
                found = list(look(*what))
                problems = [self._repaired(each) for each in found if each.file not in self.refused]
        except OSError as error:
            problems = [Problem(each.file, each.problem) for each in found]
            self._named.update(each.place for each in problems)
            problems += self._refusal(error)
        self._named.update(each.place for each in problems)
        yield from problems

    def _repaired(self, found: Finding) -> Problem:
        """Return a finding as a problem, repaired if that is asked for and possible."""
        if found.repair is None or not self._repair:
            return Problem(found.file, found.problem)
        try:
            with translate_os_errors():
                return Problem(found.file, found.problem, found.repair(found.file))
        except StorageError as error:
            return Problem(found.file, f"{found.problem}; not repaired: {error}")
