"""Fixtures and test clients that all tests share, and pytest's configuration."""

import functools
import html
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode

import pytest
import time_machine
from backends import FLAT_FILES, Backend
from cached_pictures import generate_picture
from compare_fast_path import ComparingFastPath
from faulty_storage import FlatFileFaults
from flask import Flask, session
from flask.testing import FlaskClient
from jinja2 import FileSystemBytecodeCache
from processes import forbid_processes
from shared_apps import SharedApps
from werkzeug.exceptions import default_exceptions
from werkzeug.test import TestResponse

import identity_server
from identity.access import admission, links, passwords
from identity.http import stamps
from images import pictures
from model.records import Client, User
from storage import Storage, contract
from storage.contract import ATTEMPTS_WINDOW
from storage.flat_files import disk

pytest_plugins = ["by_file"]


identity_server.FastPath = ComparingFastPath  # compares every API response with Flask's


# A background job of a shell script ignores SIGINT, and child processes would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Markers of tests that need more than Python or take long: they run only with `-m ci`.
ONLY_IN_CI = {"browser", "node", "faults", "nginx", "openapi", "timing", "load", "wheel", "image"}
ONLY_IN_CI |= {"postgresql", "go", "godot", "minetest", "apps", "heavy_apps", "postfix", "slow"}


MEMORY = "/dev/shm"
ROOM_IN_MEMORY = 1 << 30  # bytes; in containers /dev/shm often has 64 MiB


