"""`check` on PostgreSQL: each kind of damage is found, and what follows from records repaired."""

from collections.abc import Iterator

import psycopg
import pytest
from cached_pictures import generate_picture

from storage import ADMINISTRATOR, PICTURE_SIZES, BadInstallation, Problem, StorageError
from storage.postgresql.backend import PostgreSQL
from storage.rules import USER_IDS_END

pytestmark = pytest.mark.postgresql
ADA, BOB, CLEO = 1, 2, 3  # ids; Cleo is deleted
CHESS, GO = "c" * 24, "d" * 24  # ids
EDIT = "UPDATE {0} SET record = jsonb_set(record::jsonb, '{{{2}}}', '{3}') WHERE id = '{1}'"


class SampleSite:
    """An installation with rows in every table."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = store = PostgreSQL(url)
        for name in ("ada", "bob", "cleo"):
            user = store.add_user(name, f"{name}@example.org", "")
            store.write_audit("user add", "command", user=user.id)
        store.delete_user(CLEO)
        with store.edit_user(ADA) as ada:
            ada.mod_level = ADMINISTRATOR
        store.save_picture(BOB, generate_picture(99))
        for name, client_id, owner in (("Chess", CHESS, ADA), ("Go", GO, None)):
            client, _ = store.add_client(name, [], owner, game_url=f"https://{name}.example")
            self.run(
                "UPDATE clients SET id = %s, record = jsonb_set(record::jsonb, '{id}', %s) "
                "WHERE id = %s",
                client_id,
                f'"{client_id}"',
                client.id,
            )
            store.write_audit("client add", ADA, client=client_id)

    def run(self, statement: str, *args: object) -> list[tuple]:
        """Run a statement behind the server's back; return the rows."""
        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(statement, args or None)
            return cursor.fetchall() if cursor.description else []

    def check(self, repair: bool = False) -> list[Problem]:
        return list(self.store.verify(repair))

    def state(self) -> list[tuple]:
        """Return every row."""
        tables = ("installation", "users", "deleted_users", "pictures", "clients")
        tables += ("audit", "audit_subjects")
        return [self.run(f"SELECT {each}::text FROM {each} ORDER BY 1") for each in tables]


@pytest.fixture
def site(database_url) -> Iterator[SampleSite]:
    site = SampleSite(database_url)
    yield site
    site.store.close()


def test_an_installation_in_order_has_no_problems(site):
    before = site.state()
    assert site.check(repair=True) == []
    assert site.state() == before


# The statement that does the damage; the place, the beginning of the problem, what was done.
REPAIRED = {
    "a name key": (
        "UPDATE users SET name_key = 'x' WHERE id = 1",
        ("users/1", "has the keys ['x', 'ada@example.org', True], and its record ['ada',", "set"),
    ),
    "an email key": (
        "UPDATE users SET email_key = 'x' WHERE id = 2",
        ("users/2", "has the keys ['bob', 'x', False], and its record ['bob', 'bob@", "set"),
    ),
    "an administrator who is not found": (
        "UPDATE users SET administers = false WHERE id = 1",
        ("users/1", "has the keys ['ada', 'ada@example.org', False]", "set"),
    ),
    "an owner": (
        f"UPDATE clients SET owner_id = 2 WHERE id = '{CHESS}'",
        (f"clients/{CHESS}", "has the keys [2, 'https://chess.example', False]", "set"),
    ),
    "a game's origin": (
        f"UPDATE clients SET game_origin = NULL, listed = NULL WHERE id = '{GO}'",
        (f"clients/{GO}", "has the keys [None, None, None]", "set"),
    ),
    "a listed game": (
        f"UPDATE clients SET listed = true WHERE id = '{GO}'",
        (f"clients/{GO}", "has the keys [None, 'https://go.example', True]", "set"),
    ),
    "a hidden character in a bio": (
        EDIT.format("users", ADA, "bio", r'"a\u202eb"'),
        ("users/1", "has characters in its bio that show nothing", "removed"),
    ),
    "a deleted id that exists": (
        "INSERT INTO deleted_users VALUES (1)",
        ("deleted_users/1", "says that users/1, which exists, was deleted", "removed"),
    ),
    "the next id": (
        "UPDATE installation SET next_user_id = 3",
        ("installation", "next_user_id is 3, not above 3, the largest id", "raised to 4"),
    ),
    "no key": (
        "UPDATE installation SET keys = '{}'",
        ("installation", "has no signing key", "made: everyone signs in again"),
    ),
    "an empty key": (
        "UPDATE installation SET keys = '{a,\"\"}'",
        ("installation", "has no signing key", "made: everyone signs in again"),
    ),
    "a picture's time": (
        "UPDATE pictures SET pfp_timestamp = 5",
        ("pictures/2", "has the timestamp 5, and its player ", "moved to a new address"),
    ),
    "a small picture": (
        "UPDATE pictures SET small = 'x'",
        ("pictures/2", "(small) is not a whole webp", "made again from the large picture"),
    ),
    "a picture of another size": (
        "UPDATE pictures SET medium = large",
        ("pictures/2", "(medium) has 256 x 256 pixels", "made again from the large picture"),
    ),
    "a large picture": (
        "UPDATE pictures SET large = 'x'",
        ("pictures/2", "(large) is not a whole webp", "replaced by a generated picture"),
    ),
    "a user's picture time": (
        EDIT.format("users", ADA, "pfp_timestamp", "-5"),
        ("users/1", "pfp_timestamp is not a time", "replaced by a generated picture"),
    ),
    "a subject that is missing": (
        "DELETE FROM audit_subjects WHERE subject = '2'",
        ("audit/2", "is indexed for [], and is about ['2']", "indexed again"),
    ),
    "a subject that is wrong": (
        "INSERT INTO audit_subjects VALUES ('9', 1)",
        ("audit/1", "is indexed for ['1', '9'], and is about ['1']", "indexed again"),
    ),
    "the subject of a client that is gone": (
        f"DELETE FROM clients WHERE id = '{GO}'",
        ("audit/5", f"is indexed for ['1', '{GO}'], and is about ['1']", "indexed again"),
    ),
    "a picture of nobody": (
        "ALTER TABLE pictures DISABLE TRIGGER ALL; UPDATE pictures SET user_id = 9",
        ("pictures/9", "belongs to no row of users", "removed"),
    ),
}


