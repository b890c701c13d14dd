"""The records of a kind as rows of its table: the record, and a column for each of its keys."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

from model.encoding import decode_record, record_as_dict
from model.errors import AlreadyThere, DamagedRecord, StorageError
from model.kind import Kind, day_of
from model.kinds import dependents_of
from model.records import now_ms
from storage.maintenance import REMOVED_AT_ONCE, Cleaning
from storage.postgresql.connections import Database, Rows
from storage.repositories import Id, Record, Records, Value, unchanged

CACHED = 1000  # decoded records of a kind


def columns_of(kind: Kind) -> str:
    """Return the columns of the table of a kind, in the order of `row_of`."""
    return ", ".join(["id", "record", *(f'"{key.name}"' for key in kind.keys)])


def row_of(kind: Kind, record: Any) -> list:
    """Return the row of a record."""
    content = json.dumps(record_as_dict(record, stored=True), ensure_ascii=False)
    return [record.id, content, *key_columns_of(kind, record)]


def key_columns_of(kind: Kind, record: Any) -> list[str | None]:
    """Return the keys of a record, in the order of the columns."""
    return [key.of(record) for key in kind.keys]


def decode_row(kind: Kind, record_id: Id, record: bytes) -> Any:
    """Return the record in a row. Raises DamagedRecord."""
    return decode_record(record, kind.record, f"{kind.name}/{record_id}", id=record_id)


class RecordTable(Records):
    """The records of one kind in a database."""

    def __init__(self, database: Database, kind: Kind) -> None:
        self.kind = kind
        self.database = database
        self._decoded: dict[Id, tuple[bytes, Record]] = {}  # the last record of each
        self._cleaning = Cleaning()
        columns, places = columns_of(kind), ", ".join(["%s"] * (2 + len(kind.keys)))
        self._insert = f"INSERT INTO {kind.name} ({columns}) VALUES ({places})"
        self._read = f"SELECT record FROM {kind.name} WHERE id = %s"
        self._update = f"UPDATE {kind.name} SET ({columns}) = ROW({places}) WHERE id = %s"

    def _select(self, rest: str, *args: object) -> Rows:
        """Return rows of id and record."""
        return self.database.execute(f"SELECT id, record FROM {self.kind.name} {rest}", args)

    # -- look-ups ------------------------------------------------------------------------------

    def read(self, record_id: Id) -> Record:
        record = self._decode(record_id, self._read_row(record_id))
        if self.kind.expires and self.kind.has_expired(record, now_ms()):
            raise self.kind.not_found(record_id)
        return record

    def _decode(self, record_id: Id, content: bytes) -> Record:
        """Return the record in a row; one of a `cached` kind is shared. Raises DamagedRecord."""
        last, record = self._decoded.get(record_id, (None, None))
        if content != last:  # decoded once, as long as the record stays the same
            record = decode_row(self.kind, record_id, content)
            if self.kind.cached:
                if len(self._decoded) >= CACHED:
                    self._decoded.clear()
                self._decoded[record_id] = content, record
        return record

    def _read_row(self, record_id: Id, lock: str = "") -> bytes:
        """Return the JSON of a record; FOR UPDATE locks the row. Raises the kind's NotFound."""
        if self._is_sound(record_id):
            # psycopg prepares less for a query that is the same object as the one before.
            query = f"{self._read} {lock}" if lock else self._read
            for (content,) in self.database.execute(query, [record_id]):
                return content
        raise self.kind.not_found(record_id)

    def _is_sound(self, record_id: Id) -> bool:
        """Return True for an id that a record may have: a database does not compare any text."""
        return self.kind.number or self.kind.id.fullmatch(record_id) is not None

    def _sound(self, ids: Iterable[Id]) -> list[Id]:
        return [*filter(self._is_sound, set(ids))]

    def read_from_many(self, ids: list, make: Callable[[Record], Value] = unchanged) -> list[Value]:
        sound = self._sound(ids)
        rows = self._select("WHERE id = ANY(%s)", sound) if sound else []
        made = {record.id: make(record) for record in self.readable(rows)}
        return [made[record_id] for record_id in ids if record_id in made]

    def readable(self, rows: Rows) -> Iterator[Record]:
        """Yield the records in rows, without damaged and expired ones."""
        for row in rows:
            with contextlib.suppress(DamagedRecord):
                record = self._decode(*row)
                if not self.kind.has_expired(record, now_ms()):
                    yield record

    def ids(self, after: Id | None = None, at_most: int | None = None) -> list:
        rest, args = _page(after, at_most)
        rows = self.database.execute(f"SELECT id FROM {self.kind.name} WHERE true {rest}", args)
        return [record_id for (record_id,) in rows]

    def existing(self, ids: Iterable[Id]) -> Set[Id]:
        query = f"SELECT id FROM {self.kind.name} WHERE id = ANY(%s)"
        return {record_id for (record_id,) in self.database.execute(query, [self._sound(ids)])}

    def find_by(self, unique: str, key: str) -> Record | None:
        if not key.isprintable():  # nor could the database compare it
            return None
        for row in self._select(f'WHERE "{unique}" = %s', key):
            record = decode_row(self.kind, *row)
            if self.kind.key(unique).of(record) == key:
                return None if self.kind.has_expired(record, now_ms()) else record
        return None

    def require_free(self, unique: str, key: str, but: Id | None = None) -> None:
        for row in self._select(f'WHERE "{unique}" = %s', key):
            if row[0] != but and not self._is_removed(row):
                raise self.kind.key(unique).taken(next(self.readable([row]), None))

    def _is_removed(self, row: tuple) -> bool:
        """Remove the record in a row, and return True, if it has expired."""
        with contextlib.suppress(DamagedRecord):
            if self.kind.has_expired(self._decode(*row), now_ms()):
                self.remove(row[0])
                return True
        return False

    def page(
        self,
        index: str,
        key: str,
        after: Id | None = None,
        at_most: int | None = None,
        newest_first: bool = False,
    ) -> list[Record]:
        found, rows, key_of = [], None, self.kind.key(index).of
        # Again where some of the rows are damaged or have expired.
        while rows is None or (at_most and len(rows) == at_most > len(found)):
            rest, args = _page(after, at_most, newest_first)
            rows = self._select(f'WHERE "{index}" = %s {rest}', key, *args)
            found += (record for record in self.readable(rows) if key_of(record) == key)
            after = rows[-1][0] if rows else None
        return found[:at_most]

    def between(
        self,
        index: str,
        low: str,
        high: str,
        after: tuple[str, Id] | None = None,
        at_most: int | None = None,
        newest_first: bool = True,
    ) -> list[Record]:
        found, rows = [], None
        sign, order = ("<", "DESC") if newest_first else (">", "ASC")
        end = f'ORDER BY "{index}" {order}, id {order} LIMIT %s'
        while rows is None or (at_most and len(rows) == at_most > len(found)):
            behind = f'AND ("{index}", id) {sign} (%s, %s)' if after else ""
            query = f'SELECT "{index}", id, record FROM {self.kind.name} WHERE "{index}" >= %s'
            args = [low, high, *(after or ()), at_most]
            rows = self.database.execute(f'{query} AND "{index}" <= %s {behind} {end}', args)
            for key, *row in rows:
                records = self.readable([row])
                found += (each for each in records if self.kind.key(index).of(each) == key)
                after = key, row[0]
        return found[:at_most]

    def count_between(self, index: str, low: str, high: str) -> int:
        condition = f'"{index}" >= %s AND "{index}" <= %s'
        query = f"SELECT count(*) FROM {self.kind.name} WHERE {condition}"
        [(number,)] = self.database.execute(query, [low, high])
        return number

    def count(self, index: str, key: str, at_most: int) -> int:
        if self.database.in_transaction:  # one after the other, so that the count is exact
            lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
            self.database.execute(lock, [f"{self.kind.name}/{index}/{key}"])
        return super().count(index, key, at_most)

    # -- changes -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def adding(self, record: Record) -> Iterator[None]:
        self.kind.require_rules(record)
        # One at a time of those with the same key: of one player, say.
        shared = next(filter(None, (index.of(record) for index in self.kind.indexes)), None)
        with self.database.transaction(f"{self.kind.name} of {shared}" if shared else ""):
            # Waits for a restore, which holds this row; others need not wait.
            self.database.execute("SELECT true FROM installation FOR KEY SHARE")
            self._remove_expired()
            if self.existing([record.id]):
                raise AlreadyThere(f"there is a {self.kind.one} with this id")
            self.require_free_keys(record)
            yield
            self.insert_row(record)

    def insert_row(self, record: Record) -> None:
        """Add the row of a record, in a transaction."""
        self.database.save(self._insert, row_of(self.kind, record))

    def put(self, record: Record) -> None:
        self._remove_expired()
        self.remove(record.id)
        self.insert_row(record)

    @contextlib.contextmanager
    def edit_inside(self, record_id: Id) -> Iterator[Record]:
        record = decode_row(self.kind, record_id, self._read_row(record_id, "FOR UPDATE"))
        yield record
        self.save(record)

    @contextlib.contextmanager
    def locked(self, record_id: Id, keys_change: bool = False) -> Iterator[Record]:
        with self.database.transaction(f"{self.kind.name}/{record_id}"):
            yield decode_row(self.kind, record_id, self._read_row(record_id, "FOR UPDATE"))

    def save(self, record: Record, *_: object) -> None:
        """Replace the row of a record, in a transaction."""
        self.database.save(self._update, [*row_of(self.kind, record), record.id])

    @contextlib.contextmanager
    def deleting(self, record_id: Id) -> Iterator[Record]:
        with self.locked(record_id) as record:
            yield record
            self.before_removal(record)
            self.remove(record_id)
            self._remove_dependents(self.kind, [record_id])

    def remove(self, record_id: Id) -> None:
        """Remove the row of a record, in a transaction."""
        self.database.save(f"DELETE FROM {self.kind.name} WHERE id = %s", [record_id])

    def discard(self, ids: Iterable[Id]) -> None:
        if sound := self._sound(ids):
            query = f"DELETE FROM {self.kind.name} WHERE id = ANY(%s)"
            with contextlib.suppress(StorageError), self.database.transaction():
                self.database.save(query, [sound])

    def _remove_dependents(self, kind: Kind, ids: list) -> None:
        for each, index in dependents_of(kind):
            query = f'DELETE FROM {each.name} WHERE "{index.name}" = ANY(%s) RETURNING id'
            if removed := self.database.save(query, [list(map(str, ids))]):
                self._remove_dependents(each, [record_id for (record_id,) in removed])

    def _remove_expired(self) -> None:
        """Remove some expired records, in a transaction."""
        if self.kind.expires is None or not self._cleaning.is_due():
            return
        # Of several processes, none waits for another.
        query = (
            f"DELETE FROM {self.kind.name} WHERE id IN (SELECT id FROM {self.kind.name} "
            f"WHERE day < %s LIMIT {REMOVED_AT_ONCE} FOR UPDATE SKIP LOCKED)"
        )
        self.database.save(query, [day_of(now_ms())])


def _page(
    after: Id | None, at_most: int | None, newest_first: bool = False
) -> tuple[str, list[Id | int | None]]:
    """Return the rest of a condition, with the order of ids, and its values."""
    # Text has the collation "C": its order is that of Python. LIMIT NULL is no limit.
    sign, order = ("<", "DESC") if newest_first else (">", "ASC")
    behind, args = ("", []) if after is None else (f"AND id {sign} %s", [after])
    return f"{behind} ORDER BY id {order} LIMIT %s", [*args, at_most]
