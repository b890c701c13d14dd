"""The recipes of docs/games/recipes.md: each runs unchanged and signs a player in."""

import contextlib
import fcntl
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from documents import read_blocks
from programs import is_open, logging_program
from waiting import wait_until

from commands.running import kept_port
from storage import Storage

from . import npm
from .form_browser import FormBrowser, Page
from .running import PASSWORD, RunningServer

pytestmark = pytest.mark.live
RECIPES = read_blocks("docs/games/recipes.md")
assert ["/api/oauth/whois?client_id=" in each for each in RECIPES.values()] == [True] * 4
PACKAGES = ["express", "express-session", "passport", "passport-oauth2", "@auth/express"]


def sign_in_and_press(
    form_browser: FormBrowser, answer: requests.Response, decision: str = "Allow"
) -> requests.Response:
    """Sign in and decide on the server's pages, as far as they appear; return the last response."""
    for button, typed in (("Sign in", {"name": "ada", "password": PASSWORD}), (decision, {})):
        if f">{button}<" in answer.text and (form := Page("", 200, answer.text).form_with(button)):
            fields = {**form.fields, **form.buttons[button], **typed}
            address = f"{form_browser.server_address}{form.action}"
            answer = form_browser.session.post(address, data=fields)
    return answer


@dataclass
class RunningRecipe:
    """A recipe that runs at the address `site`."""

    site: str
    callback_path: str

    @property
    def callback(self) -> str:
        return f"{self.site}{self.callback_path}"

    def sign_in(self, browser: requests.Session, **options) -> requests.Response:
        """Press the app's link or button for signing in."""
        if "/auth/" not in self.callback_path:
            return browser.get(f"{self.site}/sign-in", **options)
        form = {"csrfToken": browser.get(f"{self.site}/auth/csrf").json()["csrfToken"]}
        form["callbackUrl"] = f"{self.site}/"
        return browser.post(f"{self.site}/auth/signin/community", data=form, **options)


@contextlib.contextmanager
def running(name: str, folder: Path, server: RunningServer) -> Iterator[RunningRecipe]:
    """Register a recipe as a client, and run it; those for node at the port of their text, 3000."""
    is_python = name.endswith(".py")
    with contextlib.ExitStack() as used:
        if is_python:
            port = used.enter_context(kept_port("127.0.0.1", 0))
            flask = ["-m", "flask", "--app", name.removesuffix(".py"), "run", f"--port={port}"]
            command, registered = [sys.executable, *flask], "http://127.0.0.1:5000"
        else:
            port, command, registered = 3000, [shutil.which("node"), name], "http://127.0.0.1:3000"
            # The lock keeps parallel test processes from using the port at the same time.
            lock = Path(tempfile.gettempdir(), f"identity-server-port-3000-{os.getuid()}")
            fcntl.flock(used.enter_context(lock.open("w")), fcntl.LOCK_EX)
        path = "/auth/callback/community" if name == "authjs_recipe.mjs" else "/callback"
        (folder / name).write_text(RECIPES[name], encoding="utf-8")
        client = server.add_client(name, f"{registered}{path}")
        environment = {
            "SITE": server.address,
            "CLIENT_ID": client["client_id"],
            "CLIENT_SECRET": client["client_secret"],
            "OAUTHLIB_INSECURE_TRANSPORT": "1",
            "AUTH_SECRET": "of the length that Auth.js wants, which is long",
        }
        process, read_log = used.enter_context(logging_program(command, folder, **environment))
        wait_until(lambda: is_open(port), process, read_log)
        yield RunningRecipe(f"http://127.0.0.1:{port}", path)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the npm packages of the recipes."""
    folder = tmp_path_factory.mktemp("recipes")
    npm.install(folder, *PACKAGES)
    return folder


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.clients if name.endswith(".py") else pytest.mark.node)
        for name in RECIPES
    ],
)
def recipe(
    request: pytest.FixtureRequest,
    server: RunningServer,
    ada: dict,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningRecipe]:
    """Each recipe, running unchanged."""
    is_python = request.param.endswith(".py")
    folder = tmp_path_factory.mktemp("recipe") if is_python else request.getfixturevalue("packages")
    with running(request.param, folder, server) as recipe:
        yield recipe


@pytest.fixture(autouse=True)
def no_consents(store: Storage, ada: dict) -> None:
    """Ada has allowed no client."""
    with store.users.edit(ada["id"]) as user:
        user.grants.clear()


def test_recipe_signs_a_player_in(recipe: RunningRecipe, form_browser: FormBrowser, ada: dict):
    assert "Sign in" in form_browser.session.get(recipe.site).text
    answer = sign_in_and_press(form_browser, recipe.sign_in(form_browser.session))
    assert answer.text == f"Hello, player {ada['id']}"


def test_recipe_shows_its_home_page_after_cancel(recipe: RunningRecipe, form_browser: FormBrowser):
    page = recipe.sign_in(form_browser.session)
    answer = sign_in_and_press(form_browser, page, "Cancel")
    assert "error=access_denied" in answer.history[-1].request.url
    assert (answer.status_code, answer.url) == (200, f"{recipe.site}/")
    assert ">Sign in</a>" in answer.text


def test_recipe_refuses_other_responses(recipe: RunningRecipe, form_browser: FormBrowser, subtests):
    """RFC 9700 4.7.1: a state belongs to one session. The page has no text of the address."""
    browser, text, code = form_browser.session, "<b>text</b>", "a" * 43
    for case, query in {
        "of another session": {"code": code, "state": "another"},
        "no parameters": {},
        "no code": {"state": None},
        "wrong code": {"code": code, "state": None},
        "unknown error": {"error": "unknown", "error_description": text, "state": None},
    }.items():
        for has_session in (True, False):
            with subtests.test(case, has_session=has_session):
                browser.cookies.clear()
                state = valid_state(recipe, browser) if has_session else "another"
                sent = {key: value or state for key, value in query.items()}
                answer = browser.get(recipe.callback, params=sent)
                assert answer.status_code < 500, answer.text
                assert re.search(">(Try again|Sign in)", answer.text)
                assert text not in answer.text
                assert "Hello" not in browser.get(recipe.site).text


def valid_state(recipe: RunningRecipe, browser: requests.Session) -> str:
    """Return the state that an app sends after a press on its sign-in link."""
    sent = recipe.sign_in(browser, allow_redirects=False)
    return parse_qs(urlsplit(sent.headers["Location"]).query)["state"][0]
