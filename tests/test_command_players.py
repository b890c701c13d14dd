"""The commands about players, invitations, flairs, the audit log, and games of clients."""

import json
import re
from pathlib import Path

import pytest
from conftest import all_clients
from faulty_storage import FlatFileFaults
from forms import edit
from test_command import CALLBACK, Installation

import commands
from model.kinds import PASSKEYS
from model.records import ADMINISTRATOR, Passkey, Session, Suspension, User
from storage import Storage

NEW_PASSWORD = "a wholly different phrase"
BASE_URL = {"IDENTITY_BASE_URL": "https://id.example.org"}


@pytest.fixture
def installation(tmp_path, backend) -> Installation:
    return Installation(tmp_path, backend)


@pytest.fixture
def faults(installation) -> FlatFileFaults:
    return installation.faults


@pytest.fixture
def store(installation, unsynced) -> Storage:
    return installation.open()


@pytest.fixture
def ada(store) -> User:
    """A player with a session and a flair."""
    user_id = store.users.register("Ada", "ada@example.org", "").id
    with store.users.edit(user_id) as user:
        user.flairs = ["none", "Old hand"]
        user.sessions = [Session("x", 1, "Firefox on Linux")]
    return user


@pytest.fixture
def browser(make_app, installation, store):
    folders = {"DATA_DIR": str(installation.data), "PICTURE_DIR": str(installation.pictures)}
    client = make_app(**folders).test_client()
    client.environ_base["HTTP_SEC_FETCH_SITE"] = "same-origin"
    return client


def audit_lines(store: Storage) -> list[dict]:
    lines = list(store.audit.read())
    assert all(line.pop("time") > 10**12 for line in lines)
    return lines


def test_invite_prints_links_that_create_one_account_each(installation, store, ada, browser):
    output = installation.output("invite", "--count", "2", "--days", "9", **BASE_URL)
    invites = re.findall(r"^https://id\.example\.org/sign-up\?invite=(\S+)$", output, re.MULTILINE)
    assert len(set(invites)) == len(output.splitlines()) == 2
    ids = store.invites.ids()
    line = {"act": "invite", "by": "command", "days": 9, "uses": 1}
    lines = sorted(audit_lines(store), key=lambda each: each["invite"])
    assert lines == [line | {"invite": each} for each in ids]
    assert not any(each in installation.faults.stored_text() for each in invites)
    for i, invite in enumerate(invites * 2):
        form = {"name": f"New {i}", "email": f"n{i}@example.org", "password": NEW_PASSWORD}
        answer = browser.post("/sign-up", data=form | {"invite": invite})
        assert answer.status_code == (303 if i < 2 else 403)
    assert len(store.users.ids()) == 3


def test_sign_in_link_sets_a_new_password(installation, store, ada, browser):
    link = installation.output("user", "sign-in-link", "ADA", **BASE_URL).strip()
    assert link.startswith("https://id.example.org/recover#")
    signed = link.partition("#")[2]
    assert signed not in installation.faults.stored_text()
    assert "For <bdi" in browser.post("/recover/password", data={"link": link}).text
    form = {"link": signed, "new_password": NEW_PASSWORD}
    assert browser.post("/recover/password", data=form).status_code == 303
    assert browser.post("/recover/password", data=form).status_code == 403
    assert store.users.read(ada.id).password_hash
    edit(store.users, ada.id, suspension=Suspension(2, 1))
    done = installation.run("user", "sign-in-link", "ada", "--json", **BASE_URL)
    assert json.loads(done.stdout)["id"] == ada.id
    assert "works after `user unsuspend`" in done.stderr


def test_user_set_with_a_refused_field_changes_nothing(installation, store, ada):
    """Each field is a change of its own, so all are checked before the first one."""
    bob = store.users.register("Bob", "bob@example.org", "")
    emails = (("--email", each) for each in ("nowhere", "a%b.example@c.example", bob.email))
    for option, value in (*emails, ("--bio", "\x1b")):
        message = installation.refusal("user", "set", "ada", "--name", "Lovelace", option, value)
        assert message.startswith(f"{option.removeprefix('--')}: ")
        assert store.users.read(ada.id) == ada
    assert audit_lines(store) == []


