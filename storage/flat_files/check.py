"""Finds what is wrong with an installation on the disk, and repairs what can be repaired.

The records are the truth, and every repair follows from them. A record that cannot be read is left
to a person, and keeps its entries and pictures. Codes, attempts, who plays and what is in families
are not looked at: they expire. Nor is what a killed restore left: the next restore or backup
removes it.
"""

import contextlib
import functools
import os
import re

from model import kinds
from model.errors import BadInstallation, NotFound, StorageFailed
from storage.audit_lines import is_whole
from storage.flat_files import disk, problems
from storage.flat_files.check_records import RecordCheck
from storage.flat_files.keys import NO_KEY, KeyFile
from storage.flat_files.layout import Layout
from storage.flat_files.problems import Finding, Findings, Problems, Walk
from storage.maintenance import Progress, Steps, ignore

# In the data folder itself; an administrator may keep other dot files there.
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}")


def check(
    data_dir: str, picture_dir: str, repair: bool = False, progress: Progress = ignore
) -> Problems:
    """Yield what is wrong with the installation in these folders; with `repair`, repair it.

    Without `repair` nothing is made or changed. Raises BadInstallation if there is no installation,
    or one with a layout that this program does not know.
    """
    layout = Layout(data_dir, picture_dir)
    if not os.path.isdir(layout.data_dir):
        raise BadInstallation(f"there is no installation in {layout.data_dir}")
    layout.version()
    walk = Walk(layout, repair, Steps(progress, _count_steps(layout)))
    # One sync for all repairs: single ones of 100,000 index entries would take an hour.
    sync = disk.synced(layout.data_dir) if repair else contextlib.nullcontext()
    with disk.translate_os_errors(), sync:
        yield from walk.confirmed(_look_at_layout, walk)
        yield from _check_data_folder(walk)
        if all(map(os.path.isdir, layout.folders())):
            for folder in layout.folders():  # the disk may refuse those of codes and attempts, too
                yield from walk.paths_in(folder)
            records = RecordCheck(walk)
            yield from records.check_users()
            yield from records.check_others()
            yield from walk.confirmed(_look_at_audit, walk, locks=[layout.audit_lock()])


def _count_steps(layout: Layout) -> int:
    """Return the number of files that belong to records, and of lines of the audit log."""
    folders = [layout.path("deleted"), *layout.picture_folders()]
    for kind in kinds.KINDS:
        folders += map(layout.path, (kind.name, *(unique.folder for unique in kind.unique)))
    steps = sum(len(files) for _, _, files in os.walk(layout.path("index")))
    with contextlib.suppress(OSError):  # it is named when it is looked at
        for folder in folders:
            steps += len(os.listdir(folder))
        steps += sum(1 for _ in disk.read_lines(layout.path("audit.log")))
    return steps


def _look_at_layout(walk: Walk) -> Findings:
    """Look for missing folders and files, and at the access to the folders."""
    layout, make = walk.layout, functools.partial(_make, walk.layout)
    for path, mode in layout.folders().items():
        if not os.path.isdir(path):
            # Without any record every picture would be one of nobody, and removed.
            is_lost = path == layout.users and layout.folder_of_lost_users()
            yield Finding(path, "is missing: the rest was not checked", None if is_lost else make)
            continue
        # An administrator may let a group into these two, or keep it out.
        spare = {layout.data_dir: 0o050, layout.picture_dir: 0o044}.get(path, 0)
        owner = os.stat(path).st_uid if path == layout.picture_dir else walk.owner
        yield from problems.look_at_access(path, mode, owner, spare)
    needed = layout.key_logs() + [layout.path("format")] * (layout.version() == 0)
    for path in needed:
        if not os.path.exists(path):
            yield Finding(path, "is missing", make)


def _make(layout: Layout, path: str) -> str:
    """Make what is missing, as the next start would."""
    layout.make_folders()
    KeyFile(layout)
    layout.record_version()
    return "made" + ": everyone signs in again" * path.endswith("secret_key")


def _check_data_folder(walk: Walk) -> Problems:
    """Check the files in the data folder itself, and the locks."""
    layout = walk.layout
    files = ("secret_key", "next_user_id", "audit.log", "format")
    locks = layout.path("locks")
    held = (yield from walk.paths_in(locks)) if os.path.isdir(locks) else []
    for path in (*map(layout.path, files), *layout.key_logs(), *held):
        yield from walk.confirmed(problems.look_at_access, path, 0o600, walk.owner)
    yield from walk.confirmed(_look_at_key, layout)
    for path in (yield from walk.paths_in(layout.data_dir)):
        if TEMPORARY.fullmatch(os.path.basename(path)):
            yield from walk.confirmed(problems.look_at_orphan, path)


def _look_at_key(layout: Layout) -> Findings:
    """Look at the file of the signing keys: it has to have one."""
    path = layout.path("secret_key")
    try:
        if not disk.read_file(path, NotFound()).split():
            yield Finding(path, NO_KEY)
    except NotFound:
        yield Finding(path, "is missing", functools.partial(_make, layout))
    except StorageFailed as error:
        yield Finding(path, str(error))


def _look_at_audit(walk: Walk) -> Findings:
    log = walk.layout.path("audit.log")
    for number, line in enumerate(walk.steps.each(disk.read_lines(log)), start=1):
        if not is_whole(line):
            yield Finding(log, f"has a damaged line, number {number}")
