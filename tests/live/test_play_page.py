"""A player with a real browser on the play page, and games that mean well or ill."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
import requests
from playwright.sync_api import Error, Frame, Page, expect
from waiting import wait_until

from storage import ADMINISTRATOR, Client, Storage, now_ms

from . import test_browser
from .looks import check_looks, check_with_axe, forget_undelivered_messages
from .running import ANSWER_TIMEOUT, RunningServer
from .test_browser import Game, carry_session, hold_clock

pytestmark = [pytest.mark.live, pytest.mark.browser]
chromium, playwright = test_browser.chromium, test_browser.playwright
browse, game = test_browser.browse, test_browser.game
complaints = test_browser.complaints
GAME = """<!doctype html><title>Game</title><h1>Space</h1>
<button>Fire</button><output></output>
<script>
  const told = document.querySelector("output");
  addEventListener("message", ({ data, origin }) => {
    told.append(`${origin} ${JSON.stringify(data)}\\n`);
  });
  const ask = (message) => top.postMessage({ action: "authorize", ...message }, "*");
</script>"""
# Another's page: it sends home what it is told.
SPY = """<!doctype html><title>Spy</title><h1>Spy</h1><script>
  addEventListener("message", ({ data }) => fetch("/told?" + JSON.stringify(data)));
  const ask = (message) => top.postMessage({ action: "authorize", ...message }, "*");
</script>"""


class Play:
    """The game of one client on the play page of one browser."""

    def __init__(self, server: RunningServer, client: Client, secret: str) -> None:
        self.server, self.client, self.secret = server, client, secret
        self.address = f"{server.address}/play/{client.id}"

    def open(self, page: Page) -> Frame:
        """Load the play page, until the game is there."""
        page.goto(self.address)
        return game_on(page)

    def ask(self, frame: Frame, **changed) -> None:
        """What the game says to its top window."""
        asked = {"client_id": self.client.id, "scopes": ["userinfo"]} | changed
        frame.evaluate("message => ask(message)", asked)

    def check_code(self, frame: Frame, name: str = "ada") -> None:
        """The game was told one thing, from the page's own origin: a code that tells who plays."""
        told = frame.locator("output")
        expect(told).to_contain_text('"error":false')
        origin, _, message = told.inner_text().strip().partition(" ")
        assert origin == self.server.address
        code = frame.evaluate("text => JSON.parse(text).code", message)
        assert frame.evaluate("text => JSON.parse(text)", message) == {
            **{"type": "authorized", "error": False},
            "code": code,
        }
        assert self.exchange(code, redirect_uri=self.client.game_url).status_code == 400
        token = self.exchange(code).json()["access_token"]
        answer = requests.get(
            f"{self.server.address}/api/oauth/whois",
            headers={"Authorization": f"Bearer {token}"},
            timeout=ANSWER_TIMEOUT,
        )
        assert (answer.json()["name"], "email" in answer.json()) == (name, False)

    def exchange(self, code: str, **more: str) -> requests.Response:
        form = {"grant_type": "authorization_code", "code": code, **more}
        return requests.post(
            f"{self.server.address}/api/oauth/token",
            form | {"client_id": self.client.id, "client_secret": self.secret},
            timeout=ANSWER_TIMEOUT,
        )


def game_on(page: Page) -> Frame:
    """The game's frame on this play page, once the game is there."""
    frame = page.locator("#game").element_handle().content_frame()
    frame.get_by_role("heading", name="Space").wait_for()
    return frame


@contextmanager
def heard(page: Page) -> Iterator[None]:
    """At the end the play page's scripts have been given what was said to its window meanwhile."""
    page.evaluate("addEventListener('message', () => { self.heard = true }, { once: true })")
    yield
    page.wait_for_function("() => self.heard")


def refusals(frame: Frame, *messages: str) -> None:
    """The game was told just these, in this order."""
    line = '{{"type":"authorized","error":true,"message":"{}"}}\n'
    origin = frame.evaluate("location.ancestorOrigins[0]")
    expected = "".join(f"{origin} {line.format(message)}" for message in messages)
    expect(frame.locator("output")).to_have_text(expected.strip())


