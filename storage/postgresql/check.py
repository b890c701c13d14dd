"""Finds what is wrong with the rows of a database, and repairs what follows from the records.

All rows are read in one transaction, which sees one state: no save is ever half there. A repair
reads its row again, under the lock of a save. A record that cannot be decoded is left to a person.
What constraints and indexes guarantee is not looked at; codes, attempts, who plays and families of
refresh tokens expire.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from model import kinds
from model.errors import DamagedRecord, StorageError
from model.kind import Index, Kind
from model.kinds import USERS
from model.records import PICTURE_SIZES, User
from model.rules import USER_IDS_END
from model.soundness import check_picture, has_picture_time, problems_in_record
from storage.audit_lines import is_whole
from storage.contract import new_key
from storage.maintenance import Problem, Progress, Steps, ignore, remake_pictures
from storage.postgresql.advice import check_database
from storage.postgresql.connections import Database
from storage.postgresql.pictures import PictureTable
from storage.postgresql.record_table import RecordTable, columns_of, decode_row, key_columns_of
from storage.postgresql.snapshot import (
    LAST_ID,
    ONE_STATE,
    PICTURES,
    count_rows,
    pictures_in,
    problems_with_pictures,
    stream,
)

DELETED = """
SELECT id, EXISTS (SELECT FROM users WHERE users.id = deleted_users.id) FROM deleted_users
"""
INSTALLATION = f"SELECT one, next_user_id, keys, ({LAST_ID}) FROM installation"
AUDIT = "SELECT id, line FROM audit"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a row."""

    place: str
    problem: str  # continues a sentence that begins with the place
    repair: Callable[[], str] | None = None  # repairs the row, and returns what was done


Findings = Iterator[Finding]


def check(
    database: Database, url: str, repair: bool = False, progress: Progress = ignore
) -> Iterator[Problem]:
    """Yield what is wrong with the database at `url`; with `repair`, repair it."""
    # First of all: behind some poolers the rest does not work.
    for each in check_database(url):
        yield Problem("the database", f"{each.problem}: {each.fix}")
    with database.own_transaction(ONE_STATE) as connection:
        yield from Check(database, connection, repair, progress).problems()


