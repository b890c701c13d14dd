"""`check` where the disk does not tell what is in a folder: it names that one, and goes on."""

import json
import os
import shutil

import pytest
from operations import Installation, prepare
from test_archive_faults import command_under

from storage import PICTURE_SIZES
from storage.flat_files import LAYOUT

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("strace"), reason="root and strace"),
]

EMMY = 3  # her id; she was deleted
FOLDERS = ["instance", *(f"instance/{each}" for each in LAYOUT), "pfp"]
FOLDERS += [f"pfp/{size}" for size in PICTURE_SIZES]


@pytest.fixture
def there(tmp_path) -> Installation:
    """An installation with Ada and Bob, and without Emmy, who was deleted."""
    installation = Installation(tmp_path)
    storage = installation.open()
    prepare(storage)
    storage.delete_user(storage.add_user("Emmy", "emmy@example.org", "").id)
    return installation


def check_without(there: Installation, folder: str, *options: str) -> dict[str, str]:
    """What is wrong with each file, where no list of this folder can be had."""
    refused = ["-e", "inject=getdents64:error=EIO", f"-P{there.data.parent / folder}"]
    found = json.loads(command_under(there, refused, "check", "--json", *options).stdout)
    top = f"{there.data.parent}/"
    return {each["file"].removeprefix(top): each["problem"] for each in found}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_that_cannot_be_listed_is_named_and_hides_no_other_problem(there, folder):
    (there.data / "audit.log").chmod(0o644)
    found = check_without(there, folder)
    assert found.pop("instance/audit.log") == "has the mode 0644 and not 0600"
    assert found == {folder: "the disk refused: Input/output error"}


def test_a_window_of_codes_that_cannot_be_listed_is_named(there):
    window = next((there.data / "codes").iterdir())
    assert [*check_without(there, f"instance/codes/{window.name}")] == [
        f"instance/codes/{window.name}"
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_of_players_who_cannot_be_seen_is_removed(there, folder):
    before = {path: path.lstat().st_ino for path in there.files()}
    assert [*check_without(there, folder, "--repair")] == [folder]
    assert {path: path.lstat().st_ino for path in there.files()} == before


@pytest.mark.parametrize("folder", ["instance/users", "instance/deleted"])
def test_no_id_is_given_again_where_those_given_cannot_be_seen(there, folder):
    (there.data / "next_user_id").unlink()
    check_without(there, folder, "--repair")
    assert not (there.data / "next_user_id").exists()
    check_without(there, "instance/invites", "--repair")
    assert (there.data / "next_user_id").read_text() == f"{EMMY + 1}\n"
