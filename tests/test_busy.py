"""Forms at a concurrency limit or with a failing disk: an error, and the input is kept."""

import io

import pytest
from forms import ANOTHER, PASSWORD, from_address, problems_of, save, sign_up, value_of
from PIL import Image
from werkzeug.security import generate_password_hash

from identity import limits
from storage import pictures

BUSY = "Too many people are doing this right now. Try again in a moment."
NOT_SAVED = "Nothing was saved. Try again in a moment."


def upload(browser):
    """Submit the picture form."""
    content = io.BytesIO()
    Image.new("RGB", (40, 30)).save(content, "PNG")
    content.seek(0)
    return browser.post("/account/picture", data={"picture": (content, "me.png")})


def change_password(browser):
    """Submit the password form with the correct password."""
    data = {"current_password": PASSWORD, "new_password": ANOTHER}
    return browser.post("/account/password", data=data)


def change_email(browser):
    """Submit the email form with the correct password."""
    data = {"email": "new@example.org", "current_password": PASSWORD}
    return browser.post("/account/email", data=data)


def delete(browser, password: str = PASSWORD):
    """Submit the account deletion form."""
    return browser.post("/account/delete", data={"password": password})


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """Refuse a second request of one holder at once."""
    monkeypatch.setattr(limits, "TURN_TIMEOUT", 0)


@pytest.fixture
def app(make_app):
    """An app with open sign-up."""
    return make_app(SIGN_UP="open")


@pytest.fixture
def bobs_browser(open_browser, bob):
    """A browser at another address, in which Bob is signed in."""
    browser = from_address(open_browser(), "192.0.2.1")
    browser.sign_in("Bob")
    return browser


@pytest.fixture
def set_by_link(adas_link):
    """A function that submits the form of Ada's sign-in link."""
    link = adas_link.partition("link=")[2]
    return lambda browser: browser.post(
        "/new-password", data={"link": link, "new_password": ANOTHER}
    )


# The id of each form's error at the concurrency limit, and of its error after a failed write
ERROR_FIELDS = {
    sign_up: ("form", "form"),
    upload: ("picture-form", "picture-form"),
    change_email: ("email-password", "email-form"),
    change_password: ("password-password", "password-form"),
    delete: ("delete-password", "delete-form"),
}


@pytest.mark.parametrize("send", ERROR_FIELDS)
def test_form_at_the_concurrency_limit_is_503_with_retry_after(
    store, adas_browser, ada, at_the_limits, send
):
    before = store.users.read(ada.id)
    page = send(adas_browser)
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert problems_of(page) == {ERROR_FIELDS[send][0]: BUSY}
    assert (store.users.read(ada.id), store.users.ids()) == (before, [ada.id])


def test_what_can_be_refused_cheaply_needs_no_place(adas_browser, ada, at_the_limits, monkeypatch):
    """Nobody hashes a password or decodes a picture for it."""
    correct = {"current_password": PASSWORD}
    for path, fields, field in (
        ("password", {"new_password": "short"}, "new-password"),
        ("email", {"email": "ada@example.org"}, "email"),
        ("email", {"email": "nowhere"}, "email"),
    ):
        page = adas_browser.post(f"/account/{path}", data=correct | fields)
        assert (page.status_code, list(problems_of(page))) == (400, [field])
    monkeypatch.setattr(pictures, "MAX_BYTES", 100)
    for content, status in ((b"", 400), (b"%PDF-1.7", 415), (bytes(101), 413)):
        data = {"picture": (io.BytesIO(content), "me.png")}
        assert adas_browser.post("/account/picture", data=data).status_code == status


def test_attempt_over_a_rate_limit_needs_no_place(adas_browser, open_browser, ada, monkeypatch):
    guest = from_address(open_browser(), "192.0.2.1")
    for _ in range(limits.ATTEMPTS_PER_NAME):
        assert guest.sign_in(password="wrong").status_code == 403
        assert delete(adas_browser, "wrong").status_code == 403
    monkeypatch.setattr(limits, "password_limit", limits.ConcurrencyLimit(0, 0))
    assert [guest.sign_in().status_code, delete(adas_browser).status_code] == [429, 429]


@pytest.mark.parametrize("held", ["127.0.0.1", "player 1"])
@pytest.mark.parametrize("send", [upload, change_email, change_password, delete])
def test_player_and_address_have_one_place_at_a_time(adas_browser, bobs_browser, ada, held, send):
    """One member cannot keep others from signing in."""
    places = limits.password_limit.place({held: 1}), limits.picture_limit.place({held: 1})
    with places[0], places[1]:
        page = send(adas_browser)
        assert (page.status_code, problems_of(page)) == (503, {ERROR_FIELDS[send][0]: BUSY})
        assert change_email(bobs_browser).status_code == 303
        assert from_address(bobs_browser, "192.0.2.2").sign_in("Bob").status_code == 303


def test_guest_who_types_a_name_does_not_hold_its_place(adas_browser, open_browser, ada):
    with limits.password_limit.place({"player 1": 1}):
        assert open_browser().sign_in().status_code == 303
    with limits.password_limit.place({"192.0.2.1": 1}):
        assert from_address(open_browser(), "192.0.2.1").sign_in().status_code == 503
        assert change_email(adas_browser).status_code == 303


def test_password_link_and_rehash_hold_the_place_of_the_player(store, browser, ada, set_by_link):
    with limits.password_limit.place({"player 1": 1}):
        assert set_by_link(browser).status_code == 503
        with store.users.edit(ada.id) as user:
            user.password_hash = generate_password_hash(PASSWORD, "pbkdf2:sha256:2")
        assert browser.sign_in().status_code == 503
    assert browser.sign_in().status_code == 303


def test_password_link_can_be_retried_after_the_concurrency_limit(
    store, browser, ada, set_by_link, monkeypatch
):
    with monkeypatch.context() as at_the_limits:
        at_the_limits.setattr(limits, "password_limit", limits.ConcurrencyLimit(0, 0))
        page = set_by_link(browser)
        assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
        assert problems_of(page) == {"form": BUSY}
    assert set_by_link(browser).status_code == 303


def test_unsaved_profile_keeps_the_input(store, adas_browser, ada, faults):
    before = store.users.read(ada.id)
    faults.refuse_saves("accounts", "users")
    for typed in ({"name": "Ada", "bio": "typed"}, {"name": "Lovelace", "bio": "typed"}):
        page = save(adas_browser, **typed)
        assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
        assert problems_of(page) == {"profile-form": NOT_SAVED}
        assert value_of(page, "name") == typed["name"] and "\ntyped</textarea>" in page.text
    assert store.users.read(ada.id) == before


@pytest.mark.live
@pytest.mark.parametrize("send", ERROR_FIELDS)
def test_unsaved_form_is_503_with_an_error(store, adas_browser, ada, faults, send):
    before = store.users.read(ada.id)
    faults.refuse_saves("accounts", "users")
    page = send(adas_browser)
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert problems_of(page) == {ERROR_FIELDS[send][1]: NOT_SAVED}
    assert (store.users.read(ada.id), store.users.ids()) == (before, [ada.id])


def test_unsaved_password_keeps_the_link_valid(browser, set_by_link, faults):
    faults.refuse_saves("accounts", "users")
    page = set_by_link(browser)
    assert (page.status_code, problems_of(page)) == (503, {"form": NOT_SAVED})
    faults.allow_saves()
    assert set_by_link(browser).status_code == 303
