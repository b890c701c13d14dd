"""Filling a database that has no users and clients, as a restore does.

One transaction adds everything, so that a kill at any moment leaves nothing or all. It holds the
row of the installation: until its end nobody signs up or registers a client.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psycopg
from psycopg.errors import UniqueViolation

from model import kinds
from model.errors import BadInstallation, DamagedRecord
from model.kind import Kind
from model.kinds import USERS
from model.records import User
from storage.contract import new_key
from storage.maintenance import Load, Report
from storage.postgresql.connections import Database
from storage.postgresql.keys import KeyRow
from storage.postgresql.pictures import COLUMNS, row_of_pictures
from storage.postgresql.record_table import columns_of, row_of
from storage.postgresql.snapshot import archive_lock

MOST_AUDIT_LINES = 2**33  # of an audit log; its numbers are below those of the lines that are there
BATCH_BYTES = 2**22  # bytes, about: rows are sent when there are so many
ROW = 1000  # bytes that a row takes in memory, besides pictures and lines


@contextlib.contextmanager
def load(
    database: Database, keys: KeyRow, before: Callable[[], None], report: Report
) -> Iterator[Load]:
    """Yield what fills the database, as `Storage.load` says.

    Raises SaveUnconfirmed if everything may be there, or nothing.
    """
    with archive_lock(database, report), database.own_transaction() as connection:
        connection.execute("SELECT FROM installation FOR UPDATE")
        _require_empty(connection)
        loaded = CopiedRows(connection)
        yield loaded
        loaded.finish()
        before()
    keys.expire()


def _require_empty(connection: psycopg.Connection) -> None:
    counting = (f"EXISTS (SELECT FROM {kind.name})" for kind in kinds.KINDS if kind.counts)
    query = f"SELECT {' OR '.join(counting)}"
    if connection.execute(query).fetchone() == (True,):
        raise BadInstallation(
            "the database has players or clients, or handles of players who left: a restore or a "
            "copy needs one that has none"
        )


class CopiedRows(Load):
    """Rows that are sent in batches: a duplicate is found with its batch. Raises psycopg.Error."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        # Columns by table, in the order in which rows refer to each other. The first names the row.
        self._columns = {kind.name: columns_of(kind) for kind in kinds.KINDS} | {
            "deleted_users": "id",
            "pictures": ", ".join(COLUMNS),
            "audit": "id, line",
        }
        self._rows: dict[str, list[tuple]] = {table: [] for table in self._columns}
        self._size = 0  # bytes
        # Ids of users who were here before are below next_user_id, as in an archive.
        connection.execute("DELETE FROM deleted_users")
        for kind in kinds.KINDS:
            if kind.archived and not kind.counts:  # they are of users who were here before
                connection.execute(f"DELETE FROM {kind.name}")
        query = "SELECT least(min(id), 1) FROM audit"
        (self._first_line,) = connection.execute(query).fetchone()  # of those that are there

    def add_user(self, user: User, pictures: dict[str, bytes]) -> None:
        self.add(USERS, user)
        if pictures:
            size = sum(map(len, pictures.values()))
            self._add("pictures", *row_of_pictures(user, pictures), size=size)

    def add(self, kind: Kind, record: Any) -> None:
        self._add(kind.name, *row_of(kind, record))

    def add_deleted_id(self, user_id: int) -> None:
        self._add("deleted_users", user_id)

    def add_audit_log(self, lines: Iterable[bytes]) -> None:
        for number, line in enumerate(lines, start=self._first_line - MOST_AUDIT_LINES):
            self._add("audit", number, line.removesuffix(b"\n"), size=len(line))
        self._send()

    def finish(self) -> None:
        """Send the rest, and what follows from all of it."""
        self._send()
        keys = [new_key()] if self.keys is None else [key.decode() for key in self.keys]
        self._connection.execute(
            "UPDATE installation SET next_user_id = greatest(next_user_id, %s), keys = %s",
            [self.next_user_id, keys],
        )
        # Queries are planned by these statistics, which would be made some minutes later.
        self._connection.execute(f"ANALYZE {', '.join(self._columns)}")

    # -- rows ----------------------------------------------------------------------------------

    def _add(self, table: str, *row: object, size: int = 0) -> None:
        self._rows[table].append(row)
        self._size += ROW + size
        if self._size > BATCH_BYTES:
            self._send()

    def _send(self) -> None:
        """Send the rows that are waiting. Raises DamagedRecord for a duplicate among all rows."""
        for table, rows in self._rows.items():
            self._copy(table, rows)
        ids = [user_id for table in ("users", "deleted_users") for user_id, *_ in self._rows[table]]
        query = "SELECT id FROM users JOIN deleted_users USING (id) WHERE id = ANY(%s)"
        for (user_id,) in self._connection.execute(query, [ids]):
            raise DamagedRecord(f"deleted_users/{user_id}", "there is a user with this id")
        for rows in self._rows.values():
            rows.clear()
        self._size = 0

    def _copy(self, table: str, rows: list[tuple]) -> None:
        """Send rows of a table. Raises DamagedRecord for an id or a key that another row has."""
        if not rows:
            return
        command = f"COPY {table} ({self._columns[table]}) FROM STDIN"
        try:
            with self._connection.cursor() as cursor, cursor.copy(command) as copy:
                for row in rows:
                    copy.write_row(row)
        except UniqueViolation as error:
            # The context is "COPY users, line 2".
            row = rows[int(re.search(r"[0-9]+", error.diag.context)[0]) - 1]
            key = error.diag.constraint_name.removeprefix(f"{table}_")
            problem = "it is there twice" if key == "pkey" else f"its {key} is that of another"
            raise DamagedRecord(f"{table}/{row[0]}", problem) from error
