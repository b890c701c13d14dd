"""Fixtures of the tests that are about files: they run on the backend of flat files alone."""

from pathlib import Path

import pytest
from backends import FLAT_FILES, Backend


@pytest.fixture
def backend() -> Backend:
    """The backend of this test."""
    return FLAT_FILES


@pytest.fixture
def flat_folders(folders) -> tuple[Path, Path]:
    """The data folder and the picture folder of this test's installation."""
    return Path(folders[0]), Path(folders[1])


@pytest.fixture
def data(flat_folders) -> Path:
    """The data folder of this test's installation."""
    return flat_folders[0]


@pytest.fixture
def pictures(flat_folders) -> Path:
    """The picture folder of this test's installation."""
    return flat_folders[1]
