"""Files that survive: whole, synced, and never seen in part.

`storage.flat_files.backend` is built on these. All but those that read a file raise OSError;
`translate_os_errors` turns that into the storage error.
"""

import codecs
import contextlib
import errno
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from storage import BadFile, DamagedRecord, NotFound, StorageFailed, StorageFull, build_record

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
READ_SIZE = 65536  # bytes: one read takes every ordinary record whole


def storage_error_from(error: OSError) -> StorageFailed:
    """The storage error for what the operating system said."""
    kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageFailed
    where = f" at {error.filename}" if error.filename else ""
    return kind(f"the disk refused{where}: {error.strerror}")


@contextlib.contextmanager
def translate_os_errors() -> Iterator[None]:
    """Let an OSError out as StorageFailed or StorageFull."""
    try:
        yield
    except BrokenPipeError:
        raise  # no disk says so: whoever read what is printed on the way is gone
    except OSError as error:
        raise storage_error_from(error) from error


def read_file(path: str, missing: NotFound) -> bytes:
    """All bytes of a file; raises `missing` where there is none."""
    # os.open and os.read cost a third of open(): this is the look-ups' hot path.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise missing from None
    except OSError as error:
        raise storage_error_from(error) from error
    try:
        chunks = [os.read(descriptor, READ_SIZE)]
        while len(chunks[-1]) == READ_SIZE:
            chunks.append(os.read(descriptor, READ_SIZE))
    except OSError as error:
        error.filename = path  # os.read knows none
        raise storage_error_from(error) from error
    finally:
        os.close(descriptor)
    return b"".join(chunks)


class StatCache:
    """What was made of files, for as long as they stay: a stat in place of reading one again."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[int, int], object]] = {}

    def get(self, path: str, make: Callable):
        """What `make` made of this file, called anew where the file is another by now.

        Raises what `make` raises, also where there is no file.
        """
        try:
            stat = os.stat(path)
        except OSError:
            return make()
        kept = self._kept.get(path)
        # A file is never written in place, so a new content has a new inode.
        if kept is None or kept[0] != (stat.st_ino, stat.st_mtime_ns):
            # In one step: threads read it without a lock.
            kept = self._kept[path] = (stat.st_ino, stat.st_mtime_ns), make()
        return kept[1]


def temporary_beside(path: str) -> str:
    """A new name in the folder of a file, for what is not yet it, or is it no more."""
    folder, name = os.path.split(path)
    # Dot first: no look-up and no web server takes a temporary file for a real one.
    return f"{folder}/.{name}.{secrets.token_hex(4)}"


@contextlib.contextmanager
def created(path: str, mode: int = 0o600) -> Iterator[int]:
    """Make a file where there is none, and yield its descriptor. Raises FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)  # whatever the umask: nginx reads pictures
        yield descriptor
    finally:
        os.close(descriptor)


def read_number(path: str) -> int:
    """The number in a file; 0 where there is none. Raises StorageFailed."""
    try:
        return int(read_file(path, NotFound()))
    except (NotFound, ValueError):
        return 0


def write_file(path: str, content: bytes, mode: int = 0o600, durable: bool = True) -> None:
    """Put a whole file in place of the old one; with `durable` it is on the disk on return.

    Readers, and the next start after a power cut, see the old bytes or the new ones. Where it
    raises OSError the old file stands.
    """
    temporary = temporary_beside(path)
    try:
        with created(temporary, mode) as descriptor:
            write_all(descriptor, content)
            if durable:
                sync(descriptor)
        if durable:
            replace_durably(temporary, path)
        else:
            os.rename(temporary, path)
    except OSError:
        remove_file(temporary)
        raise


def write_new_file(path: str, content: Iterable[bytes], mode: int = 0o600) -> None:
    """Write a file where there is none, to be synced later; raises FileExistsError."""
    with created(path, mode) as descriptor:
        for chunk in content:
            write_all(descriptor, chunk)


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte: on a disk that is nearly full one write takes a part without an error."""
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:])


def append_durably(path: str, lines: bytes) -> None:
    """Add lines to a file; they are on the disk on return, or not in the file at all.

    Nobody else adds to it at the same time: the caller sees to that.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        end = os.fstat(descriptor).st_size
        # What a kill or an editor left without its end would take the first of these with it.
        is_torn = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"
        try:
            write_all(descriptor, b"\n" * is_torn + lines)
            sync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)


def replace_durably(temporary: str, path: str) -> None:
    """Rename over `path` and sync the folder; where that sync fails the old file is put back."""
    previous = f"{temporary}.old"
    with contextlib.suppress(FileNotFoundError):
        os.link(path, previous)
    try:
        os.rename(temporary, path)
        try:
            sync_folder(os.path.dirname(path))
        except OSError:
            try:
                os.rename(previous, path)
            except FileNotFoundError:
                remove_file(path)
            raise
    finally:
        remove_file(previous)


