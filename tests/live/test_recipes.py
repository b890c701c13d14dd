"""The recipes of docs/games.md: each runs unchanged and signs a player in."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from waiting import wait_until

from commands.running import kept_port
from identity.settings import ROOT
from identity.stamps import MINIMUM_AGE

from . import npm
from .form_browser import Form, FormBrowser, Page
from .running import ANSWER_TIMEOUT, RunningServer

pytestmark = pytest.mark.live
GAMES = (Path(ROOT) / "docs" / "games.md").read_text(encoding="utf-8")
RECIPES = dict(
    re.findall(r"^<!-- recipe: (\S+) -->\n```\w+\n(.*?)^```$", GAMES, re.MULTILINE | re.DOTALL)
)
PACKAGES = ["express", "express-session", "passport", "passport-oauth2", "@auth/express"]


@contextlib.contextmanager
def running(command: list[str], folder: Path, address: str, **environment: str) -> Iterator[None]:
    """Run a third-party program until the block ends; `address` is where it listens."""
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environment}, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: responds(address), process, (folder / "log").read_text)
        yield
    finally:
        process.terminate()
        process.wait(ANSWER_TIMEOUT)


def responds(address: str) -> bool:
    """Return whether an HTTP server responds there."""
    with contextlib.suppress(requests.ConnectionError):
        requests.get(address, timeout=ANSWER_TIMEOUT)
        return True
    return False


def sign_in_and_press(
    form_browser: FormBrowser, answer: requests.Response, decision: str = "Allow"
) -> requests.Response:
    """Sign in and decide on the server's pages, as far as they appear; return the last response."""
    for button, typed in (
        ("Sign in", {"name": "ada", "password": "correct horse battery staple"}),
        (decision, {}),
    ):
        if form := form_with(answer.text, button):
            fields = {**form.fields, **form.buttons[button], **typed}
            time.sleep(MINIMUM_AGE / 1000 if button == decision else 0)
            answer = form_browser.session.post(
                f"{form_browser.server_address}{form.action}", data=fields
            )
    return answer


def form_with(page: str, button: str) -> Form | None:
    """Return the form of a page with this button, or None."""
    if f">{button}<" not in page:
        return None
    return Page("", 200, page).form_with(button)


def test_there_are_four_recipes():
    assert set(RECIPES) == {
        "authlib_recipe.py",
        "requests_oauthlib_recipe.py",
        "authjs_recipe.mjs",
        "passport_recipe.mjs",
    }


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
def running_python(name: str, folder: Path, server: RunningServer) -> Iterator[RunningRecipe]:
    """Register this recipe as a client, and run it at a free port."""
    with kept_port("127.0.0.1", 0) as port:
        recipe = RunningRecipe(f"http://127.0.0.1:{port}", "/callback")
        command = [sys.executable, "-m", "flask", "--app", name.removesuffix(".py"), "run"]
        command += ["--port", str(port)]
        environment = installed(name, folder, server, "http://127.0.0.1:5000/callback")
        with running(command, folder, recipe.site, OAUTHLIB_INSECURE_TRANSPORT="1", **environment):
            yield recipe


@contextlib.contextmanager
def running_node(name: str, folder: Path, server: RunningServer) -> Iterator[RunningRecipe]:
    """Register this recipe as a client, and run it at the port 3000 that its text names."""
    path = "/auth/callback/community" if name == "authjs_recipe.mjs" else "/callback"
    recipe = RunningRecipe("http://127.0.0.1:3000", path)
    environment = installed(name, folder, server, recipe.callback)
    environment["AUTH_SECRET"] = "of the length that Auth.js wants, which is long"
    # The lock keeps parallel test processes from using the port at the same time.
    with open(Path(tempfile.gettempdir(), f"identity-server-port-3000-{os.getuid()}"), "w") as port:
        fcntl.flock(port, fcntl.LOCK_EX)
        with running([shutil.which("node"), name], folder, recipe.site, **environment):
            yield recipe


def installed(name: str, folder: Path, server: RunningServer, redirect_uri: str) -> dict[str, str]:
    """Write a recipe to a folder and register it; return its environment."""
    (folder / name).write_text(RECIPES[name], encoding="utf-8")
    client = server.add_client(name, redirect_uri)
    return {
        "SITE": server.address,
        "CLIENT_ID": client["client_id"],
        "CLIENT_SECRET": client["client_secret"],
    }


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the npm packages of the recipes."""
    folder = tmp_path_factory.mktemp("recipes")
    npm.install(folder, *PACKAGES)
    return folder


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.clients)
        if name.endswith(".py")
        else pytest.param(name, marks=npm.NEEDS_NPM)
        for name in RECIPES
    ]
)
def recipe(request, server: RunningServer, ada: dict, tmp_path: Path) -> Iterator[RunningRecipe]:
    """Each recipe, running unchanged."""
    if request.param.endswith(".py"):
        run = running_python(request.param, tmp_path, server)
    else:
        run = running_node(request.param, request.getfixturevalue("packages"), server)
    with run as recipe:
        yield recipe


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


def test_recipe_refuses_other_responses_without_a_server_error(
    recipe: RunningRecipe, form_browser: FormBrowser, subtests
):
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
