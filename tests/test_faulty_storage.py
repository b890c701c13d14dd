"""The faults of each backend: they fail what they name, and nothing else."""

import pytest

from storage.errors import DamagedRecord, NoSuchUser, StorageFailed, TooManyAttempts
from storage.records import PICTURE_SIZES, AuthorizationCode

PICTURE = dict.fromkeys(PICTURE_SIZES, b"webp")
CODE = AuthorizationCode("a" * 24, 1, "a grant", ["userinfo"], None, None)
# Each kind of change: what makes it, with a storage, and the ids of a user and of a client.
CHANGES = {
    "users": lambda store, user_id, client_id: change_bio(store, user_id),
    "pictures": lambda store, user_id, client_id: store.pictures.save(user_id, PICTURE),
    "accounts": lambda store, user_id, client_id: store.users.rename(user_id, "Grace"),
    "clients": lambda store, user_id, client_id: store.clients.issue_secret(client_id),
    "audit": lambda store, user_id, client_id: store.audit.write("backup", "command"),
    "codes": lambda store, user_id, client_id: store.codes.add("new", CODE),
    "attempts": lambda store, user_id, client_id: store.attempts.count("password", "ada", 99),
    "used codes": lambda store, user_id, client_id: store.codes.spend("old"),
}


def change_bio(store, user_id: int) -> None:
    with store.users.edit(user_id) as user:
        user.bio += "more"


@pytest.fixture
def ids(storage) -> tuple[int, str]:
    """The ids of a user and of a client."""
    storage.codes.add("old", CODE)
    user = storage.users.register("Ada", "ada@example.org", "a hash")
    return user.id, storage.clients.register("Chess", ["https://chess.example/"], None)[0].id


@pytest.mark.parametrize("kind", CHANGES)
def test_refused_saves_fail_until_they_are_allowed(storage, faults, ids, kind):
    before = storage.users.read(ids[0])
    faults.refuse_saves(kind)
    for _ in range(2):
        with pytest.raises(StorageFailed):
            CHANGES[kind](storage, *ids)
    assert storage.users.read(ids[0]) == before
    faults.allow_saves()
    CHANGES[kind](storage, *ids)


def test_everything_is_refused_at_once(storage, faults, ids, subtests):
    faults.refuse_saves("everything")
    for kind in CHANGES:
        with subtests.test(kind=kind), pytest.raises(StorageFailed):
            CHANGES[kind](storage, *ids)
    faults.allow_saves()
    for kind in CHANGES:
        with subtests.test(kind=kind):
            CHANGES[kind](storage, *ids)


def test_each_damage_makes_a_record_unreadable(storage, faults, ids, subtests):
    user_id, client_id = ids
    before = storage.users.read(user_id)
    for damage in faults.DAMAGES:
        with subtests.test(damage=damage):
            faults.damage_user(user_id, damage)
            with pytest.raises(DamagedRecord):
                storage.users.read(user_id)
            faults.damage_client(client_id, damage)
            with pytest.raises(DamagedRecord):
                storage.clients.read(client_id)
    faults.repair_user(user_id)
    assert storage.users.read(user_id) == before
    faults.remove_user(user_id)
    with pytest.raises(NoSuchUser):
        storage.users.read(user_id)


def test_changed_values_are_read(storage, faults, ids):
    faults.change_client(ids[1], name="")
    assert storage.clients.read(ids[1]).name == ""
    faults.replace_keys(b"one", b"two")
    assert storage.keys.current() == (b"one", b"two")


def test_damaged_audit_log_raises_after_the_last_line(storage, faults, ids):
    storage.audit.write("user suspend", "command", user=ids[0])
    faults.damage_audit_log()
    for lines in (storage.audit.read(), storage.audit.about({ids[0]})):
        assert next(lines)["act"] == "user suspend"
        with pytest.raises(DamagedRecord):
            next(lines)


def test_stored_text_has_what_was_saved(storage, faults, ids):
    assert "ada@example.org" in faults.stored_text()
    assert "grace@example.org" not in faults.stored_text()
    storage.users.register("Grace", "grace@example.org", "another hash")
    assert "grace@example.org" in faults.stored_text()


def test_saved_version_of_user_changes_with_each_save(storage, faults, ids):
    before = faults.saved_version_of_user(ids[0])
    storage.users.read(ids[0])
    assert faults.saved_version_of_user(ids[0]) == before
    change_bio(storage, ids[0])
    assert faults.saved_version_of_user(ids[0]) != before


def test_attempt_counts_are_those_of_each_subject(storage, faults):
    for subject in ("ada", "bob", "bob"):
        storage.attempts.count("password", subject, limit=9)
    with pytest.raises(TooManyAttempts):
        storage.attempts.count("password", "ada", limit=1)
    assert faults.attempt_counts() == [1, 2]
