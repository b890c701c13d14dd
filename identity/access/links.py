"""Links and codes: for the first account, a lost password, and an email address.

What a letter says stands in a fragment, which browsers send to no server: programs that follow the
links of letters change nothing. A browser that asked for a letter keeps a secret in its session,
and the link names its hash: anywhere else the code of the letter is needed as well. Nothing is
stored: link and code end when what they are about changes.
"""

import hmac
import secrets
from typing import NamedTuple

from flask import session
from itsdangerous import BadSignature

from identity.acts.actors import COMMAND, Actor, Authority
from identity.acts.rights import may_moderate
from identity.http.limits import AttemptLimit, count_attempts
from identity.http.signing import digest_of, serializer
from identity.site.formatting import DAY
from identity.site.pasted import find_code, find_secret
from model.addresses import login_key
from model.door_records import Application
from model.errors import DamagedRecord, NoSuchUser, NotFound
from model.kinds import APPLICATIONS
from model.names import EMAIL_KEPT_DAYS
from model.records import CLOCK_TOLERANCE, FormerEmail, User, now_ms
from storage import Storage

LINK_MAX_AGE = 3600  # seconds
PASSWORD, CONFIRMATION = "sign-in link", "confirmation"  # purposes
Holder = User | Application  # of an email address
CODE_TRIES = 5  # for one letter, and as many with its link
CODE_TRIES_A_DAY = 20  # for one address: somebody may ask for letters again and again


# -- the first account --------------------------------------------------------------------------


def issue_first_account_link(store: Storage, base_url: str) -> str:
    """Return the address that makes the first account, an administrator's, until one exists."""
    return f"{base_url}/sign-up?invite={serializer('first account', store).dumps('')}"


def is_first_account_invite(store: Storage, invite: str) -> bool:
    """Return True for the `invite` parameter of `issue_first_account_link`."""
    try:
        serializer("first account", store).loads(invite)
    except BadSignature:
        return False
    return True


# -- the browser that asks for a letter ---------------------------------------------------------


class Asked(NamedTuple):
    """What a browser keeps that asked for a letter."""

    secret: str
    address: str  # that was typed
    time: int  # milliseconds

    @property
    def browser(self) -> str:
        """The hash by which a link names this browser."""
        return digest_of(self.secret, length=12)


def ask(purpose: str, address: str) -> Asked:
    """Keep in the session of this browser that it asks for a letter, and return what is kept."""
    session[purpose] = asked = Asked(secrets.token_urlsafe(12), address, now_ms())
    return asked


def find_asked(purpose: str) -> Asked | None:
    """Return what this browser asked for with this purpose, None if not in the last hour."""
    if purpose not in session:
        return None
    asked = Asked(*session[purpose])
    age = (now_ms() - asked.time) / 1000  # below 0 if another machine's clock is ahead
    return asked if -CLOCK_TOLERANCE <= age < LINK_MAX_AGE else None


# -- links --------------------------------------------------------------------------------------


class Link(NamedTuple):
    """What a link says: the player or application that it names, and the browser that asked."""

    user: Holder
    browser: str = ""  # "": it works in any


def _state(purpose: str, user: Holder) -> str:
    """Return the digest of what a link is about; the link ends when it changes."""
    # A player may remove the password that a link set: then the sign-in with it ends the link.
    password = user.password_hash or str(user.last_sign_in)
    about = password if purpose == PASSWORD else str(user.email_verified)
    return digest_of(f"{about}\n{user.email}", length=12)


def issue_link(
    store: Storage, purpose: str, user: Holder, browser: str, by: int | str = COMMAND.id
) -> str:
    """Return the text of a link for the `browser` that asked for it, "" for any browser.

    It is good for LINK_MAX_AGE seconds, and while the actor with the id `by` may moderate the user.
    """
    return serializer(purpose, store).dumps([user.id, _state(purpose, user), by, browser])


def issue_sign_in_link(
    store: Storage, base_url: str, user: User, by: int | str = COMMAND.id
) -> str:
    """Return the address where a player sets a new password, in any browser.

    It works once. It is good for as long as the one who made it may moderate the player.
    """
    return f"{base_url}/recover#{issue_link(store, PASSWORD, user, '', by)}"


