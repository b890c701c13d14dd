"""What every test may use."""

import functools
import html
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode

import pytest
from both_ways import BothWays
from flask import Flask
from flask.testing import FlaskClient
from jinja2 import FileSystemBytecodeCache
from kept_pictures import generate_picture
from processes import no_process
from shared_apps import SharedApps
from waiting import PATIENCE
from werkzeug.test import TestResponse

import identity_server
from identity import links, passwords
from storage import ATTEMPTS_WINDOW, Client, Storage, User, open_storage, pictures
from storage.flat_files import disk

identity_server.FastPath = BothWays  # each API answer of each test is compared with Flask's

BACKENDS = {"flat files": open_storage}

# In the background of a shell script SIGINT is ignored, and what the tests start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


# What a bare machine cannot run, or takes long: left out unless `-m ci` asks for it.
ONLY_IN_CI = {"browser", "node", "faults", "nginx", "openapi", "timing", "load", "wheel"}


MEMORY = "/dev/shm"
ROOM_IN_MEMORY = 1 << 30  # bytes; containers often have 64 MiB there


@pytest.hookimpl(tryfirst=True)  # before pytest itself chooses a folder
def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests' files in memory where there is room, unless the caller names a folder.

    A test that needs a real disk mounts one.
    """
    if _has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def _has_room(folder: str) -> bool:
    """True where the tests' files, programs among them, may be kept in this folder."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    kind = os.statvfs(folder)
    return kind.f_bavail * kind.f_frsize >= ROOM_IN_MEMORY and not kind.f_flag & os.ST_NOEXEC


