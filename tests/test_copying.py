"""`storage.copying`: a whole installation in other folders, and the command `copy`."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from archives import Site
from cached_pictures import cache_pictures, generate_picture
from test_command import Installation
from waiting import PATIENCE

from identity.settings import ROOT
from storage import BadInstallation, Grant, Session, Suspension, User, mask_url
from storage.copying import copy

ADA, BOB, CLEO, DORA = 1, 2, 3, 4  # ids; Cleo is deleted, and Dora has no picture
EXPIRING = ("data/codes/", "data/attempts/")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """The folder of an installation that has something of everything."""
    site = Site(tmp_path_factory.mktemp("prepared") / "site")
    store = site.open()
    used = store.issue_invite(1)
    store.add_user("Ada", "ada@example.org", "", invite=used)
    for name in ("Bob", "Cleo"):
        store.add_user(name, f"{name}@example.org", "")
    store.write_audit("user delete", ADA, user=CLEO)
    store.delete_user(CLEO)
    store.reserve_user_ids(DORA)
    store.add_users([User(DORA, "Dora", "dora@example.org", "")], {})
    client, _ = store.add_client("Chess", [], ADA, game_url="https://chess.example/", listed=True)
    store.write_audit("client listed", "command", client=client.id)
    store.save_picture(BOB, generate_picture(99))
    with store.edit_user(ADA) as ada:
        ada.sessions = [Session("adas session", 1, "Firefox on Linux")]
        ada.grants = {client.id: Grant("a grant", ["userinfo"], 2)}
    with store.edit_user(BOB) as bob:
        bob.suspension = Suspension(ADA, reason="Zoë 🙂")
    store.issue_invite(7)
    store.rotate_keys(drop_old=False)
    store.count_attempt("password", "ada", limit=10)
    store.reserve_user_ids(500)
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
    copied = empty.open()
    assert copied.keys() == site.open().keys()
    assert [each.id for each in copied.read_user(ADA).sessions] == ["adas session"]
    assert copied.add_user("New", "new@example.org", "").id == 501


def test_copy_reports_progress(site, empty):
    seen = []
    copy(site.open(), empty.open(), lambda *done: seen.append(done))
    assert seen == [(3, 3)]


@pytest.mark.parametrize("record", ["user", "client"])
def test_copy_into_an_installation_in_use_is_refused(site, empty, record):
    store = empty.open()
    if record == "user":
        store.add_user("Zoe", "zoe@example.org", "")
    else:
        store.add_client("Go", [], None)
    before = empty.files(), site.files()
    with pytest.raises(BadInstallation, match="has players or clients"):
        copy(site.open(), store)
    assert (empty.files(), site.files()) == before


def test_copy_of_an_installation_into_itself_is_refused(site):
    before = site.files()
    link = Site(site.folder.with_name("link"))
    link.folder.symlink_to(site.folder)
    with pytest.raises(BadInstallation, match="has players or clients"):
        copy(site.open(), link.open())
    assert site.files() == before


def test_copy_of_nothing_is_refused(tmp_path, empty):
    with pytest.raises(BadInstallation, match="no players and no clients"):
        copy(Site(tmp_path / "nothing").open(), empty.open())


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


@pytest.mark.live
def test_copy_after_a_killed_one_succeeds(site, empty):
    program = f"""
import os, signal
from pathlib import Path
from archives import Site
from storage.copying import copy
kill = lambda done, total: os.kill(os.getpid(), signal.SIGKILL)
copy(Site(Path({str(site.folder)!r})).open(), Site(Path({str(empty.folder)!r})).open(), kill)
"""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, timeout=PATIENCE)
    assert done.returncode == -signal.SIGKILL
    store, reported = empty.open(), []
    assert store.is_new()
    assert copy(site.open(), store, report=reported.append) == 3
    assert reported == ["an earlier restore or copy was interrupted: what it left is removed"]
    assert lasting_files(empty) == lasting_files(site)


# -- the command --------------------------------------------------------------------------------


@pytest.fixture
def installation(tmp_path) -> Installation:
    """The command on a new installation."""
    return Installation(tmp_path)


SECRET = "s3cret:/?#@"


def test_command_refuses_the_installation_itself(installation):
    installation.add_user("ada")
    assert "itself" in installation.refusal("copy", "--to", "files")
    url = f"postgresql://identity:{SECRET}@127.0.0.1:1/identity"
    refusal = installation.refusal("copy", "--to", url, IDENTITY_STORAGE=url)
    assert "itself" in refusal and "s3cret" not in refusal


@pytest.mark.parametrize("place", ["", "folder", "mysql://ada:s3cret@host/db", "files://s3cret"])
def test_command_refuses_a_place_that_is_no_url_without_showing_it(installation, place):
    done = installation.run("copy", "--to", place, status=2)
    assert "neither files nor a URL like postgresql://user@host/database" in done.stderr
    assert "s3cret" not in done.stderr


def test_command_does_not_show_the_password_of_a_database_that_is_away(installation):
    pytest.importorskip("psycopg")
    installation.add_user("ada")
    for url in (
        f"postgresql://identity:{SECRET}@127.0.0.1:1/identity",
        "postgresql://identity@127.0.0.1:1/identity?password=s3cret",
        "postgresql://identity:s3cret@127.0.0.1:1/identity?nonsense=s3cret",
    ):
        assert "s3cret" not in installation.refusal("copy", "--to", url)


def test_masked_url_has_no_password(subtests):
    for url, masked in {
        "files": "files",
        "postgresql://ada@host/db": "postgresql://ada@host/db",
        "postgresql://host:5432,other:5432/db": "postgresql://host:5432,other:5432/db",
        "postgresql://ada:x@host:5432/db?user=b": "postgresql://ada:***@host:5432/db?user=b",
        "postgresql://ada:x@y/z@host/db": "postgresql://ada:***@host/db",
        "postgres://:x@host": "postgres://:***@host",
        "postgresql://h/d?password=x#y&user=a": "postgresql://h/d?password=***&user=a",
        "postgresql://h/d?user=a&sslpassword=x": "postgresql://h/d?user=a&sslpassword=***",
    }.items():
        with subtests.test(url):
            assert mask_url(url) == masked
