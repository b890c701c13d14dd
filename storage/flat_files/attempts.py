"""Counts of failed attempts: files whose size is the count.

Each window of time has a folder, with a file for each subject. A count is the sum over this window
and the previous one. ftruncate under a lock adds a byte or removes one: it leaves a hole in the
file, so it works on a full disk.
"""

import contextlib
import hmac
import os

from model.records import Attempt
from storage.contract import ATTEMPTS_WINDOW, Attempts
from storage.files import raises_storage_errors
from storage.flat_files.disk import locked
from storage.flat_files.keys import KeyFile
from storage.flat_files.layout import Layout
from storage.flat_files.windows import make_window, window_of_now


class AttemptFiles(Attempts):
    """The counts below a data folder."""

    def __init__(self, layout: Layout, key_file: KeyFile) -> None:
        self._layout = layout
        self._key_file = key_file

    @raises_storage_errors
    def count(self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW) -> Attempt:
        # No file is made if `limit` attempts are counted already.
        folder, number = self._folder(window), window_of_now(window)
        now, before = self._files(kind, subject, folder, number)
        self._count_of(now, before, limit, window)
        make_window(folder, number)
        with locked(now) as descriptor:
            size = self._count_of(now, before, limit, window)
            os.ftruncate(descriptor, size + 1)
        return Attempt(now)

    @raises_storage_errors
    def require_left(
        self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW
    ) -> None:
        files = self._files(kind, subject, self._folder(window), window_of_now(window))
        self._count_of(*files, limit, window)

    def _count_of(self, now: str, before: str, limit: int, window: int) -> int:
        """Return the count of this window. Raises TooManyAttempts if both reach `limit`."""
        count = _size_of(now)
        self.require_below(limit, count, _size_of(before), window)
        return count

    @raises_storage_errors
    def refund(self, attempt: Attempt) -> None:
        expired = contextlib.suppress(FileNotFoundError)  # with its window
        with expired, locked(attempt.place) as descriptor:
            os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - 1))

    @raises_storage_errors
    def clear(self, kind: str, subject: str, window: int = ATTEMPTS_WINDOW) -> None:
        for path in self._files(kind, subject, self._folder(window), window_of_now(window)):
            if _size_of(path):
                with contextlib.suppress(FileNotFoundError), locked(path) as descriptor:
                    os.ftruncate(descriptor, 0)

    def _folder(self, window: int) -> str:
        # Quarters of an hour stand in attempts/ itself, longer windows in folders of their own.
        longer = [] if window == ATTEMPTS_WINDOW else [f"every-{window}-seconds"]
        return self._layout.path("attempts", *longer)

    def _files(self, kind: str, subject: str, folder: str, number: int) -> list[str]:
        """Return the paths of a subject's counts: in this window, and in the previous one."""
        # Keyed: the folder tells nobody whose password was guessed, or from where.
        key = self._key_file.current()[-1]
        name = hmac.new(key, f"{kind}:{subject}".encode(), "sha256").hexdigest()
        return [f"{folder}/{each}/{name}" for each in (number, number - 1)]


def _size_of(path: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_size
    return 0
