"""Accounts: sign-up, the account page, apps and browsers, a lost password: `pages.account`."""

import html
import io
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime

import pytest
from PIL import Image

import identity_sessions
from identity_sessions import Gate, issue_first_account_link, issue_sign_in_link
from pages import account
from storage import Grant, User, now_ms

PASSWORD = "correct horse battery staple"
ANOTHER = "a wholly different phrase"
NO_ADDRESS_HERE = ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/x", "/a\r\nb"]
DAY = 86_400  # seconds


@pytest.fixture
def app(make_app):
    """The app, where anyone may make an account."""
    return make_app(SIGN_UP="open")


@pytest.fixture
def first_invite(app) -> str:
    """What the link that the server prints on an empty installation carries."""
    with app.app_context():
        return issue_first_account_link().partition("invite=")[2]


@pytest.fixture
def adas_link(app, ada) -> str:
    """The address that the administrators gave Ada, who lost her password."""
    with app.app_context():
        return issue_sign_in_link(ada).removeprefix("http://localhost")


def sign_up(browser, **changes: str):
    """Send the sign-up form."""
    fields = {"name": "Grace", "email": "grace@example.org", "password": PASSWORD}
    return browser.post("/sign-up", data=fields | changes)


def set_by_link(browser, address: str, new_password: str = ANOTHER):
    """Send the form that a sign-in link leads to."""
    link = address.partition("link=")[2]
    return browser.post("/new-password", data={"link": link, "new_password": new_password})


def is_signed_in(browser) -> bool:
    """True where the account page is shown."""
    return browser.get("/account").status_code == 200


def problems_of(page) -> dict[str, str]:
    """What the page says is wrong, by the id of the field that it is tied to."""
    found = re.findall(r'<p class="problem" id="([\w-]+)-problem"[^>]*>([^<]*)<', page.text)
    assert len(re.findall('class="problem"', page.text)) == len(found)
    for name, _ in found:
        tied = f'aria-invalid="true" aria-describedby="{name}-problem' in page.text
        assert tied or name == "form" or name.endswith("-form")
    assert page.text.count("autofocus") == 1  # the first of them is announced
    return {name: html.unescape(problem) for name, problem in found}


def value_of(page, field: str) -> str:
    """What a field of the page holds."""
    [tag] = re.findall(rf'<input id="{field}"[^>]*>', page.text)
    return html.unescape(re.search(' value="([^"]*)"', tag)[1])


def from_address(browser, address: str):
    """The browser, as it comes from there."""
    browser.environ_base["REMOTE_ADDR"] = address
    return browser