@pytest.fixture(scope="module")
def adas_cookies(server: RunningServer, ada: dict) -> dict:
    """The state of a browser in which Ada is signed in."""
    value = server.start_session("ada")
    cookie = {"name": "session", "value": value, "domain": "127.0.0.1", "path": "/"}
    rest = {"expires": -1, "httpOnly": True, "secure": False, "sameSite": "Lax"}
    return {"cookies": [cookie | rest], "origins": []}


@pytest.fixture
def add_game(server: RunningServer, store: Storage) -> Iterator[Callable[..., Play]]:
    """Registers a game that nobody has allowed anything yet."""
    added = []

    def add_game(game: Game, host: str = "localhost") -> Play:
        game.pages["/"] = GAME
        client, secret = store.add_client("Space Game", [], None, game_url=f"{game.origin(host)}/")
        added.append(client.id)
        return Play(server, client, secret)

    yield add_game
    for client_id in added:
        store.delete_client(client_id)


@pytest.fixture
def play(add_game, game: Game, ada: dict) -> Play:
    """A game on another site."""
    return add_game(game)


@pytest.fixture
def page(browse, adas_cookies: dict) -> Page:
    """Ada's browser."""
    return browse(storage_state=adas_cookies)


@pytest.fixture
def spy() -> Iterator[Game]:
    """A site of somebody else's."""
    with Game() as spy:
        spy.pages |= {"/": SPY, "/told": ""}
        threading.Thread(target=spy.serve_forever, daemon=True).start()
        yield spy
        spy.shutdown()


def what_it_was_told(spy: Game) -> list[str]:
    return [path for path in spy.asked if path.startswith("/told")]


def nobody_was_heard(play: Play, page: Page, frame: Frame) -> None:
    """The game's request is the first: a request that the page took from another counts at once."""
    expect(dialog(page)).to_be_hidden()
    play.ask(frame)
    button(page, "Cancel").click()
    refusals(frame, "access_denied")


def dialog(page: Page):
    return page.get_by_role("dialog", name="Space Game wants to know who you are")


def button(page: Page, name: str):
    return dialog(page).get_by_role("button", name=name)


# -- the player is asked ------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_player_is_asked_once_and_the_game_gets_a_code(
    add_game, game: Game, page: Page, host: str
):
    play = add_game(game, host)
    frame = play.open(page)
    play.ask(frame)
    expect(dialog(page)).to_be_visible()
    expect(button(page, "Allow")).to_have_attribute("aria-disabled", "false")
    button(page, "Allow").click()
    play.check_code(frame)
    expect(dialog(page)).to_be_hidden()
    # On the next visit, and in another window of the same player, it is remembered.
    for again in (page, page.context.new_page()):
        frame = play.open(again)
        play.ask(frame)
        play.check_code(frame)
        expect(dialog(again)).to_be_hidden()


def test_a_game_that_asks_at_once_is_heard(play: Play, game: Game, page: Page):
    question = f'ask({{ client_id: "{play.client.id}", scopes: ["userinfo"] }})'
    game.pages["/"] = GAME.replace("</script>", f"{question}</script>")
    frame = play.open(page)
    button(page, "Cancel").click()
    refusals(frame, "access_denied")


def test_the_dialog_opens_with_focus_on_its_heading_and_names_who_asks(
    play: Play, game: Game, page: Page
):
    frame = play.open(page)
    frame.get_by_role("button").click()  # the focus is in the game
    play.ask(frame)
    expect(page.get_by_role("heading", name="Space Game wants to know who you are")).to_be_focused()
    expect(dialog(page)).to_contain_text(f"localhost:{game.server_port}")
    expect(dialog(page)).to_contain_text("this site's administrators")


@pytest.mark.parametrize("how", ["Cancel", "Escape"])
def test_cancel_is_access_denied_and_keeps_nothing(
    play: Play, page: Page, store: Storage, ada: dict, how: str
):
    frame = play.open(page)
    play.ask(frame)
    expect(dialog(page)).to_be_visible()
    page.keyboard.press("Escape") if how == "Escape" else button(page, "Cancel").click()
    refusals(frame, "access_denied")
    assert play.client.id not in store.read_user(ada["id"]).grants


def test_a_second_request_on_one_page_load_is_already_requested(play: Play, page: Page):
    frame = play.open(page)
    play.ask(frame)
    play.ask(frame)
    refusals(frame, "already_requested")
    button(page, "Cancel").click()
    refusals(frame, "already_requested", "access_denied")
    play.ask(frame)
    refusals(frame, "already_requested", "access_denied", "already_requested")
    frame = play.open(page)
    play.ask(frame)
    expect(dialog(page)).to_be_visible()


