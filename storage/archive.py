"""What `storage.backup` writes and `storage.restore` reads: an installation in one file.

It is a gzipped tar archive of plain files (POSIX ustar), which come in this order:

    format                      the layout's version
    next_user_id
    users/1.json                a player; right after it the pictures of that player
    pictures/large/1-1700.webp
    pictures/medium/1-1700.webp
    pictures/small/1-1700.webp
    deleted/2
    clients/<id>.json
    audit.log                   the last: an archive without it was cut off

Never in it is what opens a door: keys, codes, invitations, and where players are signed in. Nor are
claims, which are made anew, and counted tries. What a restore would refuse a backup leaves out and
names, so that one damaged record spoils nobody else's.
"""

import contextlib
import gzip
import os
import re
import shutil
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from storage import (
    CLIENT_ID,
    PICTURE_SIZES,
    USER_ID,
    BadFile,
    DamagedRecord,
    User,
    check_mod_level,
    unique_key,
)
from storage.flat_files.backend import FROZEN, STAGED, FlatFiles
from storage.flat_files.problems import has_picture_time
from storage.flat_files.unique_index import FIELDS, can_be_key, claimed_by
from storage.webp import webp_size

PARTS = ("users", "names", "emails", "deleted", "clients")
MEMBER = re.compile(
    r"(?P<format>format)|(?P<next_user_id>next_user_id)"
    rf"|users/(?P<user>{USER_ID.pattern})\.json"
    rf"|pictures/(?P<picture>(?:{'|'.join(PICTURE_SIZES)})/[0-9-]{{1,31}}\.webp)"
    rf"|deleted/(?P<deleted>{USER_ID.pattern})"
    rf"|clients/(?P<client>{CLIENT_ID.pattern})\.json"
    r"|(?P<audit>audit\.log)"
)
PLAYERS = {"user", "deleted", "client", "audit"}
FOLLOWERS = {  # which kinds of member may come after one of this kind
    "": {"format"},
    "format": {"next_user_id"},
    "next_user_id": PLAYERS,
    "user": {"picture", *PLAYERS},
    "picture": {"picture", *PLAYERS},
    "deleted": {"deleted", "client", "audit"},
    "client": {"client", "audit"},
    "audit": set(),
}
MOST_BYTES = {
    "format": 20,
    "next_user_id": 20,
    "user": 2**20,
    "picture": 2**20,
    "deleted": 0,
    "client": 2**20,
    "audit": 2**33 - 1,  # as much as the header of a ustar archive can say
}
MOST_UNPACKED = 100  # bytes of content from each byte of an archive; records make about ten
BLOCK = tarfile.BLOCKSIZE
CHUNK = 128 * BLOCK
# What reading an archive raises that no backup wrote, or that was damaged since.
NOT_AS_WRITTEN = (
    *(DamagedRecord, tarfile.HeaderError, UnicodeDecodeError),
    *(gzip.BadGzipFile, EOFError, zlib.error),
)

Progress = Callable[[int, int], None]  # gets how much is done, and of how much
Report = Callable[[str], None]  # gets a line for a person


def ignore(*_: object) -> None:
    """Where nobody wants to know."""


# ---------------------------------------------------------------------------------------------
# The members
# ---------------------------------------------------------------------------------------------


