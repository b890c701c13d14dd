"""Acts of players on the addresses that they proved to have.

All of them raise NotAllowed, StorageFailed, and NoSuchUser.
"""

import contextlib

from identity.acts.actors import Authority
from identity.acts.rights import is_oneself
from model.errors import InvalidField, NotFound
from model.kinds import PASSKEYS, RECOVERY_CODES
from model.records import FormerEmail, User
from model.words import say

CHOICES = ("sign-in", "report", "game", "warning")  # letters that a player may turn off


def muted_by(user: User) -> list[str]:
    """Return the kinds of letters that a player turned off."""
    return [*user.muted, *["sign-in"] * user.quiet_sign_ins]


def _begin(by: Authority, user: User, act: str) -> None:
    by.require(is_oneself, user)
    by.log(act, user=user.id)


def confirm(by: Authority, user_id: int, email: str) -> None:
    """Note that a player confirmed an address. Raises InvalidField if the player has another."""

    def before(user: User) -> None:
        if user.email != email:
            raise InvalidField("form", say("Your email has changed since."))
        _begin(by, user, "user confirm-email")
        user.came_alone = False  # also with a later address, it does not end by itself

    by.store.users.change_email(user_id, email, before, verified=True)


def remove_other_ways(by: Authority, user_id: int) -> None:
    """Remove all passkeys and recovery codes: whoever replaced the address may have them."""
    by.require(is_oneself, by.store.users.read(user_id))
    for kind in (PASSKEYS, RECOVERY_CODES):
        records = by.store.records(kind)
        for each in records.page("user", str(user_id)):
            with contextlib.suppress(NotFound):
                records.delete(each.id)


def take_back(by: Authority, user_id: int, email: str, kept: FormerEmail) -> None:
    """Give a player an address back that somebody else replaced, who gets in no more.

    `kept` is the record of the address. All passkeys and recovery codes go. Raises EmailTaken.
    """

    def before(user: User) -> None:
        _begin(by, user, "user take-email-back")
        # Whoever replaced the address may have turned letters off, or chosen another language.
        user.quiet_sign_ins, user.muted, user.language = False, [], ""

    by.store.users.change_email(user_id, email, before, verified=True)
    by.store.users.former_emails.end(kept)
    remove_other_ways(by, user_id)


def change_letters(by: Authority, user_id: int, muted: list[str]) -> None:
    """Change which kinds of letters a player does not get."""
    with by.edit(is_oneself, by.store.users, user_id) as user:
        user.quiet_sign_ins, user.muted = False, muted
