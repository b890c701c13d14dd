"""The entries of keys: which record has a name, and which records have an owner.

    names/ada                           -> ../users/1.json: user 1 has this name
    origins/<sha256>                    -> ../clients/<id>.json: its game is on this origin
    index/users/role/administrator/1    user 1 is an administrator, now or after a suspension
    index/clients/owner/1/<client id>   user 1 owns this client

The entry of a unique key is a link to the record, that of another one an empty file. An entry is
written before the record that needs it and removed after the record that no longer does, so none is
ever missing. A kill may leave an entry too many, but an entry counts only if its record has the
key. Callers that change entries of unique keys hold the lock of the kind. Methods raise OSError.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Set
from typing import Any

from model.errors import DamagedRecord
from model.kind import SHORT_KEY, Index, Kind, Unique
from model.records import sha256
from storage.flat_files import disk, key_list
from storage.flat_files.layout import Layout

SAFE_NAME = re.compile(r"[^./\x00][^/\x00]*")
SAFE_NAME_BYTES = 200

Key = tuple[Unique | Index, str]  # a key of a record, and its value there


def keys_of(kind: Kind, record: Any, changed: Set[str] | None = None) -> list[Key]:
    """Return the keys of a record; with `changed`, those that follow from one of these fields."""
    found = []
    for key in kind.keys:
        if changed is None or key.fields & changed:
            value = key.of(record)
            if value is not None:
                found.append((key, value))
    return found


class Entries:
    """The entries of the keys of one kind."""

    def __init__(self, layout: Layout, kind: Kind) -> None:
        self._layout = layout
        self._kind = kind
        self._last_new = ""  # the path of an entry that `put_new` made

    def folder(self, index: Index, value: str | None = None) -> str:
        """Return the folder of an index, or of its entries with one value."""
        parts = ["index", self._kind.name, index.name]
        if value is not None:
            parts.append(value if SHORT_KEY.fullmatch(value) else sha256(value))
        return self._layout.path(*parts)

    def path(self, key: Unique | Index, value: str, record_id: int | str) -> str:
        """Return the path of a record's entry."""
        if isinstance(key, Unique):
            return self._layout.path(key.folder, value if key.ordered else sha256(value))
        return f"{self.folder(key, value)}/{record_id}"

    def holder(self, unique: Unique, value: str) -> int | str | None:
        """Return the id that the entry of a key links to, None without one; it may not count."""
        if not value.isprintable():  # half a surrogate pair, for one, has no bytes
            return None
        if unique.ordered:
            is_long = len(value.encode()) > SAFE_NAME_BYTES
            if is_long or not SAFE_NAME.fullmatch(value):
                return None
        return self.holder_in(self.path(unique, value, ""))

    def holder_in(self, path: str) -> int | str | None:
        """Return the id that the entry at a path links to, None for no entry or no id."""
        try:
            target = os.readlink(path)
        except FileNotFoundError:
            disk.require_folder(os.path.dirname(path))
            return None
        return self._kind.parse_id(os.path.basename(target).removesuffix(".json"))

    def members(self, index: Index, value: str) -> list[int | str]:
        """Return the ids of the entries of an index with this value, ascending."""
        folder = self.folder(index, value)
        try:
            names = os.listdir(folder)
        except FileNotFoundError:  # no record has the key
            disk.require_folder(os.path.dirname(folder))
            return []
        ids = map(self._kind.parse_id, names)
        return sorted(record_id for record_id in ids if record_id is not None)

    def values(self, index: Index) -> list[str]:
        """Return the values that entries of an index have, ascending; some may have no entry."""
        return sorted(os.listdir(self.folder(index)))

    # -- changes -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def updated(
        self, record_id: int | str, old: Iterable[Key], new: Iterable[Key]
    ) -> Iterator[None]:
        """Write `new` entries before the block, which saves the record; remove `old` ones after."""
        with disk.rollback_on_error() as undo:
            for each in new:
                if each not in old:
                    undo.callback(self.remove, *each, record_id)
                    self.put(*each, record_id)
            yield
        for each in old:
            if each not in new:
                self.remove(*each, record_id)

    def put(
        self, key: Unique | Index, value: str, record_id: int | str, durable: bool = True
    ) -> None:
        """Write an entry, a unique one in place of one that no longer counts."""
        path = self.path(key, value, record_id)
        folder = os.path.dirname(path)
        if isinstance(key, Unique):
            if key.ordered:
                key_list.note(f"{folder}.log", value, is_there=True)
            temporary = disk.temporary_beside(path)
            try:
                os.symlink(self._target(record_id), temporary)
                os.rename(temporary, path)
            finally:
                disk.remove_file(temporary)
        else:
            is_there = False  # not lexists(): where that fails, on a broken disk, it says no
            while not is_there:
                try:
                    with contextlib.suppress(FileExistsError), disk.created(path):
                        pass
                    is_there = True
                # Of several locks, the holder of another may just have removed the empty folder.
                except FileNotFoundError:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, 0o700)
            if durable:
                disk.sync_folder(os.path.dirname(folder))
        if durable:
            disk.sync_folder(folder)

    def put_new(self, record: Any) -> None:
        """Write the entries of a record, not durably. Raises DamagedRecord for a taken key."""
        for key, value in keys_of(self._kind, record):
            path = self.path(key, value, record.id)
            if isinstance(key, Unique):
                try:
                    os.symlink(self._target(record.id), path)
                except FileExistsError:
                    name = self._kind.name
                    other = f"{name}/{os.path.basename(os.readlink(path))}"
                    raise DamagedRecord(
                        f"{name}/{record.id}.json", f"its {key.name} is that of {other}"
                    ) from None
                continue
            # Another name of the last entry costs a tenth of a new file.
            try:
                os.link(self._last_new, path)
            except OSError:  # it is the first one, the first in its folder, or there are too many
                self.put(key, value, record.id, durable=False)
                self._last_new = path

    def _target(self, record_id: int | str) -> str:
        return f"../{self._kind.name}/{record_id}.json"

    def remove(self, key: Unique | Index, value: str, record_id: int | str) -> None:
        """Remove a record's entry, without an error if that fails: it does not count any more."""
        path = self.path(key, value, record_id)
        with contextlib.suppress(OSError):
            if isinstance(key, Index) or self.holder_in(path) == record_id:
                os.unlink(path)
                if isinstance(key, Unique) and key.ordered:
                    key_list.note(f"{os.path.dirname(path)}.log", value, is_there=False)
            if isinstance(key, Index):
                os.rmdir(os.path.dirname(path))  # unless it has other entries
