"""An identity server: the OAuth 2.0 authorization-code grant (RFC 6749 4.1) for a games community.

    GET  /oauth/authorize           a player is asked: may this client know who I am?    authorize
    POST /oauth/authorize           the player answers; allowing gives the client a code    decide
    POST /play/<id>/authorize       the same for a game inside a page of this server    decide_game
    POST /api/oauth/token           the client exchanges the code for an access token        token
    GET  /api/oauth/whois           who holds this access token?                             whois
    GET  /api/users/info?id=1       anyone: a player's public profile                   users_info

Read from top to bottom it is: limits, errors, tokens, the grant in the order in which a client
meets it, public look-ups, headers, and the app. Every line that handles an authorization code or an
access token stands here. To read those you need besides: the signed-in player and `serializer`
(identity_sessions), the records (storage), and `find_game` and `find_owner` (pages.games).
"""

import base64
import hashlib
import hmac
import json
import logging
import re
import secrets
from dataclasses import asdict, dataclass
from typing import NoReturn
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from flask import (
    Blueprint,
    Flask,
    abort,
    g,
    render_template,
    request,
    session,
)
from itsdangerous import BadSignature
from werkzeug.datastructures import Headers, MultiDict, WWWAuthenticate
from werkzeug.exceptions import BadRequest, HTTPException
from werkzeug.http import parse_options_header
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.wrappers import Response

import storage
from identity.context import get_storage
from identity.fast_path import (
    ANY_ORIGIN,
    STORAGE_RETRY_AFTER,
    ApiRequest,
    ApiViews,
    FastPath,
    JsonAnswer,
)
from identity.guards import (
    refuse_cross_site_posts,
    refuse_foreign_hosts,
    refuse_undecodable_queries,
)
from identity.passwords import client_address
from identity.sessions import (
    SESSION_MAX_AGE,
    SignedCookieSessions,
    ask_to_sign_in,
    signed_in_player,
)
from identity.settings import RESOURCES, read_settings, trusted_hosts, usual_hosts
from identity.signing import serializer
from pages.account import account
from pages.developer import developer, may_register
from pages.discovery import discovery
from pages.errors import answer_http_error, answer_storage_error
from pages.files import files, picture_address
from pages.games import find_game, find_owner, games
from pages.moderation import moderation
from pages.sign_in import sign_in
from pages.sign_up import sign_up
from storage import AuthorizationCode, Client, Grant, Storage, User, origin_of, sha256

TOKEN_MAX_AGE = 600  # seconds
CODE_MAX_AGE = 60  # seconds; RFC 6749 4.1.2 allows ten minutes
APPROVAL_MAX_AGE = 600  # seconds between the consent page and its answer
TOKEN_BODY_LIMIT = 16 * 1024  # bytes
PAGE_BODY_LIMIT = 64 * 1024  # bytes
CLIENT_FAILURES = 100  # failed client authentications from an address, in ATTEMPTS_WINDOW
SCOPES = ("userinfo", "email")  # the first is always granted
REQUEST_PARAMETERS = ("response_type", "scope", "state", "code_challenge", "code_challenge_method")
TOKEN_PARAMETERS = (
    "grant_type",
    "code",
    "redirect_uri",
    "client_id",
    "client_secret",
    "code_verifier",
)
AUTHORIZE_PATHS = ("/oauth/authorize", "/oauth")
CODE_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")  # RFC 7636 4.1
CODE_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # RFC 7636 4.2: a SHA-256 in base64url
BEARER_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 2.1
NO_STORE = {"Cache-Control": "no-store"}

server = Blueprint("identity_server", __name__)
api_views = ApiViews()
logger = logging.getLogger(__name__)  # the app's own: Flask names it after this module

# ---------------------------------------------------------------------------------------------
# Errors
# ---------------------------------------------------------------------------------------------


class UnusableClient(BadRequest):
    """An authorization request that names no usable client or redirect URI: never redirected."""

    client: Client | None = None  # set where it is known, and `received` is not one of its URIs
    received: str | None = None


