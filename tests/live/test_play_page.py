"""The play page in a real browser, with honest and hostile games.

The messages of its script are tested in Node, by scripts/play.test.mjs.
"""

import itertools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import requests
from documents import read_blocks
from playwright.sync_api import Error, Frame, Page, expect
from waiting import wait_until

from model.records import Client
from storage import Storage

from .page_checks import check_focus_without_ring, check_with_axe, drop_undelivered_messages
from .running import RunningServer
from .test_browser import WAIT, Game, pause_clock, sign_in

pytestmark = [pytest.mark.live, pytest.mark.browser]
GAME = """<!doctype html><title>Game</title><h1>Space</h1>
<button>Fire</button><output></output>
<script>
  const told = document.querySelector("output");
  addEventListener("message", ({ data, origin }) => {
    told.append(`${origin} ${JSON.stringify(data)}\\n`);
  });
  const ask = (message) => top.postMessage({ action: "authorize", ...message }, "*");
</script>"""
# A page of another site, which reports to its server every message that it receives.
SPY = """<!doctype html><title>Spy</title><h1>Spy</h1><script>
  addEventListener("message", ({ data }) => fetch("/told?" + JSON.stringify(data)));
</script>"""


class Play:
    """A client with a game, and its play page."""

    def __init__(self, server: RunningServer, client: Client, secret: str) -> None:
        self.server, self.client, self.secret = server, client, secret
        self.address = f"{server.address}/play/{client.id}"

    def open(self, page: Page) -> Frame:
        """Open the play page, and return the game's frame when it has loaded."""
        page.goto(self.address)
        return game_on(page)

    def ask(self, frame: Frame, **changed) -> None:
        """Post the game's request to the top window."""
        message = {"client_id": self.client.id, "scopes": ["userinfo"]} | changed
        frame.evaluate("message => ask(message)", message)

    def check_code(self, frame: Frame, name: str = "ada") -> None:
        """Check that the game received one message, with a code of this player."""
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
        answer = self.server.whois(token)
        assert (answer.json()["name"], "email" in answer.json()) == (name, False)

    def exchange(self, code: str, **more: str) -> requests.Response:
        return self.server.exchange_code(code, self.client.id, self.secret, **more)


def game_on(page: Page) -> Frame:
    """Return the game's frame on this play page when the game has loaded."""
    frame = page.locator("#game").element_handle().content_frame()
    frame.get_by_role("heading", name="Space").wait_for()
    return frame


def check_refusals(frame: Frame, *messages: str) -> None:
    """Check that the game received exactly these refusals, in this order."""
    line = '{{"type":"authorized","error":true,"message":"{}"}}\n'
    origin = frame.evaluate("location.ancestorOrigins[0]")
    expected = "".join(f"{origin} {line.format(message)}" for message in messages)
    expect(frame.locator("output")).to_have_text(expected.strip())


@pytest.fixture
def add_game(server: RunningServer, store: Storage) -> Iterator[Callable[..., Play]]:
    """A function that registers a game without consents."""
    added = []

    def add_game(game: Game, host: str = "localhost") -> Play:
        game.pages["/"] = GAME
        client, secret = store.clients.register(
            "Space Game", [], None, game_url=f"{game.origin(host)}/"
        )
        added.append(client.id)
        return Play(server, client, secret)

    yield add_game
    for client_id in added:
        store.clients.delete(client_id)


@pytest.fixture
def play(add_game, game: Game, ada: dict) -> Play:
    """A game on another site than the server's."""
    return add_game(game)


@pytest.fixture
def spy() -> Iterator[Game]:
    """A hostile site."""
    with Game() as spy:
        spy.pages |= {"/": SPY, "/told": ""}
        threading.Thread(target=spy.serve_forever, daemon=True).start()
        yield spy
        spy.shutdown()


def dialog(page: Page):
    return page.get_by_role("dialog", name="Space Game wants to know who you are")


def button(page: Page, name: str):
    return dialog(page).get_by_role("button", name=name)


# -- consent ------------------------------------------------------------------------------------


