"""The backends that tests run against: how a test gets an empty installation on each of them.

An installation is named by its two folders on every backend, also where it has no files in them.
"""

from typing import Protocol

from faulty_storage import FlatFileFaults

from storage import Storage, open_storage


class Backend(Protocol):
    """How tests open an installation."""

    def setting(self, data_dir: str) -> str:
        """Return the setting IDENTITY_STORAGE for the installation of these folders."""

    def open(self, data_dir: str, picture_dir: str) -> Storage:
        """Return the storage of an installation, empty at first."""


class FlatFileBackend:
    """Installations as flat files. Faults are made in these only."""

    def setting(self, data_dir: str) -> str:
        return "files"

    def open(self, data_dir: str, picture_dir: str) -> Storage:
        return open_storage(data_dir, picture_dir)

    def faults(self, data_dir: str, picture_dir: str) -> FlatFileFaults:
        return FlatFileFaults(data_dir, picture_dir)


FLAT_FILES = FlatFileBackend()
