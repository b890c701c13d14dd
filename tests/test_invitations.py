"""Who may make an account, with an invitation or without: `pages.sign_up`."""

import html
import re
from urllib.parse import parse_qs, urlencode

import pytest
from forms import PASSWORD, is_signed_in, problems_of, race, sign_up, value_of

from identity import signing
from identity.links import issue_first_account_link

DAY = 86_400  # seconds


@pytest.fixture
def app(make_app):
    """The app, where anyone may make an account."""
    return make_app(SIGN_UP="open")


@pytest.fixture
def first_invite(app) -> str:
    """What the link that the server prints on an empty installation carries."""
    with app.app_context():
        return issue_first_account_link(app.extensions["storage"], "").partition("invite=")[2]


# -- who may --------------------------------------------------------------------------------------


def test_where_sign_up_is_open_anyone_makes_an_account_and_is_signed_in(store, ada, browser):
    assert browser.get("/sign-up").status_code == 200
    answer = sign_up(browser)
    assert (answer.status_code, answer.location) == (303, "/account")
    assert value_of(browser.get("/account"), "name") == "Grace"
    grace = store.find_user("grace")
    assert (grace.id, grace.name, grace.email) == (2, "Grace", "grace@example.org")
    assert (grace.mod_level, grace.flairs, grace.suspended) == (0, ["none"], False)
    assert grace.last_heartbeat == grace.created == grace.pfp_timestamp
    assert grace.password_hash.count("$") == 2 and PASSWORD not in grace.password_hash


@pytest.mark.parametrize("mode", ["invite", "closed"])
@pytest.mark.parametrize("invite", ["", "x", "../../users/1", "é\0"])
def test_where_sign_up_is_not_open_no_made_up_invite_helps(
    app, store, ada, browser, mode, invite, first_invite
):
    app.config["SIGN_UP"] = mode
    for tried in (invite, first_invite):
        page = browser.get("/sign-up", query_string={"invite": tried})
        assert 'name="password"' not in page.text
        answer = sign_up(browser, invite=tried)
        assert (answer.status_code, 'name="password"' in answer.text) == (403, False)
    assert store.user_ids() == [1]
    assert not is_signed_in(browser)


def test_where_sign_up_is_closed_a_good_invite_is_refused_and_stays_good(app, store, ada, browser):
    app.config["SIGN_UP"] = "closed"
    invite = store.issue_invite(7)
    assert sign_up(browser, invite=invite).status_code == 403
    assert store.is_good_invite(invite)


def test_the_query_of_the_address_makes_no_account(app, store, ada, browser):
    invite = store.issue_invite(7)
    app.config["SIGN_UP"] = "invite"
    query = {"name": "Grace", "email": "g@example.org", "password": PASSWORD, "invite": invite}
    assert browser.post("/sign-up", query_string=query).status_code == 403
    assert browser.get("/sign-up", query_string=query).status_code == 200
    assert (store.user_ids(), store.is_good_invite(invite)) == ([1], True)


def test_an_invite_is_good_once(app, store, ada, browser, open_browser):
    app.config["SIGN_UP"] = "invite"
    invite = store.issue_invite(7)
    for _ in range(2):  # opening the link spends nothing
        page = browser.get(f"/sign-up?invite={invite}")
        assert f'name="invite" value="{invite}"' in page.text
    assert sign_up(browser, name="x", invite=invite).status_code == 400  # nor does a mistake
    assert sign_up(browser, invite=invite).status_code == 303
    again = sign_up(open_browser(), name="Heidi", email="h@example.org", invite=invite)
    assert (again.status_code, "may be used" in again.text) == (403, True)
    assert store.find_user("Grace").mod_level == 0
    assert store.user_ids() == [1, 2]


def test_an_invite_ends_after_its_days(app, store, ada, browser, clock):
    app.config["SIGN_UP"] = "invite"
    invite = store.issue_invite(2)
    clock.ahead = 2 * DAY + 1
    assert sign_up(browser, invite=invite).status_code == 403
    clock.ahead = 2 * DAY - 60
    assert sign_up(browser, invite=invite).status_code == 303