def test_consent_is_asked_once_and_the_game_gets_a_code(add_game, game: Game, page: Page):
    for host in ("127.0.0.1", "localhost"):
        play = add_game(game, host)
        frame = play.open(page)
        frame.get_by_role("button").click()  # moves the focus into the game
        play.ask(frame)
        expect(dialog(page).get_by_role("heading")).to_be_focused()
        expect(dialog(page)).to_contain_text(f"{host}:{game.server_port}")
        expect(dialog(page)).to_contain_text("Registered by the administrators of")
        button(page, "Allow").click()
        play.check_code(frame)
        expect(dialog(page)).to_be_hidden()
        # The consent is remembered on the next visit, and in another window.
        for again in (page, page.context.new_page()):
            frame = play.open(again)
            play.ask(frame)
            play.check_code(frame)
            expect(dialog(again)).to_be_hidden()


def test_escape_is_access_denied(play: Play, page: Page):
    frame = play.open(page)
    play.ask(frame)
    expect(dialog(page)).to_be_visible()
    page.keyboard.press("Escape")
    check_refusals(frame, "access_denied")


def test_request_during_load_is_received(play: Play, game: Game, page: Page):
    question = f'ask({{ client_id: "{play.client.id}", scopes: ["userinfo"] }})'
    script = GAME.replace("</script>", f"{question}</script>")
    game.pages["/"] = f'{script}<img src="/slow" alt="">'
    page.route("**/slow", lambda _: None)  # never answered
    page.goto(play.address, wait_until="commit")
    frame = game_on(page)
    record_keys(frame)
    allow(page)
    page.keyboard.press("x")
    frame.wait_for_function("() => keys === 'x'")


# -- Allow, in its first second -----------------------------------------------------------------


@pytest.fixture
def requesting_frame(play: Play, page: Page) -> Frame:
    """The game's frame right after its request, five seconds into a game with a paused clock."""
    pause_clock(page)
    frame = play.open(page)
    page.clock.run_for(5000)
    play.ask(frame)
    expect(dialog(page)).to_be_visible()
    return frame


def test_allow_ignores_clicks_for_its_first_second(requesting_frame: Frame, play: Play, page: Page):
    """RFC 9700 4.16. A press in that time is followed by half a second more."""
    allow = button(page, "Allow")
    for milliseconds in (0, 499, 500):
        page.clock.run_for(milliseconds)
        expect(allow).to_have_attribute("aria-disabled", "true")
        allow.click(click_count=2, force=True)
        expect(dialog(page)).to_be_visible()
    page.clock.run_for(499)
    expect(allow).to_have_attribute("aria-disabled", "true")
    page.clock.run_for(1)
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.click()
    play.check_code(requesting_frame)


def test_fast_clicks_into_the_game_never_press_allow(play: Play, game: Game, page: Page):
    """RFC 9700 4.16: the game asks while its player clicks where Allow will be."""
    game.pages["/"] = GAME.replace(
        "</h1>", "</h1><style>button { height: 100vh; width: 100vw }</style>"
    )
    pause_clock(page)
    frame = play.open(page)
    play.ask(frame)
    box = button(page, "Allow").bounding_box()
    page.reload()
    frame = game_on(page)
    frame.evaluate(
        "id => { onclick = () => ask({ client_id: id, scopes: ['userinfo'] }) }", play.client.id
    )
    ignored = page.get_by_text(WAIT)

    def click() -> None:
        page.clock.run_for(200)
        page.mouse.click(box["x"] + 5, box["y"] + 5)

    # The game, perhaps in a process of its own, gets clicks until that learns that it is covered.
    wait_until(ignored.is_visible, meanwhile=click)
    for _ in range(30):
        click()
    expect(dialog(page)).to_be_visible()
    expect(button(page, "Allow")).to_have_attribute("aria-disabled", "true")


def test_press_begun_in_the_first_second_is_ignored(requesting_frame: Frame, page: Page):
    box = button(page, "Allow").bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    page.clock.run_for(1500)
    page.mouse.up()
    expect(dialog(page)).to_be_visible()
    page.keyboard.press("Tab")
    for key in ("Enter", "Space"):
        button(page, "Allow").focus()
        page.evaluate("dispatchEvent(new Event('focus'))")
        page.keyboard.down(key)
        page.clock.run_for(1500)
        page.keyboard.down(key)  # a held key repeats
        page.keyboard.up(key)
        expect(dialog(page)).to_be_visible()


