"""One-time links: for the first account, and for a lost password."""

from itsdangerous import BadSignature

from identity.actors import COMMAND, Actor, Authority
from identity.rights import may_moderate
from identity.signing import serializer
from storage import Storage
from storage.errors import NoSuchUser
from storage.records import User, sha256

LINK_MAX_AGE = 3600  # seconds


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


def issue_sign_in_link(
    store: Storage, base_url: str, user: User, by: int | str = COMMAND.id
) -> str:
    """Return the address where a player sets a new password: once, within LINK_MAX_AGE seconds.

    It is good for as long as the one who made it may moderate the player.
    """
    signed = serializer("sign-in link", store).dumps([user.id, sha256(user.password_hash), by])
    return f"{base_url}/new-password?link={signed}"


def find_linked_user(store: Storage, link: str) -> User | None:
    """Return the player of a sign-in link, or None if it is used, expired or forged."""
    try:
        signed = serializer("sign-in link", store).loads(link, max_age=LINK_MAX_AGE)
        user_id, digest, *by = signed
        user = store.users.read(user_id)
    except (BadSignature, NoSuchUser):
        return None
    # A new password invalidates a link and all others.
    is_unused = digest == sha256(user.password_hash)
    maker = Actor(*by) if by else COMMAND  # of an earlier version
    return user if is_unused and Authority(store, maker).has(may_moderate, user) else None
