"""Adding a user in flat files: its picture is written without a lock."""

from collections.abc import Callable
from pathlib import Path

import pytest

from storage import open_storage
from storage.errors import EmailTaken, IdTaken, InviteSpent, NameTaken
from storage.flat_files.backend import FlatFiles
from storage.records import PICTURE_SIZES, User


@pytest.fixture
def storage(flat_folders, unsynced, drawn_once) -> FlatFiles:
    return open_storage(*map(str, flat_folders))


@pytest.fixture
def pictures(flat_folders) -> Path:
    return flat_folders[1]


@pytest.fixture
def while_adding(storage, monkeypatch) -> Callable[[Callable], User]:
    """Add a user with what happens after the pictures are written and before the record is."""

    def add(happens: Callable, **options: object) -> User:
        write = storage.pictures.write

        def write_and(*picture: object) -> None:
            write(*picture)
            monkeypatch.setattr(storage.pictures, "write", write)
            happens()

        monkeypatch.setattr(storage.pictures, "write", write_and)
        return storage.users.register("Ada", "ada@example.org", "", **options)

    return add


def test_another_sign_up_does_not_wait_for_a_picture(storage, while_adding):
    added = []
    ada = while_adding(lambda: added.append(storage.users.register("Bob", "bob@example.org", "")))
    assert (ada.id, added[0].id) == (1, 2)
    assert storage.users.ids() == [1, 2]
    assert [*storage.verify()] == []


@pytest.mark.parametrize(
    ("name", "email", "error"),
    [("ADA", "other@example.org", NameTaken), ("Other", "ADA@example.org", EmailTaken)],
)
def test_of_two_sign_ups_with_one_name_or_address_one_is_refused(
    storage, while_adding, pictures, name, email, error
):
    with pytest.raises(error):
        while_adding(lambda: storage.users.register(name, email, ""))
    assert storage.users.ids() == [2]
    assert [*storage.verify()] == []
    assert not [*pictures.glob("*/1-*")]


def test_an_invitation_used_by_two_sign_ups_makes_one_account(storage, while_adding):
    invite = storage.invites.issue(1)
    with pytest.raises(InviteSpent):
        while_adding(
            lambda: storage.users.register("Bob", "bob@e.org", "", invite=invite), invite=invite
        )
    assert [storage.users.read(each).name for each in storage.users.ids()] == ["Bob"]


def test_the_link_of_the_first_account_makes_one_account(storage, while_adding):
    def add_another() -> None:
        with pytest.raises(InviteSpent):
            storage.users.register("Bob", "bob@example.org", "", first=True)

    assert while_adding(add_another, first=True).id == 1
    assert storage.users.ids() == [1]


def test_a_repair_during_a_sign_up_takes_no_picture_away(storage, while_adding, pictures):
    ada = while_adding(lambda: [*storage.verify(repair=True)])
    assert len([*pictures.glob("*/1-*")]) == len(PICTURE_SIZES)
    assert storage.pictures.read("large", ada.picture_file)
    assert [*storage.verify()] == []


def test_an_import_of_the_same_id_during_a_sign_up_refuses_the_sign_up(storage, while_adding):
    other = User(1, "Bob", "bob@example.org", "")
    with pytest.raises(IdTaken):
        while_adding(lambda: storage.users.insert(other))
    assert storage.users.read(1).name == "Bob"
    assert [each.id for each in storage.users.administrators()] == []
    assert [*storage.verify()] == []
