"""static/identity.js in a real browser: one call signs in, wherever the page is.

Its messages and requests are tested in Node, by scripts/identity.test.mjs.
"""

import json
import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
import requests
from playwright.sync_api import Frame, Page, Route, expect

from storage import Storage

from .page_checks import drop_undelivered_messages
from .running import RunningServer
from .test_browser import Game, decide, sign_in

pytestmark = [pytest.mark.live, pytest.mark.browser]
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

    def site_of(host: str = "localhost", path: str = "/") -> str:
        address = f"{game.origin(host)}{path}"
        client = server.add_client("Space Game", address, public=True)
        publish(game, server, client["client_id"], path)
        return address

    return site_of


def publish(game: Game, server: RunningServer, client_id: str, path: str = "/") -> None:
    game.pages[path] = PAGE.replace("$SITE", server.address).replace("$CLIENT_ID", client_id)


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


def test_popup_of_a_guest_starts_with_the_sign_in_page(browse, site_of, ada: dict):
    """The page is one that a plain file server may have."""
    page = browse()
    game_page = open_game(page, site_of(path="/my%20game/index.html"), scope="email")
    popup = press_sign_in(page, game_page)
    sign_in(popup)
    with popup.expect_event("close"):
        decide(popup)
    assert shown(game_page)["email"] == ada["email"]


def test_cancelled_and_closed_popups_are_errors(page: Page, site_of):
    game_page = open_game(page, site_of())
    popup = press_sign_in(page, game_page)
    with popup.expect_event("close"):
        decide(popup, "Cancel")
    assert shown(game_page)["code"] == "access_denied"
    popup = press_sign_in(page, game_page)
    # Chromium may never close a window that is about to load its first page.
    popup.get_by_role("button", name="Allow").wait_for()
    popup.close()
    assert shown(game_page)["message"] == "You left before the sign-in was complete. Try again."


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


def test_message_of_another_window_is_ignored(page: Page, site_of, ada: dict):
    """RFC 9700 4.17.2: the module accepts messages of the popup at the site's origin only."""
    game_page = open_game(page, site_of("127.0.0.1"))
    popup = press_sign_in(page, game_page)
    game_page.evaluate(
        """() => postMessage({ type: "authorization_response", response: { code: "x" } }, "*")"""
    )
    with popup.expect_event("close"):
        decide(popup)
    check_signed_in(game_page, ada)


# -- a redirect -----------------------------------------------------------------------------------


def test_redirect_after_a_cancelled_one_signs_in(page: Page, site_of, ada: dict):
    address = site_of()
    open_game(page, f"{address}?level=3#top", mode="redirect")
    page.get_by_role("button", name="Sign in").click()
    decide(page, "Cancel")
    ready(page, mode="redirect")
    assert page.url == address
    page.get_by_role("button", name="Sign in").click()
    decide(page)
    check_signed_in(page, ada)
    assert page.url == address  # without code and state


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


# -- the frame of the play page, and that of another host -----------------------------------------


def frame_of(page: Page) -> Frame:
    return page.locator("iframe").element_handle().content_frame()


def joins(server: RunningServer, game: Page | Frame, ada: dict) -> bool:
    """Return whether a game server admits Ada with a ticket that this page gets."""
    ticket = game.evaluate("identity.ticket('LOCALHOST:3000', 'f3a0')")
    form = {"ticket": ticket or "", "server": "localhost:3000", "nonce": "f3a0"}
    answer = requests.post(f"{server.address}/api/tickets/check", form, timeout=10)
    return answer.status_code == 200 and answer.json()["user"]["id"] == ada["id"]


def test_player_joins_a_game_server_with_a_ticket(
    page: Page, server: RunningServer, store: Storage, game: Game, ada: dict
):
    """In a popup, and on the play page, which asks again after a consent to less."""
    url = f"{game.origin('localhost')}/"
    client, _ = store.clients.register("Space Game", [url], None, game_url=url, public=True)
    publish(game, server, client.id)
    game_page = open_game(page, url, scope="userinfo join")
    assert not joins(server, game_page, ada)
    popup = press_sign_in(page, game_page)
    expect(popup.get_by_text("join game servers as you")).to_be_visible()
    with popup.expect_event("close"):
        decide(popup)
    assert shown(game_page) and joins(server, game_page, ada)
    for scope in ("userinfo", "userinfo join"):
        page.goto(f"{server.address}/play/{client.id}")
        frame = ready(frame_of(page), scope=scope)
        frame.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("join game servers as you")).to_be_visible(visible="join" in scope)
        decide(page)
        assert shown(frame)
        if "join" in scope:
            assert joins(server, frame, ada)
    store.clients.delete(client.id)


def test_sign_in_on_the_play_page_needs_no_popup(
    page: Page, server: RunningServer, store: Storage, game: Game, ada: dict
):
    url = f"{game.origin('localhost')}/"
    client, _ = store.clients.register("Space Game", [], None, game_url=url, public=True)
    publish(game, server, client.id)
    page.goto(f"{server.address}/play/{client.id}")
    frame = ready(frame_of(page))
    assert frame.evaluate("identity.needsClick()") is False
    frame.get_by_role("button", name="Sign in").click()
    decide(page)
    check_signed_in(frame, ada)
    store.clients.delete(client.id)


def test_game_in_the_frame_of_another_host_uses_a_popup(
    page: Page, site_of, game: Game, ada: dict, console_errors: list[str]
):
    """As on hosts of games that show them in a sandboxed frame."""
    game.pages["/host"] = OTHER_HOST.replace("$GAME", site_of())
    page.goto(f"{game.origin()}/host")
    frame = ready(frame_of(page))
    assert frame.evaluate("identity.needsClick()") is True
    popup = press_sign_in(page, frame)
    with popup.expect_event("close"):
        decide(popup)
    check_signed_in(frame, ada)
    drop_undelivered_messages(console_errors)


# -- look-ups -------------------------------------------------------------------------------------
