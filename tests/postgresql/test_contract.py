"""The storage contract in PostgreSQL."""

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

pytestmark = pytest.mark.postgresql


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
    def stored(self, run) -> Callable[[str], list[str]]:
        return lambda table: [text for (text,) in run(f"SELECT record::text FROM {table}")]


class TestNames(ListsContract, KeptNamesContract, KeptEmailsContract):
    """Lists of players, and names that were given up."""

    @pytest.fixture
    def damage(self, run) -> Callable[[int], object]:
        query = "UPDATE users SET record = '{}' WHERE id = "
        return lambda user_id: run(f"{query}{user_id}")

    @pytest.fixture
    def damage_former_names(self, run) -> Callable[[], object]:
        return lambda: run("UPDATE former_names SET record = '{}'")


class TestAttempts(AttemptsContract, PlayingContract):
    """Attempts, and who plays now."""


class TestLoad(LoadContract):
    """Snapshots and loads."""


class TestKinds(KindsContract):
    """Kinds of records."""

    @pytest.fixture
    def remove_keys(self, storage) -> Callable[[], None]:
        def remove_keys() -> None:
            with storage.database.transaction():
                storage.database.save("UPDATE notes SET title = 'x' || id, writer = NULL")

        return remove_keys
