"""Whether the disk takes what is written to it, for those who ask often."""

import math
import os
import secrets
import time

from storage.flat_files.disk import created, storage_error_from, sync, temporary_beside, write_all

TRY_INTERVAL = 5  # seconds between two tries
BLOCK = 4096  # bytes: a full disk still makes empty files


class WriteProbe:
    """Writes to these folders, and tells of the last time until TRY_INTERVAL has passed."""

    def __init__(self, *folders: str) -> None:
        self._folders = folders
        self._tried = -math.inf  # time.monotonic()
        self._refusal: OSError | None = None

    def run(self) -> None:
        """Raise StorageFailed where the disk refused."""
        if time.monotonic() - self._tried >= TRY_INTERVAL:
            self._tried = time.monotonic()  # before: of many who ask at once one tries
            self._refusal = self._try()
        if self._refusal:
            raise storage_error_from(self._refusal)

    def _try(self) -> OSError | None:
        try:
            for folder in self._folders:
                write_and_forget(folder)
        except OSError as error:
            return error
        return None


def write_and_forget(folder: str) -> None:
    """Put a block of bytes on the disk, in a file that is gone afterwards. Raises OSError."""
    path = temporary_beside(f"{folder}/try")
    with created(path) as descriptor:
        os.unlink(path)  # before: whatever kills this leaves no file
        write_all(descriptor, secrets.token_bytes(BLOCK))  # zeros might take no room
        sync(descriptor)
