"""Where apps keep players signed in: what ends it, and what players and the command see of it."""

import functools
from types import SimpleNamespace

import forms
import pytest
import test_device
import test_refresh
from conftest import on_each_backend
from forms import edit, parse, race, signed_in
from test_command import Installation
from test_refresh import (
    DAY,
    SCOPE,
    error_of,
    has_access,
    is_good,
    refresh,
    renew,
    start,
    start_on_device,
)

import identity_server
from identity.access import links
from identity.acts import accounts, apps
from identity.acts import sessions as session_acts
from identity.acts.actors import COMMAND, Authority
from identity.oauth import device
from identity.oauth import refresh as refresh_tokens
from identity.oauth.grants import save_consent
from model.errors import StorageFailed
from model.kinds import FAMILIES, OUTBOX
from model.records import MODERATOR, Grant, Suspension

app, mail, other = test_refresh.app, test_refresh.mail, test_refresh.other
add_device = test_device.add_device
MAIL = {"SMTP_URL": "smtp://localhost", "MAIL_FROM": "id@example.org"}
with_mail = pytest.mark.parametrize("app", [MAIL], indirect=True)


@pytest.fixture
def at(store, mail, other, adas_browser, open_browser, ada, bob, clock):
    """Ada with Mail in two places and Wiki in one, a minute later: what acts need."""
    given = {"first": mail, "second": mail, "wiki": other}
    given = {name: start(each, adas_browser) for name, each in given.items()}
    clock.shift(61)
    given |= {"store": store, "mail": mail, "other": other, "browser": adas_browser, "id": ada.id}
    given |= {"by": Authority(store, COMMAND), "clock": clock, "open": open_browser, "ada": ada}
    return SimpleNamespace(**given, family=id_of(given["first"]))


def suspend(at, days: int | None) -> None:
    accounts.suspend(at.by, at.id, "Spam", days)
    if days:
        at.clock.shift(days * DAY)
    else:
        accounts.unsuspend(at.by, at.id)


def disable(at) -> None:
    for disabled in (True, False):
        apps.set_disabled(at.by, at.mail.id, disabled)
    assert is_good(at.mail, start(at.mail, at.browser))


def lose(at, group: str, give: tuple, take: tuple) -> None:
    """Let Mail be only for a group; Ada gets something, loses it, and gets it again."""
    edit(at.store.clients, at.mail.id, only_groups=[group])
    for act, value in (give, take, give):
        act(at.by, at.id, value)


def set_by_link(at) -> None:
    forms.set_by_link(at.open(), links.issue_sign_in_link(at.store, "", at.ada))


def refuse_once(at, repository, record_id, **fields) -> None:
    """Change a record by hand, refresh, and change it back."""
    before = repository.read(record_id)
    kept = {name: getattr(before, name) for name in fields}
    edit(repository, record_id, **fields)
    assert not is_good(at.mail, at.first)
    edit(repository, record_id, **kept)


def fail(*args) -> None:
    raise StorageFailed("the disk is full")


def replay(at) -> None:
    code = at.browser.allow(at.mail, scope=SCOPE)
    at.first |= at.mail.exchange_standard(code).json
    assert error_of(at.mail.exchange_standard(code)) == "invalid_grant"


def reuse(at) -> None:
    renew(at.mail, renew(at.mail, at.first))
    assert error_of(refresh(at.mail, at.first["refresh_token"])) == "invalid_grant"


