"""The authorization request (RFC 6749 4.1.1, OpenID Connect Core 3.1.2.1): what a client asks for.

The parameters of OpenID Connect count only in a request with the scope `openid`, if that is on.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlencode

from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import BadRequest

from identity.access.sessions import PLAIN, signed_in_player
from identity.http.context import base_url, get_storage
from identity.oauth.openid import BadHint, is_on, read_hint
from identity.oauth.terms import SCOPES, find_tester_uri, tester_redirect_uri
from model.errors import NoSuchClient
from model.records import OFFLINE, Client
from model.rules import has_origin
from model.texts import has_controls
from model.words import say

ALWAYS_GRANTED = "userinfo"  # of SCOPES
OPENID, PROFILE = "openid", "profile"  # scopes without consent of their own
REQUEST_PARAMETERS = ("response_type", "response_mode", "prompt", "scope", "state")
REQUEST_PARAMETERS += ("code_challenge", "code_challenge_method")
OPENID_PARAMETERS = ("nonce", "max_age", "id_token_hint", "login_hint")
REFUSED_PARAMETERS = ("request", "request_uri", "registration")  # OpenID Connect Core 6 and 7.2.1
QUERY, WEB_MESSAGE = "query", "web_message"  # response modes: of a redirect and of a popup
# Values of `prompt`: show no page, ask for the password again, or show the consent page.
SILENT, LOGIN, CONSENT, SELECT_ACCOUNT = "none", "login", "consent", "select_account"
PROMPTS = {SILENT, LOGIN, CONSENT, SELECT_ACCOUNT}
NONCE_LENGTH = 1000  # characters: it is stored with the code, and sent in the ID token
SECONDS = re.compile(r"[0-9]{1,9}")
CODE_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # RFC 7636 4.2: a SHA-256 in base64url


class AuthorizationError(Exception):
    """An error in an authorization request, with its code for the client (RFC 6749 4.1.2.1)."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error


class UnusableClient(BadRequest):
    """An authorization request without a usable client or redirect URI: never redirected.

    `client` is set if it is known and has not registered the redirect URI `received`.
    """

    def __init__(self, description: str, client: Client | None = None, received: str = "") -> None:
        super().__init__(description)
        self.client = client
        self.received = received


@dataclass
class AuthorizationRequest:
    """A checked authorization request: what a client asks of a player."""

    client_id: str
    redirect_uri: str | None  # None: from a game, whose page takes the code without a redirect
    scope: list[str]  # the known ones
    state: str | None
    code_challenge: str | None
    response_mode: str | None = None
    asked_scope: str = ""  # as it was sent
    prompts: list[str] = field(default_factory=list)
    nonce: str | None = None
    max_age: int | None = None  # seconds since the player signed in
    hinted_id: int | None = None  # the player whom the ID token hint names
    ui_locales: str | None = None  # the languages that the app prefers (`identity.http.languages`)

    @property
    def asked_consent(self) -> set[str]:
        """The scopes that need the player's consent."""
        return set(self.scope) & SCOPES.keys()

    @property
    def address(self) -> str:
        """The address on this server that makes the same request, for another player as well."""
        parameters = {
            "response_type": "code",
            "response_mode": self.response_mode,
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": self.asked_scope,
            "state": self.state,
            "nonce": self.nonce,
            "ui_locales": self.ui_locales,
            "code_challenge": self.code_challenge,
            "code_challenge_method": self.code_challenge and "S256",
        }
        sent = {name: each for name, each in parameters.items() if each is not None}
        return f"/oauth/authorize?{urlencode(sent, safe=f'{PLAIN}=')}"


class Reply(NamedTuple):
    """How a client gets the response: by a redirect, or as a message of a page in a popup."""

    client: Client
    redirect_uri: str
    state: str | None
    response_mode: str | None  # WEB_MESSAGE; anything else means a redirect
    scope: str  # as it was sent


