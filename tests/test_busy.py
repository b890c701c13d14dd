"""What a form says where the server has no room for it now: it comes again, as it was typed."""

import io

import pytest
from forms import ANOTHER, PASSWORD, problems_of, save, sign_up, value_of
from PIL import Image

from identity.limits import ConcurrencyLimit

BUSY = "Too many people are doing this right now. Try again in a moment."
NOT_SAVED = "Nothing was saved. Try again in a moment."


def upload(browser):
    """Send the picture form."""
    content = io.BytesIO()
    Image.new("RGB", (40, 30)).save(content, "PNG")
    content.seek(0)
    return browser.post("/account/picture", data={"picture": (content, "me.png")})


def change_password(browser):
    """Send the form, with the right password."""
    data = {"current_password": PASSWORD, "new_password": ANOTHER}
    return browser.post("/account/password", data=data)


def change_email(browser):
    """Send the form, with the right password."""
    data = {"email": "new@example.org", "current_password": PASSWORD}
    return browser.post("/account/email", data=data)


def delete(browser):
    """Send the form, with the right password."""
    return browser.post("/account/delete", data={"password": PASSWORD})


@pytest.fixture
def app(make_app):
    """The app, where anyone may make an account."""
    return make_app(SIGN_UP="open")


@pytest.fixture
def set_by_link(adas_link):
    """Sends the form that a sign-in link leads to."""
    link = adas_link.partition("link=")[2]
    return lambda browser: browser.post(
        "/new-password", data={"link": link, "new_password": ANOTHER}
    )


@pytest.fixture
def crowd(monkeypatch) -> None:
    """As many hash a password, and decode a picture, as may and can wait."""
    for gate in (
        *("identity.passwords.password_limit", "pages.sign_up.password_limit"),
        *("pages.account.password_limit", "pages.account.picture_limit"),
    ):
        monkeypatch.setattr(gate, ConcurrencyLimit(0, 0))


# Where each form says that too many use it, and where that nothing can be saved.
PLACES = {
    sign_up: ("form", "form"),
    upload: ("picture-form", "picture-form"),
    change_email: ("email-password", "email-form"),
    change_password: ("password-password", "password-form"),
    delete: ("delete-password", "delete-form"),
}


@pytest.mark.parametrize("send", PLACES)
def test_who_comes_when_it_is_busy_is_told_in_the_form_and_when_to_try_again(
    store, adas_browser, ada, crowd, send
):
    before = store.read_user(ada.id)
    page = send(adas_browser)
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert problems_of(page) == {PLACES[send][0]: BUSY}
    assert (store.read_user(ada.id), store.user_ids()) == (before, [ada.id])


def test_a_new_password_by_link_waits_for_a_better_moment(
    store, browser, ada, set_by_link, monkeypatch
):
    with monkeypatch.context() as crowd:
        crowd.setattr("pages.account.password_limit", ConcurrencyLimit(0, 0))
        page = set_by_link(browser)
        assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
        assert problems_of(page) == {"form": BUSY}
    assert set_by_link(browser).status_code == 303


def test_profile_save_failure_keeps_the_typed_values(store, adas_browser, ada, faults):
    before = store.read_user(ada.id)
    faults.refuse_saves("accounts", "users")
    for typed in ({"name": "Ada", "bio": "typed"}, {"name": "Lovelace", "bio": "typed"}):
        page = save(adas_browser, **typed)
        assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
        assert problems_of(page) == {"profile-form": NOT_SAVED}
        assert value_of(page, "name") == typed["name"] and "\ntyped</textarea>" in page.text
    assert store.read_user(ada.id) == before


@pytest.mark.live
@pytest.mark.parametrize("send", PLACES)
def test_save_failure_is_shown_in_the_form(store, adas_browser, ada, faults, send):
    before = store.read_user(ada.id)
    faults.refuse_saves("accounts", "users")
    page = send(adas_browser)
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert problems_of(page) == {PLACES[send][1]: NOT_SAVED}
    assert (store.read_user(ada.id), store.user_ids()) == (before, [ada.id])


def test_sign_in_save_failure_keeps_the_typed_name(open_browser, ada, faults):
    faults.refuse_saves("accounts", "users")
    page = open_browser().sign_in("ADA")
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert NOT_SAVED in page.text and value_of(page, "name") == "ADA"


def test_new_password_save_failure_leaves_the_link_valid(browser, set_by_link, faults):
    faults.refuse_saves("accounts", "users")
    page = set_by_link(browser)
    assert (page.status_code, problems_of(page)) == (503, {"form": NOT_SAVED})
    faults.allow_saves()
    assert set_by_link(browser).status_code == 303
