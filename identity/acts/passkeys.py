"""Acts on passkeys, and the ways in that a player keeps. `rp_id` is the host of passkeys.

Unlike other acts of players on themselves, these are logged: each changes who can sign in. All of
them raise NotAllowed, StorageFailed, NoSuchUser, TooManyAttempts. Numbers in comments are sections
of W3C Web Authentication Level 3.
"""

from contextlib import suppress

from identity.acts.actors import Authority
from identity.acts.rights import is_oneself
from model.errors import AlreadyThere, InvalidField, TooManyAttempts
from model.kinds import PASSKEYS
from model.records import Passkey, User, now_ms
from model.words import say
from storage import Storage

PASSKEYS_EACH = 20  # of one player


class LastWayIn(InvalidField):
    """The player could not sign in any more."""

    field = "form"
    problem = say(
        "You could not sign in any more. First add another passkey, set a password, or confirm "
        "your email."
    )


def passkeys_of(store: Storage, user_id: int, rp_id: str | None) -> list[Passkey]:
    """Return the passkeys of a player that can be used at this host, by id."""
    found = store.records(PASSKEYS).page("user", str(user_id))
    return [each for each in found if each.rp_id == rp_id]


def require_way_in(store: Storage, user: User, rp_id: str | None, but: str | None = None) -> None:
    """Raise LastWayIn if a player, as the record is about to be, could be left without a way in.

    A password is one, or two passkeys, or a passkey and a confirmed address; a device is lost
    easily. `rp_id` is the host whose passkeys count, None: none do. `but` is the id of one that is
    about to go.

    What another act changes at the same moment is not seen: a player who removes the password and
    passkeys in that moment can be left with too few ways in, and needs a sign-in link.
    """
    if user.password_hash:
        return
    kept = [each for each in passkeys_of(store, user.id, rp_id) if each.id != but]
    if len(kept) + bool(user.email and user.email_verified) < 2:
        raise LastWayIn


def add(by: Authority, passkey: Passkey) -> None:
    """Add a passkey. Raises InvalidField for its name, and for one too many."""
    passkeys, user_id, at_most = by.store.records(PASSKEYS), passkey.user_id, PASSKEYS_EACH
    try:
        with passkeys.adding(passkey):
            by.require(is_oneself, by.store.users.read(user_id))
            if passkeys.count("user", str(user_id), at_most) == at_most:
                problem = say("You have %(number)s passkeys. Remove one first.", number=at_most)
                raise InvalidField("form", problem)
            by.audit("user add-passkey", user=user_id)
    except AlreadyThere:  # 7.1 step 26; excludeCredentials prevents it
        raise InvalidField("form", say("This passkey is here already.")) from None


def remove(by: Authority, passkey_id: str, rp_id: str | None) -> None:
    """Remove a passkey. Raises NotFound, LastWayIn."""
    passkeys = by.store.records(PASSKEYS)
    with passkeys.deleting(passkey_id) as passkey:
        user = by.store.users.read(passkey.user_id)
        by.require(is_oneself, user)
        if not by.is_command:
            # Waits until another removal is saved: this one looks at what is left then.
            passkeys.count("user", str(user.id), at_most=1)
            require_way_in(by.store, user, rp_id, but=passkey.id)
        by.audit("user remove-passkey", user=user.id)


def remove_password(by: Authority, user_id: int, rp_id: str | None) -> None:
    """Remove the password of a player. Raises LastWayIn."""
    with by.edit(is_oneself, by.store.users, user_id) as user:
        if user.password_hash:
            user.password_hash = ""
            require_way_in(by.store, user, rp_id)
            by.audit("user remove-password", user=user_id)


def note_use(by: Authority, passkey_id: str, counter: int, synced: bool) -> bool:
    """Keep the counter of a sign-in, and tell the player if it did not grow (7.2 step 22).

    Then the authenticator may have been copied, or its maker counts wrongly: the player decides
    which. Always return True: the use is noted. Raises NotFound if the passkey was removed.
    """
    with by.store.records(PASSKEYS).edit(passkey_id) as passkey:
        before = passkey.counter
        passkey.counter, passkey.used = max(before, counter), now_ms()
        passkey.synced = synced
    if (before or counter) and counter <= before:
        _report_copy(by, passkey)
    return True


def _report_copy(by: Authority, passkey: Passkey) -> None:
    """Log that a passkey may have been copied, and leave its player a notice."""
    with suppress(TooManyAttempts):  # the notice says it all the same
        by.audit("user passkey-counter", user=passkey.user_id)
    with by.store.users.edit(passkey.user_id) as user:
        text = say(
            "Your passkey “%(name)s” may have been copied to another device. If that was not you, "
            "remove it on your security page.",
            name=passkey.name,
        )
        user.notify(text)
