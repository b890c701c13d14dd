"""A health check: can files be written?"""

import math
import os
import secrets
import time

from storage.flat_files import disk

PROBE_INTERVAL = 5  # seconds between two writes
BLOCK = 4096  # bytes: a full disk still makes empty files


class WriteProbe:
    """Writes to these folders; the result is cached for PROBE_INTERVAL."""

    def __init__(self, *folders: str) -> None:
        self._folders = folders
        self._written = -math.inf  # time.monotonic()
        self._error: OSError | None = None

    def run(self) -> None:
        """Raise StorageFailed if the last write failed."""
        if time.monotonic() - self._written >= PROBE_INTERVAL:
            self._written = time.monotonic()  # before the write: of many calls at once one writes
            self._error = self._write()
        if self._error:
            raise disk.storage_error_from(self._error)

    def _write(self) -> OSError | None:
        try:
            for folder in self._folders:
                write_and_remove(folder)
        except OSError as error:
            return error
        return None


def write_and_remove(folder: str) -> None:
    """Sync a block of bytes to the disk, in a file that is removed. Raises OSError."""
    path = disk.temporary_beside(f"{folder}/probe")
    with disk.created(path) as descriptor:
        os.unlink(path)  # before the write: a kill leaves no file
        disk.write_all(
            descriptor, secrets.token_bytes(BLOCK)
        )  # a file system may store zeros without a block
        disk.sync(descriptor)