def remove_durably(path: str) -> None:
    """Remove a file and sync the folder; where that sync fails the file is put back."""
    temporary = temporary_beside(path)
    move_durably(path, temporary)
    remove_file(temporary)


def move_durably(path: str, target: str) -> None:
    """Rename a file and sync the folder it leaves; where that sync fails the file is put back."""
    os.rename(path, target)
    try:
        sync_folder(os.path.dirname(path))
    except OSError:
        os.rename(target, path)
        raise


def sync(descriptor: int) -> None:
    """Put an open file or folder on the disk."""
    # Never tried again: after a failed fsync the kernel may have dropped the pages.
    os.fsync(descriptor)
    # An XFS whose disk has died calls a folder synced; only the look at it fails.
    os.fstat(descriptor)


def sync_folder(folder: str) -> None:
    """Put a folder's entries on the disk: a rename is durable only with its folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def remove_file(path: str) -> None:
    """Remove what is of no more use: gone already, or kept by the disk, it harms nobody.

    Never an error: what was saved is not called a failure because something old could not go.
    """
    with contextlib.suppress(OSError):
        os.unlink(path)


def sync_removals(folders: Iterable[str]) -> None:
    """What was removed there does not come back after a power cut; never an error, as above."""
    for folder in folders:
        with contextlib.suppress(OSError):
            sync_folder(folder)


@contextlib.contextmanager
def rollback_on_error() -> Iterator[contextlib.ExitStack]:
    """Yield a stack of what undoes the steps of the block; it is called where that raises an error.

    Not where the block is stopped, as by Ctrl-C: its last step may be done, and what a kill leaves
    behind blocks nobody.
    """
    undo = contextlib.ExitStack()
    try:
        yield undo
    except Exception:
        undo.close()
        raise


@contextlib.contextmanager
def locked(path: str) -> Iterator[int]:
    """Hold the lock of a file that is never renamed; yields its descriptor."""
    # flock, not lockf: POSIX locks are shared by threads and end when any descriptor is closed.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(path: str, mode: int) -> None:
    """Make a folder and those above it; one that stands keeps its mode."""
    if not os.path.isdir(path):
        os.makedirs(path, mode=mode, exist_ok=True)
        os.chmod(path, mode)  # whatever the umask


@contextlib.contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """A file that only its owner may read: whole and on the disk at `path` when the block ends.

    Where the block raises there is none. Raises BadFile where there is one before.
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
        replace_durably(temporary, path)
    finally:
        remove_file(temporary)


@contextlib.contextmanager
def synced(folder: str) -> Iterator[None]:
    """What the block writes to the file system of a folder is on the disk when it ends.

    One sync of all is quicker than a thousand of each.
    """
    # Open from the start: the sync then tells of what failed since.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
        sync_file_system(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(descriptor: int) -> None:
    """syncfs(2). os.sync() would wait as long, and tell of no error."""
    import ctypes  # memory that no worker needs

    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def encode(values: dict) -> bytes:
    """JSON that people can read and edit: indented, keys in the record's order."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def read_record(path: str, record_type: type, missing: NotFound, **expected: object):
    """The record in a file. Raises `missing`, or DamagedRecord where it is not as `expected`."""
    return decode_record(read_file(path, missing), record_type, path, **expected)


def decode_record(content: bytes, record_type: type, path: str, **expected: object):
    """The record in `content`, which stands at `path`. Raises DamagedRecord as `read_record`."""
    try:
        # Half of a surrogate pair can be read, and never shown or written again. json.loads takes
        # one in bytes, and as an escape, which a person may have typed.
        values = json.loads(content.removeprefix(codecs.BOM_UTF8).decode())
        if b"\\u" in content:
            encode(values)
        record = build_record(record_type, values)
        for name, value in expected.items():
            if getattr(record, name) != value:
                raise ValueError(f"its {name} is {getattr(record, name)!r}")
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedRecord("/".join(path.split("/")[-2:]), str(error)) from error
    return record


def read_json_lines(path: str) -> Iterator[dict]:
    """Yield the value of each line of a file, nothing if there is no file.

    Raises DamagedRecord after the last line, for the first that is damaged; StorageFailed.
    """
    damage = None
    with translate_os_errors(), contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                damage = damage or DamagedRecord(f"{path}, line {number},", str(error))
    if damage:
        raise damage


def read_boot_id() -> str | None:
    """What changes with each start of the machine, or None where the system does not tell."""
    try:
        with open(BOOT_ID_FILE, encoding="ascii") as file:
            return file.read().strip() or None
    except OSError:
        return None