def test_dialog_ends_full_screen(play: Play, page: Page):
    frame = play.open(page)
    record_keys(frame)
    page.get_by_role("button", name="Full screen").click()
    page.wait_for_function("() => document.fullscreenElement?.id === 'game'")
    page.keyboard.press("x")
    frame.wait_for_function("() => keys === 'x'")
    play.ask(frame)
    expect(dialog(page)).to_be_visible()
    page.wait_for_function("() => document.fullscreenElement === null")


def test_full_screen_during_the_dialog_is_ended(play: Play, page: Page):
    """It would cover the dialog, and clicks would reach it."""
    pause_clock(page)
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
    frame.get_by_role("button").click()  # full screen needs a user gesture of the last five seconds
    play.ask(frame)
    allow = button(page, "Allow")
    expect(allow).to_be_visible()
    page.clock.run_for(1001)
    expect(allow).to_have_attribute("aria-disabled", "false")
    frame.evaluate("() => void document.documentElement.requestFullscreen()")
    page.wait_for_function("() => window.seen.length === 2")
    assert page.evaluate("window.seen") == [[True, "hidden"], [False, "visible"]]
    expect(allow).to_have_attribute("aria-disabled", "true")


def test_game_gets_no_input_while_the_dialog_is_open(play: Play, page: Page):
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
    # The game may run in a process of its own, which learns with a delay that it is covered. What
    # matters is the time after the first second, when Allow is enabled.
    expect(button(page, "Allow")).to_have_attribute("aria-disabled", "false")
    # Clicks go to the painted element: the dialog, once the page receives mouse moves.
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


# -- hostile games and pages --------------------------------------------------------------------


def allow(page: Page) -> None:
    """Press Allow, and wait until the page has received a code."""
    expect(button(page, "Allow")).to_have_attribute("aria-disabled", "false")
    with page.expect_response("**/authorize") as answered:
        button(page, "Allow").click()
    assert answered.value.json()["error"] is False


def navigate(frame: Frame, address: str) -> None:
    """Navigate the game's frame to another page."""
    # The frame may navigate before `evaluate` returns.
    with suppress(Error):
        frame.evaluate("address => location.replace(address)", address)


def test_frame_navigated_before_the_answer_gets_no_code(
    play: Play, spy: Game, page: Page, console_errors: list[str]
):
    """RFC 9700 4.17.2."""
    frame = play.open(page)
    play.ask(frame)
    with page.expect_console_message(lambda each: "frame-src" in each.text):
        navigate(frame, f"{spy.origin()}/")
    with page.expect_console_message(lambda each: "does not match the recipient" in each.text):
        allow(page)
    assert spy.requested_paths == []
    console_errors.clear()


def test_navigated_frame_gets_no_code_without_frame_src(
    play: Play, spy: Game, browse_as, ada: dict, console_errors: list[str]
):
    """Without frame-src, the target origin of the message keeps it from other pages.

    RFC 9700 4.17.2.
    """
    page = browse_as("ada", bypass_csp=True)
    frame = play.open(page)
    play.ask(frame)
    navigate(frame, spy.origin())
    frame.get_by_role("heading", name="Spy").wait_for()
    with page.expect_console_message(lambda each: "does not match the recipient" in each.text):
        allow(page)
    # Negative control: a message to any origin arrives.
    with page.expect_response("**/told?*"):
        page.evaluate("document.getElementById('game').contentWindow.postMessage('hello', '*')")
    assert [each for each in spy.requested_paths if "told" in each] == ["/told?%22hello%22"]
    console_errors.clear()


def test_game_opens_profiles_in_a_window(
    play: Play, page: Page, ada: dict, console_errors: list[str]
):
    """Such a window is sandboxed: in it browsers refuse a page that parts from its opener."""
    frame = play.open(page)
    with page.expect_popup() as opened:
        frame.evaluate("address => void open(address)", f"{play.server.address}/users/{ada['id']}")
    expect(opened.value.get_by_role("heading", name="ada")).to_be_visible()
    console_errors.clear()  # a warning of the sandbox


NAVIGATIONS = {
    "opens it there": "() => void open('/other', '_top')",
    "sends the page there": "() => { try { top.location = '/other' } catch {} }",
    "lets its window do that": "() => void open('/popup')",
}


