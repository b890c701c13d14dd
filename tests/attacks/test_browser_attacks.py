"""Attacks by other sites, in a real browser."""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from forms import edit
from live import conftest, test_browser
from live.page_checks import drop_undelivered_messages
from live.running import RunningServer, running_server
from live.test_browser import (
    WAIT,
    Client,
    Game,
    callback_parameters,
    pause_clock,
    set_session_cookie,
    wait_a_second,
)
from playwright.sync_api import Page, Route, expect
from waiting import wait_until

from identity.http.stamps import TOO_QUICK
from storage import Storage

pytestmark = [pytest.mark.live, pytest.mark.browser]
no_proxy, ada = conftest.no_proxy, conftest.ada
store = conftest.store
chromium, playwright = test_browser.chromium, test_browser.playwright
browse, game = test_browser.browse, test_browser.game
console_errors, game_client = test_browser.console_errors, test_browser.game_client


class RealServer(RunningServer):
    """A running server where early presses do not count."""

    is_quick = False


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(RealServer) as server:
        yield server


@pytest.fixture
def page(browse, server: RunningServer, ada: dict) -> Page:
    page = browse()
    set_session_cookie(page, server)
    return page


def allow(page: Page):
    return page.get_by_role("button", name="Allow")


def check_press(page: Page, client: Client) -> None:
    """Press Allow when it counts; check that the client gets a code."""
    wait_a_second(page)
    allow(page).click()
    client.check_arrival(page)


@pytest.fixture
def consent_page(page: Page, game_client: Client) -> Page:
    """The consent page right after it loaded, with the clock paused."""
    pause_clock(page)
    page.goto(game_client.link())
    return page


def hold_requests(page: Page, address: str) -> list[Route]:
    """Hold every request for this address; return the routes, to be continued by the test."""
    waiting: list[Route] = []

    def hold(route: Route) -> None:
        waiting.append(route)

    page.route(address, hold)
    return waiting


@pytest.mark.parametrize("file_name", ["style.css", "hold.js"])
def test_allow_is_hidden_until_its_script_loaded(page: Page, game_client: Client, file_name: str):
    """RFC 9700 4.16: on a slow connection, clicks would count before the script runs.

    A picture that comes later does not disable it again: a click at that moment would be lost.
    """
    pause_clock(page)
    waiting, pictures = hold_requests(page, f"**/{file_name}"), hold_requests(page, "**/pfp/**")
    with page.expect_request(f"**/{file_name}"):
        page.goto(game_client.link(), wait_until="commit")
    page.wait_for_timeout(500)  # milliseconds, enough for the rest of the page to load
    expect(allow(page)).to_have_count(0)
    [route] = waiting
    route.continue_()
    expect(allow(page)).to_have_attribute("aria-disabled", "true")
    page.clock.run_for(1000)
    with page.expect_event("load"):
        for route in pictures:
            route.continue_()
    expect(allow(page)).to_have_attribute("aria-disabled", "false")
    check_press(page, game_client)


def test_early_click_on_consent_is_ignored(consent_page: Page, game: Game, game_client: Client):
    """RFC 9700 4.16: the first click of a double click opened the page under the second.

    Fast presses anywhere do not get through at its end: half a second without a press comes first.
    A change of the window, under which the page may have lain, begins another second.
    """
    said, heading = consent_page.get_by_role("status"), consent_page.get_by_role("heading")
    expect(said).to_be_empty()
    presses = (
        lambda: allow(consent_page).click(click_count=2, force=True),
        heading.first.click,
        lambda: consent_page.keyboard.press("x"),
    )
    for press in presses * 10:
        press()
        consent_page.clock.run_for(200)
    allow(consent_page).click(force=True)
    expect(said).to_have_text(WAIT)
    consent_page.keyboard.press("Enter")
    consent_page.clock.run_for(499)
    expect(allow(consent_page)).to_have_attribute("aria-disabled", "true")
    consent_page.clock.run_for(1)
    for event in (
        "new Event('focus')",
        "new Event('resize')",
        "new PageTransitionEvent('pageshow', { persisted: true })",
    ):
        expect(allow(consent_page)).to_have_attribute("aria-disabled", "false")
        consent_page.evaluate(f"dispatchEvent({event})")
        allow(consent_page).click(force=True)
        assert (consent_page.url, game.requested_paths) == (game_client.link(), [])
        consent_page.clock.run_for(1001)
    check_press(consent_page, game_client)


