"""An identity server: the OAuth 2.0 authorization-code grant (RFC 6749 4.1) for a games community.

    GET  /oauth/authorize        the player is asked for consent to a client            authorize
    POST /oauth/authorize        the player decides; "allow" gives the client a code       decide
    POST /api/oauth/token        the client exchanges the code for an access token          token
    POST /oauth/token            ... with the responses of the standards           standard_token
    POST /oauth/revoke           the client ends a token                                  revoke
    POST /oauth/introspect       ... asks what a token is good for                    introspect
    POST /oauth/device           a program without a browser gets its codes     start_device_flow
    GET  /api/oauth/whois        the client learns who gave the access token                whois
    GET  /oauth/userinfo         ... as claims                                           userinfo
    GET  /play/<id>              a game inside a page of this server                         play
    POST /play/<id>/authorize    the player decides there                             decide_game
    POST /api/tickets            a program gets a ticket for a game server         issue_ticket
    POST /api/tickets/check      the game server asks whose ticket it is           check_ticket
    GET  /api/users/info?id=1    anyone reads a player's public profile                users_info
    GET  /api/users/batch?ids=1  ... those of up to a hundred players                 users_batch

Read from top to bottom it is: limits, the grant in the order in which a client meets it, its first
half once more for a game, public look-ups, and the app. Every line that handles an authorization
code stands here. Beside it stand access tokens (identity.oauth.grants), the device grant
(identity.oauth.device, pages.entry.device) and tickets (identity.oauth.tickets). To read all this
you need besides: the parameters of a request (identity.oauth.authorization, .clients), the player
of the session (identity.access.sessions), `serializer` (identity.http.signing), the records
(model.records), and `find_game` (pages.community.games).
"""

import hmac
import logging
import re
import secrets
from dataclasses import asdict
from urllib.parse import urlsplit

from flask import Blueprint, Flask, abort, request, session
from itsdangerous import BadSignature
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import BadRequest
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.wrappers import Response

from identity.access.sessions import (
    COOKIE,
    SESSION_MAX_AGE,
    CookieSessions,
    redirect_to_sign_in,
    signed_in_player,
)
from identity.acts.apps import note_sign_in
from identity.acts.families import tell_first
from identity.acts.naming import name_owner
from identity.http.context import base_url, get_storage
from identity.http.fast_path import ApiRequest, ApiViews, FastPath
from identity.http.proxies import PlainAddress
from identity.http.responses import (
    NO_STORE,
    STORAGE_RETRY_AFTER,
    ExactRedirect,
    JsonResponse,
    TokenRefused,
    add_default_headers,
    encode_ascii_json,
    redirect_to_get,
    security_policy,
)
from identity.http.signing import serializer
from identity.http.stamps import check_age
from identity.oauth.authorization import (
    ALWAYS_GRANTED,
    CONSENT,
    OPENID,
    QUERY,
    SELECT_ACCOUNT,
    SILENT,
    WEB_MESSAGE,
    AuthorizationError,
    AuthorizationRequest,
    Reply,
    asks_for_openid,
    granted_scope,
    read_authorization_request,
    read_client_and_redirect_uri,
    read_code_challenge,
)
from identity.oauth.claims import (
    batched_profile,
    given_email,
    profile_body,
    profile_claims,
    scope_claims,
)
from identity.oauth.clients import (
    DEVICE_GRANT,
    FORM_TYPE,
    REFRESH_GRANT,
    allow_pages_of_client,
    authenticate_client,
    read_form_parameters,
    read_token_form,
)
from identity.oauth.device import DEVICE_CODE_USED, PREFIXES, read_player_answer, start_device_flow
from identity.oauth.grants import (
    TOKEN_MAX_AGE,
    find_granting_user,
    issue_access_token,
    read_bearer_token,
    read_token_holder,
    require_admitted,
    require_player_of_games,
    save_consent,
)
from identity.oauth.guards import GUARDS, is_framed, is_request_by_post, protect_from_opener
from identity.oauth.openid import issue_id_token
from identity.oauth.reauthentication import (
    address_after_sign_in,
    must_sign_in,
    own_session,
    require_no_page,
    session_amr,
)
from identity.oauth.refresh import end_family, prepare_family, start_family, use_refresh_token
from identity.oauth.revocation import introspect, revoke
from identity.oauth.terms import (
    CODE_MAX_AGE,
    CODE_TOO_OLD,
    CODE_USED,
    JOIN,
    InvalidGrant,
    add_to_query,
    code_challenge_of,
    destination_of,
    redirect_targets,
    tester_redirect_uri,
)
from identity.oauth.tickets import check_ticket, issue_ticket
from identity.site.formatting import MINUTE
from identity.site.settings import RESOURCES, read_settings, trusted_hosts, usual_hosts
from model.errors import (
    CodeSpent,
    NoSuchCode,
    NoSuchUser,
    SaveUnconfirmed,
    StorageError,
    StorageFailed,
    TooManyAttempts,
)
from model.grant_records import AuthorizationCode
from model.records import CLOCK_TOLERANCE, OFFLINE, Client, Grant, User, now_ms
from model.rules import USER_ID, origin_of
from model.words import say
from pages.blueprints import BLUEPRINTS
from pages.community.games import find_game, preview_of_game, require_game
from pages.kit.actors import authority_of
from pages.kit.errors import ERROR_HANDLERS, show_bad_request
from pages.kit.rendering import load_templates, render_consent_page, render_page
from storage import Storage, open_storage

