"""Stamps: hidden fields of forms that say in which session the page was shown, and when.

A press counts only if its page was there for a second. Otherwise a page of another site could open
ours under the second click of a double click (clickjacking, RFC 9700 4.16). static/hold.js ignores
such presses as well, but no script runs in a window that was opened from a sandboxed frame.
"""

from flask import session
from itsdangerous import BadSignature

from identity.http.signing import serializer
from model.records import CLOCK_TOLERANCE, now_ms
from model.words import say

MINIMUM_AGE = 1000  # milliseconds
TOO_QUICK = say("You pressed within a second. If you meant it, press again.")
OUT_OF_DATE = say("That page was out of date. Read this one, then press again.")


def issue_stamp() -> str:
    """Return the stamp of a page that is shown now to the player, or to who has an application."""
    return serializer("stamp").dumps({"session": _session_id(), "shown": now_ms()})


def _session_id() -> str | None:
    return session.get("id") or session.get("application")


def check_stamp(stamp: str) -> str | None:
    """Return what is wrong with a stamp, or None. Nothing but the session ends its validity."""
    try:
        values = serializer("stamp").loads(stamp)
    except BadSignature:
        return OUT_OF_DATE
    return check_age(values["shown"]) if values["session"] == _session_id() else OUT_OF_DATE


def check_age(shown: int) -> str | None:
    """Return a problem if a page that was shown at this time is too new for a press, or None."""
    age = now_ms() - shown
    if -CLOCK_TOLERANCE * 1000 <= age < 0:  # the page is of a machine whose clock is ahead
        return None
    # Also for a later time, before the clock was set back: the next page has a new one.
    return TOO_QUICK if age < MINIMUM_AGE else None