class AuthorizationError(Exception):
    """What is wrong with an authorization request, for its client (RFC 6749 4.1.2.1)."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error


# ---------------------------------------------------------------------------------------------
# Access tokens: signed, never stored
# ---------------------------------------------------------------------------------------------


def issue_access_token(code: AuthorizationCode, store: Storage) -> str:
    """A token for what the code stands for, good for TOKEN_MAX_AGE seconds."""
    # The grant id is the code's, never one read later: a replayed code ends the grant id it names,
    # and with it the token of whoever was first (RFC 6749 4.1.2).
    claims = {
        "user": code.user_id,
        "client": code.client_id,
        "scope": code.scope,
        "grant": code.grant_id,
    }
    return serializer("access token", store).dumps(claims)


def read_access_token(token: str, store: Storage) -> dict:
    """What `issue_access_token` signed. Raises itsdangerous.BadSignature."""
    return serializer("access token", store).loads(token, max_age=TOKEN_MAX_AGE)


def find_granting_user(store: Storage, user_id: int, client_id: str, grant_id: str) -> User | None:
    """The player who gave this grant, or None where it ended.

    It ends with consent withdrawn, a code replayed, and the player suspended or deleted.
    """
    try:
        user = store.read_user(user_id)
    except storage.NoSuchUser:
        return None
    grant = user.grants.get(client_id)
    return user if grant and grant.id == grant_id and not user.suspended else None


# ---------------------------------------------------------------------------------------------
# The grant, 1: the player is asked (RFC 6749 4.1.1)
# ---------------------------------------------------------------------------------------------


@dataclass
class AuthorizationRequest:
    """What a client asks of a player, checked."""

    client_id: str
    redirect_uri: str | None  # None: from a game on the play page, which is told there
    scope: list[str]
    state: str | None
    code_challenge: str | None


@server.get("/oauth/authorize")
@server.get("/oauth")
def authorize() -> Response | str:
    """Show the consent page, or go straight back where the player consented before."""
    player = signed_in_player()
    client, redirect_uri = read_client_and_redirect_uri(request.args)
    if player is None:
        return ask_to_sign_in()
    # From here on errors go to the client. Not before: a link to this page would be an open
    # redirector for everybody (RFC 9700 4.11.2).
    try:
        asked = read_authorization_request(request.args, client, redirect_uri)
        grant = player.grants.get(client.id)
        if grant and set(asked.scope) <= set(grant.scope):
            return send_back(redirect_uri, asked.state, code=issue_code(player, grant, asked))
    except (AuthorizationError, storage.StorageFailed) as error:
        return send_error(redirect_uri, request.args.get("state"), error)
    return show_consent_page(player, client, asked)


def read_client_and_redirect_uri(parameters: MultiDict) -> tuple[Client, str]:
    """The registered client, and where to send the player. Raises UnusableClient."""
    # RFC 6749 4.1.2.1: where one of these two is wrong the player is told, and nobody else.
    client_id = read_once(parameters, "client_id")
    received = read_once(parameters, "redirect_uri")
    if not client_id:
        raise UnusableClient("This link has no client_id. Tell the app's developer.")
    try:
        client = get_storage().read_client(client_id)
    except storage.NoSuchClient:
        raise UnusableClient("No app has this client_id. Tell the app's developer.") from None
    if client.disabled:
        raise UnusableClient(f"{client.name} is disabled. Ask the people who run this site.")
    if not received and len(client.redirect_uris) != 1:
        raise UnusableClient("This link has no redirect_uri. Tell the app's developer.")
    redirect_uri = received or client.redirect_uris[0]
    if not client.accepts_redirect_uri(redirect_uri):
        error = UnusableClient(
            f"{client.name} did not register this redirect_uri. Tell its developer."
        )
        error.client, error.received = client, redirect_uri
        raise error
    return client, redirect_uri


def read_once(parameters: MultiDict, name: str) -> str:
    """A parameter of an authorization request, "" where absent. Raises UnusableClient."""
    values = parameters.getlist(name)
    if len(values) > 1:
        raise UnusableClient(f"This link has more than one {name}. Tell the app's developer.")
    return values[0] if values else ""


def read_authorization_request(
    parameters: MultiDict, client: Client, redirect_uri: str
) -> AuthorizationRequest:
    """The rest of the request. Raises AuthorizationError."""
    for name in REQUEST_PARAMETERS:
        if len(parameters.getlist(name)) > 1:  # RFC 6749 3.1
            raise AuthorizationError("invalid_request", f"{name} is given more than once")
    response_type = parameters.get("response_type")
    if not response_type:
        raise AuthorizationError("invalid_request", "response_type is missing")
    if response_type != "code":
        raise AuthorizationError("unsupported_response_type", "response_type must be code")
    return AuthorizationRequest(
        client.id,
        redirect_uri,
        read_scope(parameters.get("scope", "")),
        parameters.get("state"),
        read_code_challenge(parameters),
    )


def read_scope(text: str) -> list[str]:
    """The scopes to grant. Unknown ones are ignored: generic clients ask for openid and profile."""
    return [each for each in SCOPES if each == SCOPES[0] or each in text.split(" ")]


def read_code_challenge(parameters: MultiDict) -> str | None:
    """The PKCE challenge (RFC 7636 4.3), None where there is none. Raises AuthorizationError."""
    challenge = parameters.get("code_challenge") or None
    method = parameters.get("code_challenge_method") or None
    if challenge is None and method is None:
        return None
    # `plain`, also by default, would show the verifier to whoever sees this request.
    if method != "S256":
        raise AuthorizationError("invalid_request", "code_challenge_method must be S256")
    if challenge is None or not CODE_CHALLENGE.fullmatch(challenge):
        raise AuthorizationError("invalid_request", "code_challenge is not 43 characters base64url")
    return challenge


def show_consent_page(player: User, client: Client, asked: AuthorizationRequest) -> str:
    """The page that asks. What it shows is signed, so that just that can be approved."""
    return render_template(
        "consent.html",
        player=player,
        client=client,
        owner=find_owner(client),
        host=urlsplit(asked.redirect_uri).netloc,
        email=player.email if "email" in asked.scope else None,
        # Bound to the session: nobody can have their own request approved by somebody else.
        request_field=serializer("consent").dumps({**asdict(asked), "session": session["id"]}),
        again=request.full_path,
    )


# ---------------------------------------------------------------------------------------------
# The grant, 2: the player answers, and the client gets a code (RFC 6749 4.1.2)
# ---------------------------------------------------------------------------------------------


@server.post("/oauth/authorize")
def decide() -> Response:
    """Take the player's `decision` on the signed `request`, and go back to the client."""
    player = signed_in_player()
    if player is None:
        abort(403, "You are signed out. Sign in, then start again from the app.")
    asked = read_approved_request(request.form.get("request", ""))
    decision = request.form.get("decision")
    if decision not in ("allow", "deny"):
        abort(400, "Choose Allow or Cancel.")
    if decision == "deny":
        refused = AuthorizationError("access_denied", "the player refused")
        return send_error(asked.redirect_uri, asked.state, refused)
    try:
        code = issue_code(player, save_consent(player.id, asked), asked)
    except storage.StorageFailed as error:
        return send_error(asked.redirect_uri, asked.state, error)
    return send_back(asked.redirect_uri, asked.state, code=code)


