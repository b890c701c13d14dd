"""The web app and the games of `identity-server demo`, in a real browser."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Frame, Page, expect
from waiting import wait_until

from model.records import Suspension
from storage import open_storage

from .demo import EXAMPLE, Demo
from .page_checks import check_page, check_with_axe
from .test_browser import sign_in

pytestmark = [pytest.mark.live, pytest.mark.browser]
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
    """A function that opens a page in which one of the twelve players is signed in."""

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


def test_web_app_shows_access_denied(demo: Demo, browse_as):
    page = browse_as("bruno")
    page.goto(f"{demo.web_app}/sign-in")
    page.get_by_role("link", name="Go to the identity server").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert")).to_have_text("It says access_denied: the player refused")


def test_web_app_signs_in_and_is_accessible(demo: Demo, browse_as):
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
    assert page.url == f"{demo.web_app}/"  # without the code
    expect(page.locator(".message")).to_have_count(6)
    expect(page.locator(".message").last).to_contain_text("emi@example.org")
    assert page.locator("header img").evaluate("image => image.decode().then(() => image.width)")
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
    flown = sum(member.score > 0 for member in EXAMPLE["COMMUNITY"])
    expect(frame.get_by_role("listitem")).to_have_count(flown)
    expect(frame.locator(OWN_ROW)).to_have_count(0)
    page.get_by_role("button", name="Allow").click()
    expect(frame.get_by_role("status")).to_have_text("You fly as chidi")
    expect(frame.locator(OWN_ROW)).to_have_text("chidi271")
    frame = open_game(page, demo)
    expect(frame.get_by_role("status")).to_have_text("You fly as chidi")
    expect(page.get_by_role("button", name="Allow")).to_have_count(0)
    pictures = "images => Promise.all(images.map((image) => image.decode()))"
    frame.locator("img").evaluate_all(pictures)


def test_player_without_sign_in_plays_without_chat(demo: Demo, browse, browse_as):
    page = browse_as("dalia")
    frame = open_game(page, demo)
    page.get_by_role("button", name="Cancel").click()
    expect(frame.get_by_role("status")).to_contain_text("you did not allow the game to know you")
    expect(frame.locator("#chat-problem")).to_contain_text("Sign in to chat")
    expect(frame.locator(OWN_ROW)).to_have_count(0)
    page = browse()
    frame = open_game(page, demo)
    expect(frame.get_by_role("status")).to_contain_text("You are not signed in.")
    expect(frame.locator("#chat-problem")).to_have_text(
        "Sign in to chat: only players of the community can."
    )
    expect(frame.get_by_role("textbox")).to_have_count(0)
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


# -- the tiny games -----------------------------------------------------------------------------


def address_of(name: str, demo: Demo, page: Page) -> str:
    """Open the play page of a game; return the game's own address."""
    [game] = (each for each in EXAMPLE["GAMES"] if each.name == name)
    page.goto(f"{demo.site}/play/{game.id}")
    return page.locator("#game").get_attribute("src")


def test_garden_lets_in_who_brings_a_ticket(demo: Demo, browse_as):
    page = browse_as("finn")
    address_of("Secret Garden", demo, page)
    garden = page.frame_locator("#game")
    plot = garden.get_by_role("button", name="Row 1, column 1", exact=True)
    page.get_by_role("button", name="Allow").click()
    expect(garden.get_by_role("status")).to_contain_text("Welcome, finn!")
    plot.click()
    expect(plot).to_have_attribute("title", "Planted by finn")


def test_popup_signs_in_at_the_address_of_a_tiny_game(demo: Demo, browse_as):
    page = browse_as("iris")
    page.goto(address_of("Who Is Who", demo, page))
    check_with_axe(page)
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Sign in to be one of the faces").click()
    opened.value.get_by_role("button", name="Allow").click()
    expect(page.get_by_role("status")).to_contain_text("Hello, iris!")
    for name in ("Secret Garden", "Snake Island", "City Lights", "Desert Fifteen", "Mole Cave"):
        page.goto(address_of(name, demo, page))
        expect(page.get_by_role("button").last).to_be_visible()


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
