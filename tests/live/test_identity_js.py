"""static/identity.js in a real browser: one call signs in, wherever the page is."""

import json
import re
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Frame, Page, Route, expect

from storage import Storage

from . import test_browser
from .page_checks import drop_undelivered_messages
from .running import RunningServer
from .test_browser import Game, decide, set_session_cookie, sign_in

pytestmark = [pytest.mark.live, pytest.mark.browser]
chromium, playwright = test_browser.chromium, test_browser.playwright
browse, game = test_browser.browse, test_browser.game
console_errors = test_browser.console_errors
PAGE = """<!doctype html><title>Game</title><h1>Space</h1><button>Sign in</button><output></output>
<script type="module">
  import * as identity from "$SITE/static/v1/identity.js";
  window.identity = identity;
  window.options = { clientId: "$CLIENT_ID" };
  const output = document.querySelector("output");
  const show = (value) => { output.textContent = JSON.stringify(value); };
  const tell = ({ code, message }) => show({ code, message });
  document.querySelector("button").addEventListener("click", () => {
    output.textContent = "";
    identity.signIn(options).then(show, tell);
  });
  show(await identity.whois());
</script>"""
OTHER_HOST = """<!doctype html><title>Other host</title>
<iframe src="$GAME" sandbox="allow-scripts allow-same-origin allow-forms allow-popups
  allow-popups-to-escape-sandbox"></iframe>"""


@pytest.fixture
def site_of(server: RunningServer, game: Game) -> Callable[..., str]:
    """A function that registers a public game, publishes its page, and returns its address."""

    def site_of(host: str = "localhost") -> str:
        address = f"{game.origin(host)}/"
        client = server.add_client("Space Game", address, public=True)
        publish(game, server, client["client_id"])
        return address

    return site_of


def publish(game: Game, server: RunningServer, client_id: str) -> None:
    game.pages["/"] = PAGE.replace("$SITE", server.address).replace("$CLIENT_ID", client_id)


@pytest.fixture
def page(browse, server: RunningServer, ada: dict) -> Page:
    """Ada's browser."""
    page = browse()
    set_session_cookie(page, server)
    return page


def open_game(page: Page, address: str, **options: str) -> Page:
    """Open a game, and wait until it has loaded the module."""
    page.goto(address)
    return ready(page, **options)


def ready(game: Page | Frame, **options: str) -> Page | Frame:
    expect(game.locator("output")).to_have_text("null")  # nobody has signed in
    game.evaluate("more => Object.assign(window.options, more)", options)
    return game


def press_sign_in(page: Page, game: Page | Frame) -> Page:
    """Press the game's button; return the popup."""
    with page.expect_popup() as opened:
        game.get_by_role("button", name="Sign in").click()
    return opened.value


def leave(popup: Page) -> None:
    """Close a popup, as a player does who has read it."""
    # Chromium may never close a window that is about to load its first page.
    popup.get_by_role("button", name="Allow").wait_for()
    popup.close()


def shown(game: Page | Frame) -> dict:
    """Return what the game shows when its sign-in has ended."""
    expect(game.locator("output")).to_have_text(re.compile("^{.*}$"))
    return json.loads(game.locator("output").inner_text())


def check_signed_in(game: Page | Frame, ada: dict) -> None:
    """Check that the game knows Ada, and that its storage has no secret of the sign-in."""
    player = {each: ada[each] for each in ("id", "name", "pfpTimestamp")}
    assert shown(game) == player
    assert game.evaluate("identity.whois()") == player
    assert game.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]


# -- a popup --------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_popup_signs_a_player_in(page: Page, site_of, ada: dict, host: str):
    game_page = open_game(page, site_of(host))
    popup = press_sign_in(page, game_page)
    with popup.expect_event("close"):
        decide(popup)
    check_signed_in(game_page, ada)


def test_popup_of_a_guest_starts_with_the_sign_in_page(browse, site_of, ada: dict):
    page = browse()
    game_page = open_game(page, site_of(), scope="email")
    popup = press_sign_in(page, game_page)
    sign_in(popup)
    with popup.expect_event("close"):
        decide(popup)
    assert shown(game_page)["email"] == ada["email"]


