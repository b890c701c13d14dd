"""POST /api/users/heartbeat: the play time and the last heartbeat."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage.records import Suspension

ADDRESS = "/api/users/heartbeat"
START = 1_795_239_191_948  # milliseconds


class StoppedClock:
    """A clock in milliseconds that is advanced by the test."""

    def __init__(self) -> None:
        self.ms = START

    def time_ns(self) -> int:
        return self.ms * 1_000_000

    def time(self) -> float:
        return self.ms / 1000


@pytest.fixture
def stopped_clock(monkeypatch) -> StoppedClock:
    """The server's clock; Ada's last heartbeat is at START."""
    stopped_clock = StoppedClock()
    monkeypatch.setattr(time, "time_ns", stopped_clock.time_ns)
    monkeypatch.setattr(time, "time", stopped_clock.time)
    return stopped_clock


@pytest.fixture
def beat(stopped_clock, adas_browser, ada):
    """A function that sends a heartbeat after these seconds and returns the public profile."""

    def beat(seconds: float) -> dict:
        stopped_clock.ms += round(seconds * 1000)
        answer = adas_browser.post(ADDRESS)
        assert (answer.status_code, answer.json) == (200, {"message": "ok"})
        assert answer.content_type == "application/json"
        return adas_browser.get(f"/api/users/info?id={ada.id}").json["user"]

    return beat


def seen(user: dict) -> int:
    """Return the seconds from START to the last heartbeat."""
    return (user["lastHeartbeat"] - START) / 1000


def test_heartbeats_each_minute_add_the_minutes(beat):
    for minute in range(1, 6):
        user = beat(60)
        assert (user["playMinutes"], seen(user)) == (minute, minute * 60)


def test_sign_up_counts_as_the_first_heartbeat(store, beat, ada):
    assert ada.last_heartbeat == START
    beat(100)
    assert store.users.read(ada.id).play_ms == 100_000


def test_play_minutes_are_whole_minutes_of_a_sum_kept_in_milliseconds(store, beat, ada):
    for _ in range(3):
        user = beat(39.999)
    assert user["playMinutes"] == 1
    assert store.users.read(ada.id).play_ms == 119_997
    assert beat(30.003)["playMinutes"] == 2


@pytest.mark.parametrize(("gap", "added"), [(150, 150_000), (150.001, 0), (3600, 0)])
def test_gap_over_150_seconds_starts_a_new_sitting(store, beat, ada, gap, added):
    assert seen(beat(gap)) == gap
    assert store.users.read(ada.id).play_ms == added
    beat(60)
    assert store.users.read(ada.id).play_ms == added + 60_000


@pytest.mark.parametrize("gap", [0, 0.001, 29, 30])
def test_heartbeat_within_30_seconds_writes_nothing(store, beat, ada, gap, faults):
    beat(60)
    before = faults.saved_version_of_user(ada.id)
    assert seen(beat(gap)) == 60
    assert faults.saved_version_of_user(ada.id) == before
    assert seen(beat(31)) == 60 + gap + 31
    assert store.users.read(ada.id).play_ms == round((60 + gap + 31) * 1000)


@pytest.mark.parametrize("apart", [1, 20, 30, 45])
def test_two_open_games_count_once(store, beat, ada, apart):
    for _ in range(10):
        beat(apart)
        beat(60 - apart)
    assert 540_000 < store.users.read(ada.id).play_ms <= 600_000


def test_last_heartbeat_of_a_machine_whose_clock_is_ahead_counts_once(store, beat, ada):
    with store.users.edit(ada.id) as user:
        user.last_heartbeat += 60_000
    assert seen(beat(0)) == 60
    assert seen(beat(120)) == 120
    assert store.users.read(ada.id).play_ms == 60_000


@pytest.mark.parametrize("ahead", [60.001, 3600])
def test_last_heartbeat_in_the_future_starts_a_new_sitting(store, beat, ada, ahead):
    with store.users.edit(ada.id) as user:
        user.last_heartbeat += round((60 + ahead) * 1000)
    assert seen(beat(60)) == 60
    assert store.users.read(ada.id).play_ms == 0
    beat(60)
    assert store.users.read(ada.id).play_ms == 60_000


def test_racing_heartbeats_count_once(store, stopped_clock, app, ada, adas_browser, open_browser):
    browsers = [open_browser() for _ in range(8)]
    for browser in browsers:
        browser.sign_in()
    stopped_clock.ms += 60_000
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda browser: browser.post(ADDRESS).status_code, browsers))
    assert answers == [200] * 8
    assert store.users.read(ada.id).play_ms == 60_000


def test_signed_out_heartbeat_is_401(store, stopped_clock, browser, adas_browser, ada):
    stopped_clock.ms += 60_000
    adas_browser.post("/sign-out")
    assert browser.post(ADDRESS).status_code == 401
    assert store.users.read(ada.id).play_ms == 0


def test_suspended_heartbeat_is_401(store, stopped_clock, adas_browser, ada):
    stopped_clock.ms += 60_000
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command")
    assert adas_browser.post(ADDRESS).status_code == 401
    assert store.users.read(ada.id).play_ms == 0


def test_any_other_method_is_405(adas_browser):
    answer = adas_browser.get(ADDRESS)
    assert (answer.status_code, "POST" in answer.headers["Allow"]) == (405, True)


def test_failed_write_is_503(beat, adas_browser, stopped_clock, faults):
    beat(60)
    stopped_clock.ms += 60_000
    faults.refuse_saves("users")
    assert adas_browser.post(ADDRESS).status_code == 503
