"""The games of docs/engines/ outside the browser: each runs as it stands in its page.

test_engines_browser.py has those in the browser.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from programs import logging_program
from waiting import wait_until

from .engines import PICTURE_PIXELS, count_orange_pixels, read_program, save_orange_picture
from .form_browser import FormBrowser, Page
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer

pytestmark = pytest.mark.live
GODOT = pytest.mark.godot
HERE = Path(__file__).parent / "engines"


@pytest.fixture(scope="module", autouse=True)
def picture(server: RunningServer, ada: dict) -> None:
    """Ada's picture."""
    save_orange_picture(server.open_storage(), ada["id"])


class NativeGame:
    """A game in a process of its own, under a program of tests/live/engines that watches it."""

    def __init__(self, folder: Path, process: subprocess.Popen) -> None:
        self.folder = folder
        self.process = process

    def press(self) -> None:
        """Press the game's sign-in button."""
        (self.folder / "press").touch()

    def wait_for(self, condition: Callable[[], object]) -> None:
        wait_until(condition, self.process, (self.folder / "log").read_text)

    def frames(self) -> list[dict]:
        """Return what the game has shown: `texts`, and `picture`, the name of a file."""
        lines = (self.folder / "shown").read_text().splitlines(keepends=True)
        return [json.loads(each) for each in lines if re.fullmatch(r"\{.*\}\n", each)]

    def shows(self, text: str) -> bool:
        """Return whether the game shows this text now."""
        frames = self.frames()
        return bool(frames) and any(text in each for each in frames[-1]["texts"])

    def shows_picture(self) -> bool:
        """Return whether the game shows the player's picture now."""
        picture = self.frames()[-1]["picture"]
        return picture is not None and count_orange_pixels(self.folder / picture) == PICTURE_PIXELS

    def opened(self) -> list[str]:
        """Return the addresses that the game opened in the browser."""
        opened = self.folder / "opened"
        return opened.read_text().splitlines() if opened.exists() else []

    def wait_for_address(self) -> str:
        """Return the address that the game opened in the browser."""
        self.wait_for(self.opened)
        return self.opened()[-1]


class GodotGame(NativeGame):
    """A game whose engine has no screen, and therefore opens no browser."""

    def opened(self) -> list[str]:
        texts = [text for frame in self.frames() for text in frame["texts"]]
        return [text.split()[-1] for text in texts if text.startswith("Open this page: ")]


def write_pygame(folder: Path, server: RunningServer, client_id: str) -> list[str]:
    """Write the program of pygame.md, and a browser that notes addresses; return its command."""
    (folder / "game.py").write_text(read_program("pygame.md", "game.py", server, client_id))
    browser = folder / "browser"
    browser.write_text('#!/bin/sh\nprintf "%s\\n" "$1" >> opened\n')
    browser.chmod(0o755)
    return [sys.executable, str(HERE / "watch_pygame.py"), "game.py"]


def write_godot(folder: Path, server: RunningServer, client_id: str) -> list[str]:
    """Write the program of godot.md for Godot 3; return its command."""
    (folder / "project.godot").write_text("config_version=4\n")
    (folder / "game.gd").write_text(read_program("godot.md", "godot3.gd", server, client_id))
    (folder / "watch.gd").write_text((HERE / "watch_godot.gd").read_text())
    return ["godot3-server", "--path", str(folder), "--script", "watch.gd"]


@pytest.fixture(
    params=[(NativeGame, write_pygame), pytest.param((GodotGame, write_godot), marks=GODOT)],
    ids=["pygame", "godot"],
)
def native_game(
    request: pytest.FixtureRequest, server: RunningServer, tmp_path: Path
) -> Iterator[NativeGame]:
    """Each game that runs outside the browser, with the player at its sign-in button."""
    kind, write = request.param
    client = server.add_client("Space Game", "http://127.0.0.1/callback", public=True)
    command = write(tmp_path, server, client["client_id"])
    # Sound libraries keep files in XDG_RUNTIME_DIR; without it in /tmp.
    own = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    own |= {"SDL_VIDEODRIVER": "dummy", "BROWSER": "./browser"}
    with logging_program(command, tmp_path, **own) as (process, _):
        game = kind(tmp_path, process)
        game.press()
        yield game


def follow(page: Page) -> requests.Response:
    """Let the browser follow the redirect to the game."""
    assert urlsplit(page.address).hostname == "127.0.0.1"
    return requests.get(page.address, timeout=ANSWER_TIMEOUT)


def test_native_game_shows_name_and_picture(native_game: NativeGame, form_browser: FormBrowser):
    answer = follow(form_browser.allow(native_game.wait_for_address(), "ada"))
    assert (answer.status_code, "return to the game" in answer.text) == (200, True)
    native_game.wait_for(lambda: native_game.shows("Hello, ada!"))
    native_game.wait_for(native_game.shows_picture)


def test_native_game_says_that_the_player_cancelled(
    native_game: NativeGame, form_browser: FormBrowser
):
    page = form_browser.open(native_game.wait_for_address())
    page = form_browser.press(page, "Sign in", name="ada", password=PASSWORD)
    page = form_browser.press(page, "Cancel")
    assert page.answer["error"] == "access_denied"
    assert follow(page).status_code == 200
    native_game.wait_for(lambda: native_game.shows("You are not signed in."))


def test_native_game_refuses_another_state_and_waits(
    native_game: NativeGame, form_browser: FormBrowser
):
    """RFC 6749 10.12: any page can send the browser to the port of the game."""
    address = native_game.wait_for_address()
    page = form_browser.allow(address, "ada")
    callback = page.address.partition("?")[0]
    for query in ({"state": "another"}, {}, {"state": ""}, {"error": "access_denied"}):
        forged = {"code": page.answer["code"]} | query
        assert requests.get(callback, forged, timeout=ANSWER_TIMEOUT).status_code == 400
    assert not native_game.shows("You are not signed in.")
    follow(page)
    native_game.wait_for(lambda: native_game.shows("Hello, ada!"))
