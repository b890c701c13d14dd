"""Join tickets: how a game server learns who joins, without the player's access token.

    POST /api/tickets          a player's program gets a ticket for one game server    issue_ticket
    POST /api/tickets/check    that server learns whose ticket it is                   check_ticket

Whoever receives an access token can use it anywhere; a ticket is for one server and a minute. With
a nonce of the server it is for one connection. Nothing is stored: the server that made a nonce
knows whether it was used.
"""

import re

from flask import abort
from itsdangerous import BadSignature, SignatureExpired

from identity.http.fast_path import ApiRequest
from identity.http.responses import NO_STORE, JsonResponse, TokenRefused, encode_ascii_json
from identity.http.signing import serializer
from identity.oauth.claims import dated_profile
from identity.oauth.clients import read_form_parameters, single_parameters
from identity.oauth.grants import read_bearer_token, read_token_holder
from identity.oauth.openid import issue_jwt
from identity.oauth.server_addresses import normal_address
from identity.oauth.terms import JOIN, InvalidRequest
from identity.site.formatting import pluralize
from model.errors import NoSuchUser
from model.kind import DAY_MS
from model.records import User, now_ms
from model.rules import CLIENT_ID

TICKET_MAX_AGE = 60  # seconds
SERVERS_CHECKED = 10  # addresses of one server, in a request
NONCE = re.compile(r"[!-~]{1,128}")  # ASCII without spaces
PURPOSE = "join ticket"


def issue_ticket(api_request: ApiRequest) -> JsonResponse:
    """Return a ticket for the `server` of the form, which is host:port or a client id.

    It has the `nonce` of the form, if there is one. `format=jwt` makes it a JWT, which servers can
    check on their own. Raises TokenRefused, InvalidRequest.
    """
    claims, user = read_token_holder(api_request, read_bearer_token(api_request))
    if JOIN not in claims["scope"]:  # any app that the player ever allowed could play as them
        problem = f"this access token has no scope {JOIN}: ask the player for it at the sign-in"
        raise TokenRefused("insufficient_scope", problem, 403)
    form = single_parameters(read_form_parameters(api_request), ("server", "nonce", "format"))
    server, nonce = normal_server(form.get("server", "")), form.get("nonce", "")
    if ":" not in server and api_request.storage.clients.find(server) is None:
        raise InvalidRequest("no app has this client id; an address has a port: host:port")
    if nonce and not NONCE.fullmatch(nonce):
        raise InvalidRequest("nonce is longer than 128 characters, or not printable ASCII")
    if "format" in form:
        require_jwt(api_request, form["format"], server)
        require_age(api_request, user, 403)  # nobody asks this site about it later
        joining = {"sub": str(user.id), "name": user.name, "client_id": claims["client"]}
        joining |= {"aud": server, "nonce": nonce} if nonce else {"aud": server}
        ticket = issue_jwt(
            api_request.storage, api_request.base_url, joining, "join+jwt", TICKET_MAX_AGE
        )
    else:  # a list: the names of five members would make it half as long again
        groups = claims.get("groups", ())
        values = user.id, claims["client"], claims["grant"], server, nonce, *groups
        ticket = serializer(PURPOSE, api_request.storage).dumps(values)
    return JsonResponse(
        b'{"ticket": "%b", "expires_in": %d}' % (ticket.encode(), TICKET_MAX_AGE), NO_STORE
    )


def require_jwt(api_request: ApiRequest, format_name: str, server: str) -> None:
    """Raise InvalidRequest unless the format is "jwt" and a ticket for this server can be a JWT."""
    if format_name != "jwt" or not api_request.openid:
        raise InvalidRequest("format must be jwt, and needs OpenID Connect to be on")
    if ":" not in server:  # RFC 8725 3.12: it would look like an ID token for that client
        raise InvalidRequest("a ticket as a JWT is for host:port, not for a client id")


def check_ticket(api_request: ApiRequest) -> JsonResponse:
    """Return the public profile of a ticket's player, and the `client_id` of the player's program.

    The form has `ticket`, `server`, which is one address or several with commas between them, and
    the `nonce` if the server gave one. Raises InvalidRequest, and Unauthorized with the reason.
    """
    store = api_request.storage
    # `server` must not be repeated: the ticket of a server that does not encode it could add one.
    form = single_parameters(read_form_parameters(api_request), ("ticket", "server", "nonce"))
    sent = form.get("server", "").split(",")
    if len(sent) > SERVERS_CHECKED:
        raise InvalidRequest(f"server has more than {SERVERS_CHECKED} addresses")
    servers = [normal_server(each) for each in sent]
    try:
        values = serializer(PURPOSE, store).loads(form.get("ticket", ""), TICKET_MAX_AGE)
    except SignatureExpired:
        abort(401, f"this ticket is older than {TICKET_MAX_AGE} seconds")
    except BadSignature:
        abort(401, "this is not a ticket of this site")
    user_id, client_id, grant_id, server, nonce, *groups = values
    if server not in servers:
        abort(401, "this ticket is for another server")
    if nonce != form.get("nonce", ""):
        both = nonce and "nonce" in form
        abort(401, "this ticket has another nonce" if both else "ticket or request has no nonce")
    try:
        user, profile = store.users.read_from(user_id, player_and_profile)
    except NoSuchUser:
        abort(401, "this account was deleted")
    if user.suspended:
        abort(401, "this player is suspended")
    require_age(api_request, user, 401)
    grant = user.grants.get(client_id)
    if grant is None or grant.id != grant_id:
        abort(401, "the player's app lost its access")
    if groups and set(groups).isdisjoint(user.groups):
        abort(401, "the player's app is not for this player")
    return JsonResponse(b'%b, "client_id": "%b"}' % (profile[:-1], client_id.encode()), NO_STORE)


def require_age(api_request: ApiRequest, user: User, status: int) -> None:
    """Abort with a status if the account is younger than the setting TICKET_DAYS asks for."""
    days = api_request.ticket_days
    if days and now_ms() < user.created + days * DAY_MS:
        abort(status, f"this account is younger than {pluralize(days, 'day')}")


def player_and_profile(user: User) -> tuple[User, bytes]:
    """Return what a check reads of a player, to be cached."""
    return user, encode_ascii_json({"message": "yes", "user": dated_profile(user)})


def normal_server(text: str) -> str:
    """Return a client id as it is, an address in its one form. Raises InvalidRequest."""
    return text if CLIENT_ID.fullmatch(text) else normal_address(text)
