"""Acts on invitations; what the audit log and the chat are told of a new player.

The acts raise NotAllowed, NotFound, StorageFailed, InvalidField, TooManyAttempts.
"""

from collections.abc import Callable

from identity.acts.actors import Authority
from identity.acts.rights import may_administer
from identity.messages.outbox import announce
from model.errors import InvalidField
from model.kind import DAY_MS
from model.records import User, now_ms, sha256
from model.rules import check_flair, check_short_text, refuse
from model.site_records import Invite
from model.words import say
from storage import Storage

MOST_DAYS, MOST_USES = 365, 1000
INVITE_NOTE_LENGTH = 60  # characters


class EndedBefore(InvalidField):
    """Another administrator has ended this invitation, or all of it is used."""

    field, problem = "form", say("This invitation has ended already.")


def create(
    by: Authority,
    days: int,
    uses: int = 1,
    note: str = "",
    flair: str = "",
    names_inviter: bool = False,
) -> str:
    """Return the secret of a new invitation, which cannot be read again.

    It is good for `days` days and for `uses` accounts, which get the flair. With `names_inviter`
    its page says who invites.
    """
    _require_possible(days, uses, note, flair)

    def before(invite: Invite) -> None:
        by.require(may_administer)
        by.audit("invite", invite=invite.id, days=days, uses=uses)

    fields = {"uses": uses, "note": note, "flair": flair, "by": by.actor.id}
    fields["names_inviter"] = names_inviter
    return by.store.invites.issue(days, before, **fields)


def revoke(by: Authority, invite_id: str) -> None:
    """End an invitation. Raises EndedBefore."""
    with by.store.invites.edit(invite_id) as invite:
        by.require(may_administer)
        if invite.ends <= now_ms():
            raise EndedBefore
        by.audit("invite revoke", invite=invite.id)
        invite.revoked = now_ms()


def renew(by: Authority, invite_id: str) -> str:
    """Revoke an invitation, and return the secret of a new one like it. Raises EndedBefore."""
    old = by.store.invites.read(invite_id)
    if old.ends <= now_ms():
        raise EndedBefore
    days = max(1, round((old.good_until - old.created) / DAY_MS)) if old.good_until else 7
    # Another administrator has not chosen to be named.
    names_inviter = old.names_inviter and old.by == by.actor.id
    secret = create(by, days, old.uses, old.note, old.flair, names_inviter)
    try:
        revoke(by, invite_id)
    except EndedBefore:  # another administrator was faster, and has a new one
        new = by.store.invites.find_by("secret", sha256(secret))
        by.store.invites.delete(new.id)
        raise
    return secret


def _require_possible(days: int, uses: int, note: str, flair: str) -> None:
    """Raise InvalidField for the first value that no invitation can have."""
    if not 1 <= days <= MOST_DAYS:
        raise InvalidField("days", say("Choose 1 to %(most)s days.", most=MOST_DAYS))
    if not 1 <= uses <= MOST_USES:
        raise InvalidField("uses", say("Invite 1 to %(most)s people.", most=MOST_USES))
    if len(note) > INVITE_NOTE_LENGTH:
        problem = say("Use up to %(most)s characters on one line.", most=INVITE_NOTE_LENGTH)
        raise InvalidField("note", problem)
    refuse("note", check_short_text(note))
    refuse("flair", check_flair(flair) if flair else None)


def audit_sign_up(store: Storage, address: str | None) -> Callable[[User], None]:
    """Return a `before` of `Users.register` that logs a sign-up, and by which invitation."""

    def before(user: User) -> None:
        invite = {"invite": user.invite} if user.invite else {}
        origin = {"address": address} if address else {}
        store.audit.write("user sign-up", user.id, user=user.id, **invite, **origin)

    return before


def announce_player(store: Storage, user: User) -> None:
    """Tell the chat of a new player."""
    joined = say("New player: %(name)s.", name=user.name)
    announce(store, "player", joined, f"/users/{user.id}")
