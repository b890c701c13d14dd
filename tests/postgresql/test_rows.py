"""Rows of records: `check` finds each kind of damage, and repairs what follows from records."""

from collections.abc import Callable

import psycopg
import pytest
from cached_pictures import generate_picture

from model.errors import BadInstallation, StorageFailed, TooManyClients
from model.kind import DAY_MS, day_of
from model.records import ADMINISTRATOR, PICTURE_SIZES, now_ms
from model.rules import USER_IDS_END
from model.site_records import Invite, OpenIdKey
from storage import Storage
from storage.maintenance import Problem
from storage.postgresql import schema

pytestmark = pytest.mark.postgresql
ADA, BOB, CLEO = 1, 2, 3  # ids; Cleo is deleted
CHESS, GO, INVITE, KEY_ID = "c" * 24, "d" * 24, "e" * 64, "k" * 43  # ids
EDIT = "UPDATE {0} SET record = jsonb_set(record::jsonb, '{{{2}}}', '{3}') WHERE id = '{1}'"
TABLES = ("installation", "users", "deleted_users", "pictures", "clients", "invites", "audit")
TABLES += ("handles", "openid_keys")


class SampleSite:
    """An installation with rows in every table."""

    def __init__(self, store: Storage, run: Callable[..., list[tuple]]) -> None:
        self.store, self.run = store, run
        for name in ("ada", "bob", "cleo"):
            user = store.users.register(name, f"{name}@example.org", "")
            store.audit.write("user add", "command", user=user.id)
        store.users.delete(CLEO)
        with store.users.edit(ADA) as ada:
            ada.mod_level = ADMINISTRATOR
        store.pictures.save(BOB, generate_picture(99))
        store.invites.add(Invite(INVITE, now_ms() + DAY_MS))
        store.handles.of(ada)
        store.openid_keys.add(OpenIdKey(KEY_ID, "a modulus", "a private half", 0, 10**14))
        for name, client_id, owner in (("Chess", CHESS, ADA), ("Go", GO, None)):
            client, _ = store.clients.register(name, [], owner, game_url=f"https://{name}.example")
            run(EDIT.format("clients", client.id, "id", f'"{client_id}"'))
            run("UPDATE clients SET id = %s WHERE id = %s", client_id, client.id)
            store.audit.write("client add", ADA, client=client_id)

    def check(self, repair: bool = False) -> list[Problem]:
        return list(self.store.verify(repair))

    def state(self) -> list[list[tuple]]:
        return [self.run(f"SELECT {each}::text FROM {each} ORDER BY 1") for each in TABLES]


@pytest.fixture
def site(storage, run) -> SampleSite:
    return SampleSite(storage, run)


def test_an_installation_in_order_has_no_problems(site):
    before = site.state()
    assert site.check(repair=True) == []
    assert site.state() == before


# What is repaired: the damage, and the beginning of the problem.
REPAIRED = {
    "UPDATE users SET name = 'x' WHERE id = 1": "users/1 has the keys ['x', 'ada@example.org'",
    "UPDATE users SET email = 'x' WHERE id = 2": "users/2 has the keys ['bob', 'x', None,",
    "UPDATE users SET role = NULL WHERE id = 1": "users/1 has the keys ['ada', 'ada@example.org'",
    f"UPDATE clients SET owner = '2' WHERE id = '{CHESS}'": f"clients/{CHESS} has the keys",
    f"UPDATE clients SET origin = NULL WHERE id = '{GO}'": f"clients/{GO} has the keys [None,",
    "UPDATE handles SET player = NULL": "handles/ada has the keys [None]",
    "UPDATE invites SET day = '1'": f"invites/{INVITE} has the keys ['{INVITE}', 'all', '1']",
    "INSERT INTO deleted_users VALUES (1)": "deleted_users/1 says that users/1, which exists, was",
    "UPDATE installation SET next_user_id = 3": "installation next_user_id is 3, not above 3, the",
    "UPDATE installation SET keys = '{}'": "installation has no signing key",
    "UPDATE installation SET keys = '{a,\"\"}'": "installation has no signing key",
    "UPDATE pictures SET pfp_timestamp = 5": "pictures/2 has the timestamp 5, and its player ",
    "UPDATE pictures SET small = 'x'": "pictures/2 (small) is not a whole webp",
    "UPDATE pictures SET medium = large": "pictures/2 (medium) has 256 x 256 pixels",
    "UPDATE pictures SET large = 'x'": "pictures/2 (large) is not a whole webp",
    EDIT.format("users", ADA, "pfp_timestamp", "-5"): "users/1 pfp_timestamp is not a time",
}


