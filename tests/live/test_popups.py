"""Games on other sites in a real browser: popups (response_mode=web_message) and CORS."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, expect

from identity.site.settings import ROOT

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
GAMES = Path(ROOT, "docs/games.md").read_text(encoding="utf-8")
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
    documented = re.search(r"<!-- popup -->\n```js\n(.*?)```", GAMES, re.DOTALL)[1]
    assert documented.count("\n") == 10
    own = documented.replace("https://id.example.org", game_client.server.address)
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


def test_redirect_uri_of_another_client_shows_an_error(
    page: Page, game: Game, game_client: Client, server: RunningServer
):
    """RFC 9700 4.17.2: an attacker's client cannot have the code posted to the game."""
    evil = Client(server, "https://evil.example/callback", name="Evil")
    evil.redirect_uri = game_client.redirect_uri
    popup = open_popup(page, game, evil)
    expect(popup.get_by_text("Evil did not register this redirect_uri")).to_be_visible()
    assert page.locator("output").inner_text() == ""


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


def test_message_page_cannot_be_framed(
    page: Page, game: Game, game_client: Client, console_errors: list[str]
):
    """RFC 9700 4.16: a frame of the game's own page gets no code either."""
    page.goto(game_client.link())
    decide(page)
    expect(page).to_have_title("Game")  # consent is remembered from now on
    link = game_client.link(response_mode="web_message")
    game.pages["/framing"] = f'<title>Framing</title><iframe src="{link}"></iframe>'
    with page.expect_console_message(lambda each: "frame-ancestors 'none'" in each.text):
        page.goto(f"{game.origin()}/framing")
    assert "frame-ancestors 'none'" in console_errors.pop()


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
