"""The audit log as rows, one JSON line each, and whom each line is by and about."""

import json
from collections.abc import Iterator

from storage.audit_lines import decode_lines, new_line, subjects_of
from storage.postgresql.connections import Database

PAGE = 1000  # lines that are read at a time
PLACE = "the audit log"


class AuditTable:
    """The audit log of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, act: str, by: int | str, **ids: int | str) -> None:
        """As `Storage.write_audit`."""
        line = new_line(act, by, ids)
        if self._database.in_transaction:  # of the act
            self._write(line)
        else:
            with self._database.transaction():
                self._write(line)

    def _write(self, line: dict) -> None:
        query = (
            "WITH new AS (INSERT INTO audit (line) VALUES (%s) RETURNING id) "
            "INSERT INTO audit_subjects SELECT subject, id FROM new, unnest(%s::text[]) AS subject"
        )
        self._database.save(query, [json.dumps(line).encode(), sorted(subjects_of(line))])

    def read(self) -> Iterator[dict]:
        """As `Storage.read_audit`."""
        query = "SELECT id, line FROM audit WHERE id > %s ORDER BY id LIMIT %s"
        return decode_lines(self._lines(query), PLACE)

    def about(self, subject: int | str) -> Iterator[dict]:
        """As `Storage.audit_of`."""
        query = (
            "SELECT id, line FROM audit_subjects JOIN audit ON id = audit_id "
            "WHERE subject = %s AND audit_id > %s ORDER BY audit_id LIMIT %s"
        )
        return decode_lines(self._lines(query, str(subject)), PLACE)

    def _lines(self, query: str, *args: str) -> Iterator[bytes]:
        last = -(2**62)  # restored lines have numbers below zero
        while rows := self._database.execute(query, [*args, last, PAGE]):
            yield from (line for _, line in rows)
            last = rows[-1][0]
