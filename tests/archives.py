"""Helpers for backup and restore: an installation's folders, and reading and writing archives."""

import gzip
import tarfile
from pathlib import Path

from werkzeug.security import generate_password_hash

from model.kinds import CLIENTS, HANDLES
from storage import Storage, open_storage
from storage.whole.archive import backup, restore

A_HASH = generate_password_hash("correct horse battery staple", "pbkdf2:sha256:1")


class Site:
    """An installation as flat files, with its two folders in one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.pictures = folder / "data", folder / "pictures"

    def open(self) -> Storage:
        return open_storage(str(self.data), str(self.pictures))

    def backup(self, path: Path, **options) -> int:
        return backup(self.open(), str(path), "command", **options)

    def restore(self, path: Path, **options) -> int:
        return restore(self.open(), str(path), "command", **options)

    def problems(self) -> list[str]:
        """Return the problems that `check` finds."""
        return [f"{each.place}: {each.problem}" for each in self.open().verify()]

    def acts(self) -> list[str]:
        """Return the acts in the audit log."""
        return [line["act"] for line in self.open().audit.read()]

    def files(self) -> dict[str, bytes]:
        """Return the content of each file and the target of each link, by path, without locks."""
        found = {}
        for path in self.folder.rglob("*"):
            if path.is_symlink():
                found[str(path.relative_to(self.folder))] = str(path.readlink()).encode()
            elif path.is_file() and path.parent.name != "locks":
                found[str(path.relative_to(self.folder))] = path.read_bytes()
        return found


def read_archived(store: Storage) -> tuple:
    """Return what an archive has of an installation, without the audit log."""
    with store.snapshot() as snapshot:
        users = list(snapshot.users())
        for user, _ in users:
            user.sessions = []
        records = (list(snapshot.records(kind)) for kind in (CLIENTS, HANDLES))
        return users, list(snapshot.deleted_ids()), *records


Members = list[tuple[tarfile.TarInfo, bytes]]


def read_archive(path: Path) -> Members:
    """Return the headers and contents of an archive."""
    with tarfile.open(path) as archive:
        return [(member, archive.extractfile(member).read()) for member in archive]


def write_archive(path: Path, members: Members) -> None:
    """Write an archive with these headers and contents."""
    with gzip.open(path, "wb", 6) as packed:
        for header, content in members:
            packed.write(header.tobuf(tarfile.PAX_FORMAT))
            packed.write(content + bytes(-len(content) % tarfile.BLOCKSIZE))
        packed.write(bytes(2 * tarfile.BLOCKSIZE))