APPROVAL_MAX_AGE = 600  # seconds between the consent page and its answer
PAGE_BODY_LIMIT = 64 * 1024  # bytes
CODES_A_MINUTE = 60  # for one player
BATCH_IDS = 100  # players in one look-up
BATCH_QUERY_LIMIT = 4096  # bytes
CODE_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")  # RFC 7636 4.1
MALFORMED_VERIFIER = "code_verifier is not 43 to 128 of the characters A-Z a-z 0-9 - . _ ~"

server = Blueprint("identity_server", __name__)
api_views = ApiViews()
logger = logging.getLogger(__name__)  # the app's own: Flask names it after this module

# -- The grant, 1: the player is asked (RFC 6749 4.1.1) ---------------------------------------


@server.get("/oauth/authorize")
@server.get("/oauth")
def authorize() -> Response | tuple:
    """Show the consent page, or redirect to the client if the player consented before."""
    args = request.args
    client, redirect_uri = read_client_and_redirect_uri(args)
    sent = args.get("state"), args.get("response_mode"), args.get("scope", "")
    reply = Reply(client, redirect_uri, *sent)
    if is_framed():  # before anything that depends on the player, also for a malformed request
        return respond_to_frame(reply)
    try:
        auth_request = read_authorization_request(args, client, redirect_uri)
    except AuthorizationError as error:
        return respond_to_malformed(reply, error)
    if SILENT in auth_request.prompts:
        return respond_silently(reply, auth_request)
    player = signed_in_player()
    if must_sign_in(player, auth_request):
        return redirect_to_sign_in(address_after_sign_in(player, auth_request))
    require_admitted(client, player)
    grant = player.consents.get(client.id)
    if not may_skip_consent(client, grant, auth_request):
        return show_consent_page(player, client, auth_request)
    try:
        return respond_to_client(reply, code=issue_code(player, grant, auth_request))
    except StorageFailed as error:
        return respond_with_error(reply, error)


def respond_to_frame(reply: Reply) -> Response | tuple:
    """Return the same error to everybody: pages of other sites could use up codes in frames."""
    error = AuthorizationError("interaction_required", "a frame gets no code: open a window")
    # By redirect: the page with a message would depend on the player.
    return respond_with_error(reply._replace(response_mode=None), error)


def respond_to_malformed(reply: Reply, error: AuthorizationError) -> Response | tuple:
    """Return the error to a client that the player allowed, else a page; a guest signs in first."""
    player = signed_in_player()
    if player is None:
        return redirect_to_sign_in()
    response = respond_with_error(reply, error)
    # A message redirects nobody.
    if reply.client.id in player.consents or reply.response_mode == WEB_MESSAGE:
        return response
    return show_bad_request(error, reply.client, response.location)


