"""Sites that mean ill, and what a real browser does with what the server answers them."""

import threading
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from live import conftest, test_browser
from live.running import RunningServer, running_server
from live.test_browser import Client, Game, carry_session, hold_clock
from playwright.sync_api import Page, Route, expect

pytestmark = [pytest.mark.live, pytest.mark.browser]
no_proxy, server, ada = conftest.no_proxy, conftest.server, conftest.ada
store = conftest.store
chromium, playwright = test_browser.chromium, test_browser.playwright
browse, game = test_browser.browse, test_browser.game
complaints, game_client = test_browser.complaints, test_browser.game_client


@pytest.fixture
def page(browse, server: RunningServer, ada: dict) -> Page:
    """Ada's browser."""
    page = browse()
    carry_session(page, server)
    return page


# -- a click that was meant for something else ----------------------------------------------------


def allow(page: Page):
    return page.get_by_role("button", name="Allow")


@pytest.fixture
def asked(page: Page, game_client: Client) -> Page:
    """The consent page has just come, and time stands still."""
    hold_clock(page)
    page.goto(game_client.link())
    return page


def hold_up(page: Page, address: str) -> list[Route]:
    """What is asked for from now on; it gets no answer until it is told to go on."""
    waiting: list[Route] = []

    def wait(route: Route) -> None:
        waiting.append(route)

    page.route(address, wait)
    return waiting


@pytest.mark.parametrize("file_name", ["style.css", "hold.js", "consent.js"])
def test_allow_is_not_there_before_what_holds_it_back(
    page: Page, game_client: Client, file_name: str
):
    """RFC 9700 4.16: on a slow line the page would take clicks before its script does."""
    hold_clock(page)
    waiting = hold_up(page, f"**/{file_name}")
    with page.expect_request(f"**/{file_name}"):
        page.goto(game_client.link(), wait_until="commit")
    page.wait_for_timeout(500)  # milliseconds, in which the rest of the page would come
    expect(allow(page)).to_have_count(0)
    [route] = waiting
    route.continue_()
    expect(allow(page)).to_have_attribute("aria-disabled", "true")
    page.clock.run_for(1000)
    expect(allow(page)).to_have_attribute("aria-disabled", "false")
    allow(page).click()
    game_client.check_arrival(page)


def test_a_picture_that_comes_late_does_not_hold_allow_back_again(page: Page, game_client: Client):
    """Who presses it at that moment would press in vain."""
    hold_clock(page)
    waiting = hold_up(page, "**/pfp/**")
    with page.expect_request("**/pfp/**"):
        page.goto(game_client.link(), wait_until="commit")
    expect(allow(page)).to_have_attribute("aria-disabled", "true")
    page.clock.run_for(1000)
    with page.expect_event("load"):
        for route in waiting:
            route.continue_()
    assert allow(page).get_attribute("aria-disabled") == "false"
    allow(page).click()
    game_client.check_arrival(page)


def test_a_click_that_was_under_way_when_the_consent_page_came_allows_nothing(
    asked: Page, game: Game, game_client: Client
):
    """RFC 9700 4.16: a double click, whose first click opened the page under the second."""
    for _ in range(4):
        allow(asked).click(click_count=2, force=True)
        asked.clock.run_for(240)
    asked.keyboard.press("Enter")
    assert asked.url == game_client.link()
    assert game.asked == []
    asked.clock.run_for(100)
    allow(asked).click()
    game_client.check_arrival(asked)


@pytest.mark.parametrize(
    "event",
    [
        "new Event('focus')",
        "new Event('resize')",
        "new PageTransitionEvent('pageshow', { persisted: true })",
    ],
)
def test_nor_does_one_that_closed_a_window_above_it(
    asked: Page, game: Game, game_client: Client, event: str
):
    asked.clock.run_for(1500)
    expect(allow(asked)).to_have_attribute("aria-disabled", "false")
    asked.evaluate(f"dispatchEvent({event})")
    allow(asked).click(force=True)
    assert (asked.url, game.asked) == (game_client.link(), [])
    asked.clock.run_for(1001)
    allow(asked).click()
    game_client.check_arrival(asked)


