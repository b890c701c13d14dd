"""One-time links: for the first account, and for a lost password."""

from itsdangerous import BadSignature

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


def issue_sign_in_link(store: Storage, base_url: str, user: User) -> str:
    """Return the address where a player sets a new password: once, within LINK_MAX_AGE seconds."""
    signed = serializer("sign-in link", store).dumps([user.id, _digest(user)])
    return f"{base_url}/new-password?link={signed}"


def find_linked_user(store: Storage, link: str) -> User | None:
    """Return the player of a sign-in link, or None if it is used, expired or forged."""
    try:
        user_id, digest = serializer("sign-in link", store).loads(link, max_age=LINK_MAX_AGE)
        user = store.users.read(user_id)
    except (BadSignature, NoSuchUser):
        return None
    return user if digest == _digest(user) else None


def _digest(user: User) -> str:
    """Return what a link is signed over: a new password invalidates it and all others.

    So does a new level: a moderator who made the link could not make one any more.
    """
    return sha256(f"{user.mod_level} {user.password_hash}")