def test_game_cannot_navigate_the_top_window(
    play: Play, game: Game, page: Page, console_errors: list[str], subtests
):
    game.pages["/other"] = "<title>Other</title>"
    game.pages["/popup"] = "<title>Popup</title><script>opener.top.location = '/other'</script>"
    frame = play.open(page)
    for way, script in NAVIGATIONS.items():
        with subtests.test(way):
            frame.get_by_role("button").click()  # some frames may do this after a user gesture
            with page.context.expect_console_message(lambda each: "Unsafe attempt" in each.text):
                frame.evaluate(script)
    play.ask(frame, scopes=[])
    check_refusals(frame, "invalid_scopes")
    assert page.url == play.address
    console_errors.clear()


# -- signing in beside the game -----------------------------------------------------------------

SIGNED_IN = '{"type":"signed_in"}'


@pytest.fixture
def guest(browse) -> Page:
    """A browser in which nobody is signed in."""
    return browse()


def open_beside(page: Page) -> Page:
    """Press "Sign in" on the play page; return the window that opens."""
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Sign in").click()
    return opened.value


def check_window(window: Page, heading: str) -> None:
    """Check that a page in the window names the game."""
    expect(window.get_by_role("heading", level=1)).to_have_text(heading)
    expect(window.get_by_text("Your game goes on.")).to_be_visible()
    expect(window.locator(".game-name .name")).to_have_text("Space Game")
    window.wait_for_load_state()  # its pictures too
    assert window.locator(".cover").evaluate("each => each.naturalWidth") > 0


def check_signed_in(page: Page, name: str = "ada") -> None:
    expect(page.locator("#me")).to_have_text(name)
    expect(page.get_by_role("link", name="Sign in")).to_be_hidden()


def test_guest_signs_in_beside_the_game_and_keeps_the_run(play: Play, guest: Page):
    frame = play.open(guest)
    frame.evaluate("() => { self.run = 'the third level' }")
    play.ask(frame)
    check_refusals(frame, "no_account")
    frame.locator("output").evaluate("told => { told.textContent = '' }")
    window = open_beside(guest)
    check_window(window, "Sign in")
    with window.expect_event("close"), guest.expect_response("**/api/users/heartbeat") as counted:
        sign_in(window)
    assert counted.value.request.post_data == f"client_id={play.client.id}"
    check_signed_in(guest)
    told = frame.locator("output")
    expect(told).to_have_text(f"{play.server.address} {SIGNED_IN}")
    told.evaluate("told => { told.textContent = '' }")
    record_keys(frame)
    guest.keyboard.press("x")
    frame.wait_for_function("() => keys === 'x'")
    play.ask(frame)
    expect(dialog(guest).get_by_role("heading")).to_be_focused()
    expect(button(guest, "Allow")).to_have_attribute("aria-disabled", "true")
    allow(guest)
    play.check_code(frame)
    assert (frame.evaluate("self.run"), guest.url) == ("the third level", play.address)


def test_game_of_the_documentation_asks_who_plays(play: Play, game: Game, guest: Page):
    """First as a guest, and again when the player has signed in beside the game."""
    documented = read_blocks("docs/games/browser.md")
    game.pages["/"] = f"""<!doctype html><title>Game</title><h1>Space</h1><output></output><script>
      const CLIENT_ID = "{play.client.id}";
      const tell = (text) => {{ document.querySelector("output").append(`${{text}} `); }};
      [self.showProblem, self.sendToMyServer] = [tell, tell];
      {documented["ask"].replace("https://id.example.org", play.server.address)}
      {documented["signed_in"]}
      askWhoPlays();</script>"""
    told = play.open(guest).locator("output")
    expect(told).to_have_text("no_account")
    sign_in(open_beside(guest))
    allow(guest)
    expect(told).to_have_text(re.compile("^no_account [\\w-]{43} $"))
    assert play.exchange(told.inner_text().split()[1]).status_code == 200


def test_without_a_window_the_sign_in_leads_back_to_the_game(play: Play, guest: Page):
    guest.add_init_script("self.open = () => null")
    play.open(guest)
    guest.get_by_role("link", name="Sign in").click()
    expect(guest).to_have_url(f"{play.server.address}/sign-in?next=/play/{play.client.id}")
    expect(guest.get_by_text("Your game goes on.")).to_be_hidden()
    sign_in(guest)
    guest.wait_for_url(play.address)
    game_on(guest)
    check_signed_in(guest)


