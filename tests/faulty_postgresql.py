"""Faults in a database, made behind the server's back: the methods of `FlatFileFaults`."""

import json
import time

import psycopg
from psycopg import sql

from storage.pictures import generate_picture
from storage.postgresql.keys import BELIEVED
from storage.records import PICTURE_SIZES

# Each kind of change that can be made to fail: the statements that a trigger then refuses.
REFUSED = {
    "users": ["UPDATE ON users"],
    "pictures": ["INSERT OR UPDATE OR DELETE ON pictures"],
    "accounts": ["INSERT OR DELETE OR UPDATE OF name, email ON users"],
    "clients": ["INSERT OR UPDATE OR DELETE ON clients"],
    "audit": ["INSERT ON audit"],
    "codes": ["INSERT ON codes"],
    "attempts": ["INSERT OR UPDATE OR DELETE ON attempts"],
    "used codes": ["UPDATE ON codes"],
    "health": ["UPDATE ON health"],
}
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE 'input/output error' USING ERRCODE = 'io_error'; END $$
"""
# What `take_away` renames. Without its column of keys, the rest of an installation can be read.
PARTS = {
    "users": ("ALTER TABLE users RENAME TO {0}", "users"),
    "pictures": ("ALTER TABLE pictures RENAME TO {0}", "pictures"),
    "keys": ("ALTER TABLE installation RENAME {1} TO {0}", "keys"),
}
TABLES = """
SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
"""


class PostgreSQLFaults:
    """Faults in the rows of a database, made through a connection of their own."""

    REFUSAL = "the database refuses"
    # The column has no text that is not JSON.
    DAMAGES = {
        "truncated": '"{\\"id\\": "',
        "empty": '""',
        "incomplete": "{}",
        "only an id": '{"id": 1}',
        "another id": '{"id": 2}',
        "not an object": "[]",
        "null": "null",
        "half a surrogate pair": '{"id": 1, "name": "\\ud800"}',
    }

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._originals: dict[int, str] = {}  # records of damaged users, by id
        self._refused: list[tuple[str, str]] = []  # triggers and their tables

    def _run(self, query: str, *values: object) -> list[tuple]:
        cursor = self._connection.execute(query, values or None)
        return cursor.fetchall() if cursor.description else []

    # -- records that are damaged, changed or gone ----------------------------------------------

    def damage_user(self, user_id: int, damage: str = "truncated") -> None:
        [(record,)] = self._run("SELECT record::text FROM users WHERE id = %s", user_id)
        self._originals.setdefault(user_id, record)
        self._run("UPDATE users SET record = %s WHERE id = %s", self.DAMAGES[damage], user_id)

    def damage_client(self, client_id: str, damage: str = "truncated") -> None:
        self._run("UPDATE clients SET record = %s WHERE id = %s", self.DAMAGES[damage], client_id)

    def repair_user(self, user_id: int) -> None:
        record = self._originals.pop(user_id)
        self._run("UPDATE users SET record = %s WHERE id = %s", record, user_id)

    def change_client(self, client_id: str, **values: object) -> None:
        [(record,)] = self._run("SELECT record FROM clients WHERE id = %s", client_id)
        changed = json.dumps(record | values)
        self._run("UPDATE clients SET record = %s WHERE id = %s", changed, client_id)

    def remove_client_fields(self, client_id: str, *names: str) -> None:
        [(record,)] = self._run("SELECT record FROM clients WHERE id = %s", client_id)
        kept = json.dumps({name: each for name, each in record.items() if name not in names})
        self._run("UPDATE clients SET record = %s WHERE id = %s", kept, client_id)

    def remove_user(self, user_id: int) -> None:
        with self._connection.transaction():
            # The pictures stay: no trigger of a foreign key runs.
            self._run("SET LOCAL session_replication_role = replica")
            self._run("DELETE FROM users WHERE id = %s", user_id)

    def add_audit_line(self, line: str) -> None:
        self._run("INSERT INTO audit (line) VALUES (%s)", line.encode())

    def damage_audit_log(self) -> None:
        self.add_audit_line("no JSON")

    def replace_keys(self, *keys: bytes) -> None:
        """Store these signing keys, the newest last; return when every process has them."""
        self._run("UPDATE installation SET keys = %s", [key.decode() for key in keys])
        time.sleep(BELIEVED)

    def take_away(self, part: str) -> None:
        statement, name = PARTS[part]
        self._run(statement.format(f"{name}_aside", name))
        if part == "keys":
            time.sleep(BELIEVED)

    def put_back(self, part: str) -> None:
        statement, name = PARTS[part]
        self._run(
            statement.replace(f"TABLE {name}", f"TABLE {name}_aside").format(name, f"{name}_aside")
        )

    def user_place(self, user_id: int) -> str:
        return f"users/{user_id}"

    def audit_line_place(self, number: int) -> str:
        return f"line {number},"

    # -- changes that fail ----------------------------------------------------------------------

    def refuse_saves(self, *kinds: str) -> None:
        if "everything" in kinds:
            kinds = tuple(kind for kind in REFUSED if kind != "health")
        if not self._refused:
            self._run(REFUSE)
        for kind in kinds:
            for statements in REFUSED[kind]:
                trigger = sql.Identifier(f"refuse {kind}")
                table = statements.rpartition(" ")[2]
                if (trigger, table) not in self._refused:
                    self._refused.append((trigger, table))
                    self._run(
                        sql.SQL(
                            "CREATE TRIGGER {} BEFORE " + statements + " EXECUTE FUNCTION refuse()"
                        ).format(trigger)
                    )

    def allow_saves(self) -> None:
        if self._refused:
            self._run("DROP FUNCTION refuse CASCADE")
        self._refused.clear()

    # -- what is stored -------------------------------------------------------------------------

    def stored(self, *parts: str) -> dict[str, bytes]:
        """Return every row but that of `health`, which only the health check uses.

        Pictures that are generated when they are read count as stored. A name is in the row of its
        user.
        """
        found = {}
        for (table,) in self._run(TABLES):
            if parts and table not in parts:
                continue
            if table == "pictures":
                found |= self._stored_pictures()
            elif table != "health":
                rows = self._run(f"SELECT {table}::text FROM {table} ORDER BY 1")
                found |= {f"{table}/{n}": row.encode() for n, (row,) in enumerate(rows)}
        return found

    def _stored_pictures(self) -> dict[str, bytes]:
        found = {}
        for user_id, timestamp, *images in self._run(
            "SELECT id, (record ->> 'pfp_timestamp')::bigint, large, medium, small "
            "FROM users LEFT JOIN pictures ON user_id = id"
        ):
            name = f"{user_id}.webp" if timestamp is None else f"{user_id}-{timestamp}.webp"
            files = dict(zip(("large", "medium", "small"), images, strict=True))
            if None in images:
                files = generate_picture(user_id)
            found |= {f"{size}/{name}": files[size] for size in PICTURE_SIZES}
        return found

    def stored_text(self) -> str:
        return "\n".join(
            f"{place}\n{content.decode(errors='backslashreplace')}"
            for place, content in sorted(self.stored().items())
        )

    def attempt_counts(self) -> list[int]:
        query = "SELECT sum(count)::int FROM attempts GROUP BY subject HAVING sum(count) > 0"
        return sorted(count for (count,) in self._run(query))

    def saved_version_of_user(self, user_id: int) -> tuple:
        query = "SELECT xmin::text, ctid::text, record::text FROM users WHERE id = %s"
        return self._run(query, user_id)[0]
