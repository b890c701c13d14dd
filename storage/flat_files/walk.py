"""A walk through an installation: folder by folder, whatever the disk refuses on the way.

`storage.flat_files.check` knows what to look for.
"""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager

from storage import StorageError
from storage.flat_files.backend import LAYOUT, FlatFiles
from storage.flat_files.disk import translate_os_errors
from storage.flat_files.problems import Problem, Problems, look_at_orphan, look_at_owner

STEP = 1000  # files between two reports of progress


class Walk(FlatFiles):
    """An installation whose files are looked at, each by a function that yields what it finds."""

    def __init__(
        self, data_dir: str, picture_dir: str, repair: bool, progress: Callable[[int, int], None]
    ) -> None:
        super().__init__(data_dir, picture_dir)
        self._repair = repair
        self._progress = progress
        self._done = self._total = 0  # files
        self._refused: set[str] = set()  # files and folders that the disk refuses to open

    def _open(self) -> None:
        """Nothing is made, and no key read."""

    @functools.cached_property
    def _owner(self) -> int:
        """The user id whose all files should be."""
        return os.stat(self.data_dir).st_uid

    def _folders(self) -> dict[str, int]:
        """The mode of each folder."""
        data = {self._path(folder): 0o700 for folder in LAYOUT}
        pictures = dict.fromkeys(self._picture_folders(), 0o755)
        return {self.data_dir: 0o700, self.picture_dir: 0o755} | data | pictures

    def _check_folder(
        self, folder: str, names: re.Pattern, check_file: Callable[[str], Problems]
    ) -> Problems:
        """`check_file` for each path whose name has that form; the rest has been left behind."""
        for path in (yield from self._paths_in(folder)):
            if self._done % STEP == 0:
                self._progress(self._done, self._total)
            self._done += 1
            if names.fullmatch(os.path.basename(path)):
                yield from self._confirmed(look_at_owner, path, self._owner)
                yield from check_file(path)
            else:
                yield from self._confirmed(look_at_orphan, path)

    def _count_in(self, folder: str) -> Problems:
        self._total += len((yield from self._paths_in(folder)))

    def _paths_in(self, folder: str) -> Generator[Problem, None, list[str]]:
        """What is in a folder: 9, then 10. Nothing, and a problem, where the disk refuses that."""
        try:
            names = os.listdir(folder)
        except OSError as error:
            # No problem: a window that the server has removed since its name was read.
            if folder in self._folders() or os.path.lexists(folder):
                yield from self._told_once(error)
            return []
        return [f"{folder}/{name}" for name in sorted(names, key=lambda each: (len(each), each))]

    def _told_once(self, error: OSError) -> Problems:
        file = error.filename or self.data_dir
        if file not in self._refused:
            self._refused.add(file)
            is_file = isinstance(error, NotADirectoryError)
            problem = "is no folder" if is_file else f"the disk refused: {error.strerror}"
            yield Problem(file, problem)

    def _confirmed(
        self,
        look: Callable[..., Problems],
        *what: object,
        locks: Iterable[AbstractContextManager] = (),
    ) -> Problems:
        """What `look` finds, and finds again while the locks are held; mended before they go.

        A file that the disk refuses to open ends that look alone. Where it is a lock, as on a disk
        that became read-only, what was found first is told, and nothing is mended.
        """
        found = []
        try:
            found = list(look(*what))
            if not found:
                return
            with contextlib.ExitStack() as held:
                for lock in locks:
                    held.enter_context(lock)
                found = list(look(*what))
                if self._repair:
                    found = [self._mended(each) for each in found]
        except OSError as error:
            known = {each.file for each in found}
            found += [each for each in self._told_once(error) if each.file not in known]
        yield from found

    def _mended(self, found: Problem) -> Problem:
        if found.mend is None:
            return found
        try:
            with translate_os_errors():
                return Problem(found.file, found.problem, mended=found.mend(found.file))
        except StorageError as error:
            return Problem(found.file, f"{found.problem}; not mended: {error}")
