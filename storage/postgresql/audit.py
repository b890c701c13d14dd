"""The audit log as rows, one JSON line each."""

import contextlib
from collections.abc import Iterator

from storage.contract import Audit
from storage.postgresql.connections import Database

PAGE = 1000  # lines that are read at a time


class AuditTable(Audit):
    """The audit log of a database. A line is saved in the transaction of its act."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_line(self, line: bytes) -> None:
        database = self._database
        with contextlib.nullcontext() if database.in_transaction else database.transaction():
            database.save("INSERT INTO audit (line) VALUES (%s)", [line])

    def lines(self, newest_first: bool = False) -> Iterator[bytes]:
        query = "SELECT id, line FROM audit WHERE id > %s ORDER BY id LIMIT %s"
        last = -(2**62)  # restored lines have negative ids
        if newest_first:
            query = "SELECT id, line FROM audit WHERE id < %s ORDER BY id DESC LIMIT %s"
            last = 2**62
        while rows := self._database.execute(query, [last, PAGE]):
            yield from (line for _, line in rows)
            last = rows[-1][0]
