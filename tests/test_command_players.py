"""The commands about players that the pages do not have, or have too: `commands.players`."""

import json
import re
import shlex

import pytest
from faulty_storage import FlatFileFaults
from test_command import Installation

from commands.printing import ACTS, describe_audit_line
from storage import Session, Storage, User

ANOTHER = "a wholly different phrase"
BASE_URL = {"IDENTITY_BASE_URL": "https://id.example.org"}
BAD_FLAIR = "flair: Use 1-30 characters on one line."


@pytest.fixture
def installation(tmp_path, backend) -> Installation:
    """An installation."""
    return Installation(tmp_path, backend)


@pytest.fixture
def faults(installation) -> FlatFileFaults:
    """Faults in what it stores."""
    return installation.faults


@pytest.fixture
def store(installation, unsynced) -> Storage:
    """Its storage."""
    return installation.open()


@pytest.fixture
def ada(store) -> User:
    """A player who is signed in somewhere and has a flair."""
    user_id = store.add_user("Ada", "ada@example.org", "").id
    with store.edit_user(user_id) as user:
        user.flairs = ["none", "Old hand"]
        user.equipped_flair = "Old hand"
        user.sessions = [Session("x", 1, "Firefox on Linux")]
    return user


@pytest.fixture
def browser(make_app, installation, store):
    """A browser of the server that runs on this installation."""
    folders = {"DATA_DIR": str(installation.data), "PICTURE_DIR": str(installation.pictures)}
    client = make_app(**folders).test_client()
    client.environ_base["HTTP_SEC_FETCH_SITE"] = "same-origin"
    return client


@pytest.fixture
def refusal(installation):
    """Calls the command; returns the line that refuses."""

    def refusal(*arguments: str, status: int = 1) -> str:
        done = installation.run(*arguments, status=status)
        assert done.stdout == ""
        return done.stderr.splitlines()[-1].removeprefix("Error: ")

    return refusal


def acts(store: Storage) -> list[dict]:
    """The lines of the audit log, without the times."""
    lines = list(store.read_audit())
    assert all(line.pop("time") > 10**12 for line in lines)
    return lines


# -- invite ---------------------------------------------------------------------------------------


def test_invitations_are_links_that_each_make_one_account(installation, store, ada, browser):
    output = installation.output("invite", "--count", "2", **BASE_URL)
    invites = re.findall(r"^https://id\.example\.org/sign-up\?invite=(\S+)$", output, re.MULTILINE)
    assert len(set(invites)) == len(output.splitlines()) == 2
    assert acts(store) == [{"act": "invite", "by": "command", "days": 7}] * 2
    assert not any(each in installation.faults.stored_text() for each in invites)
    for i, invite in enumerate(invites * 2):
        form = {"name": f"New {i}", "email": f"n{i}@example.org", "password": ANOTHER}
        answer = browser.post("/sign-up", data=form | {"invite": invite})
        assert answer.status_code == (303 if i < 2 else 403)
    assert len(store.user_ids()) == 3


def test_an_invitation_ends_after_the_days_that_were_asked_for(installation, store, clock):
    invite = installation.output("invite", "--days", "2").strip().partition("invite=")[2]
    clock.ahead = 2 * 86_400 - 60
    assert store.is_good_invite(invite)
    clock.ahead += 120
    assert not store.is_good_invite(invite)


@pytest.mark.parametrize("option", ["--days=0", "--days=366", "--count=0", "--count=1001"])
def test_invitations_have_limits(store, refusal, option):
    assert "is not in the range" in refusal("invite", option, status=2)
    assert acts(store) == []


# -- user sign-in-link ----------------------------------------------------------------------------


def test_a_sign_in_link_sets_a_new_password_and_is_written_down(installation, store, ada, browser):
    link = installation.output("user", "sign-in-link", "ADA", **BASE_URL).strip()
    assert link.startswith("https://id.example.org/new-password?link=")
    assert acts(store) == [{"act": "user sign-in-link", "by": "command", "user": ada.id}]
    signed = link.partition("link=")[2]
    assert signed not in installation.faults.stored_text()
    assert "For <bdi" in browser.get(f"/new-password?link={signed}").text
    form = {"link": signed, "new_password": ANOTHER}
    assert browser.post("/new-password", data=form).status_code == 303
    assert browser.post("/new-password", data=form).status_code == 403
    assert store.read_user(ada.id).password_hash


