"""Imported accounts as files: many are added at once, and who has no picture gets one when asked.

A part of `storage.flat_files.backend`, and the only one that needs these of its inner parts.
"""

import contextlib
import os
import time

from storage import (
    AlreadyThere,
    DamagedRecord,
    IdTaken,
    InvalidField,
    NoSuchPicture,
    NoSuchUser,
    Storage,
    StorageError,
    StorageFailed,
    User,
    record_as_dict,
    unique_key,
)
from storage.flat_files.disk import (
    encode,
    remove_file,
    sync_folder,
    synced,
    temporary_beside,
    translate_os_errors,
    write_file,
    write_new_file,
)
from storage.flat_files.unique_index import TAKEN, claimed_by


class BulkInsert:
    """Players who are added together. The caller holds accounts.lock. Raises OSError.

    Index, pictures and records are written and synced, all at once; then the records are renamed
    to where they count. So a kill or a power cut leaves no player without a claim.
    """

    def __init__(self, store: Storage, pictures: dict[int, dict[str, bytes]]) -> None:
        self._store = store
        self._pictures = pictures  # by user id
        self._users: dict[int, User] = {}
        self._claimed: set[tuple[str, str]] = set()
        self._records: dict[str, str] = {}  # where each will count, by where it is

    def add(self, users: list[User]) -> list[StorageError | None]:
        """As `Storage.add_users`."""
        with contextlib.ExitStack() as undo:  # also where it is stopped: none of them counts yet
            with synced(self._store.data_dir), synced(self._store.picture_dir):
                answers = [self._add(user, undo) for user in users]
            undo.pop_all()
        try:
            for temporary, path in self._records.items():
                os.rename(temporary, path)
            sync_folder(self._store._users)
        finally:
            for temporary in self._records:
                remove_file(temporary)
        return answers

    def _add(self, user: User, undo: contextlib.ExitStack) -> StorageError | None:
        try:
            with translate_os_errors():  # what cannot be read here refuses this user alone
                self._refuse_known(user)
                for kind, text in claimed_by(user):
                    if (kind, unique_key(text)) in self._claimed:
                        raise TAKEN[kind]
                    self._store._claims.refuse_taken(kind, text)
        except (AlreadyThere, InvalidField, DamagedRecord, StorageFailed) as error:
            return error
        for kind, text in claimed_by(user):
            self._store._claims.take(kind, text, user.id, undo, durable=False)
            self._claimed.add((kind, unique_key(text)))
        self._users[user.id] = user
        self._write(user, undo)
        return None

    def _refuse_known(self, user: User) -> None:
        try:
            known = self._users.get(user.id) or self._store.read_user(user.id)
        except NoSuchUser:
            if os.path.exists(self._store._deleted_path(user.id)):
                raise IdTaken from None
            return
        if _identity(known) != _identity(user):
            raise IdTaken
        raise AlreadyThere

    def _write(self, user: User, undo: contextlib.ExitStack) -> None:
        path = self._store._user_path(user.id)
        temporary = temporary_beside(path)
        undo.callback(remove_file, temporary)
        write_new_file(temporary, [encode(record_as_dict(user))])
        self._records[temporary] = path
        if user.id in self._pictures:
            undo.callback(self._store._remove_pictures, user.id, user.pfp_timestamp)
            for size, place in self._store._picture_paths(user.id, user.pfp_timestamp).items():
                write_file(place, self._pictures[user.id][size], mode=0o644, durable=False)


def _identity(user: User) -> list[str]:
    return [unique_key(text) for _, text in claimed_by(user)]


def draw_picture(store: Storage, size: str, file_name: str) -> tuple[bytes, float]:
    """As `Storage.read_picture`, for an account that has none: it is drawn, and kept."""
    from storage.pictures import generate_picture  # Pillow: memory a worker rarely needs

    missing = NoSuchPicture(f"there is no picture {size}/{file_name}")
    user_id = file_name.removesuffix(".webp")
    try:
        # One that has a timestamp has no picture here.
        if "-" in file_name or store.read_user(int(user_id)).pfp_timestamp is not None:
            raise missing
        images = generate_picture(int(user_id))
        with contextlib.suppress(StorageFailed):  # on a full disk it is drawn each time
            _keep(store, int(user_id), images)
    except NoSuchUser:
        raise missing from None
    return images[size], time.time()


def _keep(store: Storage, user_id: int, images: dict[str, bytes]) -> None:
    with translate_os_errors(), store._user_lock(user_id):
        if store.read_user(user_id).pfp_timestamp is None:  # still
            for size, path in store._picture_paths(user_id, None).items():
                if not os.path.exists(path):
                    write_file(path, images[size], mode=0o644)
