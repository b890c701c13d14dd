"""Empty databases for tests. Making the tables takes 0.1 s, so databases are emptied and reused."""

import contextlib
import os
from collections.abc import Iterator, Sequence

import psycopg
from faulty_postgresql import PostgreSQLFaults
from postgresql_cluster import Cluster

from storage import Storage, open_storage
from storage.postgresql import backend
from storage.postgresql.constraints import ADD, PRESENT
from storage.postgresql.schema import TABLES, new_key, prepare_database

NAMES = [name for _, name in ADD]  # of constraints and indexes
LOCK_TIMEOUT = "20s"  # emptying waits so long for sessions that just ended
IS_AS_MADE = f"""
SELECT NOT EXISTS (SELECT FROM pg_trigger WHERE NOT tgisinternal OR tgenabled <> 'O')
AND %s::text[] <@ ARRAY({PRESENT}) AND %s::text[] = ARRAY(
    SELECT relname::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v') ORDER BY 1
)
"""
END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
EMPTY = "".join(
    f"DELETE FROM {table};" for table in TABLES if table not in ("installation", "health")
)
EMPTY += "SELECT setval('audit_id_seq', 1, false);"
NEW_INSTALLATION = "UPDATE installation SET next_user_id = 1, keys = ARRAY[%s]"
NEW_SCHEMA = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"


class Databases:
    """The databases of a cluster, and every storage that this process opens in them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._server = psycopg.connect(cluster.url(), autocommit=True)
        self._idle: list[Database] = []
        self._made = 0
        self._opened: dict[str, list[Storage]] = {}  # by URL
        self._open = backend.PostgreSQL
        backend.PostgreSQL = self._open_and_note

    def _open_and_note(self, url: str) -> Storage:
        storage = self._open(url)
        self._opened.setdefault(url, []).append(storage)
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
                for storage in self._opened.pop(database.url, []):
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
        return Database(self._cluster.url(name))


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
        try:
            [(is_as_made,)] = self.connection.execute(IS_AS_MADE, [NAMES, sorted(TABLES)])
            if is_as_made:
                self.connection.execute(EMPTY)
                self.connection.execute(NEW_INSTALLATION, [new_key()])
                return
        except psycopg.errors.UndefinedColumn:
            pass
        self.connection.execute(NEW_SCHEMA)
        self._make_tables()

    def _make_tables(self) -> None:
        def execute(query: str, values: Sequence = ()) -> list[tuple]:
            cursor = self.connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

        prepare_database(execute)


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

    def faults(self, data_dir: str, picture_dir: str) -> PostgreSQLFaults:
        self.setting(data_dir)
        return PostgreSQLFaults(self.databases[os.path.abspath(data_dir)].connection)