def test_two_who_race_with_one_invite_make_one_account(
    app, store, ada, open_browser, meet_before_saving
):
    app.config["SIGN_UP"] = "invite"
    invite = store.issue_invite(7)
    browsers = [open_browser(), open_browser()]
    calls = [
        lambda i=i: sign_up(browsers[i], name=f"Racer {i}", email=f"r{i}@x.org", invite=invite)
        for i in range(2)
    ]
    answers = race(*calls)
    assert sorted(each.status_code for each in answers) == [303, 409]
    assert len(store.user_ids()) == 2
    assert sum(map(is_signed_in, browsers)) == 1


def test_where_sign_up_is_open_a_spent_invite_stops_nobody(store, ada, browser, first_invite):
    for i, invite in enumerate(["x", first_invite]):
        answer = sign_up(browser, invite=invite, name=f"New {i}", email=f"n{i}@example.org")
        assert answer.status_code == 303
        assert store.find_user(f"New {i}").mod_level == 0


# -- an invitation inside an authorization request ------------------------------------------------


@pytest.fixture
def by_invitation(app, ada) -> None:
    """The site has players, and others come by invitation."""
    app.config["SIGN_UP"] = "invite"


def link_on(page, words: str) -> str | None:
    """Where the link of these words leads."""
    found = re.search(f'<a href="([^"]*)">{words}</a>', page.text)
    return found and html.unescape(found[1])


def paste(browser, page, pasted: str):
    """Fill in the field for an invitation, and go on."""
    assert '<form method="get" action="/sign-up">' in page.text
    leads_to = html.unescape(re.search('name="next" value="([^"]*)"', page.text)[1])
    return browser.get("/sign-up", query_string={"next": leads_to, "invite": pasted})


@pytest.mark.parametrize(
    ("mode", "words"), [("open", "New here?"), ("invite", "Got an invitation?")]
)
def test_the_sign_in_page_leads_to_sign_up_and_keeps_where_that_leads(
    app, browser, ada, program, mode, words
):
    app.config["SIGN_UP"] = mode
    page = browser.get(browser.get(program.link()).location)
    query = urlencode({"next": program.link()})
    assert parse_qs(link_on(page, "Create an account").partition("?")[2]) == parse_qs(query)
    assert {each for each in ("New here?", "Got an invitation?") if each in page.text} == {words}


def test_where_sign_up_is_closed_the_sign_in_page_leads_nowhere_else(app, browser, ada):
    app.config["SIGN_UP"] = "closed"
    assert "/sign-up" not in browser.get("/sign-in").text


@pytest.mark.parametrize(
    "pasted", ["{}", " {}\n", "http://localhost/sign-up?invite={}", "/sign-up?invite={}&x=1#y"]
)
def test_who_pastes_an_invitation_inside_an_authorization_request_is_led_back_to_it(
    store, by_invitation, browser, program, pasted
):
    invite = store.issue_invite(7)
    sign_in = browser.get(browser.get(program.link(state="a b&c")).location)
    asked = browser.get(link_on(sign_in, "Create an account"))
    assert "to continue to" in asked.text and "Space Game" in asked.text
    assert 'name="password"' not in asked.text
    form = paste(browser, asked, pasted.format(invite))
    assert "https://space.example" in form.headers["Content-Security-Policy"]
    found = re.findall('type="hidden" name="([a-z]+)" value="([^"]*)"', form.text)
    hidden = {name: html.unescape(value) for name, value in found}
    assert hidden["invite"] == invite
    consent = browser.get(sign_up(browser, **hidden).location)
    told = program.read_callback(browser.decide(consent))
    assert told["state"] == "a b&c"
    assert program.whois(program.token_for(told["code"])).json["name"] == "Grace"
    assert not store.is_good_invite(invite)


@pytest.mark.parametrize("pasted", ["x", "http://localhost/sign-up?invite=", "é\0", "x" * 5000])
def test_an_invitation_that_is_none_is_told_beside_the_field_and_the_way_is_kept(
    by_invitation, browser, program, pasted
):
    leads_to = program.link()
    asked = browser.get("/sign-up", query_string={"next": leads_to})
    assert "You need an invitation" in asked.text and "problem" not in asked.text
    page = paste(browser, asked, pasted)
    if not pasted.endswith("="):
        assert problems_of(page)["invite"].startswith("We don't recognise this invitation.")
    assert 'name="password"' not in page.text
    assert f'name="next" value="{html.escape(leads_to)}"' in page.text


