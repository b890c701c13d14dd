"""StatCache returns what is in a file now, and takes no more memory than it may."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import open_storage
from storage.errors import StorageFailed
from storage.flat_files import disk
from storage.flat_files.disk import YOUNGEST_CACHED, StatCache, write_file
from storage.records import User

SECOND = 10**9  # nanoseconds
COARSE_TICK = 40_000_000  # nanoseconds: four times those of kernels


class CountingReader:
    """Reads files through a StatCache and counts the reads of the disk."""

    def __init__(self) -> None:
        self.cache, self.reads = StatCache(100), 0
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


def test_second_save_in_one_tick_of_a_coarse_clock_is_seen(read, file, monkeypatch):
    """ext4 and XFS give it the inode of the first one again: only the age of the file is left."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    save(file, b"first", COARSE_TICK)  # at the end of the tick
    assert read(file) == b"first"
    found = file.stat()
    file.write_bytes(b"other")
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert read(file) == b"other"


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
    folder, listings, cache = tmp_path / "folder", [], StatCache(1)

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
    added = [other.clients.register("Chess", [], None)[0].id]
    for _ in range(3):
        time.sleep(2 * YOUNGEST_CACHED / SECOND)  # from now on it is cached
        for _ in range(2):
            assert mine.clients.ids() == sorted(added)
            assert [each.id for each in mine.clients.of_owner(None)] == sorted(added)
        added.append(other.clients.register("Chess", [], None)[0].id)
        assert mine.clients.ids() == sorted(added)
        assert [each.id for each in mine.clients.of_owner(None)] == sorted(added)
    other.clients.delete(added.pop(0))
    assert [each.id for each in mine.clients.of_owner(None)] == mine.clients.ids() == sorted(added)


def test_only_the_newest_values_are_kept(read, tmp_path):
    paths = [tmp_path / str(number) for number in range(250)]
    for path in paths:
        save(path, b"x")
        read(path)
    assert read.reads == 250
    for path in paths[-50:]:
        read(path)
    assert read.reads == 250
    read(paths[0])
    assert read.reads == 251


def test_each_function_has_its_own_value_of_a_record(tmp_path):
    users = open_storage(f"{tmp_path}/data", f"{tmp_path}/pictures").users
    ada = users.register("Ada", "ada@example.org", "")
    os.utime(f"{tmp_path}/data/users/1.json", ns=(0, 0))
    for _ in range(2):
        assert (users.read_from(ada.id, name), users.read_from(ada.id, email)) == (
            *("Ada", "ada@example.org"),
        )
    with users.edit(ada.id) as user:
        user.bio = "new"
    assert users.read_from(ada.id, bio) == "new"


def name(user: User) -> str:
    return user.name


def email(user: User) -> str:
    return user.email


def bio(user: User) -> str:
    return user.bio
