"""Games on other sites in a real browser: popups (response_mode=web_message), CORS, identity.js.

The messages and requests of identity.js are tested in Node, by scripts/identity.test.mjs.
"""

import json
import re
from collections.abc import Callable, Iterator

import pytest
import requests
from documents import read_blocks
from playwright.sync_api import Browser, Error, Frame, Page, expect

from storage import Storage

from .page_checks import check_page, drop_undelivered_messages
from .running import RunningServer
from .test_browser import Client, Game, decide, press_to_close, sign_in

pytestmark = [pytest.mark.live, pytest.mark.browser]
OPENER = """<!doctype html><title>Game</title><h1>Game</h1><button>Sign in</button><output></output>
<script>
  const site = "$SITE";
  document.querySelector("button").addEventListener("click", () => open("$LINK", "", "popup"));
  addEventListener("message", ({ data, origin, source }) => {
    if (origin !== site || data?.type !== "authorization_response") return;
    document.querySelector("output").append(JSON.stringify(data.response));
    source.close();
  });
</script>"""
DOCUMENTED = read_blocks("docs/games/browser.md")
CLOSE = "Close this window"
NO_OPENER = "This window was not opened by a page at"
EXCHANGE = """async ([address, form, headers]) => {
  const body = new URLSearchParams(form);
  const answer = await fetch(address, { method: "POST", body, headers });
  return [answer.status, await answer.json()];
}"""


def open_popup(
    page: Page, game: Game, client: Client, host: str = "127.0.0.1", opener: str = OPENER
) -> Page:
    """Open the game at this host, and press its button; return the popup."""
    link = client.link(response_mode="web_message")
    game.pages["/"] = opener.replace("$SITE", client.server.address).replace("$LINK", link)
    page.clock.install()  # in all windows of the context: time passes, and can be advanced
    page.goto(f"{game.origin(host)}/")
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Sign in").click()
    return opened.value


def check_nobody_took_the_response(popup: Page) -> None:
    """Check that the popup says so five seconds after it posted the response."""
    popup.locator("#response").wait_for()
    popup.wait_for_load_state()  # its script has posted the response, and waits
    popup.clock.fast_forward(5000)
    expect(popup.get_by_text(NO_OPENER)).to_be_visible()


def close(popup: Page) -> None:
    """Press the button that closes a popup with an error."""
    with popup.expect_event("close"):
        press_to_close(popup, CLOSE)


def received(page: Page) -> dict[str, str]:
    """Return the response that the game got."""
    output = page.locator("output")
    expect(output).to_contain_text("}")
    return json.loads(output.inner_text())


# -- the opener is the client ---------------------------------------------------------------------


def test_ten_lines_of_the_documentation_sign_a_player_in(browse, game: Game, game_client: Client):
    assert DOCUMENTED["popup"].count("\n") == 10
    own = DOCUMENTED["popup"].replace("https://id.example.org", game_client.server.address)
    own = own.replace("0123456789abcdef", game_client.id)
    game.pages["/"] = f"""<!doctype html><title>Game</title><button>Sign in</button>
        <output></output><script>
          const button = document.querySelector("button");
          const sendToMyServer = (response) => {{
            document.querySelector("output").textContent = JSON.stringify(response);
          }};
          {own}</script>"""
    page = browse()
    page.goto(f"{game.origin()}/")
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Sign in").click()
    popup = opened.value
    sign_in(popup)
    expect(popup.get_by_text("Both buttons close this window")).to_be_visible()
    with popup.expect_event("close"):
        decide(popup)
    code = received(page)["code"]
    answer = game_client.server.exchange_code(code, game_client.id, game_client.secret)
    assert answer.status_code == 200


# -- it is not ------------------------------------------------------------------------------------


def test_opener_of_another_origin_gets_nothing(
    page: Page, game: Game, game_client: Client, console_errors: list[str]
):
    """RFC 9700 4.17.2: the redirect URI is on 127.0.0.1, the opener on localhost."""
    popup = open_popup(page, game, game_client, host="localhost")
    decide(popup)
    check_nobody_took_the_response(popup)
    assert page.locator("output").inner_text() == ""
    drop_undelivered_messages(console_errors)
    check_page(popup)
    close(popup)