def test_player_needs_no_email_unless_the_site_requires_it(installation, store, ada):
    add = ("user", "add", "bob", "--password-stdin", "--json")
    refused = installation.run(*add, status=1, stdin=NEW_PASSWORD, IDENTITY_EMAIL="required")
    assert "Enter an email like ada@example.org." in refused.stderr
    assert store.users.find_by_login("bob") is None
    assert json.loads(installation.run(*add, stdin=NEW_PASSWORD).stdout)["email"] == ""
    installation.run("user", "set", "ada", "--email", "")
    assert store.users.read(ada.id).email == ""
    assert installation.output("user", "list").count("@") == 0


def test_act_prints_and_logs_what_is_done(installation, store, ada):
    """tests/test_accounts.py has what each act changes."""
    acts = (
        ("user sign-out ADA", "Ada is signed out everywhere."),
        ("user suspend ada", "Ada is suspended."),
        ("user unsuspend ada@example.org", "Ada is no longer suspended."),
        ("flair grant ada Champion", "Ada has the flair Champion."),
        ("flair revoke ada Champion", "Ada no longer has the flair Champion."),
        ("user delete ada --yes", "Ada is deleted."),
    )
    for line, printed in acts:
        done = installation.run(*line.split())
        assert (done.stdout, done.stderr) == (f"{printed}\n", "")
        act = " ".join(line.split()[:2])
        logged = audit_lines(store)[-1]
        assert (logged["act"], logged["by"], logged["user"]) == (act, "command", ada.id)
    assert store.users.ids() == []


def test_suspend_with_reason_and_days(installation, store, ada):
    def suspend(*options: str) -> Suspension:
        installation.output("user", "suspend", "ada", *options)
        return store.users.read(ada.id).suspension

    first = suspend("--reason", " Insults. ", "--days", "7")
    assert (first.by, first.reason) == ("command", "Insults.")
    assert first.until == first.since + 7 * 86_400_000
    shown = installation.record("user", "show", "ada")
    names = ("suspendedBy", "suspendedUntil", "suspensionReason")
    assert [shown[each] for each in names] == ["command", first.until, "Insults."]
    assert "suspendedUntil    20" in installation.output("user", "show", "ada")
    changed = suspend("--reason", "Threats.")
    assert (changed.reason, changed.until) == ("Threats.", first.until)
    installation.output("user", "unsuspend", "ada")
    assert suspend().until is None
    done = installation.run("user", "suspend", "ada", "--reason", "a\nb", status=1)
    assert done.stderr.startswith("Error: reason: ")
    installation.run("user", "suspend", "ada", "--days", "0", status=2)
    assert store.users.read(ada.id).suspension.until is None


def test_player_is_deleted_after_confirmation_only(installation, store, ada):
    for answer in ("n\n", ""):
        done = installation.run("user", "delete", "Ada", status=1, stdin=answer)
        assert "Delete Ada (id 1)?" in done.output and "is deleted" not in done.output
    assert (store.users.read(ada.id), audit_lines(store)) == (ada, [])
    assert "Ada is deleted." in installation.run("user", "delete", "Ada", stdin="y\n").output
    assert store.users.ids() == []


def test_lists_name_a_damaged_player_and_count_the_others(installation, store, ada, faults):
    bob = store.users.register("Bob", "bob@example.org", "")
    counts = [{"flair": "Old hand", "players": 1}, {"flair": "none", "players": 2}]
    assert installation.record("flair", "list") == counts
    lines = [line.rsplit(maxsplit=1) for line in installation.output("flair", "list").splitlines()]
    assert lines == [["flair", "players"], ["Old hand", "1"], ["none", "2"]]
    faults.damage_user(bob.id)
    for noun in ("flair", "user"):
        done = installation.run(noun, "list", "--json", status=1)
        printed = json.loads(done.stdout)
        counted = [counts[0], {"flair": "none", "players": 1}]
        assert printed == counted if noun == "flair" else [each["id"] for each in printed] == [1]
        assert f"{faults.user_place(bob.id)} is damaged" in done.stderr
        assert done.stderr.count("\n") == 1


def test_audit_prints_text_or_json(installation, store, ada):
    assert installation.output("audit") == ""
    assert installation.record("audit") == []
    store.audit.write("user suspend", by=2, user=1, address="192.0.2.7")
    store.audit.write("flair grant", by="command", user=1, flair="{Old} hand")
    first, second = installation.output("audit").splitlines()
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.fullmatch(rf"{time}  player 2: user suspend, user 1, address 192\.0\.2\.7", first)
    assert re.fullmatch(rf"{time}  the command: flair grant, user 1, flair {{Old}} hand", second)
    assert installation.record("audit") == list(store.audit.read())
    assert "/users/7" in installation.output("audit", "--help")


