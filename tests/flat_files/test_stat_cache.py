"""StatCache returns what is in a file now, and takes no more memory than it may."""

import os
import time
from pathlib import Path

import pytest

from model.errors import StorageFailed
from storage.flat_files import disk
from storage.flat_files.disk import YOUNGEST_CACHED, StatCache, write_file

SECOND = 10**9  # nanoseconds
OLD = 2 * YOUNGEST_CACHED  # nanoseconds: old enough to be cached
COARSE_TICK = 40_000_000  # nanoseconds: four times those of kernels


class CountingReader:
    """Reads files and folders through a StatCache and counts the reads of the disk."""

    def __init__(self) -> None:
        self.cache, self.reads = StatCache(100), 0

    def __call__(self, path: Path) -> bytes | list[str]:
        return self.cache.get(str(path), lambda: self.read(path))

    def read(self, path: Path) -> bytes | list[str]:
        self.reads += 1
        if path.is_dir():
            return sorted(os.listdir(path))
        return disk.read_file(str(path), StorageFailed("it is missing"))


@pytest.fixture
def read() -> CountingReader:
    return CountingReader()


@pytest.fixture
def file(tmp_path) -> Path:
    """A file that is old enough to be cached."""
    path = tmp_path / "file"
    save(path, b"first")
    return path


def save(path: Path, content: bytes, age: int = OLD) -> None:
    """Save a file as records are saved, with an age in nanoseconds."""
    write_file(str(path), content, durable=False)
    set_age(path, age)


def set_age(path: Path, age: int = OLD) -> None:
    written = time.time_ns() - age
    os.utime(path, ns=(written, written))


def test_file_is_read_once_until_it_changes(read, file):
    for reads, content in enumerate((b"first", b"other"), start=1):
        save(file, content)
        assert [read(file) for _ in range(5)] == [content] * 5
        assert read.reads == reads


@pytest.mark.parametrize("age", [0, 30, -3600])  # seconds
def test_file_too_young_or_from_the_future_is_not_cached(read, file, age, monkeypatch):
    monkeypatch.setattr(disk, "YOUNGEST_CACHED", 60 * SECOND)  # three reads take less
    save(file, b"young", age * SECOND)
    assert [read(file) for _ in range(3)] == [b"young"] * 3
    assert read.reads == 3


def test_young_file_before_a_slow_read_is_not_cached(file, clock):
    """Meanwhile it can be replaced within one tick of the clock, by a file with the same inode."""
    cache = StatCache(100)
    save(file, b"young", 0)

    def read_slowly() -> bytes:
        clock.shift(1)
        return file.read_bytes()

    cache.get(str(file), read_slowly)
    assert cache.get(str(file), lambda: b"read again") == b"read again"
    assert cache.get(str(file), lambda: b"once more") == b"read again"


def test_second_save_in_one_tick_of_a_coarse_clock_is_seen(read, file, clock):
    """ext4 and XFS give it the inode of the first one again: only the age of the file is left."""
    save(file, b"first", COARSE_TICK)  # at the end of the tick
    assert read(file) == b"first"
    found = file.stat()
    file.write_bytes(b"other")
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert read(file) == b"other"


def test_change_of_inode_time_or_size_alone_is_seen(read, file):
    found = file.stat()
    times = found.st_atime_ns, found.st_mtime_ns
    assert read(file) == b"first"
    write_file(str(file), b"other", durable=False)
    os.utime(file, ns=times)
    assert read(file) == b"other"
    file.write_bytes(b"longer")
    os.utime(file, ns=times)
    assert read(file) == b"longer"
    file.write_bytes(b"second")
    set_age(file, 2 * OLD)
    assert read(file) == b"second"


def test_only_the_newest_values_are_kept(read, tmp_path):
    paths = [tmp_path / str(number) for number in range(250)]
    for path in paths:
        path.touch()
        set_age(path)
        read(path)
    for path in paths[-50:]:
        read(path)
    assert read.reads == 250
    read(paths[0])
    assert read.reads == 251


def test_clients_of_another_process_are_listed_at_once(open_installation):
    mine, other = open_installation(), open_installation()
    added = []
    for _ in range(3):
        added.append(other.clients.register("Chess", [], None)[0].id)
        for folder in ("clients", "index/clients/owner/none"):
            assert mine.clients.ids() == sorted(added)
            assert [each.id for each in mine.clients.of_owner(None)] == sorted(added)
            set_age(Path(mine.layout.path(folder)))  # from now on it is cached
        assert mine.clients.ids() == sorted(added)
        assert [each.id for each in mine.clients.of_owner(None)] == sorted(added)
    other.clients.delete(added.pop(0))
    assert [each.id for each in mine.clients.of_owner(None)] == mine.clients.ids() == sorted(added)