def test_an_invitation_that_was_used_meanwhile_can_be_replaced_by_another(
    store, by_invitation, browser, open_browser, program
):
    spent, good = (store.issue_invite(7) for _ in range(2))
    assert sign_up(open_browser(), invite=spent).status_code == 303
    page = sign_up(browser, name="Heidi", email="h@x.org", invite=spent, next=program.link())
    assert (page.status_code, list(problems_of(page))) == (403, ["invite"])
    assert 'name="password"' in paste(browser, page, good).text


def test_who_opened_the_link_and_signed_up_is_told_to_go_back_and_can_go_on(
    store, by_invitation, browser, program
):
    waiting = browser.get(program.link()).location  # a sign-in page, left open
    answer = sign_up(browser, invite=store.issue_invite(7))
    assert "If a game sent you here, go back to it." in browser.get(answer.location).text
    assert browser.get(waiting).location == program.link()
    assert program.read_callback(browser.decide(browser.get(program.link())))["code"]


# -- the first account ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["open", "invite", "closed"])
def test_the_first_link_makes_an_administrator_whatever_the_setting(
    app, store, browser, first_invite, mode
):
    app.config["SIGN_UP"] = mode
    page = browser.get(f"/sign-up?invite={first_invite}")
    assert value_of(page, "name") == ""
    assert store.is_new()
    assert sign_up(browser, invite=first_invite).status_code == 303
    told = "run: identity-server invite" in browser.get("/account").text
    assert told == (mode == "invite")
    assert store.read_user(1).mod_level == 2
    assert browser.get("/players").status_code == 200


@pytest.mark.parametrize("mode", ["open", "invite", "closed"])
def test_nobody_makes_an_account_before_the_first_one_is_made(app, store, browser, mode):
    app.config["SIGN_UP"] = mode
    invite = store.issue_invite(7)
    for tried in ("", invite):
        assert "This site is new" in browser.get(f"/sign-up?invite={tried}").text
        assert sign_up(browser, invite=tried).status_code == 403
    assert (store.is_new(), store.is_good_invite(invite)) == (True, True)


def test_a_forged_first_link_makes_no_account(app, store, browser, first_invite):
    with app.app_context():
        other_purpose = signing.serializer("session").dumps("")
    first, rest = first_invite[0], first_invite[1:]
    turned = ("B" if first == "A" else "A") + rest
    signature_turned = re.sub(
        r"\.([^.])([^.]*)$",
        lambda match: f".{'B' if match[1] == 'A' else 'A'}{match[2]}",
        first_invite,
    )
    for forged in (turned, signature_turned, other_purpose, first_invite[:-9], "..", "IiI.x.y"):
        assert forged != first_invite
        assert sign_up(browser, invite=forged).status_code == 403
    assert store.is_new()


@pytest.mark.parametrize("deleted", [False, True])
def test_the_first_link_is_dead_once_an_account_was_made(
    app, store, ada, browser, first_invite, deleted
):
    app.config["SIGN_UP"] = "invite"
    if deleted:
        store.delete_user(ada.id)
    assert sign_up(browser, invite=first_invite).status_code == 403
    assert store.find_user("Grace") is None


@pytest.mark.parametrize("mode", ["open", "invite", "closed"])
def test_two_who_race_with_the_first_link_make_one_administrator(
    app, store, open_browser, first_invite, meet_before_saving, mode
):
    app.config["SIGN_UP"] = mode
    browsers = [open_browser(), open_browser()]
    calls = [
        lambda i=i: sign_up(
            browsers[i], name=f"Racer {i}", email=f"r{i}@x.org", invite=first_invite
        )
        for i in range(2)
    ]
    answers = race(*calls)
    assert sorted(each.status_code for each in answers) == [303, 409]
    assert [store.read_user(each).mod_level for each in store.user_ids()] == [2]
