"""The web app and the game of `identity-server demo`, in a real browser."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Frame, Page, expect
from programs import CLIENT_ID, GAME, ROOT, running
from waiting import wait_until

from model.records import Suspension
from storage import open_storage

from . import test_browser
from .demo import EXAMPLE, Demo
from .page_checks import check_page
from .test_browser import Game, sign_in

pytestmark = [pytest.mark.live, pytest.mark.browser, pytest.mark.xdist_group("examples")]
chromium, playwright = test_browser.chromium, test_browser.playwright
browse, game = test_browser.browse, test_browser.game
console_errors = test_browser.console_errors
PASSWORD = EXAMPLE["PASSWORD"]
DEAD_TIME = 1000  # milliseconds in which Allow on the play page ignores input
OWN_ROW = "#scores [aria-current=true]"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    demo = Demo(tmp_path_factory.mktemp("demo"))
    demo.start()
    yield demo
    demo.kill()


@pytest.fixture(scope="module")
def cookies() -> dict[str, list]:
    """The cookies of each player who has signed in."""
    return {}


@pytest.fixture
def browse_as(demo: Demo, browse, cookies: dict[str, list]) -> Callable[..., Page]:
    """A function that opens a page in which one of the five players is signed in."""

    def browse_as(name: str, **options) -> Page:
        page = browse(**options)
        if name not in cookies:
            page.goto(f"{demo.site}/sign-in")
            sign_in(page, name, PASSWORD)
            page.get_by_role("heading", name=f"Hello, {name}!").wait_for()
            cookies[name] = page.context.cookies()
        page.context.add_cookies(cookies[name])
        return page

    return browse_as


# -- the web app --------------------------------------------------------------------------------


def test_web_app_signs_in_at_the_server(demo: Demo, browse):
    page = browse()
    page.goto(demo.web_app)
    page.get_by_role("link", name="Sign in").click()
    page.get_by_role("heading", name="The first message is ready").wait_for()
    page.get_by_role("link", name="Go to the identity server").click()
    sign_in(page, "ada", PASSWORD)
    page.get_by_role("button", name="Allow").click()
    page.get_by_role("heading", name="Hello, ada!").wait_for()
    assert page.url == f"{demo.web_app}/"  # without the code
    shown = page.locator(".message")
    expect(shown).to_have_count(6)
    expect(shown.last).to_contain_text("ada@example.org")
    assert page.locator("header img").evaluate("image => image.decode().then(() => image.width)")


def test_web_app_shows_access_denied(demo: Demo, browse_as):
    page = browse_as("bruno")
    page.goto(f"{demo.web_app}/sign-in")
    page.get_by_role("link", name="Go to the identity server").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert")).to_have_text("It says access_denied: the player refused")


def test_web_app_layout_and_accessibility(demo: Demo, browse_as):
    """At first, with a request, with a response of another sign-in, and with a player."""
    page = browse_as("emi")
    page.goto(demo.web_app)
    check_page(page)
    page.get_by_role("link", name="Sign in").click()
    check_page(page)
    page.goto(f"{demo.web_app}/callback?code=x&state={'w' * 500}")
    check_page(page)
    page.goto(f"{demo.web_app}/sign-in")
    page.get_by_role("link", name="Go to the identity server").click()
    page.get_by_role("button", name="Allow").click()
    page.get_by_role("heading", name="Hello, emi!").wait_for()
    check_page(page)


# -- the game -----------------------------------------------------------------------------------


def open_game(page: Page, demo: Demo) -> Frame:
    """Open the play page, and return the game's frame when it has loaded."""
    page.goto(demo.play)
    frame = page.locator("#game").element_handle().content_frame()
    frame.get_by_role("button", name="Fly").wait_for()
    return frame


def test_game_asks_once_and_lists_the_player(demo: Demo, browse_as):
    page = browse_as("chidi")
    frame = open_game(page, demo)
    expect(frame.get_by_role("listitem")).to_have_count(5)
    expect(frame.locator(OWN_ROW)).to_have_count(0)
    page.get_by_role("button", name="Allow").click()
    expect(frame.get_by_role("status")).to_have_text("You fly as chidi")
    expect(frame.locator(OWN_ROW)).to_have_text("chidi271")
    frame = open_game(page, demo)
    expect(frame.get_by_role("status")).to_have_text("You fly as chidi")
    expect(page.get_by_role("button", name="Allow")).to_have_count(0)
    pictures = "images => Promise.all(images.map((image) => image.decode()))"
    frame.locator("img").evaluate_all(pictures)


