"""Adding a user in flat files: the new id is synced without a lock."""

from collections.abc import Callable

import pytest
from contract.base import free_name

from model.errors import EmailTaken, IdTaken, InviteSpent, NameTaken
from model.records import User
from storage.flat_files import disk


@pytest.fixture
def while_adding(storage, monkeypatch) -> Callable[..., User]:
    """A function that adds Ada, and calls another one before it writes her record."""

    def add(happens: Callable[[], object], **options: object) -> User:
        sync = disk.sync_folder

        def sync_and(path: str) -> None:
            sync(path)
            monkeypatch.setattr(disk, "sync_folder", sync)
            happens()

        monkeypatch.setattr(disk, "sync_folder", sync_and)
        return storage.users.register("Ada", "ada@example.org", "", **options)

    yield add
    assert list(storage.verify()) == []


@pytest.fixture
def add_bob(storage) -> Callable[..., User]:
    """A function that adds Bob."""

    def add_bob(name: str = "Bob", email: str = "bob@example.org", **options: object) -> User:
        return storage.users.register(name, email, "", **options)

    return add_bob


def test_sign_up_does_not_wait_for_the_sync_of_another(storage, while_adding, add_bob):
    ada = while_adding(add_bob)
    assert (ada.id, storage.users.find_by_login("bob").id) == (1, 2)
    assert storage.users.ids() == [1, 2]


def test_sign_up_with_what_was_taken_meanwhile_is_refused(storage, while_adding, add_bob, subtests):
    invite = storage.invites.issue(1)
    imported = User(1, "Bob", "bob@example.org", "")
    for happens, options, error in (
        (lambda: storage.users.insert(imported), {}, IdTaken),
        (lambda: add_bob(name="ADA"), {}, NameTaken),
        (lambda: add_bob(email="ADA@example.org"), {}, EmailTaken),
        (lambda: add_bob(invite=invite), {"invite": invite}, InviteSpent),
    ):
        with subtests.test(error.__name__):
            with pytest.raises(error):
                while_adding(happens, **options)
            [other] = map(storage.users.read, storage.users.ids())
            storage.users.delete(other.id)
            free_name(storage, other.name)


def test_link_of_the_first_account_makes_one_account(storage, while_adding, add_bob):
    def add_another() -> None:
        with pytest.raises(InviteSpent):
            add_bob(first=True)

    assert while_adding(add_another, first=True).id == 1
    assert storage.users.ids() == [1]
