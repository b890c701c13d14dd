"""Passwords: the forms that require one, password changes, rules and sign-in links."""

import pytest
from forms import (
    ANOTHER,
    PASSWORD,
    from_address,
    is_signed_in,
    problems_of,
    race,
    sign_up,
    value_of,
)

from identity.limits import ATTEMPTS_PER_NAME
from storage.records import Suspension


def set_by_link(browser, address: str, new_password: str = ANOTHER):
    """Submit the form of a sign-in link."""
    link = address.partition("link=")[2]
    return browser.post("/new-password", data={"link": link, "new_password": new_password})


# -- forms that require the password --------------------------------------------------------------

# The other fields of each form, and the name of its password field
PASSWORD_FORMS = {
    "/account/email": ({"email": "new@example.org"}, "current_password"),
    "/account/password": ({"new_password": ANOTHER}, "current_password"),
    "/account/delete": ({}, "password"),
}


@pytest.fixture(params=PASSWORD_FORMS)
def submit(request, adas_browser):
    """A function that submits one of PASSWORD_FORMS with this password."""
    form, field = PASSWORD_FORMS[request.param]
    return lambda password: adas_browser.post(request.param, data={**form, field: password})


@pytest.mark.parametrize("password", ["", "wrong", PASSWORD.upper(), f"{PASSWORD} "])
def test_wrong_password_is_403_and_changes_nothing(store, ada, submit, password):
    before = store.users.read(ada.id)
    page = submit(password)
    assert page.status_code == 403
    assert list(problems_of(page).values()) == ["Wrong password. Try again."]
    assert store.users.read(ada.id) == before
    assert ANOTHER not in page.text


def test_password_rate_limit_covers_every_password_form(store, ada, submit, open_browser):
    before = store.users.read(ada.id)
    for _ in range(5):
        assert submit("wrong").status_code == 403
        assert open_browser().sign_in(password="wrong").status_code == 403
    page = submit(PASSWORD)
    assert page.status_code == 429
    assert 0 < int(page.headers["Retry-After"]) <= 1800
    assert "Too many tries" in page.text
    assert store.users.read(ada.id) == before


def test_correct_passwords_are_not_rate_limited(store, adas_browser, ada):
    for i in range(11):
        data = {"email": f"a{i}@example.org", "current_password": PASSWORD}
        assert adas_browser.post("/account/email", data=data).status_code == 303
    assert store.users.read(ada.id).email == "a10@example.org"


def test_refused_form_keeps_the_email_but_not_the_password(adas_browser):
    data = {"email": "new@example.org", "current_password": "tell nobody"}
    page = adas_browser.post("/account/email", data=data)
    assert value_of(page, "email") == "new@example.org"
    assert "tell nobody" not in page.text


# -- password and sessions ------------------------------------------------------------------------


def change_password(browser, new_password: str = ANOTHER):
    """Submit the password form with the correct password."""
    data = {"current_password": PASSWORD, "new_password": new_password}
    return browser.post("/account/password", data=data)


def test_password_change_ends_all_other_sessions(store, adas_browser, open_browser, ada):
    other = open_browser()
    other.sign_in()
    stolen = open_browser()
    stolen.set_cookie("session", adas_browser.get_cookie("session").value)
    assert is_signed_in(stolen)
    assert change_password(adas_browser).status_code == 303
    assert [is_signed_in(each) for each in (adas_browser, other, stolen)] == [True, False, False]
    assert len(store.users.read(ada.id).sessions) == 1
    assert other.sign_in().status_code == 403
    assert other.sign_in(password=ANOTHER).status_code == 303


@pytest.mark.parametrize("new", ["", "short", "x" * 1025, "password1234"])
def test_invalid_new_password_is_400(store, adas_browser, ada, new):
    before = store.users.read(ada.id)
    page = change_password(adas_browser, new)
    assert page.status_code == 400
    assert list(problems_of(page)) == ["new-password"]
    assert store.users.read(ada.id) == before


def test_common_password_is_refused_in_every_form(
    store, adas_browser, open_browser, ada, adas_link
):
    """The name and the address of the site are among the words that attackers try first."""
    site = "Leave your name, your email and this site's name out of your password."
    for password, expected in (
        ("Password1234!", "Too common. Try three random words."),
        ("identityserver", site),
        ("at localhost now", site),
    ):
        for page in (
            change_password(adas_browser, password),
            set_by_link(open_browser(), adas_link, password),
            sign_up(open_browser(), password=password, invite=store.invites.issue(1)),
        ):
            [problem] = problems_of(page).values()
            assert problem == expected
            assert password not in page.text
    assert store.users.read(ada.id).password_hash == ada.password_hash


def test_new_password_containing_the_name_is_400(store, adas_browser, ada):
    store.users.rename(ada.id, "Lovelace")
    adas_browser.sign_in("Lovelace")
    assert change_password(adas_browser, "i am LOVELACE and fine").status_code == 400


