"""Sign-up: the form, invitations, the first account: `pages.entry.sign_up`."""

import html
import re
from urllib.parse import parse_qs, urlencode

import fixtures
import pytest
from conftest import PASSWORD
from forms import hidden_field, is_signed_in, led_to, parse, problems_of, sign_up, value_of

from identity.access.links import issue_first_account_link
from identity.http.limits import EMAIL_QUESTIONS
from identity.site.formatting import format_time

DAY = 86_400  # seconds
app = fixtures.open_app


@pytest.fixture
def first_invite(app) -> str:
    with app.app_context():
        return issue_first_account_link(app.extensions["storage"], "").partition("invite=")[2]


def test_email_is_optional_unless_the_site_requires_it(app, store, ada, browser, open_browser):
    for name in ("Grace", "Heidi"):
        assert sign_up(open_browser(), name=name, email=" ").status_code == 303
        assert store.users.find_by_login(name).email == ""
    page = parse(browser.get("/sign-up"))
    assert page.find("label", {"for": "email"}).text == "Email (optional)"
    assert [each["name"] for each in page.select("[autofocus]")] == ["name"]
    app.config["EMAIL"] = "required"
    page = sign_up(browser, name="Ivan", email=" ")
    assert (page.status_code, list(problems_of(page))) == (400, ["email"])
    assert parse(page).find("label", {"for": "email"}).text == "Email"
    assert parse(page).find(id="email").has_attr("required")
    assert store.users.find_by_login("Ivan") is None


def test_email_is_no_name(browser, ada):
    """Browsers fill in an email where they see a user name; everybody would see it."""
    for path in ("/sign-up", "/account"):
        assert parse(browser.get(path)).find(id="name")["autocomplete"] == "nickname"
        browser.sign_in()


def test_all_errors_are_shown_together(browser, ada):
    page = sign_up(browser, name="x", email="x", password="short")
    assert list(problems_of(page)) == ["name", "email", "password"]


def test_address_is_stored_in_its_one_form(store, ada, browser, open_browser):
    assert sign_up(browser, email="grace@BÜCHER\u3002example").status_code == 303
    assert store.users.find_by_login("Grace").email == "grace@xn--bcher-kva.example"
    assert open_browser().sign_in("grace@bücher.example").status_code == 303


def test_unsaved_session_signs_the_player_before_out(store, adas_browser, ada, faults):
    """Else whoever creates an account in another player's browser would go on as that player."""
    faults.refuse_saves("users")
    assert led_to(sign_up(adas_browser)) == "/sign-in?next=/"
    assert store.users.find_by_login("Grace")
    faults.allow_saves()
    assert not is_signed_in(adas_browser)


def test_email_question_is_asked_last(app, store, ada, browser):
    """Only after the name and the invitation; what is refused before is not counted."""
    for _ in range(EMAIL_QUESTIONS + 1):
        page = sign_up(browser, name="Ada", email="ada@example.org")
        assert list(problems_of(page)) == ["name"]
    app.config["SIGN_UP"] = "invite"
    for _ in range(EMAIL_QUESTIONS + 1):
        page = sign_up(browser, email="ada@example.org", invite="unknown")
        assert (page.status_code, "email" in problems_of(page)) == (403, False)
    page = sign_up(browser, email="ada@example.org", invite=store.invites.issue(7))
    assert (page.status_code, list(problems_of(page))) == (409, ["email"])


def test_email_of_a_damaged_record_is_taken(browser, ada, faults):
    faults.damage_user(ada.id)
    for field, taken in (("name", "Ada"), ("email", "ada@example.org")):
        page = sign_up(browser, **{field: taken})
        assert (page.status_code, list(problems_of(page))) == (409, [field])