def test_a_link_for_somebody_suspended_is_printed_with_a_warning(installation, store, ada):
    with store.edit_user(ada.id) as user:
        user.suspended = True
    done = installation.run("user", "sign-in-link", "ada@example.org")
    assert done.stdout.count("\n") == 1
    assert done.stderr.startswith("Ada is suspended") and done.stderr.count("\n") == 1
    assert store.read_user(ada.id).suspended


# -- user show ------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [10**20, 10**400], ids=["late", "later"])
def test_a_time_that_no_calendar_reaches_is_shown_as_the_number(installation, store, ada, time):
    with store.edit_user(ada.id) as user:
        user.last_heartbeat = time
    assert f"lastHeartbeat  {time}\n" in installation.output("user", "show", "ada")


# -- user suspend, unsuspend, delete --------------------------------------------------------------


def test_suspending_ends_all_sessions_and_unsuspending_undoes_it(installation, store, ada):
    assert installation.output("user", "suspend", "ada") == "Ada is suspended.\n"
    user = store.read_user(ada.id)
    assert (user.suspended, user.sessions) == (True, [])
    assert installation.output("user", "unsuspend", "ada@example.org") == (
        "Ada is no longer suspended.\n"
    )
    assert not store.read_user(ada.id).suspended
    told = {"by": "command", "user": ada.id}
    assert acts(store) == [{"act": "user suspend"} | told, {"act": "user unsuspend"} | told]


def test_a_player_is_not_deleted_where_that_was_not_confirmed(installation, store, ada):
    for answer in ("n\n", ""):
        done = installation.run("user", "delete", "Ada", status=1, stdin=answer)
        assert "Delete Ada (id 1)?" in done.output and "is deleted" not in done.output
    assert (store.read_user(ada.id), acts(store)) == (ada, [])


@pytest.mark.live
def test_a_player_is_deleted_once_that_was_confirmed(installation, store, ada):
    """In a process of its own: CliRunner puts every question on standard output."""
    done = installation.run_process("user", "delete", "Ada", stdin="y\n")
    assert "Delete Ada (id 1)?" in done.stderr
    assert done.stdout == "Ada is deleted.\n"
    assert store.user_ids() == []
    assert acts(store) == [{"act": "user delete", "by": "command", "user": 1}]
    assert installation.faults.stored("pictures") == {}
    assert store.add_user("Ada", "ada@example.org", "").id == 2


def test_with_yes_nothing_is_asked(installation, store, ada):
    done = installation.run("user", "delete", "ada", "--yes")
    assert (done.stdout, done.stderr) == ("Ada is deleted.\n", "")
    assert store.user_ids() == []


@pytest.mark.parametrize(
    "words",
    [
        *(["user", verb, "nobody"] for verb in ("suspend", "unsuspend", "delete", "sign-in-link")),
        *(["flair", verb, "nobody", "Champion"] for verb in ("grant", "revoke")),
    ],
    ids=" ".join,
)
def test_a_player_who_is_not_there_is_told(store, refusal, words):
    assert refusal(*words) == "there is no player 'nobody'"
    assert acts(store) == []


# -- flair ----------------------------------------------------------------------------------------


def test_flairs_are_granted_listed_and_revoked(installation, store, ada):
    store.add_user("Bob", "bob@example.org", "")
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
    user = store.read_user(ada.id)
    assert (user.flairs, user.equipped_flair) == (["none"], "none")
    lines = installation.output("flair", "list").splitlines()
    assert [line.rsplit(maxsplit=1) for line in lines] == [
        *(["flair", "players"], ["Old hand", "1"], ["none", "2"]),
    ]
    told = {"by": "command", "flair": "Old hand"}
    assert acts(store) == [
        {"act": "flair grant", "user": 2} | told,
        {"act": "flair revoke", "user": 1} | told,
    ]


@pytest.mark.parametrize(
    ("verb", "flair", "problem"),
    [
        ("grant", "", BAD_FLAIR),
        ("grant", "x" * 31, BAD_FLAIR),
        ("grant", "a\nb", BAD_FLAIR),
        ("revoke", "none", "flair: This player does not have this flair."),
        ("revoke", "Champion", "flair: This player does not have this flair."),
    ],
)
def test_a_flair_that_cannot_be_had_or_taken_is_refused(store, ada, refusal, verb, flair, problem):
    assert refusal("flair", verb, "ada", flair) == problem
    assert (store.read_user(ada.id), acts(store)) == (ada, [])


