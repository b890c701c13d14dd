"""Fixtures: one running server for the tests that do not stop it, its users and its clients."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from playwright.sync_api import Page

from commands.running import SERVER_MODULES
from storage import Storage

from . import test_browser
from .form_browser import FormBrowser, signed_in_browser
from .running import RunningServer, running_server
from .shared import start_once
from .test_browser import set_session_cookie

# Fixtures of the tests in Chromium.
chromium, playwright = test_browser.chromium, test_browser.playwright
browse, console_errors = test_browser.browse, test_browser.console_errors
game, game_client = test_browser.game, test_browser.game_client

CALLBACK = "https://client.example/callback?from=identity"  # never requested, only parsed


@pytest.fixture(scope="session", autouse=True)
def no_proxy() -> Iterator[None]:
    """Bypass HTTP proxies for servers on this machine."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NO_PROXY", "127.0.0.1")
        yield


def shared_server(config: pytest.Config, kind: str) -> RunningServer:
    """Return the running server of a kind, gunicorn or granian, that all modules share."""
    return start_once(config, f"{kind} server", partial(running_server, kind=kind))


@pytest.fixture(scope="module", params=SERVER_MODULES)
def each_server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A running server of each kind, otherwise like `server`."""
    server = shared_server(request.config, request.param)
    yield server
    server.empty()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A running server with two workers, empty at the start of each module.

    Modules share it one after the other. A module that configures or stops a server has its own.
    """
    server = shared_server(request.config, "gunicorn")
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
    """The storage of the running server."""
    return server.open_storage()


@pytest.fixture
def adas_form_browser(server: RunningServer, ada: dict) -> Iterator[FormBrowser]:
    """A form browser in which Ada is signed in."""
    with signed_in_browser(server, "ada") as form_browser:
        yield form_browser


@pytest.fixture
def form_browser(server: RunningServer) -> Iterator[FormBrowser]:
    """A form browser that is signed out."""
    form_browser = FormBrowser(server.address)
    yield form_browser
    form_browser.close()


@pytest.fixture
def browse_as(server: RunningServer, browse: Callable[..., Page]) -> Callable[..., Page]:
    """A function that opens a page in which this player is signed in."""

    def browse_as(name: str, **options) -> Page:
        page = browse(**options)
        set_session_cookie(page, server, name)
        return page

    return browse_as


@pytest.fixture
def page(browse_as: Callable[..., Page], ada: dict) -> Page:
    """Ada's browser."""
    return browse_as("ada")
