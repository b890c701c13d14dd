"""What ends by itself: unconfirmed accounts, and addresses in the log, sign-ins and suspensions."""

import json

import fixtures
import pytest
from conftest import PASSWORD
from forms import edit, text_of
from waiting import wait_until

from identity.access.passwords import hash_password
from identity.acts import emails
from identity.acts.actors import Actor, Authority
from identity.acts.network_bans import BANS_ID
from identity.acts.upkeep import POLL, STATE, Upkeep
from identity.messages.outbox import MAIL, new_message
from identity.senders import send_messages
from model.door_records import NetworkBan, NetworkBans
from model.errors import StorageFailed
from model.grant_records import Family
from model.kinds import FAMILIES, NETWORK_BANS, OUTBOX, PASSKEYS, STATES
from model.records import Grant, Passkey, Session, Suspension, now_ms
from storage.audit_lines import decode_line

WEEK, DAY_MS = 7 * 86_400, 86_400_000  # seconds, and milliseconds
app = fixtures.open_app


@pytest.fixture
def upkeep(app, store, clock) -> Upkeep:
    """The upkeep of an app with mail."""
    app.config["SMTP_URL"] = "smtp://localhost:1"
    return Upkeep(store, app.config)


@pytest.fixture
def join(store):
    """A function that adds a player as an open sign-up does."""

    def join(name: str = "Eve", **fields):
        user = store.users.new(name, f"{name.lower()}@example.org", hash_password(PASSWORD), 0)
        for field, value in {"came_alone": True, **fields}.items():
            setattr(user, field, value)
        return store.users.register_user(user)

    return join


def add_passkey(store, user) -> None:
    store.records(PASSKEYS).add(Passkey("0" * 64, user.id, "h", "c", "k", "id.example", "Phone", 5))


KEPT = {  # why an account stays: its fields, or what is added to it
    "invited": {"came_alone": False},
    "no email": {"email": ""},
    "confirmed": {"email_verified": True},
    "played": {"last_heartbeat": 5},
    "consent": {"grants": {"c" * 24: Grant("g", ["userinfo"], 1)}},
    "moderator": {"mod_level": 1},
    "suspended": {"suspension": Suspension("command")},
    "app": lambda store, user: store.clients.register("Chess", [], user.id),
    "passkey": add_passkey,
    "younger": lambda store, user: edit(
        store.users, user.id, created=user.created + 1, last_heartbeat=0
    ),
}


def test_only_unused_accounts_end_after_a_week(store, upkeep, join, clock, subtests):
    gone, kept = join(), {}
    for number, (why, more) in enumerate(KEPT.items()):
        kept[why] = join(f"Kept {number}".replace(" ", ""), **(more if type(more) is dict else {}))
        if type(more) is not dict:
            more(store, kept[why])
    clock.shift(WEEK - 1)
    assert upkeep.end_unconfirmed(None) is None and store.users.find(gone.id)
    clock.shift(1)
    mark = upkeep.end_unconfirmed(None)
    assert store.users.find(gone.id) is None
    store.users.require_name(gone.name)  # the same person may come again
    for why, user in kept.items():
        with subtests.test(why):
            assert store.users.find(user.id)
    [line] = [each for each in store.audit.read() if each["act"] == "user unconfirmed"]
    assert (line["by"], line["user"]) == ("command", gone.id)
    clock.shift(1)
    assert upkeep.end_unconfirmed(mark) != mark  # goes on behind the mark
    assert store.users.find(kept["younger"].id) is None


def test_account_that_is_confirmed_as_it_would_end_stays(store, upkeep, join, clock, monkeypatch):
    user, between = join(), store.users.between
    clock.shift(WEEK)

    def confirmed_after(*args, **options):
        found = between(*args, **options)
        emails.confirm(Authority(store, Actor(user.id)), user.id, user.email)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(store.users, "between", confirmed_after)
        upkeep.end_unconfirmed(None)
    assert store.users.read(user.id).email_verified
    store.users.change_email(user.id, "later@example.org")
    upkeep.end_unconfirmed(None)  # nor does a later address end it
    assert store.users.find(user.id)


def test_no_account_ends_while_no_letter_is_sent(app, store, upkeep, join, clock):
    user = join()
    clock.shift(WEEK)
    app.config["SMTP_URL"] = ""
    assert upkeep.end_unconfirmed(None) is None
    app.config["SMTP_URL"] = "smtp://localhost:1"
    message = new_message(MAIL, "confirmation", "")
    store.records(OUTBOX).add(message)
    clock.shift(86_401)
    assert upkeep.end_unconfirmed(None) is None and store.users.find(user.id)
    store.records(OUTBOX).delete(message.id)
    upkeep.end_unconfirmed(None)
    assert store.users.find(user.id) is None


def test_sign_in_says_when_an_unconfirmed_account_ends(upkeep, join, clock, open_browser, store):
    clock.move_to(1_795_867_847)  # 28 November 2026
    user, words = join(), "unless you do or play, the account ends after 5 December 2026."
    unused = {"last_heartbeat": user.created, "mod_level": 0}
    for used in ({}, {"last_heartbeat": 5}, {"mod_level": 1}):  # as in KEPT
        edit(store.users, user.id, **unused | used)
        browser = open_browser()
        browser.sign_in("Eve")
        assert (words in text_of(browser.get("/"))) == (not used)


def addresses(store) -> list[str | None]:
    return [decode_line(line).get("address") for line in store.audit.lines()]


