"""The sign-up form: its fields and redirects: `pages.sign_up`. test_limits.py has its limits."""

import pytest
from forms import PASSWORD, hidden_field, is_signed_in, problems_of, sign_up, value_of

from identity.limits import EMAIL_QUESTIONS


@pytest.fixture
def app(make_app):
    """An app with open sign-up."""
    return make_app(SIGN_UP="open")


# -- fields ---------------------------------------------------------------------------------------

INVALID = {
    "name": [
        *("", "x", "x" * 31, "a@b", "root", "player7", "<b>", "a\u200bb", "-ada", "раypal", "../1"),
        *("ａｄｍｉｎ", "PLAYER٣", "Identity Server"),  # the last is the name of the site
    ],
    "email": ["", "nowhere", "a@", "@b", "a b@c", "a@b\x7f", "x" * 300],
    "password": ["", "elevenchars", "x" * 1025, f"{PASSWORD} gRaCe", "qwerty123456"],
}


@pytest.mark.parametrize("field", INVALID)
def test_invalid_field_shows_an_error_and_keeps_the_input(store, ada, browser, subtests, field):
    for typed in INVALID[field]:
        with subtests.test(typed=typed):
            fields = {"name": "Grace", "email": "grace@example.org", field: typed}
            page = sign_up(browser, **fields)
            assert (page.status_code, list(problems_of(page))) == (400, [field])
            assert value_of(page, "name") == fields["name"]
            assert value_of(page, "email") == fields["email"]
    assert store.users.ids() == [1]


def test_all_errors_are_shown_together(browser, ada):
    page = sign_up(browser, name="x", email="x", password="short")
    assert list(problems_of(page)) == ["name", "email", "password"]


def test_taken_name_or_email_is_409_after_normalization(store, ada, browser, subtests):
    problems = {
        "name": "Another player has this name. Choose a different one.",
        "email": "Another account has this email. Use a different one.",
    }
    for field, typed in (
        *(("name", each) for each in ("Ada", "ADA", " ada ", "Ａｄａ", "ａＤＡ")),
        *(("email", each) for each in ("ada@example.org", " ADA@EXAMPLE.ORG ", "ａda@example.org")),
    ):
        with subtests.test(field, typed=typed):
            page = sign_up(browser, **{field: typed})
            assert (page.status_code, problems_of(page)) == (409, {field: problems[field]})
            assert value_of(page, field) == typed
    assert store.users.ids() == [1]


def test_unsaved_session_signs_the_player_before_out(store, adas_browser, ada, faults):
    """Else whoever creates an account in another player's browser would go on as that player."""
    faults.refuse_saves("users")
    answer = sign_up(adas_browser)
    assert (answer.status_code, answer.location) == (303, "/sign-in?next=/account")
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


# -- redirects ------------------------------------------------------------------------------------


def test_next_is_kept_and_followed(browser, ada):
    page = browser.get("/sign-up?next=/a%3Fb%3D1%26c%3D%22")
    assert hidden_field(page, "next") == '/a?b=1&c="'
    assert hidden_field(browser.get("/sign-up?next=//evil.example"), "next") == "/"
    refused = sign_up(browser, name="x", next="/a?b=1&c=2")
    assert hidden_field(refused, "next") == "/a?b=1&c=2"
    assert sign_up(browser, next="/a?b=1&c=2").location == "/a?b=1&c=2"
    for query, leads_to in (("", "/"), ("?next=/account", "/account")):  # a signed-in player
        answer = browser.get(f"/sign-up{query}")
        assert (answer.status_code, answer.location) == (303, leads_to)
    browser.post("/sign-out")
    answer = sign_up(browser, name="Eve", email="e@example.org", next="//evil.example")
    assert answer.location == "/"
