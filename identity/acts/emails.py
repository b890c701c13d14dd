"""What players may do to the addresses that they proved to have, as in `identity.acts.accounts`."""

import contextlib

from identity.acts.actors import Actor, Authority
from identity.acts.rights import is_oneself
from model.errors import InvalidField, NotFound
from model.kinds import PASSKEYS, RECOVERY_CODES
from model.records import FormerEmail, User
from storage import Storage


class EmailActs:
    """What a player does to the own address.

    All acts raise NotAllowed, StorageFailed, and NoSuchUser.
    """

    def __init__(self, store: Storage, actor: Actor) -> None:
        self._store = store
        self._authority = Authority(store, actor)

    def _begin(self, user: User, act: str) -> None:
        self._authority.require(is_oneself, user)
        self._authority.log(act, user=user.id)

    def confirm(self, user_id: int, email: str) -> None:
        """Note that a player confirmed this address. Raises InvalidField if it is another one."""

        def before(user: User) -> None:
            if user.email != email:
                raise InvalidField("form", "Your email has changed since.")
            self._begin(user, "user confirm-email")

        self._store.users.change_email(user_id, email, before, verified=True)

    def remove_other_ways(self, user_id: int) -> None:
        """Remove all passkeys and recovery codes: whoever replaced the address may have them."""
        self._authority.require(is_oneself, self._store.users.read(user_id))
        for kind in (PASSKEYS, RECOVERY_CODES):
            records = self._store.records(kind)
            for each in records.page("user", str(user_id)):
                with contextlib.suppress(NotFound):
                    records.delete(each.id)

    def take_back(self, user_id: int, email: str, kept: FormerEmail) -> None:
        """Give a player an address back that somebody else replaced, who gets in no more.

        All passkeys and recovery codes go. Raises EmailTaken.
        """

        def before(user: User) -> None:
            self._begin(user, "user take-email-back")
            user.quiet_sign_ins = False  # whoever replaced the address may have turned letters off

        self._store.users.change_email(user_id, email, before, verified=True)
        self._store.users.former_emails.end(kept)
        self.remove_other_ways(user_id)

    def change_letters(self, user_id: int, quiet_sign_ins: bool) -> None:
        """Change whether a player gets a letter about sign-ins in new browsers."""
        with self._store.users.edit(user_id) as user:
            self._authority.require(is_oneself, user)
            user.quiet_sign_ins = quiet_sign_ins
