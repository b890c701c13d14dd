"""The storage contract on flat files."""

from collections.abc import Callable

import pytest
from contract.attempts import AttemptsContract
from contract.changes import AuditContract, EditsContract, GrantsContract
from contract.clients import ClientsContract
from contract.codes import CodesContract
from contract.invites import InvitesContract
from contract.keys import KeysContract
from contract.kinds import KindsContract
from contract.loading import LoadContract
from contract.names import KeptEmailsContract, KeptNamesContract, ListsContract
from contract.openid import OpenIdContract
from contract.playing import PlayingContract
from contract.users import (
    AdministratorsContract,
    ImportsContract,
    PicturesContract,
    RenamesContract,
    UsersContract,
)


class TestUsers(UsersContract, ImportsContract, RenamesContract):
    """Users, their names and email addresses."""


class TestChanges(EditsContract, GrantsContract, AuditContract, AdministratorsContract):
    """Changes of users, and what is checked under their lock."""


class TestPictures(PicturesContract):
    """Pictures."""


class TestClients(ClientsContract, CodesContract, KeysContract, InvitesContract):
    """Clients, authorization codes and signing keys."""


class TestOpenId(OpenIdContract):
    """Handles, keys of ID tokens, and newer fields."""

    @pytest.fixture
    def stored(self, data) -> Callable[[str], list[str]]:
        return lambda folder: [path.read_text() for path in data.glob(f"{folder}/**/*.json")]


class TestNames(ListsContract, KeptNamesContract, KeptEmailsContract):
    """Lists of players, and names that were given up."""

    @pytest.fixture
    def damage(self, data) -> Callable[[int], object]:
        return lambda user_id: (data / f"users/{user_id}.json").write_text("{}")

    @pytest.fixture
    def damage_former_names(self, data) -> Callable[[], None]:
        def damage() -> None:
            for path in data.glob("former_names/*"):
                path.write_text("{}")

        return damage


class TestAttempts(AttemptsContract, PlayingContract):
    """Attempts, and who plays now."""


class TestLoad(LoadContract):
    """Snapshots and loads."""


class TestKinds(KindsContract):
    """Kinds of records."""

    @pytest.fixture
    def remove_keys(self, data) -> Callable[[], None]:
        def remove_keys() -> None:
            for path in [*data.glob("titles/*"), *data.glob("index/notes/*/*/*")]:
                path.unlink()

        return remove_keys
