"""The records of each kind: the methods of a backend, and what follows from them alone.

`storage.contract` has what all methods promise.
"""

import contextlib
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from model.addresses import login_key, login_keys
from model.encoding import record_as_dict
from model.errors import DamagedRecord, EmailTaken, InviteSpent, NotFound, TooManyClients
from model.kind import DAY_MS, Kind
from model.kinds import CLIENTS, FORMER_EMAILS, FORMER_NAMES, INVITES, owner_key
from model.names import EMAIL_KEPT_DAYS, NAME_KEPT_DAYS, unique_key
from model.records import Client, FormerEmail, FormerName, User, now_ms, sha256
from model.rules import refuse
from model.site_records import Invite
from storage.maintenance import ignore

INVITE_KEPT_DAYS = 90  # after its end, to see who used it
Images = dict[str, bytes]  # a picture: one webp file for each name in PICTURE_SIZES
Id = int | str
Record = TypeVar("Record")
Value = TypeVar("Value")
Before = Callable[[Record], None]


def new_time_id(now: int) -> str:
    """Return an id whose order is that of the times, as TIME_ID has it."""
    return f"{now:015d}-{secrets.token_hex(4)}"


def unchanged(record: Record) -> Record:
    """Return the record: the `make` of `read_from` that caches the decoded record itself."""
    return record


class Records(ABC, Generic[Record]):
    """The records of one kind, each by its id, which may be any text of a client.

    A record with an expiry that has passed is not found, and removed some time later. Methods that
    take one id raise the kind's error, such as NoSuchUser, if there is no such record. A record
    that cannot be decoded keeps its unique keys.
    """

    kind: Kind

    @abstractmethod
    def read(self, record_id: Id) -> Record:
        """Return a record. One of a `cached` kind is shared by callers: it must not be changed."""

    def find(self, record_id: Id) -> Record | None:
        """Return a record, None if there is none."""
        with contextlib.suppress(NotFound):
            return self.read(record_id)
        return None

    def read_from(self, record_id: Id, make: Callable[[Record], Value]) -> Value:
        """Return `make(record)`.

        A backend may cache the value until the record changes, so it must not be changed, and may
        depend on nothing but the record. `make` is a function of a module: its values are cached
        under it.
        """
        return make(self.read(record_id))

    def read_from_many(self, ids: list, make: Callable[[Record], Value] = unchanged) -> list[Value]:
        """Return the record of each id, or `make` of it, in this order, as `read_from` does.

        Those that are unknown or damaged are left out.
        """
        found = []
        for record_id in ids:
            with contextlib.suppress(NotFound, DamagedRecord):
                found.append(self.read_from(record_id, make))
        return found

    @abstractmethod
    def ids(self, after: Id | None = None, at_most: int | None = None) -> list:
        """Return up to `at_most` ids behind `after`, ascending, of damaged and expired ones too."""

    @abstractmethod
    def existing(self, ids: Iterable[Id]) -> Set[Id]:
        """Return those of the ids that have a record, which may be damaged or expired."""

    @abstractmethod
    def find_by(self, unique: str, key: str) -> Record | None:
        """Return the record whose unique key of this name is `key`, None if there is none."""

    @abstractmethod
    def require_free(self, unique: str, key: str, but: Id | None = None) -> None:
        """Raise the error for a key that a record other than `but` has."""

    def require_free_keys(self, record: Record, changed: Set[str] | None = None) -> None:
        """Raise the error of the first unique key of a record that another record has.

        With `changed`, only keys that follow from these fields are looked at.
        """
        for unique in self.kind.unique:
            key = unique.of(record) if changed is None or unique.fields & changed else None
            if key is not None:
                self.require_free(unique.name, key, but=record.id)

    @abstractmethod
    def page(
        self,
        index: str,
        key: str,
        after: Id | None = None,
        at_most: int | None = None,
        newest_first: bool = False,
    ) -> list[Record]:
        """Return up to `at_most` readable records whose key in this index is `key`, by id.

        Their ids are behind `after`; with `newest_first` ids go down, and are before `after`.
        """

    @abstractmethod
    def between(
        self,
        index: str,
        low: str,
        high: str,
        after: tuple[str, Id] | None = None,
        at_most: int | None = None,
        newest_first: bool = True,
    ) -> list[Record]:
        """Return up to `at_most` readable records with keys from `low` to `high`, by key and id.

        Only those behind the key and id `after`; with `newest_first` both go down. The keys of such
        an index have only the characters of SHORT_KEY in `model.kind`.
        """

    @abstractmethod
    def count_between(self, index: str, low: str, high: str) -> int:
        """Return how many records have keys from `low` to `high`, without reading them.

        Damaged ones count, and some whose change a kill interrupted.
        """

    def count(self, index: str, key: str, at_most: int) -> int:
        """Return how many readable records have this key in an index, but at most `at_most`.

        In `adding` the count is exact: no other record with this key is added meanwhile.
        """
        return len(self.page(index, key, at_most=at_most))

    def add(self, record: Record) -> None:
        """Add a record, as `adding` does."""
        with self.adding(record):
            pass

    @abstractmethod
    def adding(self, record: Record) -> AbstractContextManager[None]:
        """`with adding(record):` check what nobody changes meanwhile; the end of the block adds it.

        Raises AlreadyThere, InvalidField, and the errors of taken keys.
        """

    @abstractmethod
    def put(self, record: Record) -> None:
        """Add a record, or replace the one with its id, also inside an edit of another kind.

        The caller's edit has to be the only one that can write a record of this id meanwhile.
        """

    @contextlib.contextmanager
    def edit(self, record_id: Id, changes: Set[str] = frozenset()) -> Iterator[Record]:
        """`with edit(id) as record:` change the fields; the end of the block saves them.

        One edit of a record runs at a time. Nothing is saved if the block raises, and nothing is
        written if nothing changed. A change of a field from which a unique key of a kind with
        several locks follows is announced in `changes`, and the caller has checked its rule. Raises
        InvalidField, the errors of taken keys, and ValueError for a value of another type, a field
        in the kind's `fixed`, and a key that was not announced.
        """
        with self.locked(record_id, bool(changes)) as record:
            before = record_as_dict(record)
            yield record
            changed = self.kind.changed_fields(record, before, changes)
            if changed:
                self.require_free_keys(record, changed)
                self.before_save(record, before)
                self.save(record, before, changed)

    @abstractmethod
    def edit_inside(self, record_id: Id) -> AbstractContextManager[Record]:
        """Do what `edit` does, inside the edit of a record of another kind; this kind has one lock.

        The caller has checked rules, which a backend need not, and no unique key changes.
        """

    @abstractmethod
    def locked(self, record_id: Id, keys_change: bool = False) -> AbstractContextManager[Record]:
        """`with locked(id) as record:` hold its lock; the record is the caller's own, not shared.

        With `keys_change` its unique keys may be changed.
        """

    @abstractmethod
    def save(self, record: Record, before: dict, changed: Set[str]) -> None:
        """Replace a record that is `locked`; `changed` are new fields, `before` the old ones."""

    def delete(self, record_id: Id, before: Before[Record] = ignore) -> None:
        """Remove a record as `deleting` does; `before` gets it first."""
        with self.deleting(record_id) as record:
            before(record)

    @abstractmethod
    def deleting(self, record_id: Id) -> AbstractContextManager[Record]:
        """`with deleting(id) as record:` check it; the end of the block removes the record.

        Those of other kinds that die with it are removed as well.
        """

    @abstractmethod
    def discard(self, ids: Iterable[Id]) -> None:
        """Remove records that do not count any more, of a kind that expires and has no other keys.

        It raises no error, and a power cut may undo it: what stays is removed when it has expired.
        """

    def before_save(self, record: Record, before: dict) -> None:
        """Do what an edit of a record entails, before it is saved; `before` has the old fields."""

    def before_removal(self, record: Record) -> None:
        """Do what the deletion of a record entails, before it is removed."""


