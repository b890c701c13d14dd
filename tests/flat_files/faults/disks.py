"""Disks in memory that a test fills or makes read-only, and the marks of tests that need root."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

IS_ROOT = os.geteuid() == 0
MOUNTS = pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a file system")
STRACE = pytest.mark.skipif(
    not (IS_ROOT and shutil.which("strace")), reason="needs root and strace: injects faults"
)
PAGE = 4096  # bytes: the allocation unit of tmpfs


@contextlib.contextmanager
def disk_in_memory(folder: Path, options: str = "size=1m,nr_inodes=200") -> Iterator[Path]:
    """Mount a disk at a folder, by default with room for 1 MiB and 200 files."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        # Lazily: a process that was just killed may still hold a disk in a file of this one.
        subprocess.run(["umount", "--recursive", "--lazy", folder], check=True)


def fill_bytes(disk: Path, but: int = 0) -> None:
    """Fill the disk except for `but` bytes, a number of whole pages."""
    with open(disk / "filler", "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(PAGE))
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - but)


def fill_files(disk: Path) -> None:
    """Use up the files of the disk, but not its bytes."""
    with pytest.raises(OSError):
        for n in range(1000):
            (disk / f"filler {n}").touch(exist_ok=False)


def make_read_only(disk: Path) -> None:
    """Remount the disk, as Linux does after an error on it."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


def make_usable(disk: Path) -> None:
    """Undo what the functions above did."""
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    for path in disk.glob("filler*"):
        path.unlink()


REFUSE = {"full of bytes": fill_bytes, "full of files": fill_files, "read-only": make_read_only}
