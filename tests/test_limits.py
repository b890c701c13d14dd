"""Limits on the attempts of an address or a player: which request counts, how often, how long.

Those of acts are tested in test_accounts.py.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import fixtures
import pytest
from conftest import Program
from forms import (
    ANOTHER,
    PASSWORD,
    change_email,
    from_address,
    is_signed_in,
    save,
    set_by_link,
    sign_up,
    upload,
)

from identity.http import limits
from model.records import PICTURE_SIZES
from pages.community import players
from pages.entry import device

MINUTE, QUARTER_HOUR, HOUR, DAY = 60, 900, 3600, 86_400  # seconds
HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"
app = fixtures.open_app


class Guest:
    """Somebody who is signed out, and whose requests come from any address."""

    def __init__(self, open_browser, enter, program, device_id: str) -> None:
        self._open_browser, self._enter, self._program = open_browser, enter, program
        self._device_id, self._numbers = device_id, itertools.count()

    def browser(self, address: str):
        return from_address(self._open_browser(), address)

    def sign_in(self, address: str, name: str = "Ada", password: str = "wrong"):
        return self.browser(address).sign_in(name, password)

    def sign_in_as_nobody(self, address: str):
        return self.sign_in(address, "Nobody")

    def try_another_name(self, address: str):
        return self.sign_in(address, f"Name {next(self._numbers)}")

    def sign_up(self, address: str, **changes: str):
        number = next(self._numbers)
        fields = {"name": f"New {number}", "email": f"n{number}@example.org"}
        return sign_up(self.browser(address), **fields | changes)

    def ask_for_an_email(self, address: str):
        return self.sign_up(address, email="ada@example.org")

    def guess_client_secret(self, address: str):
        self._program.http.environ_base["REMOTE_ADDR"] = address
        return self._program.exchange("a code", client_secret="wrong")

    def use_no_passkey(self, address: str):
        browser = self.browser(address)
        assert browser.post("/sign-in/passkey/options").status_code == 200
        return browser.post("/sign-in/passkey", data={"credential": "{}"})

    def start_device(self, address: str):
        return self.browser(address).post("/oauth/device", data={"client_id": self._device_id})

    def guess_user_code(self, address: str):
        """Guess as one of many players, of whom each has a limit as well."""
        if (number := next(self._numbers)) % 7 == 0:
            self._player = self._enter(f"Guesser {number}")
        return guess_user_code(from_address(self._player, address))


def guess_user_code(browser, number: int = 0):
    """Type a code that nobody has, but for an accident in ten million."""
    return browser.post("/device", data={"user_code": "BBBBBBBB"})


def confirm(browser, number: int):
    return change_email(browser, ("ADA", "ADa", "ada")[number % 3] + "@example.org")


def ask_for_an_email(browser, number: int):
    return change_email(browser, f"a{number}@example.org")


def ask_for_none(browser):
    """Save the present email in capitals, and then none: neither asks about an account."""
    change_email(browser, "A19@example.org")
    return change_email(browser, "")


def rename(browser, number: int):
    return save(browser, name=f"Ada {number % 5}")  # the old ones stay Ada's


def ask_for_a_code(browser, number: int):
    """Ask for an authorization code, half of the times by a consent page."""
    [client_id] = browser.application.extensions["storage"].clients.ids()
    program = Program(None, client_id, None, "https://space.example/callback")
    answer = browser.get(program.link(prompt=("", "consent")[number % 2]))
    return browser.decide(answer) if answer.status_code == 200 else answer


def change_bio(browser):
    return save(browser, bio="Chess.")


class Limit(NamedTuple):
    """A limit: a request that counts, its status, how many are allowed, and one that is free."""

    send: Callable
    status: int
    limit: int
    window: int  # seconds; attempts in this window and the one before count
    send_another: Callable = change_bio


LIMITS = {
    "wrong passwords for a name": Limit(Guest.sign_in, 403, 10, QUARTER_HOUR),
    "wrong passwords for no player": Limit(Guest.sign_in_as_nobody, 403, 10, QUARTER_HOUR),
    "wrong passwords": Limit(Guest.try_another_name, 403, 100, QUARTER_HOUR),
    "client failures": Limit(Guest.guess_client_secret, 401, 100, QUARTER_HOUR),
    "new accounts": Limit(Guest.sign_up, 303, 60, DAY),
    "email questions": Limit(Guest.ask_for_an_email, 409, 20, DAY),
    "passkeys": Limit(Guest.use_no_passkey, 400, 100, QUARTER_HOUR),
    "device requests": Limit(Guest.start_device, 200, 100, QUARTER_HOUR),
    "guesses of user codes": Limit(Guest.guess_user_code, 403, 10, HOUR),  # RFC 8628 5.1
}
PLAYER_LIMITS = {
    "confirmations": Limit(confirm, 303, 20, QUARTER_HOUR),
    "email questions": Limit(ask_for_an_email, 303, 20, DAY, ask_for_none),
    "renames": Limit(rename, 303, 10, HOUR // 2),
    "exports": Limit(lambda browser, number: browser.get("/account/export"), 200, 10, HOUR // 2),
    "pictures": Limit(lambda browser, number: upload(browser), 303, 30, QUARTER_HOUR),
    "guesses of user codes": Limit(guess_user_code, 403, 10, HOUR),
    "authorization codes": Limit(ask_for_a_code, 303, 60, MINUTE),
}
NETWORKS = {  # its addresses, how many times as often it may fail, and another network
    "IPv4 address": ("192.0.2.1", 1, "192.0.2.2"),
    "IPv6 /64": ("2001:db8:1:1::{:x}", 1, "2001:db8:1:2::1"),
    "IPv6 /48": ("2001:db8:2:{:x}::1", 2, "2001:db8:3::1"),
}


@pytest.fixture
def guest(open_browser, enter, program, store, ada) -> Guest:
    """A guest of a site with the player Ada."""
    device, _ = store.clients.register("Console", [], None, public=True, device=True)
    return Guest(open_browser, enter, program, device.id)


@pytest.mark.load
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_rate_limit_per_address(guest, clock, faults, subtests, limit):
    """An IPv6 /48, whose 65,536 networks one customer may have, fails twice as often.

    A refused attempt does not count and leaves no file, from whichever network.
    """
    clock.shift(DAY - int(time.time()) % DAY)
    for name, (network, factor, other) in NETWORKS.items():
        with subtests.test(name):
            *addresses, last = (network.format(n) for n in range(factor * limit.limit + 1))
            assert {limit.send(guest, each).status_code for each in addresses} == {limit.status}
            before = faults.stored("attempts", "devices")
            refused = limit.send(guest, last)
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) == 2 * limit.window
            assert faults.stored("attempts", "devices") == before
            assert limit.send(guest, other).status_code == limit.status
    for seconds, status in ((2 * limit.window - 1, 429), (1, limit.status)):
        clock.shift(seconds)
        for name, (network, _, _) in NETWORKS.items():
            with subtests.test(name, status=status):
                assert limit.send(guest, network.format(0)).status_code == status


@pytest.mark.parametrize("limit", PLAYER_LIMITS.values(), ids=PLAYER_LIMITS)
def test_rate_limit_per_player(adas_browser, open_browser, bob, program, clock, monkeypatch, limit):
    """At any address. A code is a file: one member could else use up the inodes of the disk."""
    picture = dict.fromkeys(PICTURE_SIZES, b"picture")
    monkeypatch.setattr("images.pictures.make_picture", lambda content, kind: picture)
    clock.shift(DAY - int(time.time()) % DAY)
    for number in range(limit.limit):
        from_address(adas_browser, f"192.0.2.{number}")
        assert limit.send(adas_browser, number).status_code == limit.status
    for number in (limit.limit, limit.limit + 1):
        refused = limit.send(adas_browser, number)
        assert (refused.status_code, refused.location) == (429, None)
        assert 0 < int(refused.headers["Retry-After"]) <= 2 * limit.window
    bobs_browser = from_address(open_browser(), "192.0.2.100")
    bobs_browser.sign_in("Bob")
    assert limit.send(bobs_browser, 100).status_code != 429
    clock.shift(2 * limit.window - 1)
    assert limit.send_another(adas_browser).status_code == 303
    assert limit.send(adas_browser, limit.limit).status_code == 429
    clock.shift(1)
    assert limit.send(adas_browser, limit.limit).status_code == limit.status


def test_guests_have_a_limit_where_they_need_no_account(guest, faults, monkeypatch, subtests):
    """Members have none for pages of the list. A code for a picture that is none is not counted."""
    monkeypatch.setattr(players, "GUEST_PAGES", 3)
    monkeypatch.setattr(device, "QR_CODES", 3)
    for path, wrong in (
        ("/players?q=a", "/players/nobody"),
        ("/oauth/device/qr?user_code=BCDF-GHJK", "/oauth/device/qr?user_code=x"),
    ):
        with subtests.test(path):
            browser, member = guest.browser(HERE), guest.browser(HERE)
            assert {browser.get(wrong).status_code for _ in range(4)} == {404}
            assert [browser.get(path).status_code for _ in range(4)] == [200] * 3 + [429]
            refused = browser.get(path)
            assert refused.status_code == 429 and 0 < int(refused.headers["Retry-After"]) <= 1800
            assert guest.browser(ELSEWHERE).get(path).status_code == 200
            member.sign_in("Ada", PASSWORD)
            # Pages of other sites may load a QR code: it must not tell who is signed in.
            assert member.get(path).status_code == (200 if "players" in path else 429)
    faults.refuse_saves("attempts")
    assert guest.browser("192.0.2.3").get("/players").status_code == 200


def test_guests_have_one_limit_for_lists_of_players_and_searches(guest, monkeypatch):
    monkeypatch.setattr(players, "GUEST_PAGES", 3)
    browser, member = guest.browser(HERE), guest.browser(HERE)
    paths = ("/players", "/?q=a", "/playing")
    assert [browser.get(each).status_code for each in paths * 2] == [200] * 3 + [429] * 3
    assert browser.get("/").status_code == browser.get("/?order=name").status_code == 200
    member.sign_in("Ada", PASSWORD)
    monkeypatch.setattr(players, "SEARCHES", 2)
    assert {member.get(each).status_code for each in paths} == {200}
    assert [member.get(f"/players?q={each}").status_code for each in "ab"] == [200, 429]
    assert member.get("/players").status_code == 200


def test_right_password_keeps_the_count_of_failures(guest, bob):
    statuses = [guest.sign_in(HERE).status_code for _ in range(9)]
    statuses += [guest.sign_in(HERE, password=PASSWORD).status_code for _ in range(5)]
    statuses += [guest.sign_in(HERE).status_code]
    assert statuses == [403] * 9 + [303] * 5 + [403]
    refused = guest.browser(HERE)
    assert refused.sign_in().status_code == 429  # the password is not checked
    assert not is_signed_in(refused)
    assert guest.sign_in(HERE, "Bob", PASSWORD).status_code == 303
    assert guest.sign_in(ELSEWHERE, password=PASSWORD).status_code == 303


def test_name_rate_limit_normalizes_names(guest):
    spellings = [
        ("Ada", "ada", "ADA", " ada", "Ａda"),
        (
            *("x@bücher.example", "x@xn--bcher-kva.example", "X@BÜCHER.example"),
            *("x@bücher\u3002example", "x@Bücher.example"),
        ),
        # By the key of an earlier version all of them find the player of the first.
        (
            *("x@fussgass.example", "x@fußgass.example", "x@fussgaß.example", "x@fußgaß.example"),
            "x@xn--fugass-cta.example",
        ),
    ]
    for names in spellings:
        for name in names * 2:
            assert guest.sign_in(HERE, name).status_code == 403
        assert guest.sign_in(HERE, names[0].swapcase()).status_code == 429


def test_password_rate_limit_covers_every_password_form(store, guest, ada):
    before = store.users.read(ada.id)
    for number, (path, form, field) in enumerate(
        (
            ("/account/email", {"email": "new@example.org"}, "current_password"),
            ("/account/password", {"new_password": ANOTHER}, "current_password"),
            ("/account/delete", {}, "password"),
        )
    ):
        browser = guest.browser(f"192.0.2.{number}")
        browser.sign_in()
        for _ in range(5):
            assert browser.post(path, data=form | {field: "wrong"}).status_code == 403
            assert guest.sign_in(f"192.0.2.{number}").status_code == 403
        page = browser.post(path, data=form | {field: PASSWORD})
        assert (page.status_code, "Too many tries" in page.text) == (429, True)
        browser.post("/sign-out")
    assert dataclasses.replace(store.users.read(ada.id), last_sign_in=0) == before


def test_password_set_by_a_link_ends_the_lock_out(guest, adas_link):
    """Ten tries by name and ten by email address: the player's other devices have to get in."""
    home, neighbour = "2001:db8::1", "2001:db8::2"
    for address in (home, ELSEWHERE):
        for name in ("Ada", "ada@example.org"):
            assert [guest.sign_in(address, name).status_code for _ in range(11)][9:] == [403, 429]
    assert set_by_link(guest.browser(neighbour), adas_link).status_code == 303
    for name in ("ADA", "ada@example.org"):
        assert guest.sign_in(home, name, ANOTHER).status_code == 303
        assert guest.sign_in(ELSEWHERE, name, ANOTHER).status_code == 429


