"""The audit log as rows, one JSON line each."""

import json
from collections.abc import Iterator, Set

from storage.audit_lines import decode_lines, lines_about, new_line
from storage.contract import Audit
from storage.postgresql.connections import Database

PAGE = 1000  # lines that are read at a time
PLACE = "the audit log"


class AuditTable(Audit):
    """The audit log of a database. A line is saved in the transaction of its act."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, act: str, by: int | str, **ids: int | str) -> None:
        values = [json.dumps(new_line(act, by, ids)).encode()]
        query = "INSERT INTO audit (line) VALUES (%s)"
        if self._database.in_transaction:
            self._database.save(query, values)
        else:
            with self._database.transaction():
                self._database.save(query, values)

    def read(self) -> Iterator[dict]:
        query = "SELECT id, line FROM audit WHERE id > %s ORDER BY id LIMIT %s"
        return decode_lines(self._lines(query, -(2**62)), PLACE)

    def about(self, subjects: Set[int | str]) -> Iterator[dict]:
        query = "SELECT id, line FROM audit WHERE id < %s ORDER BY id DESC LIMIT %s"
        return lines_about(self._lines(query, 2**62), subjects, PLACE)

    def _lines(self, query: str, last: int) -> Iterator[bytes]:
        while rows := self._database.execute(query, [last, PAGE]):  # restored ones are negative
            yield from (line for _, line in rows)
            last = rows[-1][0]
