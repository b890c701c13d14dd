"""Libraries that others wrote sign players in, unmodified, as public and as confidential clients.

Each test is a promise to all libraries of oauth_clients/libraries.py. Where a library cannot
express a promise, the test says why.
"""

import functools
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from programs import free_port
from waiting import wait_until

from model.records import Grant, now_ms

from .form_browser import FormBrowser
from .oauth_clients.driver import DriverSession
from .oauth_clients.libraries import (
    CONFIDENTIAL,
    LIBRARIES,
    LOOPBACK,
    MARKS,
    PUBLIC,
    Library,
    build_go_driver,
    install_npm_packages,
)
from .oauth_clients.session import Configuration, LibraryError, Session
from .running import RunningServer

pytestmark = pytest.mark.live
SCOPE = "openid profile email"  # what generic clients request
STAYING = "email offline_access"
REMEMBERED = ["userinfo", "email", "offline_access"]
# Libraries in which the app reads the errors in the redirect itself.
READ_NO_ERRORS = {
    "authlib": "its session requests client credentials instead",
    "x-oauth2": "it has no function that reads the redirect",
}
REVOKE_NOTHING = {"x-oauth2": "it has no function that does"}
INTROSPECT_NOTHING = dict.fromkeys(
    ("requests-oauthlib", "appauth", "x-oauth2"), "it has no function that does"
)
WITHOUT_DEVICES = ("requests-oauthlib", "authlib", "oauth4webapi", "appauth", "x-oauth2")


def each_library(*kinds: str, but: dict[str, str] | None = None) -> pytest.MarkDecorator:
    """Run a test with each library, as these kinds of clients.

    `but` has the libraries that cannot express the promise, with the reasons.
    """
    return pytest.mark.parametrize(
        "library",
        [
            pytest.param(
                (library, kind), id=f"{library.name}-{kind}", marks=MARKS[library.language]
            )
            for library in LIBRARIES
            for kind in kinds or (PUBLIC, CONFIDENTIAL)
            if library.name not in (but or {})
        ],
        indirect=True,
    )


def own_loopback_uri() -> str:
    """Return a redirect URI at a port that an app got from the system, unlike LOOPBACK."""
    # Free on all addresses: AppAuth listens on each of them.
    host = "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"
    return f"http://127.0.0.1:{free_port(host)}/callback"


@dataclass
class LibraryInUse:
    """A library as one kind of client of the running server, and a player who uses it."""

    library: Library
    kind: str
    client: dict
    site: str
    player: dict
    browser: FormBrowser  # the player is signed in
    run: Callable[[Library, Configuration], Session]

    def start(self, **changes) -> Session:
        """Start a session, with the default configuration but for these changes."""
        configuration = Configuration(
            issuer=self.site,
            authorization_endpoint=f"{self.site}/oauth/authorize",
            token_endpoint=f"{self.site}/api/oauth/token",
            whois=f"{self.site}/api/oauth/whois",
            client_id=self.client["client_id"],
            client_secret=self.client.get("client_secret"),
            redirect_uri=own_loopback_uri() if self.library.listens else self.library.redirect_uri,
            scope=SCOPE,
            method=self.library.methods(self.kind)[0],
            pkce=True,
        )
        return self.run(self.library, configuration | changes)

    def stay_signed_in(self, method: str) -> Session:
        """Start a session that has a refresh token, by this method of authentication."""
        endpoint = f"{self.site}/oauth/token"
        session = self.start(method=method, scope=STAYING, token_endpoint=endpoint)
        session.exchange(self.allow(session))
        return session

    def allow(self, session: Session) -> str:
        """Allow what the session asks for; return the address where the browser arrives."""
        return self.browser.allow(session.authorize(), self.player["name"]).address