def respond_silently(reply: Reply, auth_request: AuthorizationRequest) -> Response | tuple:
    """Return a code or an error, and show no page (OpenID Connect Core 3.1.2.1, prompt=none)."""
    try:
        player = signed_in_player()
        require_no_page(player, auth_request)
        grant = player.consents.get(reply.client.id)
        if not may_skip_consent(reply.client, grant, auth_request):
            raise AuthorizationError("consent_required", "the player has to allow this")
        # Later: the player's groups are nobody's business before consent.
        if not reply.client.admits(player):
            raise AuthorizationError("access_denied", "the app is not for this player")
        return respond_to_client(reply, code=issue_code(player, grant, auth_request))
    except AuthorizationError as error:
        return respond_with_error(reply, error)
    except StorageError as error:
        if not isinstance(error, TooManyAttempts):
            logger.error("no code issued: %s", error)
        error = AuthorizationError("temporarily_unavailable", "try again in a minute")
        return respond_with_error(reply, error)


def may_skip_consent(
    client: Client, grant: Grant | None, auth_request: AuthorizationRequest
) -> bool:
    """Return True if the player need not be asked, because an earlier consent covers this."""
    if grant is None or request.method == "HEAD":  # RFC 9110 9.2.1: HEAD creates no code.
        return False
    is_covered = auth_request.asked_consent <= set(grant.scope)
    # The consent page offers another account.
    must_ask = not {CONSENT, SELECT_ACCOUNT}.isdisjoint(auth_request.prompts)
    remembers = client.remembers_consent(auth_request.redirect_uri)
    return is_covered and remembers and not must_ask and not is_test(client, auth_request)


def is_test(client: Client, auth_request: AuthorizationRequest) -> bool:
    """Return True for a request of the tester of apps, whose consent is not remembered."""
    return auth_request.redirect_uri == tester_redirect_uri(client)


def show_consent_page(
    player: User, client: Client, auth_request: AuthorizationRequest, problem: str | None = None
) -> tuple:
    """Return the consent page with the signed request, its status (400 with a problem), headers."""
    # Bound to the session: nobody can have their own request approved by another player.
    bound = {"session": session["id"], "shown": now_ms()}
    signed = serializer("consent").dumps({**asdict(auth_request), **bound})
    page = render_consent_page(
        "grant/consent.html",
        player,
        client,
        auth_request.scope,
        problem,
        destination=destination_of(auth_request.redirect_uri),
        is_popup=auth_request.response_mode == WEB_MESSAGE,
        on_device=not client.remembers_consent(auth_request.redirect_uri),
        remembered=not is_test(client, auth_request),
        request_field=signed,
        again=auth_request.address,
    )
    headers = security_policy(form_targets=redirect_targets(auth_request.redirect_uri))
    return page, 400 if problem else 200, headers


# -- The grant, 2: the player decides, and the client gets a code (RFC 6749 4.1.2) ------------


@server.post("/oauth/authorize")
def decide() -> Response | tuple:
    """Take the player's `decision` on the signed `request`, and redirect to the client.

    A decision in the first second of the page does not count, and the page is shown again.
    """
    if is_request_by_post():
        return redirect_to_get()
    player = signed_in_player()
    if player is None:
        abort(403, say("You are signed out. Sign in, then start again from the app."))
    client, auth_request, shown = read_approved_request(request.form.get("request", ""))
    if problem := check_age(shown):
        return show_consent_page(player, client, auth_request, problem)
    require_admitted(client, player)
    sent = auth_request.state, auth_request.response_mode, auth_request.asked_scope
    reply = Reply(client, auth_request.redirect_uri, *sent)
    decision = request.form.get("decision")
    if decision not in ("allow", "deny"):
        abort(400, say("Choose Allow or Cancel."))
    if decision == "deny":
        return respond_with_error(reply, AuthorizationError("access_denied", "the player refused"))
    try:
        remembered = not is_test(client, auth_request)
        code = issue_code(player, save_consent(player.id, auth_request, remembered), auth_request)
    except StorageFailed as error:
        return respond_with_error(reply, error)
    return respond_to_client(reply, code=code)


def read_approved_request(signed: str) -> tuple[Client, AuthorizationRequest, int]:
    """Return the client and the request of a consent page, and when the page was shown.

    `signed` is the field `request` of its form. The time is in milliseconds. Raises BadRequest,
    UnusableClient.
    """
    expired = say("This page has expired. Start again from the app.")
    try:
        values = serializer("consent").loads(signed)  # its own time has whole seconds
    except BadSignature:
        abort(400, expired)
    if values.pop("session") != session["id"]:
        abort(400, say("You have signed in again since. Start again from the app."))
    shown = values.pop("shown")
    if now_ms() - shown > APPROVAL_MAX_AGE * 1000:
        abort(400, expired)
    auth_request = AuthorizationRequest(**values)
    # The client may have been changed since the page was shown.
    client, _ = read_client_and_redirect_uri(MultiDict(asdict(auth_request)))
    return client, auth_request, shown