class Check:
    """One check of all rows. Raises psycopg.Error for the connection that reads them."""

    def __init__(
        self, database: Database, connection: psycopg.Connection, repair: bool, progress: Progress
    ) -> None:
        self._database = database
        self._connection = connection
        self._repair = repair
        self._progress = progress
        self._pictures = PictureTable(database)

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the rows of all tables."""
        checks = [
            (kind.name, "id", _query_of(kind), functools.partial(self._look_at_record, kind))
            for kind in kinds.KINDS
            if kind.checked
        ]
        checks += [
            ("deleted_users", "id", DELETED, self._look_at_deleted),
            ("installation", "one", INSTALLATION, self._look_at_installation),
            ("audit", "id", AUDIT, _look_at_line),
        ]
        steps = Steps(self._progress, count_rows(self._connection, (each[0] for each in checks)))
        for each in checks:
            yield from self._check(steps, *each)

    def _check(
        self, steps: Steps, table: str, key: str, query: str, look: Callable[..., Findings]
    ) -> Iterator[Problem]:
        """Look at each row, whose `key` comes first; for a repair, again under its lock."""
        for row in steps.each(stream(self._connection, f"{query} ORDER BY {key}")):
            found = list(look(*row))
            if self._repair and any(each.repair for each in found):
                again = f"{query} WHERE {key} = %s FOR UPDATE OF {table}"
                yield from self._repaired(found, again, row[0], look)
            else:
                yield from (Problem(each.place, each.problem) for each in found)

    def _repaired(
        self, found: list[Finding], query: str, key: object, look: Callable[..., Findings]
    ) -> list[Problem]:
        """Lock a row, look again and repair it; return the problems that are left or repaired."""
        try:
            with self._database.transaction():
                rows = self._database.execute(query, [key])
                found = [each for row in rows for each in look(*row)]
                return [
                    Problem(each.place, each.problem, each.repair and each.repair())
                    for each in found
                ]
        except StorageError as error:
            return [Problem(each.place, f"{each.problem}; not repaired: {error}") for each in found]

    # -- records -------------------------------------------------------------------------------

    def _look_at_record(
        self, kind: Kind, record_id: int | str, content: bytes, *columns: Any
    ) -> Findings:
        """Look at the row of a record; `columns` are its keys, and what `_query_of` adds."""
        place = f"{kind.name}/{record_id}"
        try:
            record = decode_row(kind, record_id, content)
        except DamagedRecord as error:
            yield Finding(place, f"is damaged: {error.problem}")
            return
        for problem in problems_in_record(kind, record):
            yield Finding(place, problem)
        needed, columns = key_columns_of(kind, record), list(columns)
        keys, rest = columns[: len(needed)], columns[len(needed) :]
        if keys != needed:
            save = functools.partial(self._save, kind, record)
            yield Finding(place, f"has the keys {keys}, and its record {needed}", save)
        for index in _owners_of(kind):
            owner, is_there = index.of(record), rest.pop(0)
            # Of another key nothing is known until it is repaired.
            if keys == needed and owner is not None and not is_there:
                problem = f"belongs to {index.dies_with}/{owner}, which is gone"
                yield Finding(place, problem, functools.partial(self._remove, kind.name, record_id))
        if kind is USERS:
            yield from self._look_at_pictures(place, record, *rest)

    def _save(self, kind: Kind, record: Any) -> str:
        RecordTable(self._database, kind).save(record)
        return "set to what the record says"

    def _remove(self, table: str, row_id: int | str) -> str:
        self._database.save(f"DELETE FROM {table} WHERE id = %s", [row_id])
        return "removed"

    def _look_at_pictures(
        self, place: str, user: User, timestamp: int | None, *content: bytes | None
    ) -> Findings:
        pictures = pictures_in(content)
        # One repair is enough for all three.
        remake = functools.cache(functools.partial(self._remake_pictures, user, pictures))
        if not has_picture_time(user):
            yield Finding(place, "pfp_timestamp is not a time", remake)
        elif pictures:
            for problem in problems_with_pictures(user, timestamp, pictures):
                yield Finding(f"pictures/{user.id}", problem, remake)

    def _remake_pictures(self, user: User, pictures: dict[str, bytes]) -> str:
        """Give a user whole pictures at another address: the old one must stay a 404."""
        images, done = pictures, "moved to a new address"
        good = {size: each for size, each in pictures.items() if not check_picture(size, each)}
        if good.keys() != PICTURE_SIZES.keys():
            images, done = remake_pictures(good)
        if not has_picture_time(user):
            user.pfp_timestamp = None  # a larger one would be no time either
        self._pictures.replace(user, images)
        return done

    # -- ids and keys --------------------------------------------------------------------------

    def _look_at_deleted(self, user_id: int, exists: bool) -> Findings:
        if exists:
            place = f"deleted_users/{user_id}"
            forget = functools.partial(self._remove, "deleted_users", user_id)
            yield Finding(place, f"says that users/{user_id}, which exists, was deleted", forget)

    def _look_at_installation(self, _: bool, next_id: int, keys: list, last_id: int) -> Findings:
        place, problem = "installation", f"next_user_id is {next_id}, "
        if next_id > USER_IDS_END:
            yield Finding(place, f"{problem}which is too large: ids end before {USER_IDS_END}")
        elif next_id <= last_id:
            problem += f"not above {last_id}, the largest id ever given"
            yield Finding(place, problem, functools.partial(self._raise_next_id, last_id + 1))
        if not keys or not all(map(str.strip, keys)):
            yield Finding(place, "has no signing key", self._add_key)

    def _raise_next_id(self, next_id: int) -> str:
        self._database.save("UPDATE installation SET next_user_id = %s", [next_id])
        return f"raised to {next_id}"

    def _add_key(self) -> str:
        self._database.save("UPDATE installation SET keys = %s", [[new_key()]])
        return "made: everyone signs in again"


def _owners_of(kind: Kind) -> list[Index]:
    """Return the indexes whose key is the id of an owner, with whom a record goes."""
    return [index for index in kind.indexes if index.dies_with]


def _query_of(kind: Kind) -> str:
    """Return the query of the rows of a kind, whether their owners exist, and users' pictures."""
    owners = "".join(
        f', EXISTS (SELECT FROM {each.dies_with} WHERE id::text = {kind.name}."{each.name}")'
        for each in _owners_of(kind)
    )
    rest = f", {PICTURES}" if kind is USERS else f" FROM {kind.name}"
    return f"SELECT {columns_of(kind)}{owners}{rest}"


def _look_at_line(line_id: int, line: bytes) -> Findings:
    if not is_whole(line):
        yield Finding(f"audit/{line_id}", "is damaged")
