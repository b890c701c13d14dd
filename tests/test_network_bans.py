"""Bans of networks: what can be banned, whom a ban hits, and who used a network lately."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import on_each_backend
from forms import (
    change_password,
    edit,
    hidden_field,
    led_to,
    parse,
    problems_of,
    set_by_link,
    sign_up,
    text_of,
)
from werkzeug.middleware.proxy_fix import ProxyFix

from identity.acts import accounts, applications, network_bans, recovery_codes
from identity.acts.actors import COMMAND, Actor, Authority, NotAllowed
from identity.acts.network_bans import BANS_ID, MOST_BANS, find_bans, must_wait
from identity.site.formatting import DAY, format_date
from model.door_records import NetworkBan, NetworkBans
from model.kind import DAY_MS
from model.kinds import NETWORK_BANS
from model.records import MODERATOR, PLAYER, Session, now_ms
from model.soundness import problems_in_record
from pages.entry.sign_in import WRONG

HERE, V6, ELSEWHERE = "192.0.2.7", "2001:db8:1:2::", "203.0.113.9"
FORM = {"days": "7", "reach": "0", "reason": "Bots."}


@pytest.fixture
def put(store):
    """A function that stores bans of networks, made now for a day."""

    def put(*networks: str, **fields) -> None:
        times = {"since": now_ms(), "until": now_ms() + DAY_MS, "by": "command", "reason": "Bots"}
        bans = [NetworkBan(each, **times | fields) for each in networks]
        store.records(NETWORK_BANS).put(NetworkBans(BANS_ID, bans))

    return put


@pytest.fixture
def moderator(enter):
    return enter("Morgan", MODERATOR)


def come_from(browser, address: str):
    browser.environ_base["REMOTE_ADDR"] = address
    return browser


TYPED = {
    "192.0.2.7": "192.0.2.7/32",
    " 192.0.2.7 / 24 \u200b": "192.0.2.0/24",
    "192.0.2.7/255.255.0.0": "192.0.0.0/16",
    "2001:DB8:0:1::7": "2001:db8:0:1::/64",
    "2001:db8:1:2:3::/128": "2001:db8:1:2::/64",
    "2001:db8:1:2::%x/64": "2001:db8:1:2::/64",
    "2001:db8:1:2::/48": "2001:db8:1::/48",
    "2001:db9::7/32": "2001:db9::/32",
}
KIND, SIZE, OWN = "Type an address like", "This network is too large.", "This network has your own"
REFUSED = dict.fromkeys(("", "x", "192.0.2", "192.0.2.7/", "192.0.2.7/33", "192.0.2.7/٢"), KIND)
REFUSED |= dict.fromkeys(("192.0.2.7:443", "::1/129", "192.0.2.7/-1", "1/2/3"), KIND)
REFUSED |= dict.fromkeys(("0.0.0.0/0", "10.0.0.0/15", "2001::/31", "::/0"), SIZE)
REFUSED |= dict.fromkeys(
    ("127.0.0.1", "127.0.0.0/16", "0.0.0.0", "169.254.1.1", "fe80::1%eth0"), OWN
)
REFUSED |= dict.fromkeys(("::", "::1", "::/32", "::ffff:0:0/96", "::ffff:127.0.0.1"), OWN)
REFUSED |= dict.fromkeys(("198.51.100.9", "198.51.0.0/16"), OWN)  # the moderator
REFUSED |= dict.fromkeys(("10.1.2.3", "10.1.0.0/16", "10.9.9.9", "2001:db8:f::/48"), OWN)  # proxies


def test_moderator_sees_the_network_before_it_is_banned(app, store, moderator, subtests):
    """Not their own, nor that of a proxy or of this machine."""
    sent = {"X-Forwarded-For": "192.0.2.1, 198.51.100.9, 10.9.9.9, [2001:db8:f::1]:99"}
    come_from(moderator, "10.1.2.3")
    app.config["PROXIES"] = 3
    wsgi_app, app.wsgi_app = app.wsgi_app, ProxyFix(app.wsgi_app, x_for=3)
    try:
        for typed, network in (TYPED | REFUSED).items():
            with subtests.test(typed):
                form = FORM | {"network": typed, "preview": "yes"}
                page = moderator.post("/admin/networks", data=form, headers=sent)
                if typed in TYPED:
                    assert page.status_code == 200
                    assert f"Ban {network} ?" in text_of(page)
                    assert hidden_field(page, "network") == network
                else:
                    assert page.status_code == 400
                    assert problems_of(page)["network"].startswith(network)
    finally:
        app.config["PROXIES"], app.wsgi_app = 0, wsgi_app
    own = moderator.post("/admin/networks", data=FORM | {"network": "10.1.2.0/24"})
    assert own.status_code == 400 and find_bans(store, HERE) == []


BANNED = ("192.0.2.0/24", "2001:db8:1::/48", "198.51.100.7/32")
ADDRESSES = {
    **dict.fromkeys(("192.0.2.0", "192.0.2.255", "2001:db8:1::", "2001:db8:1:ffff::"), True),
    **dict.fromkeys(("198.51.100.7",), True),
    **dict.fromkeys(("192.0.1.255", "192.0.3.0", "2001:db8:2::", "198.51.100.6"), False),
    **dict.fromkeys(("unknown", "", "\0", "192.0.2", "::192.0.2.7"), False),
}


@on_each_backend
def test_ban_is_found_by_each_address_of_its_network_until_it_ends(store, put, clock):
    put(*BANNED, "damaged", "192.0.2.7/24", "fe80::%x/64", "")
    assert {each: bool(find_bans(store, each)) for each in ADDRESSES} == ADDRESSES
    broken = problems_in_record(NETWORK_BANS, store.records(NETWORK_BANS).read(BANS_ID))
    expected = ["damaged", "192.0.2.7/24", ""]
    assert [*broken] == [f"{each!r} is no network" for each in expected]
    put("203.0.113.0/24")  # in place of those
    assert not find_bans(store, HERE) and find_bans(store, ELSEWHERE)
    clock.shift(DAY)
    assert find_bans(store, ELSEWHERE) == []


def test_strictest_of_several_bans_counts(store, put):
    put("192.0.2.0/24", waits=True)
    [mild] = find_bans(store, HERE)
    assert must_wait(store, HERE) and not must_wait(store, ELSEWHERE)
    strict = replace(mild, network="192.0.0.0/16", waits=False)
    for bans in ([mild, strict], [strict, mild]):
        store.records(NETWORK_BANS).put(NetworkBans(BANS_ID, bans))
        with pytest.raises(NotAllowed):
            must_wait(store, HERE)


WEEK = 7 * DAY_MS
# What an account is like, with its age when the network is banned, and if a ban hits it that
# reaches no day back, and one that reaches ten.
ACCOUNTS = {
    "made after the ban": ({"age": -1}, True, True),
    "made a week before": ({"age": WEEK}, False, True),
    "flatmate of a year": ({"age": 52 * WEEK}, False, False),
    "moderator": ({"age": -1, "mod_level": MODERATOR}, False, False),
    "let in after the ban": ({"age": -1, "application": f"{0:015d}-00000000"}, False, False),
    "let in a week before": ({"age": WEEK, "application": f"{0:015d}-00000000"}, False, True),
}


@pytest.mark.parametrize("account", ACCOUNTS)
def test_ban_refuses_sign_in_of_new_accounts_alone(store, put, ada, open_browser, clock, account):
    """Only who has the right password reads of the ban; from elsewhere it hits nobody."""
    fields, *hit = ACCOUNTS[account]
    others = {name: value for name, value in fields.items() if name != "age"}
    edit(store.users, ada.id, created=now_ms() - fields["age"], **others)
    for reach, is_hit in zip((0, 10), hit, strict=True):
        put("192.0.2.0/24", reach=reach, waits=True)
        wrong = come_from(open_browser(), HERE).sign_in(password="wrong")
        assert wrong.status_code == 403 and WRONG in wrong.text
        answer = come_from(open_browser(), HERE).sign_in()
        assert answer.status_code == (403 if is_hit else 303)
        if is_hit:
            day = format_date(now_ms() + DAY_MS)
            told = f"New accounts can't sign in from your network until {day}. The reason: Bots."
            assert told in text_of(answer)
        assert come_from(open_browser(), ELSEWHERE).sign_in().status_code == 303


def test_moderators_sign_in_where_the_list_is_damaged(store, put, ada, open_browser):
    put("192.0.2.0/24")
    Path(store.records(NETWORK_BANS).path(BANS_ID)).write_text("{")
    for level, status in ((PLAYER, 503), (MODERATOR, 303)):
        edit(store.users, ada.id, mod_level=level)
        assert open_browser().sign_in().status_code == status


def test_ban_refuses_links_and_codes_but_not_open_sessions(
    store, put, ada, adas_link, adas_browser, open_browser
):
    """And a code that is refused is not used up."""
    come_from(adas_browser, HERE)
    put("192.0.2.0/24", reach=30)
    code = recovery_codes.issue(Authority(store, Actor(ada.id)), ada.id)[0]
    browser = come_from(open_browser(), HERE)
    before = [*store.audit.lines()]
    assert set_by_link(browser, adas_link).status_code == 403
    assert [*store.audit.lines()] == before  # and a way back removes nothing before
    assert browser.sign_in(password=code).status_code == 403
    assert change_password(adas_browser).status_code == 303
    assert come_from(open_browser(), ELSEWHERE).sign_in(password=code).status_code == 303


def test_ban_refuses_sign_up_or_lets_it_wait(app, open_browser, ada, put):
    """Who has an account is not told first."""
    app.config["SIGN_UP"] = "open"
    browser = come_from(open_browser(), HERE)
    put("192.0.2.0/24")
    refused = sign_up(browser, email=ada.email)
    told = f"Nobody can join from your network until {format_date(now_ms() + DAY_MS)}."
    assert refused.status_code == 403
    assert problems_of(refused) == {"form": f"{told} The reason: Bots."}
    put("192.0.2.0/24", waits=True)
    assert led_to(sign_up(browser)) == "/application"


def test_bans_are_few_and_each_of_another_network(store, put, moderator, clock):
    """Those that have ended go at the next change."""

    def ban(network: str) -> int:
        return moderator.post("/admin/networks", data=FORM | {"network": network}).status_code

    put(*(f"10.0.{n // 256}.{n % 256}/32" for n in range(MOST_BANS)))
    assert ban("10.1.0.0") == 400
    assert "?after=50" in moderator.get("/admin/networks").text
    clock.shift(DAY)
    assert [ban("10.1.0.0"), ban("10.1.0.0/32"), ban("10.1.0.0/24")] == [303, 400, 303]
    kept = store.records(NETWORK_BANS).read(BANS_ID).bans
    assert [each.network for each in kept] == ["10.1.0.0/24", "10.1.0.0/32"]


@pytest.fixture
def evader(store, add_players, clock):
    """A suspended player whose three sessions ended, two of them in one network."""
    sessions = [Session(f"{n}", n, "x", n, each) for n, each in enumerate((HERE, V6, HERE, None))]
    [evader] = add_players("Out", sessions=sessions)
    accounts.suspend(Authority(store, COMMAND), evader.id, "Spam")
    networks = store.users.read(evader.id).suspension.networks
    clock.shift(DAY)
    accounts.suspend(Authority(store, COMMAND), evader.id, "Spam", days=3)
    assert store.users.read(evader.id).suspension.networks == networks  # with their times
    return evader


@on_each_backend
def test_accounts_from_networks_of_a_suspended_player_are_found(
    store, evader, add_players, enter, moderator, monkeypatch
):
    """By open sessions and sign-ups, newest first; not administrators."""
    assert [*store.users.read(evader.id).suspension.networks] == [HERE, V6]

    def came(name: str, address: str, **fields) -> None:
        add_players(name, sessions=[Session(name, 1, "x", 1, address)], **fields)

    came("Same", HERE)
    came("Beside", "192.0.2.99")
    came("Six", V6, created=now_ms())
    came("Boss", HERE, mod_level=2)
    came("Stranger", "192.0.3.7")
    [signed_up] = add_players("Signed up")
    store.audit.write("user sign-up", signed_up.id, user=signed_up.id, address=HERE)
    waits = applications.apply(store, True, name="Let in", email="", password_hash="", address=HERE)
    applications.approve(Authority(store, COMMAND), waits.id, now_ms())
    store.audit.write("user sign-up", 1, user=[], address=HERE)  # edited by hand
    store.audit.write("user sign-up", 1, user=evader.id, address={})
    assert "Look for them" in moderator.get(f"/users/{evader.id}").text
    page = moderator.post(f"/users/{evader.id}/networks")
    shown = parse(page).select("[role=status] a")
    names = ["Let in", "Six", "Signed up", "Same"]
    assert [each.text for each in shown] == [*names, f"Network {HERE}", f"Network {V6}"]
    assert "newest 10,000 accounts" in text_of(page)
    for link, network in zip(shown[4:], (HERE, V6), strict=True):
        assert parse(moderator.get(link["href"])).find(id="network")["value"] == network
    form = FORM | {"network": "192.0.2.0/24", "preview": "yes", "reach": "30"}
    edit(store.users, signed_up.id, created=now_ms())
    counted = text_of(moderator.post("/admin/networks", data=form))
    assert "6 accounts used this network lately. 2 of them" in counted
    monkeypatch.setattr(network_bans, "LOOKS", 3)
    codes = [moderator.post(f"/users/{evader.id}/networks").status_code for _ in range(2)]
    assert codes == [200, 429]
    assert enter("Member").post(f"/users/{evader.id}/networks").status_code == 403
