"""Fixtures of the tests that are about PostgreSQL."""

from collections.abc import Iterator

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
