"""Pages on a phone whose browser is set to a larger font size."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Playwright, expect
from waiting import wait_until

from model.records import ADMINISTRATOR

from . import test_browser
from .page_checks import CHROMIUM, visible_boxes
from .running import RunningServer
from .test_browser import set_session_cookie

pytestmark = [pytest.mark.live, pytest.mark.browser, pytest.mark.xdist_group("large_text")]
WIDTH = 390  # CSS pixels
CONTROLS = "button, .button, input:not([type=hidden]), select, textarea, .quiet"


@pytest.fixture(scope="module", params=[16, 24, 32])
def page(
    request: pytest.FixtureRequest, playwright: Playwright, server: RunningServer, ada: dict
) -> Iterator[Page]:
    """A phone's browser in which Ada, an administrator, is signed in; 16 pixels is the default."""
    with server.open_storage().users.edit(ada["id"]) as user:
        user.mod_level = ADMINISTRATOR
    browser = playwright.chromium.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", f"--blink-settings=defaultFontSize={request.param}"],
    )
    page = browser.new_page(viewport={"width": WIDTH, "height": 844})
    set_session_cookie(page, server)
    page.goto(server.address)
    assert page.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)") == (
        request.param
    )
    yield page
    browser.close()


def check_fits(page: Page) -> None:
    """Check that the page does not scroll sideways and all controls are on the screen."""
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
    boxes = visible_boxes(page, CONTROLS)
    assert boxes
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= WIDTH for box in boxes)


def line_count(page: Page, button: str) -> int:
    """Return the number of lines of a button's label."""
    return page.get_by_role("button", name=button, exact=True).evaluate(
        """button => {
            const range = document.createRange();
            range.selectNodeContents(button);
            return range.getClientRects().length;
        }"""
    )


def test_allow_and_cancel_fit_on_one_line(server: RunningServer, page: Page, client: dict):
    query = f"response_type=code&client_id={client['client_id']}"
    page.goto(f"{server.address}/oauth/authorize?{query}")
    check_fits(page)
    assert [line_count(page, each) for each in ("Allow", "Cancel")] == [1, 1]


def test_play_page_bar_fits_the_screen(server: RunningServer, page: Page):
    store = server.open_storage()
    client, _ = store.clients.register("W" * 60, [], None, game_url="http://localhost:2/")
    guest = page.context.browser.new_page(viewport=page.viewport_size)
    for each in (page, guest):
        each.goto(f"{server.address}/play/{client.id}")
        expect(each.get_by_role("button", name="Full screen")).to_be_visible()
        check_fits(each)
    store.clients.delete(client.id)


def test_developer_pages_fit_the_screen(server: RunningServer, page: Page, client: dict):
    for path in ("", f"/{client['client_id']}", f"/{client['client_id']}/try"):
        page.goto(f"{server.address}/developer{path}")
        test_browser.open_samples(page)
        check_fits(page)


def test_profile_fits_the_screen_and_a_long_bio_scrolls(
    server: RunningServer, page: Page, ada: dict
):
    with server.open_storage().users.edit(ada["id"]) as user:
        user.bio = "I play.\n" * 120
    page.goto(f"{server.address}/users/{ada['id']}")
    check_fits(page)
    bio = page.locator(".bio")
    assert bio.bounding_box()["height"] < 844
    bio.focus()  # the rest can be reached by keyboard
    page.keyboard.press("End")
    wait_until(lambda: bio.evaluate("bio => bio.scrollTop > 0"))
