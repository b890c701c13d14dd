"""Signing in again, because an app asks for it (OpenID Connect Core 3.1.2.1).

An app may want the password again (`prompt=login`), a sign-in that is not older than `max_age`, or
the player of an ID token (`id_token_hint`). The request then gets a parameter `asked`, which is
signed and says so. A session that began after it in the same browser satisfies the request: nobody
is asked twice.
"""

from typing import NamedTuple

from flask import g, request, session
from itsdangerous import BadSignature

from identity.access.sessions import BROWSER, browser_id
from identity.http.signing import serializer
from identity.oauth.authorization import LOGIN, AuthorizationError, AuthorizationRequest
from identity.oauth.terms import pending_parameters
from model.records import CLOCK_TOLERANCE, Session, User, now_ms

ASKED = "asked"  # the parameter
ASKED_MAX_AGE = 600  # seconds
OF_BROWSER = "asked of a browser"  # the purpose of its signature


class Reauthentication(NamedTuple):
    """Who was asked to sign in again, and when."""

    client_id: str
    user_id: int | None  # nobody else may sign in; None: anyone, because nobody was signed in
    session_id: str | None  # of the session that is not enough
    time: int  # milliseconds
    browser: str  # nobody passes with what another one was asked


def session_start(player: User) -> int:
    """Return when the signed-in player signed in to this session, in milliseconds."""
    return own_session(player).since


def own_session(player: User) -> Session:
    """Return the session in which the player is signed in here."""
    return next(each for each in player.sessions if each.id == session["id"])


def session_amr() -> list[str]:
    """Return how the player signed in to this session (RFC 8176), [] if that is not known."""
    return session.get("amr", [])


def must_sign_in(player: User | None, auth_request: AuthorizationRequest) -> bool:
    """Return True if the player has to sign in before this request can be answered."""
    if player is None or auth_request.hinted_id not in (None, player.id):
        return True
    since, max_age = session_start(player), auth_request.max_age
    is_too_old = max_age is not None and now_ms() - since > max_age * 1000
    if not is_too_old and LOGIN not in auth_request.prompts:
        return False
    asked = _read(request.args.getlist(ASKED))
    if asked is None or asked.client_id != auth_request.client_id:
        return True
    # Of another machine the clock may be behind; its session is another one all the same.
    is_later = since > asked.time - CLOCK_TOLERANCE * 1000
    is_same_player = asked.user_id in (None, player.id)
    return not (is_same_player and is_later and asked.session_id != session["id"])


def require_no_page(player: User | None, auth_request: AuthorizationRequest) -> None:
    """Raise AuthorizationError if the player has to sign in, or to agree to the terms, first."""
    if "must_agree" in g:
        raise AuthorizationError("interaction_required", "the player has to agree to the terms")
    if must_sign_in(player, auth_request):
        raise AuthorizationError("login_required", "the player has to sign in")


def address_after_sign_in(player: User | None, auth_request: AuthorizationRequest) -> str:
    """Return the address of this request, with ASKED if a page has to ask for the password."""
    # As it was sent: encoded anew, some characters of `state` are three times as long.
    sent = request.query_string.decode().split("&")
    parameters = [each for each in sent if not each.startswith(f"{ASKED}=")]
    user_id = auth_request.hinted_id or (player and player.id)
    if user_id or LOGIN in auth_request.prompts or auth_request.max_age is not None:
        session_id = player and session["id"]
        asked = Reauthentication(
            auth_request.client_id, user_id, session_id, now_ms(), browser_id()
        )
        parameters.append(f"{ASKED}={serializer(OF_BROWSER).dumps(asked)}")
    return f"{request.path}?{'&'.join(parameters)}"


def find_reauthentication(address: str) -> Reauthentication | None:
    """Return who was asked to sign in again by the request at an address, None for nobody."""
    return _read(pending_parameters(address).getlist(ASKED))


def find_login_hint(address: str) -> str:
    """Return the name that the authorization request at an address proposes, or ""."""
    return pending_parameters(address).get("login_hint", "")


def _read(values: list[str]) -> Reauthentication | None:
    """Return what ASKED says; None without it, or if it is forged, old or another browser's."""
    if not values:
        return None
    try:
        asked = Reauthentication(*serializer(OF_BROWSER).loads("".join(values), ASKED_MAX_AGE))
    except BadSignature:
        return None
    return asked if asked.browser == session.get(BROWSER) else None
