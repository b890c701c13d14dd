"""The home page, the page of a game and the steps after the sign-up in a real browser."""

import io
from collections.abc import Iterator

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from model.records import MODERATOR
from storage import Storage

from .page_checks import check_page
from .running import PASSWORD, RunningServer, running_server
from .test_browser import Client

pytestmark = [pytest.mark.live, pytest.mark.browser, pytest.mark.xdist_group("home_browser")]
LONG = "W" * 30  # a name of maximum length
PHONES = ({"width": 320, "height": 800}, {"width": 375, "height": 800})  # CSS pixels


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with open sign-up, and nine games of a player with a long name."""
    with running_server(SIGN_UP="open") as server:
        owner = server.add_user(LONG)
        store = server.open_storage()
        with store.users.edit(owner["id"]) as user:
            user.mod_level, user.flairs = MODERATOR, ["none", *(f"flair {i}" for i in range(199))]
        for number in range(9):
            store.clients.register(
                f"{number}" + "W" * 59 * (number == 5),
                [],
                owner["id"],
                game_url=f"https://game{number}.example/",
                description="W" * 200 * (number == 5),
                listed=number != 8,
            )
        yield server


def check_on_phones(page: Page) -> None:
    """Check the layout, and that no card cuts one of its controls."""
    check_page(page)
    for size in PHONES:
        page.set_viewport_size(size)
        cut = page.locator("main :is(a, button, input:not([type=hidden]))").evaluate_all(
            """found => found.filter(each => {
                const box = each.getBoundingClientRect();
                const card = each.closest("section, .game")?.getBoundingClientRect();
                return card && (box.left < card.left || box.right > card.right);
            }).map(each => each.outerHTML)"""
        )
        assert cut == [], size
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_home_and_games_fit_every_screen(server: RunningServer, store: Storage, browse, browse_as):
    hidden, shown = store.clients.games(False)[0], store.clients.games(True)[5]
    guest, moderator = browse(), browse_as(LONG)
    for page in (guest, moderator):
        for path in ("/", f"/games/{hidden.id}", f"/games/{shown.id}"):
            page.goto(f"{server.address}{path}")
            check_on_phones(page)
    for path in ("", "/flair", "/game", f"?next=/play/{shown.id}"):
        moderator.goto(f"{server.address}/welcome{path}")
        check_on_phones(moderator)


def test_card_plays_and_its_links_lead_elsewhere(server: RunningServer, store: Storage, browse):
    page = browse()
    [game] = [each for each in store.clients.games(True) if each.name == "0"]
    page.goto(server.address)
    card = page.locator(".game", has=page.get_by_role("link", name=f"Play {game.name}", exact=True))
    reached = []
    card.get_by_role("link", name=game.name, exact=True).focus()
    for _ in range(3):
        reached.append(page.evaluate("document.activeElement.getAttribute('href')"))
        page.keyboard.press("Tab")
    assert reached == [f"/games/{game.id}", f"/users/{game.owner_id}", f"/play/{game.id}"]
    for place, path in (
        (card.locator(".cover"), f"/play/{game.id}"),
        (card.get_by_role("link", name=game.name, exact=True), f"/games/{game.id}"),
        (card.get_by_role("link", name=LONG), f"/users/{game.owner_id}"),
    ):
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        # The link over the card, or the one above it.
        pressed = page.evaluate(
            "([x, y]) => document.elementFromPoint(x, y).closest('a').getAttribute('href')",
            [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2],
        )
        assert pressed == path


def sign_up(page: Page, name: str) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Email").fill(f"{name}@example.org")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()


def choose_picture(page: Page) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (90, 60), (200, 30, 30)).save(picture, "PNG")
    upload = {"name": "me.png", "mimeType": "image/png", "buffer": picture.getvalue()}
    page.get_by_label("New picture").set_input_files(upload)


def test_sign_up_for_an_app_leads_through_a_picture_to_the_app(
    store: Storage, game_client: Client, browse
):
    """The policy of no page on the way stops the redirects after its form."""
    page = browse()
    page.goto(game_client.link(scope="userinfo"))
    page.get_by_role("link", name="Create an account").click()
    sign_up(page, "gabi")
    expect(
        page.get_by_text("Your account is ready. Space Game is waiting for you.")
    ).to_be_visible()
    page.get_by_role("link", name="Choose a picture first").click()
    choose_picture(page)
    expect(page.get_by_label("Zoom")).to_be_visible()
    check_on_phones(page)
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Allow").click()
    game_client.check_arrival(page, "gabi")
    user = store.users.find_by_login("gabi")
    assert user.pfp_timestamp > user.created


def test_steps_work_without_javascript(server: RunningServer, store: Storage, browse):
    page = browse(java_script_enabled=False)
    page.goto(f"{server.address}/sign-up")
    sign_up(page, "hana")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Welcome, hana!")
    page.get_by_role("button", name="Continue").click()  # without a file
    expect(heading).to_have_text("Where do you want to start?")
    user = store.users.find_by_login("hana")
    assert user.pfp_timestamp == user.created
    page.go_back()
    choose_picture(page)
    page.get_by_role("button", name="Continue").click()
    expect(heading).to_have_text("Where do you want to start?")
    assert store.users.read(user.id).pfp_timestamp > user.created
    page.get_by_role("link", name="Skip", exact=True).click()
    expect(heading).to_have_text("Hello, hana!")