@pytest.mark.parametrize("damage, problem", REPAIRED.values(), ids=REPAIRED)
def test_what_follows_from_records_is_repaired(site, damage, problem):
    site.run(damage)
    before = site.state()
    place, text, done = problem
    [found] = site.check()
    assert (found.place, found.repaired) == (place, None)
    assert found.problem.startswith(text)
    assert site.state() == before
    [found] = site.check(repair=True)
    assert found.place == place
    assert found.repaired.startswith(done)
    assert site.check() == []


# The statement that does the damage, the place, the beginning of the problem.
LEFT = {
    "a record of other JSON": (
        "UPDATE users SET record = '[1]' WHERE id = 1",
        "users/1",
        "is damaged: ",
    ),
    "a record of another id": (
        EDIT.format("users", ADA, "id", "7"),
        "users/1",
        "is damaged: its id is 7",
    ),
    "a client's record": (
        f"UPDATE clients SET record = '{{}}' WHERE id = '{GO}'",
        f"clients/{GO}",
        "is damaged: ",
    ),
    "a bad field": (
        EDIT.format("clients", GO, "redirect_uris", '["x"]'),
        f"clients/{GO}",
        "redirect_uris: ",
    ),
    "a time": (EDIT.format("users", ADA, "created", "-1"), "users/1", "created is not a time"),
    "a secret": (
        EDIT.format("clients", GO, "secret_sha256", '"x"'),
        f"clients/{GO}",
        "secret_sha256: This is not a SHA-256.",
    ),
    "a line of the audit log": (
        "UPDATE audit SET line = '{' WHERE id = 2",
        "audit/2",
        "is damaged",
    ),
    "a next id that is too large": (
        f"UPDATE installation SET next_user_id = {USER_IDS_END + 1}",
        "installation",
        "next_user_id is ",
    ),
    "an id that is never given": (
        f"INSERT INTO deleted_users VALUES ({USER_IDS_END})",
        f"deleted_users/{USER_IDS_END}",
        "is of an id that is never given",
    ),
    "an id of another form": (
        f"UPDATE clients SET id = '../x' WHERE id = '{GO}'; "
        f"DELETE FROM audit_subjects WHERE subject = '{GO}'",
        "clients/'../x'",
        "has an id that no client has",
    ),
}


@pytest.mark.parametrize("damage, place, problem", LEFT.values(), ids=LEFT)
def test_what_only_a_person_can_repair_is_left(site, damage, place, problem):
    site.run(damage)
    before = site.state()
    [found] = site.check(repair=True)
    assert (found.place, found.repaired) == (place, None)
    assert found.problem.startswith(problem)
    assert site.state() == before