FLAIR = (accounts.grant_flair, "gold"), (accounts.revoke_flair, "gold")
LEVEL = (accounts.set_mod_level, MODERATOR), (accounts.set_mod_level, 0)
THIS, APP, ALL = 1, 2, 3  # what ends: one sign-in of Mail, all of Mail, or of all apps
ENDED_BY = {
    "button": (lambda at: end_here(at.browser, at.family), THIS),
    "user sessions --end": (lambda at: session_acts.end_sign_in(at.by, at.id, at.family), THIS),
    "code twice": (replay, THIS),
    "reuse": (reuse, THIS),
    "app for others": (
        lambda at: refuse_once(at, at.store.clients, at.mail.id, only_groups=["moderators"]),
        THIS,
    ),
    "suspension by hand": (
        lambda at: refuse_once(at, at.store.users, at.id, suspension=Suspension("command")),
        THIS,
    ),
    "withdrawal": (
        lambda at: at.browser.post("/account/apps/withdraw", data={"client_id": at.mail.id}),
        APP,
    ),
    "disabled app": (disable, APP),
    "deleted app": (lambda at: apps.delete_client(at.by, at.mail.id), APP),
    "lost flair": (lambda at: lose(at, "flair:gold", *FLAIR), APP),
    "lost level": (lambda at: lose(at, "moderators", *LEVEL), APP),
    "sign-out of the others": (lambda at: at.browser.post("/account/sign-out-others"), ALL),
    "user sign-out": (lambda at: session_acts.sign_out(at.by, at.id), ALL),
    "new password": (lambda at: forms.change_password(at.browser), ALL),
    "link": (set_by_link, ALL),
    "suspension that was lifted": (lambda at: suspend(at, None), ALL),
    "suspension that has ended": (lambda at: suspend(at, 1), ALL),
    "mark that was removed": (
        lambda at: [accounts.set_underage(at.by, at.id, each) for each in (True, False)],
        ALL,
    ),
    "deletion": (lambda at: accounts.delete_user(at.by, at.id), ALL),
}
RECORD_STAYS = ("disabled app", "deleted app", "lost flair", "lost level")  # until it expires


def end_here(browser, family: str) -> str:
    """Press the button beside an app; return the text of the page afterwards."""
    done = browser.post("/account/sessions/end", data={"session": family})
    assert (done.status_code, done.location) == (303, "/account/security")
    return browser.get("/account/security").text


def id_of(tokens: dict) -> str:
    return tokens["refresh_token"].partition(".")[0]


@on_each_backend
@pytest.mark.parametrize("way", ENDED_BY)
def test_sign_in_of_an_app_is_ended_by(at, way):
    """CVE-2026-43983: a refresh looks at consent, player and groups. The end is for good."""
    act, reach = ENDED_BY[way]
    code = at.browser.allow(at.mail, scope=SCOPE)
    act(at)
    left = {at.family, id_of(at.second), id_of(at.wiki)} & {*at.store.records(FAMILIES).ids()}
    signed_in = [(at.mail, at.first, False), (at.mail, at.second, reach == THIS)]
    signed_in.append((at.other, at.wiki, reach != ALL))
    if way not in (*RECORD_STAYS, "code twice"):
        assert left == {id_of(tokens) for _, tokens, stays in signed_in if stays}
    assert [is_good(*each[:2]) for each in signed_in] == [stays for *_, stays in signed_in]
    if way != "deleted app":  # what it has from before is good for ten minutes
        assert way == "code twice" or at.family not in at.store.records(FAMILIES).ids()
        assert not has_access(at.mail, at.first) and has_access(at.other, at.wiki) == (reach != ALL)
    if reach != THIS and "app" not in way:
        assert error_of(at.mail.exchange_standard(code)) == "invalid_grant"


LEAVES_IT = {
    "sign-out": lambda at: at.browser.post("/sign-out"),
    "sign-out by a program": lambda at: at.browser.get(
        f"/oauth/logout?id_token_hint={at.first['id_token']}"
    ),
    "another browser that is ended": lambda at: session_acts.end_sign_in(
        at.by, at.id, at.store.users.read(at.id).sessions[0].id
    ),
    "new sign-in": lambda at: signed_in(at.open()),
    "new profile": lambda at: forms.save(at.browser, name="Lovelace", bio="x"),
    "new email": lambda at: forms.change_email(at.browser),
    "other flair": lambda at: lose(at, "players", *FLAIR),
    "other level": lambda at: lose(at, "players", *LEVEL),
    "new secret": lambda at: setattr(
        at.mail, "secret", apps.issue_client_secret(at.by, at.mail.id)
    ),
    "button of another player": lambda at: end_here(signed_in(at.open(), "Bob"), at.family),
    "unknown session": lambda at: end_here(at.browser, "x" * 16),
    "withdrawal of another app": lambda at: accounts.withdraw(at.by, at.id, at.other.id),
    "other app that is disabled": lambda at: apps.set_disabled(at.by, at.other.id, True),
    "suspension of another player": lambda at: accounts.suspend(at.by, at.id + 1, "Spam", None),
}


