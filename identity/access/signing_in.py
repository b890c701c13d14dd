"""Starting and ending a session: saves in the player's record, and a letter about a new browser."""

import secrets
from collections.abc import Sequence

from flask import current_app, request, session

from identity.access import unsent
from identity.access.letters import note_browser
from identity.access.passwords import hash_password, needs_rehash
from identity.access.sessions import BROWSER, MUST_AGREE
from identity.acts import sessions as session_acts
from identity.acts.actors import Actor, Authority, NotAllowed
from identity.acts.network_bans import require_unbanned
from identity.http.context import base_url, get_storage, site_look
from identity.http.limits import client_address, password_place
from identity.site.door import must_agree
from identity.site.networks import note_sign_in
from model.door_records import Application
from model.errors import StorageError
from model.records import Session, User, now_ms

# RFC 8176 2: a passkey proves that a key is there, and by user verification who holds it.
PASSWORD_AMR, CODE_AMR, PASSKEY_AMR = ("pwd",), ("otp",), ("pop", "user", "mfa")
LINK_AMR = ()  # a link is none of its methods
# Parts of User-Agent headers, in this order: most user agents name later ones as well.
BROWSERS = ("Edg", "OPR/", "SamsungBrowser", "Firefox", "FxiOS", "Chrome", "CriOS", "Safari")
SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS X", "CrOS", "Linux")
NAMES = {"Edg": "Edge", "OPR/": "Opera", "SamsungBrowser": "Samsung Internet"}
NAMES |= {"FxiOS": "Firefox", "CriOS": "Chrome", "CrOS": "ChromeOS"}
NAMES |= {"iPhone": "an iPhone", "iPad": "an iPad", "Mac OS X": "a Mac"}


def start_session(
    user: User,
    password: str | None,
    new_hash: str | None = None,
    replaced: str | None = None,
    amr: Sequence[str] = PASSWORD_AMR,
) -> bool:
    """Add a session to the record of a player who proved to be one, and set the cookie.

    `password` is the right one, in the form that was hashed, None if it was not typed: with it a
    hash that `needs_rehash` is replaced. With `new_hash`, of a new password, all other sessions
    end, otherwise the one with the id `replaced`. `amr` says how the player proved it (RFC 8176).
    Return False, and save nothing, if the password was changed or the player was suspended since
    `user` was read. Raises Busy, StorageFailed, and NotAllowed as `require_allowed_network`.
    """
    require_allowed_network(user)
    kept_hash = new_hash or user.password_hash
    if password is not None and needs_rehash(kept_hash, password):
        with password_place(user.id):
            kept_hash = hash_password(password)
    browser = describe_browser(request.headers.get("User-Agent", ""))
    address, now = client_address(request.remote_addr), now_ms()
    entry = Session(secrets.token_urlsafe(16), now, browser, now, address)
    by = Authority(get_storage(), Actor(user.id))
    if not session_acts.start_session(by, user, entry, kept_hash, new_hash is not None, replaced):
        return False
    note_sign_in(get_storage(), base_url(), address, user.last_sign_in)
    unsent.drop_of_others(user.id)
    kept = {name: session[name] for name in (BROWSER, "unsent") if name in session}
    session.clear()
    session.update(kept, user=user.id, id=entry.id)
    if amr:
        session["amr"] = [*amr]
    if must_agree(user, site_look()):
        session[MUST_AGREE] = True
    session.permanent = True
    note_browser(user, tell=new_hash is None)  # otherwise there is a letter about the password
    return True


def require_allowed_network(user: User) -> None:
    """Raise NotAllowed if a ban of this network hits a player who is not signed in here already."""
    here = session.get("id") if session.get("user") == user.id else None
    if all(each.id != here for each in user.sessions):
        require_unbanned(get_storage(), user, client_address(request.remote_addr))


def start_application_session(application: Application) -> None:
    """Let this browser see an application: it signs nobody in."""
    kept = {BROWSER: session[BROWSER]} if BROWSER in session else {}
    session.clear()
    session.update(kept, application=application.id)
    session.permanent = True


def end_session(told: str = "") -> None:
    """Sign this browser out; its cookie is removed even if the record cannot be written.

    `told` is the id of the app that asked for it, and need not be told.
    """
    user_id, ended = session.get("user"), session.get("id")
    session.clear()
    if user_id is None:
        return
    try:
        session_acts.end_sign_in(Authority(get_storage(), Actor(user_id)), user_id, ended, told)
    except NotAllowed:
        pass  # a suspension has ended all sessions
    except StorageError as error:  # also a damaged or deleted record
        current_app.logger.warning("session of user %d not removed: %s", user_id, error)


def describe_browser(user_agent: str) -> str:
    """Return words for a browser that its player recognises: "Firefox on Linux"."""
    browser = next((mark for mark in BROWSERS if mark in user_agent), "")
    system = next((mark for mark in SYSTEMS if mark in user_agent), "")
    browser, system = NAMES.get(browser, browser), NAMES.get(system, system)
    return f"{browser or 'Browser'} on {system}" if system else browser or "Unknown browser"
