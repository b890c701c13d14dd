"""Adding many users at once, as an import does."""

import contextlib
import os

from storage.encoding import encode, record_as_dict
from storage.errors import AlreadyThere, IdTaken, NoSuchUser, StorageError
from storage.flat_files import disk
from storage.flat_files.entries import Key, keys_of
from storage.flat_files.pictures import PictureFiles
from storage.flat_files.record_files import RecordFiles
from storage.kinds import USERS
from storage.records import User
from storage.repositories import Images


class BulkInsert:
    """Users that are added together. The caller holds the lock of the kind. Raises OSError.

    Entries, pictures and records are written and synced together; then the records are renamed to
    their final paths. So a kill or a power cut leaves no user without entries.
    """

    def __init__(self, users: RecordFiles, pictures: PictureFiles) -> None:
        self._users = users
        self._layout = users.layout
        self._pictures = pictures
        self._added: dict[int, User] = {}
        self._keys: set[Key] = set()
        self._records: dict[str, str] = {}  # the final paths, by temporary path

    def add(self, users: list[User], pictures: dict[int, Images]) -> list[StorageError | None]:
        """As `Users.add_many`."""
        # Rolled back also after Ctrl-C, unlike elsewhere: none of the users counts yet.
        with contextlib.ExitStack() as undo:
            with disk.synced(self._layout.data_dir), disk.synced(self._layout.picture_dir):
                answers = [self._add(user, pictures.get(user.id), undo) for user in users]
            undo.pop_all()
        try:
            for temporary, path in self._records.items():
                os.rename(temporary, path)
            disk.sync_folder(self._users.folder)
        finally:
            for temporary in self._records:
                disk.remove_file(temporary)
        return answers

    def _add(
        self, user: User, images: Images | None, undo: contextlib.ExitStack
    ) -> StorageError | None:
        keys = keys_of(USERS, user)
        try:
            with disk.translate_os_errors():  # an unreadable record refuses this user alone
                self._refuse_known(user)
                for key, value in keys:
                    if key in USERS.unique and (key, value) in self._keys:
                        raise key.taken
                self._users.refuse_taken(user)
        except StorageError as error:
            return error
        self._added[user.id] = user
        self._keys.update(keys)
        for each in keys:
            undo.callback(self._users.entries.remove, *each, user.id)
            self._users.entries.put(*each, user.id, durable=False)
        path = self._users.path(user.id)
        temporary = disk.temporary_beside(path)
        undo.callback(disk.remove_file, temporary)
        disk.write_new_file(temporary, [encode(record_as_dict(user))])
        self._records[temporary] = path
        if images:
            undo.callback(self._pictures.remove, user.id, user.pfp_timestamp)
            self._pictures.write(user.id, user.pfp_timestamp, images, durable=False)
        return None

    def _refuse_known(self, user: User) -> None:
        try:
            known = self._added.get(user.id) or self._users.read_file(user.id)
        except NoSuchUser:
            if os.path.exists(self._layout.deleted(user.id)):
                raise IdTaken from None
            return
        same = all(key.of(known) == key.of(user) for key in USERS.unique if key.needed)
        raise AlreadyThere if same else IdTaken