def test_what_is_wrong_with_a_request_is_told_and_does_not_count(
    add_game, game: Game, spy: Game, page: Page
):
    play, other = add_game(game), add_game(spy)
    frame = play.open(page)
    for scopes in (["userinfo", "email"], ["email"], [], [["userinfo"]]):
        play.ask(frame, scopes=scopes)
    for client_id in (other.client.id, "0" * 24, ""):
        play.ask(frame, client_id=client_id)
    wrong = ["invalid_scopes"] * 4 + ["invalid_app"] * 3
    refusals(frame, *wrong)
    play.ask(frame)
    button(page, "Cancel").click()
    refusals(frame, *wrong, "access_denied")


MALFORMED = [  # as the game's page writes them
    *("null", "undefined", "1", "'authorize'", "[]", "{}", "new Map([['action', 'authorize']])"),
    "{ action: 'authorise', client_id: id, scopes: ['userinfo'] }",
    "{ action: ['authorize'], client_id: id, scopes: ['userinfo'] }",
    "{ action: 'authorize', client_id: [id], scopes: ['userinfo'] }",
    "{ action: 'authorize', client_id: id, scopes: 'userinfo' }",
    "{ action: 'authorize', client_id: id, scopes: { length: 1, 0: 'userinfo' } }",
    "{ action: 'authorize', scopes: ['userinfo'] }",
    "{ action: 'authorize', client_id: id }",
]


def test_malformed_messages_are_ignored(play: Play, page: Page):
    frame = play.open(page)
    for message in MALFORMED:
        frame.evaluate(f"id => top.postMessage({message}, '*')", play.client.id)
    nobody_was_heard(play, page, frame)


def test_signed_out_the_game_shows_and_learns_no_account_until_the_player_signs_in(
    play: Play, browse
):
    page = browse()
    frame = play.open(page)
    play.ask(frame)
    play.ask(frame, scopes=["email"])
    refusals(frame, "no_account", "no_account")
    page.get_by_role("link", name="Sign in").click()
    test_browser.sign_in(page)
    page.wait_for_url(play.address)
    frame = game_on(page)
    play.ask(frame)
    expect(dialog(page)).to_be_visible()


def test_who_signed_out_in_another_window_has_no_account_and_is_offered_to_sign_in(
    play: Play, browse, complaints: list[str]
):
    page = browse()
    carry_session(page, play.server)
    with page.expect_response("**/api/users/heartbeat"):
        frame = play.open(page)
    other = page.context.new_page()
    other.goto(play.server.address)
    other.get_by_role("button", name="Sign out").click()
    other.get_by_role("link", name="Sign in").wait_for()
    play.ask(frame)
    refusals(frame, "no_account")
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    expect(page.locator("#me")).to_be_hidden()
    assert complaints.pop().startswith("403 ")


def test_a_page_that_was_opened_as_another_player_gives_that_player_nothing(
    server: RunningServer, play: Play, browse, complaints: list[str]
):
    """The request was signed for the session of before."""
    page = browse()
    carry_session(page, server)
    with page.expect_response("**/api/users/heartbeat"):
        frame = play.open(page)
    server.add_user("grace")
    other = page.context.new_page()
    other.goto(server.address)
    other.get_by_role("button", name="Sign out").click()
    other.get_by_role("link", name="Sign in").click()
    test_browser.sign_in(other, "grace")
    other.get_by_role("button", name="Sign out").wait_for()
    play.ask(frame)
    refusals(frame, "no_account")
    complaints.clear()


def test_a_game_that_is_switched_off_meanwhile_is_an_invalid_app(
    play: Play, page: Page, store: Storage, complaints: list[str]
):
    frame = play.open(page)
    with store.edit_client(play.client.id) as client:
        client.disabled = True
    play.ask(frame)
    refusals(frame, "invalid_app")
    expect(dialog(page)).to_be_hidden()
    complaints.clear()
    page.reload()
    expect(page.get_by_text("This game was deleted or disabled.")).to_be_visible()


