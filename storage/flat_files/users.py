"""Users as files: ids that are never given twice, pictures, and invitations that are used up."""

import contextlib
import os

from storage.encoding import encode, record_as_dict
from storage.errors import IdTaken, InviteSpent, NotFound, StorageError
from storage.files import raises_storage_errors
from storage.flat_files import disk
from storage.flat_files.entries import keys_of
from storage.flat_files.layout import Layout, Lock
from storage.flat_files.pictures import PictureFiles
from storage.flat_files.record_files import ClientFiles, RecordFiles
from storage.flat_files.user_ids import UserIds
from storage.kinds import CLIENTS, INVITES, USERS
from storage.records import User
from storage.repositories import Images, Invites, Users


class InviteFiles(RecordFiles, Invites):
    """The invitations as files."""


class UserFiles(RecordFiles, Users):
    """The users as files."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, USERS)
        self.clients = ClientFiles(layout, CLIENTS)
        self.invites = InviteFiles(layout, INVITES)
        self.invites.users = self
        self.pictures = PictureFiles(layout)
        self._ids = UserIds(layout)

    @raises_storage_errors
    def is_new(self) -> bool:
        path = self.layout.path("next_user_id")
        with contextlib.suppress(NotFound):
            return disk.read_file(path, NotFound()).strip() == b"1"
        return not self.ids(at_most=1)

    @raises_storage_errors
    def administrators_lock(self) -> Lock:
        # Not the lock of the kind: sign-ups and renames need not wait.
        return self.layout.lock("administrators")

    @raises_storage_errors
    def add_new(self, user: User, first: bool) -> None:
        from storage.pictures import generate_picture  # Pillow: memory a worker rarely needs

        with self.layout.kind_lock(self.kind):
            self.refuse_addition(user)
            if first and not self.is_new():
                raise InviteSpent
            user.id = self._ids.take()
        # Most of the time passes here. Others can add accounts meanwhile.
        self._ids.sync()
        images = generate_picture(user.id)
        path, record = self.path(user.id), encode(record_as_dict(user))
        with disk.rollback_on_error() as undo:
            undo.callback(self.pictures.remove, user.id, user.pfp_timestamp)
            self.pictures.write(user.id, user.pfp_timestamp, images)
            lock = self.layout.kind_lock(self.kind)
            with disk.written_beside(path, record) as temporary, lock:
                self.refuse_addition(user)
                if self._ids.is_used(user.id):  # a restore may have come between
                    raise IdTaken
                with self.entries.updated(user.id, [], keys_of(self.kind, user)):
                    disk.commit(temporary, path)
        if user.invite:
            with contextlib.suppress(StorageError):  # one that stays is recognised as used
                self.invites.delete(user.invite)

    @raises_storage_errors
    def reserve_ids(self, largest: int) -> None:
        with self.layout.kind_lock(self.kind):
            self._ids.reserve(largest)

    @raises_storage_errors
    def insert(self, user: User, pictures: Images | None = None) -> None:
        with self.changing(), disk.rollback_on_error() as undo:
            self.require_new(user)
            if pictures:
                undo.callback(self.pictures.remove, user.id, user.pfp_timestamp)
                self.pictures.write(user.id, user.pfp_timestamp, pictures)
            with self.entries.updated(user.id, [], keys_of(self.kind, user)):
                disk.write_record(self.path(user.id), user)

    def was_deleted(self, user_id: int) -> bool:
        return os.path.exists(self.layout.deleted(user_id))

    def remove(self, user: User) -> None:
        deleted = self.layout.deleted(user.id)
        with disk.rollback_on_error() as undo:
            undo.callback(disk.remove_file, deleted)
            disk.write_file(deleted, b"")
            super().remove(user)
        self.pictures.remove(user.id, user.pfp_timestamp)
        disk.sync_removals(self.layout.picture_folders())
