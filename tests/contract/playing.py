"""Who plays now."""

import time_machine

from storage.contract import PLAYING_KEPT, PLAYING_LISTED

from .base import Contract

NOON = 1_800_000_000  # seconds


class PlayingContract(Contract):
    """Players are listed for some minutes after each heartbeat, once each."""

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
