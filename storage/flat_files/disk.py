"""Durable files: written whole, synced, and never visible in part.

Functions that write raise OSError, which `translate_os_errors` turns into the storage error.
Functions that read a file raise the storage error themselves.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from model.encoding import decode_record, encode_values, record_as_dict
from model.errors import NotFound, SaveUnconfirmed
from storage.files import (
    commit,
    confirm_in,
    created,
    opened,
    remove_file,
    replace_durably,
    storage_error_from,
    sync,
    sync_folder,
    temporary_beside,
    translate_os_errors,
)

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
READ_SIZE = 65536  # bytes: one read takes every ordinary record whole
YOUNGEST_CACHED = 50_000_000  # nanoseconds; the ticks of a coarse clock are 1 to 10 ms apart
READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # the last: a FIFO makes nobody wait (fifo(7))


def read_file(path: str, missing: NotFound) -> bytes:
    """Return the bytes of a file. Raises `missing` if there is no such file, StorageFailed.

    The disk refuses a FIFO or a device in place of a file.
    """
    # os.open and os.read cost a third of open(): this is the look-ups' hot path.
    try:
        descriptor = os.open(path, READING)
    except FileNotFoundError:
        raise missing from None
    except OSError as error:
        raise storage_error_from(error) from error
    try:
        chunks = [os.read(descriptor, READ_SIZE)]
        if len(chunks[0]) in (0, READ_SIZE):  # as a FIFO reads, or a device
            require_regular_file(descriptor)
        while len(chunks[-1]) == READ_SIZE:
            chunks.append(os.read(descriptor, READ_SIZE))
    except OSError as error:
        error.filename = path  # os.read does not know it
        raise storage_error_from(error) from error
    finally:
        os.close(descriptor)
    return b"".join(chunks)


def require_folder(folder: str) -> None:
    """Raise OSError if a folder is missing: on a disk that is not mounted, say.

    Whether a file exists in it is unknown then.
    """
    os.stat(folder)


def require_regular_file(descriptor: int) -> None:
    """Raise OSError for a FIFO, a device or a folder: a read of it may never end."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")


def open_log(path: str) -> BinaryIO:
    """Return a file to be read line by line. Raises OSError, also for a FIFO or a device."""
    file = open(path, "rb", opener=lambda path, _: os.open(path, READING))  # noqa: SIM115
    try:
        require_regular_file(file.fileno())
    except OSError as error:
        file.close()
        error.filename = path
        raise
    return file


class StatCache:
    """Values made from files or folders, invalidated when inode, modification time or size change.

    Files are never written in place, so new content has a new inode, and a folder has a new time
    when a name is added or removed. But a file system can give the inode of a removed file again,
    and two saves within one tick of its clock have the same time. So nothing is cached that is
    younger than YOUNGEST_CACHED. A cached value is shared: nobody may change it. Of `most` values
    the oldest go first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._cached: dict[object, tuple[tuple[int, int, int], object]] = {}
        self._lock = threading.Lock()  # for changes; threads read the dict without a lock

    def get(self, path: str, make: Callable, key: object = None):
        """Return the cached value of a path, or that of `make()` if it is new or changed.

        Values of one path that different functions make have a `key` each. Raises what `make`
        raises, also if there is no file.
        """
        try:
            found = os.stat(path)
        except OSError:
            return make()
        stamp = found.st_ino, found.st_mtime_ns, found.st_size
        key = key or path
        cached = self._cached.get(key)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        # Both in this order: what replaces the file that `make` reads gets a later time, however
        # long this thread waits for its turn.
        is_old = time.time_ns() - found.st_mtime_ns > YOUNGEST_CACHED
        value = make()
        if is_old:
            with self._lock:
                self._cached.pop(key, None)
                self._cached[key] = stamp, value
                if len(self._cached) > self._most:
                    # A quarter at once: to find the oldest, a dict steps over all dropped ones.
                    for each in [*itertools.islice(self._cached, self._most // 4 + 1)]:
                        del self._cached[each]
        return value


def read_number(path: str) -> int:
    """Return the number in a file, 0 for no file or no number. Raises StorageFailed."""
    with contextlib.suppress(NotFound, ValueError):
        return int(read_file(path, NotFound()))
    return 0


def write_file(
    path: str, content: bytes, mode: int = 0o600, durable: bool = True, commits: bool = False
) -> None:
    """Replace a file as a whole. With `durable`, it is on the disk when this returns.

    Readers, and the next start after a power cut, see the old bytes or the new ones. With `commits`
    it is the file that makes a change count: raises SaveUnconfirmed where `commit` does.
    """
    with written_beside(path, content, mode, durable) as temporary:
        if commits:
            commit(temporary, path)
        elif durable:
            replace_durably(temporary, path)
        else:
            os.rename(temporary, path)


@contextlib.contextmanager
def written_beside(
    path: str, content: bytes, mode: int = 0o600, synced: bool = True
) -> Iterator[str]:
    """Yield the path of a new temporary file, for the block to rename.

    The file is removed if the block raises an Exception.
    """
    temporary = temporary_beside(path)
    try:
        with created(temporary, mode) as descriptor:
            write_all(descriptor, content)
            if synced:
                sync(descriptor)
        yield temporary
    except Exception:
        remove_file(temporary)
        raise


def write_new_file(path: str, content: Iterable[bytes], mode: int = 0o600) -> None:
    """Write a new file, without a sync. Raises FileExistsError."""
    with created(path, mode) as descriptor:
        for chunk in content:
            write_all(descriptor, chunk)


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte: on a nearly full disk, write(2) takes a part without an error."""
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:])