def test_log_forgets_addresses_after_ninety_days(store, upkeep, clock, monkeypatch):
    """What was done in another log counts for nothing: a restore puts lines in front."""
    for number in (1, 2):
        store.audit.write("look", 1, address=f"192.0.2.{number}")
    clock.shift(89 * 86_400)
    store.audit.write("look", 1, address="192.0.2.3")
    mark = upkeep.forget_log(None)
    assert addresses(store) == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    clock.shift(2 * 86_400)
    upkeep.forget_log([mark[0], now_ms()])  # done already
    assert addresses(store) == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    mark = upkeep.forget_log([mark[0] - 1, now_ms()])
    assert addresses(store) == [None, None, "192.0.2.3"]
    monkeypatch.setattr(store.audit, "forget", pytest.fail)
    assert upkeep.forget_log(mark) == mark  # nothing is to be done
    monkeypatch.undo()
    store.audit.write("look", 1, address="192.0.2.4")
    clock.shift(90 * 86_400)
    upkeep.forget_log(mark)
    assert addresses(store) == [None, None, None, "192.0.2.4"]


def test_sign_ins_and_suspensions_forget_addresses_after_ninety_days(
    store, upkeep, join, clock, monkeypatch
):
    now = now_ms()
    days = [Session("s", 1, "Firefox", now - each * DAY_MS, "192.0.2.1") for each in (91, 89)]
    suspensions = [Suspension(1, each.used, networks={"192.0.2.7": each.used}) for each in days]
    users = [
        join(name, sessions=days, suspension=each)
        for name, each in zip(("Eve", "Emi"), suspensions, strict=True)
    ]
    with monkeypatch.context() as patch:  # what was read may be cached, and stays as it is stored
        cached = [store.users.read(each.id) for each in users]
        patch.setattr(store.users, "read_from_many", lambda ids: cached)
        assert upkeep.forget_addresses(None) == users[1].id
    assert [each.address for each in cached[0].sessions] == ["192.0.2.1"] * 2
    for user, networks in zip(users, ([], ["192.0.2.7"]), strict=True):
        kept = store.users.read(user.id)
        assert [each.address for each in kept.sessions] == [None, "192.0.2.1"]
        assert ([*kept.suspension.networks], kept.sessions[0].used) == (networks, days[0].used)
    assert upkeep.forget_addresses(users[1].id) is None  # from the first one again


def test_apps_that_stay_signed_in_forget_addresses_as_well(store, upkeep, join):
    ids = ["a" * 16, "b" * 16, "c" * 16]  # the last one is gone
    join(grants={"c" * 24: Grant("g", ["userinfo"], 1, families=ids)})
    ages = dict(zip(ids[:2], (91, 89), strict=True))
    for each, days in ages.items():
        values = {"used": now_ms() - days * DAY_MS, "address": "192.0.2.1"}
        end = now_ms() + DAY_MS
        family = Family(each, 1, "c" * 24, "", [], "", 1, end, "salt", "hash", **values)
        store.records(FAMILIES).add(family)
    upkeep.forget_addresses(None)
    assert [store.records(FAMILIES).read(each).address for each in ages] == ["", "192.0.2.1"]


def test_bans_that_ended_are_forgotten(store, upkeep, clock):
    times = [now_ms() + days * DAY_MS for days in (1, 3)]
    bans = [NetworkBan(f"192.0.2.{n}/32", 1, end, "command") for n, end in enumerate(times)]
    store.records(NETWORK_BANS).put(NetworkBans(BANS_ID, bans))
    clock.shift(2 * 86_400)
    upkeep.forget_bans(None)
    assert store.records(NETWORK_BANS).read(BANS_ID).bans == bans[1:]


def test_one_process_does_the_work_of_an_hour(app, store, upkeep, join, clock):
    users = [join()]
    clock.shift(WEEK)
    assert upkeep.work(0) == POLL and store.users.ids() == []
    state = store.records(STATES).read(STATE)
    assert json.loads(state.problem)["end_unconfirmed"][1] == users[0].id
    users = [join("Emi")]
    clock.shift(WEEK)
    edit(store.records(STATES), STATE, time=now_ms() - 3_599_000)  # by another process
    Upkeep(store, app.config).work(0)
    assert store.users.ids() == [users[0].id]
    clock.shift(1)
    Upkeep(store, app.config).work(0)
    assert store.users.ids() == []


def test_task_that_fails_stops_no_other(store, upkeep, join, clock, monkeypatch, caplog):
    """Such as a damaged record of bans, or a disk without room for a copy of the log."""
    gone, old = join(), [Session("s", 1, "Firefox", 1, "192.0.2.1")]
    kept = join("Emi", sessions=old, came_alone=False)
    clock.shift(91 * 86_400)
    for each in ("forget_log", "forget_bans"):
        monkeypatch.setattr(Upkeep, each, fails(each))
    upkeep.work(0)
    assert store.users.find(gone.id) is None
    assert store.users.read(kept.id).sessions[0].address is None
    assert "forget_log waits: no room" in caplog.text and "forget_bans waits" in caplog.text


def fails(name: str):
    def task(self, mark):
        raise StorageFailed("no room")

    task.__name__ = name
    return task


def test_processes_that_send_messages_do_the_upkeep(app, monkeypatch):
    done = []
    monkeypatch.setattr(Upkeep, "first_pause", 0.0)
    monkeypatch.setattr(Upkeep, "work", lambda self, claim: done.append(claim) or 3600.0)
    inner = app.wsgi_app
    send_messages(app)
    app.senders.start()
    wait_until(lambda: done)
    app.senders.stop()  # does not wait for an hour
    app.wsgi_app = inner
    assert done == [0]
