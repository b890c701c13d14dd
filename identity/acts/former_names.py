"""How many names a player may keep that nobody else can have."""

from identity.site.formatting import DATE, format_time
from model.errors import TooManyNames
from model.names import unique_key
from model.records import User, sha256
from storage import Storage

MOST_KEPT = 10  # former names of one player


def require_few_names(store: Storage, user: User, name: str) -> None:
    """Raise TooManyNames if a player would keep more than MOST_KEPT names under this new one.

    One of the player's former names, or the present one spelled differently, is always fine.
    """
    own, new = (sha256(unique_key(each)) for each in (user.name, name))
    kept = {each.id: each.expires for each in store.users.former_names.of(user.id)}
    kept.pop(own, None)
    if new not in (own, *kept) and len(kept) >= MOST_KEPT:
        date = format_time(min(kept.values()), DATE)
        raise TooManyNames(
            "name",
            f"You gave up {MOST_KEPT} names lately. Take one of them back, or choose a new one "
            f"after {date}.",
        )