def issue_code(player: User, grant: Grant, auth_request: AuthorizationRequest) -> str:
    """Return a new code, valid once for CODE_MAX_AGE seconds.

    Raises StorageFailed, and TooManyAttempts after CODES_A_MINUTE codes of this player.
    """
    # Each code is a file for a while: without a limit a member could use up the disk's inodes.
    get_storage().attempts.count("code of", str(player.id), CODES_A_MINUTE, MINUTE)
    code = secrets.token_urlsafe(32)  # 43 characters, 256 random bits
    record = AuthorizationCode(
        client_id=auth_request.client_id,
        user_id=player.id,
        grant_id=grant.id,
        scope=auth_request.scope,
        redirect_uri=auth_request.redirect_uri,
        code_challenge=auth_request.code_challenge,
        granted=granted_scope(auth_request.asked_scope, auth_request.scope),
        nonce=auth_request.nonce,
    )
    own = own_session(player)
    if OPENID in auth_request.scope:
        record.auth_time, record.amr, record.sid = own.since, session_amr(), own.sid
    if OFFLINE in auth_request.scope:
        client = get_storage().clients.read(record.client_id)
        prepare_family(record, client, own)
        tell_first(authority_of(player), player, client)
    get_storage().codes.add(code, record)
    note_sign_in(get_storage(), auth_request.client_id)
    return code


def respond_with_error(reply: Reply, error: AuthorizationError | StorageFailed) -> Response | tuple:
    """Return the response that tells the client of an error (RFC 6749 4.1.2.1).

    StorageFailed is logged, and becomes the error code `server_error`.
    """
    if not isinstance(error, AuthorizationError):
        logger.error("no code issued: %s", error)
        error = AuthorizationError("server_error", "the server cannot give a code right now")
    return respond_to_client(reply, error=error.error, error_description=str(error))


def respond_to_client(reply: Reply, **parameters: str) -> Response | tuple:
    """Return the redirect, or page for web_message, with parameters and `state` for the client."""
    client, redirect_uri, state, response_mode, scope = reply
    if state is not None:
        parameters["state"] = state
    # RFC 9207, against mix-up (RFC 9700 4.4). A library that was told no issuer refuses it, so a
    # confidential client asks for OpenID Connect, or names the response mode: identity.js does.
    if client.public or response_mode == QUERY or asks_for_openid(scope):
        parameters["iss"] = base_url()
    if response_mode == WEB_MESSAGE:
        player, origin = signed_in_player(), origin_of(redirect_uri)
        return render_page("grant/web_message.html", player, origin=origin, response=parameters)
    address = add_to_query(redirect_uri, parameters)
    # 303, never 307: a browser would post the player's form to the client (RFC 9700 4.12).
    return ExactRedirect(status=303, headers={"Location": address, **NO_STORE})


# -- The grant, 3: the client exchanges the code for a token (RFC 6749 4.1.3) -----------------


@api_views.route("POST", "/api/oauth/token", sent_header="Content-Type")
def token(api_request: ApiRequest) -> JsonResponse:
    """Exchange a code for an access token."""
    return exchange_code(api_request)


@api_views.route("POST", "/oauth/token", sent_header="Content-Type")
def standard_token(api_request: ApiRequest) -> JsonResponse:
    """Exchange a code, for programs that expect the responses of the standards.

    Errors are those of RFC 6749 5.2. A response has the scope where fewer were granted than asked
    for, and an ID token where `openid` was (OpenID Connect Core 3.1.3.3).
    """
    return exchange_code(api_request, is_standard=True)


def exchange_code(api_request: ApiRequest, is_standard: bool = False) -> JsonResponse:
    """Return the response with the token, for a code or a device code. Raises HTTPException."""
    parameters = read_form_parameters(api_request)
    try:
        form = read_token_form(parameters, is_standard)
    except BadRequest:
        allow_pages_of_client(api_request, dict(parameters))  # its pages may read this error
        raise
    client = authenticate_client(api_request, form)
    try:
        body = issue_tokens(api_request, client, form, is_standard)
    except InvalidGrant as error:
        if form["grant_type"] == DEVICE_GRANT and not is_standard:
            error.description = error.error  # programs compare it
        raise
    return JsonResponse(body, {**NO_STORE, "Pragma": "no-cache"})