class Clients(Records[Client]):
    """The apps that ask who a player is."""

    kind = CLIENTS

    def register(
        self,
        name: str,
        redirect_uris: list[str],
        owner_id: int | None,
        at_most: int | None = None,
        before: Before[Client] = ignore,
        **fields: str | bool | None,
    ) -> tuple[Client, str | None]:
        """Register a client and return it with its secret, which cannot be read again.

        `fields` are other fields of a client; a `public` one has no secret. `owner_id` None means
        the administrators. Raises InvalidField, OriginTaken, and TooManyClients if the owner
        already has `at_most`.
        """
        client = Client(secrets.token_hex(12), name, "", redirect_uris, owner_id, **fields)
        secret = None if client.public else client.replace_secret()
        with self.adding(client):
            if at_most is not None and self.count("owner", owner_key(owner_id), at_most) >= at_most:
                raise TooManyClients(at_most)
            before(client)
        return client, secret

    def of_owner(
        self, owner_id: int | None, after: str = "", at_most: int | None = None
    ) -> list[Client]:
        """Return the readable clients of an owner, by id; None means the administrators."""
        return self.page("owner", owner_key(owner_id), after, at_most)

    def games(self, listed: bool, after: str = "", at_most: int | None = None) -> list[Client]:
        """Return the readable clients whose games are on the home page, or are not, by id."""
        return self.page("games", "listed" if listed else "unlisted", after, at_most)

    def issue_secret(self, client_id: str, before: Before[Client] = ignore) -> str:
        """Replace a client's secret and return the new one. Raises InvalidField."""
        with self.edit(client_id) as client:
            refuse("client_secret", "A public app has no secret." if client.public else None)
            before(client)
            return client.replace_secret()