def read_client_and_redirect_uri(parameters: MultiDict) -> tuple[Client, str]:
    """Return the registered client and its redirect URI. Raises UnusableClient."""
    # RFC 6749 4.1.2.1: if one of these two is wrong, the player is told and nobody is redirected.
    client_id = read_single(parameters, "client_id")
    received = read_single(parameters, "redirect_uri")
    if not client_id:
        raise UnusableClient(say("This link has no client_id. Tell the app's developer."))
    try:
        client = get_storage().clients.read(client_id)
    except NoSuchClient:
        problem = say("No app has this client_id. Tell the app's developer.")
        raise UnusableClient(problem) from None
    if client.disabled:
        problem = say("%(app)s is disabled. Ask the people who run this site.", app=client.name)
        raise UnusableClient(problem)
    redirect_uri = client.choose_redirect_uri(received) or find_tester_uri(
        client, received, signed_in_player()
    )
    if redirect_uri is None and not received:
        raise UnusableClient(say("This link has no redirect_uri. Tell the app's developer."))
    if redirect_uri is None:
        problem = say(
            "%(app)s did not register this redirect_uri. Tell its developer.", app=client.name
        )
        raise UnusableClient(problem, client, received)
    if parameters.get("response_mode") == WEB_MESSAGE and not has_origin(redirect_uri):
        problem = say(
            "A popup (web_message) needs a redirect_uri with https. Tell the app's developer."
        )
        raise UnusableClient(problem)
    return client, redirect_uri


def read_single(parameters: MultiDict, name: str) -> str:
    """Return a parameter, "" if it is missing. Raises UnusableClient if it is repeated."""
    values = parameters.getlist(name)
    if len(values) > 1:
        problem = say("This link has more than one %(name)s. Tell the app's developer.", name=name)
        raise UnusableClient(problem)
    return values[0] if values else ""


def asks_for_openid(scope: str) -> bool:
    """Return True for the scope of an OpenID Connect request, if that is on."""
    return is_on() and OPENID in scope.split(" ")


def read_authorization_request(
    parameters: MultiDict, client: Client, redirect_uri: str
) -> AuthorizationRequest:
    """Return the request of a known client. Raises AuthorizationError."""
    scope = parameters.get("scope", "")
    is_openid = asks_for_openid(scope)
    for name in REQUEST_PARAMETERS + (OPENID_PARAMETERS if is_openid else ()):
        if len(parameters.getlist(name)) > 1:  # RFC 6749 3.1
            raise AuthorizationError("invalid_request", f"{name} is repeated")
    for name in REFUSED_PARAMETERS if is_openid else ():
        if name in parameters:
            raise AuthorizationError(f"{name}_not_supported", f"{name} is not supported")
    response_type = parameters.get("response_type")
    if not response_type:
        raise AuthorizationError("invalid_request", "response_type is missing")
    if response_type != "code":
        raise AuthorizationError("unsupported_response_type", "response_type must be code")
    response_mode = parameters.get("response_mode") or None
    if response_mode not in (None, QUERY, WEB_MESSAGE):
        raise AuthorizationError("invalid_request", "response_mode must be query or web_message")
    prompts = parameters.get("prompt", "").split()
    offline = SILENT not in prompts and redirect_uri != tester_redirect_uri(client)
    auth_request = AuthorizationRequest(
        client.id,
        redirect_uri,
        read_scope(scope, client, is_on(), offline),
        parameters.get("state"),
        read_code_challenge(parameters, required=client.needs_challenge),
        response_mode,
        scope,
        prompts,
        ui_locales=parameters.get("ui_locales"),
    )
    if is_openid:
        add_openid_parameters(auth_request, parameters)
    else:  # plain OAuth has no `prompt`, and those that ask the player show the consent page
        asks = not (PROMPTS - {SILENT}).isdisjoint(auth_request.prompts)
        auth_request.prompts = [CONSENT] if asks else []
    return auth_request


