"""The games of docs/engines/, outside the browser and in it: each runs as it stands in its page."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from PIL import Image
from playwright.sync_api import Frame, Page, expect
from programs import logging_program
from waiting import wait_until

from identity.site.settings import ROOT
from storage import Storage

from . import npm
from .engines import PICTURE_PIXELS, count_orange_pixels, read_program, save_orange_picture
from .form_browser import FormBrowser
from .form_browser import Page as FormPage
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer
from .test_browser import Game, set_session_cookie, sign_in

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


def write_pygame(
    folder: Path, server: RunningServer, client_id: str, program: str = "game.py"
) -> list[str]:
    """Write a program of pygame.md, and a browser; return its command."""
    (folder / "game.py").write_text(read_program("pygame.md", program, server, client_id))
    write_browser(folder)
    return [sys.executable, str(HERE / "watch_pygame.py"), "game.py"]


def write_browser(folder: Path) -> None:
    """Write the program `browser`, which notes the addresses that a game opens."""
    browser = folder / "browser"
    browser.write_text('#!/bin/sh\nprintf "%s\\n" "$1" >> opened\n')
    browser.chmod(0o755)


def write_godot(
    folder: Path, server: RunningServer, client_id: str, program: str = "godot3.gd"
) -> list[str]:
    """Write a program of godot.md for Godot 3; return its command."""
    (folder / "project.godot").write_text("config_version=4\n")
    (folder / "game.gd").write_text(read_program("godot.md", program, server, client_id))
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
    with running_game(kind, command, tmp_path) as game:
        yield game


@contextmanager
def running_game(kind: type[NativeGame], command: list[str], folder: Path) -> Iterator[NativeGame]:
    """Run a game, and press its sign-in button."""
    # Sound libraries keep files in XDG_RUNTIME_DIR; without it in /tmp.
    own = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    own |= {"SDL_VIDEODRIVER": "dummy", "BROWSER": "./browser"}
    with logging_program(command, folder, **own) as (process, _):
        game = kind(folder, process)
        game.press()
        yield game


def follow(page: FormPage) -> requests.Response:
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


# -- without a browser (RFC 8628) ----------------------------------------------------------------

DEVICE_PROGRAMS = [
    (NativeGame, write_pygame, "device.py"),
    pytest.param((GodotGame, write_godot, "godot3_device.gd"), marks=GODOT),
]


@pytest.fixture(params=DEVICE_PROGRAMS, ids=["pygame", "godot"])
def device_game(
    request: pytest.FixtureRequest, server: RunningServer, tmp_path: Path
) -> Iterator[NativeGame]:
    """Each game that shows a code."""
    kind, write, program = request.param
    client = server.add_client("Space Console", public=True, device=True)
    command = write(tmp_path, server, client["client_id"], program)
    with running_game(kind, command, tmp_path) as game:
        yield game


def type_code(game: NativeGame, browser: FormBrowser) -> FormPage:
    """Open the address that the game shows, and type its code; return the page that asks."""
    game.wait_for(lambda: game.shows("and type "))
    shown = "\n".join(game.frames()[-1]["texts"])
    address, user_code = re.fullmatch(r"Open (\S+)\nand type (\S+)", shown).groups()
    assert address == f"{browser.server_address}/device"
    page = browser.press(browser.open(address), "Sign in", name="ada", password=PASSWORD)
    return browser.press(page, "Continue", user_code=user_code)


def test_game_without_a_browser_shows_qr_code_name_and_picture(
    device_game: NativeGame, form_browser: FormBrowser
):
    page = type_code(device_game, form_browser)
    device_game.wait_for(lambda: device_game.frames()[-1]["picture"])
    picture = Image.open(device_game.folder / device_game.frames()[-1]["picture"]).convert("L")
    black, white = (picture.histogram()[shade] for shade in (0, 255))
    assert min(black, white) > 20_000  # of the QR code
    form_browser.press(page, "Allow")
    device_game.wait_for(lambda: device_game.shows("Hello, ada!"))
    device_game.wait_for(device_game.shows_picture)


def test_game_without_a_browser_says_that_the_player_cancelled(
    device_game: NativeGame, form_browser: FormBrowser
):
    form_browser.press(type_code(device_game, form_browser), "Cancel")
    device_game.wait_for(lambda: device_game.shows("You are not signed in."))


# -- in the browser --------------------------------------------------------------------------------

IDENTITY_JS = (Path(ROOT) / "static" / "identity.js").read_text(encoding="utf-8")
CANCELLED = re.search(r'access_denied"?[:,] "([^"]+)"', IDENTITY_JS)[1]  # its sentence for players
# Phaser draws each line of a text on a canvas of its own, and then on the game's.
RECORD_TEXTS = """
self.drawn = "";
const draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
  self.drawn += `${text.trim()} `;
  return draw.call(this, text, ...more);
};
"""


class HtmlGame:
    """A game that shows text and picture as elements of its page."""

    picture = "img"

    def __init__(self, page: Page | Frame) -> None:
        self.page = page

    def press(self) -> None:
        """Press the sign-in button."""
        self.page.get_by_role("button", name="Sign in").click()

    def expect_text(self, text: str) -> None:
        """Wait until the game shows this text."""
        expect(self.page.get_by_role("status")).to_contain_text(text)

    def expect_player(self) -> None:
        """Wait until the game shows Ada's name and picture."""
        self.expect_text("Hello, ada!")
        wait_until(lambda: self.count_orange_pixels() == PICTURE_PIXELS)

    def count_orange_pixels(self) -> int:
        screenshot = self.page.locator(self.picture).screenshot()
        return count_orange_pixels(io.BytesIO(screenshot))


