"""Users as files: one record each, its entries in the indexes, and the mark of a deleted id."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import storage
from storage import Images, User, UserCallback, Value, ignore
from storage.encoding import encode
from storage.flat_files import disk
from storage.flat_files.bulk_insert import BulkInsert
from storage.flat_files.index import ADMINISTRATORS, Index
from storage.flat_files.invites import InviteFiles
from storage.flat_files.layout import Layout
from storage.flat_files.pictures import PictureFiles
from storage.flat_files.record_files import drop_stale_grants, edit_record, read_user, user_ids
from storage.flat_files.unique_index import FIELDS, UniqueIndex, unique_keys
from storage.flat_files.user_ids import UserIds


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
        self._caches: dict[Callable, disk.StatCache] = {}  # by the function that makes the values
        self._ids = UserIds(layout)
        self._unique = UniqueIndex(layout, self.read)

    # -- look-ups ------------------------------------------------------------------------------

    def read_from(self, user_id: int, make: Callable[[User], Value]) -> Value:
        cache = self._caches.get(make) or self._caches.setdefault(make, disk.StatCache())
        return cache.get(self._layout.user(user_id), lambda: make(self.read(user_id)))

    def find(self, name_or_email: str) -> User | None:
        key = storage.unique_key(name_or_email)
        kind = "emails" if "@" in key else "names"  # no name has an @
        holder = self._unique.holder(kind, key)
        try:
            user = self.read(holder) if holder else None
        except storage.NoSuchUser:
            return None
        return user if user and (kind, key) in unique_keys(user) else None

    def ids(self) -> list[int]:
        return user_ids(self._layout)

    def is_new(self) -> bool:
        path = self._layout.path("next_user_id")
        with contextlib.suppress(storage.NotFound):
            return disk.read_file(path, storage.NotFound()).strip() == b"1"
        return not self.ids()

    def administrators(self) -> list[User]:
        found = self._index.records(ADMINISTRATORS, lambda member: self.read(int(member)))
        return [user for user in found if user.administers]

    # -- adding --------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        email: str,
        password_hash: str,
        mod_level: int = storage.PLAYER,
        invite: str | None = None,
        first: bool = False,
    ) -> User:
        from storage.pictures import generate_picture  # Pillow: memory a worker rarely needs

        user = storage.new_user(name, email, password_hash, mod_level)
        with self._layout.accounts_lock():
            self._refuse_addition(user, invite)
            if first and not self.is_new():
                raise storage.InviteSpent
            user.id = self._ids.take()
        # Most of the time passes here. Others can add accounts meanwhile.
        self._ids.sync()
        images = generate_picture(user.id)
        path, record = self._layout.user(user.id), encode(storage.record_as_dict(user))
        with disk.rollback_on_error() as undo:
            undo.callback(self._pictures.remove, user.id, user.pfp_timestamp)
            self._pictures.write(user.id, user.pfp_timestamp, images)
            with disk.written_beside(path, record) as temporary, self._layout.accounts_lock():
                self._refuse_addition(user, invite)
                self._ids.refuse_used(user.id)  # a restore may have come between
                if not self._pictures.exist(user.id, user.pfp_timestamp):  # or a repair
                    self._pictures.write(user.id, user.pfp_timestamp, images)
                for kind, key in unique_keys(user):
                    self._unique.take(kind, key, user.id, undo)
                with self._invites.taken(invite, user.id), self._index.updated(user):
                    disk.replace_durably(temporary, path)
        return user

    def _refuse_addition(self, user: User, invite: str | None) -> None:
        """Raise NameTaken, EmailTaken or InviteSpent; the caller holds accounts.lock."""
        for kind, key in unique_keys(user):
            self._unique.refuse_taken(kind, key)
        if invite and not self._invites.find(invite):
            raise storage.InviteSpent

    def reserve_ids(self, largest: int) -> None:
        with self._layout.accounts_lock():
            self._ids.reserve(largest)

    def add_many(
        self, users: list[User], pictures: dict[int, Images]
    ) -> list[storage.StorageError | None]:
        with self._layout.accounts_lock():
            insert = BulkInsert(self._layout, self._unique, self._index, self._pictures)
            return insert.add(users, pictures)

    # -- changing ------------------------------------------------------------------------------

    def edit(
        self, user_id: int, key_field: str | None = None
    ) -> contextlib.AbstractContextManager[User]:
        """As `Storage.edit_user`; the "name" or "email" named by `key_field` may change as well."""
        layout, fixed = self._layout, {"id", "name", "email"} - {key_field}
        lock, path = layout.user_lock(user_id), layout.user(user_id)
        read = functools.partial(self.read, user_id)
        tidy = functools.partial(drop_stale_grants, layout)
        return edit_record(layout, self._index, lock, path, read, fixed, {key_field}, tidy)

    def rename(self, user_id: int, name: str, before: UserCallback = ignore) -> User:
        name = storage.normal_name(name)
        storage.refuse("name", storage.check_name(name))
        return self._change_key(user_id, "names", name, before)

    def reset_name(self, user_id: int, before: UserCallback = ignore) -> User:
        return self._change_key(user_id, "names", f"player{user_id}", before)

    def change_email(self, user_id: int, email: str, before: UserCallback = ignore) -> User:
        email = email.strip()
        storage.refuse("email", storage.check_email(email))
        return self._change_key(user_id, "emails", email, before)

    def _change_key(self, user_id: int, kind: str, text: str, before: UserCallback) -> User:
        """New index entry, record (the commit), old entry: in this order a kill blocks nobody."""
        field, key = FIELDS[kind], storage.unique_key(text)
        with self._layout.accounts_lock():
            with disk.rollback_on_error() as undo, self.edit(user_id, field) as user:
                self._unique.refuse_taken(kind, key, but=user_id)
                before(user)
                old_key = storage.unique_key(getattr(user, field))
                setattr(user, field, text)
                if key != old_key:
                    self._unique.take(kind, key, user_id, undo)
            if key != old_key:
                self._unique.release(kind, old_key, user_id)
        return user

    def delete(self, user_id: int, before: UserCallback = ignore) -> None:
        layout = self._layout
        with layout.accounts_lock(), layout.user_lock(user_id):
            user = self.read(user_id)
            before(user)
            with disk.rollback_on_error() as undo:
                undo.callback(disk.remove_file, layout.deleted(user_id))
                disk.write_file(layout.deleted(user_id), b"")
                disk.remove_durably(layout.user(user_id))
            for kind, key in unique_keys(user):
                self._unique.release(kind, key, user_id)
            self._index.remove([ADMINISTRATORS], str(user_id))
            self._pictures.remove(user_id, user.pfp_timestamp)
            disk.sync_removals([*map(layout.path, FIELDS), *layout.picture_folders()])

    @contextlib.contextmanager
    def administered_without(self, user_id: int) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            with disk.translate_os_errors():
                # Not accounts.lock: sign-ups and renames need not wait.
                held.enter_context(self._layout.lock("administrators"))
            others = (each for each in self.administrators() if each.id != user_id)
            if self.read(user_id).administers and not any(others):
                raise storage.LastAdministrator
            yield

    # -- pictures ------------------------------------------------------------------------------

    def save_picture(self, user_id: int, images: Images, before: UserCallback = ignore) -> int:
        with self._layout.user_lock(user_id):
            user = self.read(user_id)
            before(user)
            return self._pictures.replace(user, images)
