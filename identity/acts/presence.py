"""Presence: who plays now, and what others may see of it.

That somebody plays is public, by the wire contract. Which game it is, a player may hide from all
but moderators, and nobody sees the name of a game that is not listed.
"""

from identity.acts.accounts import SITTING_GAP
from identity.acts.rights import may_see_hidden
from model.records import CLOCK_TOLERANCE, Client, User, now_ms
from storage import Storage

APPS_READ = 100  # of one player


def is_playing(user: User) -> bool:
    """Return True if the user sent a heartbeat in the last SITTING_GAP; the sign-up is not one."""
    since = now_ms() - user.last_heartbeat  # below 0 if another machine's clock is ahead
    return user.last_heartbeat != user.created and -CLOCK_TOLERANCE * 1000 <= since <= SITTING_GAP


def game_shown(store: Storage, user: User, viewer: User | None) -> Client | None:
    """Return the game that a user plays now if the viewer (None: a guest) may know it, or None."""
    return games_shown(store, [user], viewer).get(user.id)


def games_shown(store: Storage, users: list[User], viewer: User | None) -> dict[int, Client]:
    """Return, by user id, the games that users play now and that the viewer may know."""
    shown = [each for each in users if not each.hides_game or may_see_hidden(viewer, each)]
    ids = {each.id: each.last_game for each in shown if each.last_game and is_playing(each)}
    games = {each.id: each for each in _listed_games(store, list(ids.values()))}
    return {user_id: games[game] for user_id, game in ids.items() if game in games}


def games_played(store: Storage, user: User, at_most: int) -> list[tuple[Client, int]]:
    """Return the games that a profile shows, each with when it was last played, the latest first.

    They are listed games that the player allowed, and does not hide.
    """
    times = {name: each.played for name, each in user.consents.items() if not each.hidden}
    ids = sorted(filter(times.get, times), key=times.get, reverse=True)
    return [(each, times[each.id]) for each in _listed_games(store, ids)[:at_most]]


def games_made(store: Storage, user: User, at_most: int) -> list[Client]:
    """Return the listed games among the apps of a player, at most APPS_READ, the newest first."""
    ids = [each.id for each in store.clients.of_owner(user.id, at_most=APPS_READ)]
    return sorted(_listed_games(store, ids), key=lambda game: game.created, reverse=True)[:at_most]


def _listed_games(store: Storage, ids: list[str]) -> list[Client]:
    found = store.clients.read_from_many(ids)
    return [each for each in found if each.is_game and each.listed and not each.disabled]