def read_approved_request(signed: str) -> AuthorizationRequest:
    """The request that this session's consent page showed. Raises BadRequest, UnusableClient."""
    try:
        values = serializer("consent").loads(signed, max_age=APPROVAL_MAX_AGE)
    except BadSignature:
        abort(400, "This page has expired. Start again from the app.")
    if values.pop("session") != session["id"]:
        abort(400, "You have signed in again since. Start again from the app.")
    asked = AuthorizationRequest(**values)
    # What was registered when the page was shown may not be any more.
    read_client_and_redirect_uri(MultiDict(asdict(asked)))
    return asked


def save_consent(user_id: int, asked: AuthorizationRequest) -> Grant:
    """Remember what the player allowed, added to what was allowed before. Raises StorageFailed."""
    with get_storage().edit_user(user_id) as user:
        before = user.grants.get(asked.client_id)
        # The same id where there is one: tokens given out before stay good.
        grant = before or Grant(secrets.token_urlsafe(12), [], storage.now_ms())
        grant.scope = [each for each in SCOPES if each in grant.scope + asked.scope]
        user.grants[asked.client_id] = grant
    return grant


def issue_code(player: User, grant: Grant, asked: AuthorizationRequest) -> str:
    """A new authorization code, good once, for CODE_MAX_AGE seconds. Raises StorageFailed."""
    code = secrets.token_urlsafe(32)  # 43 characters, 256 random bits
    record = AuthorizationCode(
        client_id=asked.client_id,
        user_id=player.id,
        grant_id=grant.id,
        scope=asked.scope,
        redirect_uri=asked.redirect_uri,
        code_challenge=asked.code_challenge,
    )
    get_storage().add_code(code, record)
    return code


