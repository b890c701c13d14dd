"""The faults of flat files: they fail what they name, and nothing else."""

import pytest

from model.errors import StorageFailed
from model.records import PICTURE_SIZES, AuthorizationCode
from storage import Storage

CODE = AuthorizationCode("a" * 24, 1, "a grant", ["userinfo"], None, None)


def change_bio(store: Storage, user_id: int) -> None:
    with store.users.edit(user_id) as user:
        user.bio += "more"


def test_refused_saves_fail_until_they_are_allowed(storage, faults, subtests):
    storage.codes.add("old", CODE)
    ada = storage.users.register("Ada", "ada@example.org", "a hash")
    client, _ = storage.clients.register("Chess", ["https://chess.example/"], None)
    changes = {
        "users": lambda: change_bio(storage, ada.id),
        "pictures": lambda: storage.pictures.save(ada.id, dict.fromkeys(PICTURE_SIZES, b"webp")),
        "accounts": lambda: storage.users.rename(ada.id, "Grace"),
        "clients": lambda: storage.clients.issue_secret(client.id),
        "audit": lambda: storage.audit.write("backup", "command"),
        "codes": lambda: storage.codes.add("new", CODE),
        "attempts": lambda: storage.attempts.count("password", "ada", 99),
        "used codes": lambda: storage.codes.spend("old"),
    }
    for kind, change in changes.items():
        with subtests.test(kind):
            before = storage.users.read(ada.id)
            for refused in (kind, "everything"):
                faults.refuse_saves(refused)
                for _ in range(2):
                    with pytest.raises(StorageFailed):
                        change()
                assert storage.users.read(ada.id) == before
                faults.allow_saves()
            change()
