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
from pathlib import Path

import pytest
import requests
from waiting import wait_until

from commands.running import kept_port
from identity.settings import ROOT
from identity.stamps import MINIMUM_AGE

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


def sign_in_and_allow(form_browser: FormBrowser, answer: requests.Response) -> requests.Response:
    """Sign in and allow on the server's pages, as far as they appear; return the last response."""
    for button, typed in (
        ("Sign in", {"name": "ada", "password": "correct horse battery staple"}),
        ("Allow", {}),
    ):
        if form := form_with(answer.text, button):
            fields = {**form.fields, **form.buttons[button], **typed}
            time.sleep(MINIMUM_AGE / 1000 if button == "Allow" else 0)
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


@pytest.mark.clients
@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith(".py")])
def test_a_python_recipe_signs_a_player_in(
    server: RunningServer, form_browser: FormBrowser, ada: dict, tmp_path: Path, name: str
):
    client = server.add_client(name, "http://127.0.0.1:5000/callback")
    with kept_port("127.0.0.1", 0) as port:
        site = f"http://127.0.0.1:{port}"
        (tmp_path / name).write_text(RECIPES[name], encoding="utf-8")
        command = [sys.executable, "-m", "flask", "--app", name.removesuffix(".py"), "run"]
        command += ["--port", str(port)]
        environment = {
            "SITE": server.address,
            "CLIENT_ID": client["client_id"],
            "CLIENT_SECRET": client["client_secret"],
            "OAUTHLIB_INSECURE_TRANSPORT": "1",
        }
        with running(command, tmp_path, site, **environment):
            assert "Sign in" in form_browser.session.get(site).text
            answer = sign_in_and_allow(form_browser, form_browser.session.get(f"{site}/sign-in"))
    assert answer.text == f"Hello, player {ada['id']}"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the npm packages of the recipes."""
    folder = tmp_path_factory.mktemp("recipes")
    command = [shutil.which("npm"), "install", "--no-audit", "--no-fund", *PACKAGES]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.node
@pytest.mark.xdist_group("npm")
def test_the_passport_recipe_signs_a_player_in(
    server: RunningServer, form_browser: FormBrowser, ada: dict, packages: Path
):
    site = "http://127.0.0.1:3000"
    with running_node("passport_recipe.mjs", packages, server, f"{site}/callback"):
        answer = sign_in_and_allow(form_browser, form_browser.session.get(f"{site}/sign-in"))
    assert answer.text == f"Hello, player {ada['id']}"


@pytest.mark.node
@pytest.mark.xdist_group("npm")
def test_the_auth_js_recipe_signs_a_player_in(
    server: RunningServer, form_browser: FormBrowser, ada: dict, packages: Path
):
    site = "http://127.0.0.1:3000"
    with running_node("authjs_recipe.mjs", packages, server, f"{site}/auth/callback/community"):
        token = form_browser.session.get(f"{site}/auth/csrf").json()["csrfToken"]
        form = {"csrfToken": token, "callbackUrl": f"{site}/"}
        answer = sign_in_and_allow(
            form_browser, form_browser.session.post(f"{site}/auth/signin/community", data=form)
        )
    assert answer.text == f"Hello, player {ada['id']}"


@contextlib.contextmanager
def running_node(
    name: str, folder: Path, server: RunningServer, redirect_uri: str
) -> Iterator[None]:
    """Register this recipe as a client, and run it at the port 3000 that its text names."""
    client = server.add_client(name, redirect_uri)
    (folder / name).write_text(RECIPES[name], encoding="utf-8")
    environment = {
        "SITE": server.address,
        "CLIENT_ID": client["client_id"],
        "CLIENT_SECRET": client["client_secret"],
        "AUTH_SECRET": "of the length that Auth.js wants, which is long",
    }
    # The lock keeps parallel test processes from using the port at the same time.
    with open(Path(tempfile.gettempdir(), f"identity-server-port-3000-{os.getuid()}"), "w") as port:
        fcntl.flock(port, fcntl.LOCK_EX)
        command = [shutil.which("node"), name]
        with running(command, folder, "http://127.0.0.1:3000", **environment):
            yield
