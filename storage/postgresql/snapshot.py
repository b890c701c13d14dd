"""One state of the database while the server goes on, as a backup reads it."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import psycopg

from model import kinds
from model.errors import DamagedRecord
from model.kind import Kind
from model.kinds import USERS
from model.records import PICTURE_SIZES, User
from model.rules import USER_IDS_END
from model.soundness import check_picture, require_sound
from storage.maintenance import Progress, Report, Snapshot, Steps, ignore
from storage.postgresql.connections import Database
from storage.postgresql.record_table import columns_of, decode_row
from storage.postgresql.schema import ARCHIVE_LOCK

# A transaction that does not see what others change meanwhile.
ONE_STATE = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
PAGE = 100  # rows that are fetched at a time: about 10 MB of large pictures
# Another schema of the same database may have an installation too, from which to copy.
LOCK_KEY = "(%s, 'installation'::regclass::oid::integer)"
LAST_ID = f"""
    SELECT coalesce(max(id), 0)
    FROM (SELECT id FROM users UNION ALL SELECT id FROM deleted_users) AS x
    WHERE id < {USER_IDS_END}
"""
# A user without a row of them has NULL for each.
PICTURES = """
    pictures.pfp_timestamp, large, medium, small FROM users LEFT JOIN pictures ON user_id = id
"""
DELETED = "SELECT id FROM deleted_users EXCEPT SELECT id FROM users ORDER BY id"


def stream(connection: psycopg.Connection, query: str) -> Iterator[tuple]:
    """Yield the rows of a query of any size, in a transaction; one such query at a time."""
    with connection.cursor("rows") as cursor:
        cursor.itersize = PAGE
        cursor.execute(query)
        yield from cursor


def count_rows(connection: psycopg.Connection, tables: Iterable[str]) -> int:
    """Return the number of rows of some tables."""
    counts = (f"(SELECT count(*) FROM {table})" for table in tables)
    return connection.execute(f"SELECT {' + '.join(counts)}").fetchone()[0]


@contextlib.contextmanager
def archive_lock(database: Database, report: Report) -> Iterator[None]:
    """Wait for other snapshots and loads of this installation, and hold new ones back."""
    with database.own_transaction() as connection:
        tried = connection.execute(f"SELECT pg_try_advisory_xact_lock{LOCK_KEY}", [ARCHIVE_LOCK])
        if tried.fetchone() == (False,):
            report("another backup, restore or copy is running: waiting for its end")
            connection.execute(f"SELECT pg_advisory_xact_lock{LOCK_KEY}", [ARCHIVE_LOCK])
        yield


@contextlib.contextmanager
def snapshot(
    database: Database, before: Callable[[], None], report: Report, progress: Progress
) -> Iterator[Snapshot]:
    """Yield one state of the database, as `Storage.snapshot` says."""
    with archive_lock(database, ignore):  # `report` is for what is left out
        before()
        with database.own_transaction(ONE_STATE) as connection:
            tables = ["audit", "deleted_users", *(kind.name for kind in kinds.KINDS if kind.copied)]
            steps = Steps(progress, count_rows(connection, tables))
            yield FrozenRows(connection, report, steps)
            steps.end()


class FrozenRows(Snapshot):
    """The rows that one transaction sees. Methods raise psycopg.Error."""

    def __init__(self, connection: psycopg.Connection, report: Report, steps: Steps) -> None:
        self._connection = connection
        self._report = report
        self._steps = steps
        query = f"SELECT next_user_id, keys, ({LAST_ID}) FROM installation"
        [(next_id, self._keys, last_id)] = connection.execute(query)
        if next_id > USER_IDS_END:
            self._skip(f"next_user_id is {next_id}, which is too large")
            next_id = 1
        self.next_user_id = max(next_id, last_id + 1)

    def _rows(self, query: str) -> Iterator[tuple]:
        return self._steps.each(stream(self._connection, query))

    def _skip(self, reason: object) -> None:
        self._report(f"{reason}: left out")

    def users(self) -> Iterator[tuple[User, dict[str, bytes]]]:
        query = f"SELECT {columns_of(USERS)}, {PICTURES} ORDER BY id"
        for *row, timestamp, large, medium, small in self._rows(query):
            if user := self._usable(USERS, *row):
                yield user, self._pictures_of(user, timestamp, large, medium, small)

    def records(self, kind: Kind) -> Iterator[Any]:
        query = f"SELECT {columns_of(kind)} FROM {kind.name} ORDER BY id"
        return filter(None, (self._usable(kind, *row) for row in self._rows(query)))

    def _usable(self, kind: Kind, record_id: int | str, content: bytes, *keys: str | None) -> Any:
        """Return the record of a row, None if it is left out."""
        try:
            record = decode_row(kind, record_id, content)
            require_sound(kind, record)
            for unique, column in zip(kind.unique, keys, strict=False):
                # It may have the same key as another record then.
                if unique.of(record) != column:
                    problem = f"its column {unique.name} does not follow from its record"
                    fix = "`check --repair` corrects it"
                    raise DamagedRecord(f"{kind.name}/{record_id}", f"{problem} ({fix})")
        except DamagedRecord as error:
            if kind.checked:  # else no check would name it
                self._skip(error)
            return None
        return record

    def _pictures_of(
        self, user: User, timestamp: int | None, *content: bytes | None
    ) -> dict[str, bytes]:
        """Return a user's pictures by size, none if they are generated or unusable."""
        pictures = pictures_in(content)
        problems = problems_with_pictures(user, timestamp, pictures) if pictures else iter(())
        if problem := next(problems, None):
            place = f"pictures/{user.id}"
            self._report(f"{place} {problem}: left out, player {user.id} gets a generated picture")
            # Caches keep what was at the old address.
            pictures, user.pfp_timestamp = {}, None
        user.pfp_generated = not pictures  # which records of earlier versions may lack
        return pictures

    def deleted_ids(self) -> Iterator[int]:
        ids = (user_id for (user_id,) in self._rows(DELETED))
        return filter(USERS.may_have, ids)

    def audit_lines(self) -> Iterator[bytes]:
        for (line,) in self._rows("SELECT line FROM audit ORDER BY id"):
            yield line + b"\n"

    def keys(self) -> tuple[bytes, ...]:
        return tuple(key.encode() for key in self._keys)


def pictures_in(content: Sequence[bytes | None]) -> dict[str, bytes]:
    """Return the pictures in a row by size, none for a user without a row of them."""
    return {} if None in content else dict(zip(PICTURE_SIZES, content, strict=True))


def problems_with_pictures(
    user: User, timestamp: int | None, pictures: dict[str, bytes]
) -> Iterator[str]:
    """Yield what is wrong with a user's row of pictures, as a clause that starts with a verb."""
    if timestamp != user.pfp_timestamp:
        yield f"has the timestamp {timestamp}, and its player {user.pfp_timestamp}"
    for size, content in pictures.items():
        if problem := check_picture(size, content):
            yield f"({size}) {problem}"
