"""Filling an installation that has no users and clients, as a restore does.

Everything is written to a staging folder beside its final place, and synced. Then it is moved, the
users last: until their folder is renamed nothing counts.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from model import kinds
from model.encoding import encode_values, record_as_dict
from model.errors import BadInstallation, DamagedRecord
from model.kind import Kind
from model.kinds import USERS
from model.records import User
from storage.contract import new_key
from storage.files import confirm_in, translate_os_errors
from storage.flat_files import disk, key_list
from storage.flat_files.entries import Entries, keys_of
from storage.flat_files.entry_writer import EntryWriter
from storage.flat_files.keys import KeyFile
from storage.flat_files.layout import STAGED, Layout
from storage.flat_files.pictures import MODE
from storage.flat_files.record_files import RecordFiles
from storage.maintenance import Load, Report


def staging_of(layout: Layout) -> Layout:
    """Return the staging folders of an installation."""
    return Layout(layout.path(STAGED), f"{layout.picture_dir}/{STAGED}")


def remove_leftovers(layout: Layout) -> bool:
    """Remove what a killed load left behind; return True if it had not put the users in place."""
    staged = staging_of(layout)
    unfinished = os.path.exists(staged.users) and not RecordFiles(layout, USERS).ids()
    if unfinished:
        for _, path, staged_path in _linked_files(layout, staged):
            # A file that the load put in place and that nobody has changed since.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samefile(path, staged_path):
                    os.unlink(path)
    for folder in (staged.data_dir, staged.picture_dir):
        shutil.rmtree(folder, ignore_errors=True)
    return unfinished


def _linked_files(layout: Layout, staged: Layout) -> Iterator[tuple[Kind, str, str]]:
    """Yield the path of each record but the users, and its path in the staging folder."""
    for kind in kinds.KINDS:
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(staged.path(kind.name)) if kind is not USERS else ():
                yield kind, layout.path(kind.name, name), staged.path(kind.name, name)


@contextlib.contextmanager
def load(layout: Layout, before: Callable[[], None], report: Report) -> Iterator[Load]:
    """Yield what fills the installation, as `Storage.load` says."""
    with translate_os_errors(), layout.lock("archive"), contextlib.ExitStack() as cleanup:
        if remove_leftovers(layout):
            report("an earlier restore or copy was interrupted: what it left is removed")
        _require_empty(layout)
        cleanup.callback(remove_leftovers, layout)
        with disk.synced(layout.data_dir), disk.synced(layout.picture_dir):
            loaded = StagedFiles(staging_of(layout))
            cleanup.callback(loaded.entries.stop)
            yield loaded
            loaded.entries.finish()
        before()
        _put_in_place(layout, loaded)


def _require_empty(layout: Layout) -> None:
    if any(RecordFiles(layout, kind).ids(at_most=1) for kind in kinds.KINDS if kind.counts):
        raise BadInstallation(
            f"{layout.data_dir} has players or clients, or handles of players who left: a restore "
            "or a copy needs an installation that has none (IDENTITY_DATA_DIR and "
            "IDENTITY_PICTURE_DIR)"
        )


class StagedFiles(Load):
    """Records and pictures in staging folders. They are synced later, all together."""

    def __init__(self, staged: Layout) -> None:
        for folder, mode in staged.folders().items():
            disk.make_folder(folder, mode)
        self.layout = staged
        self.entries = EntryWriter(staged)

    def add_user(self, user: User, pictures: dict[str, bytes]) -> None:
        self.add(USERS, user)
        if pictures:
            for size, path in self.layout.pictures(user.id, user.pfp_timestamp).items():
                disk.write_new_file(path, [pictures[size]], MODE)

    def add(self, kind: Kind, record: Any) -> None:
        path = self.layout.path(kind.name, f"{record.id}.json")
        self._write(path, [encode_values(record_as_dict(record, stored=True))])
        self.entries.add(kind, record)

    def add_deleted_id(self, user_id: int) -> None:
        if os.path.exists(self.layout.user(user_id)):
            raise DamagedRecord(f"deleted/{user_id}", "there is a user with this id")
        self._write(self.layout.deleted(user_id), [])

    def add_audit_log(self, lines: Iterable[bytes]) -> None:
        self.entries.finish()  # the log comes last
        self._write(self.layout.path("audit.log"), lines)

    def _write(self, path: str, content: Iterable[bytes]) -> None:
        try:
            disk.write_new_file(path, content)
        except FileExistsError:
            name = path.removeprefix(f"{self.layout.data_dir}/")
            raise DamagedRecord(name, "it is there twice") from None


def _put_in_place(layout: Layout, loaded: StagedFiles) -> None:
    """Move everything else before the users: once they are there, all is."""
    staged = loaded.layout
    with contextlib.ExitStack() as held:
        for kind in kinds.KINDS:
            held.enter_context(layout.kind_lock(kind))
        _require_empty(layout)
        # Before the pictures, which are of ids that were given then. Users who were here before and
        # are deleted had ids as well.
        next_id = max(loaded.next_user_id, disk.read_number(layout.path("next_user_id")))
        disk.write_file(layout.path("next_user_id"), b"%d\n" % next_id)
        for source, folder in zip(staged.picture_folders(), layout.picture_folders(), strict=True):
            for name in os.listdir(source):
                os.rename(f"{source}/{name}", f"{folder}/{name}")
            disk.sync_folder(folder)
        _put_audit_in_place(layout, staged)
        KeyFile(layout).replace(loaded.keys or (new_key().encode(),))
        _replace_folder(staged.path("deleted"), layout.path("deleted"))
        for kind in kinds.KINDS:
            _put_entries_in_place(layout, staged, kind)
        for _, path, staged_path in _linked_files(layout, staged):
            with contextlib.suppress(FileExistsError):  # an invitation of the same hash
                os.link(staged_path, path)
        for kind in kinds.KINDS:
            disk.sync_folder(layout.path(kind.name))
        disk.sync_folder(layout.data_dir)
        _put_users_in_place(layout, staged)


def _put_entries_in_place(layout: Layout, staged: Layout, kind: Kind) -> None:
    """Replace the entries of a kind, or add to them if this installation may have records of it."""
    if kind.counts:  # there are none
        for each in (f"index/{kind.name}", *(unique.folder for unique in kind.unique)):
            _replace_folder(staged.path(each), layout.path(each))
        for unique in kind.unique:
            if unique.ordered:
                key_list.renew(layout.path(f"{unique.folder}.log"))
        disk.sync_folder(layout.path("index"))
        return
    loaded, entries = RecordFiles(staged, kind), Entries(layout, kind)
    for record_id in loaded.ids():
        for each in keys_of(kind, loaded.read_file(record_id)):
            entries.put(*each, record_id)


def _replace_folder(source: str, target: str) -> None:
    """Empty the target, whose records are gone, and rename the source over it."""
    for entry in os.scandir(target):
        shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
    os.rename(source, target)


def _put_audit_in_place(layout: Layout, staged: Layout) -> None:
    """Put the loaded lines in front of those of this installation."""
    log, staged_log = layout.path("audit.log"), staged.path("audit.log")
    with layout.audit_lock():
        # Not twice, if an earlier load was interrupted here.
        ours = dict.fromkeys(disk.read_lines(log))
        for line in disk.read_lines(staged_log):
            ours.pop(line, None)
        disk.append_durably(staged_log, b"".join(ours))
        disk.replace_durably(staged_log, log)


def _put_users_in_place(layout: Layout, staged: Layout) -> None:
    """Put the users in place, which makes the load count. Raises SaveUnconfirmed, OSError."""
    for name in os.listdir(layout.users):
        if name.startswith("."):  # temporary: no folder is renamed over one that holds any
            disk.remove_file(f"{layout.users}/{name}")
    os.rename(staged.users, layout.users)
    confirm_in(layout.data_dir)