def issue_tokens(
    api_request: ApiRequest, client: Client, form: dict[str, str], is_standard: bool
) -> dict[str, str | int]:
    """Return the body of the response with the token.

    Everything is read and checked before the code is spent: a failed request uses up no code.
    Raises ServiceUnavailable, and InvalidRequest or its subclasses, such as InvalidGrant.
    """
    store, is_device = api_request.storage, form["grant_type"] == DEVICE_GRANT
    try:
        if form["grant_type"] == REFRESH_GRANT:
            code, user, refresh_token = use_refresh_token(api_request, client, form)
            body = token_body(api_request, code, user, client, is_standard)
            return body | {"refresh_token": refresh_token}
        if is_device:
            name, code = read_player_answer(store, client, form["device_code"])
        elif form["code"].startswith(PREFIXES):  # what a device has to wait for
            raise NoSuchCode
        else:
            name, code = form["code"], store.codes.read(form["code"])
        user = require_good_code(store, code, client, form)
        body = token_body(api_request, code, user, client, is_standard)
        if is_standard and code.family:
            body["refresh_token"] = start_family(api_request, form, code, client)
        try:
            store.codes.spend(name)
        except SaveUnconfirmed as error:
            logger.error("a code may have been spent: %s", error)
            problem = "the code may have been used up: get a new one"
            abort(503, problem, retry_after=STORAGE_RETRY_AFTER)
        return body
    except NoSuchCode:
        raise InvalidGrant("unknown or expired authorization code") from None
    except CodeSpent as spent:
        # Only for who can prove to be the client that the code was issued to: nobody else can end
        # a player's tokens.
        if spent.record.client_id == client.id and has_right_verifier(form, spent.record):
            end_replayed_grant(store, spent.record)
        raise InvalidGrant(DEVICE_CODE_USED if is_device else CODE_USED) from None
    except StorageFailed as error:  # of a family: the same request gives the same token
        logger.error("no token was given: %s", error)
        abort(503, "the server cannot save right now", retry_after=STORAGE_RETRY_AFTER)


def token_body(
    api_request: ApiRequest, code: AuthorizationCode, user: User, client: Client, is_standard: bool
) -> dict[str, str | int]:
    """Return the body of a response with a new access token (RFC 6749 5.1). Raises StorageError."""
    body = {
        "access_token": issue_access_token(code, api_request.storage, client.only_groups),
        "token_type": "Bearer",
        "expires_in": TOKEN_MAX_AGE,
    }
    if is_standard and code.granted:
        body["scope"] = code.granted
    if is_standard and OPENID in code.scope:
        body["id_token"] = issue_id_token(code, user, body["access_token"], api_request)
    return body


def require_good_code(
    store: Storage, code: AuthorizationCode, client: Client, form: dict[str, str]
) -> User:
    """Return the player of a code that is valid for this token request.

    An answer to a device expires with its device code alone. Raises InvalidGrant, NoSuchCode.
    """
    if code.client_id != client.id:
        raise NoSuchCode
    is_device = form["grant_type"] == DEVICE_GRANT
    age = now_ms() - code.issued  # below 0 if the clock of another machine is ahead
    if not is_device and not -CLOCK_TOLERANCE * 1000 <= age <= CODE_MAX_AGE * 1000:
        raise InvalidGrant(CODE_TOO_OLD)
    user = find_granting_user(store, code.user_id, code.client_id, code.grant_id)
    if user is None:
        raise InvalidGrant(
            "the player has withdrawn consent, or the account is suspended or deleted"
        )
    if not client.admits(user):  # a group was taken away since
        raise InvalidGrant("the client is not for this player")
    if not is_device:
        require_own_code(code, client, form)
    return user


