"""Sessions: who is signed in.

A session is a signed cookie that names a player and an entry in the player's record. Removing the
entry ends the session, wherever the cookie was copied to.
"""

import re
import secrets
from datetime import timedelta
from urllib.parse import quote

from flask import Flask, Request, abort, current_app, g, redirect, request, session, url_for
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface
from itsdangerous import BadSignature, URLSafeTimedSerializer
from werkzeug.wrappers import Response

from identity.access import unsent
from identity.acts import sessions as session_acts
from identity.acts.actors import Actor, Authority, NotAllowed
from identity.http.context import find_cookies, get_storage, site_look
from identity.http.limits import client_address
from identity.http.responses import LONGEST_ADDRESS
from identity.http.signing import serializer
from identity.site.door import must_agree
from identity.site.formatting import HOUR, MINUTE
from model.door_records import Application
from model.errors import NoSuchUser, StorageError
from model.kinds import APPLICATIONS
from model.records import Session, User, now_ms
from model.words import say

SESSION_MAX_AGE = timedelta(days=14)
BROWSER = "browser"  # in the cookie: which browser it is, also after the next sign-in
MUST_AGREE = "must_agree"  # in the cookie, from a sign-in until the player agreed to the terms
NEXT_LENGTH = LONGEST_ADDRESS - 100  # characters; the others are for the path of a page
PLAIN = "!$'()*,/:;?@"  # what a value in a query may have unencoded (RFC 3986 3.4)
# At http. All ports of a host share cookies, and most programs call theirs "session".
COOKIE, OLD_COOKIE = "identity_session", "session"  # the latter up to version 1.0
SIGNED_TEXT = re.compile(r"[A-Za-z0-9._-]+")  # base64url and dots; itsdangerous skips others

# What goes on for a player who has to agree to the terms first, and is a guest everywhere else.
BEFORE_AGREEING = {"agreement.show_terms", "agreement.agree", "games.heartbeat"}
BEFORE_AGREEING |= {f"account.{each}" for each in ("show_data", "export_account", "delete_account")}
BEFORE_AGREEING |= {"sign_in.sign_out", "logout.start_logout", "logout.confirm_logout"}
BEFORE_AGREEING |= {"recovery.show_confirmation", "recovery.confirm_email"}
BEFORE_AGREEING |= {"recovery.send_confirmation", "language.show_languages"}
BEFORE_AGREEING |= {"language.choose_language", "passkey_sign_in.offer_request"}
BEFORE_AGREEING |= {"passkey_sign_in.sign_in_with_passkey"}  # which proves who deletes an account


class CookieSessions(SecureCookieSessionInterface):
    """Flask's session cookie, signed by `serializer`; without a cookie nothing is computed."""

    def get_signing_serializer(self, app: Flask) -> URLSafeTimedSerializer:
        return serializer("session")

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession:
        """Return the session in the one cookie with its name, an empty one if that is not good."""
        name = self.get_cookie_name(app)
        values, is_old = find_cookies(request, name), False
        if not values and name == COOKIE:
            values, is_old = find_cookies(request, OLD_COOKIE), True
        # Of two cookies with this name an attacker has planted one, and nothing tells which.
        if len(values) == 1 and SIGNED_TEXT.fullmatch(values[0]):
            max_age = app.permanent_session_lifetime.total_seconds()
            try:
                found = self.session_class(serializer("session").loads(values[0], max_age))
                g.has_old_cookie = is_old
                return found
            except BadSignature:
                pass
            except StorageError as error:  # no keys: Flask would answer 500, for a style sheet too
                g.session_error = error
        return self.session_class()

    def save_session(self, app: Flask, session: SecureCookieSession, response: Response) -> None:
        if g.get("has_old_cookie") and session.accessed:  # not with a picture, which caches keep
            session.modified = True
            response.delete_cookie(OLD_COOKIE, httponly=True, samesite="Lax")
        super().save_session(app, session, response)


def signed_in_player() -> User | None:
    """Return the player whose browser sent this request, or None.

    Raises DamagedRecord, and StorageFailed if that cannot be known now.
    """
    if "player" not in g:
        g.player = _find_session_player()
    return g.player