class Invites(Records[Invite]):
    """The invitations to create accounts; of each the hash is stored."""

    kind = INVITES
    # Of the users: which of these ids are, or were, those of an account.
    accounts_of: Callable[[list[int]], Set[int]]

    def issue(self, days: int, before: Before[Invite] = ignore, **fields: object) -> str:
        """Return the secret of a new invitation, good for `days` days; `fields` are of Invite."""
        secret, now = secrets.token_urlsafe(32), now_ms()
        good_until = now + days * DAY_MS
        kept = good_until + INVITE_KEPT_DAYS * DAY_MS
        times = {"expires": kept, "good_until": good_until, "created": now}
        invite = Invite(new_time_id(now), secret=sha256(secret), **times, **fields)
        with self.adding(invite):
            before(invite)
        return secret

    def find_unused(self, secret: str) -> Invite | None:
        """Return the invitation with this secret if an account can be made with it now, or None."""
        with contextlib.suppress(DamagedRecord):
            found = self.find_by("secret", sha256(secret))
            return found if found and self._is_good(found) else None
        return None

    def _is_good(self, invite: Invite) -> bool:
        return now_ms() < invite.ends and len(self.accounts_of(invite.used_by)) < invite.uses

    def require_good(self, invite_id: str) -> None:
        """Raise InviteSpent unless an account can be made with an invitation now."""
        found = self.find(invite_id)
        if found is None or not self._is_good(found):
            raise InviteSpent

    def accounts_with(self, invite: Invite) -> list[int]:
        """Return the ids of the accounts that were made with an invitation."""
        ids = invite.used_by  # `claim` has looked at all but the last
        return [*ids[:-1], *self.accounts_of(ids[-1:])]

    def claim(self, user: User) -> None:
        """Note that a user who is about to be added uses an invitation. Raises InviteSpent.

        The caller holds the lock of names. What was noted counts only if the user is added: a kill
        in between loses no use, and the deletion of an account gives none back.
        """
        with self.edit_inside(user.invite) as invite:
            if not self._is_good(invite):
                raise InviteSpent
            invite.used_by = [*sorted(self.accounts_of(invite.used_by)), user.id]


class Kept(Records[Record]):
    """What players gave up and nobody else gets for a while, by the SHA-256 of its unique key."""

    def find_kept(self, text: str) -> Record | None:
        """Return the record of a name or address in any spelling, None unless it is kept now."""
        keys = filter(str.isprintable, login_keys(text))
        return next(filter(None, map(self.find, map(sha256, keys))), None)


class FormerNames(Kept[FormerName]):
    """The names that players gave up, each kept for its player for NAME_KEPT_DAYS."""

    kind = FORMER_NAMES

    def of(self, user_id: int) -> list[FormerName]:
        """Return the names that are kept for a player, who may have taken some of them back."""
        return self.page("player", str(user_id))

    def keep(self, name: str, user_id: int) -> None:
        """Keep a name that a player gives up; the caller holds the lock of names."""
        key = unique_key(name)
        if key.isprintable() and not re.fullmatch("player[0-9]+", key):  # these are reserved
            expires = now_ms() + NAME_KEPT_DAYS * DAY_MS
            self.put(FormerName(sha256(key), user_id, expires))


class FormerEmails(Kept[FormerEmail]):
    """The confirmed addresses that were replaced, each kept for its player for EMAIL_KEPT_DAYS."""

    kind = FORMER_EMAILS

    def require_free_for(self, email: str, user_id: int) -> None:
        """Raise EmailTaken for an address that is kept for another player."""
        try:
            kept = self.find_kept(email) if email else None
        except DamagedRecord:  # it is somebody's
            raise EmailTaken from None
        if kept and kept.user_id != user_id:
            raise EmailTaken

    def keep(self, email: str, user_id: int) -> None:
        """Keep an address that is replaced; the caller holds the lock of addresses."""
        key, now = sha256(login_key(email)), now_ms()
        since = [each.since for each in self.page("player", str(user_id)) if each.id == key]
        self.put(FormerEmail(key, user_id, now + EMAIL_KEPT_DAYS * DAY_MS, *(since or [now])))

    def end(self, kept: FormerEmail) -> None:
        """Free an address that its player took back, and those that replaced it since."""
        for each in self.page("player", str(kept.user_id)):
            if each.since >= kept.since:
                with contextlib.suppress(NotFound):
                    self.delete(each.id)
