"""The records of a kind as files: <kind>/<id>.json, and the entries of their keys."""

import bisect
import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Set

from model.encoding import build_record, record_as_dict
from model.errors import AlreadyThere, DamagedRecord, NotFound, SaveUnconfirmed, StorageError
from model.kind import Index, Kind, day_of
from model.kinds import dependents_of
from model.records import now_ms
from storage.files import raises_storage_errors, storage_error_from, translate_os_errors
from storage.flat_files import disk
from storage.flat_files.entries import Entries, keys_of
from storage.flat_files.layout import Layout
from storage.maintenance import REMOVED_AT_ONCE, Cleaning
from storage.repositories import Id, Record, Records, Value

CACHED_RECORDS = 4096  # of a kind, with the values made from them; ordinary ones take 3 KiB
CACHED_VALUES = 9000  # of a kind whose records are not cached: a profile takes 1 KiB
CACHED_LISTS = 64  # of ids; the longest may take some MiB
CACHED_COUNTS = 400  # of entries: a week has 168 hours


@contextlib.contextmanager
def _inside_edit() -> Iterator[None]:
    """Raise an unconfirmed save as a failed one: the edit around it is not saved."""
    try:
        yield
    except SaveUnconfirmed as error:
        raise storage_error_from(error.__cause__) from error