def test_refused_sign_up_does_not_count(guest, subtests):
    """Nor does a taken email as a wrong password, which would keep its player out."""
    for number, (changes, status) in enumerate(
        (
            ({"name": "Ada"}, 409),
            ({"name": "x"}, 400),
            ({"password": "short"}, 400),
            ({"email": "ada@example.org"}, 409),
        )
    ):
        address = f"192.0.2.{number}"
        with subtests.test(**changes):
            statuses = {guest.sign_up(address, **changes).status_code for _ in range(11)}
            assert statuses == {status}
            assert guest.sign_up(address).status_code == 303
            assert guest.sign_in(address, "ada@example.org", PASSWORD).status_code == 303


def test_email_question_counts_also_if_the_email_is_free(guest):
    """The response tells who has an account. A sign-up without an email asks none."""
    assert [guest.sign_up(HERE).status_code for _ in range(9)] == [303] * 9
    assert [guest.ask_for_an_email(HERE).status_code for _ in range(11)] == [409] * 11
    assert guest.sign_up(HERE).status_code == 429
    assert guest.sign_up(HERE, email="").status_code == 303


def test_attempt_without_a_result_does_not_count(guest, faults, monkeypatch):
    """Neither at a busy worker nor at a disk that refuses to save."""
    busy = limits.ConcurrencyLimit(0, 0)
    for send in (functools.partial(guest.sign_in, password=PASSWORD), guest.sign_up):
        with monkeypatch.context() as context:
            context.setattr(limits, "password_limit", busy)
            answers = [send(HERE) for _ in range(11)]
        faults.refuse_saves("users", "accounts")
        answers += [send(HERE) for _ in range(11)]
        faults.allow_saves()
        for each in answers:
            assert (each.status_code, int(each.headers["Retry-After"]) > 0) == (503, True)
            assert "Set-Cookie" not in each.headers
        assert send(HERE).status_code == 303