def test_consent_page_under_a_click_gives_no_code(
    page: Page, game: Game, game_client: Client, server: RunningServer, console_errors: list[str]
):
    """RFC 9700 4.16: it would evade the delay of Allow on the play page."""
    game.pages["/"] = "<h1>Game</h1><button>Fire</button>"
    edit(server.open_storage().clients, game_client.id, game_url=f"{game.origin('localhost')}/")
    pause_clock(page)
    page.goto(f"{server.address}/play/{game_client.id}")
    frame = page.locator("#game").element_handle().content_frame()
    frame.get_by_role("button", name="Fire").wait_for()
    with page.expect_popup() as opened:
        frame.evaluate("address => void open(address)", game_client.link())
    allow(opened.value).click(force=True)
    expect(allow(opened.value)).to_be_visible()
    assert not [each for each in game.requested_paths if "code=" in each]
    console_errors.clear()


SANDBOX = "allow-popups allow-forms allow-same-origin"  # no allow-scripts: a window inherits that
TRAP = f"""<title>Trap</title><style>body {{ margin: 0 }}</style>
<iframe sandbox="{SANDBOX}" src="/link" width="800" height="600"></iframe>"""


def open_from_sandbox(page: Page, game: Game, address: str) -> tuple[Page, float]:
    """Click on a link in a sandboxed frame; return the tab that it opens, and when that was."""
    game.pages |= {"/trap": TRAP, "/link": f'<a href="{address}" target="_blank">Prize</a>'}
    page.goto(f"{game.origin('localhost')}/trap")
    link = page.frame_locator("iframe").get_by_role("link", name="Prize")
    link.wait_for()
    with page.context.expect_page() as opened:
        started = time.monotonic()
        link.click()
    opened.value.wait_for_load_state("load")  # with the style sheet, which places the buttons
    return opened.value, started


def test_double_click_from_a_sandboxed_frame_gives_no_consent(
    page: Page, game: Game, game_client: Client, store: Storage, console_errors: list[str]
):
    """RFC 9700 4.16: the tab inherits the sandbox, so no script ignores the second click."""
    page.goto(game_client.link())
    box = allow(page).bounding_box()
    for _ in range(30):  # until the second click comes within a second, on a busy machine
        tab, started = open_from_sandbox(page, game, game_client.link())
        with tab.expect_navigation():
            tab.mouse.click(box["x"] + 5, box["y"] + 5)
            seconds = time.monotonic() - started
        if seconds < 1:
            break
        with store.users.edit(store.users.find_by_login("ada").id) as user:
            user.grants.pop(game_client.id, None)
        game.requested_paths.clear()
    assert [path for path in game.requested_paths if "code=" in path] == []
    expect(tab.get_by_text(TOO_QUICK)).to_be_visible()
    # Negative control: a click counts there, although no script runs.
    assert tab.locator("[aria-disabled]").count() == 0
    check_press(tab, game_client)
    assert {each.split(" ")[0] for each in console_errors} == {"Blocked"}
    console_errors.clear()


FOREIGN_ADDRESSES = [
    *("//evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example"),
    *("///evil.example", "/.//evil.example", "/..//evil.example", "/%2f/evil.example"),
    "/%5cevil.example",
    "/;//x.y",
    *("/\u2028/evil.example", "/\x85/evil.example", "/％2fevil.example", "／／evil.example"),
    *("/@evil.example", "/:80/", "/#//evil.example", "/?//evil.example", "/\ufeff/evil.example"),
    *("javascript:alert(1)", "https:evil.example", "https:/evil.example", " //evil.example"),
]


def test_next_never_leads_a_browser_to_another_origin(page: Page, server: RunningServer):
    """RFC 9700 4.11.2."""
    requested: list[str] = []
    page.context.on("request", lambda request: requested.append(request.url))
    for address in FOREIGN_ADDRESSES:
        page.goto(f"{server.address}/sign-in?next={quote(address)}")
        assert page.url.startswith(f"{server.address}/")
    assert len(requested) > len(FOREIGN_ADDRESSES)
    assert all(each.startswith(f"{server.address}/") for each in requested)


def test_one_time_link_is_not_sent_as_referer(game: Game, browse):
    """RFC 9700 4.2.4: applies to invitations and to sign-in links. No other site has an opener."""
    game.pages["/about"] = "<title>About</title>"
    with running_server(ABOUT_URL=f"{game.origin()}/about") as server:
        server.add_user("ada")
        for command in ("invite", "user sign-in-link ada"):
            page = browse()
            printed = server.command_output(*command.split()).split()
            page.goto(next(word for word in printed if word.startswith("http")))
            assert "?" in page.url or page.locator("[name=link]").input_value()
            with page.context.expect_page() as opened:
                page.get_by_role("link", name="Privacy and contact").click(modifiers=["Control"])
            expect(opened.value).to_have_title("About")
            assert opened.value.evaluate("[document.referrer, opener]") == ["", None]


