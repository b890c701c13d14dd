"""A walk through the files of an installation that goes on after errors of the disk.

Every file is looked at without a lock first. A finding may be a write that is under way: it counts
if it is found again while the locks of such a write are held.
"""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager

from storage import Problem, StorageError
from storage.flat_files.disk import translate_os_errors
from storage.flat_files.layout import Layout
from storage.flat_files.problems import Finding, Findings, look_at_access, look_at_orphan
from storage.maintenance import Progress

STEP = 1000  # files between two reports of progress

Problems = Iterator[Problem]
Locks = Iterable[AbstractContextManager]


def user_locks(layout: Layout, path: str) -> list[AbstractContextManager]:
    """Return the locks that stop every change of the user after whose id a file is named."""
    user_id = int(re.match(r"[0-9]+", os.path.basename(path))[0])
    return [layout.accounts_lock(), layout.user_lock(user_id)]


class Walk:
    """The state of a walk; with `repair` each finding that has a repair is repaired."""

    def __init__(self, layout: Layout, repair: bool, progress: Progress) -> None:
        self.layout = layout
        self.refused: set[str] = set()  # files and folders that the disk refuses to open
        self._named: set[str] = set()  # places of problems
        self._repair = repair
        self._progress = progress
        self._done = self._total = 0  # files

    @functools.cached_property
    def owner(self) -> int:
        """The user id to which all files should belong."""
        return os.stat(self.layout.data_dir).st_uid

    def count(self, folders: Iterable[str]) -> Problems:
        """Add the files in these folders to the total of the progress."""
        for folder in folders:
            self._total += len((yield from self.paths_in(folder)))

    def check_folder(
        self,
        folder: str,
        names: re.Pattern,
        look: Callable[[str], Findings] = lambda path: iter(()),
        locks_of: Callable[[str], Locks] = lambda path: (),
        mode: int | None = 0o600,
    ) -> Problems:
        """Look at each file whose name has that form; the others were left behind."""
        for path in (yield from self.paths_in(folder)):
            if self._done % STEP == 0:
                self._progress(self._done, self._total)
            self._done += 1
            if not names.fullmatch(os.path.basename(path)):
                yield from self.confirmed(look_at_orphan, path)
                continue
            if mode is not None:
                yield from self.confirmed(look_at_access, path, mode, self.owner)
            yield from self.confirmed(look, path, locks=locks_of(path))

    def paths_in(self, folder: str) -> Generator[Problem, None, list[str]]:
        """Return the paths in a folder (9 before 10); a problem and none if the disk refuses."""
        try:
            names = os.listdir(folder)
        except OSError as error:
            if folder in self.layout.folders() or os.path.lexists(folder):  # else just removed
                yield from self._told_once(error)
            return []
        return [f"{folder}/{name}" for name in sorted(names, key=lambda each: (len(each), each))]

    def _told_once(self, error: OSError) -> Problems:
        file = error.filename or self.layout.data_dir
        if file not in self.refused | self._named:
            is_file = isinstance(error, NotADirectoryError)
            problem = "is not a folder" if is_file else f"the disk refused: {error.strerror}"
            yield Problem(file, problem)
        self.refused.add(file)

    def confirmed(
        self,
        look: Callable[..., Findings],
        *what: object,
        locks: Locks = (),
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
                problems = [self._settled(each) for each in found if each.file not in self.refused]
        except OSError as error:
            problems = [Problem(each.file, each.problem) for each in found]
            self._named.update(each.place for each in problems)
            problems += self._told_once(error)
        self._named.update(each.place for each in problems)
        yield from problems

    def _settled(self, found: Finding) -> Problem:
        if found.repair is None or not self._repair:
            return Problem(found.file, found.problem)
        try:
            with translate_os_errors():
                return Problem(found.file, found.problem, found.repair(found.file))
        except StorageError as error:
            return Problem(found.file, f"{found.problem}; not repaired: {error}")
