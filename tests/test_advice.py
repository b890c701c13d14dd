"""`identity-server settings` and `serve` say what looks wrong, and `settings` how to mend it."""

import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_command import Installation

from commands.advice import (
    CLOCK_SLACK,
    FEW_FILES,
    LITTLE_ROOM,
    Advice,
    look_at_folders,
    look_for_problems,
)
from identity.settings import read_settings
from storage import Storage

HERE = ("127.0.0.1", 8000)
EVERYWHERE = ("0.0.0.0", 8000)
IN_PUBLIC = {"BASE_URL": "https://id.example.org"}


@pytest.fixture
def look(environment, tmp_path) -> Callable[..., list[Advice]]:
    """What looks wrong with these settings, in the folders of `storage`."""
    folders = {"DATA_DIR": str(tmp_path / "instance"), "PICTURE_DIR": str(tmp_path / "pfp")}

    def look(bind: tuple[str, int] = HERE, **settings: str) -> list[Advice]:
        return look_for_problems(read_settings(folders | settings), bind)

    return look


@pytest.mark.parametrize(
    ("bind", "settings"),
    [
        (HERE, {}),
        (("localhost", 8000), {"BASE_URL": "http://localhost:8000"}),
        (("[::1]", 8000), {"BASE_URL": "http://[::1]:8000"}),
        (HERE, IN_PUBLIC),
        (("[::1]", 8000), IN_PUBLIC | {"SIGN_UP": "open"}),
        (("192.168.1.2", 80), {"BASE_URL": "http://192.168.1.2"}),
        (("0.0.0.0", 8000), {"BASE_URL": "http://games.local:8000"}),
        (HERE, {"SIGN_UP": "open"}),
    ],
)
def test_nothing_looks_wrong_where_all_fits(look, storage: Storage, bind, settings):
    assert look(bind, **settings) == []


def test_nothing_looks_wrong_before_the_first_start(look):
    assert look() == []


@pytest.mark.parametrize(
    ("bind", "settings", "problem", "fix"),
    [
        (
            ("0.0.0.0", 80),
            {"BASE_URL": "http://id.example.org"},
            "http on a public name",
            "IDENTITY_BASE_URL=https://id.example.org",
        ),
        (
            ("0.0.0.0", 80),
            {"BASE_URL": "http://8.8.8.8"},
            "http on a public name",
            "deploy/nginx.conf",
        ),
        (
            EVERYWHERE,
            IN_PUBLIC,
            "whoever reaches 0.0.0.0:8000 past the proxy can forge the address",
            "--bind 127.0.0.1:8000",
        ),
        (
            HERE,
            {"BASE_URL": "http://games.local"},
            "only this machine reaches 127.0.0.1:8000",
            "IDENTITY_PROXIES=1",
        ),
        (
            EVERYWHERE,
            {"BASE_URL": "http://127.0.0.1:8000"},
            "the server answers to 127.0.0.1 only",
            "--bind 127.0.0.1:8000",
        ),
        (
            HERE,
            {"BASE_URL": "http://localhost"},
            "links lead to http://localhost, but the server listens at port 8000",
            "--bind 127.0.0.1:80,",
        ),
        (
            EVERYWHERE,
            {"BASE_URL": "http://games.local:9000"},
            "links lead to http://games.local:9000",
            "the port 8000",
        ),
        (
            EVERYWHERE,
            {"BASE_URL": "http://games.local:8000", "SIGN_UP": "open"},
            "nothing in front limits how often",
            "IDENTITY_SIGN_UP=invite",
        ),
    ],
)
def test_addresses_that_do_not_fit_are_told_with_the_fix(look, bind, settings, problem, fix):
    [advice] = look(bind, **settings)
    assert problem in advice.problem
    assert fix in advice.fix


def test_in_a_container_the_hosts_port_mapping_decides_who_gets_there(look, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert look(EVERYWHERE) == look(EVERYWHERE, **IN_PUBLIC) == []


@pytest.mark.parametrize(("name", "mode"), [("", 0o700), ("secret_key", 0o600)])
@pytest.mark.parametrize("too_much", [0o040, 0o004, 0o055])
def test_what_others_may_read_is_told_with_the_chmod(look, storage, name, mode, too_much):
    path = Path(storage.layout.data_dir, name)
    path.chmod(mode | too_much)
    [advice] = look()
    assert str(path) in advice.problem
    command, fixed_mode, fixed_path = shlex.split(advice.fix)
    assert command == "chmod"
    Path(fixed_path).chmod(int(fixed_mode, 8))
    assert look() == []


def test_a_folder_of_somebody_else_is_told_with_whom_to_be(look, storage, monkeypatch):
    """Records that root made cannot be read by the server; nor can it read root's own."""
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 4242)
    records, pictures = look()
    assert f"{storage.layout.data_dir} belongs to " in records.problem
    assert f"this runs as {owner + 4242}" in records.problem
    assert "sudo -u " in records.fix
    assert f"{storage.layout.picture_dir} belongs to " in pictures.problem


