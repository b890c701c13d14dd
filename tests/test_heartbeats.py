"""POST /api/users/heartbeat: the play time and the last heartbeat."""

import functools
from pathlib import Path

import pytest
from forms import edit, race, signed_in

from identity.acts import accounts
from identity.acts.actors import Actor, Authority
from identity.acts.presence import game_shown, games_played, is_playing
from model.records import Grant, now_ms

ADDRESS = "/api/users/heartbeat"


@pytest.fixture(autouse=True)
def stopped_clock(clock) -> None:
    """Stop the clock before Ada's account is made, which counts as her first heartbeat."""


@pytest.fixture
def beat(clock, adas_browser, ada):
    """A function that sends a heartbeat after these seconds and returns the public profile."""

    def beat(seconds: float) -> dict:
        clock.shift(seconds)
        answer = adas_browser.post(ADDRESS)
        assert (answer.status_code, answer.json) == (200, {"message": "ok"})
        assert answer.content_type == "application/json"
        return adas_browser.get(f"/api/users/info?id={ada.id}").json["user"]

    return beat


@pytest.fixture
def played(store, ada):
    """A function that returns Ada's play time and the time of her last heartbeat, in seconds."""

    def played() -> tuple[float, float]:
        user = store.users.read(ada.id)
        return user.play_ms / 1000, (user.last_heartbeat - ada.last_heartbeat) / 1000

    return played


def test_play_time_is_kept_in_ms_and_shown_in_minutes(beat, played, ada):
    """The account was made as the first heartbeat."""
    for _ in range(3):
        user = beat(39.999)
    assert (user["playMinutes"], played()) == (1, (119.997, 119.997))
    user = beat(30.003)
    assert (user["playMinutes"], user["lastHeartbeat"]) == (2, ada.last_heartbeat + 150_000)


def test_gaps_of_a_sitting_add_up(beat, played, subtests):
    for gaps, added in (
        ([60] * 5, 300),
        ([150], 150),
        ([150.001], 0),  # starts a new sitting
        ([60, 0.001, 31], 91.001),
        ([60, 30, 31], 121),
        ([1, 59] * 10, 600),  # two open games count once
    ):
        with subtests.test(gaps=gaps):
            beat(3600)
            before, _ = played()
            for gap in gaps:
                beat(gap)
            assert round(played()[0] - before, 3) == added


def test_heartbeat_within_30_seconds_writes_nothing(beat, played, ada, faults):
    beat(60)
    before = faults.saved_version_of_user(ada.id)
    for gap in (0, 0.001, 29.999):
        beat(gap)
        assert faults.saved_version_of_user(ada.id) == before
    assert played() == (60, 60)


def test_heartbeat_of_a_clock_that_is_ahead_counts_once(store, beat, played, ada, subtests):
    """Another machine's clock may be a minute ahead; more than that starts a new sitting."""
    for ahead, gaps, added in ((60, [0, 60, 60], 60), (60.001, [0, 60], 60)):
        with subtests.test(ahead=ahead, gaps=gaps):
            beat(3600)
            before, now = played()
            with store.users.edit(ada.id) as user:
                user.last_heartbeat += round(ahead * 1000)
            for gap in gaps:
                beat(gap)
            assert round(played()[0] - before, 3) == added


def test_racing_heartbeats_count_once(clock, ada, played, open_browser):
    browsers = [signed_in(open_browser()) for _ in range(8)]
    clock.shift(60)
    answers = race(*(functools.partial(each.post, ADDRESS) for each in browsers))
    assert [each.status_code for each in answers] == [200] * 8
    assert played()[0] == 60


def test_signed_out_heartbeat_is_401(clock, adas_browser, played):
    clock.shift(60)
    adas_browser.post("/sign-out")
    assert adas_browser.post(ADDRESS).status_code == 401
    assert played()[0] == 0


