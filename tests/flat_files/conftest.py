"""Fixtures of the tests that are about files."""

from pathlib import Path

import pytest


@pytest.fixture
def data(folders) -> Path:
    """The data folder of this test's installation."""
    return Path(folders[0])


@pytest.fixture
def pictures(folders) -> Path:
    """The picture folder of this test's installation."""
    return Path(folders[1])
