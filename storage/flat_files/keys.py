"""The signing keys: a file with one key a line, newest last."""

import contextlib
import os

from model.errors import BadInstallation, StorageFailed
from storage.contract import KEYS_KEPT, Keys, new_key
from storage.files import raises_storage_errors
from storage.flat_files import disk
from storage.flat_files.layout import Layout

NO_KEY = "has no key in it: put the lost one back, or remove the file and everyone signs in again"


class KeyFile(Keys):
    """The keys in a file, made if there is none. Raises OSError, BadInstallation."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self._layout = layout
        self._path = layout.path("secret_key")
        if not os.path.exists(self._path):
            self.make()
        self.current()

    def make(self) -> None:
        """Make the file, unless another worker is first."""
        temporary = disk.temporary_beside(self._path)
        try:
            disk.write_file(temporary, f"{new_key()}\n".encode())
            # link(2) fails if another worker was first: then all read the same key.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, self._path)
        finally:
            disk.remove_file(temporary)
        disk.sync_folder(os.path.dirname(self._path))

    @raises_storage_errors
    def rotate(self, drop_old: bool) -> None:
        with self._layout.lock("keys"):
            kept = () if drop_old else self.read()[1 - KEYS_KEPT :]
            self._write((*kept, new_key().encode()), commits=True)
        self.expire()

    def replace(self, keys: tuple[bytes, ...]) -> None:
        """Replace all keys by these, newest last, as `rotate` does. Raises OSError."""
        with self._layout.lock("keys"):
            self._write(keys)
        self.expire()

    def _write(self, keys: tuple[bytes, ...], commits: bool = False) -> None:
        disk.write_file(self._path, b"".join(key + b"\n" for key in keys), commits=commits)

    def read(self) -> tuple[bytes, ...]:
        keys = disk.read_file(self._path, StorageFailed(f"{self._path} is missing")).split()
        if not keys:
            raise BadInstallation(f"{self._path} {NO_KEY}")
        return tuple(keys)