def read_scope(text: str, client: Client, with_openid: bool, offline: bool) -> list[str]:
    """Return ALWAYS_GRANTED and the known scopes in a text: generic clients also ask for others.

    Of a request that shows the player no page, and of a test, OFFLINE is not one of them.
    """
    asked = {ALWAYS_GRANTED, *text.split(" ")} - ({"email"} if client.no_email else set())
    asked -= set() if offline else {OFFLINE}
    others = [PROFILE, OPENID] if with_openid else [PROFILE]
    return [each for each in (*SCOPES, *others) if each in asked]


def granted_scope(asked_scope: str, scope: list[str]) -> str | None:
    """Return the scope for a response (RFC 6749 5.1); None if it is all that was asked for."""
    asked = list(dict.fromkeys(asked_scope.split()))  # it is stored
    granted = [each for each in asked if each in scope]
    is_all = granted == asked and OFFLINE not in granted  # a family keeps it
    return None if is_all else " ".join(granted) or ALWAYS_GRANTED


def read_code_challenge(parameters: MultiDict, required: bool) -> str | None:
    """Return the PKCE challenge (RFC 7636 4.3), None without. Raises AuthorizationError."""
    challenge = parameters.get("code_challenge") or None
    method = parameters.get("code_challenge_method") or None
    if challenge is None and method is None and not required:
        return None
    if challenge is None:  # RFC 9700 2.1.1: nothing else protects the codes of a public client
        raise AuthorizationError("invalid_request", "code_challenge is missing (PKCE, RFC 7636)")
    # `plain`, which is the default, would show the verifier to anyone who sees this request.
    if method != "S256":
        raise AuthorizationError("invalid_request", "code_challenge_method must be S256")
    if not CODE_CHALLENGE.fullmatch(challenge):
        raise AuthorizationError("invalid_request", "code_challenge is not 43 characters base64url")
    return challenge


def add_openid_parameters(auth_request: AuthorizationRequest, parameters: MultiDict) -> None:
    """Add the parameters of OpenID Connect Core 3.1.2.1. Raises AuthorizationError."""
    prompts = set(auth_request.prompts)
    if not prompts <= PROMPTS or (SILENT in prompts and len(prompts) > 1):
        usage = "prompt must be none, or one or more of login, consent and select_account"
        raise AuthorizationError("invalid_request", usage)
    nonce = parameters.get("nonce") or None
    if nonce and (len(nonce) > NONCE_LENGTH or has_controls(nonce)):
        problem = f"nonce is longer than {NONCE_LENGTH} characters, or has control characters"
        raise AuthorizationError("invalid_request", problem)
    max_age = parameters.get("max_age") or None
    if max_age and not SECONDS.fullmatch(max_age):
        raise AuthorizationError("invalid_request", "max_age is not a number of seconds")
    auth_request.nonce = nonce
    auth_request.max_age = int(max_age) if max_age else None
    if hint := parameters.get("id_token_hint"):
        auth_request.hinted_id = read_hinted_id(hint, auth_request.client_id)
        if auth_request.hinted_id and SILENT not in prompts:
            require_usable(auth_request.hinted_id)


def read_hinted_id(hint: str, client_id: str) -> int | None:
    """Return the id of the player whom an ID token hint names, None if its key is unknown.

    Raises AuthorizationError.
    """
    try:
        claims = read_hint(hint, get_storage(), base_url())
    except BadHint as error:
        raise AuthorizationError("invalid_request", f"id_token_hint {error}") from None
    if claims and claims["aud"] != client_id:
        raise AuthorizationError("invalid_request", "id_token_hint is of another client")
    return None if claims is None else int(claims["sub"])


def require_usable(hinted_id: int) -> None:
    """Raise AuthorizationError if the hinted player is gone or suspended, and so cannot sign in."""
    user = get_storage().users.find(hinted_id)
    if user is None or user.suspended:
        raise AuthorizationError("login_required", "the player of id_token_hint cannot sign in")
