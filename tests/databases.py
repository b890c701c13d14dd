"""Empty databases for tests. Making the tables takes 0.1 s, so databases are emptied and reused."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import psycopg
from postgresql_cluster import Cluster

from storage import Storage, open_storage
from storage.contract import new_key
from storage.postgresql import backend
from storage.postgresql.schema import prepare_database

LOCK_TIMEOUT = "20s"  # emptying waits so long for sessions that just ended
# All columns, also those of indexes and views; all constraints, and the triggers of tests.
SHAPE = """
SELECT relname::text, attname::text FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid
WHERE relnamespace = 'public'::regnamespace AND attnum > 0
UNION ALL SELECT conname::text, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT tgname::text, tgenabled::text FROM pg_trigger
WHERE NOT tgisinternal OR tgenabled <> 'O'
ORDER BY 1, 2
"""
TABLES = """
SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
"""
KEPT = ("installation", "health")  # tables with one row
END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
NEW_INSTALLATION = "UPDATE installation SET next_user_id = 1, keys = ARRAY[%s]"
NEW_SCHEMA = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"


class Databases:
    """The databases of a cluster, and every storage that this process opens in them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._server = psycopg.connect(cluster.url(), autocommit=True)
        self._idle: list[Database] = []
        self._made = 0
        self._opened: dict[str, list[Storage]] = {}  # by the path of the URL
        self._open = backend.PostgreSQL
        backend.PostgreSQL = self._open_and_note

    def _open_and_note(self, url: str) -> Storage:
        storage = self._open(url)
        self._opened.setdefault(urlsplit(url).path, []).append(storage)
        return storage

    def close(self) -> None:
        """Close the connections of this object."""
        backend.PostgreSQL = self._open
        for each in [self._server, *(database.connection for database in self._idle)]:
            each.close()

    @contextlib.contextmanager
    def lend(self) -> Iterator["PostgreSQLBackend"]:
        """Yield a backend whose installations are there until the block ends."""
        lent = PostgreSQLBackend(self)
        try:
            yield lent
        finally:
            for database in lent.databases.values():
                for storage in self._opened.pop(urlsplit(database.url).path, []):
                    storage.close()
                database.empty()
                self._idle.append(database)

    def take(self) -> "Database":
        """Return an empty database, for one installation."""
        if self._idle:
            return self._idle.pop()
        name = f"test_{self._made}"
        self._made += 1
        self._server.execute(f"CREATE DATABASE {name}")
        return Database(self.cluster.url(name))


class Database:
    """A database that one installation uses at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        self._make_tables()

    def empty(self) -> None:
        """Make the installation a new one, also after faults, and end the sessions of others."""
        self.connection.execute(END_SESSIONS)
        if self.connection.execute(SHAPE).fetchall() == self._shape:
            self.connection.execute(self._empty)
            self.connection.execute(NEW_INSTALLATION, [new_key()])
            return
        self.connection.execute(NEW_SCHEMA)
        self._make_tables()

    def _make_tables(self) -> None:
        def execute(query: str, values: Sequence = ()) -> list[tuple]:
            cursor = self.connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

        prepare_database(execute)
        self._shape = execute(SHAPE)
        tables = [table for (table,) in execute(TABLES) if table not in KEPT]
        self._empty = "".join(f"DELETE FROM {table};" for table in tables)
        self._empty += "SELECT setval('audit_id_seq', 1, false)"


class PostgreSQLBackend:
    """Installations in databases. Each data folder stands for one; nothing is made in it."""

    def __init__(self, pool: Databases) -> None:
        self._pool = pool
        self.databases: dict[str, Database] = {}  # by data folder

    def setting(self, data_dir: str) -> str:
        folder = os.path.abspath(data_dir)
        if folder not in self.databases:
            self.databases[folder] = self._pool.take()
        return self.databases[folder].url

    def open(self, data_dir: str, picture_dir: str) -> Storage:
        return open_storage(data_dir, picture_dir, self.setting(data_dir))
