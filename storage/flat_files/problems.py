"""What is wrong with a single file of an installation, and what repairs it.

A `look_at_` function yields findings and changes nothing.
"""

import contextlib
import functools
import os
import pwd
import shutil
import stat
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from storage import (
    Client,
    DamagedRecord,
    InvalidField,
    NotFound,
    StorageFailed,
    User,
    refuse_bad_record,
)
from storage.flat_files.invites import settle
from storage.flat_files.layout import Layout

ORPHAN_AGE = 3600  # seconds: no write takes so long


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a file."""

    file: str
    problem: str  # continues a sentence that begins with the file: "is missing"
    repair: Callable[[str], str] | None = None  # repairs the file, and returns what was done


Findings = Iterator[Finding]


def is_old(path: str) -> bool:
    """Return True if no write that is under way can have made this file or folder."""
    try:
        # Not the time of modification: a hard link to an older file keeps it.
        return time.time() - os.lstat(path).st_ctime > ORPHAN_AGE
    except FileNotFoundError:
        return False


def remove(path: str) -> str:
    """Remove a file or a folder, unless the server does at the same time."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    return "removed"


def look_at_access(path: str, mode: int, owner: int, spare: int = 0) -> Findings:
    """Look at permissions, of which bits in `spare` may be set or not, and at the owner."""
    with contextlib.suppress(FileNotFoundError):
        actual = os.stat(path)
        if stat.S_ISDIR(actual.st_mode) and not mode & 0o111:
            return  # in place of a file: another look tells
        if (actual.st_mode ^ mode) & 0o777 & ~spare:
            problem = f"has the mode {stat.S_IMODE(actual.st_mode):04o} and not {mode:04o}"
            yield Finding(path, problem, functools.partial(_set_mode, mode))
        if actual.st_uid != owner:  # only root could repair it
            yield Finding(path, f"belongs to {user_name(actual.st_uid)}: chown {user_name(owner)}")


def _set_mode(mode: int, path: str) -> str:
    os.chmod(path, mode)
    return f"{mode:04o} is set"


def user_name(number: int) -> str:
    """Return the name of a user of this machine; the number if there is none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def look_at_orphan(path: str) -> Findings:
    """Look at a file whose name the server does not use, unless it is new."""
    if is_old(path):
        if os.path.basename(path).startswith(".") and not os.path.isdir(path):
            yield Finding(path, "is a temporary file that was left behind", remove)
        else:
            yield Finding(path, "is nothing that the server keeps there")


def look_at_record(
    read: Callable, layout: Layout, record_id: int | str, path: str
) -> Generator[Finding, None, User | Client | None]:
    """Return the record that `read` returns; None if it cannot be read."""
    try:
        return read_or_damaged(read, layout, record_id)
    except DamagedRecord as error:
        yield Finding(path, f"is damaged: {error.problem}")
    except NotFound:
        if os.path.islink(path):
            yield Finding(path, "is a link that leads nowhere")
    return None


def read_or_damaged(read: Callable, layout: Layout, record_id: int | str):
    """Return a record; one that the disk refuses counts as damaged.

    Raises NotFound, DamagedRecord.
    """
    try:
        return read(layout, record_id)
    except StorageFailed as error:
        raise DamagedRecord(str(record_id), str(error)) from error


def look_at_rules(path: str, record: User | Client, fields: list[str]) -> Findings:
    """Look at fields whose rules must hold. (A newer rule for a bio's length is no damage.)"""
    for field in fields:
        try:
            refuse_bad_record(record, {field})
        except InvalidField as error:
            yield Finding(path, str(error))


def look_at_taken(path: str) -> Findings:
    """Look at an invitation: the link of a taken one exists only while an account is made."""
    if path.endswith(".taken") and os.path.lexists(path):
        yield Finding(path, "is of a sign-up that was interrupted", settle)
