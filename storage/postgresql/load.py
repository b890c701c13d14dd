"""Filling a database that has no users and clients, as a restore does.

One transaction adds everything, so that a kill at any moment leaves nothing or all. It holds the
row of the installation: until its end nobody signs up or registers a client.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

import psycopg
from psycopg.errors import UniqueViolation

import storage
from storage import PICTURE_SIZES, USER_ID, Client, DamagedRecord, Invite, Load, User, now_ms
from storage.audit_lines import subjects_in
from storage.maintenance import Report
from storage.names import can_be_key
from storage.postgresql import clients, users
from storage.postgresql.connections import Database
from storage.postgresql.rows import archive_lock, stream
from storage.postgresql.schema import new_key

MOST_LINES = 2**33  # of an audit log; its numbers are below those of the lines that are there
BATCH = 2**22  # bytes, about: rows are sent when there are so many
ROW = 1000  # bytes that a row takes in memory, besides pictures and lines
# Columns by table, in the order in which rows refer to each other. The first one names the row.
COLUMNS = {
    "users": ("id", "record", "name_key", "email_key", "administers"),
    "deleted_users": ("id",),
    "pictures": ("user_id", "pfp_timestamp", "written", *PICTURE_SIZES),
    "clients": ("id", "record", "owner_id", "game_origin", "listed"),
    "invites": ("hash", "expires"),
    "audit": ("id", "line"),
    "audit_subjects": ("audit_id", "subject"),
}
DUPLICATES = {
    "users_name_key_key": "its name is that of another user",
    "users_email_key_key": "its email is that of another user",
    "clients_game_origin_key": "its game is on the origin of another client",
}


@contextlib.contextmanager
def load(database: Database, before: Callable[[], None], report: Report) -> Iterator[Load]:
    """As `Storage.load`. Raises SaveUnconfirmed if everything may be there, or nothing."""
    with archive_lock(database, report), database.own_transaction() as connection:
        connection.execute("SELECT FROM installation FOR UPDATE")
        _refuse_unless_empty(connection)
        loaded = CopiedRows(connection)
        yield loaded
        loaded.finish()
        before()


def _refuse_unless_empty(connection: psycopg.Connection) -> None:
    query = "SELECT EXISTS (SELECT FROM users) OR EXISTS (SELECT FROM clients)"
    if connection.execute(query).fetchone() == (True,):
        raise storage.BadInstallation(
            "the database has players or clients: a restore or a copy needs one that has none"
        )


class CopiedRows(Load):
    """Rows that are sent in batches: a duplicate is found with its batch. Raises psycopg.Error."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._rows: dict[str, list[tuple]] = {table: [] for table in COLUMNS}
        self._size = 0  # bytes
        # Ids of users who were here before are below next_user_id, as in an archive.
        connection.execute("DELETE FROM deleted_users")
        query = "SELECT least(min(id), 1) FROM audit"
        (self._first_line,) = connection.execute(query).fetchone()  # of those that are there

    def add_user(self, user: User, pictures: dict[str, bytes]) -> None:
        *columns, user_id = users.columns_of(user)
        for field, key in zip(("name", "email"), columns[1:3], strict=True):
            if not can_be_key(field, key):
                raise DamagedRecord(f"users/{user_id}", f"nobody can be found by its {field}")
        self._add("users", user_id, *columns)
        if pictures:
            files = [pictures[size] for size in PICTURE_SIZES]
            row = (user_id, user.pfp_timestamp, now_ms(), *files)
            self._add("pictures", *row, size=sum(map(len, files)))

    def add_deleted_id(self, user_id: int) -> None:
        self._add("deleted_users", user_id)

    def add_client(self, client: Client) -> None:
        *columns, client_id = clients.columns_of(client)
        self._add("clients", client_id, *columns)

    def add_invite(self, invite_hash: str, invite: Invite) -> None:
        self._add("invites", invite_hash, invite.expires)

    def add_audit_log(self, lines: Iterable[bytes]) -> None:
        for number, line in enumerate(lines, start=self._first_line - MOST_LINES):
            self._add("audit", number, line.removesuffix(b"\n"), size=len(line))
            for subject in subjects_in(line):
                self._add("audit_subjects", number, subject)
        self._send()

    def finish(self) -> None:
        """Send the rest, and what follows from all of it."""
        self._send()
        self._index_older_lines()
        self._connection.execute(
            "DELETE FROM audit_subjects WHERE subject !~ %s "
            "AND NOT EXISTS (SELECT FROM clients WHERE id = subject)",
            [f"^{USER_ID.pattern}$"],
        )
        keys = [new_key()] if self.keys is None else [key.decode() for key in self.keys]
        self._connection.execute(
            "UPDATE installation SET next_user_id = greatest(next_user_id, %s), keys = %s",
            [self.next_user_id, keys],
        )
        # Queries are planned by these statistics, which would be made some minutes later.
        self._connection.execute(f"ANALYZE {', '.join(COLUMNS)}")

    def _index_older_lines(self) -> None:
        """Index the lines that were there: their clients are back, if they were loaded."""
        query = "SELECT id, line FROM audit WHERE id >= %s"
        for number, line in stream(self._connection, query, [self._first_line]):
            for subject in subjects_in(line):
                self._connection.execute(
                    "INSERT INTO audit_subjects (audit_id, subject) VALUES (%s, %s) "
                    "ON CONFLICT DO NOTHING",
                    [number, subject],
                )

    # -- rows ----------------------------------------------------------------------------------

    def _add(self, table: str, *row: object, size: int = 0) -> None:
        self._rows[table].append(row)
        self._size += ROW + size
        if self._size > BATCH:
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
        if not rows:
            return
        command = f"COPY {table} ({', '.join(COLUMNS[table])}) FROM STDIN"
        try:
            with self._connection.cursor() as cursor, cursor.copy(command) as copy:
                for row in rows:
                    copy.write_row(row)
        except UniqueViolation as error:
            # The context is "COPY users, line 2".
            row = rows[int(re.search(r"[0-9]+", error.diag.context)[0]) - 1]
            problem = DUPLICATES.get(error.diag.constraint_name, "it is there twice")
            raise DamagedRecord(f"{table}/{row[0]}", problem) from error