def test_what_follows_from_records_is_repaired(site, subtests):
    for damage, problem in REPAIRED.items():
        with subtests.test(damage):
            site.run(damage)
            before = site.state()
            for repair in (False, True):
                assert site.state() == before
                [found] = site.check(repair)
                assert f"{found.place} {found.problem}".startswith(problem)
                assert bool(found.repaired) == repair
            assert site.check() == []


# What is left: the damage, and the beginning of the problem.
LEFT = {
    EDIT.format("users", ADA, "id", "7"): "users/1 is damaged: its id is 7",
    f"UPDATE clients SET record = '{{}}' WHERE id = '{GO}'": f"clients/{GO} is damaged: ",
    EDIT.format("clients", GO, "redirect_uris", '["x"]'): f"clients/{GO} redirect_uris: ",
    EDIT.format("users", ADA, "play_ms", "-1"): "users/1 play_ms is not a time",
    EDIT.format("users", ADA, "bio", r'"a\u202eb"'): "users/1 bio: This has control characters.",
    "UPDATE audit SET line = '{' WHERE id = 2": "audit/2 is damaged",
    f"UPDATE installation SET next_user_id = {USER_IDS_END + 1}": "installation next_user_id is ",
    f"UPDATE clients SET id = '../x' WHERE id = '{GO}'": "clients/../x is damaged: its id is '",
}


@pytest.mark.parametrize("damage, problem", LEFT.items())
def test_what_only_a_person_can_repair_is_left(site, damage, problem):
    site.run(damage)
    before = site.state()
    [found] = site.check(repair=True)
    assert f"{found.place} {found.problem}".startswith(problem)
    assert found.repaired is None
    assert site.state() == before


def test_a_damaged_record_keeps_its_keys_and_pictures(site):
    site.run("UPDATE users SET record = '{}', name = 'x' WHERE id = 2")
    before = site.state()
    assert [each.place for each in site.check(repair=True)] == ["users/2"]
    assert site.state() == before


def test_repair_takes_no_name_of_another(site):
    site.run(EDIT.format("users", BOB, "name", '"ADA"'))
    [found] = site.check(repair=True)
    assert found.place == "users/2"
    assert "not repaired: " in found.problem
    assert site.store.users.find_by_login("ada").id == ADA


def test_repaired_pictures_have_a_new_address(site):
    old = site.store.users.read(BOB).picture_file
    site.run("UPDATE pictures SET pfp_timestamp = pfp_timestamp - 1")
    site.check(repair=True)
    new = site.store.users.read(BOB).picture_file
    assert new != old
    for size in PICTURE_SIZES:
        assert site.store.pictures.read(size, new)[0] == generate_picture(99)[size]


def test_a_save_during_the_check_is_no_problem(site):
    problems = site.store.verify(repair=True)
    site.run("UPDATE users SET name = 'x' WHERE id = 1")
    found = next(problems)  # in a state that is older than what follows
    assert found.place == "users/1"
    site.store.users.rename(BOB, "Robert")
    client, _ = site.store.clients.register("New", [], BOB)
    site.store.audit.write("client add", BOB, client=client.id)
    site.store.clients.delete(GO)
    assert list(problems) == []
    assert site.check() == []


def test_problem_gone_before_its_repair_stays_unrepaired(site):
    """A repair looks again under the lock of the row."""
    site.run("UPDATE users SET name = name || 'x'")
    problems = site.store.verify(repair=True)
    assert next(problems).place == "users/1"
    site.run("UPDATE users SET name = 'bob' WHERE id = 2")
    assert list(problems) == []


