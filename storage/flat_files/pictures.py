"""Profile pictures as files: one webp file in the folder of each size."""

import contextlib
import os

from model.errors import NoSuchPicture
from model.kinds import USERS
from model.records import User, now_ms
from model.rules import PICTURE_FILE
from model.soundness import needs_picture
from storage.contract import Pictures
from storage.files import raises_storage_errors
from storage.flat_files import disk
from storage.flat_files.layout import Layout
from storage.flat_files.record_files import RecordFiles
from storage.maintenance import ignore
from storage.repositories import Before, Images

MODE = 0o644  # nginx reads pictures


class PictureFiles(Pictures):
    """The pictures below a picture folder. `save` and `read` raise StorageError, others OSError."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._users = RecordFiles(layout, USERS)

    def write(self, user_id: int, timestamp: int | None, images: Images) -> None:
        """Write one generation of a user's picture."""
        for size, path in self._layout.pictures(user_id, timestamp).items():
            disk.write_file(path, images[size], MODE)

    def remove(self, user_id: int, timestamp: int | None) -> None:
        """Remove one generation of a user's picture."""
        for path in self._layout.pictures(user_id, timestamp).values():
            disk.remove_file(path)

    @raises_storage_errors
    def save(self, user_id: int, images: Images | None, before: Before[User] = ignore) -> int:
        with self._users.locked(user_id) as user:
            before(user)
            return self.replace(user, images)

    def replace(self, user: User, images: Images | None) -> int:
        """Save a picture, None for a generated one; return its timestamp. The user is locked.

        New files, record (the commit), old files: in this order a kill leaves a whole picture.
        """
        old = user.pfp_timestamp
        user.pfp_timestamp = max(now_ms(), (old or 0) + 1)
        user.pfp_generated = images is None
        with disk.rollback_on_error() as undo:
            if images:
                undo.callback(self.remove, user.id, user.pfp_timestamp)
                self.write(user.id, user.pfp_timestamp, images)
            disk.write_record(self._users.path(user.id), user)
        self.remove(user.id, old)
        disk.sync_removals(self._layout.picture_folders())
        return user.pfp_timestamp

    @raises_storage_errors
    def read(self, size: str, file_name: str) -> tuple[bytes, float]:
        path = f"{self._layout.picture_dir}/{size}/{file_name}"
        missing = NoSuchPicture(f"there is no picture {size}/{file_name}")
        with contextlib.suppress(NoSuchPicture, FileNotFoundError):
            return disk.read_file(path, missing), os.stat(path).st_mtime
        disk.require_folder(os.path.dirname(path))
        user = self._users.find(int(PICTURE_FILE.fullmatch(file_name)[1]))
        if user is None or user.picture_file != file_name or needs_picture(user):
            raise missing
        return self.generated(user.id, size), (user.pfp_timestamp or user.created) / 1000


def will_be_generated(user: User, paths: dict[str, str]) -> bool:
    """Return True for a user without a stored picture; `paths` are where it would be, by size."""
    # One that was imported may have a picture without a timestamp.
    is_stored = user.pfp_timestamp is None and any(map(os.path.lexists, paths.values()))
    return user.pfp_generated or not (needs_picture(user) or is_stored)