def test_a_game_that_opens_the_consent_page_under_a_click_gets_no_code(
    page: Page, game: Game, game_client: Client, server: RunningServer, complaints: list[str]
):
    """So that the first second of the play page's own Allow cannot be got round. RFC 9700 4.16."""
    game.pages["/"] = "<h1>Game</h1><button>Fire</button>"
    with server.open_storage().edit_client(game_client.id) as client:
        client.game_url = f"{game.origin('localhost')}/"
    hold_clock(page)
    page.goto(f"{server.address}/play/{game_client.id}")
    frame = page.locator("#game").element_handle().content_frame()
    frame.get_by_role("button", name="Fire").wait_for()
    with page.expect_popup() as opened:
        frame.evaluate("address => void open(address)", game_client.link())
    allow(opened.value).click(force=True)
    expect(allow(opened.value)).to_be_visible()
    assert not [each for each in game.asked if "code=" in each]
    complaints.clear()


# -- where an address leads ---------------------------------------------------------------------

NEXT = [
    *(
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "///evil.example",
    ),
    *("/.//evil.example", "/..//evil.example", "/%2f/evil.example", "/%5cevil.example", "/;//x.y"),
    *("/\u2028/evil.example", "/\x85/evil.example", "/％2fevil.example", "／／evil.example"),
    *("/@evil.example", "/:80/", "/#//evil.example", "/?//evil.example", "/\ufeff/evil.example"),
    *("javascript:alert(1)", "https:evil.example", "https:/evil.example", " //evil.example"),
]


def test_no_next_leads_a_real_browser_away(page: Page, server: RunningServer):
    """RFC 9700 4.11.2."""
    asked: list[str] = []
    page.context.on("request", lambda request: asked.append(request.url))
    for address in NEXT:
        page.goto(f"{server.address}/sign-in?next={quote(address)}")
        assert page.url.startswith(f"{server.address}/")
    assert len(asked) > len(NEXT)
    assert all(each.startswith(f"{server.address}/") for each in asked)


# -- what an address gives away -------------------------------------------------------------------


@pytest.fixture(scope="module")
def public_server() -> Iterator[RunningServer]:
    """A server whose footers link to somebody else's site."""
    with Game() as site:
        site.pages["/about"] = "<title>About</title>"
        threading.Thread(target=site.serve_forever, daemon=True).start()
        with running_server(ABOUT_URL=f"{site.origin()}/about") as server:
            server.add_user("ada")
            yield server
        site.shutdown()


@pytest.mark.parametrize("command", ["invite", "user sign-in-link ada"])
def test_a_link_that_opens_a_door_is_told_to_nobody_by_the_referer(
    public_server: RunningServer, browse, command: str
):
    """RFC 9700 4.2.4: neither an invitation nor a sign-in link."""
    page = browse()
    printed = public_server.printed(*command.split()).split()
    page.goto(next(word for word in printed if word.startswith("http")))
    assert page.evaluate("location.search.length") > 40
    page.get_by_role("link", name="Privacy and contact").click()
    expect(page).to_have_title("About")
    assert page.evaluate("document.referrer") == ""


def test_a_site_that_was_opened_from_here_cannot_reach_back(public_server: RunningServer, browse):
    """Tabnabbing: the page that a link opens has no hold on the one that it was on."""
    page = browse()
    page.goto(public_server.address)
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Privacy and contact").click(modifiers=["Control"])
    expect(opened.value).to_have_title("About")
    assert opened.value.evaluate("opener") is None


def test_another_site_reads_nothing_that_the_player_may_read(
    page: Page, game: Game, server: RunningServer, ada: dict, complaints: list[str]
):
    """From another port of the same host, where the session cookie travels: no CORS, no script."""
    game.pages["/reading"] = "<title>Reading</title>"
    page.goto(f"{game.origin()}/reading")
    for path in ("/account/export", "/account", "/oauth/authorize", "/account/apps"):
        read = "address => fetch(address, { credentials: 'include' }).then(a => a.text(), e => '')"
        assert page.evaluate(read, server.address + path) == ""
        ran = """address => new Promise((resolve) => {
            const script = Object.assign(document.createElement("script"), { src: address });
            script.onload = () => resolve("ran");
            script.onerror = () => resolve("refused");
            document.head.append(script);
        })"""
        assert page.evaluate(ran, server.address + path) == "refused"
    # What is public can be read, by a page as by anyone.
    public = "address => fetch(address).then(answer => answer.json())"
    told = page.evaluate(public, f"{server.address}/api/users/info?id={ada['id']}")
    assert told["user"]["name"] == "ada"
    complaints.clear()
