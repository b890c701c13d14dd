"""`storage.copying` from folders to folders, which copies every byte of every file that lasts."""

import shutil
from pathlib import Path

import pytest
from archives import Site
from cached_pictures import cache_pictures
from copying import BOB, fill

from storage.copying import copy
from storage.errors import BadInstallation, InviteSpent
from storage.records import sha256

EXPIRING = ("data/codes/", "data/attempts/")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """The folder of an installation that has something of everything."""
    site = Site(tmp_path_factory.mktemp("prepared") / "site")
    fill(site.open())
    return site.folder


@pytest.fixture
def site(tmp_path, prepared, unsynced, monkeypatch) -> Site:
    """The installation to copy."""
    cache_pictures(monkeypatch)
    shutil.copytree(prepared, tmp_path / "site", symlinks=True)
    return Site(tmp_path / "site")


@pytest.fixture
def empty(tmp_path, unsynced) -> Site:
    """An installation whose folders do not exist yet."""
    return Site(tmp_path / "empty")


def lasting_files(site: Site) -> dict[str, bytes]:
    """Return the content of each file, without those that expire."""
    return {path: each for path, each in site.files().items() if not path.startswith(EXPIRING)}


def test_copy_is_the_same_to_the_byte_and_changes_nothing_else(site, empty):
    before = site.files()
    assert copy(site.open(), empty.open()) == 3
    assert site.files() == before
    assert lasting_files(empty) == lasting_files(site)
    assert empty.problems() == []


def test_used_invitation_that_could_not_be_removed_stays_used(site, empty):
    store = site.open()
    used = store.invites.issue(1)
    record = site.data / f"invites/{sha256(used)}.json"
    content = record.read_bytes()
    store.users.register("Eve", "eve@example.org", "", invite=used)
    record.write_bytes(content)
    target = empty.open()
    copy(store, target)
    for each in (store, target):
        assert not each.invites.find_unused(used)
        with pytest.raises(InviteSpent):
            each.users.register("Zoe", "zoe@example.org", "", invite=used)


@pytest.mark.parametrize("damaged", [f"users/{BOB}.json", "invites/*.json", "clients/*.json"])
def test_copy_of_what_cannot_be_read_names_it_and_leaves_nothing(site, empty, damaged):
    [path] = site.data.glob(damaged)
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    target, reported = empty.open(), []
    before = empty.files()
    with pytest.raises(BadInstallation, match="nothing is copied"):
        copy(site.open(), target, report=reported.append)
    assert [path.stem in each for each in reported] == [True]
    assert empty.files() == before
    path.write_bytes(content)
    assert copy(site.open(), target) == 3
