"""StatCache returns what is in a file now, and takes no more memory than it may."""

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import StorageFailed, open_storage
from storage.flat_files import disk
from storage.flat_files.disk import CACHE_SIZE, YOUNGEST_CACHED, StatCache, write_file

SECOND = 10**9  # nanoseconds


class CountingReader:
    """Reads files through a StatCache and counts the reads of the disk."""

    def __init__(self) -> None:
        self.cache, self.reads = StatCache(), 0
        self.pause = 0.0  # seconds, after a read

    def __call__(self, path: Path | str) -> bytes:
        return self.cache.get(str(path), lambda: self._read(path))

    def _read(self, path: Path | str) -> bytes:
        self.reads += 1
        content = disk.read_file(str(path), StorageFailed("it is missing"))
        time.sleep(self.pause)
        return content


@pytest.fixture
def read() -> CountingReader:
    return CountingReader()


@pytest.fixture
def file(tmp_path) -> Path:
    """A file that is old enough to be cached."""
    path = tmp_path / "file"
    save(path, b"first")
    return path


def save(path: Path, content: bytes, age: int = 2 * YOUNGEST_CACHED) -> None:
    """Save a file as records are saved, with an age in nanoseconds."""
    write_file(str(path), content, durable=False)
    written = time.time_ns() - age
    os.utime(path, ns=(written, written))


def test_file_is_read_once_until_it_changes(read, file):
    assert [read(file) for _ in range(5)] == [b"first"] * 5
    assert read.reads == 1
    save(file, b"other")
    assert [read(file) for _ in range(5)] == [b"other"] * 5
    assert read.reads == 2


@pytest.mark.parametrize("age", [0, 30, -3600])
def test_file_that_is_too_young_or_from_the_future_is_read_each_time(read, file, age, monkeypatch):
    monkeypatch.setattr(disk, "YOUNGEST_CACHED", 60 * SECOND)  # three reads take less
    save(file, b"young", age * SECOND)
    assert [read(file) for _ in range(3)] == [b"young"] * 3
    assert read.reads == 3


def test_file_that_was_too_young_before_a_slow_read_is_read_again(read, file, monkeypatch):
    """Meanwhile it can be replaced within one tick of the clock, by a file with the same inode."""
    monkeypatch.setattr(disk, "YOUNGEST_CACHED", SECOND)
    save(file, b"young", 0)
    read.pause = 1.1  # seconds
    assert [read(file) for _ in range(3)] == [b"young"] * 3
    assert read.reads == 2  # the first is too early


def test_change_of_inode_time_or_size_alone_is_seen(read, file, subtests):
    path = str(file)

    def replace_inode() -> bytes:
        found = os.stat(path)
        save(file, b"other")
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        return b"other"

    def change_time() -> bytes:
        file.write_bytes(b"again")
        save_time = time.time_ns() - 3 * YOUNGEST_CACHED
        os.utime(path, ns=(save_time, save_time))
        return b"again"

    def change_size() -> bytes:
        found = os.stat(path)
        file.write_bytes(b"longer")
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        return b"longer"

    for change in (replace_inode, change_time, change_size):
        with subtests.test(change.__name__):
            read(file)
            assert read(file) != change() == read(file)


def test_missing_file_raises_each_time_and_is_found_when_it_is_back(read, file):
    read(file)
    file.unlink()
    for _ in range(2):
        with pytest.raises(StorageFailed):
            read(file)
    save(file, b"back")
    assert read(file) == b"back"


def test_folder_is_listed_once_until_a_name_is_added_or_removed(tmp_path):
    folder, listings, cache = tmp_path / "folder", [], StatCache()

    def names() -> list[str]:
        return cache.get(str(folder), lambda: listings.append(1) or sorted(os.listdir(folder)))

    def aged(change: Callable) -> None:
        change()
        os.utime(folder, ns=(0, time.time_ns() - 2 * YOUNGEST_CACHED))

    aged(folder.mkdir)
    for number, change in enumerate(((folder / "a").touch, (folder / "b").touch)):
        aged(change)
        assert [names() for _ in range(3)] == [["a", "b"][: number + 1]] * 3
    (folder / "a").unlink()
    assert [names() for _ in range(3)] == [["b"]] * 3
    assert len(listings) == 2 + 3  # each time while the last change is too young


def test_clients_of_another_process_are_listed_at_once(tmp_path):
    mine, other = (open_storage(f"{tmp_path}/data", f"{tmp_path}/pictures") for _ in range(2))
    added = [other.add_client("Chess", [], None)[0].id]
    for _ in range(3):
        time.sleep(2 * YOUNGEST_CACHED / SECOND)  # from now on it is cached
        for _ in range(2):
            assert mine.client_ids() == sorted(added)
            assert [each.id for each in mine.clients_of(None)] == sorted(added)
        added.append(other.add_client("Chess", [], None)[0].id)
        assert mine.client_ids() == sorted(added)
        assert [each.id for each in mine.clients_of(None)] == sorted(added)
    other.delete_client(added.pop(0))
    assert [each.id for each in mine.clients_of(None)] == mine.client_ids() == sorted(added)


def test_cached_values_take_no_more_memory_than_a_constant(read, tmp_path):
    """4,000 files of 8 KiB are four times as much; then of 20 bytes, where the rest counts."""
    path = tmp_path / "file"
    tracemalloc.start()
    try:
        for size, count in ((8192, 4000), (20, 40_000)):
            save(path, b"x" * size)
            before = tracemalloc.get_traced_memory()[0]
            for number in range(count):
                link = f"{tmp_path}/{size}-{number}"  # no Path: Python keeps the parts of each
                os.link(path, link)  # quicker than a new file
                read(link)
            used = tracemalloc.get_traced_memory()[0] - before
            assert CACHE_SIZE / 4 < used < CACHE_SIZE
            read.cache = StatCache()
    finally:
        tracemalloc.stop()


def test_cached_lists_take_no_more_memory_than_a_constant(tmp_path):
    cache, name = StatCache(), "f" * 24
    tracemalloc.start()
    try:
        for number in range(20):
            path = tmp_path / f"folder-{number}"
            path.mkdir()
            os.utime(path, ns=(0, 0))
            cache.get(str(path), lambda: [f"{name}{each}"[-24:] for each in range(10_000)])
        used = tracemalloc.get_traced_memory()[0]
        assert CACHE_SIZE / 4 < used < CACHE_SIZE
    finally:
        tracemalloc.stop()
