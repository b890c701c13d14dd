"""The files of a restore: their modes, and what a killed one leaves."""

import os
import stat
from pathlib import Path

import pytest
from archives import A_HASH, Site
from test_archive import run_until_killed

from storage.errors import BadInstallation


@pytest.fixture
def archive(tmp_path, unsynced, drawn_once) -> Path:
    """A backup of three players."""
    site = Site(tmp_path / "site")
    for name in ("Ada", "Bob", "Cleo"):
        site.open().users.register(name, f"{name.lower()}@example.org", A_HASH)
    site.backup(tmp_path / "backup.tar.gz")
    return tmp_path / "backup.tar.gz"


@pytest.fixture
def empty(tmp_path) -> Site:
    """An installation whose folders do not exist yet."""
    return Site(tmp_path / "empty")


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_restored_files_have_standard_modes_with_any_umask(archive, empty, umask):
    before = os.umask(umask)
    try:
        empty.restore(archive)
    finally:
        os.umask(before)
    assert empty.problems() == []  # `check` compares the modes
    assert stat.S_IMODE((empty.data / "users/1.json").stat().st_mode) == 0o600


@pytest.mark.live
def test_restore_after_a_killed_one_reports_it_and_succeeds(archive, empty, unsynced):
    run_until_killed(empty, f"restore(Path({str(archive)!r}), progress=kill)")
    store = empty.open()
    assert store.users.is_new()  # the killed restore added nothing
    reported = []
    assert empty.restore(archive, report=reported.append) == 3
    assert reported == ["an earlier restore or copy was interrupted: what it left is removed"]
    assert not (empty.data / ".restore").exists() and not (empty.pictures / ".restore").exists()
    assert empty.problems() == []


@pytest.mark.live
def test_start_after_a_killed_restore_is_a_first_start(archive, empty, unsynced):
    run_until_killed(empty, f"restore(Path({str(archive)!r}), progress=kill)")
    user = empty.open().users.register("Zoe", "zoe@example.org", "")
    with pytest.raises(BadInstallation, match="has players"):
        empty.restore(archive)
    assert empty.open().users.find_by_login("zoe") == user