def test_cancel_and_a_closed_popup_have_a_sentence_for_the_player(page: Page, site_of):
    game_page = open_game(page, site_of())
    popup = press_sign_in(page, game_page)
    with popup.expect_event("close"):
        decide(popup, "Cancel")
    assert shown(game_page)["code"] == "access_denied"
    leave(press_sign_in(page, game_page))
    assert shown(game_page)["message"] == "You left before the sign-in was complete. Try again."


def test_second_call_gets_the_answer_of_the_first(page: Page, site_of, ada: dict):
    game_page = open_game(page, site_of())
    popup = press_sign_in(page, game_page)
    game_page.evaluate("() => { window.second = identity.signIn(options); }")
    with popup.expect_event("close"):
        decide(popup)
    assert game_page.evaluate("second")["id"] == shown(game_page)["id"] == ada["id"]


def test_remembered_consent_needs_no_press_in_the_popup(
    page: Page, server: RunningServer, game: Game, ada: dict
):
    """Of a confidential client: its own server exchanges what `exchange` gets."""
    client = server.add_client("Space Game", f"{game.origin('localhost')}/")
    publish(game, server, client["client_id"])
    game_page = open_game(page, f"{game.origin('localhost')}/")
    game_page.evaluate("() => { options.exchange = async (grant) => ({ grant }); }")
    popup = press_sign_in(page, game_page)
    with popup.expect_event("close"):
        decide(popup)
    shown(game_page)
    press_sign_in(page, game_page)
    grant = shown(game_page)["grant"]
    code = grant.pop("code")
    assert grant["redirect_uri"] == page.url
    token = server.exchange_code(code, *client.values(), **grant).json()["access_token"]
    assert server.whois(token).json()["id"] == ada["id"]
    assert game_page.evaluate("identity.whois()") is None


def test_answer_with_another_state_is_not_exchanged(page: Page, site_of, server: RunningServer):
    """RFC 9700 4.7.1."""
    address, requested = site_of(), []
    forged = """<script>opener.postMessage({ type: "authorization_response",
        response: { code: "x", state: "another" } }, "*")</script>"""
    answer = {"body": forged, "content_type": "text/html"}
    page.context.route(f"{server.address}/oauth/authorize?*", lambda route: route.fulfill(**answer))
    page.on("request", lambda request: requested.append(request.url))
    game_page = open_game(page, address)
    press_sign_in(page, game_page)
    assert shown(game_page)["code"] == "state_mismatch"
    assert not any("/api/oauth/token" in each for each in requested)


def test_ended_sign_in_leaves_no_listener_behind(page: Page, site_of):
    game_page = open_game(page, site_of())
    leave(press_sign_in(page, game_page))
    assert shown(game_page)["code"] == "popup_closed"
    inspector = page.context.new_cdp_session(page)
    window = inspector.send("Runtime.evaluate", {"expression": "window"})["result"]["objectId"]
    found = inspector.send("DOMDebugger.getEventListeners", {"objectId": window})["listeners"]
    assert [each["type"] for each in found if each["type"] == "message"] == []


def test_access_that_ended_is_no_player(
    page: Page, site_of, ada: dict, store: Storage, console_errors: list[str]
):
    game_page = open_game(page, site_of())
    popup = press_sign_in(page, game_page)
    with popup.expect_event("close"):
        decide(popup)
    check_signed_in(game_page, ada)
    with store.users.edit(ada["id"]) as user:
        user.grants.clear()
    with page.expect_response("**/api/oauth/whois"):
        assert game_page.evaluate("identity.whois()") is None
    assert console_errors.pop().startswith("401 ")


def test_message_of_another_window_is_ignored(page: Page, site_of, ada: dict):
    """RFC 9700 4.17.2: only the popup, at the site's origin, is listened to."""
    game_page = open_game(page, site_of())
    popup = press_sign_in(page, game_page)
    game_page.evaluate(
        """() => postMessage({ type: "authorization_response", response: { code: "x" } }, "*")"""
    )
    with popup.expect_event("close"):
        decide(popup)
    check_signed_in(game_page, ada)


# -- a redirect -----------------------------------------------------------------------------------