@pytest.hookimpl(tryfirst=True)  # before pytest itself deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the marker `ci` to the tests that have one of ONLY_IN_CI."""
    for item in items:
        if not ONLY_IN_CI.isdisjoint(mark.name for mark in item.iter_markers()):
            item.add_marker("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say how much of tests/faults is run."""
    faults = parser.getgroup("faults", "kills, failing calls and power cuts (tests/faults)")
    faults.addoption(
        "--all-faults", action="store_true", help="every fault at every step, in place of samples"
    )
    faults.addoption(
        "--faults-seed",
        type=int,
        # In the environment, which the workers of xdist inherit: midnight changes nothing.
        default=int(os.environ.setdefault("FAULTS_SEED", f"{datetime.now(UTC):%Y%m%d}")),
        help="what decides which faults are in the samples (the day, as YYYYMMDD, in UTC)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Say how the same faults can be had again."""
    chosen = "--all-faults" if config.option.all_faults else "samples"
    return f"faults: {chosen}, --faults-seed={config.option.faults_seed}"


@pytest.fixture(autouse=True)
def without_processes(request) -> Iterator[None]:
    """A test starts no process, unless it has the marker `live` or takes long anyway."""
    if any(request.node.get_closest_marker(name) for name in ("live", "ci")):
        yield
    else:
        with no_process():
            yield


@pytest.fixture
def unsynced(monkeypatch) -> None:
    """Waits for no disk: two thirds of the time otherwise.

    What is synced, and when, is in test_flat_files.py.
    """
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(disk, "sync_file_system", lambda descriptor: None)


@pytest.fixture
def drawn_once(monkeypatch) -> None:
    """Draws the picture of each user id once for all tests: most of what adding a user costs."""
    monkeypatch.setattr(pictures, "generate_picture", generate_picture)


@pytest.fixture(params=BACKENDS)
def open_installation(request, tmp_path, unsynced, drawn_once) -> Callable[[], Storage]:
    """Opens the storage of this test's installation, empty at first, as each process does."""
    data_dir, picture_dir = tmp_path / "instance", tmp_path / "pfp"
    return functools.partial(BACKENDS[request.param], str(data_dir), str(picture_dir))


@pytest.fixture
def storage(open_installation) -> Storage:
    """An installation without users."""
    return open_installation()


# -- the app, and who meets it ------------------------------------------------------------------

PASSWORD = "correct horse battery staple"
# The real one takes a third of a second; the tests that are about it put it back.
CHEAP_PASSWORD_METHOD = "pbkdf2:sha256:1"


class Visitor(FlaskClient):
    """Sends requests, and looks at every answer for what is promised of all of them."""

    def open(self, *args, **kwargs) -> TestResponse:
        answer = super().open(*args, **kwargs)
        if answer.request.path.startswith("/api/") and answer.status_code >= 400:
            assert answer.content_type == "application/json"
            if answer.request.method != "HEAD":
                assert list(answer.json) == ["message"]
                assert answer.json["message"]
        return answer


class Browser(Visitor):
    """A player's browser: it keeps cookies, and says that its forms come from our own pages."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.environ_base["HTTP_SEC_FETCH_SITE"] = "same-origin"

    def sign_in(self, name: str = "Ada", password: str = PASSWORD, **fields: str) -> TestResponse:
        """Send the sign-in form."""
        return self.post("/sign-in", data={"name": name, "password": password, **fields})

    def decide(self, page: TestResponse, decision: str = "allow") -> TestResponse:
        """Press a button of a consent page."""
        signed = html.unescape(re.search('name="request" value="([^"]*)"', page.text)[1])
        return self.post("/oauth/authorize", data={"request": signed, "decision": decision})

    def allow(self, program: "Program", **parameters: str) -> str:
        """Go through the grant as somebody who is signed in; returns the code."""
        answer = self.get(program.link(**parameters))
        if answer.status_code == 200:  # the consent page
            answer = self.decide(answer)
        return program.read_callback(answer)["code"]


@dataclass
class Program:
    """A third-party program: what it was given at registration, and what it does with that."""

    http: Visitor
    id: str
    secret: str
    redirect_uri: str

    def link(self, **parameters: str | list[str] | None) -> str:
        """The authorization request that it sends players to; None leaves a parameter out."""
        asked = {"response_type": "code", "client_id": self.id, "redirect_uri": self.redirect_uri}
        return f"/oauth/authorize?{_encode(asked | parameters)}"

    def read_callback(self, answer: TestResponse) -> dict[str, str]:
        """What it learns where the answer sends the browser to its redirect URI."""
        assert answer.status_code == 303
        address, _, query = answer.location.partition("?")
        assert address == self.redirect_uri.partition("?")[0]
        return dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))

    def exchange(
        self, code: str, /, headers: dict | None = None, **changes: str | list[str] | None
    ) -> TestResponse:
        """The token request; None leaves a parameter out, a list repeats it."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": self.id,
            "client_secret": self.secret,
        }
        return self.http.post(
            "/api/oauth/token",
            data=_encode(form | changes),
            headers={"Content-Type": "application/x-www-form-urlencoded"} | (headers or {}),
        )

    def token_for(self, code: str) -> str:
        """The access token that a good code is exchanged for."""
        return self.exchange(code).json["access_token"]

    def whois(self, token: str) -> TestResponse:
        """Ask who gave this access token."""
        return self.http.get("/api/oauth/whois", headers={"Authorization": f"Bearer {token}"})


def _encode(parameters: dict) -> str:
    return urlencode({k: v for k, v in parameters.items() if v is not None}, doseq=True)


@pytest.fixture(scope="session")
def shared_apps() -> SharedApps:
    """The apps that are made once and lent to one test after another."""
    return SharedApps()


@pytest.fixture(scope="session")
def compiled_templates(tmp_path_factory) -> FileSystemBytecodeCache:
    """Templates compiled once, and not for every app anew."""
    return FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))


@pytest.fixture
def new_process(monkeypatch, drawn_once) -> None:
    """What a process of the server remembers between requests: nothing, as when it starts.

    Its passwords are cheap.
    """
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", CHEAP_PASSWORD_METHOD)
    nobodys_hash = f"{CHEAP_PASSWORD_METHOD}$0000000000000000${'0' * 64}"  # no password has it
    monkeypatch.setattr(passwords, "NOBODYS_HASH", nobodys_hash)
    monkeypatch.setattr(passwords, "last_costs", {})


