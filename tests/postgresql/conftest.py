"""Fixtures of the tests that are about PostgreSQL."""

import functools
from collections.abc import Callable, Iterator

import pytest
from databases import query


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
def run(database_url) -> Callable[..., list[tuple]]:
    """A function that runs a statement behind the server's back, and returns the rows."""
    return functools.partial(query, database_url)