class RecordFiles(Records):
    """The records of one kind below a data folder."""

    def __init__(self, layout: Layout, kind: Kind) -> None:
        self.kind = kind
        self.layout = layout
        self.folder = layout.path(kind.name)
        self.entries = Entries(layout, kind)
        self._values = disk.StatCache(CACHED_RECORDS if kind.cached else CACHED_VALUES)
        self._lists = disk.StatCache(CACHED_RECORDS if kind.cached else CACHED_LISTS)
        self._counts = disk.StatCache(CACHED_COUNTS)
        self._cleaning = Cleaning()

    def path(self, record_id: Id) -> str:
        """Return the path of a record. Raises NotFound for text that is no id."""
        # Before it becomes a file name.
        if not self.kind.number and not self.kind.id.fullmatch(record_id):
            raise self.kind.not_found(record_id)
        return f"{self.folder}/{record_id}.json"

    # -- look-ups ------------------------------------------------------------------------------

    def read_file(self, record_id: Id) -> Record:
        """Return a record that is the caller's own, not shared; it may have expired."""
        missing = self.kind.not_found(record_id)
        return disk.read_record(self.path(record_id), self.kind.record, missing, id=record_id)

    def read(self, record_id: Id) -> Record:
        if not self.kind.cached:
            record = self.read_file(record_id)
        else:
            record = self._values.get(self.path(record_id), lambda: self.read_file(record_id))
        if self.kind.expires and self.kind.has_expired(record, now_ms()):
            raise self.kind.not_found(record_id)
        return record

    def read_from(self, record_id: Id, make: Callable[[Record], Value]) -> Value:
        if self.kind.expires:
            return make(self.read(record_id))
        path = self.path(record_id)
        return self._values.get(path, lambda: make(self.read(record_id)), (path, make))

    @raises_storage_errors
    def ids(self, after: Id | None = None, at_most: int | None = None) -> list:
        def list_all() -> list:
            return self.ids_in(os.listdir(self.folder))

        # The folder of a kind that many players write changes all the time.
        found = self._lists.get(self.folder, list_all) if self.kind.cached else list_all()
        start = bisect.bisect_right(found, after) if after is not None else 0
        return found[start:] if at_most is None else found[start : start + at_most]

    def ids_in(self, names: Iterable[str]) -> list:
        """Return the ids of the records among file names, ascending."""
        texts = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return sorted(each for each in map(self.kind.parse_id, texts) if each is not None)

    def existing(self, ids: Iterable[Id]) -> Set[Id]:
        return set(filter(self._exists, ids))

    def _exists(self, record_id: Id) -> bool:
        """Return True for a record that is there, or may be: its folder cannot be looked into."""
        try:
            os.lstat(self.path(record_id))
        except NotFound:
            return False
        except FileNotFoundError:
            return not os.path.isdir(self.folder)  # nothing is known of any record then
        except OSError:  # the folder cannot be read now
            return True
        return True

    @raises_storage_errors
    def find_by(self, unique: str, key: str) -> Record | None:
        holder = self.entries.holder(self.kind.key(unique), key)
        record = None if holder is None else self.find(holder)
        return record if record and self.kind.key(unique).of(record) == key else None

    @raises_storage_errors
    def require_free(self, unique: str, key: str, but: Id | None = None) -> None:
        unique = self.kind.key(unique)
        holder = self.entries.holder(unique, key)
        if holder in (None, but):
            return
        try:
            other = self.read_file(holder)
        except NotFound:
            return
        except DamagedRecord:  # it gets the key back once it is repaired
            raise unique.taken() from None
        if unique.of(other) != key:
            return
        if not self.kind.has_expired(other, now_ms()):
            raise unique.taken(other)
        disk.remove_file(self.path(holder))
        for each in keys_of(self.kind, other):
            self.entries.remove(*each, holder)

    @raises_storage_errors
    def page(
        self,
        index: str,
        key: str,
        after: Id | None = None,
        at_most: int | None = None,
        newest_first: bool = False,
    ) -> list[Record]:
        index = self.kind.key(index)
        folder = self.entries.folder(index, key)
        ids = self._lists.get(folder, lambda: self.entries.members(index, key))
        if newest_first:
            ids = ids[: bisect.bisect_left(ids, after) if after is not None else None]
            ids.reverse()
        elif after is not None:
            ids = ids[bisect.bisect_right(ids, after) :]
        found = (record for record in self.readable(ids) if index.of(record) == key)
        return list(itertools.islice(found, at_most))

    @raises_storage_errors
    def between(
        self,
        index: str,
        low: str,
        high: str,
        after: tuple[str, Id] | None = None,
        at_most: int | None = None,
        newest_first: bool = True,
    ) -> list[Record]:
        key, found = self.kind.key(index), []
        if after:
            low, high = (low, min(high, after[0])) if newest_first else (max(low, after[0]), high)
        values = self._values_between(key, low, high)
        for value in reversed(values) if newest_first else values:
            start = after[1] if after and after[0] == value else None
            left = None if at_most is None else at_most - len(found)
            found += self.page(index, value, start, left, newest_first)
            if len(found) == at_most:
                break
        return found

    @raises_storage_errors
    def count_between(self, index: str, low: str, high: str) -> int:
        key, number = self.kind.key(index), 0
        for value in self._values_between(key, low, high):
            folder = self.entries.folder(key, value)
            with contextlib.suppress(FileNotFoundError):
                number += self._counts.get(folder, lambda: len(os.listdir(folder)))  # noqa: B023
        return number

    def _values_between(self, key: Index, low: str, high: str) -> list[str]:
        values = self._lists.get(self.entries.folder(key), lambda: self.entries.values(key))
        return values[bisect.bisect_left(values, low) : bisect.bisect_right(values, high)]

    def readable(self, ids: Iterable[Id]) -> Iterator[Record]:
        """Yield the records with these ids, without unknown and damaged ones."""
        for record_id in ids:
            with contextlib.suppress(NotFound, DamagedRecord):
                yield self.read(record_id)

    # -- changes -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def changing(self, record_id: Id | None = None, kind_too: bool = True) -> Iterator[None]:
        """Hold the locks of the record and, with `kind_too`, of the kind. Raises StorageFailed."""
        layout, kind = self.layout, self.kind
        with contextlib.ExitStack() as held:
            with translate_os_errors():
                if kind_too or kind.locks == 1:
                    held.enter_context(layout.kind_lock(kind))
                if record_id is not None and kind.locks > 1:
                    held.enter_context(layout.record_lock(kind, record_id))
            held.enter_context(layout.editing())
            yield

    @contextlib.contextmanager
    def adding(self, record: Record) -> Iterator[None]:
        self.kind.require_rules(record)
        path, keys = self.path(record.id), keys_of(self.kind, record)
        self._remove_expired()
        with translate_os_errors(), self.changing():
            if os.path.lexists(path):
                raise AlreadyThere(f"there is a {self.kind.one} with this id")
            self.require_free_keys(record)
            yield
            with self.entries.updated(record.id, [], keys):
                disk.write_record(path, record)

    @raises_storage_errors
    def put(self, record: Record) -> None:
        old = []
        self._remove_expired()
        with self.layout.inner_lock(self.kind.name):
            with contextlib.suppress(NotFound, DamagedRecord):
                old = keys_of(self.kind, self.read_file(record.id))
            keys = keys_of(self.kind, record)
            with _inside_edit(), self.entries.updated(record.id, old, keys):
                disk.write_record(self.path(record.id), record)

    @contextlib.contextmanager
    def edit_inside(self, record_id: Id) -> Iterator[Record]:
        with contextlib.ExitStack() as held:
            with translate_os_errors():
                held.enter_context(self.layout.inner_lock(self.kind.name))
            record = self.read_file(record_id)
            before = record_as_dict(record)
            yield record
            with _inside_edit():
                self.save(record, before, self.kind.changed_fields(record, before, frozenset()))

    @contextlib.contextmanager
    def locked(self, record_id: Id, keys_change: bool = False) -> Iterator[Record]:
        with self.changing(record_id, kind_too=keys_change):
            yield self.read_file(record_id)

    @raises_storage_errors
    def save(self, record: Record, before: dict, changed: Set[str]) -> None:
        old, new = [], []
        if any(key.fields & changed for key in self.kind.keys):
            old = keys_of(self.kind, build_record(self.kind.record, before), changed)
            new = keys_of(self.kind, record, changed)
        with self.entries.updated(record.id, old, new):
            disk.write_record(self.path(record.id), record)

    @contextlib.contextmanager
    def deleting(self, record_id: Id) -> Iterator[Record]:
        with translate_os_errors(), self.locked(record_id, keys_change=True) as record:
            yield record
            self.before_removal(record)
            self.remove(record)
            for key in keys_of(self.kind, record):
                self.entries.remove(*key, record_id)
            disk.sync_removals(self.layout.path(unique.folder) for unique in self.kind.unique)
        for kind, index in dependents_of(self.kind):
            others = RecordFiles(self.layout, kind)
            with contextlib.suppress(StorageError):  # what stays is of nobody: `check` finds it
                for each in others.page(index.name, str(record_id)):
                    with contextlib.suppress(StorageError):
                        others.delete(each.id)

    def remove(self, record: Record) -> None:
        """Remove the file of a record, and what else there is of it but its entries."""
        disk.remove_durably(self.path(record.id))

    def discard(self, ids: Iterable[Id]) -> None:
        for record_id in ids:
            with contextlib.suppress(StorageError):
                self._remove_unsynced(record_id)

    def _remove_expired(self) -> None:
        """Remove some expired records; a power cut may bring them back. It raises no error."""
        if self.kind.expires is None or not self._cleaning.is_due():
            return
        day, today = self.kind.key("day"), day_of(now_ms())
        with contextlib.suppress(OSError):
            days = (each for each in sorted(os.listdir(self.entries.folder(day))) if each < today)
            members = ((value, each) for value in days for each in self.entries.members(day, value))
            for value, record_id in itertools.islice(members, REMOVED_AT_ONCE):
                with contextlib.suppress(StorageError):
                    self._remove_unsynced(record_id, value)

    def _remove_unsynced(self, record_id: Id, entry: str | None = None) -> None:
        """Remove a record, perhaps inside an edit of another kind.

        The `entry` of a day by which it was found goes as well; the record stays if that is another
        day than its own: a kill in an edit left the entry, and the record counts for longer.
        """
        day = self.kind.key("day")
        with translate_os_errors(), contextlib.ExitStack() as held:
            for name in self.layout.lock_names(self.kind, record_id):
                held.enter_context(self.layout.inner_lock(name))
            with contextlib.suppress(NotFound, DamagedRecord):
                record = self.read_file(record_id)
                if entry in (None, day.of(record)):
                    *others, (_, entry) = keys_of(self.kind, record)
                    for key in others:
                        self.entries.remove(*key, record_id)
                    os.unlink(self.path(record_id))
            if entry:  # last: after a kill before it, a further try finds the record
                self.entries.remove(day, entry, record_id)
