"""Acts on applications: sign-ups that a moderator lets in or declines.

All of them raise NotAllowed, StorageFailed, InvalidField; those of moderators TooManyAttempts.
"""

import contextlib
from collections.abc import Iterator

from identity.acts.actors import HALF_AN_HOUR, Authority
from identity.acts.invitations import announce_player, audit_sign_up
from identity.acts.rights import may_admit
from identity.messages.outbox import announce
from model.addresses import login_key
from model.door_records import Application
from model.errors import InvalidField, KeyTaken, NameTaken, NotFound, StorageFailed, TooManyAttempts
from model.kind import DAY_MS, day_of
from model.kinds import APPLICATIONS, NO_END
from model.names import unique_key
from model.records import PLAYER, User, now_ms
from model.rules import SHORT_TEXT_LENGTH, check_line, refuse
from model.words import Words, say
from storage import Storage
from storage.repositories import new_time_id

APPLICATION_DAYS = 30  # that an application waits
DECLINED_DAYS = 7  # for which the next sign-in says that it was declined
QUEUE = 500  # applications that wait
QUEUE_WITH_PROOF = 600  # scripts that solve nothing leave room for browsers
TOLD_AN_HOUR = 20  # applications, to the chat
APPROVING = 60_000  # milliseconds; an account that was not made in them was not made
APPROVED = say("A moderator let you in. Welcome!")


class QueueFull(InvalidField):
    """So many applications wait that no other is taken."""

    field = "form"
    problem = say("Many people are waiting to join right now. Try again tomorrow.")


class Decided(InvalidField):
    """Somebody else has decided on this application, or the person changed or deleted it."""

    field, problem = "form", say("This request was decided, changed or deleted meanwhile.")


def say_declined(reason: str) -> Words:
    return say("Your request to join was declined. The reason: %(reason)s", reason=reason)


# -- look-ups -----------------------------------------------------------------------------------


def find_waiting(store: Storage) -> list[Application]:
    """Return the applications that wait, the oldest first."""
    days = day_of(now_ms()), NO_END
    return store.records(APPLICATIONS).between("waiting", *days, newest_first=False)


def count_waiting(store: Storage) -> int:
    """Return how many applications wait, without reading them."""
    return store.records(APPLICATIONS).count_between("waiting", day_of(now_ms()), NO_END)


def find_by_login(store: Storage, name_or_email: str) -> Application | None:
    """Return the application that waits with a name or email, else the last that was declined."""
    applications, key = store.records(APPLICATIONS), login_key(name_or_email)
    if not key.isprintable():
        return None
    waiting = applications.find_by("email" if "@" in key else "name", key)
    return waiting or next(iter(applications.page("declined", key, None, 1, True)), None)


def _find_account(store: Storage, application: Application) -> User | None:
    """Return the player whom an approval made of an application, None without one."""
    user = store.users.find_by("name", unique_key(application.name))
    user = user or store.users.find_by_former_name(application.name)
    return user if user and user.application == application.id else None


# -- of the person ------------------------------------------------------------------------------


def apply(store: Storage, with_proof: bool, **fields: object) -> Application:
    """Add and return an application; `fields` are of Application.

    The name waits with it. Raises NameTaken, NameKept, EmailTaken, QueueFull.
    """
    now, expires = now_ms(), _days_later(APPLICATION_DAYS)
    new = Application(new_time_id(now), created=now, expires=expires, changed=now, **fields)
    with store.records(APPLICATIONS).adding(new):
        require_room(store, with_proof)
        store.users.require_name(new.name, application=new.id)
    try:  # an account may have been added beside it, which has looked for the name before
        store.users.require_name(new.name, application=new.id)
    except NameTaken:
        store.records(APPLICATIONS).delete(new.id)
        raise
    waits = say("%(name)s asks to join.", name=new.name)
    with contextlib.suppress(TooManyAttempts, StorageFailed):  # bots choose names for the chat
        store.attempts.count("applications told", "all", TOLD_AN_HOUR, HALF_AN_HOUR)
        announce(store, "application", waits, "/admin/applications")
    return new


