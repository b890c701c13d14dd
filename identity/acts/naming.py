"""The words for who did or registered something, the same on all pages and in messages."""

from typing import NamedTuple

from identity.site.formatting import join_words
from model.errors import DamagedRecord, NoSuchUser
from model.names import can_be_key, unique_key
from model.records import Client, User
from model.rules import USER_ID
from model.words import Words, say, say_in
from storage import Storage

ADMINISTRATORS = "the administrators"  # in a sentence that is English alone
GROUP_WORDS = {
    "players": say_in("is only for", "players"),
    "moderators": say_in("is only for", "moderators"),
    "administrators": say_in("is only for", "administrators"),
}


class Named(NamedTuple):
    """A name or a label for somebody, and the record of a player who can be shown.

    It is a name only if there is a `user`: pages mark that up, so that no name can imitate a label.
    A label stands alone, "Player 7 (left)": inside a sentence it would not inflect.
    """

    words: str
    user: User | None = None


def say_left(player_id: str) -> Words:
    """Return the label of a player who left."""
    return say("Player %(id)s (left)", id=player_id)


def name_player(store: Storage, user_id: int) -> Named:
    """Return the words for the player with this id, who may have left."""
    try:
        user = store.users.read(user_id)
    except NoSuchUser:
        return Named(say_left(str(user_id)))
    except DamagedRecord:
        return Named(say("Player %(id)s (damaged record)", id=str(user_id)))
    return Named(user.name, user)


def find_player_id(store: Storage, name: str) -> int | None:
    """Return the id of the player who has, or had, a name; else a number itself, or None."""
    user, key = None, unique_key(name)
    if can_be_key("name", key):
        user = store.users.find_by("name", key) or store.users.find_by_former_name(name)
    return user.id if user else int(name) if USER_ID.fullmatch(name) else None


def name_owner(store: Storage, client: Client) -> Named:
    """Return the words for who registered an app."""
    if client.owner_id is None:
        return Named(say("The administrators"))
    return name_player(store, client.owner_id)


def describe_groups(groups: list[str]) -> str:
    """Return the words for the players of these groups, inside "... is only for ..."."""
    return join_words([GROUP_WORDS.get(each) or _describe_flair(each) for each in groups])


def _describe_flair(group: str) -> str:
    flair = group.removeprefix("flair:")
    return say_in("is only for", "owners of the flair %(flair)s", flair=flair)


def name_actor(store: Storage, actor: int | str | None) -> Named:
    """Return the words for an actor: a user id, "command", or None if it is unknown."""
    if isinstance(actor, int):
        return name_player(store, actor)
    if actor == "command":
        return Named(say("The administrators (with the command)"))
    return Named(say_in("who", "Unknown"))