def test_heartbeat_names_its_game(store, beat, ada, adas_browser, clock):
    """A game that is no game of this site counts as none, as on older pages that send nothing."""
    fields = {"game_url": "https://chess.example/", "listed": True}
    game, _ = store.clients.register("Chess", [], None, **fields)
    edit(store.users, ada.id, grants={game.id: Grant("a grant", ["userinfo"], 1)})
    for sent, kept in ((game.id, game.id), ("x" * 24, None), ("../users/1", None), (None, None)):
        clock.shift(60)
        data = {"client_id": sent} if sent else None
        assert adas_browser.post(ADDRESS, data=data).status_code == 200
        user = store.users.read(ada.id)
        assert (user.last_game, store.playing.now()) == (kept, {ada.id: kept})
    assert user.grants[game.id].played == user.last_heartbeat - 180_000


def test_heartbeat_counts_where_who_plays_cannot_be_noted(store, beat, played, folders):
    Path(folders[0], "playing").rmdir()
    Path(folders[0], "playing").touch()
    beat(60)
    assert (played(), store.playing.now()) == ((60, 60), {})


@pytest.mark.load
def test_thousand_heartbeats_are_one_entry(store, adas_browser, ada, folders, clock):
    clock.shift(60)
    games = [
        store.clients.register("Game", [], None, game_url=f"https://{name}.example/")[0].id
        for name in "ab"
    ]
    for number in range(1000):
        adas_browser.post(ADDRESS, data={"client_id": games[number % 2]})
    user = store.users.read(ada.id)
    assert (user.last_game, store.playing.now()) == (games[0], {ada.id: games[1]})
    assert len([*Path(folders[0]).glob("playing/*/*")]) <= 2  # of this window and the previous one


def test_player_plays_until_heartbeats_end(store, beat, ada, clock):
    assert not is_playing(store.users.read(ada.id))  # a sign-up is no game
    beat(60)
    for later, playing in ((150, True), (0.001, False), (-250, False)):  # the clock was set back
        clock.shift(later)
        assert is_playing(store.users.read(ada.id)) is playing


def test_hidden_game_is_named_to_the_player_and_to_moderators_alone(store, beat, ada):
    bob = store.users.register("Bob", "bob@example.org", "a hash")
    moderator = store.users.register("Eve", "eve@example.org", "a hash", mod_level=1)
    fields = {"game_url": "https://chess.example/", "listed": True}
    game, _ = store.clients.register("Chess", [], None, **fields)

    def seen() -> list[bool]:
        user = store.users.read(ada.id)
        return [game_shown(store, user, each) == game for each in (None, bob, moderator, user)]

    beat(60)
    assert not any(seen())
    accounts.add_heartbeat(Authority(store, Actor(ada.id)), ada.id, game.id)
    edit(store.users, ada.id, last_game=game.id)
    assert all(seen())
    edit(store.users, ada.id, hides_game=True)
    assert seen() == [False, False, True, True]
    edit(store.clients, game.id, listed=False)
    assert not any(seen())


def test_profile_shows_listed_games_that_are_not_hidden(store, ada):
    """The last played first; a test of an app is no consent, and what was not played is no game."""
    shown = []
    for name, change in (
        ("first", {}),
        ("last", {"played": 900}),
        ("hidden", {"hidden": True}),
        ("unplayed", {"played": 0}),
        ("tested", {"scope": []}),
        ("unlisted", {}),
        ("disabled", {}),
    ):
        url = f"https://{name}.example/"
        client, _ = store.clients.register(name, [], None, game_url=url, listed=True)
        edit(store.clients, client.id, listed=name != "unlisted", disabled=name == "disabled")
        with store.users.edit(ada.id) as user:
            grant = {"id": name, "scope": ["userinfo"], "since": now_ms(), "played": 500}
            user.grants[client.id] = Grant(**grant | change)
        shown.append(client.id)
    user = store.users.read(ada.id)
    found = [(client.id, time) for client, time in games_played(store, user, 5)]
    assert found == [(shown[1], 900), (shown[0], 500)]
    assert len(games_played(store, user, 1)) == 1