def test_second_of_racing_password_changes_is_409(
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
    assert "Signed out everywhere." in adas_browser.get(answer.location).text
    assert adas_browser.get_cookie("session") is None
    stolen = open_browser()
    stolen.set_cookie("session", cookie)
    assert [is_signed_in(each) for each in (adas_browser, other, stolen, bobs)] == [
        *(False, False, False, True)
    ]
    assert store.users.read(ada.id).sessions == []


# -- a lost password ------------------------------------------------------------------------------


def test_sign_in_link_sets_a_password_once_and_ends_all_sessions(
    adas_browser, open_browser, ada, adas_link
):
    browser, other_browser = open_browser(), open_browser()
    for _ in range(3):  # chat programs open links for a preview
        page = browser.get(adas_link)
        assert (page.status_code, 'name="new_password"' in page.text) == (200, True)
    assert is_signed_in(adas_browser)
    assert set_by_link(browser, adas_link, "short").status_code == 400
    assert set_by_link(browser, adas_link).status_code == 303
    assert (is_signed_in(browser), is_signed_in(adas_browser)) == (True, False)
    assert 'name="new_password"' not in other_browser.get(adas_link).text
    assert set_by_link(other_browser, adas_link, "another phrase again").status_code == 403
    assert not is_signed_in(other_browser)
    assert open_browser().sign_in(password=ANOTHER).status_code == 303


def test_password_set_by_a_link_ends_the_lock_out_of_its_network(open_browser, ada, adas_link):
    """Ten tries by name and ten by email address: the player's other devices have to get in."""
    home, elsewhere = "2001:db8::1", "192.0.2.1"
    for address in (home, elsewhere):
        for name in ("Ada", "ada@example.org"):
            device = from_address(open_browser(), address)
            tries = [device.sign_in(name, "wrong").status_code for _ in range(ATTEMPTS_PER_NAME)]
            assert tries == [403] * ATTEMPTS_PER_NAME
            assert device.sign_in(name).status_code == 429
    assert set_by_link(from_address(open_browser(), "2001:db8::2"), adas_link).status_code == 303
    for name in ("ADA", "ada@example.org"):
        assert from_address(open_browser(), home).sign_in(name, ANOTHER).status_code == 303
        assert from_address(open_browser(), elsewhere).sign_in(name, ANOTHER).status_code == 429


def test_sign_in_link_expires_after_an_hour(clock, browser, ada, adas_link):
    clock.shift(3601)
    assert "recognise this link" in browser.get(adas_link).text
    assert set_by_link(browser, adas_link).status_code == 403
    clock.shift(-1)
    assert set_by_link(browser, adas_link).status_code == 303


def test_password_change_invalidates_the_sign_in_link(adas_browser, open_browser, ada, adas_link):
    change_password(adas_browser)
    assert set_by_link(open_browser(), adas_link, "yet another phrase").status_code == 403
    assert is_signed_in(adas_browser)


def test_sign_in_link_stays_valid_after_a_rename(store, browser, ada, adas_link):
    store.users.rename(ada.id, "Lovelace")
    assert "Lovelace" in browser.get(adas_link).text
    assert set_by_link(browser, adas_link).status_code == 303


@pytest.mark.parametrize("how", ["suspended", "deleted"])
def test_sign_in_link_of_a_suspended_or_deleted_user_is_403(store, browser, ada, adas_link, how):
    if how == "deleted":
        store.users.delete(ada.id)
    else:
        with store.users.edit(ada.id) as user:
            user.suspension = Suspension("command", reason="Insults")
    page = browser.get(adas_link)
    assert ("You are suspended. The reason: Insults." in page.text) == (how == "suspended")
    assert 'name="new_password"' not in page.text
    answer = set_by_link(browser, adas_link)
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (403, False)
    assert how == "deleted" or store.users.read(ada.id).password_hash == ada.password_hash


def test_racing_uses_of_a_sign_in_link_set_one_password(
    open_browser, ada, adas_link, meet_before_saving
):
    browsers = [open_browser(), open_browser()]
    answers = race(
        lambda: set_by_link(browsers[0], adas_link, f"{ANOTHER} 1"),
        lambda: set_by_link(browsers[1], adas_link, f"{ANOTHER} 2"),
    )
    assert sorted(each.status_code for each in answers) in ([303, 403], [303, 409])
    assert sum(map(is_signed_in, browsers)) == 1


def test_sign_in_page_explains_a_lost_password(app, browser):
    assert "Ask an administrator for a new one" in browser.get("/sign-in").text
    app.jinja_env.globals["about_url"] = "https://example.org/about"
    link = '<a href="https://example.org/about">Ask an administrator</a> for a new one'
    assert link in browser.get("/sign-in").text