@pytest.fixture(scope="session")
def build_drivers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns a folder with the drivers in this language, built once."""
    build = {"node": install_npm_packages, "go": build_go_driver}

    @functools.cache
    def build_drivers(language: str) -> Path:
        folder = tmp_path_factory.mktemp(language)
        build[language](folder)
        return folder

    return build_drivers


@pytest.fixture
def run(
    build_drivers: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Library, Configuration], Session]]:
    """A function that starts a session of a library; it ends with the test."""
    with ExitStack() as sessions:

        def run(library: Library, configuration: Configuration) -> Session:
            if library.language == "python":
                return library.driver(configuration)
            program = build_drivers(library.language) / library.driver
            command = [shutil.which("node"), program] if library.language == "node" else [program]
            session = DriverSession(command, configuration, tmp_path_factory.mktemp("session"))
            return sessions.enter_context(closing(session))

        yield run


@pytest.fixture(scope="module")
def find_client(server: RunningServer) -> Callable[[str, str], dict]:
    """A function that returns the client of this kind with this redirect URI."""
    return functools.cache(
        lambda kind, redirect_uri: server.add_client(kind, redirect_uri, public=kind == PUBLIC)
    )


@pytest.fixture(scope="module")
def find_player(server: RunningServer) -> Callable[[str], dict]:
    """A function that returns the player of a library: one player gets 60 codes a minute."""
    return functools.cache(lambda library: server.add_user(library.replace("-", "_")))


@pytest.fixture
def library(
    request: pytest.FixtureRequest,
    server: RunningServer,
    find_client: Callable[[str, str], dict],
    find_player: Callable[[str], dict],
    run: Callable[[Library, Configuration], Session],
    form_browser: FormBrowser,
    monkeypatch: pytest.MonkeyPatch,
) -> LibraryInUse:
    """The library and the kind of client of this test."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # a server without TLS
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    library, kind = request.param
    client, player = find_client(kind, library.redirect_uri), find_player(library.name)
    remember_consent(server, player, client)
    form_browser.set_session_cookie(server.start_session(player["name"]))
    return LibraryInUse(library, kind, client, server.address, player, form_browser, run)


def remember_consent(server: RunningServer, player: dict, client: dict) -> None:
    """Save that the player allowed the client, because its page must be shown for a second.

    The tests of Cancel and of loopback redirect URIs open that page.
    """
    with server.open_storage().users.edit(player["id"]) as user:
        user.grants[client["client_id"]] = Grant("a grant", REMEMBERED, now_ms())


@pytest.fixture
def token_responses(server: RunningServer) -> Callable[..., AbstractContextManager[None]]:
    """A context manager in which the server sends token responses with exactly these statuses.

    Their number is open: Go's library repeats a failed request with another authentication.
    """

    def all_statuses() -> list[int]:
        found = re.findall(r'"POST (?:/api)?/oauth/token \S+" (\d+)', server.access_log.read_text())
        return [int(each) for each in found]

    @contextmanager
    def token_responses(*statuses: int) -> Iterator[None]:
        before = len(all_statuses())
        yield
        # A line of the access log follows its response.
        wait_until(
            lambda: set(all_statuses()[before:]) == set(statuses),
            message=lambda: f"token responses: {all_statuses()[before:]}",
        )

    return token_responses


# -- the promises -------------------------------------------------------------------------------


@each_library()
def test_library_signs_a_player_in(library: LibraryInUse, subtests):
    expected = {each: library.player[each] for each in ("id", "name", "pfpTimestamp", "email")}
    for method in library.library.methods(library.kind):
        for pkce in (True, False) if library.kind == CONFIDENTIAL else (True,):
            with subtests.test(method=method, pkce=pkce):
                session = library.start(method=method, pkce=pkce)
                token_type, expires_in = session.exchange(library.allow(session))
                assert (token_type.lower(), expires_in) == ("bearer", 600)
                assert session.whois() == expected


@each_library(PUBLIC)
def test_app_listens_at_another_port_than_the_registered_one(
    library: LibraryInUse, find_client: Callable[[str, str], dict]
):
    """RFC 8252 7.3: the system gives a native app its port."""
    library.client = find_client(PUBLIC, LOOPBACK)
    own_uri = own_loopback_uri()
    session = library.start(redirect_uri=own_uri)
    callback = library.allow(session)
    assert callback.startswith(f"{own_uri}?")
    session.exchange(callback)
    assert session.whois()["id"] == library.player["id"]


