"""A form that was sent after the session ended: what was typed goes through the sign-in.

It stands in the session cookie. Only fields that are named here are kept, so no password, code or
secret is. A form of another site does not get this far: `identity.oauth.guards` refuses it.
"""

import contextlib
from typing import NamedTuple

from flask import request, session
from werkzeug.exceptions import HTTPException

from identity.http.languages import shown
from identity.http.signing import serializer
from identity.site.formatting import MINUTE
from model.client_rules import TAGS
from model.records import now_ms
from model.words import say

ADDRESS = "/unsent"  # where it is shown after the sign-in
KEPT_FOR = 30 * MINUTE
MOST_KEPT = 3000  # bytes of the cookie, of which browsers keep 4,096
CLIENT_FIELDS = ("name", "redirect_uris", "post_logout_redirect_uris", "game_url", "description")
CLIENT_FIELDS += ("kind", "who", "flair", "require_pkce", "no_email", "device", "server")
CLIENT_FIELDS += ("program", "address", "backchannel_logout_uri", *(f"tag-{tag}" for tag in TAGS))
TEXTS = ("name", "bio", "text", "answer", "description")  # of which a kept form has one
KEPT_FIELDS = {  # all of a form, by the rule of its address: what is missing would be unset
    "/account": ("name", "bio", "equippedFlair", "listed", "playing", "language", "seen"),
    "/users/<user_id>/report": ("reason", "text"),
    "/games/<client_id>/report": ("reason", "text"),
    "/users/<user_id>/notes": ("text",),
    "/admin/reports/<report_id>": ("answer", "reason", "length"),
    "/developer": CLIENT_FIELDS,
    "/developer/<client_id>": CLIENT_FIELDS,
}


class Unsent(NamedTuple):
    """A form that is kept."""

    user_id: int | None  # whose session had ended, if the cookie still said so
    since: int  # milliseconds
    address: str
    fields: list[tuple[str, str]]


def keep_form() -> bool:
    """Keep the form of this request; return False if there is nothing to keep, or too much."""
    names = KEPT_FIELDS.get(request.url_rule.rule, ()) if request.method == "POST" else ()
    fields = []
    with contextlib.suppress(HTTPException):  # the form is too large
        sent = request.form.items(multi=True) if names else ()
        fields = [(name, text) for name, text in sent if name in names]
    form = Unsent(session.get("user"), now_ms(), request.path, fields)
    is_empty = not any(text for name, text in fields if name in TEXTS)
    if is_empty or len(serializer("session").dumps(form)) > MOST_KEPT:
        return False
    session["unsent"] = form
    session["notice"] = shown(say("You were signed out. Sign in: what you typed is kept."))
    return True


def drop_of_others(user_id: int) -> None:
    """Drop the form that is kept if it is old, or not of the player who signs in now."""
    form = Unsent(*session.get("unsent", (0, 0, "", [])))
    if form.user_id not in (None, user_id) or now_ms() - form.since >= KEPT_FOR * 1000:
        session.pop("unsent", None)


def pop_form(user_id: int) -> Unsent | None:
    """Return the form that this player sent before the sign-in, once; None if none is kept."""
    drop_of_others(user_id)
    return Unsent(*session.pop("unsent")) if "unsent" in session else None