HOSTILE = "a\x1b[2J\x9b\x7f\u202e\u200bb\rc"
SHOWN = r"a\x1b[2J\x9b\x7f\u202e\u200bb\rc"


def test_control_characters_are_printed_as_escapes(installation, store, subtests):
    """Nothing that a record says moves the cursor, hides a line or turns the text around it.

    Text of people is printed as it is.
    """
    user = User(7, f"E{HOSTILE}", "eve@example.org", "", bio=HOSTILE, flairs=["none", HOSTILE])
    store.users.insert(user)
    store.audit.write(HOSTILE, by=HOSTILE, user=7, address=HOSTILE)
    client, _ = store.clients.register("Chess", [CALLBACK], 7)
    store.audit.write("flair grant", by=7, user=7, flair=HOSTILE)
    shows = [
        *("user list", "user show eve@example.org", "flair list", "audit", "client list"),
        *(f"client show {client.id}", "user suspend eve@example.org"),
        "flair grant eve@example.org x",
    ]
    for line in shows:
        with subtests.test(line):
            done = installation.run(*line.split())
            assert SHOWN in done.stdout
            assert re.sub(r"[\n\t]", "", done.output).isprintable()
    for noun in ("user", "client"):
        done = installation.run(noun, "show", HOSTILE, status=1)
        assert done.output.replace("\n", "").isprintable()
    assert len(installation.record("user", "list")[0]["bio"]) == len(HOSTILE)
    printed = installation.output("user", "show", user.email, "--json")
    assert json.loads(printed)["bio"] == HOSTILE
    assert printed.replace("\n", "").isprintable() and printed.isascii()
    text_of_people = ("Zoë", "👨\u200d👩 می\u200cخواهم")
    store.users.insert(User(8, "Zoë", "zoe@example.org", "", bio="\n\t".join(text_of_people)))
    shown = installation.output("user", "show", "zoe@example.org")
    assert all(each in shown for each in text_of_people)


def test_commands_print_through_one_function():
    """`printing.echo` escapes. `running` prints settings only, which the administrator makes."""
    for module in Path(commands.__file__).parent.glob("*.py"):
        if module.name not in ("printing.py", "running.py"):
            assert not re.search(r"click\.s?echo|\bprint\(", module.read_text()), module


@pytest.mark.parametrize("damage", ["", "{", "[" * 10**5, "null", "[1]"])
def test_audit_names_a_damaged_line_and_prints_the_others(installation, store, faults, damage):
    store.audit.write("export", by="command")
    faults.add_audit_line(damage)
    store.audit.write("backup", by="command")
    done = installation.run("audit", status=1)
    sentences = [line.partition("  ")[2] for line in done.stdout.splitlines()]
    assert sentences == ["the command: export", "the command: backup"]
    assert f"{faults.audit_line_place(2)} is damaged" in done.stderr
    assert done.stderr.count("\n") == 1
    done = installation.run("audit", "--json", status=1)
    assert [line["act"] for line in json.loads(done.stdout)] == ["export", "backup"]


def add_passkey(store: Storage, user: User, number: int, rp_id: str = "localhost") -> Passkey:
    passkey = Passkey(str(number) * 64, user.id, "h", "c", "k", rp_id, f"Phone {number}", 5)
    store.records(PASSKEYS).add(passkey)
    return passkey


def test_passkeys_are_printed_and_removed(installation, store, ada):
    first, second = (add_passkey(store, ada, number) for number in (1, 2))
    bobs = add_passkey(store, store.users.register("Bob", "", ""), 3)
    show = ("user", "passkeys", "ada")
    printed = json.loads(installation.output(*show, "--json"))
    assert [each["id"] for each in printed] == [first.id, second.id]
    values = {"name": "Phone 1", "created": 5, "used": 0, "synced": False}
    assert printed[0] == {"id": first.id} | values
    assert "Phone 2" in installation.output(*show)
    assert installation.refusal(*show, "--remove", bobs.id) == "there is no such passkey"
    done = installation.run(*show, "--remove", first.id, "--json")
    assert [each["id"] for each in json.loads(done.stdout)] == [second.id] and not done.stderr
    done = installation.run(*show, "--remove", second.id)
    assert "no password and no passkey left" in done.stderr
    assert store.records(PASSKEYS).ids() == [bobs.id]