@pytest.mark.parametrize("blocked", [True, False])
def test_redirect_signs_in_where_popups_are_blocked_or_not_wanted(
    page: Page, site_of, ada: dict, blocked: bool
):
    address = site_of()
    open_game(page, f"{address}?level=3#top", **({} if blocked else {"mode": "redirect"}))
    if blocked:
        page.evaluate("() => { window.open = () => null; }")
    page.get_by_role("button", name="Sign in").click()
    decide(page)
    check_signed_in(page, ada)
    assert page.url == address  # without code and state


# Counts what a popup blocker lets through: windows that open while only promises were awaited.
COUNT_WINDOWS = """async () => {
  let opened = 0;
  window.open = () => { opened += 1; return null; };
  const ended = identity.signIn({ ...options, mode: "popup" }).catch(({ code }) => code);
  const atOnce = opened;
  for (let i = 0; i < 5; i += 1) await null;
  return [atOnce, opened, await ended];
}"""


def test_popup_opens_before_anything_takes_time(
    page: Page, site_of, game: Game, console_errors: list[str]
):
    """Browsers open a window for a click only, and soon after it. The page stays."""
    address = site_of()
    assert open_game(page, address).evaluate(COUNT_WINDOWS) == [1, 1, "popup_blocked"]
    game.pages["/host"] = OTHER_HOST.replace("$GAME", address)
    page.goto(f"{game.origin()}/host")
    frame = ready(frame_of(page))
    assert frame.evaluate(COUNT_WINDOWS)[1:] == [1, "popup_blocked"]
    drop_undelivered_messages(console_errors)


