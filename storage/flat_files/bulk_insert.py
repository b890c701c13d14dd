"""Adding many users at once, as an import does."""

import contextlib
import os

import storage
from storage import Images, StorageError, User
from storage.encoding import encode
from storage.flat_files import disk
from storage.flat_files.index import Index, index_keys
from storage.flat_files.layout import Layout
from storage.flat_files.pictures import PictureFiles
from storage.flat_files.record_files import read_user
from storage.flat_files.unique_index import TAKEN, UniqueIndex, unique_keys


class BulkInsert:
    """Users that are added together. The caller holds accounts.lock. Raises OSError.

    Index entries, pictures and records are written and synced together; then the records are
    renamed to their final paths. So a kill or a power cut leaves no user without index entries.
    """

    def __init__(
        self, layout: Layout, unique: UniqueIndex, index: Index, pictures: PictureFiles
    ) -> None:
        self._layout = layout
        self._unique = unique
        self._index = index
        self._pictures = pictures
        self._users: dict[int, User] = {}
        self._keys: set[tuple[str, str]] = set()
        self._records: dict[str, str] = {}  # the final paths, by temporary path

    def add(self, users: list[User], pictures: dict[int, Images]) -> list[StorageError | None]:
        """As `Storage.add_users`."""
        # Rolled back also after Ctrl-C, unlike elsewhere: none of the users counts yet.
        with contextlib.ExitStack() as undo:
            with disk.synced(self._layout.data_dir), disk.synced(self._layout.picture_dir):
                answers = [self._add(user, pictures.get(user.id), undo) for user in users]
            undo.pop_all()
        try:
            for temporary, path in self._records.items():
                os.rename(temporary, path)
            disk.sync_folder(self._layout.users)
        finally:
            for temporary in self._records:
                disk.remove_file(temporary)
        return answers

    def _add(
        self, user: User, images: Images | None, undo: contextlib.ExitStack
    ) -> StorageError | None:
        keys = unique_keys(user)
        try:
            with disk.translate_os_errors():  # an unreadable record refuses this user alone
                self._refuse_known(user)
                for kind, key in keys:
                    if (kind, key) in self._keys:
                        raise TAKEN[kind]
                    self._unique.refuse_taken(kind, key)
        except StorageError as error:
            return error
        self._users[user.id] = user
        self._keys.update(keys)
        for kind, key in keys:
            self._unique.take(kind, key, user.id, undo, durable=False)
        for key in index_keys(user):
            undo.callback(self._index.remove, [key], str(user.id))
            self._index.add(key, str(user.id), durable=False)
        path = self._layout.user(user.id)
        temporary = disk.temporary_beside(path)
        undo.callback(disk.remove_file, temporary)
        disk.write_new_file(temporary, [encode(storage.record_as_dict(user))])
        self._records[temporary] = path
        if images:
            undo.callback(self._pictures.remove, user.id, user.pfp_timestamp)
            self._pictures.write(user.id, user.pfp_timestamp, images, durable=False)
        return None

    def _refuse_known(self, user: User) -> None:
        try:
            known = self._users.get(user.id) or read_user(self._layout, user.id)
        except storage.NoSuchUser:
            if os.path.exists(self._layout.deleted(user.id)):
                raise storage.IdTaken from None
            return
        raise storage.AlreadyThere if unique_keys(known) == unique_keys(user) else storage.IdTaken