@pytest.hookimpl(tryfirst=True)  # before pytest chooses its temporary folder
def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests' files in memory if there is room, unless the caller names a folder.

    A test that needs a real disk mounts one.
    """
    if has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def has_room(folder: str) -> bool:
    """Return whether this folder is writable, executable and large enough for the tests' files."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    kind = os.statvfs(folder)
    return kind.f_bavail * kind.f_frsize >= ROOM_IN_MEMORY and not kind.f_flag & os.ST_NOEXEC


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marker `ci` to the tests with one of ONLY_IN_CI."""
    for item in items:
        if not ONLY_IN_CI.isdisjoint(mark.name for mark in item.iter_markers()):
            item.add_marker("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that select how much of tests/flat_files/faults runs."""
    faults = parser.getgroup("faults", "kills, failing calls and power cuts (flat_files/faults)")
    faults.addoption(
        "--all-faults", action="store_true", help="every fault at every step instead of samples"
    )
    faults.addoption(
        "--faults-seed",
        type=int,
        # In the environment, which xdist workers inherit, so that all use the same day.
        default=int(os.environ.setdefault("FAULTS_SEED", f"{datetime.now(UTC):%Y%m%d}")),
        help="the seed of the samples (default: today's date in UTC, as YYYYMMDD)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Print the options that repeat the same faults."""
    chosen = "--all-faults" if config.option.all_faults else "samples"
    return f"faults: {chosen}, --faults-seed={config.option.faults_seed}"


@pytest.fixture(autouse=True)
def process_guard(request) -> Iterator[None]:
    """Fail a test that starts a process without the marker `live` or `ci`."""
    if any(request.node.get_closest_marker(name) for name in ("live", "ci")):
        yield
    else:
        with forbid_processes():
            yield


@pytest.fixture
def unsynced(monkeypatch) -> None:
    """Disable fsync, which would take two thirds of the time, and shorten the wait for new keys.

    flat_files/ tests the calls of fsync.
    """
    monkeypatch.setattr(contract, "KEYS_CACHED", 0.01)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(disk, "sync_file_system", lambda descriptor: None)


@pytest.fixture
def drawn_once(monkeypatch) -> None:
    """Cache the generated picture of each user id, which is most of the cost of adding a user."""
    monkeypatch.setattr(pictures, "generate_picture", generate_picture)


@pytest.fixture(scope="session")
def databases() -> Iterator:
    """The databases of this process, in a PostgreSQL server of its own."""
    from databases import Databases  # with psycopg, which the default run does not need
    from postgresql_cluster import running_cluster

    # Not without fsync, of which `verify` warns: in memory it costs little.
    with running_cluster(MEMORY if has_room(MEMORY) else None) as cluster:
        databases = Databases(cluster)
        yield databases
        databases.close()


BACKENDS = ["flat files", pytest.param("postgresql", marks=pytest.mark.postgresql)]


on_each_backend = pytest.mark.parametrize("backend", BACKENDS, indirect=True)


@pytest.fixture
def backend(request, monkeypatch) -> Iterator[Backend]:
    """The backend of this test, without installations: flat files, except `on_each_backend`."""
    if getattr(request, "param", "flat files") == "flat files":
        yield FLAT_FILES
    else:
        from databases import disable_time_limits  # with psycopg, as above

        disable_time_limits(monkeypatch)
        with request.getfixturevalue("databases").lend() as backend:
            yield backend


@pytest.fixture
def folders(tmp_path) -> tuple[str, str]:
    """The data folder and the picture folder of this test's installation."""
    return str(tmp_path / "instance"), str(tmp_path / "pfp")


@pytest.fixture
def open_installation(backend, folders, unsynced, drawn_once) -> Callable[[], Storage]:
    """A function that opens the storage of this test's installation, empty at first."""
    return functools.partial(backend.open, *folders)


@pytest.fixture
def faults(backend, folders) -> FlatFileFaults:
    """Faults in what this test's installation stores."""
    return backend.faults(*folders)


@pytest.fixture
def storage(open_installation) -> Storage:
    """A storage without users."""
    return open_installation()


# -- the app and its clients --------------------------------------------------------------------

PASSWORD = "correct horse battery staple"
# The real method takes a third of a second; the tests that need it restore it.
CHEAP_PASSWORD_METHOD = "pbkdf2:sha256:1"
REAL_MINIMUM_AGE = stamps.MINIMUM_AGE
FREE_SIGN_UPS = admission.FREE_SIGN_UPS
WERKZEUGS_MESSAGES = {each.description for each in default_exceptions.values()}  # for pages
FOREIGN_LINK = {  # a browser follows a link of another site, or sends a form of it
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}


class CheckedClient(FlaskClient):
    """A test client that checks the format of every API error response."""

    def open(self, *args, **kwargs) -> TestResponse:
        answer = super().open(*args, **kwargs)
        if answer.request.path.startswith("/api/") and answer.status_code >= 400:
            assert answer.content_type == "application/json"
            if answer.request.method != "HEAD":
                assert list(answer.json) == ["message"]
                assert answer.json["message"]
                assert answer.json["message"] not in WERKZEUGS_MESSAGES
        return answer

    def preflight(self, path: str, method: str, headers: str) -> TestResponse:
        """Ask, as a browser does for a page of another site, whether it may send a request."""
        asked = {
            "Origin": "https://game.example",
            "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": headers,
            "Sec-Fetch-Site": "cross-site",
        }
        return self.options(path, headers=asked)


class Browser(CheckedClient):
    """A player's browser: it keeps cookies and sends Sec-Fetch-Site: same-origin."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.environ_base["HTTP_SEC_FETCH_SITE"] = "same-origin"

    def open(self, *args, **kwargs) -> TestResponse:
        """Send a request; a form has a stamp, as on the pages of a signed-in player."""
        fields = kwargs.get("data") or {}
        is_form = kwargs.get("method") == "POST" and type(fields) is dict
        if is_form and not args[0].startswith("/api/") and (stamp := self.issue_stamp()):
            kwargs["data"] = {"stamp": stamp} | fields
        return super().open(*args, **kwargs)

    def issue_stamp(self) -> str | None:
        """Return the stamp of a page that is shown now; None if this browser has no session."""
        cookie = self.get_cookie(self.application.config["SESSION_COOKIE_NAME"])
        headers = {"Cookie": f"{cookie.key}={cookie.value}"} if cookie else {}
        with self.application.test_request_context(headers=headers):
            return stamps.issue_stamp() if {"user", "application"} & session.keys() else None

    def sign_in(self, name: str = "Ada", password: str = PASSWORD, **fields: str) -> TestResponse:
        """Send the sign-in form."""
        return self.post("/sign-in", data={"name": name, "password": password, **fields})

    def decide(self, page: TestResponse, decision: str = "allow") -> TestResponse:
        """Submit a consent page."""
        signed = html.unescape(re.search('name="request" value="([^"]*)"', page.text)[1])
        return self.post("/oauth/authorize", data={"request": signed, "decision": decision})

    def allow(self, program: "Program", **parameters: str) -> str:
        """Complete an authorization request in a signed-in browser; return the code."""
        answer = self.get(program.link(**parameters))
        if answer.status_code == 200:  # the consent page
            answer = self.decide(answer)
        return program.read_callback(answer)["code"]


@dataclass
class Program:
    """An OAuth client: its credentials and its requests. A public one has no secret."""

    http: CheckedClient
    id: str
    secret: str | None
    redirect_uri: str

    def link(self, **parameters: str | list[str] | None) -> str:
        """Return the path of an authorization request; None omits a parameter."""
        asked = {"response_type": "code", "client_id": self.id, "redirect_uri": self.redirect_uri}
        return f"/oauth/authorize?{_encode(asked | parameters)}"

    def read_callback(self, answer: TestResponse) -> dict[str, str]:
        """Return the query parameters of a redirect to the client's redirect URI."""
        assert answer.status_code == 303
        return self._read_query(answer.location)

    def read_error_link(self, page: TestResponse) -> dict[str, str]:
        """Return the query parameters of the link to the redirect URI on an error page."""
        assert (page.status_code, page.location) == (400, None)
        [address] = re.findall('<a class="button" href="([^"]*)"', page.text)
        return self._read_query(html.unescape(address))

    def _read_query(self, address: str) -> dict[str, str]:
        address, _, query = address.partition("?")
        assert address == self.redirect_uri.partition("?")[0]
        return dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))

    def exchange(
        self,
        code: str,
        /,
        headers: dict | None = None,
        path: str = "/api/oauth/token",
        **changes: str | list[str] | None,
    ) -> TestResponse:
        """Send a token request; None omits a parameter, a list repeats it."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": self.id,
            "client_secret": self.secret,
        }
        return self.http.post(
            path,
            data=_encode(form | changes),
            headers={"Content-Type": "application/x-www-form-urlencoded"} | (headers or {}),
        )

    def exchange_standard(self, code: str, /, **changes: str | list[str] | None) -> TestResponse:
        """Send a token request, like `exchange`, to the endpoint of the standards."""
        return self.exchange(code, path="/oauth/token", **changes)

    def token_for(self, code: str) -> str:
        """Exchange a valid code; return the access token."""
        return self.exchange(code).json["access_token"]

    def whois(self, token: str) -> TestResponse:
        """Request whois with this access token."""
        return self.http.get("/api/oauth/whois", headers={"Authorization": f"Bearer {token}"})


def _encode(parameters: dict) -> str:
    return urlencode({k: v for k, v in parameters.items() if v is not None}, doseq=True)


@pytest.fixture(scope="session")
def shared_apps(tmp_path_factory) -> SharedApps:
    """The pool of apps that tests share; their templates are compiled once for all."""
    cache = FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))
    Flask.jinja_options = {"bytecode_cache": cache}
    return SharedApps()


@pytest.fixture
def new_process(monkeypatch, drawn_once) -> None:
    """Reset the module state of the server to that of a new process.

    Passwords are hashed with a cheap method, presses count at once, and no sign-up brings a proof.
    """
    monkeypatch.setattr(admission, "FREE_SIGN_UPS", 10**6)
    monkeypatch.setattr(stamps, "MINIMUM_AGE", 0)
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", CHEAP_PASSWORD_METHOD)
    nobodys_hash = f"{CHEAP_PASSWORD_METHOD}$0000000000000000${'0' * 64}"  # matches no password
    monkeypatch.setattr(passwords, "NOBODYS_HASH", nobodys_hash)
    passwords.wrapping_method.cache_clear()


@pytest.fixture
def real_minimum_age(new_process, monkeypatch) -> None:
    """Let presses count only when the page was shown a second ago, as in a real process."""
    monkeypatch.setattr(stamps, "MINIMUM_AGE", REAL_MINIMUM_AGE)


@pytest.fixture
def environment(monkeypatch) -> pytest.MonkeyPatch:
    """The environment without the caller's IDENTITY_ variables."""
    for name in os.environ:
        if name.startswith("IDENTITY_"):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def make_app(
    backend, folders, environment, new_process, shared_apps, unsynced
) -> Iterator[Callable[..., Flask]]:
    """A function that returns an app with these settings, on the folders of this test.

    The app is as `create_app` returns it, and not shared until the test ends.
    """
    here = {
        "DATA_DIR": folders[0],
        "PICTURE_DIR": folders[1],
        "BASE_URL": "http://localhost",  # the test client's cookie domain
    }
    acquired = []

    def make_app(**settings: str) -> Flask:
        settings = here | settings
        settings["STORAGE"] = backend.setting(settings["DATA_DIR"])
        acquired.append(shared_apps.acquire(settings))
        return acquired[-1].app

    yield make_app
    for each in acquired:
        shared_apps.release(each)


