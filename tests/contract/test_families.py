"""Families of refresh tokens: which records stay, where their player's grants name them."""

import pytest
from archives import A_HASH

from model.errors import DamagedRecord
from model.grant_records import Family
from model.kind import DAY_MS
from model.kinds import FAMILIES
from model.records import GRANTS_KEPT, Grant, User, now_ms
from storage import Storage
from storage.whole.archive import backup, restore
from storage.whole.copying import copy

from .base import ids_of


def add_families(storage: Storage, user_id: int, client_id: str, *letters: str) -> list[str]:
    """Add a family for each letter, let a grant name them, and return their ids."""
    now, ids = now_ms(), [16 * each for each in letters]
    for each in ids:
        family = Family(each, user_id, client_id, "", [], "", now, now + DAY_MS, "salt", "hash")
        storage.records(FAMILIES).add(family)
    with storage.users.edit(user_id) as user:
        user.grants.setdefault(client_id, Grant("a grant", ["userinfo"], now)).families += ids
    return ids


@pytest.fixture
def clients(storage) -> list[str]:
    return ids_of(storage.clients.register("Game", [], None)[0] for _ in range(3))


@pytest.fixture
def ada(storage) -> User:
    return storage.users.register("Ada", "ada@example.org", A_HASH)  # a backup needs a real one


class TestFamilies:
    def test_edit_removes_what_no_grant_names_any_more(self, storage, ada, bob, clients):
        families, (game, chess, go) = storage.records(FAMILIES), clients
        add_families(storage, ada.id, game, "a", "b")
        add_families(storage, ada.id, chess, "c")
        add_families(storage, ada.id, go, "d")
        add_families(storage, bob.id, game, "e", "f")
        left = set(families.ids())
        with pytest.raises(ZeroDivisionError), storage.users.edit(ada.id) as user:
            user.grants.clear()
            raise ZeroDivisionError
        assert set(families.ids()) == left
        with storage.users.edit(ada.id) as user:
            user.grants[game].families.remove(16 * "a")
        assert set(families.ids()) == (left := left - {16 * "a"})
        with storage.users.edit(ada.id) as user:
            del user.grants[chess]
        assert set(families.ids()) == (left := left - {16 * "c"})
        storage.clients.delete(go)
        with storage.users.edit(ada.id) as user:
            user.bio = "a save drops the grants of clients that are gone"
        assert set(families.ids()) == (left := left - {16 * "d"})
        storage.users.delete(bob.id)
        assert families.ids() == [16 * "b"] == list(storage.users.read(ada.id).families)

    def test_families_of_the_oldest_grant_of_too_many_go(self, storage, ada, clients, monkeypatch):
        """Else a member could fill the disk."""
        monkeypatch.setattr("model.records.GRANTS_KEPT", 2)
        assert GRANTS_KEPT > 2
        for client_id, letter in zip(clients, "abc", strict=True):
            add_families(storage, ada.id, client_id, letter)
        assert storage.records(FAMILIES).ids() == [16 * "b", 16 * "c"]

    def test_damaged_family_stops_no_check_copy_or_backup(
        self, storage, ada, clients, stored, empty, tmp_path
    ):
        damaged, whole = add_families(storage, ada.id, clients[0], "a", "b")
        stored.damage("families", damaged)
        with pytest.raises(DamagedRecord):
            storage.records(FAMILIES).read(damaged)
        assert list(storage.verify()) == []
        backup(storage, str(tmp_path / "backup.tar.gz"), "command")
        copy(storage, empty)
        assert empty.records(FAMILIES).ids() == [whole]
        assert empty.records(FAMILIES).read(whole) == storage.records(FAMILIES).read(whole)
        assert empty.users.read(ada.id).families == {damaged, whole}

    def test_no_family_is_in_a_backup(self, storage, ada, clients, empty, tmp_path):
        add_families(storage, ada.id, clients[0], "a")
        backup(storage, str(tmp_path / "backup.tar.gz"), "command")
        restore(empty, str(tmp_path / "backup.tar.gz"), "command")
        assert empty.users.read(ada.id).grants[clients[0]].families == []
        assert empty.records(FAMILIES).ids() == []
