"""What is wrong with a single file of an installation, and what mends it.

`storage.flat_files.check` looks at all of them. A `look_at_` yields problems and changes nothing.
"""

import contextlib
import functools
import json
import os
import pwd
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from storage import (
    AuthorizationCode,
    Client,
    DamagedRecord,
    InvalidField,
    Invite,
    NoSuchPicture,
    NotFound,
    StorageError,
    StorageFailed,
    User,
    now_ms,
    refuse_bad_record,
)
from storage.flat_files.disk import read_file, read_record
from storage.flat_files.invites import settle
from storage.flat_files.windows import window_of_now
from storage.transfer import check_hash_format
from storage.webp import webp_size

ORPHAN_AGE = 3600  # seconds: no write takes so long
TIME_END = 10**15  # milliseconds: there is room for 15 digits in the address of a picture
TIMES = ("created", "last_heartbeat", "play_ms")  # fields of a user


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file, and what was done about it."""

    file: str
    problem: str  # goes on where the file's name ends: "is missing"
    mended: str | None = None
    mend: Callable[[str], str] | None = None  # does it to the file, and returns what was done


Problems = Iterator[Problem]


def is_old(path: str) -> bool:
    """True where no write that is under way can have made this file or folder."""
    try:
        # Not the time of modification: what a write keeps of the old file is as old as that was.
        return time.time() - os.lstat(path).st_ctime > ORPHAN_AGE
    except FileNotFoundError:
        return False


def remove(path: str) -> str:
    """Remove a file or a folder, unless the server does at the same time; returns words for it."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    return "removed"


def damaged(path: str, error: StorageError) -> Problem:
    """What the error says of a record that cannot be read."""
    problem = error.problem if isinstance(error, DamagedRecord) else str(error)
    return Problem(path, f"is damaged: {problem}")


def look_at_mode(path: str, mode: int, spare: int = 0) -> Problems:
    """Permissions; bits in `spare` may be set or not. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        actual = stat.S_IMODE(os.stat(path).st_mode)
        if (actual ^ mode) & 0o777 & ~spare:
            problem = f"has the mode {actual:04o} and not {mode:04o}"
            yield Problem(path, problem, mend=functools.partial(_set_mode, mode))


def _set_mode(mode: int, path: str) -> str:
    os.chmod(path, mode)
    return f"{mode:04o} is set"


def look_at_owner(path: str, owner: int) -> Problems:
    """Whose a file is: nobody else's can be linked, or read with the mode that it should have."""
    with contextlib.suppress(OSError):  # of a file that cannot be looked at the next look tells
        actual = os.stat(path, follow_symlinks=False)
        if actual.st_uid != owner and not stat.S_ISLNK(actual.st_mode):
            # Not mended: only root could.
            yield Problem(path, f"belongs to {user_name(actual.st_uid)}: chown {user_name(owner)}")


def user_name(number: int) -> str:
    """The name of a user of this machine; the number where there is none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def look_at_link(path: str) -> Problems:
    """A link where a record should be, and leads to none."""
    if os.path.islink(path):
        yield Problem(path, "is a link that leads nowhere")


def look_at_orphan(path: str) -> Problems:
    """A name that none of the server's records and pictures has, unless it is new."""
    if is_old(path):
        if os.path.basename(path).startswith(".") and not os.path.isdir(path):
            yield Problem(path, "is a temporary file that was left behind", mend=remove)
        else:
            yield Problem(path, "is nothing that the server keeps there")


def look_at_rules(path: str, record: User | Client, fields: list[str]) -> Problems:
    """Fields whose rules must hold. (A rule that came later, on a bio's length, is no damage.)"""
    for field in fields:
        try:
            refuse_bad_record(record, {field})
        except InvalidField as error:
            yield Problem(path, str(error))


def look_at_fields(path: str, user: User) -> Problems:
    """What would break the pages of a player, and their signing in."""
    yield from look_at_rules(path, user, ["mod_level"])
    moments = {field: getattr(user, field) for field in TIMES}
    moments |= {f"grants.{client}.since": each.since for client, each in user.grants.items()}
    moments |= {f"sessions[{n}].since": each.since for n, each in enumerate(user.sessions)}
    for field, moment in moments.items():
        if not 0 <= moment < TIME_END:
            yield Problem(path, f"{field} is no time")
    if problem := check_hash_format(user.password_hash):
        yield Problem(path, f"password_hash: {problem}")


