"""One real server for the tests that need not kill it, and who uses it."""

from collections.abc import Iterator

import pytest

from storage import Storage

from .person import Person
from .running import RunningServer, running_server
from .shared import start_once

CALLBACK = "https://client.example/callback?from=identity"  # nobody goes there: the address is read


@pytest.fixture(scope="session", autouse=True)
def no_proxy() -> Iterator[None]:
    """Reach this machine's own servers directly."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A running server with two workers, empty at first: no module meets what another left.

    Modules share it one after the other. One that changes or ends it has its own.
    """

    server = start_once(request.config, "server", running_server)
    yield server
    server.empty()


@pytest.fixture(scope="module")
def ada(server: RunningServer) -> dict:
    """A player."""
    return server.add_user("ada")


@pytest.fixture(scope="module")
def client(server: RunningServer) -> dict:
    """A registered client, with its `client_secret`."""
    return server.add_client("Space Game", CALLBACK)


@pytest.fixture
def store(server: RunningServer) -> Storage:
    """The running server's records."""
    return server.open_storage()


@pytest.fixture
def adas_person(server: RunningServer, ada: dict) -> Iterator[Person]:
    """Ada, who is signed in."""
    person = Person(server.address)
    person.carry_session(server.start_session("ada"))
    yield person
    person.close()


@pytest.fixture
def person(server: RunningServer) -> Iterator[Person]:
    """Somebody who is not signed in."""
    person = Person(server.address)
    yield person
    person.close()
