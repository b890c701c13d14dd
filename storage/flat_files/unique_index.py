"""UniqueIndex on names and email addresses: links to the record of the user who has them.

    names/ada               -> ../users/1.json
    emails/<sha256>         -> ../users/1.json

A claim counts only while that record is there and bears the name or address.
"""

import contextlib
import os
import re
from collections.abc import Callable

from storage import DamagedRecord, EmailTaken, NameTaken, NoSuchUser, User, sha256, unique_key
from storage.flat_files.disk import remove_file, sync_folder, temporary_beside
from storage.rules import NAME_KEY_BYTES

FIELDS = {"names": "name", "emails": "email"}  # of a user, by the kind of the claim on it
TAKEN = {"names": NameTaken, "emails": EmailTaken}
NAME_CLAIM = re.compile(r"[^./@][^/@]*", re.DOTALL)


def can_be_key(kind: str, key: str) -> bool:
    """True where the name or address makes a path, and one by which its user is found."""
    if not key.isprintable():  # half a character, for one, has no bytes
        return False
    if kind == "emails":
        return "@" in key
    return bool(NAME_CLAIM.fullmatch(key)) and len(key.encode()) <= NAME_KEY_BYTES


def user_id_in(target: str) -> int | None:
    """The id of the user that a claim's link leads to."""
    number = os.path.basename(target).removesuffix(".json")
    return int(number) if number.isdecimal() else None


def claimed_by(user: User) -> list[tuple[str, str]]:
    """The kind of each claim that a user should have, and the name or address as it is written."""
    return [(kind, getattr(user, field)) for kind, field in FIELDS.items()]


def owns_key(user: User, kind: str, key: str) -> bool:
    """True where this is the key of the user's name or email address."""
    return unique_key(getattr(user, FIELDS[kind])) == key


class UniqueIndex:
    """The claims below a data folder, by kind ("names", "emails") and key. Raises OSError.

    Whoever changes one holds accounts.lock.
    """

    def __init__(self, data_dir: str, read_user: Callable[[int], User]) -> None:
        self._data_dir = data_dir
        self._read_user = read_user

    def path(self, kind: str, key: str) -> str:
        """Where a claim is."""
        return f"{self._data_dir}/{kind}/{key if kind == 'names' else sha256(key)}"

    def holder(self, kind: str, key: str) -> int | None:
        """The id that a claim points at, whether or not it still counts."""
        if not can_be_key(kind, key):
            return None
        try:
            return user_id_in(os.readlink(self.path(kind, key)))
        except FileNotFoundError:
            return None

    def counts(self, kind: str, key: str, holder: int) -> bool:
        """True where a claim that points at this user keeps others from the name or address."""
        try:
            return owns_key(self._read_user(holder), kind, key)
        except NoSuchUser:
            return False
        except DamagedRecord:
            return True  # its owner gets it back once the record is mended

    def refuse_taken(self, kind: str, text: str, but: int | None = None) -> None:
        """Raise NameTaken or EmailTaken where a claim of somebody else counts."""
        key = unique_key(text)
        holder = self.holder(kind, key)
        if holder not in (None, but) and self.counts(kind, key, holder):
            raise TAKEN[kind]

    def take(
        self,
        kind: str,
        text: str,
        user_id: int,
        undo: contextlib.ExitStack,
        durable: bool = True,
    ) -> None:
        """Point a claim at a user, over one that no longer counts."""
        path = self.path(kind, unique_key(text))
        temporary = temporary_beside(path)
        for each in (path, temporary):
            undo.callback(remove_file, each)
        os.symlink(f"../users/{user_id}.json", temporary)
        os.rename(temporary, path)
        if durable:
            sync_folder(os.path.dirname(path))

    def release(self, kind: str, key: str, user_id: int) -> None:
        """Remove a user's old claim; one that the disk keeps counts no more and blocks nobody."""
        with contextlib.suppress(OSError):
            if self.holder(kind, key) == user_id:
                os.unlink(self.path(kind, key))
