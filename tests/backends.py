"""The backends that tests run against: how a test gets an empty installation on each of them.

An installation is named by its two folders on every backend, also where it has no files in them.
"""

from faulty_storage import FlatFileFaults

from storage import Storage, open_storage


class Backend:
    """Installations as flat files. databases.py has those in PostgreSQL, without faults."""

    def setting(self, data_dir: str) -> str:
        """Return the setting IDENTITY_STORAGE for the installation of this folder."""
        return "files"

    def open(self, data_dir: str, picture_dir: str) -> Storage:
        """Return the storage of an installation, empty at first."""
        return open_storage(data_dir, picture_dir, self.setting(data_dir))

    def faults(self, data_dir: str, picture_dir: str) -> FlatFileFaults:
        """Return the faults of an installation."""
        return FlatFileFaults(data_dir, picture_dir)


FLAT_FILES = Backend()
