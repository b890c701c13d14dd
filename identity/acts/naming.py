"""The words for who did or registered something, the same on all pages and in messages."""

from typing import NamedTuple

from model.errors import DamagedRecord, NoSuchUser
from model.names import can_be_key, unique_key
from model.records import Client, User
from model.rules import USER_ID
from storage import Storage

ADMINISTRATORS = "the administrators"


class Named(NamedTuple):
    """Words for somebody inside a sentence, and the record of a player who can be shown.

    They are a name only if there is a `user`: pages mark that up, so that no name can imitate them.
    """

    words: str
    user: User | None = None

    @property
    def title(self) -> str:
        """The words at the start of a line."""
        return self.words if self.user else self.words.capitalize()


def name_player(store: Storage, user_id: int) -> Named:
    """Return the words for the player with this id, who may have left."""
    try:
        user = store.users.read(user_id)
    except NoSuchUser:
        return Named("a player who left")
    except DamagedRecord:
        return Named("a player whose record is damaged")
    return Named(user.name, user)


def find_player_id(store: Storage, name: str) -> int | None:
    """Return the id of the player who has, or had, a name; else a number itself, or None."""
    user, key = None, unique_key(name)
    if can_be_key("name", key):
        user = store.users.find_by("name", key) or store.users.find_by_former_name(name)
    return user.id if user else int(name) if USER_ID.fullmatch(name) else None


def name_owner(store: Storage, client: Client) -> Named:
    """Return the words for who registered an app."""
    return Named(ADMINISTRATORS) if client.owner_id is None else name_player(store, client.owner_id)


def describe_groups(groups: list[str]) -> str:
    """Return the words for the players of these groups, inside a sentence."""
    words = (each.replace("flair:", "owners of the flair ", 1) for each in groups)
    return " and ".join(words)


def name_actor(store: Storage, actor: int | str | None) -> Named:
    """Return the words for an actor: a user id, "command", or None if it is unknown."""
    if isinstance(actor, int):
        return name_player(store, actor)
    return Named(f"{ADMINISTRATORS}, with the command" if actor == "command" else "unknown")
