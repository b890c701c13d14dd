"""Work on a whole installation: reading all rows of a table, and the lock of such work."""

import contextlib
from collections.abc import Iterator, Sequence

import psycopg

from storage.maintenance import Report
from storage.postgresql.connections import Database
from storage.postgresql.schema import ARCHIVE_LOCK

# A transaction that does not see what others change meanwhile.
ONE_STATE = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
PAGE = 100  # rows that are fetched at a time: about 10 MB of large pictures
# Another schema of the same database may have an installation too, from which to copy.
LOCK_KEY = "(%s, 'installation'::regclass::oid::integer)"


def stream(connection: psycopg.Connection, query: str, args: Sequence = ()) -> Iterator[tuple]:
    """Yield the rows of a query of any size, in a transaction; one such query at a time."""
    with connection.cursor("rows") as cursor:
        cursor.itersize = PAGE
        cursor.execute(query, args)
        yield from cursor


@contextlib.contextmanager
def archive_lock(database: Database, report: Report) -> Iterator[None]:
    """Wait for other snapshots and loads of this installation, and hold new ones back."""
    with database.own_transaction() as connection:
        tried = connection.execute(f"SELECT pg_try_advisory_xact_lock{LOCK_KEY}", [ARCHIVE_LOCK])
        if tried.fetchone() == (False,):
            report("another backup, restore or copy is running: waiting for its end")
            connection.execute(f"SELECT pg_advisory_xact_lock{LOCK_KEY}", [ARCHIVE_LOCK])
        yield