def test_a_damaged_record_keeps_its_keys_and_pictures(site):
    site.run("UPDATE users SET record = '{}', name_key = 'x' WHERE id = 2")
    before = site.state()
    assert [each.place for each in site.check(repair=True)] == ["users/2"]
    assert site.state() == before


def test_a_repair_that_would_take_the_name_of_another_is_not_done(site):
    site.run(EDIT.format("users", BOB, "name", '"ADA"'))
    [found] = site.check(repair=True)
    assert found.place == "users/2"
    assert "not repaired: " in found.problem
    assert site.store.find_user("ada").id == ADA


def test_repaired_pictures_have_a_new_address(site):
    old = site.store.read_user(BOB).picture_file
    site.run("UPDATE pictures SET pfp_timestamp = pfp_timestamp - 1")
    site.check(repair=True)
    new = site.store.read_user(BOB).picture_file
    assert new != old
    for size in PICTURE_SIZES:
        assert site.store.read_picture(size, new)[0] == generate_picture(99)[size]


def test_a_save_during_the_check_is_no_problem(site):
    problems = site.store.verify(repair=True)
    site.run("UPDATE users SET name_key = 'x' WHERE id = 1")
    found = next(problems)  # in a state that is older than what follows
    assert found.place == "users/1"
    site.store.rename_user(BOB, "Robert")
    client, _ = site.store.add_client("New", [], BOB)
    site.store.write_audit("client add", BOB, client=client.id)
    site.store.delete_client(GO)
    assert list(problems) == []
    assert site.check() == []


def test_a_problem_that_is_gone_before_its_repair_is_not_repaired(site):
    """A repair looks again under the lock of the row."""
    site.run("UPDATE users SET name_key = name_key || 'x'")
    problems = site.store.verify(repair=True)
    assert next(problems).place == "users/1"
    site.run("UPDATE users SET name_key = 'bob' WHERE id = 2")
    assert list(problems) == []


def test_progress_tells_how_many_rows_were_read(site):
    told = []
    list(site.store.verify(progress=lambda *numbers: told.append(numbers)))
    assert told == [(0, 10)]


# -- constraints and indexes -----------------------------------------------------------------------


def definitions(site: SampleSite) -> set[tuple]:
    constraints = site.run("SELECT conname::text, pg_get_constraintdef(oid) FROM pg_constraint")
    indexes = site.run(
        "SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'public'"
    )
    return {*constraints, *indexes}


def test_every_missing_constraint_and_index_is_found_and_added(site):
    """Those that a first start makes are those that the check knows, with the same definitions."""
    needed = definitions(site)
    rows = site.run(
        "SELECT conrelid::regclass::text, conname::text FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace ORDER BY contype = 'p', conname"
    )
    for table, name in rows:
        site.run(f"ALTER TABLE {table} DROP CONSTRAINT {name} CASCADE")
    names = {name for _, name in rows}
    for (name,) in site.run("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'"):
        site.run(f"DROP INDEX {name}")
        names.add(name)
    site.store.close()
    site.store = PostgreSQL(site.url)
    found = site.check()
    assert {each.place.split()[-1] for each in found} == names
    assert len(found) == len(names)
    assert {each.repaired for each in site.check(repair=True)} == {"added"}
    assert definitions(site) == needed
    assert site.check() == []


def test_duplicates_without_a_constraint_are_found(site):
    site.run("ALTER TABLE users DROP CONSTRAINT users_name_key_key")
    site.run(EDIT.format("users", BOB, "name", '"ADA"'))
    site.run("UPDATE users SET name_key = 'ada'")
    found = site.check(repair=True)
    assert found[0] == Problem("users/1", "has the same name as users/2: change one of them")
    assert found[1].place == "the constraint users_name_key_key"
    assert found[1].problem.startswith("is missing; not repaired: ")


def test_a_lost_installation_is_an_error_of_one_line(site):
    site.run("DELETE FROM installation")
    site.store.close()
    with pytest.raises(BadInstallation, match="^the table installation of the database has no"):
        site.check()
    site.run("DROP TABLE installation")  # else the next test of this process would get it


def test_a_lost_table_is_an_error_of_one_line(site):
    site.run("DROP TABLE audit CASCADE")
    with pytest.raises(StorageError, match="audit"):
        site.check()
