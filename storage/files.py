"""Files that are written durably: for exports, archives, and backends that keep files.

The path "-" of an export or an archive is standard output or input (POSIX, Base Definitions 12.2,
guideline 13).

Functions raise OSError, which `translate_os_errors` turns into the storage error.
"""

import contextlib
import errno
import functools
import os
import pwd
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from model.errors import BadFile, SaveUnconfirmed, StorageFailed, StorageFull


def storage_error_from(error: OSError) -> StorageFailed:
    """Return the storage error for an error of the operating system."""
    kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageFailed
    where = f" at {error.filename}" if error.filename else ""
    return kind(f"the disk refused{where}: {error.strerror}")


@contextlib.contextmanager
def translate_os_errors() -> Iterator[None]:
    """Turn an OSError of the block, unless it is a BrokenPipeError, into the storage error."""
    try:
        yield
    except BrokenPipeError:
        raise  # not from a disk: the reader of our standard output has ended
    except OSError as error:
        raise storage_error_from(error) from error


def raises_storage_errors(method: Callable) -> Callable:
    """Return a method that raises what `translate_os_errors` does, at a tenth of its cost."""

    @functools.wraps(method)
    def call(*args: object, **kwargs: object) -> object:
        try:
            return method(*args, **kwargs)
        except OSError as error:
            raise storage_error_from(error) from error

    return call


@contextlib.contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """Yield a file for its owner alone, which is at `path`, whole and synced, when the block ends.

    If the block raises, there is no file. Raises BadFile if the path exists or its folder does not.
    """
    if os.path.lexists(path):
        raise BadFile(f"{path} is there already: choose another name")
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise BadFile(f"there is no folder {folder}")
    temporary = temporary_beside(path)
    try:
        with created(temporary) as descriptor, open(descriptor, "wb", closefd=False) as file:
            yield file
            file.flush()
            sync(descriptor)
        os.rename(temporary, path)
        try:
            sync_folder(folder)
        except OSError:
            remove_file(path)
            raise
    finally:
        remove_file(temporary)


@contextlib.contextmanager
def output_file(path: str) -> Iterator[BinaryIO]:
    """Yield what `new_file` does, or for "-" standard output. Raises BadFile for a terminal."""
    if path != "-":
        with new_file(path) as file:
            yield file
        return
    if sys.stdout.isatty():  # it would obey what players wrote
        raise BadFile("standard output is a terminal: redirect it to a file or a pipe")
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
    descriptor = sys.stdout.fileno()
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        sync(descriptor)


@contextlib.contextmanager
def input_file(path: str) -> Iterator[BinaryIO]:
    """Yield a file, or for "-" a copy of standard input, which may be a pipe. Raises BadFile."""
    if path != "-":
        with open(path, "rb") as file:
            yield file
        return
    if not sys.stdin or sys.stdin.isatty():
        raise BadFile("standard input is a terminal or closed: redirect it from a file or a pipe")
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.seek(0)
        yield copy


def temporary_beside(path: str) -> str:
    """Return the path of a new temporary file in the folder of a file."""
    folder, name = os.path.split(path)
    # The dot keeps look-ups and web servers from taking it for a real file.
    return f"{folder}/.{name}.{secrets.token_hex(4)}"


@contextlib.contextmanager
def opened(path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
    """Open a file or a folder, yield its descriptor, and close it."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def created(path: str, mode: int = 0o600) -> Iterator[int]:
    """Create a file and yield its descriptor. Raises FileExistsError."""
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode) as descriptor:
        os.fchmod(descriptor, mode)  # independent of the umask: nginx reads pictures
        yield descriptor


def replace_durably(temporary: str, path: str) -> None:
    """Rename over `path` and sync the folder. After an OSError either file may be on the disk."""
    os.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def commit(temporary: str, path: str) -> None:
    """Rename over `path` what makes a change count. Raises SaveUnconfirmed, OSError."""
    os.rename(temporary, path)
    confirm_in(os.path.dirname(path))


def confirm_in(folder: str) -> None:
    """Sync a folder whose new entries make a change count. Raises SaveUnconfirmed.

    Undoing the change would have to be synced as well: nobody knows what the disk has now.
    """
    try:
        sync_folder(folder)
    except OSError as error:
        problem = f"the disk did not confirm a change in {folder}, which may have been saved"
        raise SaveUnconfirmed(f"{problem}: {error.strerror}") from error


def sync(descriptor: int) -> None:
    """Sync an open file or folder to the disk."""
    # Never retried: after a failed fsync the kernel may have dropped the pages.
    os.fsync(descriptor)
    # An XFS whose disk has failed reports the sync of a folder as done; fstat fails.
    os.fstat(descriptor)


def sync_folder(folder: str) -> None:
    """Sync a folder's entries: a rename is durable only after that."""
    with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        sync(descriptor)


def remove_file(path: str) -> None:
    """Remove a file that no longer counts, without an error if that fails.

    A save does not fail because an old file could not be removed.
    """
    with contextlib.suppress(OSError):
        os.unlink(path)


def user_name(number: int) -> str:
    """Return the name of a user of this machine; the number if there is none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