def require_own_code(code: AuthorizationCode, client: Client, form: dict[str, str]) -> None:
    """Raise InvalidGrant unless a token request has the redirect URI and verifier of its code."""
    redirect_uri = form.get("redirect_uri")
    if redirect_uri is not None and redirect_uri != code.redirect_uri:
        raise InvalidGrant("redirect_uri is not the one of the authorization request")
    if client.needs_challenge and code.code_challenge is None:  # no such code is issued
        raise InvalidGrant("this client needs a code that was issued for a code_challenge")
    # RFC 9700 2.1.1: otherwise removing the challenge from a request would turn PKCE off.
    if code.code_challenge is None and "code_verifier" in form:
        raise InvalidGrant("code_verifier was sent, but no code_challenge before")
    if code.code_challenge is not None and "code_verifier" not in form:
        raise InvalidGrant("code_verifier is missing")
    if code.code_challenge is not None and not CODE_VERIFIER.fullmatch(form["code_verifier"]):
        raise InvalidGrant(MALFORMED_VERIFIER)
    if not has_right_verifier(form, code):
        raise InvalidGrant("code_verifier does not match the code_challenge")


def has_right_verifier(form: dict[str, str], code: AuthorizationCode) -> bool:
    """Return True if the code has no PKCE challenge, or the form its verifier (RFC 7636 4.6)."""
    if code.code_challenge is None:
        return True
    verifier = form.get("code_verifier", "")
    matches = hmac.compare_digest(code_challenge_of(verifier), code.code_challenge)
    return matches and CODE_VERIFIER.fullmatch(verifier) is not None


def end_replayed_grant(store: Storage, code: AuthorizationCode) -> None:
    """End the tokens of a code that was used twice; the consent itself stands.

    One of the two requests was an attacker's (RFC 6749 4.1.2). A StorageError is only logged.
    """
    try:
        end_family(store, code.user_id, code.client_id, code.family, code.grant_id)
    except StorageError as error:
        # The replay is refused all the same; the token stays valid for up to ten minutes.
        logger.error("tokens of a replayed code not ended: %s", error)


# -- The grant, 4: the client learns who the player is ----------------------------------------


@api_views.route("GET", "/api/oauth/whois", any_origin=True, sent_header="Authorization")
def whois(api_request: ApiRequest) -> JsonResponse:
    """Return who gave this access token: id, name, pfpTimestamp and, if granted, the email.

    With `client_id` in the query, a token of another client is refused: the player of a game could
    send one that another game was given.
    """
    claims, user = read_token_holder(api_request, read_bearer_token(api_request))
    require_asked_client(claims, api_request.query)
    body = {"id": user.id, "name": user.name}
    if user.pfp_timestamp is not None:
        body["pfpTimestamp"] = user.pfp_timestamp
    is_granted = "email" in claims["scope"]
    if is_granted and (email := given_email(user, api_request.mail)):
        body["email"] = email
    return JsonResponse(encode_ascii_json(body), NO_STORE)


@api_views.route("GET", "/oauth/userinfo", any_origin=True, sent_header="Authorization")
@api_views.route("POST", "/oauth/userinfo", any_origin=True, sent_header="Authorization")
def userinfo(api_request: ApiRequest) -> JsonResponse:
    """Return who gave this access token, as claims (OpenID Connect Core 5.3).

    With `client_id` in the query or the form, a token of another client is refused.
    """
    form = read_sent_form(api_request)
    claims, user = read_token_holder(api_request, read_sent_token(api_request, form))
    require_asked_client(claims, [*api_request.query, *form])
    body = {"sub": str(user.id), "id": user.id}
    body |= profile_claims(user, api_request.storage, api_request.base_url)
    return JsonResponse(body | scope_claims(user, claims["scope"], api_request.mail), NO_STORE)


def require_asked_client(claims: dict, parameters: list[tuple[str, str]]) -> None:
    """Raise TokenRefused if a `client_id` is sent, and the token was given to another client."""
    asked_by = [value for name, value in parameters if name == "client_id"]
    if asked_by and asked_by != [claims["client"]]:
        raise TokenRefused("invalid_token", "this access token was issued to another client")


def read_sent_form(api_request: ApiRequest) -> list[tuple[str, str]]:
    """Return the parameters in the form of a POST, [] if it has no form. Raises HTTPException."""
    environ = api_request.environ
    is_form = environ.get("CONTENT_TYPE", "").startswith(FORM_TYPE)
    is_sent = is_form and environ["REQUEST_METHOD"] == "POST"
    return read_form_parameters(api_request) if is_sent else []