@pytest.mark.parametrize("act", LEAVES_IT.values(), ids=LEAVES_IT)
def test_sign_in_of_an_app_is_left_by(at, act):
    """A plain sign-out is one of the browser (OpenID Connect Core 11)."""
    act(at)
    assert has_access(at.mail, at.first)
    assert is_good(at.mail, at.first) and is_good(at.mail, at.second)


@on_each_backend
def test_refreshes_beside_a_sign_out_bring_nothing_back(mail, adas_browser, store, ada):
    families = [start(mail, adas_browser) for _ in range(8)]

    def keep_refreshing(tokens: dict) -> dict:
        for _ in range(1000):
            done = refresh(mail, tokens["refresh_token"])
            if done.status_code != 200:
                assert error_of(done) == "invalid_grant"
                return tokens
            tokens = done.json
        raise AssertionError("the sign-out ended nothing")

    def sign_out() -> dict:
        session_acts.sign_out(Authority(store, COMMAND), ada.id)
        return families[0]

    last = race(*[functools.partial(keep_refreshing, each) for each in families], sign_out)
    assert not any(is_good(mail, each) or has_access(mail, each) for each in last)
    assert store.users.read(ada.id).grants[mail.id].families == []


@on_each_backend
@pytest.mark.parametrize("everywhere", [True, False])
def test_exchange_beside_an_end_starts_no_family(
    mail, adas_browser, store, ada, monkeypatch, everywhere
):
    """Between the two writes of an exchange: the second one, of the player, sees what ended."""
    code, expiry = adas_browser.allow(mail, scope=SCOPE), refresh_tokens.expiry

    def end_first(*given) -> int:
        by = Authority(store, COMMAND)
        session_acts.sign_out(by, ada.id) if everywhere else accounts.suspend(by, ada.id, "x", None)
        return expiry(*given)

    monkeypatch.setattr(refresh_tokens, "expiry", end_first)
    assert error_of(mail.exchange_standard(code)) == "invalid_grant"
    assert store.records(FAMILIES).ids() == []


def test_code_from_before_a_sign_out_gives_nothing(mail, adas_browser):
    """Also if there is nothing else to sign out."""
    code = adas_browser.allow(mail, scope=SCOPE)
    adas_browser.post("/account/sign-out-others")
    assert error_of(mail.exchange_standard(code)) == "invalid_grant"


@on_each_backend
def test_exchange_that_was_interrupted_gives_the_same_token(mail, adas_browser, store, monkeypatch):
    """The response did not come, and the client sends the code again."""
    code = adas_browser.allow(mail, scope=SCOPE)
    with monkeypatch.context() as patch:
        patch.setattr(store.codes, "spend", fail)
        assert mail.exchange_standard(code).status_code == 503
    [family] = store.records(FAMILIES).ids()
    tokens = mail.exchange_standard(code).json
    assert id_of(tokens) == family and len(store.records(FAMILIES).ids()) == 1
    assert has_access(mail, renew(mail, tokens))


def test_refresh_that_cannot_be_saved_changes_nothing(mail, adas_browser, store, monkeypatch):
    """The client gets 503, and its token stays good."""
    tokens = start(mail, adas_browser)
    with monkeypatch.context() as patch:
        patch.setattr(store.records(FAMILIES), "save", fail)
        refused = refresh(mail, tokens["refresh_token"])
    assert (refused.status_code, refused.json["error"]) == (503, "temporarily_unavailable")
    assert "Retry-After" in refused.headers
    assert has_access(mail, renew(mail, tokens))