def give_sign_in_link(by: Authority, user_id: int, base_url: str) -> str:
    """Return the address where a player who lost the password sets a new one.

    An act: raises NotAllowed, TooManyAttempts, StorageFailed, NoSuchUser.
    """
    user = by.store.users.read(user_id)
    by.require(may_moderate, user)
    by.audit("user sign-in-link", user=user_id)
    return issue_sign_in_link(by.store, base_url, user, by.actor.id)


def find_link(store: Storage, purpose: str, text: str) -> Link | None:
    """Return what a link says; `text` is the link or its whole address. None if it is not good.

    It is not if it is forged, used or older than LINK_MAX_AGE, if the player was deleted or the
    application decided, or if its maker may not moderate the player any more.
    """
    try:
        values = serializer(purpose, store).loads(find_secret(text, "#"), LINK_MAX_AGE)
        record_id, state, by, browser = values
        applies = isinstance(record_id, str)  # the id of a player is a number
        user = (store.records(APPLICATIONS) if applies else store.users).read(record_id)
    except (BadSignature, NotFound, UnicodeEncodeError, ValueError):
        return None
    maker_may = Authority(store, Actor(by)).has(may_moderate, user)
    return Link(user, browser) if state == _state(purpose, user) and maker_may else None


def issue_way_back(store: Storage, user_id: int, email: str) -> str:
    """Return the text of a link with which a player takes back an address that was replaced."""
    return serializer("way back", store).dumps([user_id, email])


def find_way_back(store: Storage, text: str) -> tuple[User, str, FormerEmail] | None:
    """Return whom a link of `issue_way_back` names, the address, and the record that keeps it.

    None if it is forged or older than EMAIL_KEPT_DAYS, or if the address is not kept any more.
    """
    try:
        signed = find_secret(text, "#")
        user_id, email = serializer("way back", store).loads(signed, EMAIL_KEPT_DAYS * DAY)
        kept = store.users.former_emails.find_kept(email)
        user = store.users.read(user_id)
    except (BadSignature, NoSuchUser, UnicodeEncodeError):
        return None
    return (user, email, kept) if kept and kept.user_id == user_id else None


def find_by_address(store: Storage, email: str, confirmed: bool) -> Holder | None:
    """Return who has this address, `confirmed` or not; None also for a damaged record."""
    try:
        user = store.users.find_by_login(email) if "@" in email else None
        if user is None and not confirmed:
            user = store.records(APPLICATIONS).find_by("email", login_key(email))
    except DamagedRecord:
        return None
    return user if user and user.email_verified == confirmed else None


# -- codes --------------------------------------------------------------------------------------


def codes_of(store: Storage, purpose: str, user: Holder, browser: str) -> list[str]:
    """Return the six digits beside a link, for each of the signing keys, the newest first."""
    text = "\n".join(("code", purpose, str(user.id), _state(purpose, user), browser)).encode()
    digests = (hmac.digest(key, text, "sha256") for key in reversed(store.keys.current()))
    return [f"{int.from_bytes(each[:8]) % 10**6:06d}" for each in digests]


def is_right_code(
    store: Storage, purpose: str, user: Holder | None, browser: str, code: str, email: str | None
) -> bool:
    """Return True for the code of a letter. The attempt counts before it is looked at.

    `email` is the address that was typed, None if the code is sent together with its link. Attempts
    with a link count apart: whoever asked for the letter can use up those without one. `user` is
    None, only beside an `email`, if nobody has this address: then False, after the same work.
    Raises TooManyAttempts, StorageFailed.
    """
    of = f"link of {user.id}" if email is None else login_key(email)
    limits = [
        AttemptLimit("code of", f"{purpose} {browser} {of}", CODE_TRIES, LINK_MAX_AGE),
        AttemptLimit("code for", f"{purpose} {of}", CODE_TRIES_A_DAY, DAY // 2),
    ]
    count_attempts(store, limits)
    typed = (find_code(code, "0-9", length=6) or "").encode()
    codes = codes_of(store, purpose, user or User(0, "", "", ""), browser)
    is_right = any(hmac.compare_digest(typed, each.encode()) for each in codes)
    return is_right and user is not None