def send_error(
    redirect_uri: str, state: str | None, error: AuthorizationError | storage.StorageFailed
) -> Response:
    """Go back to the client with an AuthorizationError, or with what the disk refused."""
    if not isinstance(error, AuthorizationError):
        logger.error("no code issued: %s", error)
        error = AuthorizationError("server_error", "the server cannot save right now")
    return send_back(redirect_uri, state, error=error.error, error_description=str(error))


def send_back(redirect_uri: str, state: str | None, **answer: str) -> Response:
    """Send the browser to a checked redirect URI, with the answer and the client's `state`."""
    parameters = answer if state is None else {**answer, "state": state}
    separator = "&" if "?" in redirect_uri else "?"
    address = f"{redirect_uri}{separator}{urlencode(parameters)}"
    # 303, never 307: a browser would post the player's form on to the client (RFC 9700 4.12).
    return ExactRedirect(status=303, headers={"Location": address, **NO_STORE})


class ExactRedirect(Flask.response_class):
    """A redirect to the address as it was registered: Werkzeug would spell some of them anew."""

    def get_wsgi_headers(self, environ: dict) -> Headers:
        """The headers, with the Location as it was given."""
        headers = super().get_wsgi_headers(environ)
        headers["Location"] = self.headers["Location"]
        return headers


# ---------------------------------------------------------------------------------------------
# The grant, 2 for a game on the play page: no redirect, the page's own script takes the code
# ---------------------------------------------------------------------------------------------


@server.post("/play/<client_id>/authorize")
def decide_game(client_id: str) -> Response:
    """What the play page tells its game: a code, or why there is none.

    The page sends its signed `request`, and `decision=allow` once the player pressed that. Without
    it a player who allowed the game before is not asked again; any other has to be.
    """
    try:
        player, asked = read_game_request(client_id)
        grant = player.grants.get(client_id)
        if request.form.get("decision") == "allow":
            grant = save_consent(player.id, asked)
        if grant is None:
            return answer_game(200, error=True, message="consent_required")
        return answer_game(200, error=False, code=issue_code(player, grant, asked))
    except AuthorizationError as error:
        return answer_game(403, error=True, message=error.error)
    except storage.StorageFailed as error:
        logger.error("no code issued: %s", error)
        return answer_game(503, error=True, message="server_error")


def sign_game_request(client: Client) -> str:
    """What the play page of this game, in this session, sends back."""
    return serializer("game").dumps([client.id, client.game_url, session["id"]])


def read_game_request(client_id: str) -> tuple[User, AuthorizationRequest]:
    """Who is asked, and for what, by the play page of this session. Raises AuthorizationError."""
    player, client = signed_in_player(), find_game(client_id)
    if player is None:
        raise AuthorizationError("no_account", "nobody is signed in")
    if client is None:
        raise AuthorizationError("invalid_app", "there is no such game, or it is disabled")
    try:
        # No max_age: a game may ask after hours. It ends with the session that it was signed for.
        shown = serializer("game").loads(request.form.get("request", ""))
    except BadSignature:
        shown = None
    if shown != [client.id, client.game_url, session["id"]]:
        raise AuthorizationError("no_account", "the page was opened in another session")
    # No redirect URI: one that is sent to the token endpoint is refused.
    return player, AuthorizationRequest(client.id, None, list(SCOPES[:1]), None, None)