def test_a_lost_installation_is_an_error_of_one_line(site):
    site.run("DELETE FROM installation")
    site.store.close()
    with pytest.raises(BadInstallation, match="^the table installation of the database has no"):
        site.check()


# -- damaged rows, a table that is lost, and the log in the same transaction ---------------------

LIMIT = 3


@pytest.fixture
def clients(storage) -> list[str]:
    """The ids of as many clients of one owner as there may be."""
    return sorted(storage.clients.register("Game", [], 7)[0].id for _ in range(LIMIT))


def damage(run, client_id: str) -> None:
    run("UPDATE clients SET record = '{}' WHERE id = %s", client_id)


def test_a_damaged_client_gives_its_owner_room_for_one_more(storage, run, clients):
    damage(run, clients[0])
    storage.clients.register("Game", [], 7, at_most=LIMIT)
    with pytest.raises(TooManyClients):
        storage.clients.register("Game", [], 7, at_most=LIMIT)


@pytest.mark.parametrize("user_id", [0, 2**70])
def test_number_that_was_never_given_is_no_id(storage, user_id):
    assert storage.users.find(user_id) is None
    assert storage.users.existing([user_id, 1]) == set()


def test_a_table_that_is_lost_is_not_made_again(storage, run, open_installation):
    """Else players would sign up, and their ids be those of others in the backup."""
    storage.users.register("Ada", "ada@example.org", "")
    run("DROP TABLE users CASCADE")
    again = open_installation()
    with pytest.raises(StorageFailed, match="users"):
        again.users.register("Zoe", "zoe@example.org", "")


def test_line_of_an_act_that_cannot_be_saved_is_not_there(storage, run):
    ada = storage.users.register("Ada", "ada@example.org", "")
    run("ALTER TABLE users ADD CHECK (name <> 'grace')")
    with pytest.raises(StorageFailed):
        storage.users.rename(
            ada.id, "Grace", lambda user: storage.audit.write("user set", 9, user=user.id)
        )
    assert [*storage.audit.read(), *storage.audit.about({ada.id})] == []


def test_older_database_gets_the_table_of_who_plays(storage, run, open_installation):
    run("DROP TABLE playing, reports")
    run("UPDATE installation SET kinds = array_remove(kinds, 'reports')")
    again = open_installation()
    again.playing.note(1, "a" * 24)
    assert again.playing.now() == {1: "a" * 24}
    assert run("SELECT relpersistence FROM pg_class WHERE relname = 'playing'") == [("u",)]
    assert run("SELECT indexname FROM pg_indexes WHERE indexname = 'playing_at'")


def test_older_database_gets_new_keys(storage, run, database_url, open_installation, monkeypatch):
    """The rows are filled some at a time; a process that finds another at it leaves them to it."""
    monkeypatch.setattr(schema, "FILLED_AT_ONCE", 2)
    users = [storage.users.register(name, "", "") for name in ("Ada", "Bob", "Cleo")]
    run("ALTER TABLE users DROP COLUMN joined, DROP COLUMN played")
    run("UPDATE installation SET kinds = array_remove(kinds, 'users.joined')")
    lock = "SELECT pg_advisory_xact_lock(-4)"
    with psycopg.connect(database_url) as other:
        other.execute(lock)
        assert open_installation().users.number() == 3  # it serves meanwhile
        assert run("SELECT DISTINCT joined FROM users") == [(None,)]
    again = open_installation()
    day = day_of(users[0].created)
    assert again.users.between("joined", day, day, newest_first=False) == users
    assert run("SELECT 'users.joined' = ANY (kinds) FROM installation") == [(True,)]
    assert list(again.verify()) == []


def test_table_of_who_plays_that_is_lost_fails_nobody(storage, run):
    run("DROP TABLE playing")
    storage.playing.note(1, None)
    assert storage.playing.now() == {}


def test_players_who_left_are_removed_from_the_table(storage, run, open_installation):
    storage.playing.note(1, None)
    run("UPDATE playing SET at = 1")
    again = open_installation()  # one process removes some once a minute
    again.playing.note(2, None)
    assert run("SELECT user_id FROM playing") == [(2,)]
