"""What a client does with the tokens that it has: ending them, and asking about them.

    POST /oauth/revoke        the client ends a token (RFC 7009)                      revoke
    POST /oauth/introspect    a confidential client asks what a token is (RFC 7662)   introspect

A client learns of its own tokens alone, and ends no others.
"""

import logging

from flask import abort
from itsdangerous import BadSignature

from identity.http.fast_path import ApiRequest
from identity.http.responses import NO_STORE, STORAGE_RETRY_AFTER, JsonResponse
from identity.http.signing import signed_at
from identity.oauth.authorization import read_scope
from identity.oauth.clients import (
    REFRESH_GRANT,
    allow_pages_of_client,
    authenticate_client,
    read_form_parameters,
    single_parameters,
)
from identity.oauth.grants import TOKEN_MAX_AGE, find_granting_user, is_for, read_access_token
from identity.oauth.refresh import REFRESH_TOKEN, end_family, find_player
from identity.oauth.terms import InvalidRequest, UnauthorizedClient
from model.errors import StorageFailed
from model.grant_records import Family
from model.kinds import FAMILIES
from model.records import Client, User, sha256

FIELDS = ("client_id", "client_secret", "token", "token_type_hint")
Good = tuple[User, list[str], dict]  # the player, the scope, and the type and times of a token

logger = logging.getLogger("identity_server")  # the app's own


def read_token_request(api_request: ApiRequest) -> tuple[Client, str]:
    """Return the client that sends a request about a token, and the token. Raises HTTPException."""
    sent = read_form_parameters(api_request)
    allow_pages_of_client(api_request, dict(sent))
    form = single_parameters(sent, FIELDS)
    client = authenticate_client(api_request, form)
    if "token" not in form:
        raise InvalidRequest("token is missing")
    return client, form["token"]  # of either type, whatever the hint says (RFC 7009 2.1)


def revoke(api_request: ApiRequest) -> JsonResponse:
    """End a token. The response is the same for one that is unknown, old or another client's.

    Raises HTTPException, StorageError.
    """
    client, token = read_token_request(api_request)
    try:
        end_token(api_request, client, token)
    except StorageFailed as error:
        # RFC 7009 2.2.1: the client takes the token for good, and sends the request again.
        logger.error("a token was not ended: %s", error)
        problem = "the token may still be good: send this request again"
        abort(503, problem, retry_after=STORAGE_RETRY_AFTER)
    return JsonResponse({}, NO_STORE)


def end_token(api_request: ApiRequest, client: Client, token: str) -> None:
    """End a token of the client, and all access tokens that it has of this player.

    Of a refresh token the family ends, also by one that was replaced: at the token endpoint that
    would be a reuse. An access token leaves the families. Raises StorageError.
    """
    store = api_request.storage
    if family := find_family(api_request, client, token):
        end_family(store, family.user_id, client.id, family.id)
    elif claims := read_own_claims(api_request, client, token):
        end_family(store, claims["user"], client.id, "", claims["grant"])


def introspect(api_request: ApiRequest) -> JsonResponse:
    """Return what one of the client's own tokens is good for, or that it is not good.

    No page reads the response. Raises HTTPException, StorageError.
    """
    try:
        client, token = read_token_request(api_request)
    finally:
        api_request.any_origin = False
    if client.public:  # RFC 7662 2.1: anybody could ask in its name
        raise UnauthorizedClient("a public client cannot ask about tokens")
    found = describe_refresh_token(api_request, client, token)
    found = found or describe_access_token(api_request, client, token)
    if found is None:
        return JsonResponse({"active": False}, NO_STORE)  # whatever the reason (RFC 7662 2.2)
    user, scope, body = found
    body |= {"active": True, "scope": " ".join(scope), "client_id": client.id, "sub": str(user.id)}
    if api_request.openid:
        body["username"] = api_request.storage.handles.of(user)
    return JsonResponse(body, NO_STORE)


def describe_refresh_token(api_request: ApiRequest, client: Client, token: str) -> Good | None:
    """Return what there is to tell of a good refresh token, None for any other text.

    A look at an old one is no use of it, and ends nothing.
    """
    family, digest = find_family(api_request, client, token), sha256(token.partition(".")[2])
    user = family and find_player(api_request.storage, family, client)
    if user is None or digest not in (family.current, family.previous):
        return None
    times = {"exp": family.expires // 1000, "token_type": REFRESH_GRANT}
    if digest == family.current:  # of the one before nobody knows when it was issued
        times["iat"] = family.used // 1000
    scope = read_scope(" ".join(family.scope), client, api_request.openid, offline=True)
    return user, scope, times


def describe_access_token(api_request: ApiRequest, client: Client, token: str) -> Good | None:
    """Return what there is to tell of a good access token, None for any other text."""
    claims = read_own_claims(api_request, client, token)
    grant = claims and (claims["user"], claims["client"], claims["grant"])
    user = grant and find_granting_user(api_request.storage, *grant)
    if user is None or not is_for(claims, user):
        return None
    issued = signed_at(token)
    times = {"iat": issued, "exp": issued + TOKEN_MAX_AGE, "token_type": "Bearer"}
    return user, claims["scope"], times


def find_family(api_request: ApiRequest, client: Client, token: str) -> Family | None:
    """Return the family of a text that has the form of a refresh token of this client, or None."""
    match = REFRESH_TOKEN.fullmatch(token)
    family = match and api_request.storage.records(FAMILIES).find(match[1])
    return family if family and family.client_id == client.id else None


def read_own_claims(api_request: ApiRequest, client: Client, token: str) -> dict | None:
    """Return the claims of an access token of this client, None for any other text."""
    try:
        claims = read_access_token(token, api_request.storage)
    except BadSignature:
        return None
    return claims if claims["client"] == client.id else None