def append_durably(path: str, lines: bytes) -> None:
    """Append lines to a file. They are on the disk when this returns, or not in the file at all.

    The caller holds a lock against other writers.
    """
    with opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as descriptor:
        require_regular_file(descriptor)
        end = os.fstat(descriptor).st_size
        # The last line may lack its end, after a kill or an edit: the first new one would join it.
        is_torn = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"
        try:
            write_all(descriptor, b"\n" * is_torn + lines)
            sync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            if not end:
                remove_file(path)
            raise


def remove_durably(path: str) -> None:
    """Remove a file and sync the folder. Raises SaveUnconfirmed if that sync fails."""
    os.unlink(path)
    confirm_in(os.path.dirname(path))


def sync_removals(folders: Iterable[str]) -> None:
    """Make removals in these folders durable, without an error if that fails."""
    for folder in folders:
        with contextlib.suppress(OSError):
            sync_folder(folder)


@contextlib.contextmanager
def rollback_on_error() -> Iterator[contextlib.ExitStack]:
    """Yield a stack of callbacks that undo the block's steps; they run if it raises an Exception.

    They do not run after Ctrl-C, and where the last step may be done (SaveUnconfirmed): what they
    would undo is of use then, and blocks nobody else.
    """
    undo = contextlib.ExitStack()
    try:
        yield undo
    except SaveUnconfirmed:
        raise
    except Exception:
        undo.close()
        raise


@contextlib.contextmanager
def locked(path: str) -> Iterator[int]:
    """Hold an exclusive lock on a file that is never renamed; yield its descriptor."""
    # flock, not lockf: POSIX locks are shared by threads and end when any descriptor is closed.
    with opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor


def make_folder(path: str, mode: int) -> None:
    """Make a folder and its parents. An existing folder keeps its mode."""
    if not os.path.isdir(path):
        os.makedirs(path, mode=mode, exist_ok=True)
        os.chmod(path, mode)  # independent of the umask


@contextlib.contextmanager
def synced(folder: str) -> Iterator[None]:
    """Sync what the block has written to the file system of a folder.

    One sync of everything is faster than a thousand single ones.
    """
    # Opened first: the sync then reports every error since.
    with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        yield
        sync_file_system(descriptor)


def sync_file_system(descriptor: int) -> None:
    """Call syncfs(2). os.sync() takes as long and reports no error."""
    import ctypes  # only here: workers do not need its memory

    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def read_record(path: str, record_type: type, missing: NotFound, **expected: object):
    """Return the record in a file.

    Raises `missing` if there is no such file in its folder, StorageFailed, and DamagedRecord, also
    if the value of a field is not the `expected` one.
    """
    try:
        content = read_file(path, missing)
    except NotFound:
        with translate_os_errors():
            require_folder(os.path.dirname(path))
        raise
    return decode_record(content, record_type, path, **expected)


def write_record(path: str, record) -> None:
    """Write a record durably, which makes a change count. Raises SaveUnconfirmed, OSError."""
    write_file(path, encode_values(record_as_dict(record, stored=True)), commits=True)


def read_lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, none if there is no file. Raises OSError."""
    with contextlib.suppress(FileNotFoundError), open_log(path) as file:
        yield from file


def read_backwards(path: str, end: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin before `end`, by default all, the last first, with their offsets.

    A line that goes on behind `end` is left out. Without a file, no lines. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError), open_log(path) as file:
        size, rest = file.seek(0, os.SEEK_END), b""
        end = last = size if end is None else max(0, min(end, size))
        while end > 0:
            start = max(0, end - READ_SIZE)
            file.seek(start)
            first, *lines = (file.read(end - start) + rest).splitlines(keepends=True)
            offset = start + len(first) + sum(map(len, lines))
            for line in reversed(lines):
                offset -= len(line)
                if line.endswith(b"\n") or offset + len(line) < last or last == size:
                    yield offset, line
            end, rest = start, first
        if rest and (rest.endswith(b"\n") or last == size):
            yield 0, rest


def read_boot_id() -> str | None:
    """Return an id that changes with each start of the machine, None if the system has none."""
    with contextlib.suppress(OSError), open(BOOT_ID_FILE, encoding="ascii") as file:
        return file.read().strip() or None
    return None
