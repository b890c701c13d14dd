"""Helpers for backup and restore: an installation's folders, and reading and writing archives."""

import gzip
import tarfile
from dataclasses import dataclass
from pathlib import Path

from backends import FLAT_FILES, Backend
from werkzeug.security import generate_password_hash

from storage import Storage
from storage.archive import backup, restore
from storage.records import PICTURE_SIZES

A_HASH = generate_password_hash("correct horse battery staple", "pbkdf2:sha256:1")


@dataclass
class Site:
    """An installation with two folders, or on another backend named by them."""

    folder: Path
    backend: Backend = FLAT_FILES

    def __post_init__(self) -> None:
        self.data, self.pictures = self.folder / "data", self.folder / "pictures"
        self.folders = str(self.data), str(self.pictures)

    def open(self) -> Storage:
        return self.backend.open(*self.folders)

    def backup(self, path: Path, **options) -> int:
        return backup(self.open(), str(path), "command", **options)

    def restore(self, path: Path, **options) -> int:
        return restore(self.open(), str(path), "command", **options)

    def problems(self) -> list[str]:
        """Return the problems that `check` finds."""
        return [f"{each.place}: {each.problem}" for each in self.open().verify()]

    def players(self) -> list[tuple]:
        """Return every user's record, without sessions, and pictures."""
        store = self.open()
        return [_read_player(store, user_id) for user_id in store.users.ids()]

    def deleted_ids(self) -> list[int]:
        """Return the ids of deleted users."""
        with self.open().snapshot() as snapshot:
            list(snapshot.users())
            return list(snapshot.deleted_ids())

    def acts(self) -> list[str]:
        """Return the acts in the audit log."""
        return [line["act"] for line in self.open().audit.read()]

    def files(self) -> dict[str, bytes]:
        """Return the content of each file and the target of each link, by path, without locks.

        On another backend, everything that is stored.
        """
        if self.backend is not FLAT_FILES:
            return self.backend.faults(*self.folders).stored()
        found = {}
        for path in (path for top in (self.data, self.pictures) for path in top.rglob("*")):
            if path.is_symlink():
                found[str(path.relative_to(self.folder))] = str(path.readlink()).encode()
            elif path.is_file() and path.parent.name != "locks":
                found[str(path.relative_to(self.folder))] = path.read_bytes()
        return found


def _read_player(store: Storage, user_id: int) -> tuple:
    user = store.users.read(user_id)
    assert store.users.find_by_login(user.name) == store.users.find_by_login(user.email) == user
    user.sessions = []
    return user, [store.pictures.read(size, user.picture_file)[0] for size in PICTURE_SIZES]


Members = list[tuple[tarfile.TarInfo, bytes]]


def read_archive(path: Path) -> Members:
    """Return the headers and contents of an archive."""
    with tarfile.open(path) as archive:
        return [(member, archive.extractfile(member).read()) for member in archive]


def write_archive(path: Path, members: Members, end: bytes = bytes(1024)) -> None:
    """Write an archive with these headers and contents."""
    with gzip.open(path, "wb", 6) as packed:
        for header, content in members:
            packed.write(header.tobuf(tarfile.PAX_FORMAT))
            packed.write(content + bytes(-len(content) % tarfile.BLOCKSIZE))
        packed.write(end)