def test_where_the_server_cannot_be_reached_it_is_a_server_error_and_may_be_asked_again(
    play: Play, page: Page, complaints: list[str]
):
    frame = play.open(page)
    page.route("**/authorize", lambda route: route.abort())
    play.ask(frame)
    refusals(frame, "server_error")
    page.unroute("**/authorize")
    play.ask(frame)
    expect(dialog(page)).to_be_visible()
    complaints.clear()


# -- Allow, in its first second -----------------------------------------------------------------


@pytest.fixture
def asked(play: Play, page: Page) -> Frame:
    """The game has just asked, and time stands still."""
    hold_clock(page)
    frame = play.open(page)
    play.ask(frame)
    expect(dialog(page)).to_be_visible()
    return frame


def still_asked(page: Page) -> None:
    """Nothing was decided."""
    expect(dialog(page)).to_be_visible()


def test_allow_ignores_clicks_for_its_first_second(asked: Frame, play: Play, page: Page):
    """RFC 9700 4.16."""
    allow = button(page, "Allow")
    for milliseconds in (0, 500, 499):
        page.clock.run_for(milliseconds)
        expect(allow).to_have_attribute("aria-disabled", "true")
        allow.click(click_count=2, force=True)
        still_asked(page)
    page.clock.run_for(1)
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.click()
    play.check_code(asked)


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_allow_ignores_keys_for_its_first_second(asked: Frame, play: Play, page: Page, key: str):
    page.keyboard.press(key)  # the heading has the focus
    page.keyboard.press("Tab")
    expect(button(page, "Allow")).to_be_focused()
    for milliseconds in (0, 500, 499):
        page.clock.run_for(milliseconds)
        page.keyboard.press(key)
        still_asked(page)
    page.clock.run_for(1)
    page.keyboard.press(key)
    play.check_code(asked)


def test_a_press_that_began_in_the_first_second_is_ignored_at_its_end(asked: Frame, page: Page):
    box = button(page, "Allow").bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    page.clock.run_for(1500)
    page.mouse.up()
    still_asked(page)
    page.keyboard.press("Tab")
    for key in ("Enter", "Space"):
        button(page, "Allow").focus()
        page.evaluate("dispatchEvent(new Event('focus'))")
        page.keyboard.down(key)
        page.clock.run_for(1500)
        page.keyboard.down(key)  # held, it repeats itself
        page.keyboard.up(key)
        still_asked(page)


@pytest.mark.parametrize("event", ["focus", "resize"])
def test_a_window_that_comes_back_or_changes_holds_allow_for_another_second(
    asked: Frame, play: Play, page: Page, event: str
):
    page.clock.run_for(1500)
    if event == "resize":
        page.set_viewport_size({"width": 700, "height": 500})
    else:
        page.evaluate("dispatchEvent(new Event('focus'))")
    allow = button(page, "Allow")
    expect(allow).to_have_attribute("aria-disabled", "true")
    allow.click(force=True)
    still_asked(page)
    page.clock.run_for(1001)
    allow.click()
    play.check_code(asked)


def test_a_game_in_full_screen_cannot_cover_the_dialog(play: Play, page: Page):
    frame = play.open(page)
    frame.get_by_role("button").click()  # full screen takes a click
    frame.evaluate("() => void document.documentElement.requestFullscreen()")
    page.wait_for_function("() => document.fullscreenElement?.id === 'game'")
    play.ask(frame)
    expect(dialog(page)).to_be_visible()
    page.wait_for_function("() => document.fullscreenElement === null")


def test_a_game_that_goes_full_screen_above_the_dialog_shows_nothing_and_is_put_back(
    play: Play, page: Page
):
    """It would lie above the dialog, and let clicks through to it."""
    hold_clock(page)
    frame = play.open(page)
    page.evaluate(
        """() => {
            window.seen = [];
            document.addEventListener("fullscreenchange", () => {
                const frame = document.getElementById("game");
                const { visibility } = getComputedStyle(frame);
                window.seen.push([frame.matches(":fullscreen"), visibility]);
            });
        }"""
    )
    frame.get_by_role("button").click()  # full screen takes a click, of the last five seconds
    play.ask(frame)
    allow = button(page, "Allow")
    expect(allow).to_be_visible()
    page.clock.run_for(1001)
    expect(allow).to_have_attribute("aria-disabled", "false")
    frame.evaluate("() => void document.documentElement.requestFullscreen()")
    page.wait_for_function("() => window.seen.length === 2")
    assert page.evaluate("window.seen") == [[True, "hidden"], [False, "visible"]]
    expect(allow).to_have_attribute("aria-disabled", "true")


