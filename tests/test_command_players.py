"""The commands about players, invitations, flairs and the audit log: `commands.players`."""

import json
import re
import shlex
from pathlib import Path

import pytest
from faulty_storage import FlatFileFaults
from test_command import CALLBACK, Installation

import commands
from storage import Storage
from storage.records import Session, Suspension, User

NEW_PASSWORD = "a wholly different phrase"
BASE_URL = {"IDENTITY_BASE_URL": "https://id.example.org"}


@pytest.fixture
def installation(tmp_path, backend) -> Installation:
    """An empty installation."""
    return Installation(tmp_path, backend)


@pytest.fixture
def faults(installation) -> FlatFileFaults:
    """The faults of the installation's storage."""
    return installation.faults


@pytest.fixture
def store(installation, unsynced) -> Storage:
    """The storage of the installation."""
    return installation.open()


@pytest.fixture
def ada(store) -> User:
    """A player with a session and a flair."""
    user_id = store.users.register("Ada", "ada@example.org", "").id
    with store.users.edit(user_id) as user:
        user.flairs = ["none", "Old hand"]
        user.equipped_flair = "Old hand"
        user.sessions = [Session("x", 1, "Firefox on Linux")]
    return user


@pytest.fixture
def browser(make_app, installation, store):
    """A browser of a server on this installation."""
    folders = {"DATA_DIR": str(installation.data), "PICTURE_DIR": str(installation.pictures)}
    client = make_app(**folders).test_client()
    client.environ_base["HTTP_SEC_FETCH_SITE"] = "same-origin"
    return client


@pytest.fixture
def refusal(installation):
    """A function that runs the command, which must refuse; returns the error message."""

    def refusal(*arguments: str, status: int = 1) -> str:
        done = installation.run(*arguments, status=status)
        assert done.stdout == ""
        return done.stderr.splitlines()[-1].removeprefix("Error: ")

    return refusal


def audit_lines(store: Storage) -> list[dict]:
    """Return the lines of the audit log without their times."""
    lines = list(store.audit.read())
    assert all(line.pop("time") > 10**12 for line in lines)
    return lines


# -- invite ---------------------------------------------------------------------------------------


def test_invite_prints_links_that_create_one_account_each(installation, store, ada, browser):
    output = installation.output("invite", "--count", "2", **BASE_URL)
    invites = re.findall(r"^https://id\.example\.org/sign-up\?invite=(\S+)$", output, re.MULTILINE)
    assert len(set(invites)) == len(output.splitlines()) == 2
    assert audit_lines(store) == [{"act": "invite", "by": "command", "days": 7}] * 2
    assert not any(each in installation.faults.stored_text() for each in invites)
    for i, invite in enumerate(invites * 2):
        form = {"name": f"New {i}", "email": f"n{i}@example.org", "password": NEW_PASSWORD}
        answer = browser.post("/sign-up", data=form | {"invite": invite})
        assert answer.status_code == (303 if i < 2 else 403)
    assert len(store.users.ids()) == 3


def test_invitation_expires_after_the_given_days(installation, store, clock):
    invite = installation.output("invite", "--days", "2").strip().partition("invite=")[2]
    clock.shift(2 * 86_400 - 60)
    assert store.invites.find_unused(invite)
    clock.shift(120)
    assert not store.invites.find_unused(invite)


@pytest.mark.parametrize("option", ["--days=0", "--days=366", "--count=0", "--count=1001"])
def test_invite_option_out_of_range_is_refused(store, refusal, option):
    assert "is not in the range" in refusal("invite", option, status=2)
    assert audit_lines(store) == []


# -- user sign-in-link ----------------------------------------------------------------------------


def test_sign_in_link_sets_a_new_password_and_is_audited(installation, store, ada, browser):
    link = installation.output("user", "sign-in-link", "ADA", **BASE_URL).strip()
    assert link.startswith("https://id.example.org/new-password?link=")
    assert audit_lines(store) == [{"act": "user sign-in-link", "by": "command", "user": ada.id}]
    signed = link.partition("link=")[2]
    assert signed not in installation.faults.stored_text()
    assert "For <bdi" in browser.get(f"/new-password?link={signed}").text
    form = {"link": signed, "new_password": NEW_PASSWORD}
    assert browser.post("/new-password", data=form).status_code == 303
    assert browser.post("/new-password", data=form).status_code == 403
    assert store.users.read(ada.id).password_hash


def test_sign_in_link_for_a_suspended_player_has_a_warning(installation, store, ada):
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command")
    done = installation.run("user", "sign-in-link", "ada@example.org", **BASE_URL)
    assert done.stdout.count("\n") == 1
    assert done.stderr.startswith("Ada is suspended") and done.stderr.count("\n") == 1
    assert store.users.read(ada.id).suspended


# -- user show ------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [10**20, 10**400], ids=["late", "later"])
def test_time_out_of_range_is_printed_as_a_number(installation, store, ada, time):
    with store.users.edit(ada.id) as user:
        user.last_heartbeat = time
    assert f"lastHeartbeat  {time}\n" in installation.output("user", "show", "ada")


