"""Warnings about folders: their owner, permissions, disk and age."""

import os
import re
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from test_command import Installation

from commands.advice import check_environment
from identity.settings import read_settings
from storage import open_storage
from storage.flat_files.advice import MIN_FREE_FILES, MIN_FREE_SPACE, check_folders
from storage.maintenance import Advice
from storage.records import CLOCK_TOLERANCE

LOOPBACK = ("127.0.0.1", 8000)


@pytest.fixture
def advise(environment, tmp_path) -> Callable[..., list[Advice]]:
    """A function that returns the advice on these settings, with the folders of `storage`."""
    folders = {"DATA_DIR": str(tmp_path / "instance"), "PICTURE_DIR": str(tmp_path / "pfp")}

    def advise(bind: tuple[str, int] = LOOPBACK, **settings: str) -> list[Advice]:
        return check_environment(read_settings(folders | settings), bind)

    return advise


@pytest.mark.parametrize(("name", "mode"), [("", 0o700), ("secret_key", 0o600)])
@pytest.mark.parametrize("extra_mode", [0o040, 0o004, 0o055])
def test_permissions_for_others(advise, storage, tmp_path, name, mode, extra_mode):
    path = tmp_path / "instance" / name
    path.chmod(mode | extra_mode)
    [advice] = advise()
    assert str(path) in advice.problem
    command, fixed_mode, fixed_path = shlex.split(advice.fix)
    assert command == "chmod"
    Path(fixed_path).chmod(int(fixed_mode, 8))
    assert advise() == []


def test_folder_of_another_user(advise, storage, tmp_path, monkeypatch):
    """The server cannot read records that root created."""
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 4242)
    records, pictures = advise()
    assert f"{tmp_path}/instance belongs to " in records.problem
    assert f"this runs as {owner + 4242}" in records.problem
    assert "sudo -u " in records.fix
    assert f"{tmp_path}/pfp belongs to " in pictures.problem


@pytest.fixture
def own_folder():
    """A folder of an unprivileged user; a test as root runs as that user."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(4242)
    try:
        with tempfile.TemporaryDirectory(prefix="to paste ") as folder:
            yield folder
            os.chmod(folder, 0o700)
    finally:
        if was_root:
            os.seteuid(0)


@pytest.mark.parametrize("below", ["", "/instance", "/new/instance"])
def test_own_folder_without_write_permission(environment, own_folder, below):
    folders = own_folder + below, f"{own_folder}/pfp"
    assert list(check_folders(*folders)) == []
    os.chmod(own_folder, 0o500)
    records, pictures = check_folders(*folders)
    assert records == pictures
    assert records.problem.endswith(f" cannot write in {own_folder}")
    assert records.fix == f"chmod u+rwx {shlex.quote(own_folder)}"


def test_part_without_write_permission_is_reported_once_a_setting(environment, own_folder):
    folders = f"{own_folder}/instance", f"{own_folder}/pfp"
    storage = open_storage(*folders)
    parts = storage.layout.users, storage.layout.path("codes"), storage.layout.picture_folders()[2]
    for part in parts:
        os.chmod(part, 0o500)
    records, pictures = check_folders(*folders)
    for advice, part in ((records, parts[0]), (pictures, parts[2])):
        assert advice.problem.endswith(f" cannot write in {part}")
        assert advice.fix == f"chmod u+rwx {shlex.quote(part)}"


def test_folder_that_only_root_can_create(environment, own_folder):
    [advice] = check_folders("/no-such/instance", own_folder)
    assert advice.problem.endswith(" cannot write in /")
    assert re.fullmatch(r"install -d -o \S+ /no-such/instance, as root", advice.fix)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can use another user id")
def test_folder_below_an_inaccessible_one(environment, tmp_path):
    tmp_path.chmod(0o700)
    os.seteuid(4242)
    try:
        records, _ = check_folders(f"{tmp_path}/instance", f"{tmp_path}/pfp")
    finally:
        os.seteuid(0)
    assert "4242 cannot write in /" in records.problem
    assert records.fix == "set IDENTITY_DATA_DIR to another folder"


@pytest.mark.parametrize("below", ["", "/instance"])
def test_file_instead_of_a_folder(advise, tmp_path, below):
    file = tmp_path / "file"
    file.touch(0o644)
    assert advise(DATA_DIR=f"{file}{below}") == [
        Advice(f"{file} is not a folder", "set IDENTITY_DATA_DIR to a folder")
    ]


@pytest.mark.parametrize(
    ("blocks", "files", "free_files", "expected"),
    [
        (MIN_FREE_SPACE // 4096 - 1, 10**6, MIN_FREE_FILES, "only 199 MiB are free"),
        (MIN_FREE_SPACE // 4096, 10**6, MIN_FREE_FILES - 1, "only 9999 more files"),
        (MIN_FREE_SPACE // 4096, 10**6, MIN_FREE_FILES, None),
        (MIN_FREE_SPACE // 4096, 0, 0, None),  # a file system without a limit
    ],
)
def test_low_disk_space(advise, storage, monkeypatch, blocks, files, free_files, expected):
    size = os.statvfs_result(
        (4096, 4096, 10**9, blocks, blocks, files, free_files, free_files, 0, 255)
    )
    monkeypatch.setattr(os, "statvfs", lambda folder: size)
    problems = [advice.problem for advice in advise()]
    assert len(problems) == (expected is not None)  # once: both folders are on one disk
    assert all(expected in problem for problem in problems)


def test_clock_before_the_newest_record(advise, storage, clock):
    storage.users.register("Ada", "ada@example.org", "")
    assert advise() == []
    clock.shift(-CLOCK_TOLERANCE - 30)
    advice = advise()[-1]  # the first may be about the date of the code, which may be as new
    assert "before the newest record was saved" in advice.problem
    assert "timedatectl" in advice.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a folder")
@pytest.mark.parametrize("arguments", [["user", "list"], ["invite"], ["serve"]])
def test_command_refuses_root_on_another_users_folder(tmp_path, arguments):
    installation = Installation(tmp_path)
    installation.run("user", "list")  # creates the folders
    os.chown(installation.data, 4242, 4242)
    refusal = installation.refusal(*arguments)
    assert "belongs to 4242" in refusal
    assert "sudo -u 4242" in refusal