def read_sent_token(api_request: ApiRequest, form: list[tuple[str, str]]) -> str:
    """Return the token in the header or the form (RFC 6750 2.2). Raises TokenRefused."""
    sent = [value for name, value in form if name == "access_token"]
    if not sent:
        return read_bearer_token(api_request)
    if len(sent) > 1 or api_request.authorization[0]:
        raise TokenRefused("invalid_request", "send the access token once", 400)
    return sent[0]


# -- The grant, 1 and 2 for a game on the play page: its script takes the code, without a redirect


@server.get("/play/<client_id>")
def play(client_id: str) -> tuple:
    """Show a game in a frame. The game asks the page who plays, and static/play.js answers."""
    player, client = signed_in_player(), require_game(client_id)
    page = render_page(
        "grant/play.html",
        player,
        preview_of_game(client),
        client=client,
        owner=name_owner(get_storage(), client),
        host=urlsplit(client.game_url).netloc,
        # Bound to the session, like the request on the consent page.
        request_field=serializer("game").dumps(game_request_of(client)) if player else None,
    )
    return page, security_policy(frame_origin=origin_of(client.game_url))


@server.post("/play/<client_id>/authorize")
def decide_game(client_id: str) -> JsonResponse:
    """Return the message with a code, or with the reason why there is none, for the game.

    The page sends its signed `request`, the `scope`, of which a game gets userinfo and join, and
    `decision=allow` after the player pressed Allow. Without this decision only a player who allowed
    the game before gets a code, and none for a public client's game on a loopback address.
    """
    try:
        player, client, auth_request = read_game_request(client_id)
        remembers_consent = client.remembers_consent(client.game_url)
        grant = player.consents.get(client_id) if remembers_consent else None
        is_covered = grant is not None and auth_request.asked_consent <= set(grant.scope)
        is_allowed = request.form.get("decision") == "allow"
        if not is_covered and not is_allowed:
            return message_to_game(200, error=True, message="consent_required")
        # Later, and with the answer to Cancel: a game learns of no group that it is not allowed to.
        if not client.admits(player):
            raise AuthorizationError("access_denied", "the game is not for this player")
        if is_allowed:
            grant = save_consent(player.id, auth_request, remembered=True)
        code = issue_code(player, grant, auth_request)
        return message_to_game(200, error=False, code=code)
    except AuthorizationError as error:
        return message_to_game(403, error=True, message=error.error)
    except TooManyAttempts:
        return message_to_game(429, error=True, message="server_error")
    except StorageFailed as error:
        logger.error("no code issued: %s", error)
        return message_to_game(503, error=True, message="server_error")


def game_request_of(client: Client) -> list[str]:
    """Return what a play page signs: the game, its address, and the session it was shown in."""
    return [client.id, client.game_url, session["id"]]


def read_game_request(client_id: str) -> tuple[User, Client, AuthorizationRequest]:
    """Return the signed-in player, the game and the request of its play page.

    Raises AuthorizationError, also for a guest, no such game, or a page of another session.
    """
    player, client = signed_in_player(), find_game(client_id)
    require_player_of_games(player)
    if client is None:
        raise AuthorizationError("invalid_app", "there is no such game, or it is disabled")
    try:
        # No max_age: a game may ask after hours. It ends with the session that it was signed for.
        shown = serializer("game").loads(request.form.get("request", ""))
    except BadSignature:
        shown = None
    if shown != game_request_of(client):
        raise AuthorizationError("no_account", "the page was opened in another session")
    challenge = read_code_challenge(request.form, required=client.needs_challenge)
    scope = [ALWAYS_GRANTED, *([JOIN] if JOIN in request.form.get("scope", "").split() else [])]
    # Without a redirect URI: the token endpoint refuses any that is sent with this code.
    return player, client, AuthorizationRequest(client.id, None, scope, None, challenge)


def message_to_game(status: int, **message: bool | str) -> JsonResponse:
    """Return the message that the page's script posts to the game."""
    return JsonResponse({"type": "authorized", **message}, NO_STORE, status)


# -- Beside the code grant: identity.oauth.device and identity.oauth.tickets ---------------------

api_views.route("POST", "/oauth/device", sent_header="Content-Type")(start_device_flow)
api_views.route("POST", "/oauth/revoke", sent_header="Content-Type")(revoke)
api_views.route("POST", "/oauth/introspect")(introspect)
api_views.route("POST", "/api/tickets", any_origin=True, sent_header="Authorization")(issue_ticket)
api_views.route("POST", "/api/tickets/check", any_origin=True, sent_header="Content-Type")(
    check_ticket
)