def test_signed_in_page_without_an_opener_leads_to_the_game(play: Play, guest: Page):
    guest.goto(f"{play.address}/signed-in")
    check_window(guest, "Sign in")
    sign_in(guest)
    check_window(guest, "You are signed in")
    guest.get_by_role("link", name="Play Space Game").click()
    game_on(guest)
    check_signed_in(guest)


def test_signed_in_page_tells_another_site_nothing(
    play: Play, spy: Game, page: Page, console_errors: list[str]
):
    """RFC 9700 4.17.2. Nor does it close: a guest's page at that address stays open."""
    page.goto(f"{spy.origin()}/")
    with page.context.expect_console_message(lambda each: "does not match the recip" in each.text):
        with page.expect_popup() as opened:
            page.evaluate("address => void open(address)", f"{play.address}/signed-in")
        opened.value.wait_for_load_state()
    expect(opened.value.get_by_role("heading", name="You are signed in")).to_be_visible()
    assert [each for each in spy.requested_paths if "told" in each] == []
    console_errors.clear()


def test_game_does_not_find_the_window_by_a_name(
    play: Play, game: Game, guest: Page, console_errors: list[str]
):
    """The names that the page or the game could have given it lead to windows of the game."""
    game.pages["/other"] = "<title>Other</title><h1>Other</h1>"
    frame = play.open(guest)
    window = open_beside(guest)
    window.get_by_role("heading", name="Sign in").wait_for()
    address = window.url
    assert window.evaluate("self.name") == ""
    for name in ("sign-in", "signed_in", "beside", "popup"):
        with guest.expect_popup() as opened:
            frame.evaluate("name => void open('/other', name)", name)
        opened.value.get_by_role("heading", name="Other").wait_for()
        opened.value.close()
    assert (window.url, window.is_closed()) == (address, False)
    console_errors.clear()


# -- games that do not answer -------------------------------------------------------------------


def test_report_of_a_silent_game_stands_above_it(add_game, page: Page):
    pause_clock(page)
    with Game() as game:  # accepts connections, and answers none
        page.goto(add_game(game).address, wait_until="commit")
        page.locator("#game").wait_for()
        page.clock.run_for(8000)
        status = page.get_by_role("status")
        expect(status).to_contain_text("This game isn't answering.")
        expect(status.get_by_role("link", name="leave it")).to_be_visible()
        above, frame = status.bounding_box(), page.locator("#game").bounding_box()
        assert 0 < above["height"] <= frame["y"] - above["y"]
        page.close()  # before the game, whose end would be an error of the page


# -- layout and accessibility -------------------------------------------------------------------


def record_keys(frame: Frame) -> None:
    frame.evaluate("() => { self.keys = ''; addEventListener('keydown', e => keys += e.key); }")


def test_loaded_game_has_the_focus_and_keeps_its_own(play: Play, game: Game, page: Page):
    for script in ("", "<script>document.querySelector('button').focus()</script>"):
        game.pages["/"] = GAME + script
        frame = play.open(page)
        page.wait_for_load_state()
        record_keys(frame)
        page.keyboard.press("x")
        frame.wait_for_function("() => keys === 'x'")
    expect(frame.get_by_role("button", name="Fire")).to_be_focused()


def test_play_page_without_javascript_says_so(play: Play, game: Game, browse_as, ada: dict):
    page = browse_as("ada", java_script_enabled=False)
    page.goto(play.address)
    # Chromium renders <noscript> if the user disables scripts, but not if Playwright does.
    assert "<noscript><section><p>Games need JavaScript." in page.content()
    assert game.requested_paths == []


def test_dialog_layout_and_accessibility(play: Play, page: Page, console_errors: list[str]):
    play.ask(play.open(page))
    expect(button(page, "Allow")).to_have_attribute("aria-disabled", "false")
    check_focus_without_ring(page)
    check_with_axe(page)
    for width, height in ((390, 844), (320, 480), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        title = page.get_by_role("heading", level=1).bounding_box()
        assert title["x"] >= 0 and 80 < title["width"] < width
        if width == 1280:
            assert title["x"] + title["width"] / 2 == pytest.approx(width / 2, abs=1)
        for name in ("Allow", "Cancel"):
            button(page, name).scroll_into_view_if_needed()
            expect(button(page, name)).to_be_in_viewport(ratio=1)
    drop_undelivered_messages(console_errors)