# -- user suspend, unsuspend, delete --------------------------------------------------------------


def test_suspend_ends_all_sessions_until_unsuspend(installation, store, ada):
    assert installation.output("user", "suspend", "ada") == "Ada is suspended.\n"
    user = store.users.read(ada.id)
    assert (user.suspended, user.sessions) == (True, [])
    assert installation.output("user", "unsuspend", "ada@example.org") == (
        "Ada is no longer suspended.\n"
    )
    assert not store.users.read(ada.id).suspended
    fields = {"by": "command", "user": ada.id}
    assert audit_lines(store) == [
        {"act": "user suspend"} | fields,
        {"act": "user unsuspend"} | fields,
    ]


def test_sign_out_ends_all_sessions(installation, store, ada):
    assert store.users.read(ada.id).sessions
    for _ in range(2):  # the second time it is a no-op
        assert installation.output("user", "sign-out", "ADA") == "Ada is signed out everywhere.\n"
        assert store.users.read(ada.id).sessions == []
    assert audit_lines(store) == [{"act": "user sign-out", "by": "command", "user": ada.id}]


def test_suspend_with_reason_and_days(installation, store, ada):
    installation.output("user", "suspend", "ada", "--reason", " Insults. ", "--days", "7")
    suspension = store.users.read(ada.id).suspension
    assert (suspension.by, suspension.reason) == ("command", "Insults.")
    assert suspension.until == suspension.since + 7 * 86_400_000
    shown = installation.record("user", "show", "ada")
    names = ("suspendedBy", "suspendedUntil", "suspensionReason")
    assert [shown[each] for each in names] == ["command", suspension.until, "Insults."]
    assert "suspendedUntil    20" in installation.output("user", "show", "ada")
    installation.output("user", "suspend", "ada", "--reason", "Threats.")
    changed = store.users.read(ada.id).suspension
    assert (changed.reason, changed.until) == ("Threats.", suspension.until)
    for _ in range(2):
        installation.output("user", "unsuspend", "ada")
        installation.output("user", "suspend", "ada")
        assert store.users.read(ada.id).suspension.until is None
    for refused in (["--reason", "x" * 201], ["--reason", "a\nb"]):
        done = installation.run("user", "suspend", "ada", *refused, status=1)
        assert done.stderr.startswith("Error: reason: ")
    installation.run("user", "suspend", "ada", "--days", "0", status=2)
    assert store.users.read(ada.id).suspension.until is None


def test_player_is_not_deleted_without_confirmation(installation, store, ada):
    for answer in ("n\n", ""):
        done = installation.run("user", "delete", "Ada", status=1, stdin=answer)
        assert "Delete Ada (id 1)?" in done.output and "is deleted" not in done.output
    assert (store.users.read(ada.id), audit_lines(store)) == (ada, [])


@pytest.mark.live
def test_player_is_deleted_after_confirmation(installation, store, ada):
    """In a child process: CliRunner prints every prompt on standard output."""
    done = installation.run_process("user", "delete", "Ada", stdin="y\n")
    assert "Delete Ada (id 1)?" in done.stderr
    assert done.stdout == "Ada is deleted.\n"
    assert store.users.ids() == []
    assert audit_lines(store) == [{"act": "user delete", "by": "command", "user": 1}]
    assert installation.faults.stored("pictures") == {}
    assert store.users.register("Ada", "ada@example.org", "").id == 2


def test_delete_with_yes_does_not_prompt(installation, store, ada):
    done = installation.run("user", "delete", "ada", "--yes")
    assert (done.stdout, done.stderr) == ("Ada is deleted.\n", "")
    assert store.users.ids() == []


@pytest.mark.parametrize(
    "arguments",
    [
        *(["user", verb, "nobody"] for verb in ("suspend", "unsuspend", "delete", "sign-in-link")),
        *(["flair", verb, "nobody", "Champion"] for verb in ("grant", "revoke")),
    ],
    ids=" ".join,
)
def test_unknown_player_is_refused(store, refusal, arguments):
    assert refusal(*arguments) == "there is no player 'nobody'"
    assert audit_lines(store) == []


# -- flair ----------------------------------------------------------------------------------------


def test_flairs_are_granted_listed_and_revoked(installation, store, ada):
    store.users.register("Bob", "bob@example.org", "")
    assert installation.output("flair", "grant", "bob", "Old hand") == (
        "Bob has the flair Old hand.\n"
    )
    assert installation.record("flair", "list") == [
        {"flair": "Old hand", "players": 2},
        {"flair": "none", "players": 2},
    ]
    assert installation.output("flair", "revoke", "ada", "Old hand") == (
        "Ada no longer has the flair Old hand.\n"
    )
    user = store.users.read(ada.id)
    assert (user.flairs, user.equipped_flair) == (["none"], "none")
    lines = installation.output("flair", "list").splitlines()
    assert [line.rsplit(maxsplit=1) for line in lines] == [
        *(["flair", "players"], ["Old hand", "1"], ["none", "2"])
    ]
    fields = {"by": "command", "flair": "Old hand"}
    assert audit_lines(store) == [
        {"act": "flair grant", "user": 2} | fields,
        {"act": "flair revoke", "user": 1} | fields,
    ]


