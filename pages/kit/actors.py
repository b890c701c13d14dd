"""Who acts on a page: the signed-in player, and what they may do."""

from functools import partial

from flask import abort, current_app, request

from identity.access.letters import write_to
from identity.access.sessions import require_player
from identity.acts.actors import Actor, Authority
from identity.acts.rights import may_administer
from identity.http.context import get_storage
from identity.http.limits import client_address
from model.records import MODERATOR, User
from model.words import say


def require_moderator() -> User:
    """Return the signed-in moderator or administrator; a guest signs in first. Raises Forbidden."""
    player = require_player()
    if player.mod_level < MODERATOR:
        abort(403, say("Only moderators can do this."))
    return player


def require_administrator() -> User:
    """Return the signed-in administrator; a guest signs in first. Raises Forbidden."""
    player = require_player()
    if not may_administer(player):
        abort(403, say("Only administrators can do this."))
    return player


def authority_of(player: User) -> Authority:
    """Return the Authority of a player: acts check rights, log this address and send letters."""
    actor = Actor(player.id, client_address(request.remote_addr))
    return Authority(get_storage(), actor, partial(write_to, current_app.config))
