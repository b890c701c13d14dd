"""The sign-up form: its fields, rate limits and redirects: `pages.sign_up`."""

import html
import re

import pytest
from forms import PASSWORD, from_address, is_signed_in, problems_of, race, sign_up, value_of

from identity import limits
from identity.limits import ATTEMPTS_PER_NAME, EMAIL_QUESTIONS

DAY = 86_400  # seconds


@pytest.fixture
def app(make_app):
    """An app with open sign-up."""
    return make_app(SIGN_UP="open")


# -- fields and limits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        *(
            ("name", typed)
            for typed in ("", "x", "x" * 31, "a@b", "root", "player7", "<b>", "a\u200bb")
        ),
        *(("name", typed) for typed in ("-ada", "раypal", "../1", "ａｄｍｉｎ", "PLAYER٣")),
        ("name", "Identity Server"),  # of the site
        *(("email", typed) for typed in ("", "nowhere", "a@", "@b", "a b@c", "a@b\x7f", "x" * 300)),
        *(("password", typed) for typed in ("", "elevenchars", "x" * 1025, f"{PASSWORD} gRaCe")),
        ("password", "qwerty123456"),
    ],
)
def test_invalid_field_shows_an_error_and_keeps_the_input(store, ada, browser, field, typed):
    page = sign_up(browser, **{field: typed})
    assert page.status_code == 400
    assert list(problems_of(page)) == [field]
    expected = {"name": "Grace", "email": "grace@example.org"}
    for name, value in (expected | {field: typed} if field != "password" else expected).items():
        assert value_of(page, name) == value
    assert store.users.ids() == [1]


def test_all_errors_are_shown_together(browser, ada):
    page = sign_up(browser, name="x", email="x", password="short")
    assert list(problems_of(page)) == ["name", "email", "password"]
    assert (
        problems_of(page)["name"]
        == "Use 2 to 30 letters and numbers, with spaces, _ . - between them."
    )


def test_form_without_fields_is_400(browser, ada):
    page = browser.post("/sign-up")
    assert (page.status_code, len(problems_of(page))) == (400, 3)


@pytest.mark.parametrize("changes", [{"name": "x"}, {"name": "Ada"}, {"email": "ada@example.org"}])
def test_refused_sign_up_does_not_show_the_password(browser, ada, changes):
    page = sign_up(browser, password="tell nobody of this", **changes)
    assert page.status_code in (400, 409)
    assert "tell nobody" not in page.text


@pytest.mark.parametrize("name", ["Ada", "ADA", " ada ", "Ａｄａ", "ａＤＡ"])
def test_name_equal_to_a_taken_one_after_normalization_is_409(store, ada, browser, name):
    page = sign_up(browser, name=name)
    assert page.status_code == 409
    assert problems_of(page) == {"name": "Another player has this name. Choose a different one."}
    assert value_of(page, "name") == name
    assert store.users.ids() == [1]


def test_racing_sign_ups_with_one_name_create_one_account(store, ada, open_browser):
    names = ["grace", "GRACE", "Ｇｒａｃｅ", "gRACE"] * 4

    def make(i: int) -> int:
        browser = from_address(open_browser(), f"192.0.2.{i}")
        return sign_up(browser, name=names[i], email=f"g{i}@example.org").status_code

    statuses = race(*(lambda i=i: make(i) for i in range(16)))
    assert statuses.count(303) == 1
    assert set(statuses) <= {303, 409, 503}  # 503: each worker accepts four passwords at once
    assert len(store.users.ids()) == 2


def test_sign_up_without_a_session_signs_the_player_before_out(store, adas_browser, ada, faults):
    """Else whoever creates an account in another player's browser would go on as that player."""
    faults.refuse_saves("users")
    answer = sign_up(adas_browser)
    assert (answer.status_code, answer.location) == (303, "/sign-in?next=/account")
    assert store.users.find_by_login("Grace")
    faults.allow_saves()
    assert not is_signed_in(adas_browser)


def test_name_is_saved_in_nfkc(store, ada, browser):
    assert sign_up(browser, name=" Ｚｏｅ\u0301 ").status_code == 303
    assert store.users.find_by_login("zoé").name == "Zoé"


@pytest.mark.parametrize("email", ["ada@example.org", " ADA@EXAMPLE.ORG ", "ａda@example.org"])
def test_taken_email_is_409(store, ada, browser, email):
    page = sign_up(browser, email=email)
    assert page.status_code == 409
    assert problems_of(page)["email"] == "Another account has this email. Use a different one."
    assert store.users.ids() == [1]


def test_email_question_rate_limit_per_address(store, ada, open_browser, clock):
    """Hit or miss, of any email: the answer tells who has an account."""
    store.users.register("Bob", "bob@example.org", "")

    def ask(email: str, address: str = "192.0.2.1"):
        browser = from_address(open_browser(), address)
        return sign_up(browser, name=f"New {email.partition('@')[0]}", email=email)

    emails = ["eve@x.example", "mallory@x.example", *["ada@example.org", "bob@example.org"] * 9]
    assert [ask(each).status_code for each in emails] == [303] * 2 + [409] * 18
    for email in ("ada@example.org", "free@example.org"):
        refused = ask(email)
        assert refused.status_code == 429
        wait = int(refused.headers["Retry-After"])
        assert f"Try again in {-(-wait // 3600)} hours." in problems_of(refused)["form"]
    assert ask("ada@example.org", "192.0.2.9").status_code == 409
    clock.shift(wait)
    assert ask("free@example.org").status_code == 303


