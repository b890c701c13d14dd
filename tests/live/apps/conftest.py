"""The server at which the programs sign their players in."""

from collections.abc import Iterator

import pytest

from ..running import RunningServer, running_server

BOB = "Bob Ünï"  # no handle can be made of this name


@pytest.fixture(scope="module")
def openid_server() -> Iterator[RunningServer]:
    """A running server with OpenID Connect and the players `ada` and BOB, for one module.

    Modules cannot share it: what was a handle once is never given again.
    """
    with running_server(OPENID="on") as server:
        server.add_user("ada")
        server.add_user(BOB, "bob@example.org")
        yield server


@pytest.fixture
def console_errors() -> list[str]:
    """Errors from browser consoles, which the pages of programs have of their own."""
    return []
