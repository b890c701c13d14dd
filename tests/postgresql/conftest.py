"""Fixtures of the tests that are about PostgreSQL."""

from collections.abc import Callable, Iterator

import psycopg
import pytest


@pytest.fixture
def backend(databases) -> Iterator:
    """The backend of this test, without installations."""
    with databases.lend() as backend:
        yield backend


@pytest.fixture
def database_url(backend, folders) -> str:
    """The URL of the database of this test's installation, which is empty."""
    return backend.setting(folders[0])


@pytest.fixture
def run(database_url) -> Iterator[Callable[..., list[tuple]]]:
    """A function that runs a statement behind the server's back, and returns the rows."""
    with psycopg.connect(database_url, autocommit=True) as connection:

        def run(statement: str, *values: object) -> list[tuple]:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

        yield run
