"""Databases for tests: copies of one that has the tables, which takes a hundredth of a second."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from postgresql_cluster import Cluster
from waiting import PATIENCE

from storage import Storage, open_storage
from storage.contract import new_key
from storage.postgresql import backend, connections, watchdog


def query(url: str, statement: str, *values: object) -> list[tuple]:
    """Run a statement in a database behind the server's back, and return the rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


def disable_time_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call wait: racing saves take seconds on a machine under load.

    postgresql/ tests the time limits.
    """
    monkeypatch.setattr(watchdog, "TURN_TIMEOUT", PATIENCE)
    monkeypatch.setitem(connections.SESSION, "lock_timeout", f"{PATIENCE}s")
    monkeypatch.setattr(connections.Link.run, "__defaults__", ((), PATIENCE))
    monkeypatch.setattr(connections.Link.commit, "__defaults__", (PATIENCE,))


class Databases:
    """The databases of a cluster, and every storage that this process opens in them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._server = psycopg.connect(cluster.url(), autocommit=True)
        self._numbers = itertools.count()
        self._opened: dict[str, list[Storage]] = {}  # by the path of the URL
        self._open = backend.PostgreSQL
        self._server.execute("CREATE DATABASE prepared")
        with contextlib.closing(self._open(cluster.url("prepared"))) as storage:
            storage.keys.current()  # makes the tables
        backend.PostgreSQL = self._open_and_note

    def _open_and_note(self, url: str) -> Storage:
        storage = self._open(url)
        self._opened.setdefault(urlsplit(url).path, []).append(storage)
        return storage

    def close(self) -> None:
        backend.PostgreSQL = self._open
        self._server.close()

    @contextlib.contextmanager
    def lend(self) -> Iterator["PostgreSQLBackend"]:
        """Yield a backend whose installations are there until the block ends."""
        lent = PostgreSQLBackend(self)
        try:
            yield lent
        finally:
            for url in lent.urls.values():
                path = urlsplit(url).path
                for storage in self._opened.pop(path, []):
                    storage.close()
                self._server.execute(f"DROP DATABASE {path[1:]} WITH (FORCE)")

    def create(self) -> str:
        name = f"test_{next(self._numbers)}"
        self._server.execute(f"CREATE DATABASE {name} TEMPLATE prepared")
        url = self.cluster.url(name)
        query(url, "UPDATE installation SET keys = ARRAY[%s]", new_key())
        return url


class PostgreSQLBackend:
    """Installations in databases. Each data folder stands for one; nothing is made in it."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self.urls: dict[str, str] = {}  # by data folder

    def setting(self, data_dir: str) -> str:
        folder = os.path.abspath(data_dir)
        if folder not in self.urls:
            self.urls[folder] = self._databases.create()
        return self.urls[folder]

    def open(self, data_dir: str, picture_dir: str) -> Storage:
        return open_storage(data_dir, picture_dir, self.setting(data_dir))