def answer_game(status: int, **message: bool | str) -> Response:
    """The message that the page's script posts to the game."""
    body = json.dumps({"type": "authorized", **message})
    return Response(body, status, NO_STORE, content_type="application/json")


# ---------------------------------------------------------------------------------------------
# The grant, 3: the client exchanges the code for a token (RFC 6749 4.1.3)
# ---------------------------------------------------------------------------------------------


@api_views.route("POST", "/api/oauth/token")
def token(api_request: ApiRequest) -> JsonAnswer:
    """Everything is read and checked before the code is spent: a failed request burns no code."""
    form = read_token_form(api_request)
    client_id, client_secret = read_client_credentials(api_request, form)
    client = authenticate_client(api_request, client_id, client_secret)
    store = api_request.storage
    try:
        code = store.read_code(form["code"])
        refuse_bad_code(store, code, client, form)
        store.spend_code(form["code"])
    except storage.NoSuchCode:
        abort(400, "this code was never issued, to you at least, or is long expired")
    except storage.CodeSpent as spent:
        # Only for the client it was issued to: nobody else ends a player's tokens.
        if spent.record.client_id == client.id:
            end_replayed_grant(store, spent.record)
        abort(400, "this code was used before; each one is good once")
    except storage.StorageFailed as error:
        logger.error("a code was not spent: %s", error)
        abort(503, "the server cannot save right now", retry_after=STORAGE_RETRY_AFTER)
    answer = {
        "access_token": issue_access_token(code, store),
        "token_type": "Bearer",
        "expires_in": TOKEN_MAX_AGE,
    }
    return JsonAnswer(answer, {**NO_STORE, "Pragma": "no-cache"})


def read_token_form(api_request: ApiRequest) -> dict[str, str]:
    """The parameters of a token request, those that are blank left out. Raises HTTPException."""
    body = api_request.read_body(TOKEN_BODY_LIMIT)
    media_type, _ = parse_options_header(api_request.headers.get("Content-Type"))
    if media_type.lower() in ("application/json", "multipart/form-data"):
        abort(400, "send the parameters form-encoded: application/x-www-form-urlencoded")
    try:
        sent = parse_qsl(body.decode(), keep_blank_values=True, errors="strict")
    except ValueError:
        abort(400, "the body is not form-encoded UTF-8")
    # RFC 6749 3.2: a blank parameter is as if not sent, and none of ours comes twice.
    names = [name for name, _ in sent]
    for name in TOKEN_PARAMETERS:
        if names.count(name) > 1:
            abort(400, f"{name} is given more than once")
    form = {name: value for name, value in sent if value}
    for name in ("grant_type", "code"):
        if name not in form:
            abort(400, f"{name} is missing")
    if form["grant_type"] != "authorization_code":
        abort(400, "grant_type must be authorization_code")
    return form


def read_client_credentials(api_request: ApiRequest, form: dict[str, str]) -> tuple[str, str]:
    """The client's id and secret, from HTTP Basic or the form (RFC 6749 2.3.1)."""
    scheme, credentials = read_authorization_header(api_request)
    if scheme != "basic":
        for name in ("client_id", "client_secret"):
            if name not in form:
                abort(400, f"{name} is missing; or send both as HTTP Basic")
        return form["client_id"], form["client_secret"]
    if "client_secret" in form:
        abort(400, "send the client secret as HTTP Basic or in the body, not both")
    try:
        pair = base64.b64decode(credentials, validate=True).decode()
    except ValueError:  # no base64, no ASCII, no UTF-8
        pair = ""
    # RFC 6749 2.3.1: both halves are form-encoded first. Ours hold nothing that this would change.
    client_id, _, client_secret = (unquote_plus(half) for half in pair.partition(":"))
    if form.get("client_id", client_id) != client_id:
        abort(400, "client_id in the body is not the one of HTTP Basic")
    return client_id, client_secret


def read_authorization_header(api_request: ApiRequest) -> tuple[str, str]:
    """The scheme, in lower case, and the credentials that came with it; "" where there is none."""
    header = api_request.headers.get("Authorization", "")
    scheme, _, credentials = header.partition(" ")
    return scheme.lower(), credentials.strip(" ")


