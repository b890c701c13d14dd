"""The records that tests of the contract start with, and their damage, on each backend."""

from pathlib import Path

import pytest
from conftest import BACKENDS

from model.grant_records import AuthorizationCode, DeviceRequest
from model.records import Client, User
from storage import Storage


@pytest.fixture(params=BACKENDS)
def backend(backend):
    return backend


@pytest.fixture
def ada(storage) -> User:
    return storage.users.register("Ada", "ada@example.org", "a hash")


@pytest.fixture
def bob(storage) -> User:
    return storage.users.register("Bob", "bob@example.org", "a hash")


@pytest.fixture
def client(storage) -> Client:
    return storage.clients.register("Chess", ["https://chess.example/cb"], None)[0]


@pytest.fixture
def code_record(ada, client) -> AuthorizationCode:
    scope, uri = ["userinfo"], "https://a.example"
    return AuthorizationCode(client.id, ada.id, "a grant", scope, uri, None)


@pytest.fixture
def device_request(client) -> DeviceRequest:
    return DeviceRequest(client.id, ["userinfo"], "a device", "192.0.2.1")


class StoredFiles:
    """What flat files have, read and changed behind the server's back."""

    def __init__(self, data: str) -> None:
        self._data = Path(data)

    def texts(self, kind: str) -> list[str]:
        return [path.read_text() for path in self._data.glob(f"{kind}/**/*.json")]

    def damage(self, kind: str, record_id: object) -> None:
        """Make a record unreadable; it keeps its keys."""
        (self._data / f"{kind}/{record_id}.json").write_text("{}")

    def remove_keys_of_notes(self) -> None:
        """Remove the keys of the kind that test_kinds.py declares."""
        for path in [*self._data.glob("titles/*"), *self._data.glob("index/notes/*/*/*")]:
            path.unlink()


class StoredRows:
    """What a database has, as StoredFiles."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _run(self, statement: str) -> list[tuple]:
        from databases import query  # with psycopg, which the default run does not need

        return query(self._url, statement)

    def texts(self, kind: str) -> list[str]:
        return [text for (text,) in self._run(f"SELECT record::text FROM {kind}")]

    def damage(self, kind: str, record_id: object) -> None:
        self._run(f"UPDATE {kind} SET record = '{{}}' WHERE id::text = '{record_id}'")

    def remove_keys_of_notes(self) -> None:
        self._run("UPDATE notes SET title = 'x' || id, writer = NULL")


@pytest.fixture
def stored(backend, folders, storage) -> StoredFiles | StoredRows:
    url = backend.setting(folders[0])
    return StoredFiles(folders[0]) if url == "files" else StoredRows(url)


@pytest.fixture
def empty(backend, tmp_path, unsynced, drawn_once) -> Storage:
    """Another installation on the same backend."""
    return backend.open(str(tmp_path / "empty"), str(tmp_path / "empty pictures"))