@pytest.fixture
def app(make_app) -> Flask:
    """An app with the default settings."""
    return make_app()


@pytest.fixture
def store(app) -> Storage:
    """The app's storage."""
    return app.extensions["storage"]


@pytest.fixture
def add_players(store):
    """A function that adds players with these names and fields, as an import does."""

    def add_players(*names: str, **fields) -> list[User]:
        first = max(store.users.ids(), default=0) + 1
        template = User(0, "", "", "no hash", **{"pfp_timestamp": 1, "created": 1} | fields)
        users = [replace(template, id=first + n, name=each) for n, each in enumerate(names)]
        store.users.reserve_ids(first + len(names))
        for user in users:
            store.users.insert(replace(user, email=f"{user.id}@example.org"))
        return users

    return add_players


@pytest.fixture
def ada(store) -> User:
    """A player."""
    return store.users.register("Ada", "ada@example.org", passwords.hash_password(PASSWORD))


@pytest.fixture
def bob(store) -> User:
    """Another player."""
    return store.users.register("Bob", "bob@example.org", passwords.hash_password(PASSWORD))


@pytest.fixture
def open_browser(app) -> Callable[[], Browser]:
    """A function that opens a browser without cookies."""
    return lambda: Browser(app, app.response_class)


@pytest.fixture
def enter(store, open_browser):
    """A function that adds a player of a level, and returns the browser where they signed in."""

    def enter(name: str, mod_level: int = 0) -> Browser:
        email = f"{name.lower().replace(' ', '')}@example.org"
        store.users.register(name, email, passwords.hash_password(PASSWORD), mod_level)
        browser = open_browser()
        assert browser.sign_in(name).status_code == 303
        return browser

    return enter