def test_while_the_dialog_is_open_the_game_gets_no_click_and_no_key_and_takes_no_focus(
    play: Play, page: Page
):
    frame = play.open(page)
    fire = frame.get_by_role("button").bounding_box()
    position = fire["x"] + 5, fire["y"] + 5
    frame.evaluate(
        """() => {
            self.felt = [];
            for (const kind of ["click", "keydown"]) {
                addEventListener(kind, () => felt.push(kind));
            }
        }"""
    )
    page.mouse.click(*position)
    page.keyboard.press("a")
    play.ask(frame)
    # The game may have a process of its own, which hears a moment later that it is covered. What
    # matters is the time after the first second, when Allow counts.
    expect(button(page, "Allow")).to_have_attribute("aria-disabled", "false")
    # The browser gives a click to what it has painted there: the dialog, once the page hears moves.
    page.evaluate("addEventListener('mousemove', () => { self.covered = true })")
    steps = itertools.cycle((1, 0))
    wait_until(
        lambda: page.evaluate("self.covered"),
        meanwhile=lambda: page.mouse.move(position[0] + next(steps), position[1]),
    )
    frame.evaluate("() => { self.focus(); document.querySelector('button').focus(); }")
    frame.wait_for_function("() => !document.hasFocus()")
    expect(page.get_by_role("heading", name="Space Game wants to know who you are")).to_be_focused()
    page.keyboard.press("a")
    page.mouse.click(*position)
    page.keyboard.press("a")
    assert frame.evaluate("felt") == ["click", "keydown"]
    page.keyboard.press("Tab")
    expect(button(page, "Allow")).to_be_focused()


# -- games and pages that mean ill --------------------------------------------------------------


def allow(page: Page) -> None:
    """The player presses Allow, and the page gets a code."""
    expect(button(page, "Allow")).to_have_attribute("aria-disabled", "false")
    with page.expect_response("**/authorize") as answered:
        button(page, "Allow").click()
    assert answered.value.json()["error"] is False


def leave(frame: Frame, address: str) -> None:
    """The game goes on to another page."""
    # The page may be gone before it has answered.
    with suppress(Error):
        frame.evaluate("address => location.replace(address)", address)


def lead(frame: Frame, address: str, heading: str) -> None:
    """The game goes on to another page, until that is there."""
    leave(frame, address)
    frame.get_by_role("heading", name=heading).wait_for()


def test_a_frame_that_went_elsewhere_before_the_answer_gets_nothing(
    play: Play, spy: Game, page: Page, complaints: list[str]
):
    """RFC 9700 4.17.2."""
    frame = play.open(page)
    play.ask(frame)
    with page.expect_console_message(lambda each: "frame-src" in each.text):
        leave(frame, f"{spy.origin()}/")
    allow(page)
    assert spy.asked == []
    complaints.clear()


def test_not_even_where_the_browser_lets_it_go_there(
    play: Play, spy: Game, browse, adas_cookies: dict, complaints: list[str]
):
    """Without frame-src, the origin that the answer is for keeps it from any other page.

    RFC 9700 4.17.2.
    """
    page = browse(storage_state=adas_cookies, bypass_csp=True)
    frame = play.open(page)
    play.ask(frame)
    lead(frame, spy.origin(), "Spy")
    with page.expect_console_message(lambda each: "does not match the recipient" in each.text):
        allow(page)
    # What is sent to any origin arrives.
    with page.expect_response("**/told?*"):
        page.evaluate("document.getElementById('game').contentWindow.postMessage('hello', '*')")
    assert what_it_was_told(spy) == ["/told?%22hello%22"]
    complaints.clear()


def test_another_page_in_the_frame_is_not_heard(
    play: Play, spy: Game, game: Game, browse, adas_cookies: dict
):
    page = browse(storage_state=adas_cookies, bypass_csp=True)
    frame = play.open(page)
    lead(frame, spy.origin(), "Spy")
    with heard(page):
        play.ask(frame)
    lead(frame, play.client.game_url, "Space")
    nobody_was_heard(play, page, frame)


