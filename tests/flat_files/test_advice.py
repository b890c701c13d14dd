"""`identity-server settings` and `serve` warn about an installation; `settings` prints the fix."""

import os
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from test_command import Installation

from identity.site.advice import check_environment
from identity.site.settings import read_settings
from model.errors import StorageFailed
from model.records import CLOCK_TOLERANCE
from storage import open_storage
from storage.flat_files.advice import MIN_FREE_FILES, MIN_FREE_SPACE, check_folders
from storage.maintenance import Advice

LOOPBACK = ("127.0.0.1", 8000)
ALL = ("0.0.0.0", 8000)  # interfaces
PUBLIC = {"BASE_URL": "https://id.example.org"}
INCONSISTENT = {"IDENTITY_BASE_URL": "http://id.example.org"}
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can use another user id")


@pytest.fixture
def advise(environment, folders) -> Callable[..., list[Advice]]:
    """A function that returns the advice on these settings, with the folders of `storage`."""
    here = {"DATA_DIR": folders[0], "PICTURE_DIR": folders[1]}

    def advise(bind: tuple[str, int] = LOOPBACK, **settings: str) -> list[Advice]:
        return check_environment(read_settings(here | settings), bind)

    return advise


# -- addresses ------------------------------------------------------------------------------------


def test_consistent_settings_get_no_advice(advise, open_installation, subtests):
    assert advise() == []  # without folders
    open_installation()
    for bind, settings in (
        *((LOOPBACK, {}), (LOOPBACK, PUBLIC), (LOOPBACK, {"SIGN_UP": "open"})),
        (("localhost", 8000), {"BASE_URL": "http://localhost:8000"}),
        (("[::1]", 8000), {"BASE_URL": "http://[::1]:8000"}),
        (("[::1]", 8000), PUBLIC | {"SIGN_UP": "open"}),
        (("192.168.1.2", 80), {"BASE_URL": "http://192.168.1.2"}),
        (ALL, {"BASE_URL": "http://games.local:8000"}),
    ):
        with subtests.test(bind=bind, settings=settings):
            assert advise(bind, **settings) == []


def test_inconsistent_addresses_get_advice_with_a_fix(advise, subtests):
    http = ("0.0.0.0", 80)
    for bind, base_url, problem, fix in (
        (http, "http://id.example.org", "http on a public name", "IDENTITY_BASE_URL=https://id."),
        (http, "http://8.8.8.8", "http on a public name", "deploy/nginx.conf"),
        (ALL, "https://id.example.org", "can forge the address", "--bind 127.0.0.1:8000"),
        (LOOPBACK, "http://games.local", "only this machine reaches 127", "IDENTITY_PROXIES=1"),
        (ALL, "http://127.0.0.1:8000", "answers to 127.0.0.1 only", "--bind 127.0.0.1:8000"),
        (LOOPBACK, "http://localhost", "server listens at port 8000", "--bind 127.0.0.1:80,"),
        (ALL, "http://games.local:9000", "links lead to http://games.local:9000", "port 8000"),
    ):
        with subtests.test(bind=bind, base_url=base_url):
            [advice] = advise(bind, BASE_URL=base_url)
            assert problem in advice.problem
            assert fix in advice.fix
    [advice] = advise(ALL, BASE_URL="http://games.local:8000", SIGN_UP="open")
    assert "no proxy in front limits the rate of requests" in advice.problem
    assert "IDENTITY_SIGN_UP=invite" in advice.fix


def test_addresses_are_not_checked_in_a_container(advise, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert advise(ALL) == advise(ALL, **PUBLIC) == []


# -- folders, disk and clock ----------------------------------------------------------------------


def test_permissions_for_others_get_advice(advise, storage, data):
    modes = (0o700, 0o040), (0o700, 0o004), (0o700, 0o055), (0o600, 0o040), (0o600, 0o004)
    for mode, extra_mode in (*modes, (0o600, 0o055)):
        path = data if mode == 0o700 else data / "secret_key"
        path.chmod(mode | extra_mode)
        [advice] = advise()
        assert str(path) in advice.problem
        command, fixed_mode, fixed_path = shlex.split(advice.fix)
        assert command == "chmod"
        Path(fixed_path).chmod(int(fixed_mode, 8))
        assert advise() == []


def test_folder_of_another_user_gets_advice(advise, storage, data, pictures, monkeypatch):
    """The server cannot read records that root created."""
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 4242)
    for_data, for_pictures = advise()
    assert f"{data} belongs to " in for_data.problem
    assert f"this runs as {owner + 4242}" in for_data.problem
    assert "sudo -u " in for_data.fix
    assert f"{pictures} belongs to " in for_pictures.problem


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
def test_own_folder_without_write_permission_gets_advice(environment, own_folder, below):
    folders = own_folder + below, f"{own_folder}/pfp"
    assert list(check_folders(*folders)) == []
    os.chmod(own_folder, 0o500)
    for_data, for_pictures = check_folders(*folders)
    assert for_data == for_pictures
    assert for_data.problem.endswith(f" cannot write in {own_folder}")
    assert for_data.fix == f"chmod u+rwx {shlex.quote(own_folder)}"
    with pytest.raises(StorageFailed) as refused:
        open_storage(*folders)
    assert str(refused.value) == f"{for_data.problem}: {for_data.fix}"


