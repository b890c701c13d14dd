"""Users as files: ids that are never given twice, pictures, and invitations that are used up."""

import contextlib
import os

from model.encoding import encode_values, record_as_dict
from model.errors import BadInstallation, DamagedRecord, IdTaken, InviteSpent, NotFound
from model.kinds import USERS
from model.records import User
from model.rules import USER_IDS_END
from storage.files import raises_storage_errors
from storage.flat_files import disk
from storage.flat_files.entries import keys_of
from storage.flat_files.key_list import KeyList
from storage.flat_files.layout import Layout, Lock
from storage.flat_files.pictures import PictureFiles
from storage.flat_files.record_files import RecordFiles
from storage.repositories import Before, Images
from storage.users import Users


class UserFiles(RecordFiles, Users):
    """The users as files."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, USERS)
        self.pictures = PictureFiles(layout)
        self._next_id_file = layout.path("next_user_id")
        self._names = KeyList(layout.path("names"), layout.path("names.log"))

    @raises_storage_errors
    def is_new(self) -> bool:
        with contextlib.suppress(NotFound):
            return disk.read_file(self._next_id_file, NotFound()).strip() == b"1"
        return not self.ids(at_most=1)

    @raises_storage_errors
    def _by_name(self, part: str, after: str, at_most: int, backwards: bool) -> list[User]:
        found: list[User] = []
        while names := self._names.page(part, after, at_most - len(found), backwards):
            for name in names:
                with contextlib.suppress(DamagedRecord):
                    found += filter(None, [self.find_by("name", name)])
            after = names[-1]
        return found

    @raises_storage_errors
    def number(self) -> int:
        return self._names.length()

    @raises_storage_errors
    def administrators_lock(self) -> Lock:
        # Not the lock of the kind: sign-ups and renames need not wait.
        return self.layout.lock("administrators")

    @raises_storage_errors
    def add_new(self, user: User, first: bool, before: Before[User]) -> None:
        with self.layout.kind_lock(self.kind):
            self.require_addable(user)
            if first and not self.is_new():
                raise InviteSpent
            user.id = self._take_id()
        # Most of the time passes here. Others can add accounts meanwhile.
        disk.sync_folder(self.layout.data_dir)  # before anything is saved under the id
        path, record = self.path(user.id), encode_values(record_as_dict(user, stored=True))
        lock = self.layout.kind_lock(self.kind)
        with disk.written_beside(path, record) as temporary, lock:
            self.require_addable(user)
            if self._is_used(user.id):  # a restore may have come between
                raise IdTaken
            before(user)
            if user.invite:
                self.invites.claim(user)
            with self.entries.updated(user.id, [], keys_of(self.kind, user)):
                disk.commit(temporary, path)

    @raises_storage_errors
    def reserve_ids(self, largest: int) -> None:
        with self.layout.kind_lock(self.kind):
            if largest >= self._read_next_id():
                disk.write_file(self._next_id_file, b"%d\n" % (largest + 1))

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

    # -- ids: the file with the next one only grows, so that no id is given twice --------------

    def _take_id(self) -> int:
        """Take the next id under the users' lock: never given again once the folder is synced."""
        user_id = self._read_next_id()
        with disk.written_beside(self._next_id_file, b"%d\n" % (user_id + 1)) as temporary:
            os.rename(temporary, self._next_id_file)
        return user_id

    def _read_next_id(self) -> int:
        """Return the next id. Raises DamagedRecord, and BadInstallation if it cannot be given."""
        path = self._next_id_file
        try:
            user_id = int(disk.read_file(path, NotFound()))
            used = user_id < 1 or self._is_used(user_id)
        except NotFound:
            user_id = 1
            used = any(map(os.listdir, (self.folder, self.layout.path("deleted"))))
        except ValueError as error:
            raise DamagedRecord("next_user_id", str(error)) from error
        if used:
            raise BadInstallation(
                f"{path} is missing or too low: write a number into it that is larger than "
                "every user id ever given, so that no id is given twice"
            )
        if user_id >= USER_IDS_END:
            raise BadInstallation(f"{path} is too large: ids end before {USER_IDS_END}")
        return user_id

    def _is_used(self, user_id: int) -> bool:
        return self.was_deleted(user_id) or os.path.exists(self.path(user_id))
