"""User ids: the file with the next one only grows, so that no id is given twice."""

import os

from storage.errors import BadInstallation, DamagedRecord, NotFound
from storage.flat_files.disk import read_file, sync_folder, write_file, written_beside
from storage.flat_files.layout import Layout
from storage.rules import USER_IDS_END


class UserIds:
    """The ids of new users. Raises OSError.

    The caller holds the lock of the users, except for `sync`.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._path = layout.path("next_user_id")

    def take(self) -> int:
        """Return the next id, which is never given again once `sync` has returned."""
        user_id = self._read_next()
        with written_beside(self._path, b"%d\n" % (user_id + 1)) as temporary:
            os.rename(temporary, self._path)
        return user_id

    def sync(self) -> None:
        """Make the ids that were taken durable, before anything is saved under them."""
        sync_folder(os.path.dirname(self._path))

    def reserve(self, largest: int) -> None:
        """Give only ids above this one."""
        if largest >= self._read_next():
            write_file(self._path, b"%d\n" % (largest + 1))

    def _read_next(self) -> int:
        layout = self._layout
        try:
            user_id = int(read_file(self._path, NotFound()))
            used = user_id < 1 or self.is_used(user_id)
        except NotFound:
            user_id = 1
            used = any(map(os.listdir, (layout.users, layout.path("deleted"))))
        except ValueError as error:
            raise DamagedRecord("next_user_id", str(error)) from error
        if used:
            raise BadInstallation(
                f"{self._path} is missing or too low: write a number into it that is larger than "
                "every user id ever given, so that no id is given twice"
            )
        if user_id >= USER_IDS_END:
            raise BadInstallation(f"{self._path} is too large: ids end before {USER_IDS_END}")
        return user_id

    def is_used(self, user_id: int) -> bool:
        """Return True for an id that has a record, or had one."""
        known = self._layout.user(user_id), self._layout.deleted(user_id)
        return any(map(os.path.exists, known))