def authenticate_client(api_request: ApiRequest, client_id: str, client_secret: str) -> Client:
    """The client, where the secret is its own. Raises Unauthorized, TooManyRequests."""
    store = api_request.storage
    try:
        client = store.read_client(client_id)
    except storage.NoSuchClient:
        client = None
    expected = client.secret_sha256 if client else ""
    if hmac.compare_digest(sha256(client_secret), expected) and not client.disabled:
        return client
    # Counted after the check and by address alone: nobody locks out a client, whose id is public.
    try:
        address = client_address(api_request.address)
        store.count_attempt("client from", address, CLIENT_FAILURES)
    except storage.TooManyAttempts as error:
        abort(429, str(error), retry_after=error.retry_after)
    except storage.StorageFailed as error:
        logger.error("a failed client authentication is not counted: %s", error)
    # RFC 6749 5.2: the challenge answers a client that tried HTTP Basic.
    tried_basic = read_authorization_header(api_request)[0] == "basic"
    challenge = WWWAuthenticate("basic", {"realm": "OAuth clients"}) if tried_basic else None
    problem = "client_id is unknown or disabled, or client_secret is wrong"
    abort(401, problem, www_authenticate=challenge)


def refuse_bad_code(
    store: Storage, code: AuthorizationCode, client: Client, form: dict[str, str]
) -> None:
    """Refuse a code that this request may not have. Raises BadRequest, NoSuchCode."""
    if code.client_id != client.id:
        raise storage.NoSuchCode
    # Both ways: after the clock was set back a code does not live an hour longer.
    if abs(storage.now_ms() - code.issued) > CODE_MAX_AGE * 1000:
        abort(400, f"this code is older than {CODE_MAX_AGE} seconds")
    if find_granting_user(store, code.user_id, code.client_id, code.grant_id) is None:
        abort(400, "the player does not allow this any more, or has no account any more")
    redirect_uri = form.get("redirect_uri")
    if redirect_uri is not None and redirect_uri != code.redirect_uri:
        abort(400, "redirect_uri is not the one of the authorization request")
    refuse_bad_verifier(form.get("code_verifier"), code.code_challenge)


def refuse_bad_verifier(verifier: str | None, challenge: str | None) -> None:
    """PKCE (RFC 7636 4.6): only who sent the challenge knows the verifier. Raises BadRequest."""
    if challenge is None:
        # RFC 9700 2.1.1: else whoever strips the challenge from a request has turned PKCE off.
        if verifier is not None:
            abort(400, "code_verifier was sent, but no code_challenge before")
        return
    if verifier is None:
        abort(400, "code_verifier is missing")
    digest = hashlib.sha256(verifier.encode()).digest()
    expected = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    if not CODE_VERIFIER.fullmatch(verifier) or not hmac.compare_digest(expected, challenge):
        abort(400, "code_verifier does not fit the code_challenge")


def end_replayed_grant(store: Storage, code: AuthorizationCode) -> None:
    """A code came twice: one of the two stole it. End its tokens; the consent itself stands.

    RFC 6749 4.1.2.
    """
    try:
        with store.edit_user(code.user_id) as user:
            grant = user.grants.get(code.client_id)
            if grant and grant.id == code.grant_id:
                grant.end_tokens()
    except storage.NoSuchUser:
        return
    except storage.StorageError as error:
        # The replay is refused all the same; the token it gave lives on, up to ten minutes.
        logger.error("tokens of a replayed code not ended: %s", error)


# ---------------------------------------------------------------------------------------------
# The grant, 4: the client asks who the player is
# ---------------------------------------------------------------------------------------------


