"""Finds what is wrong with the rows of a database, and repairs what follows from the records.

All rows are read in one transaction, which sees one state: no save is ever half there. A repair
reads its row again, under the lock of a save. A record that cannot be decoded is left to a person.
Codes, attempts and invitations are not looked at: they expire.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import psycopg

from storage import USER_ID, Problem, StorageError
from storage.audit_lines import is_act, subjects_in
from storage.maintenance import Progress, ignore
from storage.postgresql.advice import check_database
from storage.postgresql.connections import Database
from storage.postgresql.constraints import check_constraints
from storage.postgresql.findings import Finding, Findings, RowCheck
from storage.postgresql.rows import ONE_STATE, stream
from storage.postgresql.schema import new_key
from storage.rules import USER_IDS_END

STEP = 1000  # rows between two reports of progress
LINES = """
    SELECT id, line, coalesce(subjects, '{}') FROM audit
    LEFT JOIN (SELECT audit_id, array_agg(subject) AS subjects FROM audit_subjects GROUP BY 1) AS x
    ON audit_id = id ORDER BY id
"""
LAST_ID = f"""
    SELECT coalesce(max(id), 0)
    FROM (SELECT id FROM users UNION ALL SELECT id FROM deleted_users) AS x
    WHERE id < {USER_IDS_END}
