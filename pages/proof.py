"""A proof that it is the player who presses: for what is worse in a browser left open."""

from flask import request, session

from identity.reauthentication import session_start
from pages.forms import FormRefused, refuse_wrong_password
from storage.records import User, now_ms

PROOF_AGE = 300  # seconds


def is_proven(player: User) -> bool:
    """Return True if the player gave the password in the last minutes, here or to sign in.

    A passkey counts like a password.
    """
    session_id, proven = session.get("proven", ("", 0))
    latest = max(session_start(player), proven if session_id == session["id"] else 0)
    return 0 <= now_ms() - latest < PROOF_AGE * 1000


def note_proof() -> None:
    """Remember in this session that the player has just proven who presses."""
    session["proven"] = session["id"], now_ms()


def require_proof(player: User, field: str = "password") -> None:
    """Raise FormRefused unless it is proven, or this field of the form has the password."""
    if not is_proven(player) or (field in request.form and has_typed(player, field)):
        refuse_unconfirmed(player, field)
        note_proof()


def refuse_unconfirmed(player: User, field: str) -> None:
    """Raise FormRefused unless this field of the form has the password, or a recovery code.

    A player without a password has to have proven it in the last minutes, by a passkey.
    """
    if has_typed(player, field):
        refuse_wrong_password(player, field)
    elif not is_proven(player):
        problem = "Confirm with a passkey on your security page, then press again."
        raise FormRefused({"form": problem}, 403)


def has_typed(player: User, field: str) -> bool:
    """Return True if a password is to be checked: the player has one, or typed something."""
    return bool(player.password_hash or request.form.get(field))
