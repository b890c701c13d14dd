"""The audit log as rows, one JSON line each."""

import contextlib
from collections.abc import Iterator

from storage.audit_lines import without_address
from storage.contract import Audit
from storage.postgresql.connections import Database

FIRST_PAGE, PAGE = 100, 1000  # lines that are read at a time
END = 2**62  # no id is that large


class AuditTable(Audit):
    """The audit log of a database. A line is saved in the transaction of its act."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_line(self, line: bytes) -> None:
        database = self._database
        with contextlib.nullcontext() if database.in_transaction else database.transaction():
            database.save("INSERT INTO audit (line) VALUES (%s)", [line])

    def lines(self) -> Iterator[bytes]:
        query = "SELECT id, line FROM audit WHERE id > %s ORDER BY id LIMIT %s"
        last = -END  # restored lines have negative ids
        while rows := self._database.execute(query, [last, PAGE]):
            yield from (line for _, line in rows)
            last = rows[-1][0]

    def before(self, position: int | None = None) -> Iterator[tuple[int, bytes]]:
        query = "SELECT id, line FROM audit WHERE id < %s ORDER BY id DESC LIMIT %s"
        last, number = END if position is None else max(-END, min(position, END)), FIRST_PAGE
        while rows := self._database.execute(query, [last, number]):
            yield from rows
            last, number = rows[-1][0], PAGE

    def ends(self) -> tuple[int, int]:
        query = "SELECT coalesce(min(id), 0), coalesce(max(id), 0) + 1 FROM audit"
        [ends] = self._database.execute(query)
        return ends

    def forget(self, start: int, end: int) -> None:
        query = "SELECT id, line FROM audit WHERE id >= %s AND id < %s ORDER BY id LIMIT %s"
        update = "UPDATE audit SET line = %s WHERE id = %s"
        while rows := self._database.execute(query, [start, end, PAGE]):
            with self._database.transaction():
                for position, line in rows:
                    if (kept := without_address(line)) != line:
                        self._database.save(update, [kept, position])
            start = rows[-1][0] + 1
