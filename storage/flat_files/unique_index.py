"""The unique index of names and of email addresses: links to the record of the user.

An entry counts only while that record exists and has the name or address. Callers that change
entries hold accounts.lock.
"""

import contextlib
import os
from collections.abc import Callable

from storage import DamagedRecord, EmailTaken, NameTaken, NoSuchUser, User, sha256, unique_key
from storage.flat_files.disk import remove_file, require_folder, sync_folder, temporary_beside
from storage.flat_files.layout import Layout
from storage.names import can_be_key

FIELDS = {"names": "name", "emails": "email"}  # of a user, by the kind of index
TAKEN = {"names": NameTaken, "emails": EmailTaken}


def user_id_in(target: str) -> int | None:
    """Return the id of the user that an entry links to."""
    number = os.path.basename(target).removesuffix(".json")
    return int(number) if number.isdecimal() else None


def unique_keys(user: User) -> list[tuple[str, str]]:
    """Return the kind of each index with the key that the user has in it."""
    return [(kind, unique_key(getattr(user, field))) for kind, field in FIELDS.items()]


class UniqueIndex:
    """The entries below a data folder, by kind ("names", "emails") and key. Raises OSError."""

    def __init__(self, layout: Layout, read_user: Callable[[int], User]) -> None:
        self._layout = layout
        self._read_user = read_user

    def path(self, kind: str, key: str) -> str:
        """Return the path of an entry."""
        return self._layout.path(kind, key if kind == "names" else sha256(key))

    def holder(self, kind: str, key: str) -> int | None:
        """Return the id that an entry links to, whether or not the entry counts."""
        if not can_be_key(FIELDS[kind], key):
            return None
        try:
            return user_id_in(os.readlink(self.path(kind, key)))
        except FileNotFoundError:
            require_folder(self._layout.path(kind))
            return None

    def counts(self, kind: str, key: str, holder: int) -> bool:
        """Return True if an entry that links to this user reserves the name or address."""
        try:
            return (kind, key) in unique_keys(self._read_user(holder))
        except NoSuchUser:
            return False
        except DamagedRecord:
            return True  # the owner gets it back once the record is repaired

    def refuse_taken(self, kind: str, key: str, but: int | None = None) -> None:
        """Raise NameTaken or EmailTaken if the key belongs to a user other than `but`."""
        holder = self.holder(kind, key)
        if holder not in (None, but) and self.counts(kind, key, holder):
            raise TAKEN[kind]

    def take(
        self, kind: str, key: str, user_id: int, undo: contextlib.ExitStack, durable: bool = True
    ) -> None:
        """Link an entry to a user, in place of one that no longer counts."""
        path = self.path(kind, key)
        temporary = temporary_beside(path)
        for each in (path, temporary):
            undo.callback(remove_file, each)
        os.symlink(f"../users/{user_id}.json", temporary)
        os.rename(temporary, path)
        if durable:
            sync_folder(os.path.dirname(path))

    def add(self, user: User) -> None:
        """Add the entries of a user to a new index. Raises DamagedRecord for a duplicate."""
        record = f"users/{user.id}.json"
        for kind, key in unique_keys(user):
            if not can_be_key(FIELDS[kind], key):
                raise DamagedRecord(record, f"nobody can be found by its {FIELDS[kind]}")
            path = self.path(kind, key)
            try:
                os.symlink(f"../{record}", path)
            except FileExistsError:
                other = os.path.basename(os.readlink(path))
                problem = f"its {FIELDS[kind]} is that of users/{other}"
                raise DamagedRecord(record, problem) from None

    def release(self, kind: str, key: str, user_id: int) -> None:
        """Remove a user's old entry. One that cannot be removed no longer counts."""
        with contextlib.suppress(OSError):
            if self.holder(kind, key) == user_id:
                os.unlink(self.path(kind, key))