@pytest.fixture
def own_folder():
    """A folder of somebody whom modes hold: root is one of them meanwhile."""
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
def test_a_folder_of_ones_own_that_cannot_be_written_is_told_with_the_chmod(
    environment, own_folder, below
):
    settings = {"DATA_DIR": own_folder + below, "PICTURE_DIR": f"{own_folder}/pfp"}
    assert list(look_at_folders(read_settings(settings))) == []
    os.chmod(own_folder, 0o500)
    records, pictures = look_at_folders(read_settings(settings))
    assert records == pictures
    assert records.problem.endswith(f" cannot write in {own_folder}")
    assert records.fix == f"chmod u+rwx {shlex.quote(own_folder)}"


def test_a_folder_that_cannot_be_made_is_told_with_how_root_makes_it(environment, own_folder):
    settings = {"DATA_DIR": "/no-such/instance", "PICTURE_DIR": own_folder}
    [advice] = look_at_folders(read_settings(settings))
    assert advice.problem.endswith(" cannot write in /")
    assert re.fullmatch(r"install -d -o \S+ /no-such/instance, as root", advice.fix)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of somebody else")
def test_a_place_that_is_closed_to_who_runs_this_is_told(environment, tmp_path):
    tmp_path.chmod(0o700)
    settings = {"DATA_DIR": f"{tmp_path}/instance", "PICTURE_DIR": f"{tmp_path}/pfp"}
    os.seteuid(4242)
    try:
        records, _ = look_at_folders(read_settings(settings))
    finally:
        os.seteuid(0)
    assert "4242 cannot write in /" in records.problem
    assert records.fix == "set IDENTITY_DATA_DIR to a folder elsewhere"


@pytest.mark.parametrize("below", ["", "/instance"])
def test_a_file_in_the_place_of_a_folder_is_told_and_keeps_its_mode(look, tmp_path, below):
    file = tmp_path / "file"
    file.touch(0o644)
    assert look(DATA_DIR=f"{file}{below}") == [
        Advice(f"{file} is no folder", "set IDENTITY_DATA_DIR to one")
    ]


@pytest.mark.parametrize(
    ("blocks", "files", "free_files", "told"),
    [
        (LITTLE_ROOM // 4096 - 1, 10**6, FEW_FILES, "only 199 MiB are free"),
        (LITTLE_ROOM // 4096, 10**6, FEW_FILES - 1, "only 9999 more files"),
        (LITTLE_ROOM // 4096, 10**6, FEW_FILES, None),
        (LITTLE_ROOM // 4096, 0, 0, None),  # a file system that sets no limit
    ],
)
def test_little_room_is_told(look, storage, monkeypatch, blocks, files, free_files, told):
    size = os.statvfs_result(
        (4096, 4096, 10**9, blocks, blocks, files, free_files, free_files, 0, 255)
    )
    monkeypatch.setattr(os, "statvfs", lambda folder: size)
    problems = [advice.problem for advice in look()]
    assert len(problems) == (told is not None)  # once, though two folders are on the disk
    assert all(told in problem for problem in problems)


def test_a_clock_that_was_set_back_behind_the_newest_record_is_told(look, storage, clock):
    storage.add_user("Ada", "ada@example.org", "")
    assert look() == []
    clock.ahead = -CLOCK_SLACK - 30
    [advice] = look()
    assert "before the newest record was saved" in advice.problem
    assert "timedatectl" in advice.fix


def test_a_clock_from_before_the_program_or_long_after_is_told(look, clock):
    for years in (-30, 30):
        clock.ahead = years * 365 * 86_400
        [advice] = look()
        assert time.strftime("%Y", time.gmtime(time.time())) in advice.problem
        assert "hard to believe" in advice.problem


# -- the commands ---------------------------------------------------------------------------------


MISTAKEN = {"IDENTITY_BASE_URL": "http://id.example.org"}


@pytest.fixture
def installation(tmp_path) -> Installation:
    """The command, called by an administrator."""
    return Installation(tmp_path)


def test_settings_prints_each_setting_and_then_what_looks_wrong(installation):
    done = installation.run("settings", "--bind", "0.0.0.0:80", **MISTAKEN)
    assert done.stderr == ""
    settings, _, problems = done.stdout.partition("\n\n")
    assert "IDENTITY_BASE_URL=http://id.example.org  (environment)" in settings
    assert "IDENTITY_SIGN_UP=invite  (default)" in settings
    assert problems.startswith("Warning: passwords and tokens travel readable")
    assert "\n    Fix: put nginx " in problems


def test_without_a_base_url_settings_names_the_address_that_serve_would_bind(installation):
    printed = installation.output("settings", "--bind", "[::1]:8042")
    assert "IDENTITY_BASE_URL=http://[::1]:8042  (default)" in printed
    assert "wrong" not in printed


def test_serve_says_the_same_in_a_line_each_and_serves(installation):
    done = installation.run("serve", "--bind", "127.0.0.1:0", **MISTAKEN)
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["Warning", "Warning"]
    assert "http on a public name." in "".join(lines[:2])
    assert lines[2:] == ["What to do about it: identity-server settings"]
    assert "gunicorn" in installation.served


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("arguments", [["user", "list"], ["invite"], ["serve"]])
def test_root_makes_no_records_among_those_of_the_servers_own_user(installation, arguments):
    installation.run("user", "list")  # makes the folders
    os.chown(installation.data, 4242, 4242)
    refusal = installation.refusal(*arguments)
    assert "belongs to 4242" in refusal
    assert "sudo -u 4242" in refusal
