"""Finds what is wrong with an installation on the disk, and repairs what can be repaired.

The records are the truth, and every repair follows from them. A record that cannot be read is left
to a person, and keeps its index entries and pictures. Codes, attempts and invitations are not
looked at: they expire.
"""

import contextlib
import functools
import os
import re

from storage import BadInstallation, NotFound, StorageFailed
from storage.flat_files.check_audit import check_audit
from storage.flat_files.check_clients import check_clients, check_index
from storage.flat_files.check_users import UserCheck
from storage.flat_files.disk import read_file, synced, translate_os_errors
from storage.flat_files.index import Index
from storage.flat_files.keys import NO_KEY, KeyFile
from storage.flat_files.layout import FROZEN, LAYOUT_VERSION, STAGED, Layout
from storage.flat_files.load import sweep
from storage.flat_files.problems import (
    Finding,
    Findings,
    is_old,
    look_at_access,
    look_at_orphan,
    look_at_taken,
    remove,
)
from storage.flat_files.upgrade import upgrade
from storage.flat_files.walk import Problems, Walk
from storage.maintenance import Progress, ignore

INVITE_FILE = re.compile(r"[0-9a-f]{64}\.(json|taken)")
# In the data folder itself; an administrator may keep other dot files there.
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}(\.old)?")


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
    layout.refuse_other_version()
    walk = Walk(layout, repair, progress)
    # One sync for all repairs: single ones of 100,000 index entries would take an hour.
    with translate_os_errors(), synced(layout.data_dir) if repair else contextlib.nullcontext():
        yield from walk.confirmed(_look_at_layout, walk)
        yield from _check_data_folder(walk)
        is_whole = all(map(os.path.isdir, layout.folders()))
        if is_whole and layout.version() in (0, LAYOUT_VERSION):
            yield from _check_contents(walk)


def _check_contents(walk: Walk) -> Problems:
    layout = walk.layout
    yield from walk.count(layout.folders())
    yield from UserCheck(walk).problems()
    # After the pictures, which a restore may have left, and before its clients.
    yield from walk.confirmed(_look_at_leftovers, layout, locks=[layout.archive_lock()])
    yield from check_clients(walk)
    invites = layout.path("invites")
    yield from walk.check_folder(
        invites, INVITE_FILE, look_at_taken, lambda path: [layout.accounts_lock()]
    )
    # The index entries of a record that was not seen would look like nobody's.
    if walk.refused.isdisjoint(map(layout.path, ("users", "deleted", "clients"))):
        yield from check_index(walk)
        yield from check_audit(walk)


def _look_at_layout(walk: Walk) -> Findings:
    layout, make = walk.layout, functools.partial(_make, walk.layout)
    version = layout.version()
    if 0 < version < LAYOUT_VERSION:
        problem = f"is of layout {version}, which the next start upgrades; the rest was not checked"
        yield Finding(layout.path("format"), problem, make)
        return
    for path, mode in layout.folders().items():
        if not os.path.isdir(path):
            # Without any record every picture would be one of nobody, and removed.
            is_lost = path == layout.users and layout.has_lost_users()
            yield Finding(path, "is missing: the rest was not checked", None if is_lost else make)
            continue
        # An administrator may let a group into these two, or keep it out.
        spare = {layout.data_dir: 0o050, layout.picture_dir: 0o044}.get(path, 0)
        is_ours = path != layout.picture_dir
        yield from look_at_access(
            path, mode, walk.owner if is_ours else os.stat(path).st_uid, spare
        )
    if version == 0:
        yield Finding(layout.path("format"), "is missing", make)


def _make(layout: Layout, path: str) -> str:
    """Make what is missing, as the next start would."""
    layout.make_folders()
    KeyFile(layout)
    upgrade(layout, Index(layout.path("index")))
    return "made" + ": everyone signs in again" * path.endswith("secret_key")


def _check_data_folder(walk: Walk) -> Problems:
    """Check the files in the data folder itself, and the locks."""
    layout = walk.layout
    files = ("secret_key", "next_user_id", "audit.log", "format", "accounts.lock")
    locks = layout.path("locks")
    held = (yield from walk.paths_in(locks)) if os.path.isdir(locks) else []
    for path in (*map(layout.path, files), *held):
        yield from walk.confirmed(look_at_access, path, 0o600, walk.owner)
    yield from walk.confirmed(_look_at_key, layout)
    for path in (yield from walk.paths_in(layout.data_dir)):
        if TEMPORARY.fullmatch(os.path.basename(path)):
            yield from walk.confirmed(look_at_orphan, path)


def _look_at_key(layout: Layout) -> Findings:
    path = layout.path("secret_key")
    try:
        if not read_file(path, NotFound()).split():
            yield Finding(path, NO_KEY)
    except NotFound:
        yield Finding(path, "is missing", functools.partial(_make, layout))
    except StorageFailed as error:
        yield Finding(path, str(error))


def _look_at_leftovers(layout: Layout) -> Findings:
    for path in (layout.path(FROZEN), layout.path(STAGED), f"{layout.picture_dir}/{STAGED}"):
        if is_old(path):
            problem = "was left behind by a backup or a restore"
            yield Finding(path, problem, functools.partial(_take_back, layout))


def _take_back(layout: Layout, path: str) -> str:
    """Remove a staging folder, and the clients of a restore that put no users in place."""
    unfinished = sweep(layout)
    done = remove(path)
    return "taken back: the restore can be repeated" if unfinished else done