def test_opener_that_moved_to_another_origin_gets_nothing(
    page: Page, game: Game, game_client: Client, console_errors: list[str]
):
    """RFC 9700 4.17.2."""
    popup = open_popup(page, game, game_client)
    popup.get_by_role("button", name="Allow").wait_for()
    page.goto(f"{game.origin('localhost')}/")
    decide(popup)
    check_nobody_took_the_response(popup)
    assert page.locator("output").inner_text() == ""
    drop_undelivered_messages(console_errors)


def test_window_without_an_opener_shows_an_error(page: Page, game_client: Client):
    page.goto(game_client.link(response_mode="web_message"))
    decide(page)
    expect(page.get_by_role("heading", name="Something went wrong")).to_be_focused()
    expect(page.get_by_text(NO_OPENER)).to_be_visible()
    expect(page.get_by_role("button", name=CLOSE)).to_have_count(0)
    check_page(page)


def test_error_in_a_popup_offers_to_close_it(page: Page, game: Game, game_client: Client):
    """Nowhere else, because a script closes no other window."""
    popup = open_popup(page, game, game_client)
    popup.locator("[name=request]").evaluate("field => { field.value = 'expired'; }")
    decide(popup)
    expect(popup.get_by_text("This page has expired.")).to_be_visible()
    check_page(popup)
    close(popup)
    page.goto(game_client.link(client_id="unknown"))
    expect(page.get_by_text("No app has this client_id.")).to_be_visible()
    expect(page.get_by_role("button", name=CLOSE)).to_have_count(0)


# -- requests from the pages of a game ------------------------------------------------------------


@pytest.fixture
def on_another_site(chromium: Browser, game: Game) -> Iterator[Callable[..., list]]:
    """A function that sends a token request from a page of another site."""
    page = chromium.new_page()
    page.goto(f"{game.origin('localhost')}/callback")

    def send(server: RunningServer, form: dict, **headers: str) -> list:
        form = {"grant_type": "authorization_code"} | form
        return page.evaluate(EXCHANGE, [f"{server.address}/api/oauth/token", form, headers])

    yield send
    page.close()


def test_no_page_reads_a_response_to_a_confidential_client(
    server: RunningServer, client: dict, on_another_site
):
    with pytest.raises(Error, match="Failed to fetch"):
        on_another_site(server, client | {"code": "x"})


def test_no_page_sends_a_secret_by_basic(server: RunningServer, on_another_site):
    """The preflight does not allow the header, so the request is not sent."""
    before = server.access_log.read_text().count("POST /api/oauth/token")
    with pytest.raises(Error, match="Failed to fetch"):
        on_another_site(server, {"code": "x"}, Authorization="Basic eDp4")
    assert server.access_log.read_text().count("POST /api/oauth/token") == before


# -- identity.js: one call signs in, wherever the page is ------------------------------------------

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


def test_page_of_the_documentation_signs_a_player_in(
    page: Page, server: RunningServer, site_of, game: Game, ada: dict
):
    """A page without a server of its own, and one that sends the code to it."""
    told = """<!doctype html><title>Game</title><output></output><script>
      const tell = (...values) => { document.querySelector("output").append(values.join(" ")); };
      [self.greet, self.showProblem] = [tell, tell];
      self.post = (path, grant) => { tell(path, ...Object.keys(grant)); };
    </script>"""
    address = site_of()
    client_id = re.search("clientId: .(\\w+)", game.pages["/"])[1]
    for documented, expected in (
        (DOCUMENTED["page"], rf"^ada {server.address}/pfp/medium/{ada['id']}.*\.webp"),
        (
            f"""<button>Sign in</button><script type="module">
            import {{ signIn }} from "https://id.example.org/static/v1/identity.js";
            const button = document.querySelector("button");
            button.addEventListener("click", async () => {{ {DOCUMENTED["exchange"]} }});
            </script>""",
            "^/sign-in code code_verifier redirect_uri$",
        ),
    ):
        own = documented.replace("https://id.example.org", server.address)
        game.pages["/"] = told + own.replace("0123456789abcdef", client_id)
        page.goto(address)
        popup = press_sign_in(page, page)
        with popup.expect_event("close"):
            decide(popup)
        expect(page.locator("output")).to_have_text(re.compile(expected))


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
        assert frame.evaluate("identity.needsClick()") is False
        frame.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("join game servers as you")).to_be_visible(visible="join" in scope)
        decide(page)
        check_signed_in(frame, ada)
        if "join" in scope:
            assert joins(server, frame, ada)
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
