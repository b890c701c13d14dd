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
        """Sync a block of bytes in each folder, in a file that is removed; return the error."""
        try:
            for folder in self._folders:
                path = disk.temporary_beside(f"{folder}/probe")
                with disk.created(path) as descriptor:
                    os.unlink(path)  # before the write: a kill leaves no file
                    # Random: a file system may store zeros without a block.
                    disk.write_all(descriptor, secrets.token_bytes(BLOCK))
                    disk.sync(descriptor)
        except OSError as error:
            return error
        return None
