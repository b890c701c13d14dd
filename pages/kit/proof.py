"""A proof that it is the player who presses: for what is worse in a browser left open.

What gives power, a secret or a way in needs one of the last minutes: whoever copied a cookie
cannot make it last. A form that asks for it has a field `password`; for the others a page asks,
which sends the same form again.
"""

import functools
from collections.abc import Callable

from flask import make_response, request, session
from werkzeug.wrappers import Response

from identity.access.sessions import require_player
from identity.acts.passkeys import passkeys_of
from identity.http.context import get_storage
from identity.http.responses import security_policy
from identity.oauth.reauthentication import session_start
from model.records import User, now_ms
from model.words import say
from pages.kit.forms import FormRefused, require_own_password
from pages.kit.passkeys import own_rp_id
from pages.kit.rendering import render_page

PROOF_AGE = 300  # seconds
OF_THE_PAGE = ("stamp", "username", "password")  # fields that the page of a proof has itself


class ProofMissing(Exception):
    """The page of a proof has to be shown, with the problems and the status of `refusal`."""

    def __init__(self, refusal: FormRefused) -> None:
        self.refusal = refusal


def is_proven(player: User) -> bool:
    """Return True if the player signed in or gave a proof within the last PROOF_AGE seconds.

    A proof is the password, a recovery code or a passkey, in this session.
    """
    session_id, proven = session.get("proven", ("", 0))
    latest = max(session_start(player), proven if session_id == session["id"] else 0)
    return 0 <= now_ms() - latest < PROOF_AGE * 1000


def note_proof() -> None:
    """Remember in this session that the player has just proven who presses."""
    session["proven"] = session["id"], now_ms()


# -- forms with a field for it ------------------------------------------------------------------


def require_proof(player: User, field: str = "password") -> None:
    """Raise FormRefused unless `is_proven`, or this field of the form has the password.

    A field that was sent is checked in any case: a wrong password is refused in spite of a proof.
    """
    if not is_proven(player) or (field in request.form and has_typed(player, field)):
        require_confirmation(player, field)
        note_proof()


def require_confirmation(player: User, field: str) -> None:
    """Raise FormRefused unless this field of the form has the password, or a recovery code.

    A player without a password needs a proof of the last minutes instead, by a passkey.
    """
    if has_typed(player, field):
        require_own_password(player, field)
    elif not is_proven(player):
        problem = say("Confirm with a passkey, then press again.")
        raise FormRefused({"form": problem}, 403)


def has_typed(player: User, field: str) -> bool:
    """Return True if a password is to be checked: the player has one, or typed something."""
    return bool(player.password_hash or request.form.get(field))


def confirmation_of(player: User) -> dict[str, bool]:
    """Return how a form asks who presses: by the password, a passkey, or not at all if proven."""
    has_password, proven = bool(player.password_hash), is_proven(player)
    can_confirm = own_rp_id() is not None and not has_password and not proven
    return {"has_password": has_password, "proven": proven, "confirms": can_confirm}


# -- a page of its own for all other forms ------------------------------------------------------


def with_proof(change: Callable) -> Callable:
    """Decorate a view of a form, so that a page asks for a proof of the last minutes first."""

    @functools.wraps(change)
    def view(*found, **parts) -> Response | tuple | str:
        ask_proof(require_player())
        return change(*found, **parts)

    return view


def ask_proof(player: User) -> None:
    """Raise ProofMissing, whose page asks, unless the player proved lately who presses.

    If that page was sent, its password is checked; a right one is remembered as a proof, and a
    wrong one raises ProofMissing, too.
    """
    try:
        if "password" not in request.form and not is_proven(player):
            raise FormRefused({}, 403)  # nothing is wrong yet, and nothing is counted
        require_proof(player)
    except FormRefused as refusal:
        raise ProofMissing(refusal) from refusal


def show_proof_page(missing: ProofMissing) -> Response:
    """Return the page of a proof: its form has all fields of this form, and asks for files anew."""
    player, refusal, rp_id = require_player(), missing.refusal, own_rp_id()
    fields = [each for each in request.form.items(multi=True) if each[0] not in OF_THE_PAGE]
    has_passkey = rp_id is not None and bool(passkeys_of(get_storage(), player.id, rp_id))
    page = render_page(
        "kit/proof.html",
        player,
        address=request.path,
        fields=fields,
        files=list(request.files),
        has_passkey=has_passkey,
        problems=refusal.problems,
    )
    headers = security_policy(connects=True) if has_passkey else {}
    return make_response(page, refusal.status, headers | refusal.headers)
