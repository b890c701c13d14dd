"""Two requests at once of which one may succeed: sign-up, passwords, the last administrators."""

import contextlib
import functools
import threading
import time

import pytest
from conftest import on_each_backend
from forms import ANOTHER, PASSWORD, is_signed_in, race, sign_up, signed_in
from waiting import PATIENCE

from identity.access import passwords
from identity.access.links import issue_first_account_link
from identity.acts import accounts, sessions
from identity.acts.actors import Actor, Authority
from identity.http import limits
from model.errors import LastAdministrator
from model.kinds import FAMILIES
from model.records import ADMINISTRATOR, MODERATOR, PLAYER


@pytest.fixture
def meet_before_saving(monkeypatch) -> None:
    """Make two requests wait for each other before hashing a password, after all checks.

    As if each were in a worker of its own: within one, a player and an address have one place.
    """
    monkeypatch.setattr(limits, "holders_of_request", lambda player_id: {})
    meeting = threading.Barrier(2)

    def hash_password(password: str) -> str:
        meeting.wait(timeout=PATIENCE)
        return passwords.hash_password(password)

    for module in ("account.security", "entry.sign_up"):
        monkeypatch.setattr(f"pages.{module}.hash_password", hash_password)


def send_at_once(browsers: list, send):
    """Call `send(browser, number)` with all browsers at once; return the one signed in.

    All but one of the responses must be a refusal.
    """
    answers = race(*(functools.partial(send, each, n) for n, each in enumerate(browsers)))
    assert sorted(each.status_code for each in answers) in ([303, 409], [303, 403])
    [winner] = [each for each in browsers if is_signed_in(each)]
    return winner


@pytest.mark.parametrize("link", ["invitation", "link of the first account"])
def test_one_of_two_sign_ups_with_one_link_succeeds(
    app, store, open_browser, meet_before_saving, link
):
    app.config["SIGN_UP"] = "invite"
    if link == "invitation":
        store.users.register("Ada", "ada@example.org", "", ADMINISTRATOR)
        levels, invite = [ADMINISTRATOR, PLAYER], store.invites.issue(7)
    else:
        with app.app_context():
            address = issue_first_account_link(store, "")
        levels, invite = [ADMINISTRATOR], address.partition("invite=")[2]

    def send(browser, number: int):
        name, email = f"Racer {number}", f"r{number}@example.org"
        return sign_up(browser, name=name, email=email, invite=invite)

    send_at_once([open_browser(), open_browser()], send)
    assert [store.users.read(each).mod_level for each in store.users.ids()] == levels


@pytest.mark.parametrize("path", ["/account/password", "/recover/password"])
def test_one_of_two_racing_password_changes_succeeds(
    open_browser, adas_link, meet_before_saving, path
):
    """Also if both use one link."""
    browsers = [signed_in(open_browser()) for _ in range(2)]
    proof = {"link": adas_link.partition("#")[2], "current_password": PASSWORD}

    def send(browser, number: int):
        return browser.post(path, data=proof | {"new_password": f"{ANOTHER} {number}"})

    won = browsers.index(send_at_once(browsers, send))
    for number in range(2):
        answer = open_browser().sign_in(password=f"{ANOTHER} {number}")
        assert answer.status_code == (303 if number == won else 403)


@on_each_backend
def test_refreshes_beside_a_sign_out_bring_nothing_back(app, store, ada, adas_browser, program):
    """Of eight apps; each stops at the first refusal."""
    good = threading.Semaphore(0)

    def refresh_until_refused(http, token: str) -> tuple[int, str, str]:
        form = {"grant_type": "refresh_token", "client_id": program.id}
        form["client_secret"], access = program.secret, "none"
        while True:
            answer = http.post("/oauth/token", data=form | {"refresh_token": token})
            if answer.status_code != 200:
                return answer.status_code, answer.json["error"], access
            access, token = answer.json["access_token"], answer.json["refresh_token"]
            good.release()

    def sign_out() -> None:
        for _ in range(24):
            assert good.acquire(timeout=PATIENCE)
        sessions.sign_out(Authority(store, Actor(ada.id)), ada.id)

    for _ in range(3):
        adas_browser.sign_in()
        codes = [adas_browser.allow(program, scope="offline_access") for _ in range(8)]
        tokens = [program.exchange_standard(each).json["refresh_token"] for each in codes]
        assert len(store.users.read(ada.id).families) == 8
        calls = [functools.partial(refresh_until_refused, app.test_client(), t) for t in tokens]
        for status, error, access_token in race(sign_out, *calls)[1:]:
            assert (status, error) == (400, "invalid_grant")
            assert program.whois(access_token).status_code == 401
        assert store.users.read(ada.id).families == set()
        assert store.records(FAMILIES).ids() == []


@pytest.mark.parametrize("how", ["demotion", "deletion"])
def test_one_of_two_last_administrators_stays(storage, monkeypatch, how):
    """Each change comes a moment after its check, so that both would pass without the lock."""
    both = [
        storage.users.register(name, f"{name}@example.org", "", ADMINISTRATOR)
        for name in ("Castor", "Pollux")
    ]
    for name in ("edit", "delete"):
        change = getattr(storage.users, name)

        def change_later(*arguments, change=change):
            time.sleep(0.02)
            return change(*arguments)

        monkeypatch.setattr(storage.users, name, change_later)

    def leave(user_id: int) -> None:
        acts = Authority(storage, Actor(user_id))
        with contextlib.suppress(LastAdministrator):
            if how == "deletion":
                accounts.delete_user(acts, user_id)
            else:
                accounts.set_mod_level(acts, user_id, MODERATOR)

    race(*(functools.partial(leave, each.id) for each in both))
    assert len(storage.users.administrators()) == 1