@each_library()
def test_second_exchange_fails_and_ends_the_token(library: LibraryInUse, token_responses):
    """RFC 6749 4.1.2: a code is used once; one of two exchanges may be a thief's."""
    session = library.start()
    callback = library.allow(session)
    with token_responses(200, 400):
        session.exchange(callback)
        with pytest.raises(LibraryError):
            session.exchange(callback)
    with pytest.raises(LibraryError, match="(?i)401|unauthorized"):
        session.whois()


@each_library(but=READ_NO_ERRORS)
def test_cancel_is_the_access_denied_error_of_the_library(
    library: LibraryInUse, server: RunningServer
):
    redirect_uri, public = library.library.redirect_uri, library.kind == PUBLIC
    library.client = server.add_client("Space Game", redirect_uri, public=public)
    session = library.start()
    arrived = library.browser.press(library.browser.open(session.authorize()), "Cancel")
    with pytest.raises(LibraryError, match="access_denied.*the player refused"):
        session.exchange(arrived.address)


@each_library(CONFIDENTIAL)
def test_confidential_client_needs_its_secret(library: LibraryInUse, token_responses, subtests):
    methods = [(method, "wrong", 401) for method in library.library.methods(CONFIDENTIAL)]
    for method, secret, status in (("none", None, 400), *methods):
        with subtests.test(method=method, secret=secret):
            session = library.start(method=method, client_secret=secret)
            callback = library.allow(session)
            with token_responses(status), pytest.raises(LibraryError):
                session.exchange(callback)


@each_library()
def test_library_keeps_a_player_signed_in(library: LibraryInUse):
    """RFC 6749 6: each refresh gives the next refresh token."""
    for method in library.library.methods(library.kind):
        session = library.stay_signed_in(method)
        for _ in range(2):
            token_type, expires_in = session.refresh()
            assert (token_type.lower(), expires_in) == ("bearer", 600)
            assert session.whois()["id"] == library.player["id"]


@each_library(but=REVOKE_NOTHING)
def test_library_revokes_its_refresh_token_and_its_access_token(library: LibraryInUse):
    """RFC 7009."""
    for method in library.library.methods(library.kind):
        session = library.stay_signed_in(method)
        session.revoke()
        with pytest.raises(LibraryError, match="(?i)401|unauthorized"):
            session.whois()
        with pytest.raises(LibraryError):
            session.refresh()
        session.revoke()  # the second time is no error


@each_library(CONFIDENTIAL, but=INTROSPECT_NOTHING)
def test_library_asks_about_its_refresh_token(library: LibraryInUse):
    """RFC 7662."""
    session = library.stay_signed_in(library.library.methods(library.kind)[0])
    described = session.introspect()
    expected = {"active": True, "client_id": library.client["client_id"]}
    expected |= {"sub": str(library.player["id"]), "scope": " ".join(REMEMBERED)}
    assert described | expected == described
    session.revoke()
    assert session.introspect() == {"active": False}


@pytest.mark.parametrize("decision", ["Allow", "Cancel"])
@each_library(PUBLIC, but=dict.fromkeys(WITHOUT_DEVICES, "it has no device flow"))
def test_library_signs_a_player_in_on_another_device(
    library: LibraryInUse, server: RunningServer, decision: str
):
    """RFC 8628."""
    library.client = server.add_client("Console", public=True, device=True)
    session = library.start(scope="email")
    user_code, address = session.start_on_device()
    page = library.browser.press(library.browser.open(address), "Continue", user_code=user_code)
    page = library.browser.press(page, decision)
    if decision == "Cancel":
        with pytest.raises(LibraryError, match="access_denied"):
            session.poll()
        return
    token_type, expires_in = session.poll()
    assert (token_type.lower(), expires_in) == ("bearer", 600)
    assert session.whois()["id"] == library.player["id"]
