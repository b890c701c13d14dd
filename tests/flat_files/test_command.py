"""The command, if the data folder cannot be used."""

import pytest
from test_command import Installation


@pytest.fixture
def empty(tmp_path) -> Installation:
    """An installation without players."""
    return Installation(tmp_path)


def test_data_folder_creation_error_is_one_line(empty):
    empty.data.write_text("not a folder")
    assert empty.refusal("user", "list")


def test_newer_data_layout_stops_serve_in_one_line(empty):
    empty.run("user", "list")
    (empty.data / "format").write_text("99\n")
    assert "layout 99" in empty.refusal("serve", "--bind", "127.0.0.1:0")