def test_flair_list_names_a_damaged_user_and_counts_the_others(installation, store, ada, faults):
    bob = store.add_user("Bob", "bob@example.org", "")
    faults.damage_user(bob.id)
    done = installation.run("flair", "list", "--json", status=1)
    assert {"flair": "Old hand", "players": 1} in json.loads(done.stdout)
    assert f"{faults.user_place(bob.id)} is damaged" in done.stderr
    assert done.stderr.count("\n") == 1


# -- audit ----------------------------------------------------------------------------------------


def test_audit_prints_each_line_in_words_or_as_json(installation, store, ada):
    assert installation.output("audit") == ""
    assert installation.record("audit") == []
    store.write_audit("user suspend", by=2, user=1, address="192.0.2.7")
    store.write_audit("flair grant", by="command", user=1, flair="{Old} hand")
    first, second = installation.output("audit").splitlines()
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.fullmatch(rf"{time}  player 2 suspended player 1, from 192\.0\.2\.7", first)
    assert re.fullmatch(rf"{time}  the command granted the flair {{Old}} hand to player 1", second)
    assert installation.record("audit") == list(store.read_audit())
    assert "/users/7" in installation.output("audit", "--help")


def test_an_act_of_a_later_version_is_printed_by_its_name():
    line = {"time": 0, "act": "user paint", "by": 3, "user": 1}
    assert describe_audit_line(line) == "1970-01-01 00:00:00 UTC  player 3 user paint"


@pytest.mark.parametrize(
    "line",
    [
        '{"time": 1, "act": "user suspend", "by": 1}',
        '{"time": 1, "act": {}, "by": 1}',
        '{"time": "noon", "act": "backup", "by": 1}',
        '{"time": NaN, "act": "backup", "by": 1}',
        '{"act": "backup"}',
        '["time", "act", "by"]',
        "null",
    ],
)
def test_audit_line_of_unknown_form_is_printed_as_it_is(installation, store, faults, line):
    faults.add_audit_line(line)
    store.write_audit("backup", by="command")
    first, second = installation.output("audit").splitlines()
    assert first == line
    assert second.endswith("the command made a backup")


@pytest.mark.parametrize("damage", ["", "{", "[" * 10**5])
def test_audit_names_a_damaged_line_and_prints_the_others(installation, store, faults, damage):
    store.write_audit("export", by="command")
    faults.add_audit_line(damage)
    store.write_audit("backup", by="command")
    done = installation.run("audit", status=1)
    told = [line.partition("  ")[2] for line in done.stdout.splitlines()]
    assert told == ["the command exported the players", "the command made a backup"]
    assert f"{faults.audit_line_place(2)} is damaged" in done.stderr
    assert done.stderr.count("\n") == 1
    done = installation.run("audit", "--json", status=1)
    assert [line["act"] for line in json.loads(done.stdout)] == ["export", "backup"]


UNDONE = {  # each command that writes a line, and the act that it tells of
    "user suspend": ["user", "suspend", "ada"],
    "user unsuspend": ["user", "unsuspend", "ada"],
    "user delete": ["user", "delete", "ada", "--yes"],
    "user mod-level": ["user", "set", "ada", "--mod-level", "2"],
    "user set name": ["user", "set", "ada", "--name", "Ada L"],
    "user set email": ["user", "set", "ada", "--email", "lovelace@example.org"],
    "user set bio": ["user", "set", "ada", "--bio", "Chess, mostly."],
    "user sign-in-link": ["user", "sign-in-link", "ada"],
    "flair grant": ["flair", "grant", "ada", "Champion"],
    "flair revoke": ["flair", "revoke", "ada", "Old hand"],
    "invite": ["invite"],
}


@pytest.mark.parametrize("act", UNDONE)
def test_act_is_not_done_if_the_audit_log_cannot_be_saved(store, ada, refusal, faults, act):
    with store.edit_user(ada.id) as user:
        user.suspended = act == "user unsuspend"  # else there is nothing to do
    faults.refuse_saves("audit")
    before = faults.stored()
    assert refusal(*UNDONE[act]).startswith("the disk refused")
    assert faults.stored() == before
    assert act in ACTS


def test_user_add_without_audit_log_adds_the_user_and_prints_how_to_set_the_level(
    installation, store, faults
):
    faults.refuse_saves("audit")
    told = installation.refusal(
        *("user", "add", "Ada L", "--email", "ada@example.org", "--mod-level", "2"),
        "--password-stdin",
        stdin=ANOTHER,
    )
    assert told.startswith("Ada L is added, but as a player of level 0 (the disk refused")
    faults.allow_saves()
    _, finish = told.split("go on with identity-server ")
    assert installation.record(*shlex.split(finish))["modLevel"] == 2
