"""The command's options for games: `commands.clients`."""

import json

import pytest
from click.testing import CliRunner
from conftest import all_clients

from commands.printing import describe_audit_line
from identity_admin import identity_server_command
from model.records import ADMINISTRATOR
from storage import Storage

GAME = "https://space.example/play"
BASE_URL = "https://id.example.org"


@pytest.fixture
def store(tmp_path, environment, unsynced, backend) -> Storage:
    """The storage of the command's installation."""
    folders = str(tmp_path / "data"), str(tmp_path / "pictures")
    environment.setenv("IDENTITY_DATA_DIR", folders[0])
    environment.setenv("IDENTITY_PICTURE_DIR", folders[1])
    environment.setenv("IDENTITY_BASE_URL", BASE_URL)
    environment.setenv("IDENTITY_STORAGE", backend.setting(folders[0]))
    store = backend.open(*folders)
    store.users.register("Ada", "ada@example.org", "")
    store.users.register("Hopper", "hopper@example.org", "", ADMINISTRATOR)
    return store


@pytest.fixture
def run(store):
    """A function that runs `client` with these arguments; returns the record or the error."""

    def run(*arguments: str, status: int = 0) -> dict | str:
        done = CliRunner().invoke(identity_server_command, ["client", *arguments, "--json"])
        assert (done.exit_code, done.stdout == "") == (status, status != 0), done.stderr
        error = done.stderr.splitlines()[-1:]
        return error[0].removeprefix("Error: ") if status else json.loads(done.stdout)

    return run


def test_game_needs_no_redirect_uri_and_a_players_is_unlisted(run, store):
    for owner, listed in (([], True), (["--owner", "Hopper"], True), (["--owner", "ada"], False)):
        options = ("--game-url", GAME, "--description", " Shoot the rocks. ", *owner)
        added = run("add", "Space", *options)
        assert (added["game_url"], added["description"]) == (GAME, "Shoot the rocks.")
        assert (added["redirect_uris"], added["listed"]) == ([], listed)
        store.clients.delete(added["client_id"])


def test_client_needs_a_redirect_uri_or_a_game(run, store):
    for options in ([], ["--game-url", ""]):
        problem = run("add", "Space", *options, status=2)
        assert problem == "Where is it? Give --redirect-uri, --game-url or both, or --device."
    assert all_clients(store) == []


def test_invalid_game_url_is_refused(run, store, subtests):
    taken = run("add", "Taken", "--game-url", GAME)["client_id"]
    other = run("add", "Other", "--redirect-uri", "https://other.example/")["client_id"]
    before = all_clients(store)
    for game_url, problem in (
        (f"{BASE_URL}/game", "game_url: Use another origin than this site's own."),
        ("ftp://space.example/", "game_url: Start with https:// or http://."),
        (f"{GAME}/mine", "game_url: Taken, registered by the administrators, is at this origin."),
    ):
        with subtests.test(game_url):
            assert run("add", "Space", "--game-url", game_url, status=1).startswith(problem)
            assert run("set", other, "--game-url", game_url, status=1).startswith(problem)
            assert all_clients(store) == before
    run("set", taken, "--game-url", "")
    assert store.clients.read(taken).game_url is None
    assert run("set", other, "--game-url", GAME)["game_url"] == GAME


def test_set_changes_the_given_fields_and_audits_listing(run, store):
    added = run("add", "Space", "--game-url", GAME, "--owner", "Ada")
    client_id = added["client_id"]
    del added["client_secret"]
    changes = ("--game-url", "https://new.example/", "--require-pkce", "--no-email")
    new = {"game_url": "https://new.example/", "require_pkce": True, "no_email": True}
    assert run("set", client_id, *changes) == added | new
    new |= {"require_pkce": False, "no_email": False}
    assert run("set", client_id, "--allow-no-pkce", "--allow-email") == added | new
    for option, listed in (("--listed", True), ("--listed", True), ("--unlisted", False)):
        new |= {"listed": listed, "declined": not listed}
        assert run("set", client_id, option) == added | new
    sentences = [describe_audit_line(line).partition("  ")[2] for line in store.audit.read()][1:]
    acts = ("listed", "unlisted")
    assert sentences == [f"the command: client {act}, client {client_id}" for act in acts]
