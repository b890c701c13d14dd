"""Saves that a backend cannot confirm: what was asked for may have been done, and that is said."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from conftest import PASSWORD

from storage.errors import NoSuchUser, SaveUnconfirmed, StorageFailed
from storage.records import User

CALLBACK = "https://game.example/cb"
API_MESSAGE = "the change may have been saved: read before trying again"
PAGE_MESSAGE = "This may have been saved, or not."


def fail(*_: object, **__: object) -> None:
    raise SaveUnconfirmed("the database did not confirm this: it may have been saved")


@pytest.fixture
def unconfirmed(store, monkeypatch) -> Callable[[str], None]:
    """A function that makes a method of the app's storage save, and then fail to confirm it."""

    def make(method: str) -> None:
        part, name = method.split(".")
        real = getattr(getattr(store, part), name)

        def save(*args, **kwargs) -> None:
            real(*args, **kwargs)
            fail()

        @contextlib.contextmanager
        def edit(*args):
            with real(*args) as record:
                yield record
            fail()

        monkeypatch.setattr(getattr(store, part), name, edit if name == "edit" else save)

    return make


@pytest.fixture
def away(store, monkeypatch) -> Callable[..., None]:
    """A function that makes methods of the app's storage raise StorageFailed."""

    def fail(*_: object, **__: object) -> None:
        raise StorageFailed("the database cannot be reached")

    def make(*methods: str) -> None:
        for each in methods:
            part, _, name = each.rpartition(".")
            monkeypatch.setattr(getattr(store, part) if part else store, name, fail)

    return make


def assert_says(answer, text: str) -> None:
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert text in answer.text
    assert "Nothing was saved" not in answer.text


def test_api_answer_says_that_the_change_may_have_been_saved(adas_browser, unconfirmed):
    unconfirmed("users.edit")
    answer = adas_browser.post("/api/users/heartbeat")
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.json == {"message": API_MESSAGE}


def test_form_says_that_the_change_may_have_been_saved(adas_browser, ada, store, unconfirmed):
    unconfirmed("users.edit")
    assert_says(adas_browser.post("/account", data={"bio": "new"}), PAGE_MESSAGE)
    assert store.users.read(ada.id).bio == "new"


def test_profile_form_with_a_new_name_says_it_too(adas_browser, ada, store, unconfirmed):
    unconfirmed("users.rename")
    assert_says(adas_browser.post("/account", data={"name": "Zoe", "bio": "new"}), PAGE_MESSAGE)
    user = store.users.read(ada.id)
    assert (user.name, user.bio) == ("Zoe", "new")


def test_page_without_a_form_says_that_the_change_may_have_been_saved(adas_browser, unconfirmed):
    unconfirmed("users.edit")
    answer = adas_browser.post("/account/sign-out-everywhere")
    assert_says(answer, PAGE_MESSAGE)
    assert "Look before you try again" in answer.text


def test_form_that_cannot_be_shown_again_says_it_too(adas_browser, store, away, monkeypatch):
    """The database is gone before the form is shown again, which needs the keys."""

    @contextlib.contextmanager
    def lose_connection(user_id: int) -> Iterator[User]:
        yield store.users.read(user_id)
        away("keys.current")
        fail()

    monkeypatch.setattr(store.users, "edit", lose_connection)
    assert_says(adas_browser.post("/account", data={"bio": "new"}), PAGE_MESSAGE)


def test_sign_up_says_that_the_account_may_be_there(app, open_browser, store, ada, unconfirmed):
    app.config["SIGN_UP"] = "open"
    unconfirmed("users.register")
    form = {"name": "Zoe", "email": "zoe@example.org", "password": PASSWORD}
    assert_says(open_browser().post("/sign-up", data=form), PAGE_MESSAGE)
    assert open_browser().sign_in("Zoe").status_code == 303


def test_sign_in_says_that_it_did_not_work(browser, ada, unconfirmed):
    unconfirmed("users.edit")
    assert_says(browser.sign_in(), PAGE_MESSAGE)
    assert browser.get("/account").status_code == 303


