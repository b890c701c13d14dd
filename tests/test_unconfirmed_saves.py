"""Saves that a backend cannot confirm, and a storage that cannot be reached."""

import contextlib
from collections.abc import Callable

import pytest
from conftest import PASSWORD

from model.errors import SaveUnconfirmed, StorageFailed

CALLBACK = "https://game.example/cb"
NEW_PASSWORD = {"new_password": "another horse battery"}
UNCONFIRMED = SaveUnconfirmed("the database did not confirm this: it may have been saved")
API_MESSAGE = "the change may have been saved: read before trying again"
PAGE_MESSAGE = "This may have been saved, or not."


@pytest.fixture
def failing(store, monkeypatch) -> Callable[..., contextlib.AbstractContextManager]:
    """A function whose context manager makes methods of the app's storage raise this error."""

    @contextlib.contextmanager
    def failing(error: Exception, *methods: str):
        with monkeypatch.context() as patch:
            for each in methods:
                part, _, name = each.rpartition(".")
                owner = getattr(store, part) if part else store
                patch.setattr(owner, name, make_failing(getattr(owner, name), error))
            yield

    return failing


def make_failing(method: Callable, error: Exception) -> Callable:
    """Return a method that raises; one that edits a record raises at the end of its block."""

    @contextlib.contextmanager
    def edit(*args):
        with method(*args) as record:
            yield record
            raise error

    def fail(*_: object, **__: object) -> None:
        raise error

    return edit if method.__name__ == "edit" and error is UNCONFIRMED else fail


def check_unavailable(answer) -> None:
    """Assert that the response is 503, with the time after which to try again."""
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0


def check_says(answer, text: str) -> None:
    check_unavailable(answer)
    assert text in answer.text and "Nothing was saved" not in answer.text


def test_form_says_that_the_change_may_have_been_saved(
    app, store, adas_browser, open_browser, ada, adas_link, failing, subtests
):
    app.config |= {"SIGN_UP": "open", "CLIENT_REGISTRATION": "members"}
    client, _ = store.clients.register("Game", [CALLBACK], ada.id)
    guest = open_browser()
    account = {"name": "Zoe", "email": "zoe@example.org", "password": PASSWORD}
    link = {"link": adas_link.partition("#")[2]}
    game = {"kind": "elsewhere", "server": "yes", "name": "Game", "redirect_uris": CALLBACK}
    for browser, path, form, method in (
        (adas_browser, "/account", {"bio": "new"}, "users.edit"),
        (adas_browser, "/account", {"name": "Zoe", "bio": "new"}, "users.rename"),
        (adas_browser, "/account/sign-out-others", {}, "users.edit"),
        (adas_browser, "/account/delete", {"password": PASSWORD}, "users.delete"),
        (adas_browser, "/developer", game, "clients.register"),
        (adas_browser, f"/developer/{client.id}/secret", {}, "clients.issue_secret"),
        (guest, "/sign-up", account, "users.register_user"),
        (guest, "/sign-in", {"name": "Ada", "password": PASSWORD}, "users.edit"),
        (guest, "/recover/password", link, "users.edit"),
    ):
        with subtests.test(path, method=method), failing(UNCONFIRMED, method):
            answer = browser.post(path, data=NEW_PASSWORD | form)
            check_says(answer, PAGE_MESSAGE)
            assert guest.get("/account").status_code == 303  # not signed in


def test_consent_and_api_say_that_the_change_may_have_been_saved(adas_browser, program, failing):
    page = adas_browser.get(program.link(state="s"))
    with failing(UNCONFIRMED, "users.edit"):
        sent = program.read_callback(adas_browser.decide(page))
    assert (sent["error"], sent["state"]) == ("server_error", "s")
    assert "save" not in sent["error_description"]
    code = adas_browser.allow(program)
    with failing(UNCONFIRMED, "users.edit"):
        answer = adas_browser.post("/api/users/heartbeat")
    check_unavailable(answer)
    assert answer.json == {"message": API_MESSAGE}
    with failing(UNCONFIRMED, "codes.spend"):
        check_says(program.exchange(code), "the code may have been used up: get a new one")


METHODS = ["users.read", "users.read_from", "users.find_by", "users.is_new", "users.page"]
METHODS += ["users.edit", "clients.read", "clients.ids", "clients.page", "pictures.read"]
METHODS += ["require_health"]


@pytest.mark.parametrize("without", [[*METHODS, "keys.current"], METHODS])
def test_storage_that_is_away_is_503(adas_browser, program, failing, subtests, without):
    token = program.token_for(adas_browser.allow(program))
    paths = ["/", "/account", "/developer", "/players", "/sign-in", "/sign-up", "/nothing"]
    paths += [program.link(), f"/play/{program.id}", f"/developer/{program.id}"]
    with failing(StorageFailed("the database cannot be reached"), *without):
        for path in paths:
            with subtests.test(path):
                page = adas_browser.get(path)
                assert "</html>" in page.text and "Ada" not in page.text
                if path == "/nothing":
                    assert page.status_code == 404
                else:
                    check_unavailable(page)
        assert adas_browser.get("/static/style.css").status_code == 200
        check_unavailable(program.whois(token))
        check_unavailable(program.exchange("x" * 43))
        check_unavailable(adas_browser.post("/api/users/heartbeat"))
        check_unavailable(adas_browser.get("/api/users/info?id=1"))
        assert adas_browser.get("/healthz").status_code == 503