# -- Public look-ups --------------------------------------------------------------------------


@api_views.route("GET", "/api/users/info", any_origin=True, sent_header="Authorization")
def users_info(api_request: ApiRequest) -> JsonResponse:
    """Return the public profile of the player with this `id`, to anyone."""
    ids = [value for name, value in api_request.query if name == "id"]
    # Not int(): it accepts digits of other scripts, and raises for 4,400 of them.
    if len(ids) != 1 or not USER_ID.fullmatch(ids[0]):
        abort(400, "send one id: 1 to 15 digits, without a leading zero")
    try:
        return JsonResponse(api_request.storage.users.read_from(int(ids[0]), profile_body))
    except NoSuchUser:
        abort(404, "no player has this id")


@api_views.route("GET", "/api/users/batch", any_origin=True, sent_header="Authorization")
def users_batch(api_request: ApiRequest) -> JsonResponse:
    """Return the public profiles of the players with these `ids`, without unknown ones.

    Those who are suspended now have `"suspended": true`, so that a game server can drop them.
    """
    if len(api_request.environ.get("QUERY_STRING", "")) > BATCH_QUERY_LIMIT:
        abort(400, f"the query has more than {BATCH_QUERY_LIMIT} bytes")
    lists = [value for name, value in api_request.query if name == "ids"]
    ids = lists[0].split(",") if len(lists) == 1 else []
    if not 1 <= len(ids) <= BATCH_IDS or not all(map(USER_ID.fullmatch, ids)):
        abort(400, f"send ids once: 1 to {BATCH_IDS} ids with commas between them, like ids=1,2,3")
    user_ids = [int(each) for each in dict.fromkeys(ids)]  # each once: no response is far larger
    profiles = api_request.storage.users.read_from_many(user_ids, batched_profile)
    shown = [
        b'%b, "suspended": true}' % profile[:-1] if user.suspended else profile
        for profile, user in profiles
    ]
    return JsonResponse(b'{"message": "yes", "users": [%b]}' % b", ".join(shown))


# -- The app ----------------------------------------------------------------------------------


def create_app(overrides: dict | None = None) -> Flask:
    """Return the WSGI application. Raises SettingError, StorageError."""
    settings = read_settings(overrides)
    origin = settings["BASE_URL"]
    https = origin.startswith("https:")
    app = Flask(
        __name__,
        static_folder=None,
        template_folder=f"{RESOURCES}/templates",
        instance_path=settings["DATA_DIR"],
    )
    app.config.update(
        settings,
        HOSTS=trusted_hosts(origin),
        # URLs are built from this, never from the Host, which may be malformed.
        SERVER_NAME=origin.partition("://")[2],
        MAX_CONTENT_LENGTH=PAGE_BODY_LIMIT,
        PERMANENT_SESSION_LIFETIME=SESSION_MAX_AGE,
        SESSION_REFRESH_EACH_REQUEST=False,
        SESSION_COOKIE_NAME="__Host-session" if https else COOKIE,
        SESSION_COOKIE_SECURE=https,
        SESSION_COOKIE_SAMESITE="Lax",
    )
    folders = settings["DATA_DIR"], settings["PICTURE_DIR"]
    app.extensions["storage"] = open_storage(*folders, settings["STORAGE"])
    app.url_map.merge_slashes = False  # merging redirects to the Host that was sent, by http
    app.session_interface = CookieSessions()
    for blueprint in (server, *BLUEPRINTS):
        app.register_blueprint(blueprint)
    for guard in GUARDS:
        app.before_request(guard)
    app.after_request(add_default_headers)
    app.after_request(protect_from_opener)
    for error, handle in ERROR_HANDLERS.items():
        app.register_error_handler(error, handle)
    load_templates(app)
    app.wsgi_app = FastPath(app, api_views, usual_hosts(origin))
    if settings["PROXIES"]:
        app.wsgi_app = PlainAddress(app.wsgi_app, app.extensions["storage"])
        # Only the address: scheme and host come from the base URL.
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=settings["PROXIES"], x_proto=0, x_host=0)
    if settings["METRICS"] != "off":
        from identity.http.metrics import Metered  # its package is an extra

        app.wsgi_app = Metered(app, api_views, settings["METRICS"])
    return app
