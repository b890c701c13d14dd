"""One state of the database while the server goes on, as a backup reads it."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

import psycopg

import storage
from storage import CLIENT_ID, Client, DamagedRecord, Invite, User, ignore
from storage.maintenance import Report, check_picture, refuse_unusable
from storage.names import can_be_key
from storage.postgresql.clients import decode_client
from storage.postgresql.connections import Database
from storage.postgresql.rows import ONE_STATE, archive_lock, stream
from storage.postgresql.users import decode_user, keys_of
from storage.rules import USER_IDS_END

USERS = """
    SELECT id, record, name_key, email_key,
        user_id IS NOT NULL, pfp_timestamp, large, medium, small
    FROM users LEFT JOIN pictures ON user_id = id
    WHERE id BETWEEN 1 AND %s ORDER BY id
"""
DELETED = """
    SELECT id FROM deleted_users
    WHERE id BETWEEN 1 AND %s AND NOT EXISTS (SELECT FROM users WHERE id = deleted_users.id)
    ORDER BY id
"""
NEVER_GIVEN = """
    SELECT 'users', id FROM users WHERE id NOT BETWEEN 1 AND %s
    UNION ALL SELECT 'deleted_users', id FROM deleted_users WHERE id NOT BETWEEN 1 AND %s
    ORDER BY 1, 2
"""
LAST_ID = USER_IDS_END - 1


@contextlib.contextmanager
def snapshot(
    database: Database, before: Callable[[], None], report: Report
) -> Iterator[storage.Snapshot]:
    """As `Storage.snapshot`."""
    with archive_lock(database, ignore):  # `report` is for what is left out
        before()
        with database.own_transaction(ONE_STATE) as connection:
            yield FrozenRows(connection, report)


class FrozenRows(storage.Snapshot):
    """The rows that one transaction sees. Methods raise psycopg.Error."""

    def __init__(self, connection: psycopg.Connection, report: Report) -> None:
        self._connection = connection
        self._report = report
        for table, user_id in stream(connection, NEVER_GIVEN, [LAST_ID, LAST_ID]):
            self._leave_out(f"{table} has the id {user_id}, which is never given")
        query = "SELECT count(*), max(id) FROM users WHERE id BETWEEN 1 AND %s"
        self.users_total, last_user = self._read(query, LAST_ID)
        (last_deleted,) = self._read("SELECT max(id) FROM deleted_users WHERE id <= %s", LAST_ID)
        next_id, self._keys = self._read("SELECT next_user_id, keys FROM installation")
        if next_id > USER_IDS_END:
            self._leave_out(f"next_user_id is {next_id}, which is too large")
            next_id = 1
        self.next_user_id = max(next_id, (last_user or 0) + 1, (last_deleted or 0) + 1)

    def _read(self, query: str, *args: object) -> tuple:
        """Return the only row of a query."""
        return self._connection.execute(query, args).fetchone()

    def _leave_out(self, reason: object) -> None:
        self._report(f"{reason}: left out")

    def users(self) -> Iterator[tuple[User, dict[str, bytes]]]:
        for user_id, record, name_key, email_key, *picture in stream(
            self._connection, USERS, [LAST_ID]
        ):
            try:
                user = decode_user(user_id, record)
                refuse_unusable(user)
                _refuse_wrong_keys(user, name_key, email_key)
            except DamagedRecord as error:
                self._leave_out(error)
            else:
                yield user, self._pictures_of(user, *picture)

    def _pictures_of(
        self, user: User, has_row: bool, timestamp: int | None, *content: bytes | None
    ) -> dict[str, bytes]:
        """Return a user's pictures by size; a user whose own ones are lost has none."""
        if not has_row:
            return generated_pictures(user)
        pictures = dict(zip(storage.PICTURE_SIZES, content, strict=True))
        problem = next(problems_with_pictures(user, timestamp, pictures), None)
        if problem is None:
            return pictures
        place = f"pictures/{user.id}"
        self._report(f"{place} {problem}: left out, player {user.id} gets a generated picture")
        user.pfp_timestamp = None
        return {}

    def deleted_ids(self) -> Iterator[int]:
        for (user_id,) in stream(self._connection, DELETED, [LAST_ID]):
            yield user_id

    def clients(self) -> Iterator[Client]:
        for client_id, record in stream(
            self._connection, "SELECT id, record FROM clients ORDER BY id"
        ):
            try:
                if not CLIENT_ID.fullmatch(client_id):
                    raise DamagedRecord(f"clients/{client_id!r}", "no client has such an id")
                client = decode_client(client_id, record)
                refuse_unusable(client)
            except DamagedRecord as error:
                self._leave_out(error)
            else:
                yield client

    def audit_log(self) -> BinaryIO:
        file = tempfile.TemporaryFile()  # noqa: SIM115 -- the caller closes it
        for (line,) in stream(self._connection, "SELECT line FROM audit ORDER BY id"):
            file.write(line + b"\n")
        file.seek(0)
        return file

    def keys(self) -> tuple[bytes, ...]:
        return tuple(key.encode() for key in self._keys)

    def invites(self) -> Iterator[tuple[str, Invite]]:
        query = "SELECT hash, expires FROM invites ORDER BY hash"
        for invite_hash, expires in stream(self._connection, query):
            yield invite_hash, Invite(expires)


def _refuse_wrong_keys(user: User, name_key: str, email_key: str) -> None:
    """Raise DamagedRecord for a user who may have the same name or email address as another."""
    for field, column, key in zip(
        ("name", "email"), (name_key, email_key), keys_of(user)[:2], strict=True
    ):
        if not can_be_key(field, key):
            raise DamagedRecord(f"users/{user.id}", f"nobody can be found by its {field}")
        if column != key:
            problem = f"its {field}_key is not that of its {field} (`check --repair` corrects it)"
            raise DamagedRecord(f"users/{user.id}", problem)


def generated_pictures(user: User) -> dict[str, bytes]:
    """Return the pictures by size of a user who has no row of them.

    Those of a user without a timestamp are generated wherever they are first read.
    """
    from storage.pictures import generate_picture  # Pillow: slow to import

    return {} if user.pfp_timestamp is None else generate_picture(user.id)


def problems_with_pictures(
    user: User, timestamp: int | None, pictures: dict[str, bytes]
) -> Iterator[str]:
    """Yield what is wrong with a user's row of pictures, as a clause that starts with a verb."""
    if timestamp != user.pfp_timestamp:
        yield f"has the timestamp {timestamp}, and its player {user.pfp_timestamp}"
    for size, content in pictures.items():
        if problem := check_picture(size, content):
            yield f"({size}) {problem}"
