"""Who plays now, as symbolic links in a folder for each window of time.

    playing/<window>/1 -> <client id>, or "-" for a game without a name

They are not synced: after a power cut the next heartbeats make them again.
"""

import contextlib
import itertools
import os

from model.rules import USER_ID
from storage.contract import PLAYING_KEPT, PLAYING_LISTED, Playing
from storage.files import raises_storage_errors
from storage.flat_files.disk import temporary_beside
from storage.flat_files.windows import make_window, window_of_now

WINDOW = PLAYING_KEPT // 2  # seconds
NO_NAME = "-"


class PlayingFiles(Playing):
    """The links below a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @raises_storage_errors
    def put(self, user_id: int, game: str | None) -> None:
        number, target = window_of_now(WINDOW), game or NO_NAME
        make_window(self._folder, number)
        path = f"{self._folder}/{number}/{user_id}"
        try:
            os.symlink(target, path)
        except FileExistsError:
            if os.readlink(path) != target:
                temporary = temporary_beside(path)
                os.symlink(target, temporary)
                os.rename(temporary, path)

    @raises_storage_errors
    def read(self) -> dict[int, str | None]:
        found: dict[int, str | None] = {}
        number = window_of_now(WINDOW)
        for window in (number, number - 1):
            folder = f"{self._folder}/{window}"
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in itertools.islice(entries, PLAYING_LISTED - len(found)):
                    if USER_ID.fullmatch(entry.name):
                        target = os.readlink(entry.path)
                        found.setdefault(int(entry.name), None if target == NO_NAME else target)
        return found