def race(*calls) -> list:
    """What the calls return, made at once."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait(timeout=10)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.fixture
def meet_before_saving(monkeypatch) -> None:
    """Two requests that hash a password wait for each other: both have passed every check."""
    meeting = threading.Barrier(2)

    def hash_password(password: str) -> str:
        meeting.wait(timeout=10)
        return identity_sessions.hash_password(password)

    monkeypatch.setattr(account, "hash_password", hash_password)


# -- sign-up: who may -----------------------------------------------------------------------------


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
    invite = store.issue_invite(7, by="command")
    assert sign_up(browser, invite=invite).status_code == 403
    assert store.is_good_invite(invite)


def test_the_query_of_the_address_makes_no_account(app, store, ada, browser):
    invite = store.issue_invite(7, by="command")
    app.config["SIGN_UP"] = "invite"
    query = {"name": "Grace", "email": "g@example.org", "password": PASSWORD, "invite": invite}
    assert browser.post("/sign-up", query_string=query).status_code == 403
    assert browser.get("/sign-up", query_string=query).status_code == 200
    assert (store.user_ids(), store.is_good_invite(invite)) == ([1], True)


def test_an_invite_is_good_once(app, store, ada, browser, open_browser):
    app.config["SIGN_UP"] = "invite"
    invite = store.issue_invite(7, by="command")
    for _ in range(2):  # opening the link spends nothing
        page = browser.get(f"/sign-up?invite={invite}")
        assert f'name="invite" value="{invite}"' in page.text
    assert sign_up(browser, name="x", invite=invite).status_code == 400  # nor does a mistake
    assert sign_up(browser, invite=invite).status_code == 303
    again = sign_up(open_browser(), name="Heidi", email="h@example.org", invite=invite)
    assert (again.status_code, "was used" in again.text) == (403, True)
    assert store.find_user("Grace").mod_level == 0
    assert store.user_ids() == [1, 2]


def test_an_invite_ends_after_its_days(app, store, ada, browser, clock):
    app.config["SIGN_UP"] = "invite"
    invite = store.issue_invite(2, by="command")
    clock.ahead = 2 * DAY + 1
    assert sign_up(browser, invite=invite).status_code == 403
    clock.ahead = 2 * DAY - 60
    assert sign_up(browser, invite=invite).status_code == 303


def test_two_who_race_with_one_invite_make_one_account(
    app, store, ada, open_browser, meet_before_saving
):
    app.config["SIGN_UP"] = "invite"
    invite = store.issue_invite(7, by="command")
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
    assert store.read_user(1).mod_level == 2
    assert browser.get("/players").status_code == 200


@pytest.mark.parametrize("mode", ["open", "invite", "closed"])
def test_nobody_makes_an_account_before_the_first_one_is_made(app, store, browser, mode):
    app.config["SIGN_UP"] = mode
    invite = store.issue_invite(7, by="command")
    for tried in ("", invite):
        assert "This site is new" in browser.get(f"/sign-up?invite={tried}").text
        assert sign_up(browser, invite=tried).status_code == 403
    assert (store.is_new(), store.is_good_invite(invite)) == (True, True)


def test_a_forged_first_link_makes_no_account(app, store, browser, first_invite):
    with app.app_context():
        other_purpose = identity_sessions.serializer("session").dumps("")
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


# -- sign-up: what is typed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        *(
            ("name", typed)
            for typed in ("", "x", "x" * 31, "a@b", "root", "player7", "<b>", "a\u200bb")
        ),
        *(("name", typed) for typed in ("-ada", "раypal", "../1", "ａｄｍｉｎ", "PLAYER٣")),
        *(("email", typed) for typed in ("", "nowhere", "a@", "@b", "a b@c", "a@b\x7f", "x" * 300)),
        *(("password", typed) for typed in ("", "elevenchars", "x" * 1025, f"{PASSWORD} gRaCe")),
    ],
)
def test_a_field_that_breaks_its_rule_is_told_beside_it_and_the_rest_is_kept(
    store, ada, browser, field, typed
):
    page = sign_up(browser, **{field: typed})
    assert page.status_code == 400
    assert list(problems_of(page)) == [field]
    expected = {"name": "Grace", "email": "grace@example.org"}
    for name, value in (expected | {field: typed} if field != "password" else expected).items():
        assert value_of(page, name) == value
    assert store.user_ids() == [1]


def test_all_problems_are_told_at_once(browser, ada):
    page = sign_up(browser, name="x", email="x", password="short")
    assert list(problems_of(page)) == ["name", "email", "password"]
    assert problems_of(page)["name"] == "Name must have 2 to 30 characters."


def test_a_form_that_lacks_its_fields_is_shown_again(browser, ada):
    page = browser.post("/sign-up")
    assert (page.status_code, len(problems_of(page))) == (400, 3)


@pytest.mark.parametrize("changes", [{"name": "x"}, {"name": "Ada"}, {"email": "ada@example.org"}])
def test_a_refused_sign_up_never_shows_the_password_again(browser, ada, changes):
    page = sign_up(browser, password="tell nobody of this", **changes)
    assert page.status_code in (400, 409)
    assert "tell nobody" not in page.text


@pytest.mark.parametrize("name", ["Ada", "ADA", " ada ", "Ａｄａ", "ａＤＡ"])
def test_a_name_that_reads_like_a_taken_one_is_409_beside_the_field(store, ada, browser, name):
    page = sign_up(browser, name=name)
    assert page.status_code == 409
    assert problems_of(page) == {"name": "Name is taken."}
    assert value_of(page, "name") == name
    assert store.user_ids() == [1]


def test_sixteen_who_race_for_one_name_make_one_account(store, ada, open_browser):
    names = ["grace", "GRACE", "Ｇｒａｃｅ", "gRACE"] * 4

    def make(i: int) -> int:
        browser = from_address(open_browser(), f"192.0.2.{i}")
        return sign_up(browser, name=names[i], email=f"g{i}@example.org").status_code

    statuses = race(*(lambda i=i: make(i) for i in range(16)))
    assert statuses.count(303) == 1
    assert set(statuses) <= {303, 409, 503}  # busy: each worker takes four passwords at once
    assert len(store.user_ids()) == 2


def test_a_name_is_kept_as_nfkc_has_it(store, ada, browser):
    assert sign_up(browser, name=" Ｚｏｅ\u0301 ").status_code == 303
    assert store.find_user("zoé").name == "Zoé"


@pytest.mark.parametrize("email", ["ada@example.org", " ADA@EXAMPLE.ORG ", "ａda@example.org"])
def test_a_taken_email_is_told_beside_the_field(store, ada, browser, email):
    page = sign_up(browser, email=email)
    assert page.status_code == 409
    assert problems_of(page)["email"].startswith("Email belongs to another account.")
    assert store.user_ids() == [1]


def test_asking_for_a_taken_email_counts_like_a_wrong_password(browser, open_browser, ada):
    for _ in range(10):
        assert sign_up(browser, email="ada@example.org").status_code == 409
    page = sign_up(browser, email="ADA@example.org")
    assert page.status_code == 429
    assert 0 < int(page.headers["Retry-After"]) <= 1800
    assert "Too many" in problems_of(page)["form"]
    assert browser.sign_in("ada@example.org").status_code == 429
    elsewhere = from_address(open_browser(), "192.0.2.9")
    assert sign_up(elsewhere, email="ada@example.org").status_code == 409


def test_nobody_asks_for_more_than_a_hundred_emails(app, store, ada, browser):
    emails = [f"p{i}@example.org" for i in range(11)]
    for i, email in enumerate(emails):
        store.add_user(f"P {i}", email, "")
    statuses = [sign_up(browser, email=emails[i % 11]).status_code for i in range(101)]
    assert statuses == [409] * 100 + [429]


def test_an_email_that_is_free_is_not_counted(browser, ada):
    for _ in range(11):
        assert sign_up(browser, name="Ada").status_code == 409
    assert browser.sign_in("grace@example.org").status_code == 403
    assert sign_up(browser).status_code == 303


def test_ten_accounts_a_day_come_from_an_address(store, ada, open_browser, clock):
    def make(i: int, address: str):
        browser = from_address(open_browser(), address)
        return sign_up(browser, name=f"New {i}", email=f"n{i}@example.org")

    here = "2001:db8:0:1::"
    assert [make(i, f"{here}{i + 1}").status_code for i in range(10)] == [303] * 10
    refused = make(10, f"{here}ffff")
    assert (refused.status_code, len(store.user_ids())) == (429, 11)
    assert 0 < int(refused.headers["Retry-After"]) <= 2 * DAY
    assert list(problems_of(refused)) == ["form"]
    assert value_of(refused, "name") == "New 10"
    assert make(11, "192.0.2.9").status_code == 303
    clock.ahead += int(refused.headers["Retry-After"])
    assert make(12, here).status_code == 303


def test_a_sign_up_that_was_refused_is_none_of_the_ten(browser, ada):
    for changes in ({"name": "Ada"}, {"name": "x"}, {"password": "short"}) * 4:
        assert sign_up(browser, **changes).status_code in (400, 409)
    assert sign_up(browser).status_code == 303


def test_a_sign_up_that_cannot_be_saved_is_503_and_none_of_the_ten(browser, ada, tmp_path):
    lock = tmp_path / "instance" / "accounts.lock"
    lock.unlink()
    lock.mkdir()
    assert [sign_up(browser).status_code for _ in range(11)] == [503] * 11
    lock.rmdir()
    assert sign_up(browser).status_code == 303


def test_who_comes_when_it_is_busy_keeps_what_was_typed(browser, ada, monkeypatch):
    with monkeypatch.context() as busy:
        busy.setattr(account, "password_gate", Gate(0, 0))
        for _ in range(11):
            page = sign_up(browser)
            assert (page.status_code, value_of(page, "name")) == (503, "Grace")
            assert int(page.headers["Retry-After"]) > 0
    assert sign_up(browser).status_code == 303


# -- sign-up: where it leads ----------------------------------------------------------------------


def test_next_is_kept_and_followed(browser, ada):
    page = browser.get("/sign-up?next=/a%3Fb%3D1%26c%3D%22")
    assert 'name="next" value="/a?b=1&amp;c=&#34;"' in page.text
    refused = sign_up(browser, name="x", next="/a?b=1&c=2")
    assert 'name="next" value="/a?b=1&amp;c=2"' in refused.text
    assert sign_up(browser, next="/a?b=1&c=2").location == "/a?b=1&c=2"


@pytest.mark.parametrize("address", NO_ADDRESS_HERE)
def test_next_never_leads_to_another_site(browser, ada, address):
    page = browser.get("/sign-up", query_string={"next": address})
    assert 'name="next" value="/"' in page.text
    assert sign_up(browser, next=address).location == "/"


def test_sign_up_inside_an_authorization_request_leads_back_to_it(browser, ada, program):
    asked = program.link(state="a b&c")
    to_sign_in = browser.get(asked)
    page = browser.get(to_sign_in.location)
    to_sign_up = html.unescape(re.search('href="(/sign-up[^"]*)"', page.text)[1])
    form = browser.get(to_sign_up)
    assert "Space Game" in form.text
    assert "https://space.example" in form.headers["Content-Security-Policy"]
    next_ = html.unescape(re.search('name="next" value="([^"]*)"', form.text)[1])
    refused = sign_up(browser, name="x", next=next_)
    assert "https://space.example" in refused.headers["Content-Security-Policy"]
    consent = browser.get(sign_up(browser, next=next_).location)
    told = program.read_callback(browser.decide(consent))
    assert told["state"] == "a b&c"
    assert program.whois(program.token_for(told["code"])).json["name"] == "Grace"


# -- the account page -----------------------------------------------------------------------------


def save(browser, **changes: str):
    """Send the profile form."""
    return browser.post("/account", data=changes)


def test_a_profile_is_saved_and_the_page_says_so_once(store, adas_browser, ada):
    with store.edit_user(ada.id) as user:
        user.flairs.append("Champion")
    answer = save(adas_browser, name="Ada L", bio="Hello", equippedFlair="Champion")
    assert (answer.status_code, answer.location) == (303, "/account")
    assert "Your profile is saved." in adas_browser.get("/account").text
    assert "Your profile is saved." not in adas_browser.get("/account").text
    user = store.read_user(ada.id)
    assert (user.name, user.bio, user.equipped_flair) == ("Ada L", "Hello", "Champion")
    assert store.find_user("Ada") is None and store.find_user("ADA L").id == ada.id


def test_a_field_that_is_not_sent_stays(store, adas_browser, ada):
    save(adas_browser, bio="Hello")
    assert save(adas_browser, name="Ada B").status_code == 303
    assert save(adas_browser).status_code == 303
    user = store.read_user(ada.id)
    assert (user.name, user.bio, user.equipped_flair) == ("Ada B", "Hello", "none")


@pytest.mark.parametrize("name", ["Bob", "BOB", "Ｂｏｂ"])
def test_somebody_elses_name_is_409_and_nothing_is_saved(store, adas_browser, ada, bob, name):
    page = save(adas_browser, name=name, bio="typed")
    assert page.status_code == 409
    assert problems_of(page) == {"name": "Name is taken."}
    assert value_of(page, "name") == name and "typed" in page.text
    assert store.read_user(ada.id).bio == ""


def test_a_name_may_change_its_case(store, adas_browser, ada):
    assert save(adas_browser, name="ADA").status_code == 303
    assert store.find_user("ada").name == "ADA"


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("x" * 1000, "x" * 1000),
        ("é" * 1000, "é" * 1000),
        ("a\r\nb\r\n" * 250, "a\nb\n" * 250),  # 1,500 characters as browsers send them
        ("\r\n a\tb ", "\n a\tb "),
        ("</textarea><script>", "</textarea><script>"),
        ("", ""),
    ],
)
def test_a_bio_is_kept_as_it_was_typed(store, adas_browser, ada, typed, kept):
    assert save(adas_browser, bio=typed).status_code == 303
    assert store.read_user(ada.id).bio == kept
    page = adas_browser.get("/account")
    shown = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page.text, re.DOTALL)[1]
    assert html.unescape(shown) == kept


@pytest.mark.parametrize("bio", ["x" * 1001, "a\r\n" * 501, "a\0b", "a\rb", "a\x1b[2Jb", "\x85"])
def test_a_bio_that_is_too_long_or_has_control_characters_is_refused(store, adas_browser, ada, bio):
    page = save(adas_browser, name="Changed", bio=bio)
    assert page.status_code == 400
    assert list(problems_of(page)) == ["bio"]
    assert value_of(page, "name") == "Changed"
    assert store.read_user(ada.id) == store.find_user("Ada")


@pytest.mark.parametrize("flair", ["Champion", "", "NONE", "none ", "<b>"])
def test_only_a_flair_that_one_owns_can_be_equipped(store, adas_browser, ada, flair):
    page = save(adas_browser, equippedFlair=flair)
    assert page.status_code == 400
    assert problems_of(page) == {"flair": "Flair is not one of yours."}
    assert store.read_user(ada.id).equipped_flair == "none"


def test_the_form_changes_nothing_but_its_fields(store, adas_browser, ada):
    before = store.read_user(ada.id)
    changes = {"mod_level": "2", "flairs": "Champion", "email": "x@example.org", "id": "9"}
    assert save(adas_browser, **changes, play_ms="9", suspended="1").status_code == 303
    assert store.read_user(ada.id) == before


# -- what asks for the password -------------------------------------------------------------------

# What each form sends besides the password, and the name of the field that has it.
GUARDED = {
    "/account/email": ({"email": "new@example.org"}, "current_password"),
    "/account/password": ({"new_password": ANOTHER}, "current_password"),
    "/account/delete": ({}, "password"),
}


@pytest.fixture(params=GUARDED)
def guarded(request, adas_browser):
    """Sends one of the forms that ask for the password."""
    form, field = GUARDED[request.param]
    return lambda password: adas_browser.post(request.param, data={**form, field: password})


@pytest.mark.parametrize("password", ["", "wrong", PASSWORD.upper(), f"{PASSWORD} "])
def test_without_the_password_nothing_changes(store, ada, guarded, password):
    before = store.read_user(ada.id)
    page = guarded(password)
    assert page.status_code == 403
    assert list(problems_of(page).values()) == ["That is not your password."]
    assert store.read_user(ada.id) == before
    assert ANOTHER not in page.text


def test_the_limit_on_guessing_holds_wherever_a_password_is_asked(
    store, ada, guarded, open_browser
):
    before = store.read_user(ada.id)
    for _ in range(5):
        assert guarded("wrong").status_code == 403
        assert open_browser().sign_in(password="wrong").status_code == 403
    page = guarded(PASSWORD)
    assert page.status_code == 429
    assert 0 < int(page.headers["Retry-After"]) <= 1800
    assert "Too many wrong passwords" in page.text
    assert store.read_user(ada.id) == before


def test_right_passwords_are_not_counted(store, adas_browser, ada):
    for i in range(11):
        data = {"email": f"a{i}@example.org", "current_password": PASSWORD}
        assert adas_browser.post("/account/email", data=data).status_code == 303
    assert store.read_user(ada.id).email == "a10@example.org"


def test_the_form_that_was_refused_keeps_the_email_and_never_the_password(adas_browser):
    data = {"email": "new@example.org", "current_password": "tell nobody"}
    page = adas_browser.post("/account/email", data=data)
    assert value_of(page, "email") == "new@example.org"
    assert "tell nobody" not in page.text


# -- email ----------------------------------------------------------------------------------------


def change_email(browser, email: str):
    """Send the form, with the right password."""
    return browser.post("/account/email", data={"email": email, "current_password": PASSWORD})


def test_a_new_email_signs_in_and_the_old_one_is_free(store, adas_browser, open_browser, ada):
    assert change_email(adas_browser, " Lovelace@example.org ").status_code == 303
    assert store.read_user(ada.id).email == "Lovelace@example.org"
    assert open_browser().sign_in("lovelace@example.org").status_code == 303
    assert open_browser().sign_in("ada@example.org").status_code == 403
    assert sign_up(open_browser(), email="ada@example.org").status_code == 303


def test_an_email_may_change_its_case_and_is_not_counted(store, adas_browser, ada):
    for i in range(12):
        email = "ADA@example.org" if i % 2 else "Ada@example.org"
        assert change_email(adas_browser, email).status_code == 303
    assert store.read_user(ada.id).email == "ADA@example.org"


def test_somebody_elses_email_is_409_and_counts_like_a_wrong_password(
    store, adas_browser, ada, bob
):
    for _ in range(10):
        page = change_email(adas_browser, "BOB@example.org")
        assert page.status_code == 409
        assert list(problems_of(page)) == ["email"]
    assert change_email(adas_browser, "bob@example.org").status_code == 429
    assert store.read_user(ada.id).email == "ada@example.org"


@pytest.mark.parametrize("email", ["", "nowhere", "a@b c", "a@b\r\nc"])
def test_what_is_no_email_is_400(store, adas_browser, ada, email):
    assert change_email(adas_browser, email).status_code == 400
    assert store.read_user(ada.id).email == "ada@example.org"


# -- password and sessions ------------------------------------------------------------------------


def change_password(browser, new_password: str = ANOTHER):
    """Send the form, with the right password."""
    data = {"current_password": PASSWORD, "new_password": new_password}
    return browser.post("/account/password", data=data)


def test_a_new_password_ends_every_other_session_and_keeps_this_one(
    store, adas_browser, open_browser, ada
):
    other = open_browser()
    other.sign_in()
    stolen = open_browser()
    stolen.set_cookie("session", adas_browser.get_cookie("session").value)
    assert is_signed_in(stolen)
    assert change_password(adas_browser).status_code == 303
    assert [is_signed_in(each) for each in (adas_browser, other, stolen)] == [True, False, False]
    assert len(store.read_user(ada.id).sessions) == 1
    assert other.sign_in().status_code == 403
    assert other.sign_in(password=ANOTHER).status_code == 303


@pytest.mark.parametrize("new", ["", "short", "x" * 1025])
def test_a_new_password_keeps_the_rules(store, adas_browser, ada, new):
    before = store.read_user(ada.id)
    page = change_password(adas_browser, new)
    assert page.status_code == 400
    assert list(problems_of(page)) == ["new-password"]
    assert store.read_user(ada.id) == before


def test_a_new_password_does_not_contain_the_name(store, adas_browser, ada):
    store.rename_user(ada.id, "Lovelace")
    adas_browser.sign_in("Lovelace")
    assert change_password(adas_browser, "i am LOVELACE and fine").status_code == 400


def test_of_two_password_changes_at_once_one_is_told_that_it_lost(
    store, adas_browser, open_browser, ada, meet_before_saving
):
    other = open_browser()
    other.sign_in()
    answers = race(
        lambda: change_password(adas_browser, f"{ANOTHER} 1"),
        lambda: change_password(other, f"{ANOTHER} 2"),
    )
    assert sorted(each.status_code for each in answers) == [303, 409]
    won = [each.status_code == 303 for each in answers].index(True)
    assert open_browser().sign_in(password=f"{ANOTHER} {won + 1}").status_code == 303
    assert open_browser().sign_in(password=f"{ANOTHER} {2 - won}").status_code == 403


def test_sign_out_everywhere_ends_all_sessions(store, adas_browser, open_browser, ada, bob):
    other, bobs = open_browser(), open_browser()
    other.sign_in()
    bobs.sign_in("Bob")
    cookie = adas_browser.get_cookie("session").value
    answer = adas_browser.post("/account/sign-out-everywhere")
    assert answer.status_code == 303
    assert adas_browser.get_cookie("session") is None
    stolen = open_browser()
    stolen.set_cookie("session", cookie)
    assert [is_signed_in(each) for each in (adas_browser, other, stolen, bobs)] == [
        *(False, False, False, True)
    ]
    assert store.read_user(ada.id).sessions == []


# -- export ---------------------------------------------------------------------------------------


def test_the_export_has_everything_but_what_opens_a_door(store, adas_browser, ada, program):
    adas_browser.allow(program, scope="email")
    answer = adas_browser.get("/account/export")
    assert answer.content_type == "application/json"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["Cache-Control"] == "no-store"
    user = store.read_user(ada.id)
    exported = json.loads(answer.text)
    assert set(exported) == {each.name for each in fields(User)} - {"password_hash"}
    for name in exported.keys() - {"grants", "sessions"}:
        assert exported[name] == getattr(user, name)
    assert exported["grants"][program.id]["scope"] == ["userinfo", "email"]
    assert len(exported["sessions"]) == 1
    secrets = [user.password_hash, user.sessions[0].id, user.grants[program.id].id]
    assert not any(each in answer.text for each in secrets)


def test_the_export_needs_a_session(browser, ada):
    assert browser.get("/account/export").status_code == 303


# -- deleting -------------------------------------------------------------------------------------


def delete(browser):
    """Send the form that deletes the account, with the right password."""
    return browser.post("/account/delete", data={"password": PASSWORD})


def test_a_deleted_account_ends_its_sessions_and_tokens(
    store, adas_browser, open_browser, ada, program
):
    other = open_browser()
    other.sign_in()
    token = program.token_for(adas_browser.allow(program))
    code = adas_browser.allow(program)
    assert delete(adas_browser).status_code == 303
    assert adas_browser.get_cookie("session") is None
    assert not is_signed_in(adas_browser) and not is_signed_in(other)
    assert program.whois(token).status_code == 401
    assert program.exchange(code).status_code == 400
    assert open_browser().sign_in().status_code == 403
    assert store.user_ids() == []


def test_a_deleted_account_frees_name_and_email_and_its_id_never_comes_back(
    store, adas_browser, browser, ada, tmp_path, anyone
):
    picture = f"/pfp/large/1-{ada.pfp_timestamp}.webp"
    assert anyone.get(picture).status_code == 200
    delete(adas_browser)
    assert anyone.get(picture).status_code == 404
    assert [each for each in (tmp_path / "pfp").rglob("*") if each.is_file()] == []
    assert anyone.get("/api/users/info?id=1").status_code == 404
    assert sign_up(browser, name="Ada", email="ada@example.org").status_code == 303
    assert store.find_user("Ada").id == 2
    kept = (tmp_path / "instance" / "users").iterdir()
    assert [each.name for each in kept] == ["2.json"]


def test_the_last_administrator_cannot_delete_the_account(store, adas_browser, ada, bob):
    with store.edit_user(ada.id) as user:
        user.mod_level = 2
    with store.edit_user(bob.id) as user:
        user.mod_level, user.suspended = 2, True  # does not count: cannot sign in
    page = delete(adas_browser)
    assert (page.status_code, list(problems_of(page))) == (409, ["delete-form"])
    assert store.read_user(ada.id).name == "Ada"
    with store.edit_user(bob.id) as user:
        user.suspended = False
    assert delete(adas_browser).status_code == 303


# -- pictures -------------------------------------------------------------------------------------


def encode(image: Image.Image, format_: str = "PNG") -> bytes:
    content = io.BytesIO()
    image.save(content, format_)
    return content.getvalue()


RED = encode(Image.new("RGB", (40, 30), (255, 0, 0)))
REFUSED_UPLOADS = {
    "no field": (None, 400),
    "empty": (b"", 400),
    "truncated": (RED[:-30], 400),
    "text": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415),
    "pdf": (b"%PDF-1.7\n", 415),
    "too many pixels": (encode(Image.new("1", (5001, 5000))), 422),
    "a byte too many": (RED + bytes(8 * 2**20 + 1 - len(RED)), 413),
    "far too many bytes": (RED + bytes(9 * 2**20), 413),
}


def upload(browser, content: bytes | None, name: str = "me.png"):
    """Send the picture form, with a file or without one."""
    head = f'--x\r\nContent-Disposition: form-data; name="picture"; filename="{name}"\r\n\r\n'
    field = b"" if content is None else head.encode() + content + b"\r\n"
    form_type = "multipart/form-data; boundary=x"
    return browser.post("/account/picture", data=field + b"--x--\r\n", content_type=form_type)


@pytest.fixture
def picture_files(tmp_path):
    """The picture files that there are, and what they hold."""
    folder = tmp_path / "pfp"

    def picture_files() -> dict[str, bytes]:
        found = (each for each in folder.rglob("*") if each.is_file())
        return {str(each.relative_to(folder)): each.read_bytes() for each in found}

    return picture_files


def generation(user: User) -> set[str]:
    """The names of the three files of a player's picture."""
    return {f"{size}/{user.id}-{user.pfp_timestamp}.webp" for size in ("large", "medium", "small")}


