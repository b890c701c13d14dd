"""Export and import of players, one a line.

A line is JSON in the shape of `GET /api/users/info`, with what an administrator knows besides:
email, suspended, created and, on demand, passwordHash. Times are milliseconds since 1970 UTC. An
imported file may be from anyone, and every field is checked.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from storage import Storage
from storage.encoding import BadValue, build_record
from storage.errors import (
    AlreadyThere,
    BadFile,
    DamagedRecord,
    InvalidField,
    NoSuchUser,
    PictureRefused,
    StorageError,
    StorageFailed,
)
from storage.files import output_file, translate_os_errors
from storage.kinds import USERS
from storage.maintenance import Progress, Report, Steps
from storage.names import normal_name
from storage.records import Suspension, User, now_ms
from storage.rules import (
    PASSWORD_METHOD,
    WRAPPED,
    check_flair,
    check_hash_format,
    drop_hidden,
    refuse,
)

FIELDS = {  # of a line, and of the record
    "name": "name",
    "id": "id",
    "bio": "bio",
    "flairs": "flairs",
    "equippedFlair": "equipped_flair",
    "playMinutes": "play_ms",
    "lastHeartbeat": "last_heartbeat",
    "modLevel": "mod_level",
    "pfpTimestamp": "pfp_timestamp",
    "email": "email",
    "suspended": "suspended",
    "created": "created",
    "passwordHash": "password_hash",
}
FIELDS_OF_RECORD = {field: name for name, field in FIELDS.items()}
NEEDED = ("id", "name")
LONGEST_LINE = 2**16  # bytes
LARGEST_ID = 10**14 - 1  # ids have up to 15 digits: this leaves nine tenths of them for later
MOST_PLAY = 10**9  # minutes
CLOCK_SKEW = 86_400_000  # milliseconds that a time may lie ahead
MOST_FLAIRS = 500
PICTURE_ENDINGS = ("webp", "png", "jpg", "jpeg", "gif")


@dataclass
class ImportResult:
    """What became of the lines of a file."""

    added: int = 0
    there: int = 0  # before; the file was imported already, or a part of it
    refused: int = 0


class LineRefused(StorageError):
    """A line that describes no player."""


# -- export -------------------------------------------------------------------------------------


def export_users(
    store: Storage,
    path: str,
    by: int | str,
    with_passwords: bool,
    progress: Progress,
    report: Report,
) -> int:
    """Write all players to an `output_file`, new and its owner's; return the number of players.

    `report` gets a line for each whose record cannot be read. Raises BadFile if the file exists.
    """
    players = 0
    with translate_os_errors(), output_file(path) as file:
        store.audit.write("export passwords" if with_passwords else "export", by)
        user_ids = store.users.ids()
        for user_id in Steps(progress, len(user_ids)).each(user_ids):
            try:
                user = store.users.read(user_id)
            except NoSuchUser:
                continue  # deleted since
            except (DamagedRecord, StorageFailed) as error:
                report(f"{error}: not exported")
            else:
                file.write(write_line(user, with_passwords))
                players += 1
    return players


def write_line(user: User, with_password: bool) -> bytes:
    """Return a player as a line of the file."""
    values = exported_fields(user)
    if with_password and user.password_hash:
        values["passwordHash"] = user.password_hash
    return (json.dumps(values, ensure_ascii=False) + "\n").encode()


def exported_fields(user: User) -> dict:
    """Return the fields of a line but the password hash; play time is in whole minutes."""
    values = {name: getattr(user, field) for name, field in FIELDS.items()}
    values["playMinutes"] //= 60_000
    del values["passwordHash"]
    if user.pfp_timestamp is None:
        del values["pfpTimestamp"]
    return values


# -- import -------------------------------------------------------------------------------------


def import_users(
    store: Storage,
    file: BinaryIO,
    pictures: str | None,
    by: int | str,
    progress: Progress,
    refused: Callable[[int, str], None],
    wrap_hash: Callable[[str], str],
) -> ImportResult:
    """Add the players that the lines of a file describe, with pictures from a folder.

    `refused` gets the number of each refused line, and the reason. `wrap_hash` makes our hash of a
    password hash of another method. An import that was interrupted can be repeated: a player who
    exists already is counted as that.
    """
    result = ImportResult()
    if not file.seekable():
        raise BadFile("a file can be imported, and no pipe: it is read twice")
    with translate_os_errors():
        store.audit.write("import", by)
        lines, largest_id = survey(file)
        # Before the first line: else somebody who signs up now gets the id of a later one.
        store.users.reserve_ids(largest_id)
        file.seek(0)
        for number, line in Steps(progress, lines).each(_numbered_lines(file)):
            problem = _add_player(store, line, pictures, wrap_hash)
            if problem is None:
                result.added += 1
            elif isinstance(problem, AlreadyThere):
                result.there += 1
            else:
                result.refused += 1
                refused(number, _describe(problem))
    return result


def survey(file: BinaryIO) -> tuple[int, int]:
    """Return the number of the last line and the largest id in a file, each 0 if there is none."""
    last = largest_id = 0
    for number, line in _numbered_lines(file):
        last = number
        with contextlib.suppress(LineRefused):
            user_id = _read_object(line).get("id")
            if type(user_id) is int and user_id <= LARGEST_ID:
                largest_id = max(largest_id, user_id)
    return last, largest_id


def _numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not blank; of one that is too long only a part, still too long."""
    for number in itertools.count(1):
        line = file.readline(LONGEST_LINE + 1)
        rest = line
        while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE + 1)
        if not line:
            return
        if line.strip():
            yield number, line


