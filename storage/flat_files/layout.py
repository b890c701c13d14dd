"""The layout of an installation: its folders, the path of each file, and the locks.

docs/storage.md shows all of it. `serve` keeps a file `address` in the data folder as well
(commands/address.py), which is no part of the storage.
"""

import contextlib
import os
import re
import threading
import zlib
from collections.abc import Iterator

from model import kinds
from model.errors import BadInstallation, NotFound
from model.kind import Kind
from model.records import PICTURE_SIZES, picture_file_of
from model.rules import PICTURE_FILE
from storage.flat_files import key_list
from storage.flat_files.disk import locked, make_folder, read_file, write_file

LAYOUT_VERSION = 1
NUMBER = re.compile(rb"[1-9][0-9]{0,14}")
STAGED = ".restore"  # the temporary folder of a restore, also in the picture folder

Lock = contextlib.AbstractContextManager[int]


class Layout:
    """The paths and the locks below a data folder and a picture folder."""

    def __init__(self, data_dir: str, picture_dir: str) -> None:
        self.data_dir = os.path.abspath(data_dir)
        self.picture_dir = os.path.abspath(picture_dir)
        self.users = f"{self.data_dir}/users"  # the folder of the users' records
        self._editing = threading.local()

    # -- paths ---------------------------------------------------------------------------------

    def path(self, *parts: str) -> str:
        """Return a path in the data folder."""
        return "/".join((self.data_dir, *parts))

    def user(self, user_id: int) -> str:
        """Return the path of a user's record."""
        return f"{self.users}/{user_id}.json"

    def deleted(self, user_id: int) -> str:
        """Return the path of the file that marks a deleted user's id."""
        return self.path("deleted", str(user_id))

    def picture_folders(self) -> list[str]:
        """Return the folder of each picture size."""
        return [f"{self.picture_dir}/{size}" for size in PICTURE_SIZES]

    def pictures(self, user_id: int, timestamp: int | None) -> dict[str, str]:
        """Return the paths of one generation of a user's picture, by size."""
        name = picture_file_of(user_id, timestamp)
        return {size: f"{self.picture_dir}/{size}/{name}" for size in PICTURE_SIZES}

    def data_folders(self) -> list[str]:
        """Return every folder in the data folder, parents first."""
        names = []
        for kind in kinds.KINDS:
            names += [kind.name, *(unique.folder for unique in kind.unique), f"index/{kind.name}"]
            indexes = kind.keys[len(kind.unique) :]
            names += [f"index/{kind.name}/{index.name}" for index in indexes]
        names += ["deleted", "codes", "attempts", "playing", "locks"]
        return [self.path(name) for name in ("index", *names)]

    def key_logs(self) -> list[str]:
        """Return the log of each ordered unique key (`storage.flat_files.key_list`)."""
        ordered = [unique for kind in kinds.KINDS for unique in kind.unique if unique.ordered]
        return [self.path(f"{unique.folder}.log") for unique in ordered]

    def folders(self) -> dict[str, int]:
        """Return every folder with its mode, parents first."""
        data = dict.fromkeys(self.data_folders(), 0o700)
        pictures = dict.fromkeys(self.picture_folders(), 0o755)
        return {self.data_dir: 0o700, self.picture_dir: 0o755} | data | pictures

    # -- the installation as a whole -----------------------------------------------------------

    def make_folders(self) -> None:
        """Make the missing folders. Repeatable: a start may be killed at any step.

        Raises BadInstallation, OSError.
        """
        self.version()
        self.require_users()
        for folder, mode in self.folders().items():
            make_folder(folder, mode)
        for log in self.key_logs():
            if not os.path.exists(log):
                key_list.renew(log)

    def require_users(self) -> None:
        """Raise BadInstallation if the folder of the users' records is lost."""
        if folder := self.folder_of_lost_users():
            # In a new, empty folder every index entry and picture would seem to have no owner.
            raise BadInstallation(
                f"{self.users} is missing, and {folder} had players: put it back, mount its disk, "
                f"or move {folder} away for a new site or a restore"
            )

    def folder_of_lost_users(self) -> str | None:
        """Return a folder with traces of players if that of their records is missing, or None."""
        # A restore that failed has moved the folder back to its staging folder.
        if any(map(os.path.isdir, (self.users, self.path(STAGED, "users")))):
            return None
        if os.path.exists(self.path("next_user_id")):
            return self.data_dir
        for folder in filter(os.path.isdir, self.picture_folders()):
            if any(map(PICTURE_FILE.fullmatch, os.listdir(folder))):
                return self.picture_dir
        return None

    def version(self) -> int:
        """Return the layout's version; 0 before the first start has ended.

        Raises BadInstallation if a newer program made this layout.
        """
        try:
            content = read_file(self.path("format"), NotFound()).strip()
        except NotFound:
            return 0
        if not NUMBER.fullmatch(content):
            raise BadInstallation(f"{self.path('format')} holds no version number")
        version = int(content)
        if version > LAYOUT_VERSION:
            raise BadInstallation(
                f"{self.data_dir} has layout {version} and this program knows {LAYOUT_VERSION}: "
                "run the newer program that made it"
            )
        return version

    def record_version(self) -> None:
        """Write the version of the layout, last of all: what has none was never whole."""
        if self.version() == 0:
            write_file(self.path("format"), b"%d\n" % LAYOUT_VERSION)

    # -- locks, in this order: archive, administrators, a kind, a record of it, keys, audit ----

    def kind_lock(self, kind: Kind) -> Lock:
        """Return the lock held while records are added or deleted, or unique keys changed."""
        return self.lock(kind.name)

    def record_lock(self, kind: Kind, record_id: int | str) -> Lock:
        """Return the lock of one record; of a kind with one lock it is that of the kind."""
        return self.lock(self.lock_names(kind, record_id)[-1])

    def lock_names(self, kind: Kind, record_id: int | str) -> list[str]:
        """Return the names of the locks of a kind and of one record, which may be the same."""
        if kind.locks == 1:
            return [kind.name]
        number = record_id if kind.number else zlib.crc32(record_id.encode())
        return [kind.name, f"{kind.name}-{number % kind.locks}"]

    def record_locks(self, kind: Kind) -> list[Lock]:
        """Return the locks of single records of a kind that has several locks."""
        numbers = range(kind.locks) if kind.locks > 1 else ()
        return [self.lock(f"{kind.name}-{number}") for number in numbers]

    def lock(self, name: str) -> Lock:
        """Return a lock by its name.

        "archive": one backup or restore runs at a time. "administrators": held while the last
        administrator may be lost. "keys": the signing keys.
        """
        if getattr(self._editing, "now", False):
            raise RuntimeError("edits never nest: two threads could each wait for the other")
        return self.inner_lock(name)

    def audit_lock(self) -> Lock:
        """Return the lock of the audit log, which may be taken inside an edit."""
        # Not the log's own file: a restore replaces it.
        return self.inner_lock("audit")

    def inner_lock(self, name: str) -> Lock:
        """Return a lock that may be taken inside an edit: its holders take no lock of records."""
        return locked(self.path("locks", name))

    @contextlib.contextmanager
    def editing(self) -> Iterator[None]:
        """Mark this thread as editing a record: taking another lock then raises RuntimeError."""
        self._editing.now = True
        try:
            yield
        finally:
            self._editing.now = False
