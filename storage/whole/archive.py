"""Backup and restore: an installation in one file, for every backend.

It is a gzipped tar archive of plain files (POSIX ustar), which come in this order:

    format                      the version of the archive's own format
    next_user_id
    users/1.json                a player; right after it the pictures of that player
    pictures/large/1-1700.webp
    pictures/medium/1-1700.webp
    pictures/small/1-1700.webp
    deleted/2
    clients/<id>.json
    handles/<handle>.json
    audit.log                   the last: an archive without it was cut off

An archive never holds keys, codes, or where players are signed in. Of an invitation it holds a hash
alone. Indexes, which are made anew, and counted attempts are left out. A backup leaves out and
names what a restore would refuse, so that a damaged record affects no other.
"""

import functools
import gzip
import io
import itertools
import os
import re
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from model import kinds
from model.addresses import check_email
from model.encoding import decode_record, encode_values, record_as_dict
from model.errors import BadFile, BadInstallation, DamagedRecord
from model.kind import Kind
from model.records import PICTURE_SIZES, User
from model.rules import IDS_LEFT_OUT, TIME_END, USER_ID
from model.soundness import (
    LONGEST_AUDIT_LINE,
    MAX_PICTURE_BYTES,
    check_audit_line,
    check_picture,
    needs_picture,
    require_sound,
)
from storage import Storage
from storage.files import input_file, output_file, translate_os_errors
from storage.maintenance import Load, Progress, Report, Snapshot, ignore

VERSION = 6  # of the format; it rises with the list of kinds, and when members may be missing


class Part(NamedTuple):
    """A part of an archive: the members in one folder, or a single file."""

    name: str  # pattern
    most_bytes: int  # of a member


def archived_kinds() -> dict[str, Kind]:
    """Return the kinds of records in an archive, by name."""
    return {each.name: each for each in kinds.KINDS if each.archived}


@functools.lru_cache(maxsize=4)
def _parts_of(*archived: Kind) -> dict[str, Part]:
    """Return the parts of an archive by their first name, in their order."""
    records = {
        kind.name: Part(rf"{kind.name}/(?:{kind.id.pattern})\.json", kind.most_bytes)
        for kind in archived
    }
    picture = rf"pictures/(?:{'|'.join(PICTURE_SIZES)})/[0-9-]{{1,31}}\.webp"
    return {
        "format": Part("format", 20),
        "next_user_id": Part("next_user_id", 20),
        "users": records.pop("users"),
        "pictures": Part(picture, MAX_PICTURE_BYTES),
        "deleted": Part(rf"deleted/{USER_ID.pattern}", 0),
        **records,
        "audit.log": Part(r"audit\.log", 2**33 - 1),  # as much as the header of ustar can say
    }


def parts() -> dict[str, Part]:
    """Return the parts of an archive by their first name, in their order."""
    return _parts_of(*archived_kinds().values())


def part_of(name: str) -> str | None:
    """Return the part that a member of this name belongs to, None if no backup has it."""
    first, known = name.partition("/")[0], parts()
    return first if first in known and re.fullmatch(known[first].name, name) else None


# Bytes of headers and contents for each byte of an archive. Records have about ten, and the empty
# members of deleted players 72.
MOST_UNPACKED = 100
NUMBER = re.compile(rb"[1-9][0-9]{0,14}\s*")
# Raised for an archive that no backup wrote, or that was damaged since.
NOT_AS_WRITTEN = (
    *(DamagedRecord, tarfile.TarError, UnicodeDecodeError),
    *(gzip.BadGzipFile, EOFError, zlib.error),
)


# -- backup ----------------------------------------------------------------------------------------


def backup(
    store: Storage, path: str, by: int | str, progress: Progress = ignore, report: Report = ignore
) -> int:
    """Pack an installation into an `output_file`, new and its owner's; return how many players.

    No account is added or deleted while the snapshot is made; then everything goes on. `report`
    gets a line for each thing that is left out. Raises BadFile if the file exists, BadInstallation.
    """
    if store.is_empty():
        raise BadInstallation(
            "there are no players and no clients to back up: see `identity-server settings`"
        )
    with (
        translate_os_errors(),
        output_file(path) as file,
        store.snapshot(lambda: store.audit.write("backup", by), report, progress) as snapshot,
        gzip.GzipFile("", "wb", 6, file) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.USTAR_FORMAT) as archive,
    ):
        return _pack(snapshot, archive, report)


