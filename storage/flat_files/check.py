"""Finds what is wrong with an installation on the disk, and repairs what can be repaired.

The records are the truth, and every repair follows from them. A record that cannot be read is left
to a person, and keeps its index entries and pictures. Codes, attempts and invitations are not
looked at: they expire.
"""

import contextlib
import functools
import os
import re
import zlib

from storage import CLIENT_ID, USER_ID, BadInstallation, NotFound, StorageFailed
from storage.audit_lines import is_act
from storage.flat_files import disk, problems
from storage.flat_files.audit import indexed_subjects_in
from storage.flat_files.check_records import RecordCheck
from storage.flat_files.index import Index
from storage.flat_files.invites import settle
from storage.flat_files.keys import NO_KEY, KeyFile
from storage.flat_files.layout import FROZEN, LAYOUT_VERSION, STAGED, Layout
from storage.flat_files.load import sweep
from storage.flat_files.problems import Finding, Findings, Problems, Walk
from storage.flat_files.upgrade import index_audit_log, upgrade
from storage.maintenance import Progress, ignore

INVITE_FILE = re.compile(r"[0-9a-f]{64}\.(json|taken)")
AUDIT_SUBJECT = re.compile(f"{USER_ID.pattern}|{CLIENT_ID.pattern}")
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
    layout.version()
    walk = Walk(layout, repair, progress)
    # One sync for all repairs: single ones of 100,000 index entries would take an hour.
    sync = disk.synced(layout.data_dir) if repair else contextlib.nullcontext()
    with disk.translate_os_errors(), sync:
        yield from walk.confirmed(_look_at_layout, walk)
        yield from _check_data_folder(walk)
        is_whole = all(map(os.path.isdir, layout.folders()))
        if is_whole and layout.version() in (0, LAYOUT_VERSION):
            yield from _check_contents(walk)


def _check_contents(walk: Walk) -> Problems:
    layout, records = walk.layout, RecordCheck(walk)
    yield from walk.count(layout.folders())
    yield from records.check_users()
    # After the pictures, which a restore may have left, and before its clients.
    yield from walk.confirmed(_look_at_leftovers, layout, locks=[layout.lock("archive")])
    yield from records.check_clients()
    invites, accounts_lock = layout.path("invites"), lambda path: [layout.accounts_lock()]
    yield from walk.check_folder(invites, INVITE_FILE, _look_at_invite, accounts_lock)
    # The index entries of a record that was not seen would look like nobody's.
    if walk.refused.isdisjoint(map(layout.path, ("users", "deleted", "clients"))):
        yield from records.check_index()
        # Its files are looked at with the log.
        yield from walk.check_folder(layout.path("audit"), AUDIT_SUBJECT)
        locks = [layout.lock("clients"), layout.audit_lock()]
        yield from walk.confirmed(_look_at_audit, layout, locks=locks)


# -- the data folder ----------------------------------------------------------------------------


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
            is_lost = path == layout.users and layout.folder_of_lost_users()
            yield Finding(path, "is missing: the rest was not checked", None if is_lost else make)
            continue
        # An administrator may let a group into these two, or keep it out.
        spare = {layout.data_dir: 0o050, layout.picture_dir: 0o044}.get(path, 0)
        owner = os.stat(path).st_uid if path == layout.picture_dir else walk.owner
        yield from problems.look_at_access(path, mode, owner, spare)
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
        yield from walk.confirmed(problems.look_at_access, path, 0o600, walk.owner)
    yield from walk.confirmed(_look_at_key, layout)
    for path in (yield from walk.paths_in(layout.data_dir)):
        if TEMPORARY.fullmatch(os.path.basename(path)):
            yield from walk.confirmed(problems.look_at_orphan, path)


def _look_at_key(layout: Layout) -> Findings:
    path = layout.path("secret_key")
    try:
        if not disk.read_file(path, NotFound()).split():
            yield Finding(path, NO_KEY)
    except NotFound:
        yield Finding(path, "is missing", functools.partial(_make, layout))
    except StorageFailed as error:
        yield Finding(path, str(error))


def _look_at_leftovers(layout: Layout) -> Findings:
    for path in (layout.path(FROZEN), layout.path(STAGED), f"{layout.picture_dir}/{STAGED}"):
        if problems.is_old(path):
            problem = "was left behind by a backup or a restore"
            yield Finding(path, problem, functools.partial(_remove_leftover, layout))


def _remove_leftover(layout: Layout, path: str) -> str:
    """Remove a staging folder, and the clients of a restore that put no users in place."""
    unfinished = sweep(layout)
    done = problems.remove(path)
    return "taken back: the restore can be repeated" if unfinished else done


def _look_at_invite(path: str) -> Findings:
    """Look at an invitation: the link of a used one exists only while an account is made."""
    if path.endswith(".taken") and os.path.lexists(path):
        yield Finding(path, "is of a sign-up that was interrupted", settle)


# -- the audit log and its index ----------------------------------------------------------------


def _look_at_audit(layout: Layout) -> Findings:
    log, folder = layout.path("audit.log"), layout.path("audit")
    indexed = set(filter(AUDIT_SUBJECT.fullmatch, os.listdir(folder)))
    if not os.path.lexists(log):
        if indexed:
            yield Finding(log, "is missing, and audit/ has lines of it")
        return
    is_damaged = False
    sums: dict[str, int] = {}  # check sums of the lines about each subject
    with disk.open_log(log) as lines:
        for number, line in enumerate(lines, start=1):
            if not is_act(line):
                yield Finding(log, f"has a damaged line, number {number}")
                is_damaged = True
            for subject in indexed_subjects_in(layout, line):
                sums[subject] = zlib.crc32(line, sums.get(subject, 0))
    if is_damaged:
        return  # the index may have the line that a person puts back
    rebuild = functools.cache(lambda: index_audit_log(layout))
    for subject in sorted(indexed | sums.keys()):
        path = f"{folder}/{subject}"
        if subject not in sums:
            problem = "is about nobody, or about a client that is gone"
            yield Finding(path, problem, problems.remove)
        elif _check_sum(path) != sums[subject]:
            problem = "does not have the lines that audit.log has"
            yield Finding(path, problem, lambda path: rebuild() or "rebuilt from audit.log")


def _check_sum(path: str) -> int | None:
    with contextlib.suppress(FileNotFoundError), disk.open_log(path) as file:
        return functools.reduce(lambda checked, line: zlib.crc32(line, checked), file, 0)
    return None
