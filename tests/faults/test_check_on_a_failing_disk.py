"""`check` where the disk does not tell what is in a folder: it names that one, and goes on."""

import json
from collections.abc import Iterator

import pytest
from injection import Program
from needs import STRACE
from operations import Installation, prepare

from storage import PICTURE_SIZES
from storage.flat_files.layout import DATA_FOLDERS

pytestmark = [pytest.mark.faults, STRACE]

EMMY = 3  # her id; she was deleted
FOLDERS = ["instance", *(f"instance/{each}" for each in DATA_FOLDERS), "pfp"]
FOLDERS += [f"pfp/{size}" for size in PICTURE_SIZES]


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with Program("command_operations.py") as program:
        yield program


@pytest.fixture
def there(tmp_path) -> Installation:
    """An installation with Ada and Bob, and without Emmy, who was deleted."""
    installation = Installation(tmp_path)
    storage = installation.open()
    prepare(storage)
    storage.delete_user(storage.add_user("Emmy", "emmy@example.org", "").id)
    storage.write_audit("user delete", "command", user=EMMY)
    return installation


@pytest.fixture
def check_without(program, there):
    """Tells what is wrong with each file, where no list of this folder can be had."""

    def check_without(folder: str, *options: str) -> dict[str, str]:
        top = there.data.parent
        arguments = ["check", "--json", *options]
        log, injected = top / "log", "getdents64:error=EIO"
        assert program.run(arguments, there, log, injected, at=top / folder) == 1
        found = json.loads((top / "instance.printed").read_text())
        return {each["file"].removeprefix(f"{top}/"): each["problem"] for each in found}

    return check_without


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_unreadable_folder_is_reported_and_hides_no_other_problem(there, check_without, folder):
    (there.data / "audit.log").chmod(0o644)
    found = check_without(folder)
    assert found.pop("instance/audit.log") == "has the mode 0644 and not 0600"
    assert found == {folder: "the disk refused: Input/output error"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_of_unreadable_users_are_not_removed(there, check_without, folder):
    before = {path: path.lstat().st_ino for path in there.files()}
    assert [*check_without(folder, "--repair")] == [folder]
    assert {path: path.lstat().st_ino for path in there.files()} == before


@pytest.mark.parametrize("folder", ["instance/users", "instance/deleted"])
def test_no_id_is_reused_if_the_used_ids_cannot_be_read(there, check_without, folder):
    (there.data / "next_user_id").unlink()
    check_without(folder, "--repair")
    assert not (there.data / "next_user_id").exists()
    check_without("instance/invites", "--repair")
    assert (there.data / "next_user_id").read_text() == f"{EMMY + 1}\n"
