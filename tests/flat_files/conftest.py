"""Fixtures of the tests that are about files."""

from pathlib import Path

import pytest


@pytest.fixture
def data(folders) -> Path:
    return Path(folders[0])


@pytest.fixture
def pictures(folders) -> Path:
    return Path(folders[1])