def test_player_without_sign_in_plays_as_a_guest(demo: Demo, browse, browse_as):
    page = browse_as("bruno")
    frame = open_game(page, demo)
    page.get_by_role("button", name="Cancel").click()
    expect(frame.get_by_role("status")).to_contain_text("you did not allow the game to know you")
    expect(frame.locator(OWN_ROW)).to_have_count(0)
    page = browse()
    frame = open_game(page, demo)
    expect(frame.get_by_role("status")).to_contain_text("You are not signed in.")
    expect(frame.get_by_role("button", name="Fly")).to_be_focused()
    page.keyboard.press("Enter")
    expect(frame.get_by_role("button", name="Fly")).to_be_hidden()


def test_score_is_listed_under_the_players_name(demo: Demo, browse):
    page = browse(viewport={"width": 200, "height": 200})  # small, to paint a minute of frames fast
    page.clock.install()
    page.goto(f"{demo.site}/sign-up")
    page.get_by_label("Name").fill("Grace")
    page.get_by_label("Email").fill("grace@example.org")
    page.get_by_label("Password", exact=True).fill("a wholly different phrase")
    page.get_by_role("button", name="Create account").click()
    page.get_by_role("heading", name="Welcome, Grace!").wait_for()
    frame = open_game(page, demo)
    page.clock.run_for(2 * DEAD_TIME)
    page.get_by_role("button", name="Allow").click()
    expect(frame.get_by_role("status")).to_have_text("You fly as Grace")
    expect(frame.get_by_role("button", name="Fly")).to_be_focused()
    page.keyboard.press("Enter")
    page.clock.run_for(70_000)
    points = frame.get_by_role("heading", level=1).inner_text().removesuffix(" points")
    assert 0 <= int(points) <= 1000
    expect(frame.locator(OWN_ROW)).to_have_text(f"Grace{points}")
    expect(frame.get_by_role("button", name="Fly again")).to_be_focused()


def test_game_layout_and_accessibility(demo: Demo, browse):
    page = browse()
    page.goto(open_game(page, demo).url)
    expect(page.get_by_role("status")).to_have_text("You play as a guest.")
    expect(page.get_by_role("button", name="Sign in to keep your scores")).to_be_visible()
    expect(page.get_by_role("listitem").last).to_be_visible()
    check_page(page)


# -- the game's chat ----------------------------------------------------------------------------


def open_chat(page: Page, demo: Demo) -> Frame:
    """Open the game, and return its frame when the player is in the chat."""
    frame = open_game(page, demo)
    allow, greeting = page.get_by_role("button", name="Allow"), frame.get_by_text("You fly as")
    wait_until(
        lambda: allow.is_visible() or greeting.is_visible(),
        meanwhile=lambda: page.wait_for_timeout(50),
    )
    if allow.is_visible():
        allow.click()
    expect(frame.get_by_role("textbox", name="Your message")).to_be_visible()
    return frame


def test_players_chat_with_the_keyboard(demo: Demo, browse_as):
    chidi, emi = (open_chat(browse_as(name), demo) for name in ("chidi", "emi"))
    expect(chidi.get_by_role("log", name="Chat")).to_contain_text("emi is here")
    chidi.get_by_role("textbox", name="Your message").focus()
    chidi.page.keyboard.type("Who wants to play? <b>wasd</b>")  # keys that steer the ship as well
    chidi.page.keyboard.press("Enter")
    for frame in (chidi, emi):
        last = frame.get_by_role("log", name="Chat").get_by_role("paragraph").last
        expect(last).to_have_text("chidi Who wants to play? <b>wasd</b>")
    expect(chidi.get_by_role("textbox", name="Your message")).to_have_value("")
    expect(emi.locator("#chat-problem")).to_have_text("")


