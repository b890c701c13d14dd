"""Where apps keep players signed in: which of these families count, and what ends them."""

from collections.abc import Sequence

from identity.acts.actors import Authority
from identity.acts.logouts import tell_all_ended
from model.grant_records import Family
from model.kind import DAY_MS
from model.kinds import FAMILIES
from model.records import Client, Session, User, now_ms
from model.words import plain, say
from storage import Storage


def is_good(family: Family, user: User, client: Client | None) -> bool:
    """Return True if a family of this player and app counts.

    A grant that names it says so, and the app was not disabled since. An edit reads expired ones.
    """
    grant = user.grants.get(family.client_id)
    is_named = grant is not None and family.id in grant.families and not user.suspended
    is_usable = client is not None and client.epoch == family.epoch
    return is_named and is_usable and not FAMILIES.has_expired(family, now_ms())


def families_of(store: Storage, user: User) -> list[tuple[Family, Client]]:
    """Return where apps keep a player signed in, the last used first, each with its app."""
    found = store.records(FAMILIES).read_from_many([*user.families])
    found.sort(key=lambda each: each.used, reverse=True)
    clients = store.clients.read_from_many([*{each.client_id for each in found}])
    by_id = {each.id: each for each in clients}
    pairs = ((each, by_id.get(each.client_id)) for each in found)
    return [(family, client) for family, client in pairs if is_good(family, user, client)]


def tell_first(by: Authority, player: User, client: Client) -> None:
    """Tell a player that an app may stay signed in now, unless it is somewhere already.

    Once a day: the app may ask again and again without using what it gets.
    """
    text = say(
        "%(app)s may stay signed in as you now. Was that not you? Remove its access on your "
        "account page, under Apps.",
        app=client.name,
    )
    since = now_ms() - DAY_MS
    was_told = any(each.text == plain(text) and each.since > since for each in player.notices)
    if not was_told and all(each.id != client.id for _, each in families_of(by.store, player)):
        by.notify(player.id, text, "sign-in")


def end_all(by: Authority, user: User, kept: Sequence[Session] = ()) -> None:
    """End all sessions but the `kept` ones and those of apps, in an edit of the player."""
    ended = [each for each in user.sessions if each not in kept]
    tell_all_ended(by, user, user.consents, ended)
    user.sessions = [*kept]
    user.end_app_sessions(user.grants)


def end_where_refused(by: Authority, user: User) -> None:
    """End what apps have of a player who is in none of their groups any more, in an edit."""
    clients = by.store.clients.read_from_many([*user.consents])
    refused = [each.id for each in clients if not each.admits(user)]
    tell_all_ended(by, user, refused, user.sessions)
    user.end_app_sessions(refused)
