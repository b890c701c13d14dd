"""Adding, using and removing passkeys, recovery codes, and an account without a password.

Forms and JSON are those of W3C Web Authentication Level 3; `identity.access.passkeys` has the
rest. Where passkeys are not offered, the addresses answer 404.
"""

import contextlib
import functools
from collections.abc import Iterator

from flask import Blueprint, abort, current_app, request, session
from markupsafe import Markup
from werkzeug.wrappers import Response

from identity.access.letters import notify
from identity.access.passkeys import (
    CEREMONY_TIME,
    PasskeyActs,
    PasskeyRefused,
    UnknownPasskey,
    creation_options,
    find_passkey,
    new_bytes,
    passkeys_of,
    read_answer,
    request_options,
    verify_assertion,
    verify_registration,
)
from identity.access.recovery_codes import RecoveryActs
from identity.access.sessions import PASSKEY_AMR, describe_browser, next_address, signed_in_player
from identity.http.context import base_url, get_storage
from identity.http.limits import ATTEMPTS_PER_ADDRESS, count_attempts, limits_of_address
from identity.http.responses import NO_STORE
from model.errors import NotFound, TooManyAttempts
from model.records import CLOCK_TOLERANCE, User, now_ms
from pages.account.security import security_form, security_page
from pages.community.moderation import actor_of
from pages.entry.sign_in import complete_sign_in, is_enough
from pages.kit import forms
from pages.kit.passkey_card import own_rp_id
from pages.kit.proof import note_proof, require_proof, with_proof

USE_KEPT = 2 * CEREMONY_TIME  # seconds: longer than a challenge is good
TRY_AGAIN = "This took too long, or was sent before. Try again."
NOT_ACCEPTED = "This passkey was not accepted. Try again, or use another way to sign in."
UNKNOWN = "This site doesn't know that passkey any more. Use another way to sign in."

passkeys = Blueprint("passkeys", __name__)


@passkeys.before_request
def require_offer() -> None:
    """Raise NotFound where passkeys are not offered."""
    if own_rp_id() is None:
        abort(404)


def passkey_acts(player: User) -> PasskeyActs:
    """Return what a player may do to passkeys, from the address of this request."""
    return PasskeyActs(get_storage(), actor_of(player), own_rp_id())


def recovery_acts(player: User) -> RecoveryActs:
    """Return what a player does with the own recovery codes, from the address of this request."""
    return RecoveryActs(get_storage(), actor_of(player))


# -- JSON, challenges and limits ----------------------------------------------------------------


def message(*found: object) -> tuple[dict, dict]:
    """Return the first problem of a form as JSON: `{"message": <a sentence>}`."""
    [problem, *_] = found[-1].values()
    text = problem.striptags() if isinstance(problem, Markup) else problem
    return {"message": text}, NO_STORE


def find_player() -> tuple[User]:
    """Return the signed-in player to a view that a script calls. Raises Forbidden."""
    player = signed_in_player()
    if player is None:
        abort(403, "You are signed out. Sign in again.")
    return (player,)


def issue_challenge(purpose: str, handle: str = "") -> str:
    """Return a challenge that is good once, in this session, for CEREMONY_TIME seconds.

    `handle` names the player: to add a passkey the user handle, to confirm with one the id.
    It stands in the signed cookie, which ends with the session. A later one replaces it.
    """
    challenge = new_bytes()
    session["challenge"] = [purpose, challenge, now_ms(), handle]
    return challenge


def use_challenge(purpose: str) -> tuple[str, str]:
    """Use up the challenge of this session for a purpose; return it with its handle.

    An old cookie still has it, so that the use is counted, for all workers. Raises FormRefused.
    """
    problem = TRY_AGAIN if session else forms.NO_COOKIES
    issued_for, challenge, since, handle = session.pop("challenge", ("", "", 0, ""))
    try:
        age = now_ms() - since  # below 0 if the clock of another machine is ahead
        is_good = -CLOCK_TOLERANCE * 1000 <= age < CEREMONY_TIME * 1000
        if issued_for == purpose and is_good:
            get_storage().attempts.count("challenge", challenge, 1, USE_KEPT)
            return challenge, handle
    except TooManyAttempts:
        pass
    raise forms.FormRefused({"form": problem})


@contextlib.contextmanager
def counting_refusals() -> Iterator[None]:
    """Count what a block refuses against the limits of the address, as wrong passwords are.

    Raises TooManyAttempts, and FormRefused with the status of the refusal.
    """
    store, most = get_storage(), ATTEMPTS_PER_ADDRESS
    limits = limits_of_address(request.remote_addr, "passkey from", most)
    for each in limits:  # what is accepted is not counted: no passkey can be guessed
        store.attempts.require_left(*each)
    try:
        yield
    except UnknownPasskey as error:
        count_attempts(store, limits)
        raise forms.FormRefused({"form": UNKNOWN}, 404) from error
    except PasskeyRefused as error:
        count_attempts(store, limits)
        raise forms.FormRefused({"form": NOT_ACCEPTED}) from error


