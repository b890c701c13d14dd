"""Cached records under racing saves, on real file systems: no reader ever sees an old record.

A writer saves bursts of records as the storage does, with times of a coarse clock: ticks of 40 ms.
ext4 and XFS give the inode of a replaced file again, so two saves of one burst can have the same
inode, time and size. tmpfs never gives an inode number again.
"""

import mmap
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import MOUNTS
from power import FILE_SYSTEMS, disk_in_memory

from storage.errors import StorageFailed
from storage.flat_files import disk

pytestmark = [pytest.mark.faults, MOUNTS]

SECONDS = 2
READERS = 3
# Saves numbers of 8 digits, and after each notes in `saved` which one is on the disk. A burst ends
# when the file system gives the inode of its first save again.
WRITER = f"""
import itertools, os, random, sys, time
from storage.flat_files import disk
path, saved, numbers = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY), itertools.count(1)
rename = os.rename
def rename_with_coarse_time(temporary, target):
    tick = time.time_ns() // 40_000_000 * 40_000_000
    os.utime(temporary, ns=(tick, tick))
    rename(temporary, target)
os.rename = rename_with_coarse_time
def save():
    number = b"%08d" % next(numbers)
    disk.write_file(path, number, durable=False)
    os.pwrite(saved, number, 0)
    return os.stat(path).st_ino
end = time.monotonic() + {SECONDS}
while time.monotonic() < end:
    first, saves = save(), 0
    time.sleep(random.uniform(0, 0.01))
    while save() != first and saves < 100:
        saves += 1
    time.sleep(random.uniform(0, 0.12))
"""


@pytest.fixture(scope="module", params=[*FILE_SYSTEMS, "tmpfs"])
def folder(request, tmp_path_factory) -> Iterator[Path]:
    """A folder on a file system of this kind."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
        yield folder
        subprocess.run(["umount", folder], check=True)
    else:
        with disk_in_memory(folder, request.param) as mounted:
            yield mounted.folder


class Race:
    """A writer and its readers: counts reads, reads of the disk, and reads of old records."""

    def __init__(self, folder: Path) -> None:
        self._path, saved = folder / "record", folder / "saved"
        self._path.write_bytes(b"%08d" % 0)
        saved.write_bytes(b"%08d" % 0)
        self.reads = self.disk_reads = self.stale = 0
        self._cache = disk.StatCache(100)
        with saved.open("rb") as file, mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ) as number:
            self._run(saved, number)

    def _run(self, saved: Path, number: mmap.mmap) -> None:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, self._path, saved])
        readers = [
            threading.Thread(target=self._read, args=(writer, number)) for _ in range(READERS)
        ]
        for each in readers:
            each.start()
        for each in readers:
            each.join()
        assert writer.wait() == 0

    def _read(self, writer: subprocess.Popen, number: mmap.mmap) -> None:
        rng = random.Random()
        while writer.poll() is None:
            on_disk = int(number[:8])  # before the read: the record is this one or a newer one
            found = self._cache.get(str(self._path), self._read_file)
            self.reads += 1
            self.stale += int(found) < on_disk
            time.sleep(rng.choice((0, 0.001, 0.01)))

    def _read_file(self) -> bytes:
        self.disk_reads += 1
        return disk.read_file(str(self._path), StorageFailed("it is missing"))


def test_no_reader_sees_a_record_older_than_the_last_save(folder):
    race = Race(folder)
    assert 100 < race.disk_reads < race.reads * 0.9  # else there is nothing to see
    assert race.stale == 0


def test_control_without_the_least_age_old_records_are_read(folder, monkeypatch, request):
    """The race notices them, on the file systems that give inodes again."""
    monkeypatch.setattr(disk, "YOUNGEST_CACHED", -1)
    if "tmpfs" in request.node.name:
        assert Race(folder).stale == 0
    else:
        assert any(Race(folder).stale for _ in range(10))
