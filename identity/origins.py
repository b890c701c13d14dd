"""The origin of a game, which no other app may have: each could ask in the other's name.

A member may have registered the address of somebody else's game. Administrators learn which app has
it, and may take it over, unless a moderator has listed that app.
"""

from collections.abc import Callable
from typing import TypeVar

import storage
from identity.accounts import Acts
from storage import Client, InvalidField, Storage

Value = TypeVar("Value")


def save_game(store: Storage, acts: Acts, save: Callable[[], Value], take_over: bool) -> Value:
    """Return `save()`, an act that registers or changes an app, if need be after a take-over.

    Raises OriginTaken, and InvalidField that names the other app to an administrator: of the field
    "take_over" if that may be taken over.
    """
    try:
        return save()
    except storage.OriginTaken as taken:
        if taken.client is None or not acts.administers:
            raise
        other = taken.client
    shown = f"{other.name}, registered by {name_owner(store, other)}, is at this origin"
    if other.listed:
        problem = f"{shown} and is listed. Unlist it first, or use another host or port."
        raise InvalidField("game_url", problem)
    if not take_over:
        problem = f"{shown}. Take the origin over, or use another host or port."
        raise InvalidField("take_over", problem)
    acts.end_game(other)
    return save()


def name_owner(store: Storage, client: Client) -> str:
    """Return words for who registered an app."""
    if client.owner_id is None:
        return "the administrators"
    try:
        return store.read_user(client.owner_id).name
    except (storage.NoSuchUser, storage.DamagedRecord):
        return "a player who left"
