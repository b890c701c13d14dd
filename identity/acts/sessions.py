"""Acts on where players are signed in: in browsers, and by the apps there.

They raise NotAllowed, StorageFailed and NoSuchUser.
"""

from identity.acts.actors import Authority
from identity.acts.families import end_all
from identity.acts.logouts import tell_ended
from identity.acts.rights import is_oneself
from model.kinds import FAMILIES
from model.records import Session, User, now_ms

SESSIONS_KEPT = 20  # signed-in browsers of one player; the oldest is dropped first


def start_session(
    by: Authority,
    seen: User,
    new: Session,
    password_hash: str,
    end_others: bool = False,
    replaced: str | None = None,
) -> bool:
    """Add a session for a player who proved to be `seen`, and set the password hash.

    With `end_others` all other sessions end, otherwise the one with the id `replaced`, which the
    new one continues for apps: they asked for the password, and need not be told.

    Return False, and change nothing, if the password was changed or the player was suspended
    since `seen` was read. One save for all: if it fails, the old password stays valid.
    """
    with by.store.users.edit(seen.id) as user:
        # Otherwise a session from the time of a suspension would be valid after it.
        if user.password_hash != seen.password_hash or user.suspended:
            return False
        by.require(is_oneself, user)
        user.password_hash, user.last_sign_in = password_hash, new.since
        if end_others:
            end_all(by, user)
        for each in user.sessions:
            if each.id == replaced:
                new.first_id = each.first_id or each.id
        others = [each for each in user.sessions if each.id != replaced]
        dropped = [each.sid for each in reversed(others[: 1 - SESSIONS_KEPT])]
        tell_ended(by, user, user.consents, dropped)
        user.sessions = [*others, new][-SESSIONS_KEPT:]
    return True


def note_use(by: Authority, user_id: int, session_id: str, address: str) -> None:
    """Keep that a session of a player is used now, and from where."""
    with by.edit(is_oneself, by.store.users, user_id) as user:
        for each in user.sessions:
            if each.id == session_id:
                each.used, each.address = now_ms(), address


def sign_out(by: Authority, user_id: int, kept: str | None = None) -> None:
    """End all sessions of a player, but the one with the id `kept`, and those of apps."""
    with by.store.users.edit(user_id) as user:
        left = [each for each in user.sessions if each.id == kept]
        ids = {each.id for each in left}
        by.audited(is_oneself, "user sign-out", "sign_ins", ids)(user)
        # A member who presses again and again has nothing new for apps.
        if by.is_command or user.sign_ins != ids:
            end_all(by, user, left)
        user.end_app_sessions(user.grants)  # also those that a code is about to start


def end_sign_in(by: Authority, user_id: int, sign_in: str, told: str = "") -> None:
    """End one session of a player, or one sign-in of an app with the access tokens of that app.

    All apps are told of a session that ended, but the one with the id `told`, which asked for it.
    """
    with by.store.users.edit(user_id) as user:
        others = user.sign_ins - {sign_in}
        by.audited(is_oneself, "user sign-out-one", "sign_ins", others)(user)
        sids = [each.sid for each in user.sessions if each.id == sign_in]
        tell_ended(by, user, [each for each in user.consents if each != told], sids)
        user.sessions = [each for each in user.sessions if each.id != sign_in]
        for client_id, grant in user.grants.items():
            if sign_in in grant.families:
                found = by.store.records(FAMILIES).read_from_many([sign_in])
                tell_ended(by, user, [client_id], [each.sid for each in found])
                grant.end_family(sign_in)
