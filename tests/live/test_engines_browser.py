"""The games of docs/engines/ in the browser: each runs as it stands in its page."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Frame, Page, expect
from waiting import wait_until

from identity.site.settings import ROOT
from storage import Storage

from . import npm
from .engines import PICTURE_PIXELS, count_orange_pixels, read_program, save_orange_picture
from .running import RunningServer
from .test_browser import Game, set_session_cookie, sign_in

pytestmark = [pytest.mark.live, pytest.mark.browser]
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


@pytest.fixture(scope="module", autouse=True)
def picture(server: RunningServer, ada: dict) -> None:
    """Ada's picture."""
    save_orange_picture(server.open_storage(), ada["id"])


@pytest.fixture(scope="module")
def phaser(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Phaser's script, from npm."""
    folder = tmp_path_factory.mktemp("phaser")
    npm.install(folder, "phaser@4")
    return (folder / "node_modules/phaser/dist/phaser.min.js").read_text(encoding="utf-8")


@pytest.fixture(params=["javascript.md", pytest.param("phaser.md", marks=npm.NEEDS_NPM)])
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


def test_blocked_popup_becomes_a_redirect(site: Site, page: Page):
    page.add_init_script("self.open = () => null")
    shown = site.open(page)
    shown.press()
    sign_in(page)
    page.get_by_role("button", name="Allow").click()
    page.wait_for_url(site.address)  # without code and state
    shown.expect_player()


def test_game_on_the_play_page_shows_name_and_picture(
    site: Site, server: RunningServer, page: Page
):
    set_session_cookie(page, server)
    shown = site.open_play_page(page)
    page.get_by_role("dialog").get_by_role("button", name="Allow").click()
    shown.expect_player()