OPEN_AND_LOOK = """address => new Promise(resolve => {
    const other = open(address), seen = [];
    const timer = setInterval(() => {
        seen.push([other.closed, other.closed ? 0 : other.length].join());
        if (seen.length < 10 || seen.at(-10) !== seen.at(-1)) return;
        clearInterval(timer);
        resolve(seen.at(-1));
    }, 100);
})"""


def test_opener_counts_no_frames_and_sees_no_window_close(
    browse,
    server: RunningServer,
    ada: dict,
    game: Game,
    game_client: Client,
    console_errors: list[str],
    subtests,
):
    """Of a window at these addresses a page of another site sees the same for all visitors."""
    game.pages["/"] = "<title>Game</title>"
    edit(server.open_storage().clients, game_client.id, game_url=f"{game.origin('localhost')}/")
    play = f"{server.address}/play/{game_client.id}"
    next_paths = ("account", play.removeprefix(server.address)[1:])
    parted = [play, *(f"{server.address}/sign-in?next=/{each}" for each in next_paths)]
    kept = [game_client.link(), f"{play}/signed-in"]
    guest, player = browse(), browse()
    set_session_cookie(player, server)
    for address in parted + kept:
        for page in (guest, player):
            with subtests.test(address, page=page is player):
                page.goto(f"{game.origin('localhost')}/callback")
                with page.context.expect_page() as opened:
                    seen = page.evaluate(OPEN_AND_LOOK, address)
                assert seen == ("true,0" if address in parted else "false,0")
                opened.value.close()
    # Negative control: there is a frame to count.
    player.goto(play)
    expect(player.locator("iframe")).to_have_count(1)
    drop_undelivered_messages(console_errors)


class ServerWithSiblings(RealServer):
    """A running server at id.localhost, which browsers resolve; other programs need not."""

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder, **settings)
        self.settings["BASE_URL"] = self.address = f"http://id.localhost:{self._port}"

    def _answers(self) -> bool:
        with contextlib.suppress(requests.ConnectionError):
            return requests.get(f"http://127.0.0.1:{self._port}/healthz", timeout=60).ok
        return False

    def statuses(self, path: str) -> set[str]:
        return set(re.findall(rf'"GET {path} HTTP/1.1" (\d+)', self.access_log.read_text()))


LOAD_IMAGES = """addresses => Promise.all(addresses.map(src => new Promise(resolve => {
    const image = Object.assign(new Image(), { src });
    image.onload = () => resolve("shown");
    image.onerror = () => resolve("refused");
})))"""
FOLLOW = "address => { location = address }"
PREFETCH = """address => document.head.append(Object.assign(document.createElement("script"), {
    type: "speculationrules",
    text: JSON.stringify({ prefetch: [{ source: "list", urls: [address] }] }),
}))"""


def read_callback(page: Page) -> dict[str, str]:
    expect(page).to_have_title("Game")
    return callback_parameters(page)


def test_sibling_subdomain_spends_and_learns_nothing(browse, game: Game, console_errors: list[str]):
    """Games live there, and browsers send the session cookie with what their pages load."""
    with running_server(ServerWithSiblings) as server:
        server.add_user("ada")
        client = Client(server, f"{game.origin()}/callback")
        page = browse()
        set_session_cookie(page, server)
        page.goto(client.link())
        allow(page).click()
        assert "code" in read_callback(page)
        game.pages["/"] = "<title>Sibling</title>"
        page.goto(f"{game.origin('games.id.localhost')}/")
        picture = "/static/touch-icon.png"
        told = [f"{server.address}{each}" for each in (picture, f"/sign-in?next={picture}")]
        assert page.evaluate(LOAD_IMAGES, told) == ["shown", "refused"]
        exports = [f"{server.address}/account/export?{number}" for number in range(10)]
        links = [client.link(state=str(number)) for number in range(60)]
        assert set(page.evaluate(LOAD_IMAGES, exports + links)) == {"refused"}
        prefetched = client.link().replace("/oauth/authorize", "/oauth")
        page.evaluate(PREFETCH, prefetched)
        wait_until(lambda: server.statuses("/oauth"))
        # A download would leave the page where it is.
        page.evaluate(FOLLOW, exports[0])
        expect(page.locator("body")).to_have_text(re.compile("^Only pages of this site"))
        assert server.statuses("/oauth") == server.statuses("/account/export") == {"403"}
        # Followed as links they work, also the one that was prefetched.
        page.goto(f"{game.origin('games.id.localhost')}/")
        page.evaluate(FOLLOW, prefetched)
        assert "code" in read_callback(page)
        page.goto(f"{server.address}/account")
        with page.expect_download():
            page.evaluate(FOLLOW, exports[0])
        console_errors.clear()