def test_next_is_kept_and_followed(browser, ada):
    page = browser.get("/sign-up?next=/a%3Fb%3D1%26c%3D%22")
    assert hidden_field(page, "next") == '/a?b=1&c="'
    assert hidden_field(browser.get("/sign-up?next=//evil.example"), "next") == "/"
    assert hidden_field(sign_up(browser, name="x", next="/a?b=1&c=2"), "next") == "/a?b=1&c=2"
    assert sign_up(browser, next="/a?b=1&c=2").location == "/welcome?next=%2Fa%3Fb%3D1%26c%3D2"
    for query, leads_to in (("", "/"), ("?next=/account", "/account")):  # a signed-in player
        assert led_to(browser.get(f"/sign-up{query}")) == leads_to
    browser.post("/sign-out")
    answer = sign_up(browser, name="Eve", email="e@example.org", next="//evil.example")
    assert answer.location == "/welcome"


def test_open_sign_up_needs_no_invitation(store, ada, browser, first_invite):
    assert browser.get("/sign-up").status_code == 200
    assert led_to(sign_up(browser)) == "/welcome"
    assert value_of(browser.get("/account"), "name") == "Grace"
    grace = store.users.find_by_login("grace")
    assert (grace.id, grace.name, grace.email) == (2, "Grace", "grace@example.org")
    assert (grace.mod_level, grace.flairs, grace.suspended) == (0, ["none"], False)
    assert grace.last_heartbeat == grace.created == grace.pfp_timestamp
    assert grace.password_hash.count("$") == 2 and PASSWORD not in grace.password_hash
    for i, invite in enumerate(["x", first_invite]):
        answer = sign_up(browser, invite=invite, name=f"New {i}", email=f"n{i}@example.org")
        assert answer.status_code == 303
        assert store.users.find_by_login(f"New {i}").mod_level == 0


def test_invalid_invitation_is_403(app, store, ada, browser, first_invite, subtests):
    for mode in ("invite", "closed"):
        app.config["SIGN_UP"] = mode
        for invite in ("", "x", "../../users/1", "é\0", first_invite):
            with subtests.test(mode, invite=invite):
                page = browser.get("/sign-up", query_string={"invite": invite})
                assert 'name="password"' not in page.text
                answer = sign_up(browser, invite=invite)
                assert (answer.status_code, 'name="password"' in answer.text) == (403, False)
    unused = store.invites.issue(7)  # which works on no closed site
    assert sign_up(browser, invite=unused).status_code == 403
    assert store.invites.find_unused(unused)
    assert store.users.ids() == [1]
    assert not is_signed_in(browser)


def test_signed_in_player_reads_what_an_invitation_is_for(app, store, clock, adas_browser):
    app.config["SIGN_UP"] = "invite"
    invite = store.invites.issue(7)
    expires = store.invites.find_unused(invite).ends
    page = adas_browser.get(f"/sign-up?invite={invite}&next=/play/x")
    assert (page.status_code, format_time(expires) in page.text) == (200, True)
    assert '<a class="button" href="/play/x">Continue</a>' in page.text
    answer = adas_browser.post("/sign-out", data={"next": hidden_field(page, "next")})
    assert sign_up(adas_browser, invite=invite).status_code == 303
    page = adas_browser.get(answer.location)  # it is used now
    assert "recognise this invitation" in page.text and "Sign out and" not in page.text


def test_invitation_is_valid_once_and_for_its_days(app, store, ada, browser, open_browser, clock):
    app.config["SIGN_UP"] = "invite"
    invite = store.invites.issue(2)
    for _ in range(2):  # opening the link does not use it
        page = browser.get(f"/sign-up?invite={invite}")
        assert f'name="invite" value="{invite}"' in page.text
    assert sign_up(browser, name="x", invite=invite).status_code == 400  # nor does an invalid form
    clock.shift(2 * DAY + 1)
    assert sign_up(browser, invite=invite).status_code == 403
    clock.shift(-61)
    assert sign_up(browser, invite=invite).status_code == 303
    again = sign_up(open_browser(), name="Heidi", email="h@example.org", invite=invite)
    assert (again.status_code, "may be used" in problems_of(again)["invite"]) == (403, True)
    assert 'name="password"' in paste(open_browser(), again, store.invites.issue(7)).text
    assert store.users.find_by_login("Grace").mod_level == 0
    assert store.users.ids() == [1, 2]


