"""Time windows: files that count for a while, in one folder for each window."""

import contextlib
import itertools
import os
import time

from storage.flat_files.disk import make_folder, remove_file

REMOVED_AT_ONCE = 50  # files: the first request after a busy hour does not wait for all


def window_of_now(seconds: int) -> int:
    """Return the number of the current window of so many seconds."""
    return int(time.time()) // seconds


def make_window(folder: str, number: int) -> None:
    """Make the folder of a window, and remove some files of expired windows.

    The previous window still counts, and the next one does after the clock was set back.
    """
    make_folder(folder, 0o700)
    make_folder(f"{folder}/{number}", 0o700)
    counting = {str(each) for each in (number - 1, number, number + 1)}
    for name in os.listdir(folder):
        if name.isdecimal() and name not in counting:
            _remove_part(f"{folder}/{name}")


def _remove_part(folder: str) -> None:
    with contextlib.suppress(OSError):  # removed, or not yet empty: the next call continues
        with os.scandir(folder) as entries:
            for entry in itertools.islice(entries, REMOVED_AT_ONCE):
                remove_file(entry.path)
        os.rmdir(folder)