def _pack(snapshot: Snapshot, archive: tarfile.TarFile, report: Report) -> int:
    """Add everything of a snapshot to an archive; return the number of players."""
    players = 0
    _add(archive, "format", b"%d\n" % VERSION)
    _add(archive, "next_user_id", b"%d\n" % snapshot.next_user_id)
    for user, pictures in snapshot.users():
        user.forget_sign_ins()
        if _add_record(archive, f"users/{user.id}.json", user, report):
            players += 1
            for name, size in picture_names(user).items() if pictures else ():
                _add(archive, name, pictures[size])
    for user_id in snapshot.deleted_ids():
        _add(archive, f"deleted/{user_id}", b"")
    for kind in archived_kinds().values():
        for record in snapshot.records(kind) if kind is not kinds.USERS else ():
            _add_record(archive, f"{kind.name}/{record.id}.json", record, report)
    with tempfile.TemporaryFile() as log:  # tar has the size before the content
        for number, line in enumerate(snapshot.audit_lines(), start=1):
            if problem := check_audit_line(line):  # a restore would refuse it
                report(f"audit.log, line {number}: {problem}: left out")
            else:
                log.write(line)
        _add_file(archive, "audit.log", log)
    return players


def _add_record(archive: tarfile.TarFile, name: str, record: Any, report: Report) -> bool:
    """Add a record and return True, or report that it is too large for a restore."""
    try:
        _add(archive, name, encode_values(record_as_dict(record, stored=True)))
    except DamagedRecord as error:
        report(f"{error}: left out")
        return False
    return True


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    _add_file(archive, name, io.BytesIO(content))