def test_attempt_that_cannot_be_counted_is_503(guest, faults):
    faults.refuse_saves("attempts")
    for password in (PASSWORD, "wrong"):
        answer = guest.sign_in(HERE, password=password)
        assert (answer.status_code, "Sign in" in answer.text) == (503, True)
        assert int(answer.headers["Retry-After"]) > 0
        assert "Set-Cookie" not in answer.headers


def test_wrong_passwords_count_for_all_names_of_a_player(store, guest, adas_browser, ada, bob):
    """Those of before and the next one. Players without an email share no limit."""
    names = ("Ada", "Grace", "Zoe")
    for name in names[1:]:
        store.users.rename(ada.id, name)
    assert [guest.sign_in(HERE, names[n % 3]).status_code for n in range(10)] == [403] * 10
    assert {guest.sign_in(HERE, each, PASSWORD).status_code for each in names} == {429}
    wrong = {"email": "new@example.org", "current_password": "wrong"}

    def try_wrong_passwords(address: str) -> list[int]:
        from_address(adas_browser, address)
        return [adas_browser.post("/account/email", data=wrong).status_code for _ in range(10)]

    assert try_wrong_passwords(ELSEWHERE) == [403] * 10
    assert save(adas_browser, name="Lovelace").status_code == 303
    assert try_wrong_passwords(ELSEWHERE) == [429] * 10
    bobs_browser = guest.browser("192.0.2.3")
    bobs_browser.sign_in("Bob")
    for user in (ada, bob):
        store.users.change_email(user.id, "")
    assert try_wrong_passwords("192.0.2.3") == [403] * 10
    assert try_wrong_passwords("192.0.2.3") == [429] * 10
    assert change_email(bobs_browser, "bob@example.org").status_code == 303
