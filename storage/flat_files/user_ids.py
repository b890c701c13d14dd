"""User ids: the file with the next one only grows, so that no id is given twice."""

import os

from storage import BadInstallation, DamagedRecord, NotFound
from storage.flat_files.disk import read_file, write_file
from storage.flat_files.layout import Layout
from storage.rules import USER_IDS_END


class UserIds:
    """The ids of new users. The caller of each method holds accounts.lock. Raises OSError."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._path = layout.path("next_user_id")

    def take(self) -> int:
        """Return the next id, which is never given again."""
        user_id = self._read_next()
        write_file(self._path, b"%d\n" % (user_id + 1))
        return user_id

    def reserve(self, largest: int) -> None:
        """Give only ids above this one."""
        if largest >= self._read_next():
            write_file(self._path, b"%d\n" % (largest + 1))

    def _read_next(self) -> int:
        layout = self._layout
        try:
            user_id = int(read_file(self._path, NotFound()))
            known = layout.user(user_id), layout.deleted(user_id)
            used = user_id < 1 or any(map(os.path.exists, known))
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
