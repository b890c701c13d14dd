"""What looks wrong with the folders of an installation, each with a fix: access, disk, clock."""

import itertools
import os
import time
from collections.abc import Iterator
from shlex import quote

from model.records import CLOCK_TOLERANCE
from storage.files import user_name
from storage.flat_files.layout import Layout
from storage.maintenance import Advice

MIN_FREE_SPACE = 200 * 2**20  # bytes
MIN_FREE_FILES = 10_000  # inodes: a player takes six


def check_place(data_dir: str, picture_dir: str) -> Iterator[Advice]:
    """Yield what looks wrong with these folders, their disks and the clock."""
    yield from check_clock(data_dir)
    yield from check_readers(data_dir)
    yield from check_folders(data_dir, picture_dir)
    yield from check_disk_space(data_dir, picture_dir)


def check_clock(data_dir: str) -> Iterator[Advice]:
    """Find a clock that was set back since the newest record was saved."""
    # The mtime of a folder is that of the newest record in it.
    places = [f"{data_dir}/{name}" for name in ("users", "codes", "audit.log")]
    newest = max([os.stat(each).st_mtime for each in places if os.path.exists(each)], default=0)
    now = time.time()
    if now < newest - CLOCK_TOLERANCE:
        date = time.strftime("%d %B %Y, %H:%M", time.gmtime(now))
        yield Advice(
            f"the clock says {date} UTC, before the newest record was saved",
            "set the clock (timedatectl set-ntp true): codes, tokens and sessions expire by it",
        )


def check_readers(data_dir: str) -> Iterator[Advice]:
    """Find folders and keys that others can read."""
    keys = f"{data_dir}/secret_key"
    for path, mode in ((data_dir, "700"), (keys, "600")):
        readable = os.path.isdir(data_dir) and os.path.exists(path)
        if readable and os.stat(path).st_mode & 0o077:
            fix = f"chmod {mode} {quote(path)}"
            yield Advice(f"other users of this machine can read {path}", fix)


def check_folders(data_dir: str, picture_dir: str) -> Iterator[Advice]:
    """Find folders that this process cannot write."""
    layout = Layout(data_dir, picture_dir)
    places = {
        "IDENTITY_DATA_DIR": [data_dir, *layout.data_folders()],
        "IDENTITY_PICTURE_DIR": [picture_dir, *layout.picture_folders()],
    }
    for variable, (folder, *parts) in places.items():
        found = (check_folder(variable, each) for each in (folder, *filter(os.path.exists, parts)))
        # One of each is enough: a read-only disk would be found once for every folder.
        yield from itertools.islice(itertools.chain.from_iterable(found), 1)


def check_folder(variable: str, folder: str) -> Iterator[Advice]:
    """Find out why this process cannot write in a folder, or cannot create it."""
    existing = folder
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    number = os.geteuid()  # for chown on the host of a container, which may not know the name
    owner, runs_as = user_name(os.stat(existing).st_uid), user_name(number)
    if not os.path.isdir(existing):
        yield Advice(f"{existing} is not a folder", f"set {variable} to a folder")
    elif existing == folder and owner != runs_as:
        yield Advice(
            f"{folder} belongs to {owner}, and this runs as {runs_as}: files of one "
            "cannot be read by the other",
            f"run every command as {owner} (sudo -u {owner} ...), or "
            f"chown -R {number} {quote(folder)}",
        )
    elif not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
        if os.statvfs(existing).f_flag & os.ST_RDONLY:
            fix = "mount its disk for writing; if it was, dmesg says why it no longer is"
        elif owner == runs_as:
            fix = f"chmod u+rwx {quote(existing)}"
        elif os.path.ismount(existing) and existing != "/":
            fix = (
                f"chown {number} {quote(existing)}, as root; for a volume of a container, "
                f"chown {number} its folder on the host"
            )
        elif os.access(existing, os.X_OK, effective_ids=True):
            fix = f"install -d -o {runs_as} {quote(folder)}, as root"
        else:
            fix = f"set {variable} to another folder"
        yield Advice(f"{runs_as} cannot write in {existing}", fix)


def check_disk_space(data_dir: str, picture_dir: str) -> Iterator[Advice]:
    """Find disks with little room for more records and pictures."""
    folders = [each for each in (picture_dir, data_dir) if os.path.exists(each)]
    disks = {os.stat(each).st_dev: each for each in folders}
    for folder in disks.values():
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        fix = "free some space: nothing can be saved on a full disk"
        if free < MIN_FREE_SPACE:
            yield Advice(f"only {free // 2**20} MiB are free on the disk of {folder}", fix)
        if disk.f_files and disk.f_favail < MIN_FREE_FILES:  # 0: the file system has no limit
            problem = f"only {disk.f_favail} more files fit on the disk of {folder} (df -i)"
            yield Advice(problem, fix)
