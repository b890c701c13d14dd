"""Presence: who plays now, and what others may see of it.

That somebody plays is public, by the wire contract. Which game it is, a player may hide from all
but moderators, and nobody sees the name of a game that is not listed.
"""

from identity.acts.accounts import SITTING_GAP
from identity.acts.rights import may_see_hidden
from model.records import CLOCK_TOLERANCE, Client, User, now_ms
from storage import Storage
from storage.repositories import unchanged

APPS_READ = 100  # of one player


def is_playing(user: User) -> bool:
    """Return True if the user sent a heartbeat in the last SITTING_GAP; the sign-up is not one."""
    since = now_ms() - user.last_heartbeat  # below 0 if another machine's clock is ahead
    return user.last_heartbeat != user.created and -CLOCK_TOLERANCE * 1000 <= since <= SITTING_GAP


def game_shown(store: Storage, user: User, viewer: User | None) -> Client | None:
    """Return the game that a user plays now if the viewer (None: a guest) may know it, or None."""
    if user.last_game is None or not is_playing(user):
        return None
    if user.hides_game and not may_see_hidden(viewer, user):
        return None
    return next(iter(_listed_games(store, [user.last_game])), None)


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
    found = store.clients.read_from_many(ids, unchanged)
    return [each for each in found if each.is_game and each.listed and not each.disabled]