FRAMES = [
    ("a page of another site in the game", "spy"),
    ("a page of the game's own site in it", "game"),
]


@pytest.mark.parametrize(("_", "whose"), FRAMES)
def test_a_page_inside_the_game_gets_nothing(
    play: Play, game: Game, spy: Game, page: Page, _: str, whose: str
):
    """RFC 9700 4.17.2."""
    site = {"spy": spy, "game": game}[whose]
    site.pages["/inner"] = GAME.replace("Space", "Inner")
    frame = play.open(page)
    host = "localhost" if whose == "game" else "127.0.0.1"
    frame.evaluate(
        "address => document.body.append(Object.assign(document.createElement('iframe'),"
        " { src: address }))",
        f"{site.origin(host)}/inner",
    )
    inner = frame.child_frames[0]
    inner.get_by_role("heading", name="Inner").wait_for()
    with heard(page):
        play.ask(inner)
    nobody_was_heard(play, page, frame)
    expect(inner.locator("output")).to_be_empty()


def test_a_window_that_the_game_opens_gets_nothing(
    play: Play, game: Game, page: Page, complaints: list[str]
):
    """RFC 9700 4.17.2."""
    game.pages["/popup"] = GAME.replace("top.postMessage", "opener.top.postMessage")
    frame = play.open(page)
    with page.expect_popup() as opened:
        frame.evaluate("() => void open('/popup')")
    popup = opened.value
    popup.get_by_role("heading", name="Space").wait_for()
    with heard(page):
        play.ask(popup.main_frame)
    nobody_was_heard(play, page, frame)
    expect(popup.locator("output")).to_be_empty()
    complaints.clear()


LEAVING = {
    "opens it there": "() => void open('/other', '_top')",
    "sends the page there": "() => { try { top.location = '/other' } catch {} }",
    "lets its window do that": "() => void open('/popup')",
}


@pytest.mark.parametrize("how", LEAVING)
def test_a_game_cannot_put_another_page_in_the_place_of_this_one(
    play: Play, game: Game, page: Page, complaints: list[str], how: str
):
    game.pages["/other"] = "<title>Other</title>"
    game.pages["/popup"] = "<title>Popup</title><script>opener.top.location = '/other'</script>"
    frame = play.open(page)
    frame.get_by_role("button").click()  # only after a click might a frame without sandbox do it
    with page.context.expect_console_message(lambda each: "Unsafe attempt" in each.text):
        frame.evaluate(LEAVING[how])
    play.ask(frame, scopes=[])
    refusals(frame, "invalid_scopes")
    assert page.url == play.address
    complaints.clear()


def test_a_page_that_frames_the_play_page_shows_nothing_of_it(
    play: Play, spy: Game, page: Page, complaints: list[str]
):
    """RFC 9700 4.16."""
    spy.pages["/framing"] = f'<title>Framing</title><iframe src="{play.address}"></iframe>'
    with page.expect_console_message(lambda each: "frame-ancestors 'none'" in each.text):
        page.goto(f"{spy.origin()}/framing")
        framed = page.frames[1]
        framed.wait_for_load_state()
        assert framed.url == "chrome-error://chromewebdata/"
    complaints.clear()


def test_a_page_that_opens_the_play_page_and_posts_to_it_gets_nothing(
    play: Play, spy: Game, page: Page
):
    page.goto(f"{spy.origin()}/")
    with page.expect_popup() as opened:
        page.evaluate("address => { window.opened = open(address) }", play.address)
    popup = opened.value
    frame = game_on(popup)
    asked = {"action": "authorize", "client_id": play.client.id, "scopes": ["userinfo"]}
    with heard(popup):
        page.evaluate("asked => window.opened.postMessage(asked, '*')", asked)
    nobody_was_heard(play, popup, frame)
    assert what_it_was_told(spy) == []


def test_a_game_that_posts_to_the_server_itself_gets_nothing(
    play: Play, page: Page, store: Storage, ada: dict, complaints: list[str]
):
    signed = page.goto(play.address) and page.locator("#game").get_attribute("data-request")
    frame = play.open(page)
    told = frame.evaluate(
        """async ([address, signed]) => {
            const body = new URLSearchParams({ request: signed, decision: "allow" });
            const options = { method: "POST", body, credentials: "include", mode: "no-cors" };
            return (await fetch(`${address}/authorize`, options)).type;
        }""",
        [play.address, signed],
    )
    assert told == "opaque"
    assert play.client.id not in store.read_user(ada["id"]).grants
    complaints.clear()