def test_guest_reads_why_there_is_no_chat(demo: Demo, browse, browse_as):
    frame = open_game(browse(), demo)
    expect(frame.locator("#chat-problem")).to_have_text(
        "Sign in to chat: only players of the community can."
    )
    expect(frame.get_by_role("textbox")).to_have_count(0)
    page = browse_as("dalia")
    frame = open_game(page, demo)
    page.get_by_role("button", name="Cancel").click()
    expect(frame.get_by_role("status")).to_contain_text("you did not allow the game to know you")
    expect(frame.locator("#chat-problem")).to_contain_text("Sign in to chat")


def test_suspended_player_leaves_the_chat(demo: Demo, browse_as):
    frame = open_chat(browse_as("bruno"), demo)
    [data] = demo.temporary.glob("*/data")
    store = open_storage(str(data), str(data.parent / "pictures"), "files")
    with store.users.edit(store.users.find_by_login("bruno").id) as user:
        user.suspension = Suspension("command")
    reason = "You can't chat now: this account is suspended or deleted."
    expect(frame.locator("#chat-problem")).to_contain_text(reason, timeout=20_000)
    expect(frame.get_by_role("textbox")).to_have_count(0)


def test_chat_layout_and_accessibility(demo: Demo, browse_as):
    """The game at its own address, where a popup signs in who has allowed it before."""
    page = browse_as("ada")
    frame = open_chat(page, demo)
    page.goto(frame.url)
    page.get_by_role("button", name="Sign in to keep your scores").click()
    page.get_by_role("textbox", name="Your message").fill("w" * 300)
    page.keyboard.press("Enter")
    expect(page.get_by_role("log", name="Chat").get_by_role("paragraph").last).to_contain_text(
        "www"
    )
    check_page(page)


# -- the game, framed by a fake identity server --------------------------------------------------

FRAMING = """<!doctype html><title>Page</title>
<iframe src="{game}/"></iframe><iframe src="/liar"></iframe>
<button>Answer</button><output></output>
<script>
  addEventListener("message", ({{ data, source, origin }}) => {{
    if (data.action === "hello") return source.postMessage({{ type: "hello" }}, origin);
    document.querySelector("output").append(JSON.stringify([data, origin]));
    document.querySelector("button").onclick = () => source.postMessage({answer}, origin);
  }});
</script>"""
# A page that keeps sending the game a code.
FORGING_PAGE = """<!doctype html><title>Liar</title><output></output><script>
  setInterval(() => {
    parent.frames[0].postMessage({ type: "authorized", error: false, code: "mine" }, "*");
    document.querySelector("output").append("told ");
  }, 20);
</script>"""


@pytest.fixture
def game_address(game: Game, tmp_path: Path) -> Iterator[str]:
    """The Space Game, configured for a fake identity server whose pages the test provides."""
    with running(GAME, game.origin(), tmp_path / "scores.json") as port:
        yield f"http://127.0.0.1:{port}"


def test_game_ignores_messages_of_other_windows(game: Game, game_address: str, browse):
    """RFC 9700 4.17.2. It takes no code from another page of the server either."""
    page, site = browse(), game.origin()
    headers = {"Access-Control-Allow-Origin": "*", "Content-Type": "text/javascript"}
    module = {"path": f"{ROOT}/static/identity.js", "headers": headers}
    page.route(f"{site}/static/v1/identity.js", lambda route: route.fulfill(**module))
    answer = {"type": "authorized", "error": True, "message": "news_to_us"}
    game.pages["/play"] = FRAMING.format(game=game_address, answer=json.dumps(answer))
    game.pages["/liar"] = FORGING_PAGE
    page.goto(f"{site}/play")
    page.locator("output").get_by_text("authorize").wait_for()
    request_message, origin = json.loads(page.locator("output").inner_text())
    assert origin == game_address
    assert re.fullmatch("[A-Za-z0-9_-]{43}", request_message.pop("code_challenge"))
    assert request_message == {
        **{"action": "authorize", "client_id": CLIENT_ID, "scopes": ["userinfo", "join"]},
        "code_challenge_method": "S256",
    }
    _, frame, liar = page.frames
    expect(liar.locator("output")).to_contain_text("told told told told told")
    expect(frame.get_by_role("status")).to_have_text("Asking who plays...")
    page.get_by_role("button", name="Answer").click()
    expect(frame.get_by_role("status")).to_contain_text("Signing in did not work (news_to_us).")
