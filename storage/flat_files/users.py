"""Users as files: one record each, its entries in the indexes, and the mark of a deleted id."""

import contextlib
import functools
from collections.abc import Callable, Iterator

from storage import (
    PLAYER,
    DamagedRecord,
    InviteSpent,
    LastAdministrator,
    NoSuchUser,
    NotFound,
    StorageError,
    User,
    check_email,
    check_name,
    no_check,
    normal_name,
    record_as_dict,
    refuse,
    refuse_bad_record,
    unique_key,
)
from storage.flat_files.bulk_insert import BulkInsert
from storage.flat_files.disk import (
    read_file,
    remove_durably,
    remove_file,
    rollback_on_error,
    sync_removals,
    translate_os_errors,
    write_file,
)
from storage.flat_files.index import ADMINISTRATORS, Index
from storage.flat_files.invites import InviteFiles
from storage.flat_files.layout import Layout
from storage.flat_files.pictures import PictureFiles
from storage.flat_files.record_files import edit_record, read_user, user_ids
from storage.flat_files.unique_index import FIELDS, UniqueIndex, key_fields, owns_key
from storage.flat_files.user_ids import UserIds
from storage.records import encode


class UserFiles:
    """The users below a data folder; the methods are those of `storage.Storage`."""

    def __init__(
        self, layout: Layout, index: Index, pictures: PictureFiles, invites: InviteFiles
    ) -> None:
        self._layout = layout
        self._index = index
        self._pictures = pictures
        self._invites = invites
        self.read = functools.partial(read_user, layout)
        self._ids = UserIds(layout)
        self._unique = UniqueIndex(layout, self.read)

    # -- look-ups ------------------------------------------------------------------------------

    def find(self, name_or_email: str) -> User | None:
        key = unique_key(name_or_email)
        kind = "emails" if "@" in key else "names"  # no name has an @
        holder = self._unique.holder(kind, key)
        try:
            user = self.read(holder) if holder else None
        except NoSuchUser:
            return None
        return user if user and owns_key(user, kind, key) else None

    def ids(self) -> list[int]:
        return user_ids(self._layout)

    def is_new(self) -> bool:
        try:
            content = read_file(self._layout.path("next_user_id"), NotFound())
        except NotFound:
            return not self.ids()
        return content.strip() == b"1"

    def administrators(self) -> list[User]:
        readable = []
        for member in filter(str.isdecimal, self._index.members(ADMINISTRATORS)):
            with contextlib.suppress(NoSuchUser, DamagedRecord):
                readable.append(self.read(int(member)))
        return sorted((each for each in readable if each.administers), key=lambda user: user.id)

    # -- adding --------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        email: str,
        password_hash: str,
        mod_level: int = PLAYER,
        invite: str | None = None,
        first: bool = False,
    ) -> User:
        from storage.pictures import generate_picture  # Pillow: memory a worker rarely needs

        user = User(0, normal_name(name), email.strip(), password_hash, mod_level)
        user.last_heartbeat = user.pfp_timestamp = user.created
        refuse_bad_record(user)
        with self._layout.accounts_lock(), rollback_on_error() as undo:
            for kind, text in key_fields(user):
                self._unique.refuse_taken(kind, text)
            if (first and not self.is_new()) or (invite and not self._invites.is_good(invite)):
                raise InviteSpent
            user.id = self._ids.take()
            undo.callback(self._pictures.remove, user.id, user.pfp_timestamp)
            self._pictures.write(user.id, user.pfp_timestamp, generate_picture(user.id))
            for kind, text in key_fields(user):
                self._unique.take(kind, text, user.id, undo)
            with self._invites.taken(invite, user.id), self._index.updated(user):
                write_file(self._layout.user(user.id), encode(record_as_dict(user)))
        return user

    def reserve_ids(self, largest: int) -> None:
        with self._layout.accounts_lock():
            self._ids.reserve(largest)

    def add_many(
        self, users: list[User], pictures: dict[int, dict[str, bytes]]
    ) -> list[StorageError | None]:
        with self._layout.accounts_lock():
            insert = BulkInsert(self._layout, self._unique, self._index, self._pictures)
            return insert.add(users, pictures)

    # -- changing ------------------------------------------------------------------------------

    def edit(
        self,
        user_id: int,
        fixed: frozenset[str] = frozenset(("id", "name", "email")),
        unchecked: frozenset[str] = frozenset(),
    ) -> contextlib.AbstractContextManager[User]:
        layout, read = self._layout, functools.partial(self.read, user_id)
        lock, path = layout.user_lock(user_id), layout.user(user_id)
        return edit_record(layout, self._index, lock, path, read, fixed, unchecked)

    def rename(self, user_id: int, name: str, before: Callable[[User], None] = no_check) -> User:
        name = normal_name(name)
        refuse("name", check_name(name))
        return self._change_key(user_id, "names", name, before)

    def reset_name(self, user_id: int, before: Callable[[User], None] = no_check) -> User:
        return self._change_key(user_id, "names", f"player{user_id}", before)

    def change_email(
        self, user_id: int, email: str, before: Callable[[User], None] = no_check
    ) -> User:
        email = email.strip()
        refuse("email", check_email(email))
        return self._change_key(user_id, "emails", email, before)

    def _change_key(
        self, user_id: int, kind: str, text: str, before: Callable[[User], None]
    ) -> User:
        """New index entry, record (the commit), old entry: in this order a kill blocks nobody."""
        field = FIELDS[kind]
        edit = self.edit(user_id, frozenset(("id",)), unchecked=frozenset((field,)))
        with self._layout.accounts_lock():
            with rollback_on_error() as undo, edit as user:
                self._unique.refuse_taken(kind, text, but=user_id)
                before(user)
                old_key = unique_key(getattr(user, field))
                setattr(user, field, text)
                if unique_key(text) != old_key:
                    self._unique.take(kind, text, user_id, undo)
            if unique_key(text) != old_key:
                self._unique.release(kind, old_key, user_id)
        return user

    def delete(self, user_id: int, before: Callable[[User], None] = no_check) -> None:
        layout = self._layout
        with layout.accounts_lock(), layout.user_lock(user_id):
            user = self.read(user_id)
            before(user)
            with rollback_on_error() as undo:
                undo.callback(remove_file, layout.deleted(user_id))
                write_file(layout.deleted(user_id), b"")
                remove_durably(layout.user(user_id))
            for kind, text in key_fields(user):
                self._unique.release(kind, unique_key(text), user_id)
            self._index.remove([ADMINISTRATORS], str(user_id))
            self._pictures.remove(user_id, user.pfp_timestamp)
            sync_removals([*map(layout.path, FIELDS), *layout.picture_folders()])

    @contextlib.contextmanager
    def administered_without(self, user_id: int) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            with translate_os_errors():
                # Not accounts.lock: sign-ups and renames need not wait.
                held.enter_context(self._layout.administrators_lock())
            others = (each for each in self.administrators() if each.id != user_id)
            if self.read(user_id).administers and not any(others):
                raise LastAdministrator
            yield

    # -- pictures ------------------------------------------------------------------------------

    def save_picture(
        self, user_id: int, images: dict[str, bytes], before: Callable[[User], None] = no_check
    ) -> int:
        with self._layout.user_lock(user_id):
            user = self.read(user_id)
            before(user)
            return self._pictures.replace(user, images)
