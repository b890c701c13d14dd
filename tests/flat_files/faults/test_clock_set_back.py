"""A clock that is set back by five seconds or by an hour, as if it was ahead and is corrected."""

import pytest
from cached_pictures import generate_picture
from conftest import PASSWORD, begin_window

from identity.access.links import issue_sign_in_link
from identity.http.limits import ATTEMPTS_PER_NAME
from model.records import CLOCK_TOLERANCE, User, now_ms
from storage.contract import ATTEMPTS_WINDOW

SECONDS, HOUR = 5, 3600
STEPS = pytest.mark.parametrize("step", [SECONDS, HOUR], ids=["5 seconds", "1 hour"])


@pytest.fixture(autouse=True)
def middle_of_a_window(clock) -> None:
    """A step of seconds stays in the same time window of counted attempts."""
    begin_window(clock)
    clock.shift(ATTEMPTS_WINDOW // 2)


def is_signed_in(browser) -> bool:
    return "Hello, " in browser.get("/").text


@STEPS
def test_token_from_the_future_is_refused_until_its_time(clock, adas_browser, program, step):
    """Else it would be valid for an hour longer. Some seconds are those of another machine."""
    token = program.token_for(adas_browser.allow(program))
    clock.shift(-step)
    is_near = step <= CLOCK_TOLERANCE
    assert program.whois(token).status_code == (200 if is_near else 401)
    adas_browser.sign_in()
    new_token = program.token_for(adas_browser.allow(program))
    assert program.whois(new_token).status_code == 200
    clock.shift(step)
    assert program.whois(token).status_code == 200


@STEPS
def test_session_from_the_future_is_signed_out_until_its_time(clock, adas_browser, step):
    """A cookie from before the step back stays valid."""
    clock.shift(step)
    assert is_signed_in(adas_browser)
    clock.shift(-step)
    assert is_signed_in(adas_browser)
    clock.shift(-step)
    assert is_signed_in(adas_browser) == (2 * step <= CLOCK_TOLERANCE)
    clock.shift(step)
    assert is_signed_in(adas_browser)


def test_code_survives_a_step_of_seconds_but_not_of_an_hour(clock, adas_browser, program):
    """A code is valid within a minute of its issue in both directions, not for an hour."""
    codes = [adas_browser.allow(program) for _ in range(2)]
    clock.shift(-SECONDS)
    assert program.exchange(codes[0]).status_code == 200
    clock.shift(SECONDS - HOUR)
    assert program.exchange(codes[1]).status_code == 400


@STEPS
def test_used_code_stays_used(clock, adas_browser, program, step):
    code = adas_browser.allow(program)
    assert program.exchange(code).status_code == 200
    clock.shift(-step)
    answer = program.exchange(code)
    assert (answer.status_code, "used before" in answer.text) == (400, True)


@STEPS
def test_new_picture_has_a_later_timestamp(clock, store, ada, step):
    before = store.pictures.save(ada.id, generate_picture(1))
    clock.shift(-step)
    assert store.pictures.save(ada.id, generate_picture(2)) > before


def test_attempt_counts_after_a_clock_step_back(clock, browser, ada):
    """Nobody is locked out for longer; an attacker gets at most one more window."""

    def attempt() -> int:
        return browser.sign_in(password="a wrong password").status_code

    assert {attempt() for _ in range(ATTEMPTS_PER_NAME)} == {403}
    assert attempt() == 429
    clock.shift(-SECONDS)
    assert attempt() == 429
    clock.shift(SECONDS - HOUR)
    assert attempt() == 403


@STEPS
def test_play_time_after_a_clock_step_back(clock, store, ada, browser, step):
    """The heartbeat after a long step starts a new interval, one after a short step waits."""
    clock.shift(-step)
    browser.sign_in("Ada", PASSWORD)
    clock.shift(step)

    def send_heartbeat() -> User:
        assert browser.post("/api/users/heartbeat").status_code == 200
        return store.users.read(ada.id)

    send_heartbeat()
    clock.shift(60)
    before = send_heartbeat()
    clock.shift(-step)
    after = send_heartbeat()
    assert after.play_ms == before.play_ms
    is_short = step <= CLOCK_TOLERANCE
    assert after.last_heartbeat == (before.last_heartbeat if is_short else now_ms())
    clock.shift(60)
    counted = now_ms() - after.last_heartbeat
    assert send_heartbeat().play_ms == before.play_ms + counted


@STEPS
def test_sign_in_link_from_the_future_is_refused(clock, store, ada, browser, step):
    def is_refused(link: str) -> bool:
        page = browser.post("/recover/password", data={"link": link})
        return page.status_code == 403 and "recognise this link" in page.text

    links = [issue_sign_in_link(store, "", ada)]
    clock.shift(-step)
    links.append(issue_sign_in_link(store, "", ada))
    assert [is_refused(link) for link in links] == [step > CLOCK_TOLERANCE, False]
    clock.shift(step)
    assert not is_refused(links[0])


def test_audit_log_is_in_the_order_of_the_acts(clock, store):
    """The times of the lines show that the clock was set back."""
    store.audit.write("before", "command")
    clock.shift(-HOUR)
    store.audit.write("after", "command")
    before, after = store.audit.read()
    assert (before["act"], after["act"]) == ("before", "after")
    assert after["time"] < before["time"]
