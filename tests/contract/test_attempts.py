"""Attempts that are counted: at most `limit` of a subject in two windows; and who plays now."""

import pytest
import time_machine
from conftest import begin_window

from model.errors import TooManyAttempts
from storage.contract import ATTEMPTS_WINDOW, PLAYING_KEPT, PLAYING_LISTED

from .base import together


class TestAttempts:
    @pytest.fixture(autouse=True)
    def start_of_window(self, clock) -> None:
        begin_window(clock)

    def test_check_refuses_as_the_count_would_and_counts_nothing(self, storage):
        for window in (ATTEMPTS_WINDOW, 86_400):
            limit = ("password", "ada", 2, window)
            for _ in range(2):
                for _ in range(5):
                    storage.attempts.require_left(*limit)
                storage.attempts.count(*limit)
            refused = refuse(storage, *limit)
            with pytest.raises(TooManyAttempts) as checked:
                storage.attempts.require_left(*limit)
            assert checked.value.retry_after == refused.retry_after

    def test_kinds_and_subjects_of_any_text_are_counted_separately(self, storage):
        for kind, subject in (
            *(("password", "ada"), ("password", "bob"), ("sign-up", "ada")),
            *(("password", each) for each in ("../..", "", "ada/\x00\n", "ü" * 5000)),
        ):
            storage.attempts.count(kind, subject, limit=1)
            refuse(storage, kind, subject, 1)

    def test_cleared_attempts_do_not_count(self, storage, clock):
        storage.attempts.clear("password", "ada")  # none is counted yet
        cleared = storage.attempts.count("password", "ada", limit=2)
        clock.shift(ATTEMPTS_WINDOW)
        for name in ("ada", "bob"):
            storage.attempts.count("password", name, limit=2)
        storage.attempts.clear("password", "ada")
        storage.attempts.refund(cleared)
        storage.attempts.count("password", "ada", limit=1)
        refuse(storage, "password", "ada", 1)
        refuse(storage, "password", "bob", 1)

    def test_refused_attempt_is_not_counted(self, storage):
        first, _ = (storage.attempts.count("password", "ada", limit=2) for _ in range(2))
        for _ in range(20):
            refuse(storage, "password", "ada", 2)
        storage.attempts.refund(first)
        storage.attempts.count("password", "ada", limit=2)

    def test_only_this_window_and_the_previous_one_count(self, storage, clock):
        for allowed in (3, 2, 3):
            for _ in range(allowed):
                storage.attempts.count("password", "ada", limit=5)
            if allowed == 2:
                refuse(storage, "password", "ada", 5)
            clock.shift(ATTEMPTS_WINDOW)
        for _ in range(2):
            storage.attempts.count("password", "ada", limit=5)
        refuse(storage, "password", "ada", 5)

    def test_attempts_are_accepted_after_retry_after(self, storage, clock, subtests):
        for before, now in ((3, 0), (2, 1), (0, 3), (1, 2)):
            for second in (0, 400, ATTEMPTS_WINDOW - 1):
                subject = f"{before} {now} {second}"
                begin_window(clock)
                for _ in range(before):
                    storage.attempts.count("password", subject, limit=3)
                clock.shift(ATTEMPTS_WINDOW + second)
                for _ in range(now):
                    storage.attempts.count("password", subject, limit=3)
                with subtests.test(subject):
                    clock.shift(refuse(storage, "password", subject, 3).retry_after - 1)
                    refuse(storage, "password", subject, 3)
                    clock.shift(1)
                    storage.attempts.count("password", subject, limit=3)

    def test_attempt_is_refunded_in_the_next_window_and_later(self, storage, clock):
        early, late = (storage.attempts.count("password", "ada", limit=2) for _ in range(2))
        clock.shift(ATTEMPTS_WINDOW)
        storage.attempts.refund(early)
        storage.attempts.refund(storage.attempts.count("password", "ada", limit=2))
        clock.shift(2 * ATTEMPTS_WINDOW)
        storage.attempts.count("password", "ada", limit=1)
        storage.attempts.refund(late)  # of a window that no longer counts
        refuse(storage, "password", "ada", 1)

    def test_parallel_attempts_are_counted_exactly(self, storage):
        results = together(lambda _: storage.attempts.count("password", "ada", limit=10), range(32))
        assert sum(isinstance(result, TooManyAttempts) for result in results) == 22

    def test_parallel_counts_and_refunds_leave_none(self, storage):
        def try_often(_: int) -> None:
            for _ in range(20):
                storage.attempts.refund(storage.attempts.count("password", "ada", limit=8))

        assert together(try_often, range(8)) == [None] * 8
        storage.attempts.count("password", "ada", limit=1)


def refuse(storage, kind: str, subject: str, *limit: int) -> TooManyAttempts:
    """Expect that an attempt is refused; return the error."""
    with pytest.raises(TooManyAttempts) as refused:
        storage.attempts.count(kind, subject, *limit)
    return refused.value


NOON = 1_800_000_000  # seconds


class TestPlaying:
    def test_players_are_listed_with_the_game_they_named_last(self, storage):
        with time_machine.travel(NOON, tick=True):
            for user_id, game in ((1, "a" * 24), (2, None), (1, "b" * 24), (2, None)):
                storage.playing.note(user_id, game)
            assert storage.playing.now() == {1: "b" * 24, 2: None}

    def test_players_are_listed_until_their_heartbeats_end(self, storage):
        with time_machine.travel(NOON, tick=False) as clock:
            storage.playing.note(1, "a" * 24)
            clock.shift(PLAYING_KEPT // 2 - 1)
            storage.playing.note(2, None)
            assert storage.playing.now() == {1: "a" * 24, 2: None}
            clock.shift(PLAYING_KEPT // 2 + 2)
            assert list(storage.playing.now()) in ([2], [])
            clock.shift(PLAYING_KEPT)
            assert storage.playing.now() == {}
            storage.playing.note(3, None)  # the first after a quiet time
            assert storage.playing.now() == {3: None}

    def test_one_look_reads_a_bounded_number(self, storage):
        for user_id in range(1, PLAYING_LISTED + 50):
            storage.playing.note(user_id, None)
        found = storage.playing.now()
        assert len(found) == PLAYING_LISTED
        assert set(found) <= set(range(1, PLAYING_LISTED + 50))