@api_views.route("GET", "/api/oauth/whois", ANY_ORIGIN)
def whois(api_request: ApiRequest) -> JsonAnswer:
    """Who gave this access token: id, name, pfpTimestamp and, where granted, email."""
    store = api_request.storage
    try:
        claims = read_access_token(read_bearer_token(api_request), store)
    except BadSignature:
        refuse_token("invalid_token", "this access token is expired, or not one of ours")
    user = find_granting_user(store, claims["user"], claims["client"], claims["grant"])
    if user is None:
        refuse_token("invalid_token", "this token was ended: by the player, or a code used twice")
    answer = {"id": user.id, "name": user.name}
    if user.pfp_timestamp is not None:
        answer["pfpTimestamp"] = user.pfp_timestamp
    if "email" in claims["scope"]:
        answer["email"] = user.email
    return JsonAnswer(answer, NO_STORE)


def read_bearer_token(api_request: ApiRequest) -> str:
    """The token in the Authorization header (RFC 6750 2.1). Raises BadRequest, Unauthorized."""
    scheme, credentials = read_authorization_header(api_request)
    if scheme != "bearer":
        refuse_token(None, "send the access token as Authorization: Bearer")
    if any(name == "access_token" for name, _ in api_request.query):
        refuse_token("invalid_request", "send the access token once, in the header", 400)
    # itsdangerous skips characters it does not know: what is no token must not get that far.
    if not BEARER_TOKEN.fullmatch(credentials):
        refuse_token("invalid_request", "the Authorization header is malformed", 400)
    return credentials


def refuse_token(error: str | None, description: str, status: int = 401) -> NoReturn:
    """Raise the answer of RFC 6750 3.1; without an error code where no token came at all."""
    challenge = f'Bearer error="{error}"' if error else "Bearer"
    headers = {"WWW-Authenticate": challenge, **NO_STORE}
    body = json.dumps({"message": description})
    abort(Response(body, status, headers, content_type="application/json"))


# ---------------------------------------------------------------------------------------------
# Public look-ups
# ---------------------------------------------------------------------------------------------


@api_views.route("GET", "/api/users/info", ANY_ORIGIN)
def users_info(api_request: ApiRequest) -> JsonAnswer:
    """Anyone may ask for the public profile of the player with this `id`."""
    ids = [value for name, value in api_request.query if name == "id"]
    # Not int(): it takes other scripts' digits, and its answer to 4,400 of them is an error.
    if len(ids) != 1 or not storage.USER_ID.fullmatch(ids[0]):
        abort(400, "send one id: 1 to 15 digits, without a leading zero")
    try:
        user = api_request.storage.read_user(int(ids[0]))
    except storage.NoSuchUser:
        abort(404, "no player has this id")
    return JsonAnswer({"message": "yes", "user": public_profile(user)}, {})


def public_profile(user: User) -> dict:
    """What anyone may know of a player; all times in milliseconds, playMinutes in minutes."""
    profile = {
        "name": user.name,
        "id": user.id,
        "bio": user.bio,
        "flairs": user.flairs,
        "equippedFlair": user.equipped_flair,
        "playMinutes": user.play_ms // 60_000,
        "lastHeartbeat": user.last_heartbeat,
        "modLevel": user.mod_level,
    }
    if user.pfp_timestamp is not None:
        profile["pfpTimestamp"] = user.pfp_timestamp
    return profile


@server.route("/api/oauth/whois", methods=["OPTIONS"], provide_automatic_options=False)
@server.route("/api/users/info", methods=["OPTIONS"], provide_automatic_options=False)
def preflight() -> Response:
    """Tell a browser that programs on any origin may send an access token."""
    headers = {
        "Access-Control-Allow-Methods": "GET, HEAD",
        "Access-Control-Allow-Headers": "Authorization",
        "Access-Control-Max-Age": "86400",  # seconds
    }
    return Response(status=204, headers=headers)


# ---------------------------------------------------------------------------------------------
# Headers
# ---------------------------------------------------------------------------------------------


# These read no cookie. Their errors say so too, and the answers to a preflight.
OPEN_TO_ANY_ORIGIN = {path for (_, path), each in api_views.items() if ANY_ORIGIN in each.headers}