class PhaserGame(HtmlGame):
    """A game that draws text and picture on a canvas."""

    picture = "canvas"

    def press(self) -> None:
        self.expect_text("Sign in")
        self.page.locator("canvas").click(position={"x": 120, "y": 50})

    def expect_text(self, text: str) -> None:
        self.page.wait_for_function("text => self.drawn.includes(text)", arg=text)


@dataclass
class Site:
    """A game's web site, and where to play it on the community's site."""

    kind: type[HtmlGame]
    address: str
    play_address: str

    def open(self, page: Page, query: str = "") -> HtmlGame:
        """Open the game at its own address."""
        page.add_init_script(RECORD_TEXTS)
        page.goto(f"{self.address}{query}")
        return self.kind(page)

    def open_play_page(self, page: Page) -> HtmlGame:
        """Open the page of the community's site that embeds the game."""
        page.add_init_script(RECORD_TEXTS)
        page.goto(self.play_address)
        return self.kind(page.locator("#game").element_handle().content_frame())


@pytest.fixture(scope="module")
def phaser(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Phaser's script, from npm."""
    folder = tmp_path_factory.mktemp("phaser")
    npm.install(folder, "phaser@4")
    return (folder / "node_modules/phaser/dist/phaser.min.js").read_text(encoding="utf-8")


@pytest.fixture(params=["javascript.md", pytest.param("phaser.md", marks=pytest.mark.node)])
def site(
    request: pytest.FixtureRequest,
    server: RunningServer,
    store: Storage,
    game: Game,
    console_errors: list[str],
) -> Iterator[Site]:
    """The site of each game; both games are registered with it and as games on the server's."""
    address = f"{game.origin()}/"
    client, _ = store.clients.register("Space Game", [address], None, game_url=address, public=True)
    game.pages["/"] = read_program(request.param, "index.html", server, client.id)
    kind = HtmlGame
    if request.param == "phaser.md":
        kind, game.pages["/phaser.min.js"] = PhaserGame, request.getfixturevalue("phaser")
    yield Site(kind, address, f"{server.address}/play/{client.id}")
    store.clients.delete(client.id)
    # Screenshots of a canvas with WebGL are slow without a graphics card.
    console_errors[:] = [each for each in console_errors if "GPU stall" not in each]


@pytest.fixture
def page(browse) -> Page:
    """A browser that is signed out."""
    return browse()


def open_popup(page: Page, shown: HtmlGame) -> Page:
    """Press the game's sign-in button; return the popup."""
    with page.expect_popup() as opened:
        shown.press()
    return opened.value


@pytest.mark.browser
def test_sign_in_after_a_forged_code_and_cancel(site: Site, page: Page):
    """RFC 6749 10.12: anyone can send a player to the game with a code."""
    exchanged = []
    page.on("request", lambda request: exchanged.append("/api/oauth/token" in request.url))
    shown = site.open(page, f"?code={'a' * 43}&state=another")
    popup = open_popup(page, shown)
    sign_in(popup)
    popup.get_by_role("button", name="Cancel").click()
    shown.expect_text(CANCELLED)
    assert not any(exchanged)
    popup = open_popup(page, shown)
    popup.get_by_role("button", name="Allow").click()
    shown.expect_player()
    wait_until(popup.is_closed, meanwhile=lambda: page.wait_for_timeout(10))


@pytest.mark.browser
def test_blocked_popup_becomes_a_redirect(site: Site, page: Page):
    page.add_init_script("self.open = () => null")
    shown = site.open(page)
    shown.press()
    sign_in(page)
    page.get_by_role("button", name="Allow").click()
    page.wait_for_url(site.address)  # without code and state
    shown.expect_player()


@pytest.mark.browser
def test_game_on_the_play_page_shows_name_and_picture(
    site: Site, server: RunningServer, page: Page
):
    set_session_cookie(page, server)
    shown = site.open_play_page(page)
    page.get_by_role("dialog").get_by_role("button", name="Allow").click()
    shown.expect_player()