def check_picture_file(path: str, side: int) -> str | None:
    """What is wrong with a webp file that should have so many pixels along each side."""
    missing = NoSuchPicture("is missing")
    try:
        size = webp_size(read_file(path, missing))
    except (StorageError, ValueError) as error:
        return str(error)
    if size != (side, side):
        return f"has {size[0]} x {size[1]} pixels, and not {side} x {side}"
    return None


def has_picture_time(user: User) -> bool:
    """True where the address of a picture can bear its timestamp, or it has none."""
    return user.pfp_timestamp is None or 0 < user.pfp_timestamp < TIME_END


def will_be_drawn(user: User, paths: dict[str, str]) -> bool:
    """True where an imported account's missing pictures are drawn when they are first asked for.

    `paths` are by size. Where one is its own, and no drawn one that was kept, a missing one is a
    lost one.
    """
    if user.pfp_timestamp is not None:
        return False
    there = {size for size, path in paths.items() if os.path.lexists(path)}
    if not there or there == paths.keys():
        return not there
    from storage.pictures import generate_picture  # Pillow takes its time

    drawn = generate_picture(user.id)
    try:
        return all(read_file(paths[size], NotFound()) == drawn[size] for size in there)
    except StorageError:
        return False


def look_at_audit(path: str) -> Problems:
    """The audit log."""
    yield from look_at_mode(path, 0o600)
    try:
        lines = read_file(path, NotFound()).splitlines()
    except NotFound:
        return
    except StorageFailed as error:
        yield Problem(path, str(error))
        return
    for number, line in enumerate(lines, start=1):
        if not _is_act(line):
            yield Problem(path, f"has a damaged line, number {number}")


def _is_act(line: bytes) -> bool:
    """True for a line as `write_audit` adds it."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if type(values) is not dict or not {"time", "act", "by"} <= values.keys():
        return False
    if not all(type(each) in (int, str) for each in values.values()):
        return False
    moment, act = values["time"], values["act"]
    return type(act) is str and type(moment) is int and 0 <= moment < TIME_END


def look_at_invite(path: str) -> Problems:
    """An invitation."""
    yield from look_at_mode(path, 0o600)
    try:
        invite = read_record(path, Invite, NotFound())
    except NotFound:
        return
    except StorageError as error:
        yield damaged(path, error)
        return
    if now_ms() - invite.expires > ORPHAN_AGE * 1000:
        problem = "is an invitation that nobody can use any more"
        yield Problem(path, problem, mend=remove)


def look_at_taken(path: str) -> Problems:
    """The link of who takes an invitation: none is there but while an account is made."""
    if os.path.lexists(path):
        yield Problem(path, "is of a sign-up that was interrupted", mend=settle)


def look_at_code(path: str) -> Problems:
    """An authorization code."""
    yield from look_at_mode(path, 0o600)
    live, spent = (os.path.splitext(path)[0] + state for state in (".json", ".spent"))
    if path == live and os.path.exists(live) and os.path.exists(spent):
        yield Problem(path, "is live, though it was spent", mend=remove)
        return
    try:
        read_record(path, AuthorizationCode, NotFound())
    except NotFound:
        return
    except DamagedRecord as error:
        # It was never synced, so a power cut leaves any of it; and nobody can use it any more.
        yield Problem(path, f"is damaged: {error.problem}", mend=remove)
    except StorageError as error:
        yield damaged(path, error)


def newest_window(paths: list[str], window: int) -> int:
    """The number of the last of the windows, of so many seconds, whose folders are among these."""
    windows = [int(name) for name in map(os.path.basename, paths) if name.isdecimal()]
    return min(max(windows, default=0), window_of_now(window))  # a clock may have been ahead


def look_at_window(path: str, newest: int, window: int) -> Problems:
    """The folder of a window of so many seconds, where this is the newest one."""
    yield from look_at_mode(path, 0o700)
    # The one before the newest still counts; others went when that one began. In a quiet night
    # none begins, and that is well.
    behind = (newest - int(os.path.basename(path)) - 1) * window
    if behind > ORPHAN_AGE:
        yield Problem(path, "holds what counts no more", mend=remove)
