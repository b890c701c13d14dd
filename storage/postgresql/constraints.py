"""The constraints and indexes of the tables: finding the missing ones, and adding them.

A database that was restored by hand may lack some. Nothing fails then, until two players have one
name. A test compares these lists with the tables that a first start makes.
"""

from collections.abc import Iterator

from storage import Problem, StorageError
from storage.postgresql.connections import Database

CONSTRAINTS = {  # by table and name
    ("installation", "installation_pkey"): "PRIMARY KEY (one)",
    ("installation", "installation_one_check"): "CHECK (one)",
    ("users", "users_pkey"): "PRIMARY KEY (id)",
    ("users", "users_name_key_key"): "UNIQUE (name_key)",
    ("users", "users_email_key_key"): "UNIQUE (email_key)",
    ("deleted_users", "deleted_users_pkey"): "PRIMARY KEY (id)",
    ("pictures", "pictures_pkey"): "PRIMARY KEY (user_id)",
    ("pictures", "pictures_user_id_fkey"): (
        "FOREIGN KEY (user_id) REFERENCES users(id) ON DELETE CASCADE"
    ),
    ("clients", "clients_pkey"): "PRIMARY KEY (id)",
    ("clients", "clients_game_origin_key"): "UNIQUE (game_origin)",
    ("invites", "invites_pkey"): "PRIMARY KEY (hash)",
    ("audit", "audit_pkey"): "PRIMARY KEY (id)",
    ("audit_subjects", "audit_subjects_pkey"): "PRIMARY KEY (subject, audit_id)",
    ("audit_subjects", "audit_subjects_audit_id_fkey"): (
        "FOREIGN KEY (audit_id) REFERENCES audit(id) ON DELETE CASCADE"
    ),
    ("health", "health_pkey"): "PRIMARY KEY (one)",
    ("health", "health_one_check"): "CHECK (one)",
    ("codes", "codes_pkey"): "PRIMARY KEY (hash)",
    ("attempts", "attempts_pkey"): "PRIMARY KEY (subject, number)",
}
INDEXES = {
    ("users", "users_administrators"): "(id) WHERE administers",
    ("clients", "clients_owner_id"): "(owner_id, id)",
    ("clients", "clients_games"): "(listed, id) WHERE (listed IS NOT NULL)",
}
ADD = {
    ("constraint", name): f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}"
    for (table, name), definition in CONSTRAINTS.items()
} | {
    ("index", name): f"CREATE INDEX {name} ON {table} {definition}"
    for (table, name), definition in INDEXES.items()
}
PRESENT = """
    SELECT conname::text FROM pg_constraint
    WHERE connamespace = current_schema::regnamespace AND convalidated
    UNION SELECT relname::text FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid
    WHERE relnamespace = current_schema::regnamespace AND indisvalid
"""


def check_constraints(database: Database, repair: bool) -> Iterator[Problem]:
    """Yield each constraint and index that is missing; with `repair`, add it."""
    present = {name for (name,) in database.execute(PRESENT)}
    for (kind, name), statement in ADD.items():
        if name not in present:
            yield _add(database, f"the {kind} {name}", statement, repair)


def _add(database: Database, place: str, statement: str, repair: bool) -> Problem:
    problem = "is missing"
    if not repair:
        return Problem(place, problem)
    try:
        with database.own_transaction() as connection:
            connection.execute(statement)
    except StorageError as error:
        return Problem(place, f"{problem}; not repaired: {error}")
    return Problem(place, problem, "added")
