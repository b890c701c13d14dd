"""Who acts: the rights of an actor, and what the audit log says of their acts."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from identity.acts.rights import Right, is_oneself, may_administer
from model.errors import ChangedBefore, NoSuchUser, StorageError
from model.records import MODERATOR, Client, User
from model.site_records import Look, Webhook
from model.words import say
from storage import Storage
from storage.repositories import Clients
from storage.users import Users

HALF_AN_HOUR = 1800  # seconds: attempts are counted over this and the window before it
ACTS_AN_HOUR, MODERATORS_ACTS_AN_HOUR = 60, 600  # acts of one player that are logged


@dataclass(frozen=True)
class Actor:
    """Who acts: a user id or "command", and the address that a request came from."""

    id: int | str
    address: str | None = None


COMMAND = Actor("command")  # may do everything


class NotAllowed(Exception):
    """The actor has no right to do this; the text is for the player."""


class Authority:
    """What an actor may do now, and their lines in the audit log.

    Rights are read from the actor's record at each call. Under the lock of a record that is about
    to change, a moderator who was demoted since the page was opened is refused.
    """

    def __init__(self, store: Storage, actor: Actor, write: Callable | None = None) -> None:
        self.store = store
        self.actor = actor
        # What sends a user a letter of a kind with a text, as `letters.write_to`.
        self.write_to = functools.partial(write, self) if write else lambda *_: None
        self.is_command = actor == COMMAND

    def has(self, right: Right, record: User | Client | None = None) -> bool:
        """Return True if the actor has this right to the record, which some rights do not need."""
        if self.is_command:
            return True
        if record is not None and record.id == self.actor.id:
            player = record  # as it is under the lock
        else:
            try:
                player = self.store.users.read(self.actor.id)
            except NoSuchUser:
                return False
        return not player.suspended and right(player, record)

    def require(self, right: Right, record: User | Client | None = None) -> None:
        """Raise NotAllowed unless the actor has this right to the record."""
        if not self.has(right, record):
            raise NotAllowed(say("You are not allowed to do this."))

    @contextlib.contextmanager
    def edit(self, right: Right, records: Users | Clients, record_id: int | str) -> Iterator[Any]:
        """`with by.edit(right, records, id) as record:` edit a record. Raises NotAllowed first."""
        with records.edit(record_id) as record:
            self.require(right, record)
            yield record

    def audit(self, act: str, **ids: int | str) -> None:
        """Write an audit line, which counts against the actor's limit. Raises TooManyAttempts."""
        if not self.is_command:
            is_moderator = self.store.users.read(self.actor.id).mod_level >= MODERATOR
            self.count_own("act by", MODERATORS_ACTS_AN_HOUR if is_moderator else ACTS_AN_HOUR)
        self.log(act, **ids)

    def log(self, act: str, **ids: int | str) -> None:
        """Write an audit line that counts against no limit: what leads to it has one."""
        origin = {"address": self.actor.address} if self.actor.address else {}
        self.store.audit.write(act, self.actor.id, **origin | ids)

    def audited(
        self, right: Right, act: str, field: str | None = None, value: object = None, **ids: int
    ) -> Callable[[User | Client], None]:
        """Return a function that requires the right to a record, then audits the act on it.

        It is for `before` of a storage method, which calls it under the record's lock. It audits
        nothing if the `field` has the `value` already, or if players do it to themselves.
        """

        def before(record: User | Client) -> None:
            self.require(right, record)
            is_logged = self.is_command or right is not is_oneself
            if is_logged and (field is None or getattr(record, field) != value):
                kind = "user" if isinstance(record, User) else "client"
                self.audit(act, **{kind: record.id}, **ids)

        return before

    def notify(self, user_id: int, text: str, kind: str = "") -> None:
        """Leave a notice for a player, or none if it cannot be saved; with `kind` a letter, too."""
        with contextlib.suppress(StorageError):
            with self.store.users.edit(user_id) as user:
                user.notify(text, kind)
            if kind:
                self.write_to(user, kind, text)

    def notify_administrators(self, text: str, but: int) -> None:
        """Call `notify` for all administrators except the one with the id `but`."""
        with contextlib.suppress(StorageError):
            for each in self.store.users.administrators():
                if each.id != but:
                    self.notify(each.id, text)

    def begin_change(self, record: Look | Webhook, seen: int, act: str) -> None:
        """Check and audit an administrator's change of a record as it was at the time `seen`.

        The caller holds the record's lock. Raises NotAllowed, ChangedBefore, TooManyAttempts.
        """
        self.require(may_administer)
        if record.changed != seen:
            raise ChangedBefore
        self.audit(act)

    def count_own(self, kind: str, limit: int) -> None:
        """Count an act, unless it is the command's. Raises TooManyAttempts over `limit` an hour."""
        if not self.is_command:
            self.store.attempts.count(kind, str(self.actor.id), limit, HALF_AN_HOUR)
