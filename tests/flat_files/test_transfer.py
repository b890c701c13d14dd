"""Import and export of players if files cannot be read or made."""

import io
import json
from pathlib import Path

import pytest

from storage.maintenance import ignore
from storage.transfer import export_users, import_users

DISK_ERRORS = {
    "a picture": ("70.png: Input", lambda data, folder: link_to_unreadable_file(folder / "70.png")),
    "a record": ("users/70.json: Is a", lambda data, folder: (data / "users/70.json").mkdir()),
    "an index entry": ("names/ada: Invalid", lambda data, folder: (data / "names/ada").mkdir()),
}


def link_to_unreadable_file(path: Path) -> None:
    """Link to a file that opens, and whose first bytes cannot be read (proc(5))."""
    path.symlink_to("/proc/self/mem")


@pytest.mark.parametrize(("expected", "make"), DISK_ERRORS.values(), ids=DISK_ERRORS.keys())
def test_import_refuses_the_line_of_an_unreadable_file_and_takes_the_others(
    storage, flat_folders, tmp_path, expected, make
):
    storage.users.reserve_ids(70)  # like an earlier import
    make(flat_folders[0], tmp_path)
    ids = (70, 1, 2)
    lines = [{"id": n, "name": f"Ada {n}", "email": f"{n}@example.org"} for n in ids]
    lines[0]["name"] = "Ada"
    file = io.BytesIO("\n".join(map(json.dumps, lines)).encode())
    refused = {}
    result = import_users(storage, file, str(tmp_path), "command", ignore, refused.__setitem__, str)
    assert (result.added, [*refused]) == (2, [1])
    assert expected in refused[1]


def test_export_leaves_out_and_names_an_unreadable_user(storage, flat_folders, tmp_path):
    for name in ("Ada", "Grace"):
        storage.users.register(name, f"{name}@example.org", "")
    record = flat_folders[0] / "users/1.json"
    record.unlink()
    record.mkdir()
    path, reported = tmp_path / "users.jsonl", []
    assert export_users(storage, str(path), "command", False, print, reported.append) == 1
    assert len(reported) == 1 and "users/1.json" in reported[0]
    assert json.loads(path.read_text())["name"] == "Grace"