def add_member(packed: BinaryIO, name: str, content: Iterable[bytes], size: int) -> None:
    """Write one: its header, the content, and what fills its last block. Raises DamagedRecord."""
    if size > MOST_BYTES[MEMBER.fullmatch(name).lastgroup]:
        raise DamagedRecord(name, "it is too large")
    header = tarfile.TarInfo(name)
    header.size, header.mode, header.mtime = size, 0o600, int(time.time())
    packed.write(header.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict"))
    packed.writelines(content)
    packed.write(bytes(-size % BLOCK))


def end_archive(packed: BinaryIO) -> None:
    """Write what ends an archive."""
    packed.write(bytes(2 * BLOCK))


class Members:
    """What is in an archive, in its order: the match of each name, and the content in chunks.

    Each content is to be read before the next. Raises NOT_AS_WRITTEN. Only what a backup writes is
    understood: no links, no devices, and no long names that would fill the memory.
    """

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        if not file.seekable():
            raise BadFile("a file can be restored, and no pipe: its size is looked at first")
        self._file, self._progress = file, progress
        self._size = os.fstat(file.fileno()).st_size
        self._room = MOST_UNPACKED * self._size
        self._unpacked = gzip.GzipFile(fileobj=file, mode="rb")

    def __iter__(self) -> Iterator[tuple[re.Match, Iterator[bytes]]]:
        done = 0
        while any(header := self._read(BLOCK)):
            member = tarfile.TarInfo.frombuf(header, "ascii", "strict")
            name = MEMBER.fullmatch(member.name)
            if not name or member.type != tarfile.REGTYPE:
                raise DamagedRecord(repr(member.name), "no backup has this")
            if not 0 <= member.size <= MOST_BYTES[name.lastgroup]:
                raise DamagedRecord(name[0], "it is too large")
            yield name, self._content(member.size)
            if self._file.tell() > done:
                done = self._file.tell()
                self._progress(done, self._size)
        # The rest of what ends an archive; on the way gzip's check sum is looked at.
        if self._unpacked.read(2 * BLOCK) != bytes(BLOCK):
            raise DamagedRecord("the end", "there is something behind it, or it is cut off")

    def _content(self, size: int) -> Iterator[bytes]:
        self._room -= size
        if self._room < 0:
            raise DamagedRecord("the archive", f"it unpacks to {MOST_UNPACKED} times its size")
        for start in range(0, size, CHUNK):
            length = min(size - start, CHUNK)
            yield self._read(length + -length % BLOCK)[:length]

    def _read(self, size: int) -> bytes:
        content = self._unpacked.read(size)
        if len(content) < size:
            raise EOFError("it is cut off")
        return content


# ---------------------------------------------------------------------------------------------
# What both look at
# ---------------------------------------------------------------------------------------------


def refuse_unusable(user: User) -> None:
    """Raise DamagedRecord for what the server could not work with."""
    if problem := check_mod_level(user.mod_level):
        raise DamagedRecord(f"users/{user.id}.json", f"mod_level: {problem}")
    if not has_picture_time(user):
        raise DamagedRecord(f"users/{user.id}.json", "its pfp_timestamp is no time")


def picture_names(user: User) -> list[str]:
    """What the pictures of a player are called in an archive."""
    return [f"pictures/{size}/{user.picture_file}" for size in PICTURE_SIZES]


def refuse_spoilt_picture(name: str, content: bytes) -> None:
    """Raise DamagedRecord for what is no webp picture of the size that its name says."""
    side = PICTURE_SIZES[name.split("/")[1]]
    try:
        size = webp_size(content)
    except ValueError as error:
        raise DamagedRecord(name, f"it {error}") from error
    if size != (side, side) or len(content) > MOST_BYTES["picture"]:
        raise DamagedRecord(name, f"it has {size[0]} x {size[1]} pixels, {len(content)} bytes")


# ---------------------------------------------------------------------------------------------
# Who packs and unpacks
# ---------------------------------------------------------------------------------------------


class Archivist(FlatFiles):
    """An installation that is packed or filled; one process does so at a time."""

    def __init__(
        self,
        data_dir: str,
        picture_dir: str,
        progress: Progress = ignore,
        report: Report = ignore,
    ) -> None:
        super().__init__(data_dir, picture_dir)
        self._progress, self._report = progress, report
        self._frozen, self._staged = self._path(FROZEN), self._path(STAGED)
        self._staged_pictures = f"{self.picture_dir}/{STAGED}"

    def _working(self) -> contextlib.AbstractContextManager[int]:
        return self._lock("locks", "archive")

    def sweep(self) -> bool:
        """Remove what was left by a killed backup or restore; True for a restore not yet done."""
        unfinished = os.path.exists(f"{self._staged}/users") and not self.user_ids()
        if unfinished and os.path.exists(f"{self._staged}/clients"):
            for name in os.listdir(f"{self._staged}/clients"):
                self._take_back_client(name)
        for folder in (self._frozen, self._staged, self._staged_pictures):
            shutil.rmtree(folder, ignore_errors=True)
        return unfinished

    def _take_back_client(self, name: str) -> None:
        """Remove a client that a restore put in place and nobody has changed since."""
        path = self._path("clients", name)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samefile(path, f"{self._staged}/clients/{name}"):
                os.unlink(path)

    def _make_folders(self, top: str) -> None:
        for part in PARTS:
            os.makedirs(f"{top}/{part}", 0o700)

    def _claim_in(self, top: str, user: User) -> None:
        """Claim a player's name and email address in a folder. Raises DamagedRecord."""
        record = f"users/{user.id}.json"
        for kind, text in claimed_by(user):
            key = unique_key(text)
            if not can_be_key(kind, key):
                raise DamagedRecord(record, f"nobody can be found by its {FIELDS[kind]}")
            claim = f"{top}/{kind}/{os.path.basename(self._claims.path(kind, key))}"
            try:
                os.symlink(f"../{record}", claim)
            except FileExistsError:
                other = os.path.basename(os.readlink(claim))
                problem = f"its {FIELDS[kind]} is that of users/{other}"
                raise DamagedRecord(record, problem) from None