def _add_player(
    store: Storage, line: bytes, folder: str | None, wrap_hash: Callable[[str], str]
) -> StorageError | None:
    """Add the player of a line, who is on the disk then; return what refuses the line.

    Raises StorageFailed if nothing can be saved.
    """
    try:
        user = read_line(line)
        store.users.require_new(user)  # now: pictures and hashes take long
        pictures = make_picture_of(user, folder) if folder else None
    except StorageError as error:
        return error
    if pictures is None:
        user.pfp_timestamp, user.pfp_generated = None, True  # no picture was at that address
    is_ours = user.password_hash.startswith((WRAPPED, f"{PASSWORD_METHOD}$"))
    if user.password_hash and not is_ours:
        user.password_hash = wrap_hash(user.password_hash)
    try:
        store.users.insert(user, pictures)
    except (AlreadyThere, InvalidField) as error:  # of somebody who was faster
        return error
    return None


def _describe(error: StorageError) -> str:
    if isinstance(error, InvalidField):
        return f"{FIELDS_OF_RECORD.get(error.field, error.field)}: {error.problem}"
    return str(error)


def read_line(line: bytes) -> User:
    """Return the player that a line describes. Raises LineRefused, InvalidField."""
    values = _read_object(line)
    for name in values:
        if name not in FIELDS:
            raise LineRefused(f"there is no field {name[:40]!r}")
    for name in NEEDED:
        if name not in values:
            raise LineRefused(f"{name} is missing")
    record = {"email": "", "password_hash": ""} | {
        FIELDS[name]: value for name, value in values.items()
    }
    suspended = record.pop("suspended", False)
    if type(suspended) is not bool:
        raise InvalidField("suspended", "This has the wrong type.")
    try:
        user = build_record(User, record)
    except BadValue as error:
        raise InvalidField(error.field, error.problem) from error
    if suspended:
        user.suspension = Suspension(by=None, since=0)
    user.name, user.email = normal_name(user.name), user.email.strip()
    user.bio = drop_hidden(user.bio)  # other servers may accept hidden characters
    user.play_ms *= 60_000  # a line has minutes
    refuse_bad_fields(user)
    return user


def _read_object(line: bytes) -> dict:
    if len(line) > LONGEST_LINE:
        raise LineRefused(f"it is longer than {LONGEST_LINE} bytes")
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise LineRefused("it is not JSON") from None
    if type(values) is not dict:
        raise LineRefused("it is no JSON object")
    return values


def refuse_bad_fields(user: User) -> None:
    """Raise InvalidField for a value that no player may have."""
    if not 0 < user.id <= LARGEST_ID:
        raise InvalidField("id", f"Use a number from 1 to {LARGEST_ID}.")
    # A moderator's reset gave this name, which nobody can choose.
    was_reset = user.name == f"player{user.id}"
    USERS.refuse_broken_rules(user, USERS.rules(user).keys() - ({"name"} if was_reset else set()))
    for flair in user.flairs:
        refuse("flairs", check_flair(flair))
    if len(set(user.flairs)) < len(user.flairs) or len(user.flairs) > MOST_FLAIRS:
        raise InvalidField("flairs", f"Use up to {MOST_FLAIRS} different flairs.")
    latest = now_ms() + CLOCK_SKEW
    for field, earliest in (("created", 0), ("last_heartbeat", 0), ("pfp_timestamp", 1)):
        time = getattr(user, field)
        if time is not None and not earliest <= time <= latest:
            raise InvalidField(field, "Use milliseconds since 1970, not in the future.")
    if not 0 <= user.play_ms <= MOST_PLAY * 60_000:
        raise InvalidField("play_ms", f"Use a number from 0 to {MOST_PLAY}.")
    refuse("password_hash", check_hash_format(user.password_hash))


def make_picture_of(user: User, folder: str) -> dict[str, bytes] | None:
    """Return the pictures of a player who has one in a folder. Raises PictureRefused."""
    from storage.pictures import MAX_BYTES, make_picture

    names = [f"{user.id}.{ending}" for ending in PICTURE_ENDINGS]
    # Or the folder is the picture folder of another server.
    names += [f"large/{user.picture_file}", f"large/{user.id}.webp"]
    path = next(filter(os.path.isfile, (f"{folder}/{name}" for name in names)), None)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            upload = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PictureRefused(f"{path}: {error.strerror}") from error
    try:
        return make_picture(upload)
    except PictureRefused as error:
        raise PictureRefused(f"{path}: {error}") from error
