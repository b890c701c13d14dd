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


@pytest.fixture
def refuse_to_save(tmp_path, ada):
    """Lets no record of Ada, and no new one, be saved from now on."""

    def refuse_to_save() -> None:
        for name in ("accounts.lock", f"locks/{ada.id}"):
            lock = tmp_path / "instance" / name
            lock.unlink(missing_ok=True)
            lock.mkdir()

    return refuse_to_save


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


def test_a_profile_that_cannot_be_saved_stays_as_it_was_typed(
    store, adas_browser, ada, refuse_to_save
):
    before = store.read_user(ada.id)
    refuse_to_save()
    for typed in ({"name": "Ada", "bio": "typed"}, {"name": "Lovelace", "bio": "typed"}):
        page = save(adas_browser, **typed)
        assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
        assert problems_of(page) == {"profile-form": NOT_SAVED}
        assert value_of(page, "name") == typed["name"] and "\ntyped</textarea>" in page.text
    assert store.read_user(ada.id) == before


@pytest.mark.live
@pytest.mark.parametrize("send", PLACES)
def test_what_cannot_be_saved_is_told_in_the_form(store, adas_browser, ada, refuse_to_save, send):
    before = store.read_user(ada.id)
    refuse_to_save()
    page = send(adas_browser)
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert problems_of(page) == {PLACES[send][1]: NOT_SAVED}
    assert (store.read_user(ada.id), store.user_ids()) == (before, [ada.id])


def test_a_sign_in_that_cannot_be_saved_is_told_beside_the_name_that_was_typed(
    open_browser, ada, refuse_to_save
):
    refuse_to_save()
    page = open_browser().sign_in("ADA")
    assert (page.status_code, int(page.headers["Retry-After"]) > 0) == (503, True)
    assert NOT_SAVED in page.text and value_of(page, "name") == "ADA"


def test_a_new_password_by_link_that_cannot_be_saved_leaves_the_link_good(
    store, browser, ada, set_by_link, refuse_to_save, tmp_path
):
    refuse_to_save()
    page = set_by_link(browser)
    assert (page.status_code, problems_of(page)) == (503, {"form": NOT_SAVED})
    (tmp_path / "instance" / "locks" / str(ada.id)).rmdir()
    assert set_by_link(browser).status_code == 303
