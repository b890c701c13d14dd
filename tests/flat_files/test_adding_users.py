"""Adding a user in flat files: its picture is written without a lock."""

from collections.abc import Callable

import pytest

from storage.errors import EmailTaken, IdTaken, InviteSpent, NameTaken
from storage.records import PICTURE_SIZES, User


@pytest.fixture
def while_adding(storage, monkeypatch) -> Callable[..., User]:
    """A function that adds Ada, and calls another one before it writes her record."""

    def add(happens: Callable[[], object], **options: object) -> User:
        write = storage.pictures.write

        def write_and(*picture: object) -> None:
            write(*picture)
            monkeypatch.setattr(storage.pictures, "write", write)
            happens()

        monkeypatch.setattr(storage.pictures, "write", write_and)
        return storage.users.register("Ada", "ada@example.org", "", **options)

    return add


@pytest.fixture(autouse=True)
def _check(storage) -> None:
    """Check the installation after each test."""
    yield
    assert list(storage.verify()) == []


def add_bob(storage, name: str = "Bob", email: str = "bob@example.org", **options) -> User:
    return storage.users.register(name, email, "", **options)


def test_sign_up_does_not_wait_for_the_picture_of_another(storage, while_adding):
    ada = while_adding(lambda: add_bob(storage))
    assert (ada.id, storage.users.find_by_login("bob").id) == (1, 2)
    assert storage.users.ids() == [1, 2]


@pytest.mark.parametrize(
    ("name", "email", "error"),
    [("ADA", "other@example.org", NameTaken), ("Other", "ADA@example.org", EmailTaken)],
)
def test_sign_up_with_a_name_or_email_taken_meanwhile_is_refused(
    storage, while_adding, pictures, name, email, error
):
    with pytest.raises(error):
        while_adding(lambda: add_bob(storage, name, email))
    assert storage.users.ids() == [2]
    assert not [*pictures.glob("*/1-*")]


def test_invitation_used_meanwhile_is_refused(storage, while_adding):
    invite = storage.invites.issue(1)
    with pytest.raises(InviteSpent):
        while_adding(lambda: add_bob(storage, invite=invite), invite=invite)
    assert [storage.users.read(each).name for each in storage.users.ids()] == ["Bob"]


def test_link_of_the_first_account_makes_one_account(storage, while_adding):
    def add_another() -> None:
        with pytest.raises(InviteSpent):
            add_bob(storage, first=True)

    assert while_adding(add_another, first=True).id == 1
    assert storage.users.ids() == [1]


def test_repair_during_a_sign_up_removes_no_picture(storage, while_adding, pictures):
    ada = while_adding(lambda: [*storage.verify(repair=True)])
    assert len([*pictures.glob("*/1-*")]) == len(PICTURE_SIZES)
    assert storage.pictures.read("large", ada.picture_file)


def test_sign_up_with_an_id_imported_meanwhile_is_refused(storage, while_adding):
    with pytest.raises(IdTaken):
        while_adding(lambda: storage.users.insert(User(1, "Bob", "bob@example.org", "")))
    assert storage.users.read(1).name == "Bob"
    assert storage.users.administrators() == []
