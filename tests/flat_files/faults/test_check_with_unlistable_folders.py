"""`check` with a folder that cannot be listed: it reports the folder and continues."""

import json
from collections.abc import Iterator

import pytest
from injection import TracedProgram
from needs import STRACE
from operations import Installation, prepare

from storage.flat_files.layout import Layout
from storage.records import PICTURE_SIZES

pytestmark = [pytest.mark.faults, STRACE]

EMMY = 3  # the id of a deleted user
LAYOUT = Layout("/instance", "/pfp")
FOLDERS = ["instance", *(each.lstrip("/") for each in LAYOUT.data_folders()), "pfp"]
FOLDERS += [f"pfp/{size}" for size in PICTURE_SIZES]


@pytest.fixture(scope="module")
def program() -> Iterator[TracedProgram]:
    with TracedProgram("command_operations.py") as program:
        yield program


@pytest.fixture
def installation(tmp_path) -> Installation:
    """An installation with Ada and Bob, and Emmy deleted."""
    installation = Installation(tmp_path)
    storage = installation.open()
    prepare(storage)
    storage.users.delete(storage.users.register("Emmy", "emmy@example.org", "").id)
    storage.audit.write("user delete", "command", user=EMMY)
    return installation


@pytest.fixture
def check_without(program, installation):
    """A function that runs `check` with an unlistable folder; returns the problem of each file."""

    def check_without(folder: str, *options: str) -> dict[str, str]:
        top = installation.data.parent
        arguments = ["check", "--json", *options]
        log, injected = top / "log", "getdents64:error=EIO"
        assert program.run(arguments, installation, log, injected, at=top / folder) == 1
        found = json.loads((top / "instance.printed").read_text())
        return {each["file"].removeprefix(f"{top}/"): each["problem"] for each in found}

    return check_without


@pytest.mark.parametrize("folder", FOLDERS)
def test_unlistable_folder_is_reported_and_hides_no_other_problem(
    installation, check_without, folder
):
    (installation.data / "audit.log").chmod(0o644)
    found = check_without(folder)
    assert found.pop("instance/audit.log") == "has the mode 0644 and not 0600"
    assert found == {folder: "the disk refused: Input/output error"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_of_unreadable_users_are_not_removed(installation, check_without, folder):
    before = {path: path.lstat().st_ino for path in installation.files()}
    assert [*check_without(folder, "--repair")] == [folder]
    assert {path: path.lstat().st_ino for path in installation.files()} == before


@pytest.mark.parametrize("folder", ["instance/users", "instance/deleted"])
def test_no_id_is_reused_if_the_used_ids_cannot_be_read(installation, check_without, folder):
    (installation.data / "next_user_id").unlink()
    check_without(folder, "--repair")
    assert not (installation.data / "next_user_id").exists()
    check_without("instance/invites", "--repair")
    assert (installation.data / "next_user_id").read_text() == f"{EMMY + 1}\n"