def _find_session_player() -> User | None:
    """Return the player, and note the use; None without a lasting session. Raises StorageError."""
    if "session_error" in g:
        raise g.session_error
    if "user" not in session:
        return None
    try:
        user = get_storage().users.read(session["user"])
    except NoSuchUser:
        return None
    # The cookie's own age is not enough: each notice to the player renews it.
    oldest = now_ms() - SESSION_MAX_AGE // timedelta(milliseconds=1)
    known = [each for each in user.sessions if each.id == session["id"] and each.since > oldest]
    if not known or user.suspended:
        return None
    if MUST_AGREE in session:
        if must_agree(user, site_look()):
            g.must_agree = True
            if request.endpoint not in BEFORE_AGREEING:
                return None
        elif site_look().changed:  # it could be read: the player agreed, or nobody is asked now
            del session[MUST_AGREE]
    _note_use(user.id, known[0])
    return user


def find_application() -> Application | None:
    """Return the application that this browser sent; None for another one, or if it is gone.

    It signs nobody in, and gives no rights but to itself. Raises StorageError.
    """
    application_id = session.get("application")
    return application_id and get_storage().records(APPLICATIONS).find(application_id)


def _note_use(user_id: int, entry: Session) -> None:
    """Keep when and from where a session is used, at most once an hour.

    No page fails or waits for that: after an error this process does not try it for a minute.
    """
    now, app = now_ms(), current_app
    if now - entry.used < HOUR * 1000 or now < app.extensions.get("uses_paused_until", 0):
        return
    by, address = Authority(get_storage(), Actor(user_id)), client_address(request.remote_addr)
    try:
        session_acts.note_use(by, user_id, entry.id, address)
    except (NotAllowed, StorageError) as error:
        app.extensions["uses_paused_until"] = now + MINUTE * 1000
        app.logger.warning("the last use of a session of user %d not kept: %s", user_id, error)


def redirect_to_sign_in(leads_to: str | None = None) -> Response:
    """Return a redirect to the sign-in page, which leads to `leads_to` after the sign-in.

    By default that is the page of this request, or the account page for a form. A form that is kept
    leads to the page that shows it. Whoever has to agree to the terms is led there instead. Raises
    BadRequest if the address is too long.
    """
    is_kept = unsent.keep_form()
    leads_to = unsent.ADDRESS if is_kept else leads_to
    leads_to = leads_to or (request.full_path if request.method == "GET" else "/account")
    if len(leads_to) > NEXT_LENGTH:
        abort(400, say("This request is too long. Tell the app's developer."))
    if "must_agree" in g:
        if is_kept:
            del session["notice"]  # which says that there was no session
        return redirect(first_to_terms(leads_to), 303)
    return redirect(f"{url_for('sign_in.show_sign_in')}?{query_to(leads_to)}", 303)


def first_to_terms(leads_to: str) -> str:
    """Return where a sign-in leads: to the terms first if the player has to agree to them."""
    return f"/terms?{query_to(leads_to)}" if MUST_AGREE in session else leads_to


def require_player() -> User:
    """Return the signed-in player; a guest is redirected to sign in, and comes back."""
    player = signed_in_player()
    if player is None:
        abort(redirect_to_sign_in())
    return player


def browser_id() -> str:
    """Return the random id of this browser, which its cookie keeps from now on."""
    return session.setdefault(BROWSER, secrets.token_urlsafe(12))


def local_address(text: str) -> str:
    """Return `text` if it is a path on this server to redirect to, else "/"."""
    # Browsers read "//host" and "/\host" as another host, and drop tabs and line ends.
    return text if re.fullmatch(r"/(?![/\\])[^\x00-\x1f\x7f]*", text) else "/"


def query_to(leads_to: str, plain: str = PLAIN) -> str:
    """Return the query of a page that leads to an address; `next_in_query` reads it.

    An app's `state` may make the address so long that the query has no room for it encoded once
    more. Then the address stands at the end of the query as it is, behind "then=".
    """
    query = f"next={quote(leads_to, safe=plain)}"
    return query if len(query) <= NEXT_LENGTH else f"then={leads_to}"


def next_in_query() -> str:
    """Return the address on this server to which the page of this request leads, "/" for others."""
    _, is_plain, rest = f"&{request.query_string.decode()}".partition("&then=")
    return local_address(rest if is_plain else request.args.get("next", ""))


def next_address() -> str:
    """Return the address on this server in the form's field `next`, or else in the query."""
    return local_address(request.form["next"]) if "next" in request.form else next_in_query()