# -- adding and removing ------------------------------------------------------------------------


@passkeys.post("/account/passkeys/options")
@forms.form_view(find_player, message)
def offer_creation(player: User) -> tuple[dict, dict]:
    """Return the options of a new passkey as JSON, with the `password` unless it is proven."""
    require_proof(player)
    rp_id = own_rp_id()
    existing = passkeys_of(get_storage(), player.id, rp_id)
    handle = existing[0].handle if existing else new_bytes()
    rp = {"id": rp_id, "name": current_app.config["SITE_NAME"]}
    challenge = issue_challenge("add", handle)
    return creation_options(player, handle, existing, challenge, rp), NO_STORE


@passkeys.post("/account/passkeys")
@security_form("passkeys")
def add_passkey(player: User) -> Response | tuple:
    """Add the passkey of a `credential`, which is JSON, under a `name` or that of its model.

    With the first one come recovery codes.
    """
    require_proof(player)
    with counting_refusals():
        challenge, handle = use_challenge("add")
        answer = read_answer(request.form.get("credential", ""))
        passkey, model = verify_registration(
            answer, challenge, own_rp_id(), base_url(), player.id, handle
        )
    browser = describe_browser(request.headers.get("User-Agent", ""))
    typed = request.form.get("name", "").strip()
    passkey.name = typed or model or f"Passkey on {browser}"
    passkey_acts(player).add(passkey)
    notify(player, "passkey")
    if codes := recovery_acts(player).issue(player.id, replace=False):
        return show_new_codes(player, codes)
    return forms.redirect_with_notice("Passkey added.", "/account/security")


@passkeys.post("/account/passkeys/remove")
@security_form("passkeys", stamped=True)
@with_proof
def remove_passkey(player: User) -> Response:
    """Remove the passkey with the `id`, unless it is the last way in."""
    with contextlib.suppress(NotFound):  # it was removed in another tab
        passkey_acts(player).remove(request.form.get("id", ""))
        notify(player, "passkey removed")
    return forms.redirect_with_notice("Passkey removed.", "/account/security")


@passkeys.post("/account/password/remove")
@security_form("removal", stamped=True)
def remove_password(player: User) -> Response:
    """Remove the password, with the `password` unless it is proven."""
    require_proof(player)
    passkey_acts(player).remove_password(player.id)
    if player.password_hash:
        notify(player, "password removed")
    return forms.redirect_with_notice("Password removed.", "/account/security")


@passkeys.post("/account/recovery-codes")
@security_form("codes", stamped=True)
def replace_codes(player: User) -> tuple:
    """Replace the recovery codes, with the `password` unless it is proven."""
    require_proof(player)
    codes = recovery_acts(player).issue(player.id)
    notify(player, "recovery codes")
    return show_new_codes(player, codes)


def show_new_codes(player: User, codes: list[str]) -> tuple:
    """Return the page with new recovery codes, which no other response has."""
    page, headers = security_page(player, {}, codes)
    return page, 201, {"Location": "/account/security", **headers}


# -- signing in ---------------------------------------------------------------------------------


@passkeys.post("/sign-in/passkey/options")
def offer_request() -> tuple[dict, dict]:
    """Return the options of a sign-in that leads to `next` as JSON.

    Any passkey will do, but the player of this session confirms with one of their own.
    """
    player, rp_id = signed_in_player(), own_rp_id()
    confirms = player is not None and is_enough(next_address())
    allowed = passkeys_of(get_storage(), player.id, rp_id) if confirms else []
    asked_id = str(player.id) if allowed else ""
    return request_options(allowed, issue_challenge("sign-in", asked_id), rp_id), NO_STORE


@passkeys.post("/sign-in/passkey")
@forms.form_view(lambda: (next_address(),), message)
def sign_in_with_passkey(leads_to: str) -> tuple[dict, dict]:
    """Sign in by a `credential`, which is JSON, and return `next` as JSON.

    The player of this session proves who presses, and stays signed in.
    """
    with counting_refusals():
        challenge, asked_id = use_challenge("sign-in")
        answer = read_answer(request.form.get("credential", ""))
        passkey, user = find_passkey(get_storage(), answer, own_rp_id(), asked_id)
        use = verify_assertion(answer, passkey, challenge, base_url())
    acts, player = passkey_acts(user), signed_in_player()
    if player and player.id == user.id and is_enough(leads_to):
        acts.note_use(passkey.id, *use)
        note_proof()
    else:
        note_use = functools.partial(acts.note_use, passkey.id, *use)
        complete_sign_in(user, leads_to, None, note_use, PASSKEY_AMR)
    return {"next": leads_to}, NO_STORE