def _add_file(archive: tarfile.TarFile, name: str, file: BinaryIO) -> None:
    """Add a member. Raises DamagedRecord if it is larger than a restore takes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = file.seek(0, os.SEEK_END), 0o600, int(time.time())
    if member.size > parts()[part_of(name)].most_bytes:
        raise DamagedRecord(name, "it is too large")
    file.seek(0)
    archive.addfile(member, file)
    archive.members.clear()  # else it keeps all of them in memory


def picture_names(user: User) -> dict[str, str]:
    """Return the size of each picture of a player by its name in an archive."""
    return {f"pictures/{size}/{user.picture_file}": size for size in PICTURE_SIZES}


# -- restore ---------------------------------------------------------------------------------------


def restore(
    store: Storage, path: str, by: int | str, progress: Progress = ignore, report: Report = ignore
) -> int:
    """Load an `input_file` into an empty installation; return how many players.

    All of it is verified first. Killed at any moment it leaves an installation without players, in
    which it can be repeated, or one with all of them. Raises BadFile, BadInstallation.
    """

    def write_audit() -> None:
        store.audit.write("restore", by)
        store.audit.write("key drop-old", by)

    with translate_os_errors(), input_file(path) as file, store.load(write_audit, report) as load:
        try:
            return _unpack(file, load, progress, report)
        except NOT_AS_WRITTEN as error:
            raise BadFile(f"{path} cannot be restored: {error}") from error


class Member(tarfile.TarInfo):
    """A member of an archive, refused by its header if no backup writes it.

    tarfile would read the names and attributes that other types hold into memory.
    """

    part: str  # as `part_of` returns it

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "Member":
        """Return the next member. Raises DamagedRecord if no backup writes it."""
        # A `frombuf` of our own is not called any more: python/cpython issue 141707
        block = archive.fileobj.read(tarfile.BLOCKSIZE)
        member = cls.frombuf(block, archive.encoding, archive.errors)
        member.part = part = part_of(member.name)
        if part is None or member.type != tarfile.REGTYPE:
            raise DamagedRecord(repr(member.name), "no backup has this")
        if not 0 <= member.size <= parts()[part].most_bytes:
            raise DamagedRecord(member.name, "it is too large")
        member.offset_data = archive.fileobj.tell()
        archive.offset = member.offset_data + member.size + -member.size % tarfile.BLOCKSIZE
        return member


def _members(file: BinaryIO, progress: Progress) -> Iterator[tuple[str, str, BinaryIO]]:
    """Yield the part, the name and the content of each member. Raises NOT_AS_WRITTEN."""
    if not file.seekable():
        raise BadFile("a file can be restored, and no pipe: its size is looked at first")
    size, done, end = os.fstat(file.fileno()).st_size, 0, 0
    room = MOST_UNPACKED * size
    unpacked = gzip.GzipFile(fileobj=file, mode="rb")
    options = {"tarinfo": Member, "encoding": "ascii", "errors": "strict"}
    with tarfile.open(fileobj=unpacked, mode="r|", **options) as archive:
        while member := archive.next():
            archive.members.clear()  # else it keeps all of them in memory
            room -= tarfile.BLOCKSIZE + member.size  # of a header alone, too
            if room < 0:
                raise DamagedRecord("the archive", f"it unpacks to {MOST_UNPACKED} times its size")
            end = archive.offset
            yield member.part, member.name, archive.extractfile(member)
            if file.tell() > done:
                done = file.tell()
                progress(done, size)
    # tarfile takes any block that is not a header for the end, and does not read what follows: two
    # blocks of zeros are the mark of the end, and more may fill the last record.
    unpacked.seek(end)
    rest, mark = unpacked.read(2 * tarfile.RECORDSIZE), 2 * tarfile.BLOCKSIZE
    padding = -(end + mark) % tarfile.RECORDSIZE
    if rest.strip(b"\0") or len(rest) not in (mark, mark + padding):
        raise DamagedRecord("the end", "there is something behind it, or it is cut off")


def _unpack(file: BinaryIO, load: Load, progress: Progress, report: Report) -> int:
    """Verify every member and load it; return the number of players. Raises NOT_AS_WRITTEN."""
    players = largest_id = next_id = 0
    order, last, seen = list(parts()), "format", set()
    user: User | None = None  # loaded when all the pictures are there
    pictures: dict[str, bytes] = {}
    for part, name, content in _members(file, progress):
        follows = order.index(part) >= order.index(last) or (last, part) == ("pictures", "users")
        lacks_format = part != "format" and not seen
        if not follows or name in seen or lacks_format or (part == "pictures" and not user):
            raise DamagedRecord(name, "it is out of place")
        last = part
        seen.update({name} & parts().keys())  # a single file
        if part == "pictures":
            pictures |= _read_picture(name, content.read(), user, pictures)
            continue
        if user:
            _load_user(load, user, pictures, report)
            user, pictures = None, {}
        if part == "format":
            _require_known_version(_read_number(name, content))
        elif part == "next_user_id":
            next_id = _read_number(name, content)
        elif part == "deleted":
            user_id = int(os.path.basename(name))
            load.add_deleted_id(user_id)
            largest_id = max(largest_id, user_id)
        elif part == "audit.log":
            load.add_audit_log(_checked_lines(name, content))
        else:
            record = _read_record(archived_kinds()[part], name, content)
            if part == "users":
                user = record
                players, largest_id = players + 1, max(largest_id, user.id)
            else:
                load.add(archived_kinds()[part], record)
    if not {"next_user_id", "audit.log"} <= seen:
        raise EOFError("it is cut off")
    load.next_user_id = max(next_id, largest_id + 1) + IDS_LEFT_OUT
    if load.next_user_id >= TIME_END:
        raise DamagedRecord("next_user_id", "it is too large")
    return players


def _require_known_version(version: int) -> None:
    if version > VERSION:
        known = f"it is version {version}, and this program knows {VERSION}"
        raise DamagedRecord("format", known)


def _read_record(kind: Kind, name: str, content: BinaryIO) -> Any:
    """Return the record in a member. Raises DamagedRecord, also if it could do harm."""
    record_id = kind.parse_id(os.path.basename(name).removesuffix(".json"))
    record = decode_record(content.read(), kind.record, name, id=record_id)
    require_sound(kind, record)
    return record


def _load_user(load: Load, user: User, pictures: dict[str, bytes], report: Report) -> None:
    """Load a player, without sessions. Raises DamagedRecord if a picture is missing."""
    if pictures.keys() != PICTURE_SIZES.keys() and (pictures or needs_picture(user)):
        raise DamagedRecord(f"users/{user.id}.json", "a picture is missing")
    user.forget_sign_ins()
    user.pfp_generated = not pictures
    if problem := check_email(user.email):  # the player can sign in with it all the same
        user.email_verified = False
        report(f"users/{user.id}.json: email: {problem} It counts as not confirmed")
    load.add_user(user, pictures)


def _checked_lines(name: str, log: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of an audit log. Raises DamagedRecord for one that could do harm."""
    for number in itertools.count(1):
        line = log.readline(LONGEST_AUDIT_LINE + 1)
        if not line:
            return
        if problem := check_audit_line(line):
            raise DamagedRecord(f"{name}, line {number},", problem)
        yield line


def _read_picture(
    name: str, content: bytes, user: User, pictures: dict[str, bytes]
) -> dict[str, bytes]:
    """Return a picture by its size; `pictures` has those before it. Raises DamagedRecord."""
    size = picture_names(user).get(name)
    if size is None or size in pictures:
        raise DamagedRecord(name, "it is not one of the player before it")
    if problem := check_picture(size, content):
        raise DamagedRecord(name, f"it {problem}")
    return {size: content}


def _read_number(name: str, content: BinaryIO) -> int:
    text = content.read()
    if not NUMBER.fullmatch(text):
        raise DamagedRecord(name, "it is not a number")
    return int(text)