def test_an_upload_makes_three_files_of_a_new_timestamp_and_the_old_address_is_404(
    store, adas_browser, ada, anyone, picture_files
):
    answer = upload(adas_browser, RED, "../../x.html")
    assert (answer.status_code, answer.location) == (303, "/account")
    user = store.read_user(ada.id)
    assert user.pfp_timestamp > ada.pfp_timestamp
    assert picture_files().keys() == generation(user)
    for size, side in (("large", 256), ("medium", 64), ("small", 16)):
        assert anyone.get(f"/pfp/{size}/1-{ada.pfp_timestamp}.webp").status_code == 404
        shown = anyone.get(f"/pfp/{size}/1-{user.pfp_timestamp}.webp")
        image = Image.open(io.BytesIO(shown.data), formats=["WEBP"]).convert("RGB")
        assert image.size == (side, side)
        assert image.getpixel((side // 2, side // 2))[0] > 240
    assert f"/pfp/large/1-{user.pfp_timestamp}.webp" in adas_browser.get("/account").text


@pytest.mark.parametrize("kind", REFUSED_UPLOADS)
def test_a_refused_upload_is_told_beside_the_field_and_changes_nothing(
    store, adas_browser, ada, picture_files, kind
):
    content, status = REFUSED_UPLOADS[kind]
    before, files = store.read_user(ada.id), picture_files()
    page = upload(adas_browser, content)
    assert page.status_code == status
    assert list(problems_of(page)) == ["picture"]
    assert (store.read_user(ada.id), picture_files()) == (before, files)


def test_a_picture_that_is_no_file_is_400(store, adas_browser, ada):
    for data in ({"picture": "text"}, None):
        assert adas_browser.post("/account/picture", data=data).status_code == 400
    assert store.read_user(ada.id).pfp_timestamp == ada.pfp_timestamp


def test_a_picture_that_cannot_be_saved_leaves_the_old_one(
    store, adas_browser, ada, tmp_path, picture_files
):
    files = picture_files()
    users = tmp_path / "instance" / "users"
    kept = users.joinpath("1.json").read_bytes()
    locks = tmp_path / "instance" / "locks"
    locks.rename(locks.with_name("aside"))
    locks.touch()
    assert upload(adas_browser, RED).status_code == 503
    assert (users.joinpath("1.json").read_bytes(), picture_files()) == (kept, files)


def test_removing_the_picture_gives_the_generated_one_again(
    store, adas_browser, ada, picture_files
):
    generated = sorted(picture_files().values())
    upload(adas_browser, RED)
    uploaded = store.read_user(ada.id).pfp_timestamp
    assert adas_browser.post("/account/picture/remove").status_code == 303
    user = store.read_user(ada.id)
    assert user.pfp_timestamp > uploaded
    assert picture_files().keys() == generation(user)
    assert sorted(picture_files().values()) == generated


def test_changes_of_picture_and_profile_at_once_leave_one_generation_and_lose_nothing(
    store, adas_browser, open_browser, ada, picture_files
):
    browsers = [open_browser() for _ in range(3)]
    for each in browsers:
        each.sign_in()
    red = upload(browsers[0], RED).status_code

    def change(i: int) -> set[int]:
        return {upload(browsers[i], RED).status_code for _ in range(4)}

    def edit() -> set[int]:
        return {save(adas_browser, bio=f"bio {i}").status_code for i in range(8)}

    statuses = race(*(lambda i=i: change(i) for i in range(3)), edit)
    assert [red, *statuses] == [303, {303}, {303}, {303}, {303}]
    user = store.read_user(ada.id)
    assert user.bio == "bio 7"
    assert picture_files().keys() == generation(user)


# -- apps and browsers ----------------------------------------------------------------------------


def withdraw(browser, client_id: str):
    """Press the button beside an app."""
    return browser.post("/account/apps/withdraw", data={"client_id": client_id})


def test_the_apps_page_says_what_was_allowed_and_since_when(adas_browser, ada, program):
    adas_browser.allow(program, scope="userinfo email")
    page = adas_browser.get("/account/apps")
    today = datetime.now(UTC)
    assert "Space Game" in page.text
    assert "your public profile, your email address" in page.text
    assert f"since {today.day} {today:%B %Y}" in page.text


def test_the_ids_that_stop_tokens_are_not_on_the_apps_page(store, adas_browser, ada, program):
    adas_browser.allow(program)
    grant = store.read_user(ada.id).grants[program.id]
    assert grant.id not in adas_browser.get("/account/apps").text


def test_a_withdrawn_app_learns_nothing_more_at_once_and_has_to_ask_again(
    store, adas_browser, ada, program
):
    token = program.token_for(adas_browser.allow(program))
    code = adas_browser.allow(program)  # not exchanged yet
    assert program.whois(token).status_code == 200
    assert withdraw(adas_browser, program.id).status_code == 303
    assert program.whois(token).status_code == 401
    assert program.exchange(code).status_code == 400
    assert "Space Game" not in adas_browser.get("/account/apps").text
    assert adas_browser.get(program.link()).status_code == 200  # the consent page
    adas_browser.allow(program)
    assert program.whois(token).status_code == 401  # allowed anew, but not for this token


@pytest.mark.parametrize("client_id", ["", "x", "../1", "0" * 16])
def test_withdrawing_what_was_not_allowed_harms_nobody(
    store, adas_browser, open_browser, ada, bob, program, register, client_id
):
    other = register("https://other.example/callback", name="Other")
    bobs = open_browser()
    bobs.sign_in("Bob")
    token = other.token_for(bobs.allow(other))
    adas_browser.allow(program)
    before = store.read_user(ada.id).grants
    for each in (client_id, other.id):
        assert withdraw(adas_browser, each).status_code == 303
    assert store.read_user(ada.id).grants == before != {}
    assert other.whois(token).json["name"] == "Bob"


def test_an_app_that_is_registered_no_more_can_still_be_withdrawn(
    store, adas_browser, ada, program
):
    adas_browser.allow(program)
    store.delete_client(program.id, by="command")
    page = adas_browser.get("/account/apps")
    assert (page.status_code, "not registered any more" in page.text) == (200, True)
    withdraw(adas_browser, program.id)
    assert store.read_user(ada.id).grants == {}


def test_an_apps_name_is_text_and_never_markup(store, adas_browser, ada, register):
    program = register("https://x.example/", name="<script>x</script>")
    with store.edit_user(ada.id) as user:
        user.grants[program.id] = Grant("x", ["userinfo", "<b>"], now_ms())
    text = adas_browser.get("/account/apps").text
    assert "<script>x" not in text and "<b>" not in text
    assert "&lt;script&gt;x" in text


def test_one_browser_is_signed_out_and_the_others_stay(store, adas_browser, open_browser, ada):
    other, third = open_browser(), open_browser()
    other.post("/sign-in", data={"name": "Ada", "password": PASSWORD}, headers={"User-Agent": "x"})
    third.sign_in()
    sessions = [each.id for each in store.read_user(ada.id).sessions]
    page = adas_browser.get("/account/apps")
    assert re.findall('name="session" value="([^"]*)"', page.text) == sessions[::-1]
    assert page.text.count("this one") == 1
    answer = adas_browser.post("/account/sessions/end", data={"session": sessions[1]})
    assert answer.status_code == 303
    assert [is_signed_in(each) for each in (adas_browser, other, third)] == [True, False, True]


@pytest.mark.parametrize("session", ["", "x"])
def test_another_players_session_cannot_be_ended(
    store, adas_browser, open_browser, ada, bob, session
):
    bobs = open_browser()
    bobs.sign_in("Bob")
    for each in (session, store.read_user(bob.id).sessions[0].id):
        data = {"session": each, "user": bob.id}
        assert adas_browser.post("/account/sessions/end", data=data).status_code == 303
    assert is_signed_in(bobs) and is_signed_in(adas_browser)


def test_ending_the_session_in_use_signs_this_browser_out(store, adas_browser, ada):
    session = store.read_user(ada.id).sessions[0].id
    adas_browser.post("/account/sessions/end", data={"session": session})
    assert not is_signed_in(adas_browser)


# -- a lost password ------------------------------------------------------------------------------


def test_a_link_sets_a_new_password_once_and_ends_all_sessions(
    adas_browser, open_browser, ada, adas_link
):
    browser, thief = open_browser(), open_browser()
    for _ in range(3):  # chat programs open links, too
        page = browser.get(adas_link)
        assert (page.status_code, 'name="new_password"' in page.text) == (200, True)
    assert is_signed_in(adas_browser)
    assert set_by_link(browser, adas_link, "short").status_code == 400
    assert set_by_link(browser, adas_link).status_code == 303
    assert (is_signed_in(browser), is_signed_in(adas_browser)) == (True, False)
    assert 'name="new_password"' not in thief.get(adas_link).text
    assert set_by_link(thief, adas_link, "another phrase again").status_code == 403
    assert not is_signed_in(thief)
    assert open_browser().sign_in(password=ANOTHER).status_code == 303


def test_a_link_is_good_for_an_hour(browser, ada, adas_link, clock):
    clock.ahead = 3602
    assert "older than an hour" in browser.get(adas_link).text
    assert set_by_link(browser, adas_link).status_code == 403
    clock.ahead = 3590
    assert set_by_link(browser, adas_link).status_code == 303


def test_any_change_of_the_password_ends_a_link(adas_browser, open_browser, ada, adas_link):
    change_password(adas_browser)
    assert set_by_link(open_browser(), adas_link, "yet another phrase").status_code == 403
    assert is_signed_in(adas_browser)


def test_a_link_survives_a_new_name(store, browser, ada, adas_link):
    store.rename_user(ada.id, "Lovelace")
    assert "Lovelace" in browser.get(adas_link).text
    assert set_by_link(browser, adas_link).status_code == 303


@pytest.mark.parametrize("how", ["suspended", "deleted"])
def test_a_link_never_lifts_a_suspension_or_a_deletion(store, browser, ada, adas_link, how):
    if how == "deleted":
        store.delete_user(ada.id)
    else:
        with store.edit_user(ada.id) as user:
            user.suspended = True
    page = browser.get(adas_link)
    assert 'name="new_password"' not in page.text
    answer = set_by_link(browser, adas_link)
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (403, False)
    assert how == "deleted" or store.read_user(ada.id).password_hash == ada.password_hash


def test_two_who_race_with_one_link_set_one_password(
    open_browser, ada, adas_link, meet_before_saving
):
    browsers = [open_browser(), open_browser()]
    answers = race(
        lambda: set_by_link(browsers[0], adas_link, f"{ANOTHER} 1"),
        lambda: set_by_link(browsers[1], adas_link, f"{ANOTHER} 2"),
    )
    assert sorted(each.status_code for each in answers) in ([303, 403], [303, 409])
    assert sum(map(is_signed_in, browsers)) == 1


def test_a_forged_link_is_refused(app, store, browser, ada, bob, adas_link):
    signed = adas_link.partition("link=")[2]
    with app.app_context():
        dumps = identity_sessions.serializer("session").dumps
        loaded = identity_sessions.serializer("sign-in link").loads(signed)
        forged = [dumps(loaded), "", "x", "..", signed[:-9], "A" + signed[1:]]
        own = identity_sessions.serializer("sign-in link").dumps([bob.id, loaded[1] + "x"])
    for each in (*forged, own):
        assert browser.get("/new-password", query_string={"link": each}).status_code == 200
        assert set_by_link(browser, f"link={each}").status_code == 403
    assert store.read_user(ada.id).password_hash == ada.password_hash


def test_the_sign_in_page_says_whom_to_ask_for_a_lost_password(browser):
    assert "ask the people who run this site" in browser.get("/sign-in").text


# -- what holds for all of them -------------------------------------------------------------------

SIGNED_IN_POSTS = [
    *("/account", "/account/picture", "/account/picture/remove", "/account/email"),
    *("/account/password", "/account/delete", "/account/apps/withdraw", "/account/sessions/end"),
    "/account/sign-out-everywhere",
]


def test_these_are_all_the_posts_there_are(app):
    rules = [each for each in app.url_map.iter_rules() if "POST" in each.methods]
    ours = {each.rule for each in rules if each.endpoint.startswith("account.")}
    assert ours == {*SIGNED_IN_POSTS, "/sign-up", "/new-password"}


@pytest.mark.parametrize("path", [*SIGNED_IN_POSTS, "/account/apps"])
def test_who_is_signed_out_is_sent_to_sign_in(browser, ada, path):
    answer = browser.get(path) if path == "/account/apps" else browser.post(path)
    assert answer.status_code == 303
    back = path if path == "/account/apps" else "/account"
    assert answer.location.startswith("/sign-in?next=" + back)


@pytest.mark.parametrize("path", [*SIGNED_IN_POSTS, "/sign-up", "/new-password"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_post_from_another_site_changes_nothing(
    store, adas_browser, ada, program, adas_link, path, site
):
    adas_browser.allow(program)
    before = store.read_user(ada.id)
    data = {
        **{"name": "Grace", "bio": "x", "email": "g@example.org", "new_password": ANOTHER},
        **{"password": PASSWORD, "current_password": PASSWORD, "client_id": program.id},
        **{"session": before.sessions[0].id, "link": adas_link.partition("link=")[2]},
    }
    if path == "/account/picture":
        data = {"picture": (io.BytesIO(RED), "me.png")}
    answer = adas_browser.post(path, data=data, headers={"Sec-Fetch-Site": site})
    assert answer.status_code == 403
    assert (store.read_user(ada.id), store.user_ids()) == (before, [1])


def test_the_pages_are_not_stored_and_run_no_script_of_others(adas_browser, open_browser):
    pages = [adas_browser.get(each) for each in ("/account", "/account/apps", "/users/1")]
    pages += [open_browser().get(each) for each in ("/sign-up", "/new-password?link=x")]
    pages += [save(adas_browser, name="x"), sign_up(open_browser(), name="x")]
    for page in pages:
        assert page.headers["Cache-Control"] == "no-store"
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert not re.search(r"<style|<script(?! src=)|\sstyle=|\son[a-z]+=", page.text)


def test_what_was_typed_is_text_and_never_markup(adas_browser, open_browser):
    bad = "\"'><script>x</script>"
    pages = [
        sign_up(open_browser(), name=bad, email=bad, next=f"/{bad}", invite=bad),
        save(adas_browser, name=bad, bio=f"</textarea>{bad}\0"),
        adas_browser.post("/account/email", data={"email": bad}),
        open_browser().get("/new-password", query_string={"link": bad}),
    ]
    assert [page.status_code for page in pages] == [400, 400, 400, 200]
    assert not any("<script>x" in page.text for page in pages)