def require_room(store: Storage, with_proof: bool) -> None:
    """Raise QueueFull if so many applications wait that one with or without a proof is too many."""
    if count_waiting(store) >= (QUEUE_WITH_PROOF if with_proof else QUEUE):
        raise QueueFull


def _days_later(days: int) -> int:
    """Return when a record ends: with a day, because those of past days are removed."""
    return (now_ms() // DAY_MS + days + 1) * DAY_MS - 1


@contextlib.contextmanager
def editing(store: Storage, application_id: str, deletes: bool = False) -> Iterator[Application]:
    """`with editing(store, id) as application:` edit, or delete, one that waits. Raises Decided."""
    applications = store.records(APPLICATIONS)
    try:
        with (applications.deleting if deletes else applications.edit)(application_id) as found:
            is_ending = abs(now_ms() - found.approved) < APPROVING
            if found.declined or found.expires <= now_ms() or is_ending:
                raise Decided
            if found.approved and _find_account(store, found):  # a kill came before its end
                raise Decided
            yield found
    except NotFound as error:
        raise Decided from error


def rewrite(store: Storage, application_id: str, name: str, email: str, text: str) -> None:
    """Change what an application says. Raises Decided, NameTaken, NameKept, EmailTaken."""
    with editing(store, application_id) as found:
        if (found.name, found.email, found.text) != (name, email, text):
            store.users.require_name(name, application=application_id)
            found.email_verified &= found.email == email
            found.name, found.email, found.text, found.changed = name, email, text, now_ms()


# -- of moderators ------------------------------------------------------------------------------


def approve(by: Authority, application_id: str, seen: int) -> User:
    """Make an application, as it was at the time `seen`, an account, and return the player.

    If several approve, one account is made. After a kill in between, the next approval finds the
    account, and ends the application. Raises Decided, NameTaken, NameKept, EmailTaken.
    """
    by.require(may_admit)
    store, applications = by.store, by.store.records(APPLICATIONS)
    found = applications.find(application_id)
    if found is None or found.declined or found.changed > seen:
        raise Decided
    user = store.users.new(found.name, found.email, found.password_hash, PLAYER)
    user.application, user.language, user.agreed = found.id, found.language, found.agreed
    user.email_verified, user.underage = found.email_verified, found.underage
    user.notify(APPROVED)

    def before(user: User) -> None:
        with applications.edit_inside(application_id) as now:
            if now.declined or now.changed != found.changed:
                raise Decided
            by.require(may_admit)
            by.audit("application approve", user=user.id)
            audit_sign_up(store, found.address)(user)
            now.approved = now_ms()  # nobody changes, declines or deletes it any more

    try:
        store.users.add_new(user, first=False, before=before)
    except NotFound as error:  # the person deleted it
        raise Decided from error
    except KeyTaken:
        if (user := _find_account(store, found)) is None:
            raise
    try:
        applications.delete(application_id)
    except NotFound as error:  # another moderator was as fast
        raise Decided from error
    announce_player(store, user)
    by.write_to(user, "approved", APPROVED)
    return user


def decline(by: Authority, application: Application, reason: str, seen: int) -> None:
    """Decline an application as it was at the time `seen`. Raises Decided.

    What it said goes at once, but for what the next sign-in needs.
    """
    refuse("reason", check_line(reason, SHORT_TEXT_LENGTH))
    with editing(by.store, application.id) as found:
        if found.changed > seen:
            raise Decided
        by.require(may_admit)
        by.log("application decline")  # how many applications there are is limited
        found.email, found.email_verified, found.text, found.address = "", False, "", None
        found.language, found.agreed, found.underage = "", {}, False
        found.declined, found.reason, found.expires = now_ms(), reason, _days_later(DECLINED_DAYS)
    by.write_to(application, "declined", say_declined(reason))