@pytest.mark.parametrize("way", ["account", "link"])
def test_new_password_may_have_been_set(adas_browser, adas_link, ada, unconfirmed, way):
    new = "another horse battery"
    unconfirmed("users.edit")
    if way == "account":
        form = {"current_password": PASSWORD, "new_password": new}
        answer = adas_browser.post("/account/password", data=form)
    else:
        form = {"link": adas_link.partition("link=")[2], "new_password": new}
        answer = adas_browser.post("/new-password", data=form)
    assert_says(answer, PAGE_MESSAGE)


def test_account_may_have_been_deleted(adas_browser, ada, store, unconfirmed):
    unconfirmed("users.delete")
    answer = adas_browser.post("/account/delete", data={"password": PASSWORD})
    assert_says(answer, PAGE_MESSAGE)
    with pytest.raises(NoSuchUser):
        store.users.read(ada.id)


def test_registered_client_and_its_secret_may_be_there(adas_browser, app, ada, store, unconfirmed):
    app.config["CLIENT_REGISTRATION"] = "members"
    unconfirmed("clients.register")
    form = {"kind": "confidential", "name": "Game", "redirect_uris": CALLBACK}
    answer = adas_browser.post("/developer", data=form)
    assert_says(answer, PAGE_MESSAGE)
    [client] = store.clients.of_owner(ada.id)
    unconfirmed("clients.issue_secret")
    answer = adas_browser.post(f"/developer/{client.id}/secret")
    assert_says(answer, PAGE_MESSAGE)


def test_consent_that_is_not_confirmed_sends_an_error_and_no_code(
    adas_browser, register, unconfirmed
):
    program = register(CALLBACK)
    page = adas_browser.get(program.link(state="s"))
    unconfirmed("users.edit")
    sent = program.read_callback(adas_browser.decide(page))
    assert (sent["error"], sent["state"]) == ("server_error", "s")
    assert "save" not in sent["error_description"]


def test_code_may_have_been_used_up(adas_browser, register, unconfirmed):
    program = register(CALLBACK)
    code = adas_browser.allow(program)
    unconfirmed("codes.spend")
    answer = program.exchange(code)
    assert_says(answer, "the code may have been used up: get a new one")


# -- storage that is away -------------------------------------------------------------------------

METHODS = ["keys.current", "users.read", "users.read_from", "users.find_by", "users.is_new"]
METHODS += ["users.page", "users.edit", "clients.read", "clients.ids", "clients.page"]
METHODS += ["pictures.read", "check_health"]


@pytest.mark.parametrize("without", [METHODS, [each for each in METHODS if each != "keys.current"]])
def test_pages_are_503_and_signed_out_while_storage_is_away(
    adas_browser, register, away, subtests, without
):
    program = register(CALLBACK)
    away(*without)
    paths = ["/", "/account", "/developer", "/players", "/sign-in", "/sign-up", "/nothing"]
    for path in [*paths, program.link(), f"/play/{program.id}", f"/developer/{program.id}"]:
        with subtests.test(path=path):
            answer = adas_browser.get(path)
            assert answer.status_code == (404 if path == "/nothing" else 503)
            assert "</html>" in answer.text and "Ada" not in answer.text
            if answer.status_code == 503:
                assert int(answer.headers["Retry-After"]) > 0
    assert adas_browser.get("/static/style.css").status_code == 200


@pytest.mark.parametrize("without", [METHODS, [each for each in METHODS if each != "keys.current"]])
def test_api_is_503_while_storage_is_away(adas_browser, anyone, register, away, without):
    program = register(CALLBACK)
    token = program.token_for(adas_browser.allow(program))
    away(*without)
    for answer in (
        anyone.get("/api/users/info?id=1"),
        program.whois(token),
        program.exchange("x" * 43),
        adas_browser.post("/api/users/heartbeat"),
    ):
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
    assert anyone.get("/healthz").status_code == 503
