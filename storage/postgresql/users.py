"""Users as rows: the record, and the columns that indexes need."""

import contextlib
import json
from collections.abc import Callable, Iterator

import storage
from storage import Images, User, UserCallback, Value, ignore
from storage.encoding import decode_record
from storage.postgresql.connections import Database
from storage.postgresql.pictures import PictureTable
from storage.postgresql.schema import ADMINISTRATORS_LOCK
from storage.rules import USER_IDS_END

TAKEN = {"name": storage.NameTaken, "email": storage.EmailTaken}
INSERT = "INSERT INTO users (record, name_key, email_key, administers, id) "
SET = "UPDATE users SET record = %s, name_key = %s, email_key = %s, administers = %s WHERE id = %s"


def keys_of(user: User) -> list:
    """Return what follows from a user's record: name_key, email_key, administers."""
    return [storage.unique_key(user.name), storage.unique_key(user.email), user.may_administer]


def columns_of(user: User) -> list:
    """Return the values of a user's row: record, name_key, email_key, administers, id."""
    record = json.dumps(storage.record_as_dict(user), ensure_ascii=False)
    return [record, *keys_of(user), user.id]


def decode_user(user_id: int, record: bytes) -> User:
    """Return the user in a row. Raises DamagedRecord."""
    return decode_record(record, User, f"users/{user_id}", id=user_id)


