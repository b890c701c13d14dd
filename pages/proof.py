"""A proof that it is the player who presses: for what is worse in a browser left open."""

from flask import request, session

from identity.reauthentication import session_start
from pages.forms import refuse_wrong_password
from storage.records import User, now_ms

PROOF_AGE = 300  # seconds


def is_proven(player: User) -> bool:
    """Return True if the player gave the password in the last minutes, here or to sign in."""
    session_id, proven = session.get("proven", ("", 0))
    latest = max(session_start(player), proven if session_id == session["id"] else 0)
    return 0 <= now_ms() - latest < PROOF_AGE * 1000


def require_proof(player: User, field: str = "password") -> None:
    """Raise FormRefused unless it is proven, or this field of the form has the password."""
    if not is_proven(player) or field in request.form:
        refuse_wrong_password(player, field)
        session["proven"] = session["id"], now_ms()