def test_game_on_a_plain_file_server_signs_in(
    page: Page, server: RunningServer, ada: dict, tmp_path: Path
):
    handler = partial(QuietFiles, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        address = f"http://localhost:{files.server_port}/my%20game/index.html"
        client = server.add_client("Space Game", address, public=True)
        text = PAGE.replace("$SITE", server.address).replace("$CLIENT_ID", client["client_id"])
        (tmp_path / "my game").mkdir()
        (tmp_path / "my game" / "index.html").write_text(text, encoding="utf-8")
        game_page = open_game(page, address)
        popup = press_sign_in(page, game_page)
        with popup.expect_event("close"):
            decide(popup)
        check_signed_in(game_page, ada)
        files.shutdown()


class QuietFiles(SimpleHTTPRequestHandler):
    """As `python -m http.server`, without its log."""

    def log_message(self, *_: object) -> None:
        pass


def test_cancelled_redirect_is_a_page_without_a_player(page: Page, site_of):
    address = site_of()
    open_game(page, address, mode="redirect")
    page.get_by_role("button", name="Sign in").click()
    decide(page, "Cancel")
    expect(page.locator("output")).to_have_text("null")
    assert page.url == address
    press_sign_in(page, page)  # asks again, instead of telling of the old answer


def test_call_after_a_cancelled_redirect_tells_of_it_once(page: Page, site_of, game: Game):
    address = site_of()
    game.pages["/"] = game.pages["/"].replace("show(await identity.whois())", "show(null)")
    open_game(page, address, mode="redirect")
    page.get_by_role("button", name="Sign in").click()
    decide(page, "Cancel")
    expect(page.locator("output")).to_have_text("null")
    page.get_by_role("button", name="Sign in").click()
    assert shown(page)["code"] == "access_denied"
    press_sign_in(page, page)


def test_back_without_an_answer_ends_the_sign_in(page: Page, site_of):
    """The browser may show the page again as it was (bfcache), which this one never does."""
    game_page = open_game(page, site_of(), mode="redirect")
    page.route("**/oauth/authorize?*", lambda route: route.fulfill(status=204))  # stays here
    game_page.get_by_role("button", name="Sign in").click()
    page.wait_for_function("() => sessionStorage.length === 1")
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    assert shown(game_page)["code"] == "popup_closed"


def test_response_of_another_tab_is_ignored(page: Page, site_of):
    """RFC 9700 4.7.1: login CSRF. The address stays as it is, and no code is exchanged."""
    address = site_of()
    requested = []
    page.on("request", lambda request: requested.append(request.url))
    open_game(page, f"{address}?code={'a' * 43}&state=another")
    assert page.url.endswith("&state=another")
    assert not any("/api/oauth/token" in each for each in requested)


def test_answer_of_another_site_is_refused(page: Page, site_of, game: Game, server: RunningServer):
    """RFC 9700 4.4: a site that sends the player on to this one gets neither code nor verifier."""
    asked = []

    def send_on(route: Route) -> None:
        asked.append(urlsplit(route.request.url))
        address = f"{server.address}/oauth/authorize?{asked[-1].query}"
        route.fulfill(status=302, headers={"Location": address})

    page.route("https://evil.example/**", send_on)
    address = site_of()
    game.pages["/"] = game.pages["/"].replace("show(await identity.whois())", "show(null)")
    open_game(page, address, mode="redirect", site="https://evil.example")
    page.get_by_role("button", name="Sign in").click()
    decide(page)
    expect(page.locator("output")).to_have_text("null")
    assert [each.path for each in asked] == ["/oauth/authorize"]
    assert page.url == address
    page.get_by_role("button", name="Sign in").click()
    assert shown(page)["code"] == "issuer_mismatch"


def test_redirect_of_a_confidential_client_ends_with_the_next_call(
    page: Page, site_of, game: Game, server: RunningServer, ada: dict
):
    """whois() cannot exchange the code: the game's own server has the secret."""
    address = site_of()
    publish(game, server, server.add_client("Space Game", address)["client_id"])
    open_game(page, address, mode="redirect")
    page.evaluate("() => { options.exchange = () => {}; }")
    page.get_by_role("button", name="Sign in").click()
    decide(page)
    expect(page.locator("output")).to_have_text("null")
    assert page.evaluate("identity.needsClick()") is False
    page.evaluate("() => { options.exchange = async (grant) => ({ grant }); }")
    page.get_by_role("button", name="Sign in").click()
    grant = shown(page)["grant"]
    assert grant["redirect_uri"] == page.url
    assert (len(grant["code"]), len(grant["code_verifier"])) == (43, 72)


def test_page_without_encryption_has_a_sentence_for_the_player(page: Page, site_of):
    """Browsers have no digest there. Loopback addresses count as encrypted."""
    game_page = open_game(page, site_of())
    game_page.evaluate("() => Object.defineProperty(Crypto.prototype, 'subtle', { get() {} })")
    game_page.get_by_role("button", name="Sign in").click()
    assert shown(game_page)["code"] == "insecure_context"


# -- the frame of the play page, and that of another host -----------------------------------------


@pytest.fixture
def add_played_game(server: RunningServer, store: Storage, game: Game) -> Callable[..., str]:
    """A function that registers a game of this kind, and returns the address of its play page."""

    def add_played_game(public: bool) -> str:
        url = f"{game.origin('localhost')}/"
        client, _ = store.clients.register("Space Game", [], None, game_url=url, public=public)
        publish(game, server, client.id)
        return f"{server.address}/play/{client.id}"

    yield add_played_game
    for client_id in store.clients.ids():
        if store.clients.read(client_id).game_url:
            store.clients.delete(client_id)


def frame_of(page: Page) -> Frame:
    return page.locator("iframe").element_handle().content_frame()


def test_public_game_on_the_play_page_signs_in_without_a_popup(
    page: Page, add_played_game, ada: dict
):
    page.goto(add_played_game(public=True))
    frame = ready(frame_of(page))
    frame.get_by_role("button", name="Sign in").click()
    decide(page)
    check_signed_in(frame, ada)
    # The play page answers once per load, so the next call has the same answer.
    assert frame.evaluate("identity.signIn(options)")["id"] == ada["id"]
    assert frame.evaluate("identity.needsClick()") is False


@pytest.fixture
def silent_browser(page: Page, server: RunningServer) -> Page:
    """Ada's browser, of a kind that does not tell a page what is around it."""

    def change_module(route: Route) -> None:
        answer = route.fetch()
        text = answer.text().replace("location.ancestorOrigins", "undefined")
        route.fulfill(response=answer, body=text)

    page.route(f"{server.address}/static/v1/identity.js", change_module)
    return page


def test_hello_finds_the_play_page_where_the_browser_does_not_tell(
    silent_browser: Page, add_played_game, ada: dict
):
    silent_browser.goto(add_played_game(public=True))
    frame = ready(frame_of(silent_browser))
    assert frame.evaluate("identity.needsClick()") is False
    frame.get_by_role("button", name="Sign in").click()
    decide(silent_browser)
    check_signed_in(frame, ada)


def test_other_host_gives_no_hello_where_the_browser_does_not_tell(
    silent_browser: Page, site_of, game: Game, ada: dict, console_errors: list[str]
):
    game.pages["/host"] = OTHER_HOST.replace("$GAME", site_of())
    silent_browser.goto(f"{game.origin()}/host")
    frame = ready(frame_of(silent_browser))
    assert frame.evaluate("identity.needsClick()") is True
    popup = press_sign_in(silent_browser, frame)
    with popup.expect_event("close"):
        decide(popup)
    check_signed_in(frame, ada)
    drop_undelivered_messages(console_errors)


def test_cancel_on_the_play_page_is_final_until_it_is_loaded_again(page: Page, add_played_game):
    page.goto(add_played_game(public=True))
    frame = ready(frame_of(page))
    frame.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Cancel").click()
    assert shown(frame)["code"] == "access_denied"
    frame.get_by_role("button", name="Sign in").click()
    assert shown(frame)["code"] == "already_requested"


def test_confidential_game_gets_the_grant_for_its_own_server(page: Page, add_played_game):
    page.goto(add_played_game(public=False))
    frame = ready(frame_of(page))
    frame.evaluate("() => { options.exchange = async (grant) => ({ grant }); }")
    frame.get_by_role("button", name="Sign in").click()
    decide(page)
    grant = shown(frame)["grant"]
    assert (len(grant["code"]), len(grant["code_verifier"])) == (43, 72)
    assert grant.keys() == {"code", "code_verifier"}


def test_guest_on_the_play_page_is_told(browse, add_played_game):
    page = browse()
    page.goto(add_played_game(public=True))
    frame = ready(frame_of(page))
    frame.get_by_role("button", name="Sign in").click()
    assert shown(frame)["code"] == "no_account"


def test_game_in_the_frame_of_another_host_uses_a_popup(
    page: Page, site_of, game: Game, ada: dict, console_errors: list[str]
):
    """As on hosts of games that show them in a sandboxed frame."""
    game.pages["/host"] = OTHER_HOST.replace("$GAME", site_of())
    page.goto(f"{game.origin()}/host")
    frame = ready(frame_of(page))
    popup = press_sign_in(page, frame)
    with popup.expect_event("close"):
        decide(popup)
    check_signed_in(frame, ada)
    drop_undelivered_messages(console_errors)


def test_blocked_popup_in_a_frame_has_a_sentence_for_the_player(
    page: Page, site_of, game: Game, console_errors: list[str]
):
    """The site cannot be shown in a frame, so there is no redirect."""
    game.pages["/host"] = OTHER_HOST.replace("$GAME", site_of())
    page.goto(f"{game.origin()}/host")
    frame = ready(frame_of(page))
    frame.evaluate("() => { window.open = () => null; }")
    frame.get_by_role("button", name="Sign in").click()
    assert shown(frame)["code"] == "popup_blocked"
    drop_undelivered_messages(console_errors)


# -- look-ups -------------------------------------------------------------------------------------


def test_profiles_and_pictures_are_read_without_a_sign_in(
    page: Page, site_of, server: RunningServer, ada: dict
):
    bob = server.add_user("bob")
    open_game(page, site_of())
    names = page.evaluate(
        "async (ids) => (await identity.players(ids)).map(({ name }) => name)",
        [bob["id"], 99, ada["id"]],
    )
    assert names == ["bob", "ada"]
    assert page.evaluate("identity.players([])") == []
    assert page.evaluate("identity.player(99)") is None
    ada_profile = page.evaluate("(id) => identity.player(id)", ada["id"])
    assert (ada_profile["name"], ada_profile["playMinutes"]) == ("ada", 0)
    sizes = page.evaluate(
        """async (player) => Promise.all(["large", "medium", "small"].map(async (size) => {
            const image = new Image();
            image.crossOrigin = "anonymous";
            image.src = identity.pictureOf(player, size);
            await image.decode();
            return image.width;
        }))""",
        ada,
    )
    assert sizes == [256, 64, 16]