# -- what the player sees -----------------------------------------------------------------------


def rows(browser) -> dict[str, list[str]]:
    """Return name and last use of each app on the security page, by what its button sends."""
    soup = parse(browser.get("/account/security"))
    found = {}
    for field in soup.select("h3 + ul [name=session]"):
        row = field.find_parent("li")
        label = row.button["aria-label"]
        texts = [each.text for each in row.select("p")]
        assert row.button.text == "Sign out" and label == "Sign out: {}. {}".format(*texts)
        found[field["value"]] = texts
    return found


def test_security_page_shows_where_apps_stay_signed_in(
    mail, other, adas_browser, add_device, clock, faults
):
    """Each with the browser that allowed it, the network and the time of the last use."""
    page, all_others = adas_browser.get("/account/security").text, "Sign out the others"
    assert "stay signed in as you" not in page and all_others not in page
    adas_browser.environ_base["HTTP_USER_AGENT"] = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"
    adas_browser.post("/sign-out")
    adas_browser.sign_in()
    first = start(mail, adas_browser)
    adas_browser.get(mail.link(scope=SCOPE))  # a code that nobody exchanges is no sign-in
    device = add_device("Console")
    console = start_on_device(device, adas_browser, "offline_access").json
    clock.shift(7200)
    wiki = start(other, adas_browser)
    forms.from_address(mail.http, "2001:db8:12:3400:1:2:3:4")
    clock.shift(7200)
    renew(mail, renew(mail, first))
    assert rows(adas_browser) == {
        id_of(first): [
            "Mail",
            "Allowed in Firefox on Linux. Last used in the last hour, from 2001:db8:12:3400::",
        ],
        id_of(wiki): ["Wiki", "Allowed in Firefox on Linux. Last used 2 hours ago, from 127.0.0.1"],
        id_of(console): ["Console", "Another device. Last used 4 hours ago, from 127.0.0.1"],
    }
    assert [*rows(adas_browser)] == [id_of(each) for each in (first, wiki, console)]
    assert all_others in adas_browser.get("/account/security").text
    assert "Signed out there." in end_here(adas_browser, id_of(first))
    faults.damage_client(other.id)
    assert [*rows(adas_browser)] == [id_of(console)]
    clock.shift(30 * DAY)
    adas_browser.sign_in()
    assert rows(adas_browser) == {}


def test_command_shows_both_kinds_and_ends_one(tmp_path, mail, other, adas_browser, app, store):
    installation = Installation(tmp_path)
    installation.environment |= {
        f"IDENTITY_{name}": app.config[name] for name in ("DATA_DIR", "PICTURE_DIR", "STORAGE")
    }
    first, wiki = start(mail, adas_browser), start(other, adas_browser)
    listed = installation.record("user", "sessions", "ada")
    [browser, *others] = listed
    assert [each.keys() for each in listed] == [
        {"id", "app", "browser", "address", "since", "lastUse"}
    ] * 3
    assert (browser["app"], browser["address"]) == ("", "127.0.0.1")
    assert {each["id"]: each["app"] for each in others} == {
        id_of(first): "Mail",
        id_of(wiki): "Wiki",
    }
    shown = installation.output("user", "sessions", "ada")
    assert all(each["id"] in shown for each in listed) and "Mail" in shown
    refusal = installation.refusal("user", "sessions", "ada", "--end", "x" * 16)
    assert refusal == "Ada is not signed in with this id"
    left = installation.record("user", "sessions", "ada", "--end", id_of(first))
    assert [each["id"] for each in left] == [browser["id"], id_of(wiki)]
    assert not is_good(mail, first) and is_good(other, wiki)
    installation.run("user", "sessions", "ada", "--end", browser["id"])
    assert adas_browser.get("/account").status_code == 303 and is_good(other, wiki)
    installation.run("user", "sign-out", "ada")
    assert not is_good(other, wiki) and installation.record("user", "sessions", "ada") == []
    acts = [(each["act"], each["by"]) for each in store.audit.read()]
    assert [each for each in acts if "sign-out" in each[0]] == [
        *[("user sign-out-one", "command")] * 2,
        ("user sign-out", "command"),
    ]


