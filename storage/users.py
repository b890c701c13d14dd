"""The players and their handles: these parts of the contract, and what follows from them alone."""

import contextlib
import dataclasses
import re
from abc import abstractmethod
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager

from model.addresses import check_email, login_keys, normal_email
from model.door_records import Application
from model.errors import (
    AlreadyThere,
    DamagedRecord,
    HandleTaken,
    IdTaken,
    InviteSpent,
    LastAdministrator,
    NameKept,
    NameTaken,
)
from model.grant_records import Family
from model.kind import FIRST_DAY
from model.kinds import HANDLES, NO_END, USERS
from model.names import check_name, normal_name, unique_key
from model.records import PLAYER, Handle, User, sha256
from model.rules import HANDLE, refuse
from storage.maintenance import ignore
from storage.repositories import (
    Before,
    Clients,
    FormerEmails,
    FormerNames,
    Images,
    Invites,
    Records,
)


class Users(Records[User]):
    """The players.

    An edit drops grants of clients that no longer exist, then all but the newest GRANTS_KEPT. A
    name that a player gives up, or leaves behind, is kept for that player for NAME_KEPT_DAYS, and
    so is a confirmed address that is replaced, for EMAIL_KEPT_DAYS. A family of refresh tokens that
    the player's grants name no more is removed after the edit.
    """

    kind = USERS
    clients: Clients
    invites: Invites
    families: Records[Family]
    applications: Records[Application]
    former_names: FormerNames
    former_emails: FormerEmails

    @staticmethod
    def new(name: str, email: str, password_hash: str, mod_level: int) -> User:
        """Return a user who signs up now and has no id yet. Raises InvalidField."""
        user = User(0, normal_name(name), normal_email(email), password_hash, mod_level)
        user.last_heartbeat = user.pfp_timestamp = user.created
        user.pfp_generated = True
        USERS.require_rules(user)
        return user

    def register(
        self,
        name: str,
        email: str,
        password_hash: str,
        mod_level: int = PLAYER,
        invite: str | None = None,
        first: bool = False,
        before: Before[User] = ignore,
    ) -> User:
        """Add and return a `new` user as `register_user` does. Raises InvalidField, too."""
        user = self.new(name, email, password_hash, mod_level)
        return self.register_user(user, invite, first, before)

    def register_user(
        self,
        user: User,
        invite: str | None = None,
        first: bool = False,
        before: Before[User] = ignore,
    ) -> User:
        """Add and return a `new` user, with a generated picture and an id that is given once.

        An `invite` is the secret of an invitation, of which this is a use; with `first` this must
        be the first account ever. `before` is called with the user, who has the id. Raises
        NameTaken, NameKept, EmailTaken, InviteSpent.
        """
        if invite:
            used = self.invites.find_by("secret", sha256(invite))
            if used is None:
                raise InviteSpent
            user.invite, user.invited_by = used.id, used.by
            user.flairs += [used.flair] if used.flair else []
        self.add_new(user, first, before)
        return user

    @abstractmethod
    def add_new(self, user: User, first: bool, before: Before[User]) -> None:
        """Give a user an id and add the user, as `register` says; BadInstallation if ids end."""

    def require_addable(self, user: User) -> None:
        """Raise the error of `register` for what is taken; the caller holds the lock of names."""
        self.require_free_keys(user)
        if user.invite:
            self.invites.require_good(user.invite)

    @abstractmethod
    def reserve_ids(self, largest: int) -> None:
        """Make `register` give only ids above this one."""

    @abstractmethod
    def insert(self, user: User, pictures: Images | None = None) -> None:
        """Add a user who has an id already. The fields are not checked.

        Raises AlreadyThere, IdTaken, NameTaken, NameKept, EmailTaken.
        """

    def require_new(self, user: User) -> None:
        """Raise the error of `insert` for a user who is there, or has what another one has."""
        if known := self.find(user.id):
            same = all(key.of(known) == key.of(user) for key in USERS.unique)
            raise AlreadyThere if same else IdTaken
        if self.was_deleted(user.id):
            raise IdTaken
        self.require_free_keys(user)

    @abstractmethod
    def was_deleted(self, user_id: int) -> bool:
        """Return True for the id of a deleted user."""

    def accounts_of(self, ids: list[int]) -> Set[int]:
        """Return those of the ids that accounts have, or had before they were deleted."""
        there = self.existing(ids)
        return there | {each for each in ids if each not in there and self.was_deleted(each)}

    @abstractmethod
    def is_new(self) -> bool:
        """Return True until the first id is taken; in files, also if its account was not saved."""

    def find_by_login(self, name_or_email: str) -> User | None:
        """Return the user with this name or email address in any spelling, None if none has it."""
        keys = login_keys(name_or_email)
        unique = "email" if "@" in keys[0] else "name"  # no name has an @
        return next(filter(None, (self.find_by(unique, key) for key in keys)), None)

    def by_name(
        self, part: str, after: str = "", at_most: int = 50, backwards: bool = False
    ) -> list[User]:
        """Return the readable users whose name's key contains `part`, in the order of keys.

        Only those behind the key `after`, which may be that of nobody; with `backwards` those
        before it, in the other order. Fewer than `at_most` are the last ones. Keys are as
        `unique_key` returns them; other text finds nobody.
        """
        is_key = (part + after).isprintable()
        return self._by_name(part, after, at_most, backwards) if is_key else []

    @abstractmethod
    def _by_name(self, part: str, after: str, at_most: int, backwards: bool) -> list[User]:
        """Return users as `by_name` does."""

    @abstractmethod
    def number(self) -> int:
        """Return how many users there are, damaged ones included."""

    def newest(self, at_most: int, after: tuple[str, int] | None = None) -> list[User]:
        """Return the readable users who joined last, by the day of that and then by id.

        With `after`, those behind a day and id.
        """
        return self.between("joined", FIRST_DAY, NO_END, after, at_most)

    def find_by_former_name(self, name: str) -> User | None:
        """Return the user for whom a name is kept, None if it is not kept or the user left."""
        kept = self.former_names.find_kept(name)
        return kept and self.find(kept.user_id)

    def require_name(
        self, name: str, user_id: int | None = None, application: str | None = None
    ) -> None:
        """Raise NameTaken or NameKept unless a user, None for a new one, may have this name.

        A name is taken while an `application` other than this one waits for it.
        """
        # In this order: a name that has become free since the first look is kept at the second.
        self.require_free("name", unique_key(name), but=user_id)
        try:
            waiting = self.applications.find_by("name", unique_key(name))
        except DamagedRecord:  # it is somebody's
            raise NameTaken from None
        if waiting and waiting.id != application:
            raise NameTaken
        try:
            kept = self.former_names.find_kept(name)
        except DamagedRecord:  # it is somebody's
            raise NameKept from None
        if kept and kept.user_id != user_id:
            raise NameKept

    def require_free_keys(self, user: User, changed: Set[str] | None = None) -> None:
        super().require_free_keys(user, changed)
        if changed is None or "name" in changed:
            self.require_name(user.name, user.id, user.application)
        if changed is None or "email" in changed:
            self.former_emails.require_free_for(user.email, user.id)
            for key in login_keys(user.email)[1:]:
                self.require_free("email", key, but=user.id)

    def administrators(self) -> list[User]:
        """Return the administrators who can sign in, by id, without reading all users."""
        return [user for user in self.page("role", "administrator") if user.administers]

    def rename(self, user_id: int, name: str, before: Before[User] = ignore) -> User:
        """Change a user's name. Raises InvalidField, NameTaken, NameKept."""
        name = normal_name(name)
        refuse("name", check_name(name))
        return self._change_key(user_id, "name", name, before)

    def reset_name(self, user_id: int, before: Before[User] = ignore) -> User:
        """Rename a user `player<id>`. `before` may change other fields."""
        return self._change_key(user_id, "name", f"player{user_id}", before)

    def change_email(
        self, user_id: int, email: str, before: Before[User] = ignore, verified: bool = False
    ) -> User:
        """Change a user's email address; "" removes it. Only `verified` makes it a confirmed one.

        Raises InvalidField, EmailTaken.
        """
        email = normal_email(email)
        refuse("email", check_email(email))
        return self._change_key(user_id, "email", email, before, email_verified=verified)

    def _change_key(
        self, user_id: int, field: str, text: str, before: Before[User], **others: bool
    ) -> User:
        """Set a field from which a unique key follows, and `others`; return the user."""
        with self.edit(user_id, {field}) as user:
            changed = dataclasses.replace(user, **{field: text})
            self.require_free_keys(changed, {field})
            before(user)
            for name, value in {field: text, **others}.items():
                setattr(user, name, value)
        return user

    @contextlib.contextmanager
    def edit(self, record_id: int, changes: Set[str] = frozenset()) -> Iterator[User]:
        with super().edit(record_id, changes) as user:
            before = user.families
            yield user
        self.families.discard(before - user.families)

    def delete(self, record_id: int, before: Before[User] = ignore) -> None:
        with self.deleting(record_id) as user:
            before(user)
        self.families.discard(user.families)

    @contextlib.contextmanager
    def administered_without(self, user_id: int) -> Iterator[None]:
        """`with administered_without(id):` suspend, demote or delete a user who may be needed.

        Raises LastAdministrator if the user is the only administrator. One such block runs at a
        time, over all processes: of two administrators who demote each other, one is refused.
        """
        with self.administrators_lock():
            others = (each for each in self.administrators() if each.id != user_id)
            if self.read(user_id).administers and not any(others):
                raise LastAdministrator
            yield

    @abstractmethod
    def administrators_lock(self) -> AbstractContextManager:
        """Return the lock of `administered_without`."""

    def before_save(self, user: User, before: dict) -> None:
        if unique_key(before["name"]) != unique_key(user.name):
            self.former_names.keep(before["name"], user.id)
        # Another spelling, too: it has to be confirmed, and the next address would keep nothing.
        if before["email_verified"] and before["email"] != user.email:
            self.former_emails.keep(before["email"], user.id)
        if user.grants:
            user.keep_grants(self.clients.existing(user.grants).__contains__)

    def before_removal(self, user: User) -> None:
        self.former_names.keep(user.name, user.id)


class Handles(Records[Handle]):
    """The names that programs know players by."""

    kind = HANDLES

    def find_of(self, user_id: int) -> str | None:
        """Return the handle of a player, None if none was made."""
        found = self.find_by("player", str(user_id))
        return found and found.id

    def of(self, user: User) -> str:
        """Return the handle of a player, made at the first call.

        It is the name of that time, if it has only the characters of HANDLE and no player ever had
        it as a handle, else `player<id>`. Raises StorageFailed, DamagedRecord.
        """
        if found := self.find_of(user.id):
            return found
        own = f"player{user.id}"
        name = user.name.casefold()
        # Other names of this form are the last choice of others.
        is_usable = HANDLE.fullmatch(name) and not re.fullmatch("player[0-9]+", name)
        for handle in (name, own) if is_usable else (own,):
            with contextlib.suppress(AlreadyThere, HandleTaken):
                self.add(Handle(handle, user.id))
                return handle
            if found := self.find_of(user.id):  # another process was faster
                return found
        raise DamagedRecord(f"handles/{own}", "it is the handle of another player")
