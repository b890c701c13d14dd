"""The storage contract on flat files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from contract.attempts import AttemptsContract
from contract.changes import AuditContract, EditsContract, GrantsContract
from contract.clients import ClientsContract
from contract.codes import CodesContract
from contract.keys import KeysContract
from contract.kinds import IDS, KindsContract, Note, write
from contract.loading import LoadContract
from contract.users import (
    AdministratorsContract,
    ImportsContract,
    PicturesContract,
    RenamesContract,
    UsersContract,
)

from storage.records import sha256


class TestUsers(UsersContract, ImportsContract, RenamesContract):
    """Users, their names and email addresses."""


class TestChanges(EditsContract, GrantsContract, AuditContract, AdministratorsContract):
    """Changes of users, and what is checked under their lock."""


class TestPictures(PicturesContract):
    """Pictures."""


class TestClients(ClientsContract, CodesContract, KeysContract):
    """Clients, authorization codes and signing keys."""


class TestAttempts(AttemptsContract):
    """Attempts."""


class TestLoad(LoadContract):
    """Snapshots and loads."""


class TestKinds(KindsContract):
    """Kinds of records."""

    @pytest.fixture
    def remove_keys(self, flat_folders) -> Callable[[], None]:
        def remove_keys() -> None:
            data, _ = flat_folders
            for path in [*data.glob("titles/*"), *data.glob("index/notes/*/*/*")]:
                path.unlink()

        return remove_keys

    def test_entry_of_a_record_with_another_key_finds_nothing(self, notes, flat_folders):
        """A database has the keys in the row of the record."""
        [note] = write(notes, "Chess")
        data: Path = flat_folders[0]
        (data / "index/notes/writer/2").mkdir()
        (data / f"index/notes/writer/2/{note.id}").touch()
        (data / f"titles/{sha256('Go')}").symlink_to(f"../notes/{note.id}.json")
        assert (notes.page("writer", "2"), notes.find_by("title", "Go")) == ([], None)
        notes.add(Note(IDS[1], "Go", 1))
        assert notes.find_by("title", "Go").id == IDS[1]
