"""The faults of each backend: they fail what they name, and nothing else."""

import pytest

from storage.errors import StorageFailed
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
    for refused in (kind, "everything"):
        faults.refuse_saves(refused)
        for _ in range(2):
            with pytest.raises(StorageFailed):
                CHANGES[kind](storage, *ids)
        assert storage.users.read(ids[0]) == before
        faults.allow_saves()
    CHANGES[kind](storage, *ids)


def test_saved_version_of_user_changes_with_each_save(storage, faults, ids):
    before = faults.saved_version_of_user(ids[0])
    storage.users.read(ids[0])
    assert faults.saved_version_of_user(ids[0]) == before
    change_bio(storage, ids[0])
    assert faults.saved_version_of_user(ids[0]) != before