def test_email_question_rate_limit_per_ipv6_48_bit_network(open_browser, ada):
    addresses = [f"2001:db8:0:{number:x}::1" for number in range(42)]
    statuses = [
        sign_up(from_address(open_browser(), each), email="ada@example.org").status_code
        for each in addresses
    ]
    assert statuses == [409] * 40 + [429] * 2


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


def test_taken_email_does_not_count_as_a_wrong_password(browser, ada):
    """Otherwise a guest could keep the player of that email from signing in."""
    for _ in range(ATTEMPTS_PER_NAME):
        assert sign_up(browser, email="ada@example.org").status_code == 409
    assert browser.sign_in("ada@example.org").status_code == 303


def test_email_of_a_damaged_record_is_taken(browser, ada, faults):
    faults.damage_user(ada.id)
    for field, taken in (("name", "Ada"), ("email", "ada@example.org")):
        page = sign_up(browser, **{field: taken})
        assert (page.status_code, list(problems_of(page))) == (409, [field])


def test_sign_up_rate_limit_per_address(store, ada, open_browser, clock):
    def make(i: int, address: str):
        browser = from_address(open_browser(), address)
        return sign_up(browser, name=f"New {i}", email=f"n{i}@example.org")

    here = "2001:db8:0:1::"
    assert [make(i, f"{here}{i + 1}").status_code for i in range(10)] == [303] * 10
    refused = make(10, f"{here}ffff")
    assert (refused.status_code, len(store.users.ids())) == (429, 11)
    wait = int(refused.headers["Retry-After"])
    assert 0 < wait <= 2 * DAY
    [(field, problem)] = problems_of(refused).items()
    assert field == "form" and f"Try again in {-(-wait // 3600)} hours." in problem
    assert value_of(refused, "name") == "New 10"
    assert make(11, "192.0.2.9").status_code == 303
    clock.shift(wait)
    assert make(12, here).status_code == 303


def test_sign_up_rate_limit_per_ipv6_48_bit_network(ada, open_browser):
    def make(i: int) -> int:
        browser = from_address(open_browser(), f"2001:db8:0:{i:x}::1")
        return sign_up(browser, name=f"New {i}", email=f"n{i}@example.org").status_code

    assert [make(i) for i in range(22)] == [303] * 20 + [429] * 2


def test_refused_sign_up_is_not_counted(browser, ada):
    for changes in ({"name": "Ada"}, {"name": "x"}, {"password": "short"}) * 4:
        assert sign_up(browser, **changes).status_code in (400, 409)
    assert sign_up(browser).status_code == 303


def test_unsaved_sign_up_is_503_and_not_counted(browser, ada, faults):
    faults.refuse_saves("accounts")
    assert [sign_up(browser).status_code for _ in range(11)] == [503] * 11
    faults.allow_saves()
    assert sign_up(browser).status_code == 303


def test_sign_up_at_the_concurrency_limit_is_503_and_keeps_the_input(browser, ada, monkeypatch):
    with monkeypatch.context() as busy:
        busy.setattr(limits, "password_limit", limits.ConcurrencyLimit(0, 0))
        for _ in range(11):
            page = sign_up(browser)
            assert (page.status_code, value_of(page, "name")) == (503, "Grace")
            assert int(page.headers["Retry-After"]) > 0
    assert sign_up(browser).status_code == 303


# -- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "address"), [("", "/"), ("?next=/account", "/account")])
def test_signed_in_player_is_redirected_to_next(adas_browser, query, address):
    answer = adas_browser.get(f"/sign-up{query}")
    assert (answer.status_code, answer.location) == (303, address)


def test_next_is_kept_and_followed(browser, ada):
    page = browser.get("/sign-up?next=/a%3Fb%3D1%26c%3D%22")
    assert 'name="next" value="/a?b=1&amp;c=&#34;"' in page.text
    page = browser.get("/sign-up?next=//evil.example")
    assert 'name="next" value="/"' in page.text
    assert 'name="next" value="/"' in sign_up(browser, name="x", next="//evil.example").text
    refused = sign_up(browser, name="x", next="/a?b=1&c=2")
    assert 'name="next" value="/a?b=1&amp;c=2"' in refused.text
    assert sign_up(browser, next="/a?b=1&c=2").location == "/a?b=1&c=2"
    browser.post("/sign-out")
    answer = sign_up(browser, name="Eve", email="e@example.org", next="//evil.example")
    assert answer.location == "/"


def test_sign_up_continues_the_authorization_request(browser, ada, program):
    link = program.link(state="a b&c")
    to_sign_in = browser.get(link)
    page = browser.get(to_sign_in.location)
    to_sign_up = html.unescape(re.search('href="(/sign-up[^"]*)"', page.text)[1])
    form = browser.get(to_sign_up)
    assert "Space Game" in form.text
    assert "https://space.example" in form.headers["Content-Security-Policy"]
    next_ = html.unescape(re.search('name="next" value="([^"]*)"', form.text)[1])
    refused = sign_up(browser, name="x", next=next_)
    assert "https://space.example" in refused.headers["Content-Security-Policy"]
    consent = browser.get(sign_up(browser, next=next_).location)
    parameters = program.read_callback(browser.decide(consent))
    assert parameters["state"] == "a b&c"
    assert program.whois(program.token_for(parameters["code"])).json["name"] == "Grace"
