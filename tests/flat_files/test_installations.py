"""Installations that each released version has made: they open, and nothing in them is lost.

installations/<version>.tar.gz has the folders of an installation with something of everything, a
backup of it, and facts.json with the secrets that are not in the records.
"""

import json
import os
import tarfile
from pathlib import Path

import pytest
from test_command import Installation

from commands import upgrade
from identity.access.passwords import verify_password
from model import kinds
from model.errors import InviteSpent, NoSuchUser
from model.records import ADMINISTRATOR, sha256
from storage import Storage, open_storage
from storage.flat_files.layout import LAYOUT_VERSION
from storage.whole import archive

MADE = sorted((Path(__file__).parent.parent / "installations").glob("*.tar.gz"))
ADA, BOB, CLEO, GONE, EMILE = 1, 2, 3, 4, 9  # ids; Cleo is suspended, and Gone is deleted


@pytest.fixture(params=MADE, ids=lambda path: path.name.removesuffix(".tar.gz"))
def here(request, tmp_path) -> Path:
    """The folder with `instance`, `pfp`, `facts.json` and `backup.tar.gz`."""
    with tarfile.open(request.param) as made:
        made.extraction_filter = lambda member, _: member  # links to other folders, too
        made.extractall(tmp_path)
    for path in tmp_path.rglob("*"):
        os.chown(path, os.getuid(), os.getgid(), follow_symlinks=False)
    return tmp_path


@pytest.fixture
def facts(here) -> dict:
    return json.loads((here / "facts.json").read_text())


def check_records(store: Storage, facts: dict) -> None:
    users = {each: store.users.read(each) for each in store.users.ids()}
    assert [user.name for user in users.values()] == ["Ada", "Bobby", "Cleo", "Émile"]
    assert users[ADA].mod_level == ADMINISTRATOR
    assert [each.id for each in store.users.administrators()] == [ADA]
    assert users[CLEO].suspension.reason == "Spam"
    assert users[BOB].grants[facts["game"]].scope == ["userinfo", "email"]
    assert verify_password(users[BOB].password_hash, facts["password"])
    for user in users.values():
        found = [store.users.find_by_login(each) for each in (user.name, user.email)]
        assert found == [user, user]
        assert store.pictures.read("large", user.picture_file)
    (game,) = store.clients.of_owner(BOB)
    assert store.clients.games(listed=True) == [game]
    assert game.secret_sha256 == sha256(facts["secret"])
    assert [each.id for each in store.clients.of_owner(None)] == [facts["public"]]
    assert [line["act"] for line in store.audit.about({CLEO})] == ["user suspend"]
    assert store.handles.find_of(GONE) == facts.get("handle")  # 1.0.0 had none
    for kind in kinds.KINDS:
        if kind.name in facts.get("kinds", []):
            assert len(store.records(kind).ids()) == 1, kind.name
    with pytest.raises(InviteSpent):
        store.users.register("New", "new@example.org", "", invite=facts["used_invite"])


def test_an_installation_of_each_version_opens_whole(here, facts, unsynced):
    store = open_storage(str(here / "instance"), str(here / "pfp"))
    assert list(store.verify()) == []
    check_records(store, facts)
    assert store.users.read(BOB).sessions[0].browser == "Firefox on Linux"
    assert len(store.keys.current()) == 2
    new = store.users.register("New", "new@example.org", "", invite=facts["invite"])
    assert new.id == EMILE + 1
    assert list(store.verify()) == []


def state_of(folder: Path) -> dict[str, tuple]:
    """Return the times, the size and the mode of everything in a folder."""
    found = {str(path.relative_to(folder)): path.lstat() for path in folder.rglob("*")}
    return {path: (s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_mode) for path, s in found.items()}


def test_upgrade_check_foretells_the_start_and_changes_nothing(here, unsynced, monkeypatch):
    installation, data = Installation(here), here / "instance"
    places = {"IDENTITY_DATA_DIR": str(data), "IDENTITY_PICTURE_DIR": str(here / "pfp")}
    folders = [data, *filter(Path.is_dir, data.rglob("*"))]
    monkeypatch.setattr(upgrade, "COPIES", {})
    command = "upgrade-check", "--nginx", "none", "--unit", "none"
    for path in folders:
        path.chmod(0o500)
    before = state_of(here)
    told = installation.record(*command, **places)
    assert installation.run(*command, **places).exit_code == 0
    assert state_of(here) == before
    for path in folders:
        path.chmod(0o700)
    open_storage(*places.values()).close()
    after = state_of(here)
    added, removed = after.keys() - before.keys(), before.keys() - after.keys()
    assert {f"instance/{each}" for each in (*told["keys"], *told["kinds"])} <= added
    assert {f"instance/{each}" for each in told["removed"]} == {
        each for each in removed if each.count("/") == 1
    }
    assert told["keeps_way_back"] == (removed == set())
    again = installation.record(*command, **places)
    assert (again["keys"], again["kinds"], again["removed"]) == ({}, [], [])
    assert again["keeps_way_back"] and again["layout"] == LAYOUT_VERSION


def test_a_client_is_stored_as_each_version_did(here, unsynced):
    """That version can still read it, and later ones write no field that is not set."""
    store = open_storage(str(here / "instance"), str(here / "pfp"))
    for client_id in store.clients.ids():
        path = here / f"instance/clients/{client_id}.json"
        contents = [path.read_bytes()]
        for _ in range(2):
            with store.clients.edit(client_id) as client:
                client.no_email = not client.no_email
            contents.append(path.read_bytes())
        assert contents[0] == contents[2] != contents[1]


def test_a_backup_of_each_version_is_restored(here, facts, backend, tmp_path, unsynced):
    restored = backend.open(str(tmp_path / "restored"), str(tmp_path / "restored pictures"))
    assert archive.restore(restored, str(here / "backup.tar.gz"), "command") == 4
    check_records(restored, facts)
    with pytest.raises(NoSuchUser):
        restored.users.read(GONE)
    assert list(restored.verify()) == []
