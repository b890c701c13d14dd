"""Entries for keys that are new in this version of the program: they follow from the records."""

import contextlib
import os
import shutil
import time
from collections.abc import Set

from model import kinds
from model.errors import DamagedRecord, NotFound
from model.kind import Index, Kind, Unique
from storage.flat_files import disk
from storage.flat_files.entries import keys_of
from storage.flat_files.layout import LAYOUT_VERSION, Layout
from storage.flat_files.record_files import RecordFiles
from storage.maintenance import Upgrade
from storage.repositories import Id

REMOVED_KEYS = ("used_invites",)  # folders of keys that an earlier version had
SAMPLE = 200  # records of a kind that are read to estimate a time


def add_keys(layout: Layout) -> None:
    """Write the entries of each unique key or index whose folder is missing, as it is a new one.

    While they are written a file tells which keys those are, so that a start that was killed is
    repeated by the next one. Folders of keys that are no more are deleted then. Raises OSError.
    """
    if not _keys_to_add(layout):
        return
    disk.make_folder(layout.path("locks"), 0o700)
    with layout.lock("added-keys"):
        if new := _keys_to_add(layout):
            disk.write_file(_marker(layout), "\n".join(new).encode())
            with disk.synced(layout.data_dir):
                _fill(layout, new)
            disk.remove_durably(_marker(layout))
    for folder in REMOVED_KEYS:
        shutil.rmtree(layout.path(folder), ignore_errors=True)


def find_upgrade(layout: Layout) -> Upgrade | None:
    """Return what the next start does, None without an installation. Raises BadInstallation."""
    version, new = layout.version(), _keys_to_add(layout)
    layout.require_users()
    if not os.path.isdir(layout.users):
        return None
    keys, seconds = {}, 0.0
    for kind in kinds.KINDS:
        folders = [each for each in (_folder(kind, key) for key in kind.keys) if each in new]
        if folders:
            records = RecordFiles(layout, kind)
            ids = records.ids()
            each = _measure_record(records, ids[:SAMPLE])
            seconds += each * len(ids) * (1 + len(folders))  # an entry takes as long as a record
            keys |= dict.fromkeys(folders, len(ids))
    is_new = [kind.name for kind in kinds.KINDS if not os.path.isdir(layout.path(kind.name))]
    removed = [each for each in REMOVED_KEYS if new and os.path.isdir(layout.path(each))]
    return Upgrade(version or LAYOUT_VERSION, LAYOUT_VERSION, keys, is_new, removed, seconds)


def _measure_record(records: RecordFiles, sample: list[Id]) -> float:
    """Return the seconds that a record takes to be read, with its keys."""
    started = time.perf_counter()
    for record_id in sample:
        with contextlib.suppress(DamagedRecord, NotFound):
            keys_of(records.kind, records.read_file(record_id))
    return (time.perf_counter() - started) / max(len(sample), 1)


def _marker(layout: Layout) -> str:
    return layout.path("added_keys")


def _keys_to_add(layout: Layout) -> Set[str]:
    """Return the folders of keys that are missing, and of those that a killed start has begun."""
    begun = []
    with contextlib.suppress(NotFound):
        begun = disk.read_file(_marker(layout), NotFound()).decode(errors="replace").split()
    return {*begun, *_new_keys(layout)}


def _new_keys(layout: Layout) -> list[str]:
    """Return the folders of keys that are missing, of kinds that have a folder of records."""
    found = []
    for kind in kinds.KINDS:
        if os.path.isdir(layout.path(kind.name)):
            folders = (_folder(kind, key) for key in kind.keys)
            found += [each for each in folders if not os.path.isdir(layout.path(each))]
    return found


def _folder(kind: Kind, key: Unique | Index) -> str:
    """Return the folder of a key's entries, within the data folder."""
    return key.folder if isinstance(key, Unique) else f"index/{kind.name}/{key.name}"


def _fill(layout: Layout, folders: Set[str]) -> None:
    """Make these folders of keys, and write the entries of all readable records in them."""
    for kind in kinds.KINDS:
        new = {key for key in kind.keys if _folder(kind, key) in folders}
        if not new:
            continue
        for key in new:
            disk.make_folder(layout.path(_folder(kind, key)), 0o700)
        records = RecordFiles(layout, kind)
        with layout.kind_lock(kind):
            for record_id in records.ids():
                with contextlib.suppress(DamagedRecord, NotFound):
                    for key, value in keys_of(kind, records.read_file(record_id)):
                        if key in new:
                            records.entries.put(key, value, record_id, durable=False)