def test_file_instead_of_a_folder_gets_advice(advise, tmp_path):
    file = tmp_path / "file"
    file.touch(0o644)
    for place in (file, file / "instance"):
        advice = Advice(f"{file} is not a folder", "set IDENTITY_DATA_DIR to a folder")
        assert advise(DATA_DIR=str(place)) == [advice]


def test_low_disk_space_gets_advice(advise, storage, monkeypatch, subtests):
    enough = MIN_FREE_SPACE // 4096
    for blocks, files, free_files, expected in (
        (enough - 1, 10**6, MIN_FREE_FILES, ["only 199 MiB are free"]),
        (enough, 10**6, MIN_FREE_FILES - 1, ["only 9999 more files"]),
        (enough, 10**6, MIN_FREE_FILES, []),
        (enough, 0, 0, []),  # a file system without a limit
    ):
        free = (blocks, blocks, files, free_files, free_files)
        size = os.statvfs_result((4096, 4096, 10**9, *free, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda folder, size=size: size)
        with subtests.test(expected):  # once: both folders are on one disk
            for advice, problem in zip(advise(), expected, strict=True):
                assert problem in advice.problem


def test_clock_before_the_newest_record_gets_advice(advise, storage, clock):
    storage.users.register("Ada", "ada@example.org", "")
    assert advise() == []
    clock.shift(-CLOCK_TOLERANCE - 30)
    advice = advise()[-1]  # the first may be about the date of the code, which may be as new
    assert "before the newest record was saved" in advice.problem
    assert "timedatectl" in advice.fix


# -- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def installation(tmp_path) -> Installation:
    return Installation(tmp_path)


def test_settings_prints_settings_then_warnings_with_fixes(installation):
    done = installation.run("settings", "--bind", "0.0.0.0:80", **INCONSISTENT)
    assert done.stderr == ""
    settings, _, problems = done.stdout.partition("\n\n")
    assert "IDENTITY_BASE_URL=http://id.example.org  (environment)" in settings
    assert "IDENTITY_SIGN_UP=invite  (default)" in settings
    assert problems.startswith("Warning: passwords and tokens travel unencrypted")
    assert "\n    Fix: put nginx " in problems


def test_serve_prints_warnings_and_starts(installation):
    done = installation.run("serve", "--bind", "127.0.0.1:0", **INCONSISTENT)
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["Warning", "Warning"]
    assert "http on a public name." in "".join(lines[:2])
    assert lines[2:] == ["How to fix it: identity-server settings"]
    assert "gunicorn" in installation.served


@only_root
@pytest.mark.parametrize("arguments", [["user", "list"], ["invite"], ["serve"]])
def test_command_refuses_root_on_another_users_folder(installation, arguments):
    installation.run("user", "list")  # creates the folders
    os.chown(installation.data, 4242, 4242)
    refusal = installation.refusal(*arguments)
    assert "belongs to 4242" in refusal
    assert "sudo -u 4242" in refusal


@only_root
@pytest.mark.parametrize("line", ["restore -", "import -", "import - --check"])
def test_root_fills_no_folder_that_does_not_exist(installation, line):
    """Nothing would say whose it is, and the server's user could not read it."""
    for missing, other, mode in (
        (installation.data, installation.pictures, 700),
        (installation.pictures, installation.data, 755),
    ):
        other.mkdir(exist_ok=True)
        missing.exists() and missing.rmdir()
        refusal = installation.refusal(*line.split())
        assert f"install -d -m {mode} -o USER {missing}" in refusal
        assert not missing.exists() and [*other.iterdir()] == []
    missing.mkdir()
    os.chown(missing, 4242, 4242)
    assert "belongs to 4242" in installation.refusal(*line.split())
    os.chown(missing, 0, 0)
    done = installation.run(*line.split(), status=line == "restore -")
    assert "does not exist" not in done.stderr


def test_unusable_data_folder_is_refused_in_one_line(installation):
    installation.data.write_text("not a folder")
    assert installation.refusal("user", "list")
    installation.data.unlink()
    installation.run("user", "list")
    (installation.data / "format").write_text("99\n")
    assert "layout 99" in installation.refusal("serve", "--bind", "127.0.0.1:0")
