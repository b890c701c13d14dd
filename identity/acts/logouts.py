"""Apps that are told of a sign-out (OpenID Connect Back-Channel Logout 1.0): which, and of what.

A message is put into the outbox in the edit that ends something, before that is saved. A database
saves both or neither. In files the message stays if the edit fails after it: apps are told too
much, and never too little.
"""

import json
import logging
from collections.abc import Iterable, Sequence

from identity.acts.actors import Authority
from identity.messages.outbox import LOGOUT, new_message
from model.errors import TooManyAttempts
from model.kinds import FAMILIES, OUTBOX
from model.records import Client, Session, User
from storage import Storage

EVERYTHING = ""  # in place of a sid: also sessions that are not known here any more
TOLD_AN_HOUR = 60  # single sign-outs of one player: somebody may sign in and out all day
ALL_ENDED_AN_HOUR = 20  # ends of everything by one player; then the rule of a full queue holds
MOST_WAITING = 200  # messages for one app, beyond which players add only what must not be lost
LOG = logging.getLogger(__name__)


def tell_ended(by: Authority, user: User, client_ids: Iterable[str], sids: list[str]) -> None:
    """Tell apps that single sessions of the player end. Those over TOLD_AN_HOUR are dropped."""
    clients = _clients_to_tell(by.store, client_ids) if sids else []
    if clients and not _is_within(by, "told sign-outs of", TOLD_AN_HOUR):
        LOG.warning("apps are not told of a sign-out of user %s: too many", by.actor.id)
        return
    for client in clients:
        _put(by, user, client, sids)


def tell_all_ended(
    by: Authority, user: User, client_ids: Iterable[str], ended: Sequence[Session]
) -> None:
    """Tell apps that all that they have of the player ends, these sessions among it."""
    clients = _clients_to_tell(by.store, client_ids)
    is_own = clients and by.actor.id == user.id
    is_often = is_own and not _is_within(by, "told ends of", ALL_ENDED_AN_HOUR)
    for client in clients:
        ids = user.grants[client.id].families
        families = by.store.records(FAMILIES).read_from_many(ids)
        sids = [each.sid for each in (*families, *reversed(ended))]
        _put(by, user, client, [EVERYTHING, *dict.fromkeys(sids)], is_often)


def _is_within(by: Authority, kind: str, limit: int) -> bool:
    """Count an act of a player, and return whether it is within its limit an hour."""
    try:
        by.count_own(kind, limit)
    except TooManyAttempts:
        return False
    return True


def _clients_to_tell(store: Storage, client_ids: Iterable[str]) -> list[Client]:
    clients = store.clients.read_from_many([*client_ids])
    return [each for each in clients if each.backchannel_logout_uri]


def _put(
    by: Authority, user: User, client: Client, sids: list[str], is_often: bool = False
) -> None:
    """Put a message into the outbox, unless too many wait for the app, or are of the player.

    A player then adds only what ends everything, and that once: it is signed when it is sent, and
    ends what came meanwhile.
    """
    outbox, is_own = by.store.records(OUTBOX), by.actor.id == user.id
    is_full = is_often or outbox.count_between("app", client.id, client.id) >= MOST_WAITING
    if is_own and is_full:
        waiting = (json.loads(each.body) for each in outbox.page("app", client.id))
        ends_all = (each["user"] == user.id and EVERYTHING in each["sids"] for each in waiting)
        if EVERYTHING not in sids or any(ends_all):
            LOG.warning("client %s is not told of a sign-out: too many messages wait", client.id)
            return
    body = json.dumps({"client": client.id, "user": user.id, "sids": sids})
    outbox.put(new_message(LOGOUT, "logout", body, to=client.id))