# -- heartbeats ---------------------------------------------------------------------------------


def pass_a_minute(pages: list[Page], store: Storage, user_id: int) -> None:
    """A minute passes in the browser's windows, and on the server since the last heartbeat."""
    with store.edit_user(user_id) as user:
        user.last_heartbeat -= 60_000
    with ExitStack() as waiting:
        answers = [
            waiting.enter_context(page.expect_response("**/api/users/heartbeat")) for page in pages
        ]
        pages[0].clock.run_for(60_000)  # the clock is that of the context: of all these windows
    assert [each.value.status for each in answers] == [200] * len(pages)


@pytest.mark.parametrize("windows", [1, 2])
def test_two_minutes_add_two_minutes_in_two_windows_too(
    server: RunningServer, play: Play, page: Page, store: Storage, ada: dict, windows: int
):
    with store.edit_user(ada["id"]) as user:
        user.last_heartbeat = now_ms()
    pages = [page, *(page.context.new_page() for _ in range(windows - 1))]
    for each in pages:
        hold_clock(each)
        with each.expect_response("**/api/users/heartbeat"):
            play.open(each)
    before = store.read_user(ada["id"]).play_ms
    for _ in range(2):
        pass_a_minute(pages, store, ada["id"])
    added = store.read_user(ada["id"]).play_ms - before
    assert 120_000 <= added < 180_000  # and what the test itself took
    answer = requests.get(f"{server.address}/api/users/info?id={ada['id']}", timeout=ANSWER_TIMEOUT)
    assert answer.json()["user"]["playMinutes"] == (before + added) // 60_000


def count_heartbeats(page: Page) -> list[str]:
    sent = []
    page.on("request", lambda each: sent.append(each.url) if "heartbeat" in each.url else None)
    return sent