def test_flair_list_names_a_damaged_user_and_counts_the_others(installation, store, ada, faults):
    bob = store.users.register("Bob", "bob@example.org", "")
    faults.damage_user(bob.id)
    done = installation.run("flair", "list", "--json", status=1)
    assert {"flair": "Old hand", "players": 1} in json.loads(done.stdout)
    assert f"{faults.user_place(bob.id)} is damaged" in done.stderr
    assert done.stderr.count("\n") == 1


# -- audit ----------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "line",
    [
        '{"time": 1, "by": 1}',
        '{"time": "noon", "act": "backup", "by": 1}',
        '{"time": NaN, "act": "backup", "by": 1}',
        '{"act": "backup"}',
    ],
)
def test_audit_line_of_unknown_form_is_printed_as_it_is(installation, store, faults, line):
    faults.add_audit_line(line)
    store.audit.write("backup", by="command")
    first, second = installation.output("audit").splitlines()
    assert first == line
    assert second.endswith("the command: backup")


HOSTILE = "a\x1b[2J\x9b\x7f\u202e\u200bb\rc"
SHOWN = r"a\x1b[2J\x9b\x7f\u202e\u200bb\rc"


def test_control_characters_of_records_are_printed_as_escapes(installation, store, subtests):
    """Nothing that a record says moves the cursor, hides a line or turns the text around it."""
    user = User(7, "Eve", "eve@example.org", "", bio=HOSTILE, flairs=["none", HOSTILE])
    user.name = f"E{HOSTILE}"
    store.users.insert(user)
    store.audit.write(HOSTILE, by=HOSTILE, user=7, address=HOSTILE)
    client, _ = store.clients.register("Chess", [CALLBACK], 7)
    store.audit.write("flair grant", by=7, user=7, flair=HOSTILE)
    printed = []
    for arguments in [
        *(("user", "list"), ("user", "show", "eve@example.org"), ("flair", "list"), ("audit",)),
        *(
            ("client", "list"),
            ("client", "show", client.id),
            ("user", "suspend", "eve@example.org"),
        ),
        ("flair", "grant", "eve@example.org", "x"),
    ]:
        with subtests.test(arguments):
            done = installation.run(*arguments)
            assert SHOWN in done.stdout
            assert re.sub(r"[\n\t]", "", done.output).isprintable()
            printed.append(done.stdout)
    for arguments in [("user", "show", HOSTILE), ("client", "show", HOSTILE)]:
        with subtests.test(arguments):
            assert re.sub(
                r"[\n\t]", "", installation.run(*arguments, status=1).output
            ).isprintable()
    assert len(installation.record("user", "list")[0]["bio"]) == len(HOSTILE)
    done = installation.run("user", "show", "eve@example.org", "--json")
    assert json.loads(done.stdout)["bio"] == HOSTILE
    assert re.sub(r"\n", "", done.stdout).isprintable() and done.stdout.isascii()


def test_text_of_people_is_printed_as_it_is(installation, store):
    bio = "Zoë\n\t👨\u200d👩 می\u200cخواهم"
    store.users.insert(User(7, "Zoë", "zoe@example.org", "", bio=bio))
    shown = installation.output("user", "show", "zoe@example.org")
    assert all(each in shown for each in ("Zoë", "👨\u200d👩 می\u200cخواهم"))


@pytest.mark.parametrize("module", sorted(Path(commands.__file__).parent.glob("*.py")))
def test_commands_print_through_one_function(module):
    """`printing.echo` escapes. `running` prints settings only, which the administrator makes."""
    allowed = module.name in ("printing.py", "running.py")
    assert allowed or not re.search(r"click\.s?echo|\bprint\(", module.read_text())


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


def test_act_is_not_done_if_the_audit_log_cannot_be_saved(store, ada, refusal, faults):
    """tests/test_accounts.py has every act."""
    faults.refuse_saves("audit")
    before = faults.stored()
    assert refusal("user", "suspend", "ada").startswith(faults.REFUSAL)
    assert faults.stored() == before


def test_user_add_without_audit_log_adds_the_user_and_prints_how_to_set_the_level(
    installation, store, faults
):
    faults.refuse_saves("audit")
    message = installation.refusal(
        *("user", "add", "Ada L", "--email", "ada@example.org", "--mod-level", "2"),
        "--password-stdin",
        stdin=NEW_PASSWORD,
    )
    assert message.startswith(f"Ada L is added, but as a player of level 0 ({faults.REFUSAL}")
    faults.allow_saves()
    _, finish = message.split("go on with identity-server ")
    assert installation.record(*shlex.split(finish))["modLevel"] == 2