@pytest.fixture
def by_invitation(app, ada) -> None:
    app.config["SIGN_UP"] = "invite"


def find_link(page, words: str) -> str | None:
    """Return the target of the link with this text, or None."""
    found = re.search(f'<a href="([^"]*)">{words}</a>', page.text)
    return found and html.unescape(found[1])


def paste(browser, page, pasted: str):
    assert '<form method="get" action="/sign-up">' in page.text
    query = {"next": hidden_field(page, "next"), "invite": pasted}
    return browser.get("/sign-up", query_string=query)


def test_sign_in_page_links_to_sign_up_unless_closed(app, browser, ada, program):
    address = browser.get(program.link()).location
    query = parse_qs(urlencode({"next": program.link()}))
    for mode, words in (("open", "New here?"), ("invite", "Got an invitation?")):
        app.config["SIGN_UP"] = mode
        page = browser.get(address)
        assert parse_qs(find_link(page, "Create an account").partition("?")[2]) == query
        questions = ("New here?", "Got an invitation?")
        assert [each for each in questions if each in page.text] == [words]
    app.config["SIGN_UP"] = "closed"
    assert "/sign-up" not in browser.get(address).text


def test_pasted_invitation_continues_the_request(store, by_invitation, browser, program):
    invite = store.invites.issue(7)
    sign_in = browser.get(browser.get(program.link(state="a b&c")).location)
    sign_up_page = browser.get(find_link(sign_in, "Create an account"))
    assert "to continue to" in sign_up_page.text and "Space Game" in sign_up_page.text
    assert 'name="password"' not in sign_up_page.text
    for pasted in ("{}", " {}\n", "http://localhost/sign-up?invite={}", "/sign-up?invite={}&x=1#y"):
        form = paste(browser, sign_up_page, pasted.format(invite))
        assert hidden_field(form, "invite") == invite
    assert "https://space.example" in form.headers["Content-Security-Policy"]
    fields = {"invite": invite, "next": hidden_field(form, "next")}
    refused = sign_up(browser, name="x", **fields)
    assert "https://space.example" in refused.headers["Content-Security-Policy"]
    welcome = parse(browser.get(sign_up(browser, **fields).location))
    consent = browser.get(welcome.find("a", string="Continue")["href"])
    parameters = program.read_callback(browser.decide(consent))
    assert parameters["state"] == "a b&c"
    assert program.whois(program.token_for(parameters["code"])).json["name"] == "Grace"
    assert not store.invites.find_unused(invite)


@pytest.mark.parametrize("mode", ["open", "invite", "closed"])
def test_first_account_is_an_administrator_in_every_mode(app, store, browser, first_invite, mode):
    app.config["SIGN_UP"] = mode
    assert value_of(browser.get(f"/sign-up?invite={first_invite}"), "name") == ""
    assert store.users.is_new()
    answer = sign_up(browser, invite=first_invite)
    assert (answer.status_code, answer.location) == (303, "/welcome")
    explained = "open Admin, then Invitations" in browser.get(answer.location).text
    assert explained == (mode == "invite")
    assert store.users.read(1).mod_level == 2
    assert "Moderation" in browser.get("/users/1").text


def test_sign_up_before_the_first_account_is_403(app, store, browser):
    invite = store.invites.issue(7)
    for mode in ("open", "invite", "closed"):
        app.config["SIGN_UP"] = mode
        for tried in ("", invite):
            assert "This site is new" in browser.get(f"/sign-up?invite={tried}").text
            assert sign_up(browser, invite=tried).status_code == 403
    assert (store.users.is_new(), bool(store.invites.find_unused(invite))) == (True, True)


def test_first_account_link_is_403_after_that_account(app, store, ada, browser, first_invite):
    app.config["SIGN_UP"] = "invite"
    assert sign_up(browser, invite=first_invite).status_code == 403
    store.users.delete(ada.id)
    assert sign_up(browser, invite=first_invite).status_code == 403
    assert store.users.ids() == []
