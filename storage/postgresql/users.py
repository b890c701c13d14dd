"""Users as rows: ids that are never given twice, and invitations that are used up."""

from contextlib import AbstractContextManager

from model.errors import BadInstallation, InviteSpent
from model.kinds import USERS
from model.names import unique_key
from model.records import User
from model.rules import USER_IDS_END
from storage.postgresql.connections import Database
from storage.postgresql.pictures import PictureTable
from storage.postgresql.record_table import RecordTable
from storage.postgresql.schema import ADMINISTRATORS_LOCK
from storage.repositories import Before, Images
from storage.users import Users


class UserTable(RecordTable, Users):
    """The users of a database."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, USERS)
        self.pictures = PictureTable(database)

    def is_new(self) -> bool:
        [(next_id,)] = self.database.execute("SELECT next_user_id FROM installation")
        return next_id == 1

    def _by_name(self, part: str, after: str, at_most: int, backwards: bool) -> list[User]:
        found, rows = [], None
        sign, order = ("<", "name DESC") if backwards else (">", "name")
        # All names may be looked at. The index has them without the records, which are long.
        place = f"position(%s in name) > 0 AND name {sign} %s ORDER BY {order} LIMIT %s"
        names = f"SELECT name FROM users WHERE {place}"
        query = f"SELECT name, id, record FROM users WHERE name IN ({names}) ORDER BY {order}"
        while rows is None or (len(rows) == at_most > len(found)):
            rows = self.database.execute(query, [part, after, at_most])
            for after, *row in rows:
                found += (user for user in self.readable([row]) if unique_key(user.name) == after)
        return found[:at_most]

    def number(self) -> int:
        [(number,)] = self.database.execute("SELECT count(*) FROM users")
        return number

    def administrators_lock(self) -> AbstractContextManager[None]:
        return self.database.advisory_lock(ADMINISTRATORS_LOCK)

    def add_new(self, user: User, first: bool, before: Before[User]) -> None:
        with self.database.transaction("new user"):
            # The row is locked until the end: players are added one after the other.
            [(user.id,)] = self.database.save(
                "UPDATE installation SET next_user_id = next_user_id + 1 RETURNING next_user_id - 1"
            )
            self.require_addable(user)
            if user.id >= USER_IDS_END:
                raise BadInstallation(f"ids of players end before {USER_IDS_END}")
            if first and user.id > 1:
                raise InviteSpent
            before(user)
            if user.invite:
                self.invites.claim(user)
            self.insert_row(user)

    def reserve_ids(self, largest: int) -> None:
        query = "UPDATE installation SET next_user_id = greatest(next_user_id, %s)"
        with self.database.transaction():
            self.database.save(query, [largest + 1])

    def insert(self, user: User, pictures: Images | None = None) -> None:
        with self.database.transaction():
            # The row is locked, as by `register`.
            self.database.execute("SELECT true FROM installation FOR NO KEY UPDATE")
            self.require_new(user)
            self.insert_row(user)
            if pictures:
                self.pictures.write(user, pictures)

    def was_deleted(self, user_id: int) -> bool:
        query = "SELECT true FROM deleted_users WHERE id = %s"
        return bool(self.database.execute(query, [user_id]))

    def remove(self, user_id: int) -> None:
        self.database.save("INSERT INTO deleted_users VALUES (%s)", [user_id])
        super().remove(user_id)