"""
# What no two rows have in common: table, column, and what it is to people.
UNIQUE = [("users", "id", "id"), ("users", "name_key", "name"), ("users", "email_key", "email")]
UNIQUE += [("clients", "id", "id"), ("clients", "game_origin", "origin")]
# Rows that refer to one of another table: table, column, the other table.
REFERENCES = [("pictures", "user_id", "users"), ("audit_subjects", "audit_id", "audit")]


class Table(NamedTuple):
    """How the rows of a table are read for a check; their key comes first."""

    query: str
    key: str
    lock: str
    look: Callable[..., Findings]


def check(
    database: Database, url: str, repair: bool = False, progress: Progress = ignore
) -> Iterator[Problem]:
    """Yield what is wrong with the database at `url`; with `repair`, repair it."""
    # First of all: behind some poolers the rest does not work.
    yield from (
        Problem("the database", f"{each.problem}: {each.fix}") for each in check_database(url)
    )
    with database.own_transaction(ONE_STATE) as connection:
        yield from Check(database, connection, repair, progress).problems()
    # After that transaction, which locks the tables that it has read against new constraints.
    yield from check_constraints(database, repair)


class Check:
    """One check of all rows. Raises psycopg.Error for the connection that reads them."""

    def __init__(
        self, database: Database, connection: psycopg.Connection, repair: bool, progress: Progress
    ) -> None:
        self._database = database
        self._connection = connection
        self._repair = repair
        self._progress = progress
        self._done = self._total = 0  # rows

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the rows of all tables."""
        rows = RowCheck(self._database)
        for table in ("users", "deleted_users", "clients", "audit"):
            self._total += self._one(f"SELECT count(*) FROM {table}")
        users = (
            "SELECT id, record, name_key, email_key, administers, "
            "user_id IS NOT NULL, pfp_timestamp, large, medium, small "
            "FROM users LEFT JOIN pictures ON user_id = id"
        )
        yield from self._check(Table(users, "id", "FOR UPDATE OF users", rows.look_at_user))
        deleted = (
            "SELECT id, EXISTS (SELECT FROM users WHERE users.id = deleted_users.id) "
            "FROM deleted_users"
        )
        yield from self._check(Table(deleted, "id", "FOR UPDATE", rows.look_at_deleted))
        yield from self._settled([*self._look_at_installation()])
        clients = "SELECT id, record, owner_id, game_origin, listed FROM clients"
        yield from self._check(Table(clients, "id", "FOR UPDATE", rows.look_at_client))
        yield from self._check_audit()
        for look in (self._look_for_duplicates, self._look_for_orphans):
            for found in look():
                yield from self._settled([found])

    def _one(self, query: str) -> object:
        """Return the only value of a query."""
        return self._connection.execute(query).fetchone()[0]

    def _rows(self, query: str) -> Iterator[tuple]:
        for row in stream(self._connection, query):
            if self._done % STEP == 0:
                self._progress(self._done, self._total)
            self._done += 1
            yield row

    def _check(self, table: Table) -> Iterator[Problem]:
        """Look at each row of a table; for a repair, again at a row with findings."""
        for key, *columns in self._rows(f"{table.query} ORDER BY {table.key}"):
            if found := list(table.look(key, *columns)):
                yield from self._settled(found, functools.partial(self._look_again, table, key))

    def _look_again(self, table: Table, key: int | str) -> Findings:
        query = f"{table.query} WHERE {table.key} = %s {table.lock}"
        for row in self._database.execute(query, [key]):
            yield from table.look(*row)

    def _settled(
        self, found: list[Finding], look_again: Callable[[], Iterable[Finding]] | None = None
    ) -> Iterator[Problem]:
        """Yield the problems, repaired in one transaction where they can be."""
        problems = [Problem(each.place, each.problem) for each in found]
        if self._repair and any(each.repair for each in found):
            try:
                with self._database.transaction():
                    found = list(look_again()) if look_again else found
                    problems = [
                        Problem(each.place, each.problem, each.repair and each.repair())
                        for each in found
                    ]
            except StorageError as error:
                problems = [
                    Problem(each.place, f"{each.problem}; not repaired: {error}") for each in found
                ]
        yield from problems

    # -- the other tables ----------------------------------------------------------------------

    def _look_at_installation(self) -> Findings:
        place = "installation"
        next_id, keys = self._connection.execute(
            "SELECT next_user_id, keys FROM installation"
        ).fetchone()
        last_id = self._one(LAST_ID)
        if next_id > USER_IDS_END:
            problem = (
                f"next_user_id is {next_id}, which is too large: ids end before {USER_IDS_END}"
            )
            yield Finding(place, problem)
        elif next_id <= last_id:
            problem = f"next_user_id is {next_id}, not above {last_id}, the largest id ever given"
            yield Finding(place, problem, functools.partial(self._raise_next_id, last_id))
        if not keys or not all(map(str.strip, keys)):
            yield Finding(place, "has no signing key", self._add_key)

    def _raise_next_id(self, last_id: int) -> str:
        query = "UPDATE installation SET next_user_id = greatest(next_user_id, %s)"
        self._database.save(query, [last_id + 1])
        return f"raised to {last_id + 1}"

    def _add_key(self) -> str:
        self._database.save("UPDATE installation SET keys = %s", [[new_key()]])
        return "made: everyone signs in again"

    def _check_audit(self) -> Iterator[Problem]:
        clients = {each for (each,) in stream(self._connection, "SELECT id FROM clients")}
        for line_id, line, indexed in self._rows(LINES):
            place = f"audit/{line_id}"
            if not is_act(line):  # its index may be right once a person has put it back
                yield Problem(place, "is damaged")
                continue
            needed = {
                each for each in subjects_in(line) if USER_ID.fullmatch(each) or each in clients
            }
            if needed != set(indexed):
                index = functools.partial(self._index, line_id, needed, set(indexed))
                problem = f"is indexed for {sorted(indexed)}, and is about {sorted(needed)}"
                yield from self._settled([Finding(place, problem, index)])

    def _index(self, line_id: int, needed: set[str], indexed: set[str]) -> str:
        delete = "DELETE FROM audit_subjects WHERE audit_id = %s AND subject = ANY(%s)"
        self._database.save(delete, [line_id, list(indexed - needed)])
        insert = "INSERT INTO audit_subjects (audit_id, subject) SELECT %s, unnest(%s::text[])"
        self._database.save(f"{insert} ON CONFLICT DO NOTHING", [line_id, list(needed - indexed)])
        return "indexed again"

    def _look_for_duplicates(self) -> Findings:
        """Find what a missing or damaged index has let in."""
        for table, column, what in UNIQUE:
            query = (
                f"SELECT array_agg(id::text ORDER BY id) FROM {table} WHERE {column} IS NOT NULL "
                f"GROUP BY {column} HAVING count(*) > 1"
            )
            for ((first, second, *_),) in self._connection.execute(query).fetchall():
                problem = f"has the same {what} as {table}/{second}: change one of them"
                yield Finding(f"{table}/{first}", problem)

    def _look_for_orphans(self) -> Findings:
        for table, column, parent in REFERENCES:
            orphans = f"NOT EXISTS (SELECT FROM {parent} WHERE {parent}.id = {column})"
            query = f"SELECT DISTINCT {column} FROM {table} WHERE {orphans} ORDER BY 1"
            remove = f"DELETE FROM {table} WHERE {column} = %s AND {orphans}"
            for (parent_id,) in stream(self._connection, query):
                repair = functools.partial(self._remove_orphans, remove, parent_id)
                place = f"{table}/{parent_id}"
                yield Finding(place, f"belongs to no row of {parent}", repair)

    def _remove_orphans(self, statement: str, parent_id: int) -> str:
        self._database.save(statement, [parent_id])
        return "removed"
