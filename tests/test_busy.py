"""Forms at a concurrency limit or with a failing disk: an error, and the input is kept."""

import io

import pytest
from forms import ANOTHER, PASSWORD, problems_of, save, sign_up, value_of
from PIL import Image

from identity.limits import ConcurrencyLimit

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


def delete(browser):
    """Submit the account deletion form with the correct password."""
    return browser.post("/account/delete", data={"password": PASSWORD})


@pytest.fixture
def app(make_app):
    """An app with open sign-up."""
    return make_app(SIGN_UP="open")


@pytest.fixture
def set_by_link(adas_link):
    """A function that submits the form of Ada's sign-in link."""
    link = adas_link.partition("link=")[2]
    return lambda browser: browser.post(
        "/new-password", data={"link": link, "new_password": ANOTHER}
    )


@pytest.fixture
def at_the_limits(monkeypatch) -> None:
    """Concurrency limits without a free place for passwords or pictures."""
    for gate in (
        *("identity.passwords.password_limit", "pages.sign_up.password_limit"),
        *("pages.account.password_limit", "pages.account.picture_limit"),
    ):
        monkeypatch.setattr(gate, ConcurrencyLimit(0, 0))


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
    before = store.read_user(ada.id)
    page = send(adas_browser)
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert problems_of(page) == {ERROR_FIELDS[send][0]: BUSY}
    assert (store.read_user(ada.id), store.user_ids()) == (before, [ada.id])


def test_password_link_can_be_retried_after_the_concurrency_limit(
    store, browser, ada, set_by_link, monkeypatch
):
    with monkeypatch.context() as at_the_limits:
        at_the_limits.setattr("pages.account.password_limit", ConcurrencyLimit(0, 0))
        page = set_by_link(browser)
        assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
        assert problems_of(page) == {"form": BUSY}
    assert set_by_link(browser).status_code == 303


def test_unsaved_profile_keeps_the_input(store, adas_browser, ada, faults):
    before = store.read_user(ada.id)
    faults.refuse_saves("accounts", "users")
    for typed in ({"name": "Ada", "bio": "typed"}, {"name": "Lovelace", "bio": "typed"}):
        page = save(adas_browser, **typed)
        assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
        assert problems_of(page) == {"profile-form": NOT_SAVED}
        assert value_of(page, "name") == typed["name"] and "\ntyped</textarea>" in page.text
    assert store.read_user(ada.id) == before


@pytest.mark.live
@pytest.mark.parametrize("send", ERROR_FIELDS)
def test_unsaved_form_is_503_with_an_error(store, adas_browser, ada, faults, send):
    before = store.read_user(ada.id)
    faults.refuse_saves("accounts", "users")
    page = send(adas_browser)
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert problems_of(page) == {ERROR_FIELDS[send][1]: NOT_SAVED}
    assert (store.read_user(ada.id), store.user_ids()) == (before, [ada.id])


def test_unsaved_sign_in_is_503_and_keeps_the_name(open_browser, ada, faults):
    faults.refuse_saves("accounts", "users")
    page = open_browser().sign_in("ADA")
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert NOT_SAVED in page.text and value_of(page, "name") == "ADA"


def test_unsaved_password_keeps_the_link_valid(browser, set_by_link, faults):
    faults.refuse_saves("accounts", "users")
    page = set_by_link(browser)
    assert (page.status_code, problems_of(page)) == (503, {"form": NOT_SAVED})
    faults.allow_saves()
    assert set_by_link(browser).status_code == 303
