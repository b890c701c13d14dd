"""One state of the flat files while the server goes on, as a backup reads it.

Records are replaced and never written in place: a hard link to each keeps it as it is.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from typing import BinaryIO

import storage
from storage import DamagedRecord, Invite, NoSuchPicture, NoSuchUser, NotFound, StorageFailed, User
from storage.flat_files import disk
from storage.flat_files.invites import unused_invites
from storage.flat_files.keys import KeyFile
from storage.flat_files.layout import FROZEN, USER_LOCKS, Layout
from storage.flat_files.load import sweep
from storage.flat_files.pictures import will_be_generated
from storage.flat_files.record_files import client_ids, read_user, user_ids
from storage.flat_files.unique_index import UniqueIndex
from storage.maintenance import Report, check_picture, refuse_unusable
from storage.rules import USER_IDS_END

CANNOT_BE_READ = (DamagedRecord, NotFound, StorageFailed)


@contextlib.contextmanager
def snapshot(
    layout: Layout, before: Callable[[], None], report: Report
) -> Iterator[storage.Snapshot]:
    """As `Storage.snapshot`."""
    frozen = Layout(layout.path(FROZEN), layout.picture_dir)
    with disk.translate_os_errors(), layout.lock("archive"):
        sweep(layout)
        shutil.rmtree(frozen.data_dir, ignore_errors=True)
        before()
        try:
            # Reported after the locks are released: reading the lines may take time.
            for path in _freeze(layout, frozen):
                report(f"{path} belongs to another user of the system, or is no file: left out")
            yield FrozenFiles(layout, frozen, report)
        finally:
            shutil.rmtree(frozen.data_dir, ignore_errors=True)


def _freeze(layout: Layout, frozen: Layout) -> list[str]:
    """Link every record into a folder; return the paths of those that cannot be linked."""
    for part in ("users", "names", "emails", "clients", "invites"):
        disk.make_folder(frozen.path(part), 0o700)
    _refuse_without_links(layout, frozen)
    refused = []

    def link(path: str, frozen_path: str) -> None:
        try:
            os.link(path, frozen_path, follow_symlinks=False)
        except PermissionError:  # proc(5), protected_hardlinks; or a folder
            refused.append(path)

    with layout.accounts_lock():
        with contextlib.ExitStack() as held:
            for number in range(USER_LOCKS):
                # The list of a folder may lack a name that is being replaced.
                held.enter_context(layout.user_lock(number))
            users = user_ids(layout)
        for user_id in users:
            link(layout.user(user_id), frozen.user(user_id))
        for invite_hash in unused_invites(layout):
            link(*(each.path("invites", f"{invite_hash}.json") for each in (layout, frozen)))
    with layout.lock("clients"):
        for client_id in client_ids(layout):
            link(layout.client(client_id), frozen.client(client_id))
    with layout.audit_lock(), contextlib.suppress(FileNotFoundError):  # it grows in place
        disk.open_log(layout.path("audit.log")).close()  # refuses what is no file
        shutil.copyfile(layout.path("audit.log"), frozen.path("audit.log"))
    return refused


def _refuse_without_links(layout: Layout, frozen: Layout) -> None:
    own = frozen.path("own")
    disk.write_new_file(own, [])
    try:
        os.link(own, f"{own}.link")
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        raise storage.BadInstallation(
            f"the file system of {layout.data_dir} refuses hard links, which a backup needs: "
            f"stop the server, and copy this folder and {layout.picture_dir}"
        ) from error


class FrozenFiles(storage.Snapshot):
    """Linked records, and the pictures as they are now."""

    def __init__(self, layout: Layout, frozen: Layout, report: Report) -> None:
        self._layout = layout
        self._frozen = frozen
        self._report = report
        self._unique = UniqueIndex(frozen, lambda user_id: read_user(frozen, user_id))
        self._users = self._usable("users", user_ids(frozen))
        # Not frozen: deleted ids only grow, and later ones are true as well.
        names = os.listdir(layout.path("deleted"))
        deleted = [int(name) for name in names if storage.USER_ID.fullmatch(name)]
        # A deletion that was killed leaves both, and the record is the truth.
        self._deleted = set(self._usable("deleted", deleted)).difference(self._users)
        self.users_total = len(self._users)
        largest = max(self._deleted.union(self._users), default=0)
        self.next_user_id = max(self._read_next_id(), largest + 1)

    def _leave_out(self, reason: object) -> None:
        self._report(f"{reason}: left out")

    def _usable(self, folder: str, ids: list[int]) -> list[int]:
        """Return the ids that a restore accepts, ascending."""
        for user_id in sorted(each for each in ids if each >= USER_IDS_END):
            self._leave_out(f"{folder} has the id {user_id}, which is too large")
        return sorted(each for each in ids if each < USER_IDS_END)

    def _read_next_id(self) -> int:
        """Return the next id; 0 if it is lost: then it follows from the ids that are there."""
        path = self._layout.path("next_user_id")
        try:
            next_id = disk.read_number(path)
        except StorageFailed as error:
            self._leave_out(error)
            return 0
        if next_id <= USER_IDS_END:
            return next_id
        self._leave_out(f"{path} is too large")
        return 0

    def users(self) -> Iterator[tuple[User, dict[str, bytes]]]:
        for user_id in self._users:
            try:
                user = self._read(self._frozen.user(user_id), User, id=user_id)
                refuse_unusable(user)
                self._unique.add(user)
                pictures = self._read_pictures(user)
            except NoSuchUser:
                self._deleted.add(user_id)  # just now
            except CANNOT_BE_READ as error:
                self._leave_out(error)
            else:
                yield user, pictures

    def deleted_ids(self) -> list[int]:
        return sorted(self._deleted)

    def clients(self) -> Iterator[storage.Client]:
        for client_id in client_ids(self._frozen):
            try:
                client = self._read(self._frozen.client(client_id), storage.Client, id=client_id)
                refuse_unusable(client)
            except CANNOT_BE_READ as error:
                self._leave_out(error)
            else:
                yield client

    def invites(self) -> Iterator[tuple[str, Invite]]:
        for invite_hash in unused_invites(self._frozen):
            path = self._frozen.path("invites", f"{invite_hash}.json")
            try:
                yield invite_hash, self._read(path, Invite)
            except CANNOT_BE_READ as error:
                self._leave_out(error)

    def keys(self) -> tuple[bytes, ...]:
        # Not frozen: if they were rotated since, the older ones may be known to others.
        return KeyFile(self._layout).read()

    def audit_log(self) -> BinaryIO:
        path = self._frozen.path("audit.log")
        return open(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb")

    def _read(self, path: str, record_type: type, **expected: object):
        name = path.removeprefix(f"{self._frozen.data_dir}/")
        missing = NotFound(f"{name} is a link that leads nowhere")
        return disk.read_record(path, record_type, missing, **expected)

    def _read_pictures(self, user: User) -> dict[str, bytes]:
        """Return a user's pictures by size.

        If they were changed since, these are the new ones, whose timestamp `user` then gets. Raises
        NoSuchUser if the user was deleted since.
        """
        with contextlib.suppress(NoSuchPicture):
            return self._read_generation(user)
        try:
            with self._layout.user_lock(user.id):  # else they may be in the making
                user.pfp_timestamp = read_user(self._layout, user.id).pfp_timestamp
                if will_be_generated(user, self._layout.pictures(user.id, user.pfp_timestamp)):
                    return {}
                return self._read_generation(user)
        except NoSuchPicture as error:
            self._report(f"{error}: left out, player {user.id} gets a generated picture")
        user.pfp_timestamp = None
        return {}

    def _read_generation(self, user: User) -> dict[str, bytes]:
        paths = self._layout.pictures(user.id, user.pfp_timestamp)
        return {size: _read_picture(size, path) for size, path in paths.items()}


def _read_picture(size: str, path: str) -> bytes:
    try:
        content = disk.read_file(path, NoSuchPicture(f"{path} is missing"))
    except StorageFailed as error:
        raise NoSuchPicture(str(error)) from error
    if problem := check_picture(size, content):
        raise NoSuchPicture(f"{path} {problem}")
    return content