class UserTable:
    """The users of a database; the methods are those of `storage.Storage`."""

    def __init__(self, database: Database, pictures: PictureTable) -> None:
        self._database = database
        self._pictures = pictures

    # -- look-ups ------------------------------------------------------------------------------

    def read(self, user_id: int) -> User:
        return self._read(user_id, "SELECT record FROM users WHERE id = %s")

    def _read(self, user_id: int, query: str) -> User:
        rows = self._database.execute(query, [user_id])
        if not rows:
            raise storage.NoSuchUser(f"there is no user {user_id}")
        return decode_user(user_id, rows[0][0])

    def read_from_many(self, user_ids: list[int], make: Callable[[User], Value]) -> list[Value]:
        rows = self._database.execute(
            "SELECT id, record FROM users WHERE id = ANY(%s)", [list(set(user_ids))]
        )
        made = {}
        for user_id, record in rows:
            with contextlib.suppress(storage.DamagedRecord):
                made[user_id] = make(decode_user(user_id, record))
        return [made[user_id] for user_id in user_ids if user_id in made]

    def find(self, name_or_email: str) -> User | None:
        key = storage.unique_key(name_or_email)
        if not key.isprintable():  # nor could the database compare it
            return None
        column = "email_key" if "@" in key else "name_key"  # no name has an @
        rows = self._database.execute(f"SELECT id, record FROM users WHERE {column} = %s", [key])
        return decode_user(*rows[0]) if rows else None

    def ids(self) -> list[int]:
        return [
            user_id for (user_id,) in self._database.execute("SELECT id FROM users ORDER BY id")
        ]

    def is_new(self) -> bool:
        [(next_id,)] = self._database.execute("SELECT next_user_id FROM installation")
        return next_id == 1

    def administrators(self) -> list[User]:
        found = []
        query = "SELECT id, record FROM users WHERE administers ORDER BY id"
        for row in self._database.execute(query):
            with contextlib.suppress(storage.DamagedRecord):
                found.append(decode_user(*row))
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
        user = storage.new_user(name, email, password_hash, mod_level)
        save = self._database.save
        with self._database.transaction("new user"):
            # The row is locked until the end: players are added one after the other.
            [(user.id,)] = save(
                "UPDATE installation SET next_user_id = next_user_id + 1 RETURNING next_user_id - 1"
            )
            self._refuse_taken(user, "name")
            self._refuse_taken(user, "email")
            if user.id >= USER_IDS_END:
                raise storage.BadInstallation(f"ids of players end before {USER_IDS_END}")
            if (first and user.id > 1) or (invite and not self._use_invite(invite)):
                raise storage.InviteSpent
            save(f"{INSERT} VALUES (%s, %s, %s, %s, %s)", columns_of(user))
        return user

    def _use_invite(self, invite: str) -> bool:
        values = [storage.sha256(invite), storage.now_ms()]
        query = "DELETE FROM invites WHERE hash = %s AND expires > %s RETURNING true"
        return bool(self._database.save(query, values))

    def _refuse_taken(self, user: User, field: str) -> None:
        query = f"SELECT true FROM users WHERE {field}_key = %s AND id <> %s"
        if self._database.execute(query, [storage.unique_key(getattr(user, field)), user.id]):
            raise TAKEN[field]

    def reserve_ids(self, largest: int) -> None:
        query = "UPDATE installation SET next_user_id = %s WHERE next_user_id < %s"
        with self._database.transaction():
            self._database.save(query, [largest + 1, largest + 1])

    def add_many(
        self, users: list[User], pictures: dict[int, Images]
    ) -> list[storage.StorageError | None]:
        with self._database.transaction():
            return [self._add_known(user, pictures.get(user.id)) for user in users]

    def _add_known(self, user: User, images: Images | None) -> storage.StorageError | None:
        """Add a user who has an id already; return the error if there is a conflict."""
        query = (
            f"{INSERT} SELECT %s, %s, %s, %s, %s WHERE NOT EXISTS "
            "(SELECT true FROM deleted_users WHERE id = %s) ON CONFLICT DO NOTHING RETURNING true"
        )
        try:
            if not self._database.save(query, [*columns_of(user), user.id]):
                self._refuse_known(user)
        except (storage.InvalidField, storage.AlreadyThere, storage.DamagedRecord) as error:
            return error
        if images:
            self._pictures.save(user, images)
        return None

    def _refuse_known(self, user: User) -> None:
        """Raise the error for a user who has the id, the name or the email address of another."""
        try:
            known = self.read(user.id)
        except storage.NoSuchUser:
            for field in TAKEN:
                self._refuse_taken(user, field)
            raise storage.IdTaken from None  # of a deleted user
        is_same = columns_of(known)[1:3] == columns_of(user)[1:3]
        raise storage.AlreadyThere if is_same else storage.IdTaken

    # -- changing ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def edit(self, user_id: int, key_field: str | None = None) -> Iterator[User]:
        """As `Storage.edit_user`; the "name" or "email" named by `key_field` may change as well."""
        with self._database.transaction(f"users/{user_id}"):
            user = self._read_locked(user_id)
            before = storage.record_as_dict(user)
            yield user
            fixed = {"id", "name", "email"} - {key_field}
            if storage.changed_fields(user, before, fixed, {key_field}):
                self._save(user)

    def _read_locked(self, user_id: int) -> User:
        return self._read(user_id, "SELECT record FROM users WHERE id = %s FOR UPDATE")

    def _save(self, user: User) -> None:
        if user.grants:
            query = "SELECT id FROM clients WHERE id = ANY(%s)"
            rows = self._database.execute(query, [list(user.grants)])
            user.keep_grants({client_id for (client_id,) in rows}.__contains__)
        self._database.save(SET, columns_of(user))

    def rename(self, user_id: int, name: str, before: UserCallback = ignore) -> User:
        name = storage.normal_name(name)
        storage.refuse("name", storage.check_name(name))
        return self._change_key(user_id, "name", name, before)

    def reset_name(self, user_id: int, before: UserCallback = ignore) -> User:
        return self._change_key(user_id, "name", f"player{user_id}", before)

    def change_email(self, user_id: int, email: str, before: UserCallback = ignore) -> User:
        email = email.strip()
        storage.refuse("email", storage.check_email(email))
        return self._change_key(user_id, "email", email, before)

    def _change_key(self, user_id: int, field: str, text: str, before: UserCallback) -> User:
        with self.edit(user_id, field) as user:
            old = getattr(user, field)
            setattr(user, field, text)
            self._refuse_taken(user, field)
            setattr(user, field, old)
            before(user)
            setattr(user, field, text)
        return user

    def delete(self, user_id: int, before: UserCallback = ignore) -> None:
        with self._database.transaction(f"users/{user_id}"):
            before(self._read_locked(user_id))
            self._database.save("INSERT INTO deleted_users VALUES (%s)", [user_id])
            self._database.save("DELETE FROM users WHERE id = %s", [user_id])

    @contextlib.contextmanager
    def administered_without(self, user_id: int) -> Iterator[None]:
        with self._database.advisory_lock(ADMINISTRATORS_LOCK):
            others = (each for each in self.administrators() if each.id != user_id)
            if self.read(user_id).administers and not any(others):
                raise storage.LastAdministrator
            yield

    # -- pictures ------------------------------------------------------------------------------

    def save_picture(self, user_id: int, images: Images, before: UserCallback = ignore) -> int:
        with self._database.transaction(f"users/{user_id}"):
            user = self._read_locked(user_id)
            before(user)
            user.pfp_timestamp = max(storage.now_ms(), (user.pfp_timestamp or 0) + 1)
            self._save(user)
            self._pictures.save(user, images)
        return user.pfp_timestamp
