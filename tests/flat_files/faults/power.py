"""A disk of the test in a file, and a power cut for it.

The file is in memory, so that a sync takes no time. A real file system on it is mounted through a
loop device. The power cut is an ioctl: the file system stops at once and loses all unwritten data.
The next mount replays the journal, like a machine that starts again. (Data in the write cache of a
disk, which a disk reports as written, is not lost here.)
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import disk_in_memory
from waiting import wait_until

FILE_SYSTEMS = ["ext4", "xfs"]
# _IOR('X', 125, __u32): XFS_IOC_GOINGDOWN, and for ext4 EXT4_IOC_SHUTDOWN
SHUTDOWN_IOCTL = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)
SIZE = 320 * 2**20  # bytes, most of them holes: mkfs.xfs takes no less than 300 MiB
MOUNT_OPTIONS = {
    # No timed commit and no flush after a rename: unsynced data is lost.
    "ext4": "loop,commit=600,noauto_da_alloc",
    "xfs": "loop,nouuid",  # a copy of the disk has the same UUID
}


class Disk:
    """A disk in the file `image`, mounted at `folder`."""

    def __init__(self, image: Path, folder: Path, file_system: str) -> None:
        self.image, self.folder, self.file_system = image, folder, file_system

    def mount(self) -> None:
        options = MOUNT_OPTIONS[self.file_system]
        subprocess.run(["mount", "-o", options, self.image, self.folder], check=True)

    def cut_power(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            check_disk_is_ours(descriptor, self.image)
            fcntl.ioctl(descriptor, SHUTDOWN_IOCTL, NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """Mount the disk again, like the next start of the machine."""
        # A process that was just killed may still hold the mount.
        unmount = ["umount", self.folder]
        wait_until(lambda: subprocess.run(unmount, stderr=subprocess.DEVNULL).returncode == 0)
        # Mount a copy: a new mount namespace of another process may still hold the old image.
        copy = self.image.with_name("copy")
        subprocess.run(["cp", self.image, copy], check=True)
        copy.replace(self.image)
        self.mount()


def check_disk_is_ours(descriptor: int, image: Path) -> None:
    """Raise AssertionError unless an open file is on the disk in `image`, mounted once."""
    device = os.fstat(descriptor).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    assert device != os.stat("/").st_dev
    backing_file = Path(f"/sys/dev/block/{number}/loop/backing_file")
    assert backing_file.exists(), "this disk is not in a file"
    assert Path(backing_file.read_text().strip()) == image
    mounts = [line.split()[2] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    assert mounts.count(number) == 1, "this disk is mounted more than once"


@contextlib.contextmanager
def mounted_disk(folder: Path, file_system: str) -> Iterator[Disk]:
    """Create and mount a disk in memory; skip the test if this machine cannot."""
    if not shutil.which(f"mkfs.{file_system}"):
        pytest.skip(f"no mkfs.{file_system}")
    with disk_in_memory(folder / "memory", "size=1g") as memory:
        disk = Disk(memory / "image", memory / "mounted", file_system)
        disk.folder.mkdir()
        disk.image.touch()
        os.truncate(disk.image, SIZE)
        subprocess.run([f"mkfs.{file_system}", "-q", disk.image], check=True)
        try:
            disk.mount()
        except subprocess.CalledProcessError:
            # The mount has loaded the kernel module, if there is one.
            if file_system in Path("/proc/filesystems").read_text().split():
                raise
            pytest.skip(f"this kernel has no {file_system}")
        yield disk


@pytest.fixture(params=FILE_SYSTEMS)
def power(request, tmp_path) -> Iterator[Disk]:
    """A disk whose power a test can cut."""
    with mounted_disk(tmp_path, request.param) as disk:
        yield disk