def test_settings_tell_where_passkeys_can_be(installation, store, ada):
    """A note where there can be none, and a warning where there are some for another host."""
    add_passkey(store, ada, 1, "old.example.org")
    printed = installation.output("settings", IDENTITY_BASE_URL="http://127.0.0.1:8000")
    assert "Note: passkeys need a name: set IDENTITY_BASE_URL=http://localhost:8000" in printed
    printed = installation.output("settings", IDENTITY_BASE_URL="http://id.example.org")
    assert "Note: passkeys need a domain and https" in printed
    for host, warns in (("id.example.org", True), ("old.example.org", False)):
        printed = installation.output("settings", IDENTITY_BASE_URL=f"https://{host}")
        assert "Note: " not in printed
        assert ("Warning: 1 passkey for old.example.org" in printed) == warns


# -- games ----------------------------------------------------------------------------------------

GAME = "https://space.example/play"


@pytest.fixture
def run_client(installation):
    """A function that runs `client` with these arguments; returns the record or the error."""

    def run_client(*arguments: str, status: int = 0) -> dict | str:
        done = installation.run("client", *arguments, "--json", status=status, **BASE_URL)
        assert (done.stdout == "") == (status != 0), done.stderr
        error = done.stderr.splitlines()[-1:]
        return error[0].removeprefix("Error: ") if status else json.loads(done.stdout)

    return run_client


def test_game_needs_no_redirect_uri_and_a_players_is_unlisted(run_client, store, ada):
    store.users.register("Hopper", "hopper@example.org", "", ADMINISTRATOR)
    for owner, listed in (([], True), (["--owner", "Hopper"], True), (["--owner", "ada"], False)):
        options = ("--game-url", GAME, "--description", " Shoot the rocks. ", *owner)
        added = run_client("add", "Space", *options)
        assert (added["game_url"], added["description"]) == (GAME, "Shoot the rocks.")
        assert (added["redirect_uris"], added["listed"]) == ([], listed)
        store.clients.delete(added["client_id"])


def test_client_needs_a_redirect_uri_or_a_game(run_client, store, ada):
    for options in ([], ["--game-url", ""]):
        problem = run_client("add", "Space", *options, status=2)
        assert problem == "Where is it? Give --redirect-uri, --game-url or both, or --device."
    assert all_clients(store) == []


def test_invalid_game_url_is_refused(run_client, store, subtests):
    taken = run_client("add", "Taken", "--game-url", GAME)["client_id"]
    other = run_client("add", "Other", "--redirect-uri", "https://other.example/")["client_id"]
    before = all_clients(store)
    for game_url, problem in (
        ("https://id.example.org/game", "game_url: Use another origin than this site's own."),
        ("ftp://space.example/", "game_url: Start with https:// or http://."),
        (f"{GAME}/mine", "game_url: Taken, registered by the administrators, is at this origin."),
    ):
        with subtests.test(game_url):
            assert run_client("add", "Space", "--game-url", game_url, status=1).startswith(problem)
            assert run_client("set", other, "--game-url", game_url, status=1).startswith(problem)
            assert all_clients(store) == before
    run_client("set", taken, "--game-url", "")
    assert store.clients.read(taken).game_url is None
    assert run_client("set", other, "--game-url", GAME)["game_url"] == GAME


def test_set_changes_the_given_fields_and_audits_listing(run_client, store, ada):
    added = run_client("add", "Space", "--game-url", GAME, "--owner", "Ada")
    client_id = added["client_id"]
    del added["client_secret"]
    changes = ("--game-url", "https://new.example/", "--require-pkce", "--no-email")
    new = {"game_url": "https://new.example/", "require_pkce": True, "no_email": True}
    assert run_client("set", client_id, *changes) == added | new
    new |= {"require_pkce": False, "no_email": False}
    assert run_client("set", client_id, "--allow-no-pkce", "--allow-email") == added | new
    for option, listed in (("--listed", True), ("--listed", True), ("--unlisted", False)):
        new |= {"listed": listed, "declined": not listed}
        assert run_client("set", client_id, option) == added | new
    line = {"by": "command", "client": client_id}
    acts = [each for each in audit_lines(store) if each["act"] != "client add"]
    assert acts == [line | {"act": act} for act in ("client listed", "client unlisted")]