@pytest.fixture
def browser(open_browser) -> Browser:
    """A signed-out browser."""
    return open_browser()


@pytest.fixture
def adas_browser(browser, ada) -> Browser:
    """A browser in which Ada is signed in."""
    browser.sign_in()
    return browser


@pytest.fixture
def adas_link(store, ada) -> str:
    """The path of a sign-in link for Ada."""
    return links.issue_sign_in_link(store, "", ada)


@pytest.fixture
def pseudo(tmp_path) -> Iterator[str]:
    """The code of a language that has every marked sentence in letters outside of ASCII."""
    from pseudo import PSEUDO, accented, pseudo_language  # Babel, which few tests need

    with pseudo_language(tmp_path, PSEUDO, accented):
        yield PSEUDO


@pytest.fixture
def mail_server() -> Iterator:
    """A mail server on this machine."""
    from mail_server import MailServer  # aiosmtpd, which few tests need

    server = MailServer()
    yield server
    server.close()


@pytest.fixture
def anyone(app) -> CheckedClient:
    """A client without cookies or credentials."""
    return CheckedClient(app, app.response_class, use_cookies=False)


@pytest.fixture
def register(store, anyone) -> Callable[..., Program]:
    """A function that registers an OAuth client with these redirect URIs."""

    def register(
        *redirect_uris: str, name: str = "Space Game", owner_id: int | None = None, **fields: bool
    ) -> Program:
        client, secret = store.clients.register(name, list(redirect_uris), owner_id, **fields)
        return Program(anyone, client.id, secret, redirect_uris[0])

    return register


def all_clients(store: Storage) -> list[Client]:
    """Return every registered client."""
    return [store.clients.read(each) for each in store.clients.ids()]


@pytest.fixture
def program(register) -> Program:
    """A registered OAuth client."""
    return register("https://space.example/callback")


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    """The clock of this process, stopped at a whole second; `clock.shift` moves it by seconds."""
    with time_machine.travel(math.ceil(time.time()), tick=False) as clock:
        yield clock


def begin_window(clock: time_machine.Traveller) -> None:
    """Advance the clock to the start of the next window of ATTEMPTS_WINDOW seconds."""
    clock.shift(ATTEMPTS_WINDOW - int(time.time()) % ATTEMPTS_WINDOW)