def add_headers(answer: Response) -> Response:
    """What every answer says to browsers."""
    headers = answer.headers
    headers["X-Content-Type-Options"] = "nosniff"
    if request.path in OPEN_TO_ANY_ORIGIN:
        headers.update([ANY_ORIGIN])
    if headers.get("Content-Type", "").startswith("text/html"):
        # The play page alone shows a frame, of its game, and has a script that sends requests.
        game = f"frame-src {g.framed_origin}; connect-src 'self'; " if "framed_origin" in g else ""
        headers["Content-Security-Policy"] = (
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
            f"base-uri 'none'; frame-ancestors 'none'; {game}"
            f"form-action 'self' {form_target()}".rstrip()
        )
        # no-referrer would make browsers send Origin: null with our own forms.
        headers["Referrer-Policy"] = "same-origin"
        headers["Cache-Control"] = "no-store"
    return answer


def form_target() -> str:
    """Where a form on this page may lead besides this server, as CSP sources.

    Browsers apply form-action to the redirects after a post, and to the client's own after them,
    which may lead to another host: so the pages on the way to a code name the origin of the
    redirect URI and its whole scheme.
    """
    waiting = find_pending_authorization()
    if waiting is None:
        return ""
    _, redirect_uri = waiting
    origin = origin_of(redirect_uri)
    return f"{origin} {origin.partition(':')[0]}:"


def find_pending_authorization() -> tuple[Client, str] | None:
    """The client, and its redirect URI, to whose authorization request this page leads."""
    try:
        leads_to = request.full_path
        if request.path not in AUTHORIZE_PATHS:
            fields = request.form if request.method == "POST" else request.args
            leads_to = fields.get("next", "")
        path, _, query = leads_to.partition("?")
        if path not in AUTHORIZE_PATHS:
            return None
        return read_client_and_redirect_uri(MultiDict(parse_qsl(query)))
    except (HTTPException, storage.StorageError, ValueError):  # too large a form; not UTF-8
        return None


# ---------------------------------------------------------------------------------------------
# The app
# ---------------------------------------------------------------------------------------------


def create_app(overrides: dict | None = None) -> Flask:
    """The WSGI application. Raises SettingError, StorageError."""
    settings = read_settings(overrides)
    base_url = settings["BASE_URL"]
    https = base_url.startswith("https:")
    app = Flask(
        __name__,
        static_folder=None,
        template_folder=f"{RESOURCES}/templates",
        instance_path=settings["DATA_DIR"],
    )
    app.config.update(
        settings,
        HOSTS=trusted_hosts(base_url),
        # URLs are built from this, never from the Host: some cannot even be parsed.
        SERVER_NAME=base_url.partition("://")[2],
        MAX_CONTENT_LENGTH=PAGE_BODY_LIMIT,
        PERMANENT_SESSION_LIFETIME=SESSION_MAX_AGE,
        SESSION_REFRESH_EACH_REQUEST=False,
        SESSION_COOKIE_NAME="__Host-session" if https else "session",
        SESSION_COOKIE_SECURE=https,
        SESSION_COOKIE_SAMESITE="Lax",
    )
    app.extensions["storage"] = storage.open_storage(settings["DATA_DIR"], settings["PICTURE_DIR"])
    app.url_map.merge_slashes = False  # it redirects to the Host that was sent, by http
    app.session_interface = SignedCookieSessions()
    pages = (files, sign_in, sign_up, account, moderation, games, developer, discovery)
    for blueprint in (server, *pages):
        app.register_blueprint(blueprint)
    for refuse in (refuse_foreign_hosts, refuse_undecodable_queries, refuse_cross_site_posts):
        app.before_request(refuse)
    app.after_request(add_headers)
    app.register_error_handler(HTTPException, answer_http_error)
    app.register_error_handler(storage.StorageError, answer_storage_error)
    app.jinja_env.globals.update(
        site_name=settings["SITE_NAME"],
        about_url=settings["ABOUT_URL"],
        picture_address=picture_address,
        find_pending_authorization=find_pending_authorization,
        may_register=may_register,
        sign_game_request=sign_game_request,
    )
    app.wsgi_app = FastPath(app, api_views, usual_hosts(base_url))
    if settings["PROXIES"]:
        # The address alone: scheme and host come from the base URL.
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=settings["PROXIES"], x_proto=0, x_host=0)
    return app