# -- what the player is told --------------------------------------------------------------------


@pytest.mark.parametrize("muted", [False, True])
@with_mail
def test_player_is_told_of_the_first_sign_in_of_an_app(
    mail, other, adas_browser, add_device, store, ada, clock, muted
):
    """By a notice, and by a letter under the switch of those about new browsers."""
    edit(store.users, ada.id, email_verified=True, muted=["sign-in"] * muted)
    told, letters = [], []

    def news() -> list[str]:
        user, sent = store.users.read(ada.id), store.records(OUTBOX)
        told.append([each.text.partition(" ")[0] for each in user.notices])
        letters.append(sum("may stay signed" in sent.read(each).body for each in sent.ids()))
        edit(store.users, ada.id, notices=[])
        [sent.delete(each) for each in sent.ids()]
        return told[-1]

    adas_browser.allow(mail, scope="openid email")
    assert news() == []
    first = start(mail, adas_browser)
    assert news() == ["Mail"]
    start(mail, adas_browser)
    renew(mail, first)
    assert news() == []
    end_here(adas_browser, id_of(first))
    start(mail, adas_browser)
    assert news() == []
    start(other, adas_browser)
    assert news() == ["Wiki"]
    device = add_device("Console")
    for expected in (["Console"], []):
        start_on_device(device, adas_browser, "offline_access")
        assert news() == expected
    clock.shift(30 * DAY)  # all have expired
    adas_browser.sign_in()
    start(mail, adas_browser)
    assert news() == ["Mail"]
    assert letters == [0 if muted else len(each) for each in told]


@with_mail
def test_app_that_does_not_use_its_codes_tells_once_a_day(mail, adas_browser, store, ada, clock):
    edit(store.users, ada.id, email_verified=True)
    for hours, told in ((0, 1), (23, 1), (2, 2)):
        clock.shift(hours * 3600)
        adas_browser.allow(mail, scope=SCOPE)
        assert len(store.records(OUTBOX).ids()) == told


# -- a stolen session ---------------------------------------------------------------------------


@pytest.mark.parametrize("module", [identity_server, device], ids=["page", "device"])
def test_consent_of_a_session_that_ended_meanwhile_is_refused(
    module, mail, add_device, adas_browser, store, ada, monkeypatch
):
    """A thief can send the end of a form when the player has ended the stolen session."""

    def end_first(*args, **named) -> Grant:
        session_acts.sign_out(Authority(store, COMMAND), ada.id)
        return save_consent(*args, **named)

    console = add_device("Console")
    started = console.start(scope="offline_access").json
    shown = {
        identity_server: adas_browser.get(mail.link(scope=SCOPE)),
        device: test_device.look_up(adas_browser, started["user_code"]),
    }[module]
    monkeypatch.setattr(module, "save_consent", end_first)
    decide = {identity_server: adas_browser.decide}
    decide[device] = functools.partial(test_device.decide, adas_browser)
    done = decide[module](shown)
    assert done.status_code == 403 and "You were signed out meanwhile." in done.text
    assert store.users.read(ada.id).grants == {} and store.records(FAMILIES).ids() == []


def test_end_of_one_sign_in_is_told_to_its_app_alone(mail, other, adas_browser, store):
    for each in (mail, other):
        edit(store.clients, each.id, backchannel_logout_uri="https://all.example/told")
    first, _ = (start(each, adas_browser) for each in (mail, other))
    end_here(adas_browser, id_of(first))
    outbox = store.records(OUTBOX)
    assert [outbox.read(each).to for each in outbox.ids()] == [mail.id]
