"""Installations that earlier versions made: they open, and nothing in them is lost.

installations/layout-1.tar.gz was made by version 717a893: players, clients, an import, acts of
moderators, a consent, a code, an invitation, counted attempts.
"""

import json
import os
import tarfile
from pathlib import Path

import pytest
from conftest import Browser

from storage import DamagedRecord, Storage, Suspension, open_storage
from storage.flat_files.check import check
from storage.flat_files.index import origin_key

ARCHIVE = Path(__file__).parent.parent / "installations/layout-1.tar.gz"


@pytest.fixture
def here(tmp_path) -> Path:
    """The folder with `instance`, `pfp` and `facts.json`, as version 717a893 left them."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = lambda member, _: member  # links to other folders, too
        archive.extractall(tmp_path)
    for path in tmp_path.rglob("*"):
        os.chown(path, os.getuid(), os.getgid(), follow_symlinks=False)
    return tmp_path


@pytest.fixture
def facts(here) -> dict:
    """The secrets that are not in the records: password, invitation, client secrets."""
    return json.loads((here / "facts.json").read_text())


@pytest.fixture
def store(here, unsynced) -> Storage:
    """The installation, opened by this version."""
    return open_storage(str(here / "instance"), str(here / "pfp"))


def test_an_installation_of_layout_1_opens_whole(here, store, facts):
    assert [store.read_user(each).name for each in store.user_ids()] == [
        *("Ada", "Bobby", "Cleo", "Dora", "Émile 2")
    ]
    assert store.find_user("bob@example.org").grants
    assert store.read_user(3).suspension == Suspension(by=None, since=0)
    assert store.find_invite(facts["invite"])
    assert store.add_user("New", "new@example.org", "").id == 10
    assert list(check(str(here / "instance"), str(here / "pfp"))) == []
    assert (here / "instance/format").read_text() == "5\n"


def test_an_upgrade_indexes_existing_records(store):
    clients = {each: store.read_client(each) for each in store.client_ids()}
    by_name = {each.name: each for each in clients.values()}
    assert [each.name for each in store.administrators()] == ["Ada"]
    assert {each.name for each in store.clients_of(2)} == {"Space Game", "Unlisted"}
    assert [each.name for each in store.clients_of(None)] == ["Web App"]
    assert [each.name for each in store.games(True)] == ["Space Game"]
    assert [each.name for each in store.games(False)] == ["Unlisted"]
    log = list(store.read_audit())
    about_bob = [line for line in log if 2 in (line["by"], line.get("user"))]
    assert list(store.audit_of(2)) == about_bob != []
    game = by_name["Space Game"].id
    about_game = [line for line in log if line.get("client") == game]
    assert list(store.audit_of(game)) == about_game != []


@pytest.mark.parametrize("layout", [1, 2])
def test_an_upgrade_drops_hidden_characters_from_bios(here, unsynced, layout):
    (here / "instance/format").write_text(f"{layout}\n")
    record = here / "instance/users/2.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"bio": "a\u202eb\u200b"}))
    store = open_storage(str(here / "instance"), str(here / "pfp"))
    assert store.read_user(2).bio == "ab"
    assert record.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("layout", [2, 4])
def test_an_upgrade_frees_the_loopback_origins_of_games(here, store, layout):
    """Each belonged to one game."""
    client, _ = store.add_client("Chess", [], None, game_url="http://localhost:3000/")
    entry = here / "instance/index" / origin_key("http://localhost:3000") / client.id
    entry.parent.mkdir(mode=0o700)
    entry.touch(0o600)
    (here / "instance/format").write_text(f"{layout}\n")
    open_storage(str(here / "instance"), str(here / "pfp"))
    assert list(check(str(here / "instance"), str(here / "pfp"))) == []


def test_a_killed_upgrade_is_repeated(here, store):
    (here / "instance/format").write_text("1\n")
    (here / "instance/audit/2").write_text("half a line")
    (here / "instance/index/administrators/1").unlink()
    again = open_storage(str(here / "instance"), str(here / "pfp"))
    assert [each.name for each in again.administrators()] == ["Ada"]
    assert all(line["act"] for line in again.audit_of(2))


def test_an_upgrade_of_layout_2_reads_no_record(here, store):
    (here / "instance/format").write_text("2\n")
    (here / "instance/index/administrators/1").unlink()
    again = open_storage(str(here / "instance"), str(here / "pfp"))
    assert again.administrators() == []
    assert (here / "instance/format").read_text() == "5\n"


def test_records_of_an_older_layout_are_saved_as_new_ones(here, store):
    assert '"suspended": true' in (here / "instance/users/3.json").read_text()
    with store.edit_user(3) as user:
        user.bio = "New"
    record = json.loads((here / "instance/users/3.json").read_text())
    assert "suspended" not in record
    assert record["suspension"] == {"by": None, "since": 0, "reason": "", "until": None}
    assert store.read_user(3) == user


def test_an_upgrade_skips_damaged_records(here, unsynced):
    (here / "instance/users/1.json").write_text("{")
    store = open_storage(str(here / "instance"), str(here / "pfp"))
    with pytest.raises(DamagedRecord):
        store.read_user(1)
    assert store.administrators() == []
    assert store.clients_of(2)


def test_players_of_layout_1_sign_in_and_their_apps_work(here, make_app, facts):
    app = make_app(DATA_DIR=str(here / "instance"), PICTURE_DIR=str(here / "pfp"))
    for name in ("Ada", "bob@example.org", "Dora", "Émile 2"):
        browser = Browser(app, app.response_class)
        assert browser.sign_in(name, facts["password"]).status_code == 303
        assert browser.get("/account").status_code == 200
    store = app.extensions["storage"]
    (app_id,) = [each.id for each in store.clients_of(None)]
    anyone = Browser(app, app.response_class, use_cookies=False)
    form = {"grant_type": "authorization_code", "code": "x", "client_id": app_id}
    answer = anyone.post(
        "/api/oauth/token", data=form | {"client_secret": facts["secrets"][app_id]}
    )
    assert (answer.status_code, answer.json["message"].count("client")) == (400, 0)