@pytest.fixture
def environment(monkeypatch) -> pytest.MonkeyPatch:
    """The environment, without what the caller set for a server of their own."""
    for name in os.environ:
        if name.startswith("IDENTITY_"):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def make_app(
    tmp_path, environment, new_process, shared_apps, compiled_templates, unsynced
) -> Iterator[Callable[..., Flask]]:
    """Makes an app, on this test's own folders, with these settings and no others.

    Each is the test's own until it ends, and as `create_app` returns it.
    """
    here = {
        "DATA_DIR": str(tmp_path / "instance"),
        "PICTURE_DIR": str(tmp_path / "pfp"),
        "BASE_URL": "http://localhost",  # where the test client keeps its cookies
    }
    lent = []

    def make_app(**settings: str) -> Flask:
        lent.append(shared_apps.lend(here | settings))
        app = lent[-1].app
        app.jinja_env.bytecode_cache = compiled_templates
        return app

    yield make_app
    for each in lent:
        shared_apps.take_back(each)


@pytest.fixture
def app(make_app) -> Flask:
    """The app, with the default settings."""
    return make_app()


@pytest.fixture
def store(app) -> Storage:
    """What the app keeps."""
    return app.extensions["storage"]


@pytest.fixture
def ada(store) -> User:
    """A player."""
    return store.add_user("Ada", "ada@example.org", passwords.hash_password(PASSWORD))


@pytest.fixture
def bob(store) -> User:
    """Another player."""
    return store.add_user("Bob", "bob@example.org", passwords.hash_password(PASSWORD))


@pytest.fixture
def open_browser(app) -> Callable[[], Browser]:
    """Starts a browser that has no cookies yet."""
    return lambda: Browser(app, app.response_class)


@pytest.fixture
def browser(open_browser) -> Browser:
    """A browser in which nobody is signed in."""
    return open_browser()


@pytest.fixture
def adas_browser(browser, ada) -> Browser:
    """The browser of Ada, who is signed in."""
    browser.sign_in()
    return browser


@pytest.fixture
def adas_link(store, ada) -> str:
    """The address that the administrators gave Ada, who lost her password."""
    return links.issue_sign_in_link(store, "", ada)


@pytest.fixture
def anyone(app) -> Visitor:
    """A program that keeps no cookies and is nobody."""
    return Visitor(app, app.response_class, use_cookies=False)


@pytest.fixture
def register(store, anyone) -> Callable[..., Program]:
    """Registers a program with these redirect URIs."""

    def register(
        *redirect_uris: str, name: str = "Space Game", owner_id: int | None = None
    ) -> Program:
        client, secret = store.add_client(name, list(redirect_uris), owner_id)
        return Program(anyone, client.id, secret, redirect_uris[0])

    return register


def all_clients(store: Storage) -> list[Client]:
    """Every client that is registered."""
    return [store.read_client(each) for each in store.client_ids()]


@pytest.fixture
def program(register) -> Program:
    """A registered program."""
    return register("https://space.example/callback")


@pytest.fixture
def meet_before_saving(monkeypatch) -> None:
    """Two requests that hash a password wait for each other: both have passed every check."""
    meeting = threading.Barrier(2)

    def hash_password(password: str) -> str:
        meeting.wait(timeout=PATIENCE)
        return passwords.hash_password(password)

    for module in ("account", "sign_up"):
        monkeypatch.setattr(f"pages.{module}.hash_password", hash_password)


def replace_by_a_file(folder) -> None:
    """From now on nothing can be written there."""
    shutil.rmtree(folder)
    folder.touch()


class Clock:
    """The time that the server sees: it stands still until a test moves it."""

    def __init__(self) -> None:
        self.ahead = 0  # seconds since the clock stopped
        self._stopped = time.time_ns()

    def time(self) -> float:
        return self.time_ns() / 10**9

    def time_ns(self) -> int:
        return self._stopped + self.ahead * 10**9

    def begin_window(self) -> None:
        """Go on to where the next quarter of an hour begins, in which guesses are counted."""
        self.ahead += ATTEMPTS_WINDOW - int(self.time()) % ATTEMPTS_WINDOW


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Moves the server's time: `clock.ahead += 60`."""
    clock = Clock()
    monkeypatch.setattr(time, "time", clock.time)
    monkeypatch.setattr(time, "time_ns", clock.time_ns)
    return clock
