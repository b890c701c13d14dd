"""Grants and their access tokens: what the code grant, the device grant and tickets have in common.

Every line that reads or signs an access token stands here. A token is signed and never stored; it
names the grant of a player by its id, and ends with it.
"""

import re
import secrets
from collections.abc import Sequence

from flask import abort, session
from itsdangerous import BadSignature

from identity.acts.naming import describe_groups
from identity.http.context import get_storage
from identity.http.fast_path import ApiRequest
from identity.http.responses import TokenRefused
from identity.http.signing import serializer
from identity.oauth.authorization import AuthorizationError, AuthorizationRequest
from identity.oauth.terms import SCOPES
from model.errors import NoSuchUser
from model.grant_records import AuthorizationCode, DeviceRequest
from model.records import Client, Grant, User, now_ms
from model.words import say
from storage import Storage
from storage.repositories import unchanged

TOKEN_MAX_AGE = 600  # seconds
BEARER_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 2.1


def require_admitted(client: Client, player: User) -> None:
    """Raise Forbidden if the client is for other players."""
    if player.underage:
        problem = say(
            "Apps can't learn who you are, because you are a younger player. Is that wrong? Ask a "
            "moderator."
        )
        abort(403, problem)
    if not client.admits(player):
        groups = describe_groups(client.only_groups)
        abort(403, say("%(app)s is only for %(groups)s.", app=client.name, groups=groups))


def require_player_of_games(player: User | None) -> None:
    """Raise AuthorizationError unless a game may learn who this player is, None for a guest."""
    if player is None:
        raise AuthorizationError("no_account", "nobody is signed in")
    if player.underage:  # at once: a player who cannot allow it is not asked
        raise AuthorizationError("underage_user", "apps learn nothing of a younger player")


def save_consent(
    user_id: int, auth_request: AuthorizationRequest | DeviceRequest, remembered: bool
) -> Grant:
    """Save and return the player's grant for a client, new unless there is a consent.

    The approved scopes are added to it if they are to be `remembered`. Raises StorageFailed.
    """
    with get_storage().users.edit(user_id) as user:
        # A thief could send the end of the form after the player ended the stolen session.
        if user.suspended or session["id"] not in user.sign_ins:
            abort(403, say("You were signed out meanwhile. Start again from the app."))
        before = user.consents.get(auth_request.client_id)
        # An earlier consent keeps its id, so that its tokens stay valid.
        grant = before or Grant(secrets.token_urlsafe(12), [], now_ms())
        if remembered:
            grant.scope = [each for each in SCOPES if each in grant.scope + auth_request.scope]
        user.grants[auth_request.client_id] = grant
    return grant


def issue_access_token(code: AuthorizationCode, store: Storage, groups: Sequence[str] = ()) -> str:
    """Return a token for the grant of a code, valid for TOKEN_MAX_AGE seconds.

    With `groups` only for as long as the player is in one of them.
    """
    # The grant id is the code's, never one that is read later: a replayed code ends the grant id it
    # names, and with it the token of the first request (RFC 6749 4.1.2).
    claims = {
        "user": code.user_id,
        "client": code.client_id,
        "scope": code.scope,
        "grant": code.grant_id,
    }
    if groups:  # whois need not read the client
        claims["groups"] = groups
    return serializer("access token", store).dumps(claims)


def read_access_token(token: str, store: Storage) -> dict:
    """Return the claims that `issue_access_token` signed. Raises itsdangerous.BadSignature."""
    return serializer("access token", store).loads(token, max_age=TOKEN_MAX_AGE)


def find_granting_user(store: Storage, user_id: int, client_id: str, grant_id: str) -> User | None:
    """Return the player who gave this grant, or None if it has ended.

    It ends when the player withdraws consent, a code is used again, or the player is suspended or
    deleted. The record is shared: it must not be changed.
    """
    try:
        user = store.users.read_from(user_id, unchanged)
    except NoSuchUser:
        return None
    grant = user.grants.get(client_id)
    return user if grant and grant.id == grant_id and not user.suspended else None


def read_token_holder(api_request: ApiRequest, token: str) -> tuple[dict, User]:
    """Return the claims of an access token and the player who gave it. Raises TokenRefused."""
    store = api_request.storage
    try:
        claims = read_access_token(token, store)
    except BadSignature:
        raise TokenRefused("invalid_token", "invalid or expired access token") from None
    user = find_granting_user(store, claims["user"], claims["client"], claims["grant"])
    if user is None:
        problem = "this access token was revoked: by the player, or because a code was used twice"
        raise TokenRefused("invalid_token", problem)
    if not is_for(claims, user):
        raise TokenRefused("invalid_token", "the client of this access token is not for the player")
    return claims, user


def is_for(claims: dict, user: User) -> bool:
    """Return True unless an access token is of an app for groups that its player left."""
    return "groups" not in claims or not set(claims["groups"]).isdisjoint(user.groups)


def read_bearer_token(api_request: ApiRequest) -> str:
    """Return the token in the Authorization header (RFC 6750 2.1). Raises TokenRefused."""
    scheme, credentials = api_request.authorization
    if scheme != "bearer":
        raise TokenRefused(None, "send the access token as Authorization: Bearer")
    if any(name == "access_token" for name, _ in api_request.query):
        raise TokenRefused("invalid_request", "send the access token once, in the header", 400)
    # itsdangerous skips characters that it does not know, so they are refused first.
    if not BEARER_TOKEN.fullmatch(credentials):
        raise TokenRefused("invalid_request", "the Authorization header is malformed", 400)
    return credentials