def test_a_page_that_is_not_visible_sends_none_until_it_is(play: Play, page: Page):
    page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => self.isHidden })")
    hold_clock(page)
    play.open(page)
    sent = count_heartbeats(page)
    page.evaluate("self.isHidden = true")
    page.clock.run_for(600_000)
    assert sent == []
    page.evaluate("self.isHidden = false")
    with page.expect_response("**/api/users/heartbeat"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_signed_out_none_are_sent(play: Play, browse):
    page = browse()
    sent = count_heartbeats(page)
    hold_clock(page)
    play.open(page)
    page.clock.run_for(600_000)
    assert sent == []


# -- how the page is made -----------------------------------------------------------------------


def listen_for_keys(frame: Frame) -> None:
    frame.evaluate("() => { self.keys = ''; addEventListener('keydown', e => keys += e.key); }")


def test_full_screen_shows_the_game_alone_and_keys_go_to_it(play: Play, page: Page):
    frame = play.open(page)
    listen_for_keys(frame)
    page.get_by_role("button", name="Full screen").click()
    page.wait_for_function("() => document.fullscreenElement?.id === 'game'")
    page.keyboard.press("x")
    frame.wait_for_function("() => keys === 'x'")


def test_after_the_answer_keys_go_to_a_game_that_asked_while_it_was_loading(
    play: Play, game: Game, page: Page
):
    game.pages["/"] = GAME + '<img src="/slow" alt="">'
    page.route("**/slow", lambda _: None)  # no answer comes
    page.goto(play.address, wait_until="commit")
    frame = game_on(page)
    listen_for_keys(frame)
    play.ask(frame)
    allow(page)
    page.keyboard.press("x")
    frame.wait_for_function("() => keys === 'x'")


def test_what_the_game_itself_has_focused_keeps_the_focus(play: Play, game: Game, page: Page):
    game.pages["/"] = GAME + "<script>document.querySelector('button').focus()</script>"
    frame = play.open(page)
    page.wait_for_load_state()
    listen_for_keys(frame)
    page.keyboard.press("x")
    frame.wait_for_function("() => keys === 'x'")
    expect(frame.get_by_role("button", name="Fire")).to_be_focused()


def test_the_way_out_leads_to_the_home_page(play: Play, page: Page):
    play.open(page)
    page.get_by_role("link", name="Leave").click()
    expect(page).to_have_title("Welcome - Identity Server")


def test_without_javascript_the_page_says_that_games_need_it(
    play: Play, game: Game, browse, adas_cookies: dict
):
    page = browse(storage_state=adas_cookies, java_script_enabled=False)
    page.goto(play.address)
    # Chromium shows that where a person switches scripts off; where Playwright does, it does not.
    assert "<noscript><section><p>Games need JavaScript." in page.content()
    assert game.asked == []


def test_the_page_fits_windows_and_axe_finds_nothing_serious_in_light_and_dark(
    play: Play, browse, page: Page, complaints: list[str]
):
    guest = browse()
    play.open(guest)
    check_looks(guest)
    frame = play.open(page)
    check_looks(page)
    play.ask(frame)
    expect(dialog(page)).to_be_visible()
    expect(button(page, "Allow")).to_have_attribute("aria-disabled", "false")
    check_with_axe(page)
    for width, height in ((390, 844), (320, 480), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for name in ("Allow", "Cancel"):
            button(page, name).scroll_into_view_if_needed()
            expect(button(page, name)).to_be_in_viewport(ratio=1)
    forget_undelivered_messages(complaints)


# -- the pages around it ------------------------------------------------------------------------

WIDE = {
    "Name": "W" * 60,
    "Redirect URIs": f"https://{'w' * 60}.example/{'w' * 100}\nhttp://127.0.0.1/",
    "Game URL": f"https://{'v' * 60}.example/{'w' * 100}",
    "Description": "W" * 200,
}


@pytest.fixture
def administrators_page(server: RunningServer, store: Storage, browse) -> Iterator[Page]:
    """The browser of somebody who may register clients; they are gone afterwards."""
    name = f"root{store.user_ids()[-1]}"
    with store.edit_user(server.add_user(name)["id"]) as user:
        user.mod_level = ADMINISTRATOR
    page = browse()
    carry_session(page, server, name)
    page.goto(f"{server.address}/developer")
    yield page
    for client in map(store.read_client, store.client_ids()):
        if client.owner_id == user.id:
            store.delete_client(client.id)


def register(page: Page, **changed: str) -> None:
    for label, text in (WIDE | changed).items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_role("button", name="Register app").click()


def test_a_developers_pages_fit_windows_and_axe_finds_nothing_serious(
    administrators_page: Page, server: RunningServer
):
    page = administrators_page
    check_looks(page)
    register(page, **{"Game URL": f"{server.address}/game"})
    expect(page.get_by_text("Use another origin than this site's own.")).to_be_focused()
    check_looks(page, has_problem=True)
    expect(page.get_by_label("Description")).to_have_value(WIDE["Description"])
    page.get_by_label("Game URL").fill(WIDE["Game URL"])
    page.get_by_role("button", name="Register app").click()
    expect(page.get_by_text("This is the secret.")).to_be_visible()
    expect(page.locator(".done")).to_be_focused()
    check_looks(page)
    page.get_by_role("link", name="Build a link").click()
    check_looks(page)
    page.goto(server.address)
    expect(page.get_by_role("link", name=f"Play {WIDE['Name']}")).to_be_visible()
    check_looks(page)
    page.get_by_role("button", name=f"Unlist {WIDE['Name']}").click()
    expect(page.get_by_text("Game unlisted.")).to_be_focused()
    check_looks(page)


def test_a_client_is_managed_with_javascript_switched_off(
    administrators_page: Page, server: RunningServer, browse
):
    state = administrators_page.context.storage_state()
    page = browse(storage_state=state, java_script_enabled=False)
    page.goto(f"{server.address}/developer")
    register(page)
    page.get_by_role("button", name="Create new secret").click()
    page.get_by_text("This is the secret.").wait_for()
    page.get_by_role("link", name="Build a link").click()
    page.get_by_label("PKCE").select_option("without")
    page.get_by_role("button", name="Rebuild link").click()
    expect(page.get_by_text("response_type=code")).not_to_contain_text("code_challenge")
    page.get_by_role("link", name=WIDE["Name"]).click()
    page.get_by_role("button", name="Disable app").click()
    page.get_by_text("App disabled.").wait_for()
    page.get_by_text("Delete it").click()
    page.get_by_role("button", name="Delete this app").click()
    expect(page.get_by_text("App deleted.")).to_be_visible()
