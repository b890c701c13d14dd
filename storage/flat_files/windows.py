"""What counts for a while: files in a folder for each window of time, removed when that is over."""

import contextlib
import itertools
import os
import time

from storage.flat_files.disk import make_folder, remove_file

REMOVED_AT_ONCE = 50  # files: nobody who comes after a busy hour waits until all of it is gone


def window_of_now(seconds: int) -> int:
    """The number of the window of so many seconds that now is in."""
    return int(time.time()) // seconds


def make_window(folder: str, number: int) -> None:
    """Make the folder of a window, and remove a part of what counts no more.

    The window before still counts, and after a step of the clock back the next one does.
    """
    make_folder(folder, 0o700)
    make_folder(f"{folder}/{number}", 0o700)
    counting = {str(each) for each in (number - 1, number, number + 1)}
    for name in os.listdir(folder):
        if name.isdecimal() and name not in counting:
            _remove_part(f"{folder}/{name}")


def _remove_part(folder: str) -> None:
    with contextlib.suppress(OSError):  # gone, or not yet empty: the next one goes on
        with os.scandir(folder) as entries:
            for entry in itertools.islice(entries, REMOVED_AT_ONCE):
                remove_file(entry.path)
        os.rmdir(folder)
