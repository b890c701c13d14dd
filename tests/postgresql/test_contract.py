"""The storage contract in PostgreSQL."""

from collections.abc import Callable

import pytest
from contract.attempts import AttemptsContract
from contract.changes import AuditContract, EditsContract, GrantsContract
from contract.clients import ClientsContract
from contract.codes import CodesContract
from contract.keys import KeysContract
from contract.kinds import KindsContract
from contract.loading import LoadContract
from contract.users import (
    AdministratorsContract,
    ImportsContract,
    PicturesContract,
    RenamesContract,
    UsersContract,
)

pytestmark = pytest.mark.postgresql


class TestUsers(UsersContract):
    """Users."""


class TestAdministrators(AdministratorsContract):
    """Administrators."""


class TestPictures(PicturesContract):
    """Pictures."""


class TestImports(ImportsContract):
    """Imported users."""


class TestRenames(RenamesContract):
    """Names and email addresses that change."""


class TestEdits(EditsContract):
    """Edits of users."""


class TestGrants(GrantsContract):
    """Grants."""


class TestAudit(AuditContract):
    """Audit lines and checks under a lock."""


class TestClients(ClientsContract):
    """Clients."""


class TestCodes(CodesContract):
    """Authorization codes."""


class TestAttempts(AttemptsContract):
    """Attempts."""


class TestKeys(KeysContract):
    """Signing keys."""


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
