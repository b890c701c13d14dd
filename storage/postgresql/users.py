"""Users as rows: ids that are never given twice, and invitations that are used up."""

from contextlib import AbstractContextManager

from storage.errors import (
    AlreadyThere,
    BadInstallation,
    DamagedRecord,
    IdTaken,
    InvalidField,
    InviteSpent,
    NoSuchUser,
    StorageError,
)
from storage.kinds import CLIENTS, INVITES, USERS
from storage.postgresql.connections import Database
from storage.postgresql.pictures import PictureTable
from storage.postgresql.record_table import ClientTable, RecordTable, row_of
from storage.postgresql.schema import ADMINISTRATORS_LOCK
from storage.records import PLAYER, User
from storage.repositories import Images, Invites, Users
from storage.rules import USER_IDS_END


class InviteTable(RecordTable, Invites):
    """The invitations in a database."""


class UserTable(RecordTable, Users):
    """The users of a database."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, USERS)
        self.clients = ClientTable(database, CLIENTS)
        self.invites = InviteTable(database, INVITES)
        self.invites.users = self
        self.pictures = PictureTable(database)

    def is_new(self) -> bool:
        [(next_id,)] = self.database.execute("SELECT next_user_id FROM installation")
        return next_id == 1

    def administrators_lock(self) -> AbstractContextManager[None]:
        return self.database.advisory_lock(ADMINISTRATORS_LOCK)

    def register(
        self,
        name: str,
        email: str,
        password_hash: str,
        mod_level: int = PLAYER,
        invite: str | None = None,
        first: bool = False,
    ) -> User:
        user = self.new(name, email, password_hash, mod_level, invite)
        with self.database.transaction("new user"):
            # The row is locked until the end: players are added one after the other.
            [(user.id,)] = self.database.save(
                "UPDATE installation SET next_user_id = next_user_id + 1 RETURNING next_user_id - 1"
            )
            self.refuse_taken(user)
            if user.id >= USER_IDS_END:
                raise BadInstallation(f"ids of players end before {USER_IDS_END}")
            if (first and user.id > 1) or (invite and not self.invites.find_unused(invite)):
                raise InviteSpent
            if invite:
                self.invites.remove(user.invite)
            self.database.save(self.insert, row_of(USERS, user))
        return user

    def reserve_ids(self, largest: int) -> None:
        query = "UPDATE installation SET next_user_id = greatest(next_user_id, %s)"
        with self.database.transaction():
            self.database.save(query, [largest + 1])

    def add_many(self, users: list[User], pictures: dict[int, Images]) -> list[StorageError | None]:
        with self.database.transaction():
            return [self._add_known(user, pictures.get(user.id)) for user in users]

    def _add_known(self, user: User, images: Images | None) -> StorageError | None:
        """Add a user who has an id already; return the error if there is a conflict."""
        query = (
            f"{self.insert} WHERE NOT EXISTS (SELECT FROM deleted_users WHERE id = %s) "
            "ON CONFLICT DO NOTHING RETURNING true"
        )
        try:
            if not self.database.save(query, [*row_of(USERS, user), user.id]):
                self._refuse_known(user)
        except (InvalidField, AlreadyThere, DamagedRecord) as error:
            return error
        if images:
            self.pictures.write(user, images)
        return None

    def _refuse_known(self, user: User) -> None:
        """Raise the error for a user who has the id, the name or the email address of another."""
        try:
            known = self.read(user.id)
        except NoSuchUser:
            self.refuse_taken(user)
            raise IdTaken from None  # of a deleted user
        same = all(key.of(known) == key.of(user) for key in USERS.unique if key.needed)
        raise AlreadyThere if same else IdTaken

    def remove(self, user_id: int) -> None:
        self.database.save("INSERT INTO deleted_users VALUES (%s)", [user_id])
        super().remove(user_id)
