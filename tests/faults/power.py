"""A disk of the test's own, in a file, and a switch that cuts its power.

The file is in memory, so that a sync costs nothing; the file system on it is a real one, mounted
through a loop device. The cut is the file system's own: it stops in that moment, with whatever it
has not yet put on its disk. The next mount finds what a machine finds that starts again, and plays
back the journal. (What a disk keeps in a cache of its own, and calls written, is not lost here.)
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
from waiting import wait_until

FILE_SYSTEMS = ["ext4", "xfs"]
# _IOR('X', 125, __u32): XFS_IOC_GOINGDOWN, and for ext4 EXT4_IOC_SHUTDOWN
GOING_DOWN = 0x8004587D
WITHOUT_FLUSHING_THE_LOG = struct.pack("I", 2)
SIZE = 320 * 2**20  # bytes, most of them holes: mkfs.xfs takes no less than 300 MiB
MOUNT_OPTIONS = {
    # No commit by the clock and no flush that a rename brings: what is not synced is lost.
    "ext4": "loop,commit=600,noauto_da_alloc",
    "xfs": "loop,nouuid",  # beside the disk that it is a copy of
}


class Disk:
    """A mounted disk: `folder` is where, `image` the file that it is in."""

    def __init__(self, image: Path, folder: Path, file_system: str) -> None:
        self.image, self.folder, self.file_system = image, folder, file_system

    def mount(self) -> None:
        options = MOUNT_OPTIONS[self.file_system]
        subprocess.run(["mount", "-o", options, self.image, self.folder], check=True)

    def cut_power(self) -> None:
        """Stop the file system here and now."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            check_is_ours(descriptor, self.image)
            fcntl.ioctl(descriptor, GOING_DOWN, WITHOUT_FLUSHING_THE_LOG)
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """What the next start of the machine finds on the disk."""
        # Who was killed a moment ago may not have let go yet.
        unmount = ["umount", self.folder]
        wait_until(lambda: subprocess.run(unmount, stderr=subprocess.DEVNULL).returncode == 0)
        # A copy: others may just have made a mount namespace, and keep the old one in it.
        copy = self.image.with_name("copy")
        subprocess.run(["cp", self.image, copy], check=True)
        copy.replace(self.image)
        self.mount()


def check_is_ours(descriptor: int, image: Path) -> None:
    """Raise AssertionError unless an open file is on the disk in `image`, which is all it holds."""
    device = os.fstat(descriptor).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    assert device != os.stat("/").st_dev
    backing_file = Path(f"/sys/dev/block/{number}/loop/backing_file")
    assert backing_file.exists(), "this is no disk in a file"
    assert Path(backing_file.read_text().strip()) == image
    mounts = [line.split()[2] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    assert mounts.count(number) == 1, "somebody else uses this disk"


@contextlib.contextmanager
def disk_in_memory(folder: Path, file_system: str) -> Iterator[Disk]:
    """Make a disk in memory, and mount it; the test is skipped where this machine cannot."""
    if not shutil.which(f"mkfs.{file_system}"):
        pytest.skip(f"no mkfs.{file_system}")
    memory = folder / "memory"
    memory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", memory], check=True)
    try:
        disk = Disk(memory / "image", memory / "mounted", file_system)
        disk.folder.mkdir()
        disk.image.touch()
        os.truncate(disk.image, SIZE)
        subprocess.run([f"mkfs.{file_system}", "-q", disk.image], check=True)
        try:
            disk.mount()
        except subprocess.CalledProcessError:
            # The mount has asked for its module.
            if file_system in Path("/proc/filesystems").read_text().split():
                raise
            pytest.skip(f"this kernel has no {file_system}")
        yield disk
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", memory], check=True)
