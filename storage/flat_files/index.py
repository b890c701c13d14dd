"""A secondary index: which records have a property, without reading all of them.

    index/administrators/1              user 1 is an administrator, now or after a suspension
    index/owner-1/<client id>           user 1 owns this client; owner-none: the administrators
    index/games-listed/<client id>      its game is on the home page; games-unlisted: it is not
    index/origin-<sha256>/<client id>   its game is on this origin

The entries are empty files. An entry is written before the record that needs it and removed after
the record that no longer does, so none is ever missing. A kill may leave an entry too many, but an
entry counts only if its record has the property.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator

from storage import Client, DamagedRecord, NotFound, User, sha256
from storage.flat_files import disk

ADMINISTRATORS = "administrators"


def owner_key(owner_id: int | None) -> str:
    """Return the key of the clients of an owner; None means the administrators."""
    return f"owner-{owner_id or 'none'}"


def games_key(listed: bool) -> str:
    """Return the key of the clients whose games are listed on the home page, or are not."""
    return "games-listed" if listed else "games-unlisted"


def origin_key(game_origin: str) -> str:
    """Return the key of the clients whose games are on this origin."""
    return f"origin-{sha256(game_origin)}"


def index_keys(record: User | Client) -> set[str]:
    """Return the keys under which a record is to be found."""
    if isinstance(record, User):
        # The end of a suspension is no save that could add the entry: it stays, and does not count.
        return {ADMINISTRATORS} if record.may_administer else set()
    keys = {owner_key(record.owner_id)}
    if record.is_game:
        keys.add(games_key(record.listed))
    if record.game_origin is not None:
        keys.add(origin_key(record.game_origin))
    return keys


class Index:
    """The index entries below a folder. Raises OSError."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names = disk.StatCache()  # sorted, by folder

    def records(
        self,
        key: str,
        read: Callable[[str], User | Client],
        after: str = "",
        at_most: int | None = None,
    ) -> list:
        """Return the readable records that are found under this key, by id.

        `read` gets the name of an entry. Its NotFound, DamagedRecord and ValueError are ignored.
        At most so many records are returned, and only those of entries `after` a name.
        """
        folder = f"{self._folder}/{key}"
        try:
            names = self._names.get(folder, lambda: sorted(os.listdir(folder)))
        except FileNotFoundError:  # no record has the key
            disk.require_folder(self._folder)
            return []
        members = disk.part_of(names, after, None)
        found = itertools.islice(self._readable(key, members, read), at_most)
        return sorted(found, key=lambda record: record.id)

    def _readable(
        self, key: str, members: list[str], read: Callable[[str], User | Client]
    ) -> Iterator[User | Client]:
        for member in members:
            with contextlib.suppress(NotFound, DamagedRecord, ValueError):
                record = read(member)
                if key in index_keys(record):
                    yield record

    @contextlib.contextmanager
    def updated(self, record: User | Client, old_keys: Iterable[str] = ()) -> Iterator[None]:
        """Make the block, which saves the record, leave the index as the record needs it."""
        new_keys, member = index_keys(record), str(record.id)
        added = new_keys - set(old_keys)
        with disk.rollback_on_error() as undo:
            undo.callback(self.remove, added, member)
            for key in added:
                self.add(key, member)
            yield
        self.remove(set(old_keys) - new_keys, member)

    def add(self, key: str, member: str, durable: bool = True) -> None:
        """Add an entry."""
        folder = f"{self._folder}/{key}"
        disk.make_folder(folder, 0o700)
        with contextlib.suppress(FileExistsError), disk.created(f"{folder}/{member}"):
            pass
        if durable:
            disk.sync_folder(folder)
            disk.sync_folder(self._folder)

    def remove(self, keys: Iterable[str], member: str) -> None:
        """Remove entries. One that cannot be removed does not count."""
        for key in keys:
            disk.remove_file(f"{self._folder}/{key}/{member}")
            if key != ADMINISTRATORS:  # the others are changed under one lock
                with contextlib.suppress(OSError):  # it has other entries
                    os.rmdir(f"{self._folder}/{key}")
