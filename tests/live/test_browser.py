"""The authorization flow in a real browser, from a client to this server and back."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import waiting
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Playwright,
    Response,
    expect,
    sync_playwright,
)

from model.records import ADMINISTRATOR
from storage import Storage

from .page_checks import CHROMIUM, check_page, open_details
from .running import PASSWORD, RunningServer
from .shared import start_once

pytestmark = [pytest.mark.live, pytest.mark.browser]
PATIENCE = 1000 * waiting.PATIENCE  # milliseconds
WAIT = "Wait a moment, then press once"  # says hold.js to a press that it ignores
HOSTS = ("127.0.0.1", "localhost")  # an address, whose port is not matched, and a name
NOON = 1_800_000_000  # Unix seconds: the browser's time while a test pauses its clock


class Game(ThreadingHTTPServer):
    """A client's web site: pages that a test provides, and a record of the requested paths."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), GamePage)
        self.requested_paths: list[str] = []
        self.pages = {"/callback": "<title>Game</title><h1>Back in the game</h1>"}

    def origin(self, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_port}"


class GamePage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requested_paths.append(self.path)
        page = self.server.pages.get(urlsplit(self.path).path)
        self.send_response(404 if page is None else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write((page or "").encode())

    def do_HEAD(self) -> None:  # how the play page asks whether the game answers
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def game() -> Iterator[Game]:
    with Game() as game:
        threading.Thread(target=game.serve_forever, daemon=True).start()
        yield game
        game.shutdown()


@pytest.fixture(scope="module")
def playwright(request: pytest.FixtureRequest) -> Playwright:
    expect.set_options(timeout=PATIENCE)
    return start_once(request.config, "playwright", sync_playwright)


@pytest.fixture(scope="module")
def chromium(request: pytest.FixtureRequest, playwright: Playwright) -> Browser:
    @contextlib.contextmanager
    def start() -> Iterator[Browser]:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
                *("--disable-component-update", "--disable-sync", "--no-first-run"),
            ],
        )
        yield browser
        browser.close()

    return start_once(request.config, "chromium", start)


@pytest.fixture
def console_errors() -> Iterator[list[str]]:
    """Errors and warnings from browser consoles; none may be left at the end of the test."""
    console_errors: list[str] = []
    yield console_errors
    assert console_errors == []


@pytest.fixture
def browse(chromium: Browser, console_errors: list[str]) -> Iterator[Callable[..., Page]]:
    """A function that opens a page in a new browser context."""

    def record_console_message(message: ConsoleMessage) -> None:
        # An error page's own status is logged as well.
        failed_to_load = message.text.startswith(
            "Failed to load resource: the server responded with"
        )
        if message.type in ("error", "warning") and not failed_to_load:
            console_errors.append(message.text)

    def record_failed_response(response: Response) -> None:
        if response.status >= 400 and not response.request.is_navigation_request():
            console_errors.append(f"{response.status} {response.url}")

    contexts = []

    def browse(**options) -> Page:
        context = chromium.new_context(**options)
        context.set_default_timeout(PATIENCE)
        context.on("console", record_console_message)
        context.on("response", record_failed_response)
        context.on("weberror", lambda error: console_errors.append(str(error.error)))
        contexts.append(context)
        return context.new_page()

    yield browse
    for context in contexts:
        context.close()


class Client:
    """A registered client and its authorization request."""

    def __init__(self, server: RunningServer, redirect_uri: str, name: str = "Space Game") -> None:
        record = server.add_client(name, redirect_uri, owner="ada")
        self.id, self.secret = record["client_id"], record["client_secret"]
        self.redirect_uri = redirect_uri
        self.server = server

    def link(self, **changed: str) -> str:
        query = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": self.redirect_uri,
            "scope": "email",
            "state": "a state & more",
        }
        return f"{self.server.address}/oauth/authorize?{urlencode(query | changed)}"

    def check_arrival(self, page: Page, name: str = "ada") -> None:
        """Check that the browser is at the redirect URI with a code of this player."""
        expect(page).to_have_title("Game")
        assert page.url.startswith(f"{self.redirect_uri}?")
        answer = callback_parameters(page)
        assert answer.pop("state") == "a state & more"
        code = answer.pop("code")
        assert answer == {}
        token = self.server.exchange_code(code, self.id, self.secret).json()["access_token"]
        assert self.server.whois(token).json()["name"] == name


def callback_parameters(page: Page) -> dict[str, str]:
    """Return the query parameters of the page's address."""
    return {name: value for name, [value] in parse_qs(urlsplit(page.url).query).items()}


@pytest.fixture
def game_client(server: RunningServer, game: Game, ada: dict) -> Client:
    """A client without consents."""
    return Client(server, f"{game.origin()}/callback")


def sign_in(page: Page, name: str = "ada", password: str = PASSWORD) -> None:
    page.get_by_label("Name or email").fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()


def set_session_cookie(page: Page, server: RunningServer, name: str = "ada") -> None:
    """Replace the browser's session by a new one of this player."""
    value = server.start_session(name)
    cookie = {"name": "identity_session", "value": value, "url": server.address}
    page.context.add_cookies([cookie | {"httpOnly": True, "sameSite": "Lax"}])


def pause_clock(page: Page) -> None:
    """Pause the clock from the next page on; `page.clock.run_for` advances it."""
    page.clock.pause_at(NOON)  # without `install`, after which the clock would keep running


def wait_a_second(page: Page) -> None:
    """Let a second pass on the server, before which presses do not count there.

    A page with scripts holds its buttons back as long, unless its clock is paused.
    """
    page.wait_for_timeout(1100)


def decide(page: Page, button: str = "Allow") -> None:
    """Press a button of the consent page when it counts; a popup may close at once."""
    page.get_by_role("button", name=button).wait_for()
    wait_a_second(page)
    press_to_close(page, button)


def press_to_close(page: Page, button: str) -> None:
    """Press a button that may close its window before Playwright knows that it was pressed."""
    try:
        page.get_by_role("button", name=button).click(no_wait_after=True)
    except Error as error:
        if "has been closed" not in error.message:
            raise


# -- the authorization flow ---------------------------------------------------------------------


def test_sign_in_and_allow_return_a_code_to_the_client(
    server: RunningServer, game: Game, ada: dict, browse
):
    """CSP form-action must allow the redirects from consent and sign-in to the client."""
    page = browse()
    for host in HOSTS:
        client = Client(server, f"{game.origin(host)}/callback")
        page.context.clear_cookies()
        page.goto(client.link())
        sign_in(page)
        expect(page.get_by_role("heading", name="Space Game wants to know who")).to_be_visible()
        expect(page.get_by_text("ada@example.org")).to_be_visible()
        page.get_by_role("button", name="Allow").click()
        client.check_arrival(page)
        # Consent is remembered: the request redirects at once, or after sign-in.
        page.goto(client.link())
        client.check_arrival(page)
        page.context.clear_cookies()
        page.goto(client.link())
        sign_in(page, password=f"{PASSWORD}, mistyped")
        sign_in(page)
        client.check_arrival(page)


def test_authorization_works_by_keyboard_alone(game_client: Client, browse):
    page = browse()
    page.goto(game_client.link())
    expect(page.get_by_label("Name or email")).to_be_focused()
    page.keyboard.type("ada")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Space Game wants to know who you are").wait_for()
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    tab_to(page, "Allow")
    expect(page.get_by_role("button", name="Allow")).to_have_attribute("aria-disabled", "false")
    page.keyboard.press("Enter")
    game_client.check_arrival(page)


def tab_to(page: Page, wanted: str, presses: int = 12) -> None:
    """Press Tab until the control with this id or text has the focus; check every outline."""
    page.wait_for_load_state()  # the focus outline comes from the stylesheet
    for _ in range(presses):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            """() => {
                const focused = document.activeElement, style = getComputedStyle(focused);
                return [focused.id || focused.innerText, style.outlineStyle, style.outlineWidth];
            }"""
        )
        assert focus[1:] == ["solid", "3px"], focus
        if focus[0] == wanted:
            return
    raise AssertionError(f"{wanted} was not focused after {presses} tabs")


# -- attacks by other sites ---------------------------------------------------------------------


def test_no_page_with_a_code_is_framed(
    game: Game, game_client: Client, store: Storage, page: Page, console_errors: list[str]
):
    """RFC 9700 4.16: the consent page, the page that posts a code, the play page.

    A frame of the client's own page gets nothing either.
    """
    with store.clients.edit(game_client.id) as client:
        client.game_url = f"{game.origin('localhost')}/"

    def check_frame_stays_empty(address: str) -> None:
        game.pages["/framing"] = f'<title>Framing</title><iframe src="{address}"></iframe>'
        with page.expect_console_message(lambda each: "frame-ancestors 'none'" in each.text):
            page.goto(f"{game.origin()}/framing")
            frame = page.frames[1]
            frame.wait_for_load_state()
            assert frame.url == "chrome-error://chromewebdata/"
            assert "Space Game" not in frame.content()
        assert "frame-ancestors 'none'" in console_errors.pop()

    check_frame_stays_empty(game_client.link())
    page.goto(game_client.link())
    decide(page)
    game_client.check_arrival(page)  # the consent is remembered from now on
    check_frame_stays_empty(game_client.link(response_mode="web_message"))
    check_frame_stays_empty(f"{game_client.server.address}/play/{game_client.id}")


def test_cross_site_forms_cannot_sign_in_or_submit_consent(
    server: RunningServer, game: Game, game_client: Client, store: Storage, ada: dict, browse
):
    """Not even with the signed request and from another port, which receives the session cookie."""
    page = browse()
    for path, fields in (
        ("sign-in", {"name": "ada", "password": PASSWORD}),
        ("oauth/authorize", {"decision": "allow"}),
    ):
        if path != "sign-in":
            assert page.context.cookies() == []
            set_session_cookie(page, server)
            page.goto(game_client.link())
            fields["request"] = page.locator("input[name=request]").get_attribute("value")
        game.pages["/forged"] = forged_form(f"{server.address}/{path}", fields)
        for host in HOSTS:
            check_refused(page, f"{game.origin(host)}/forged")
    assert game_client.id not in store.users.read(ada["id"]).grants


def forged_form(action: str, fields: dict[str, str]) -> str:
    inputs = [f'<input type=hidden name="{name}" value="{fields[name]}">' for name in fields]
    return f'<form method=post action="{action}">{"".join(inputs)}<button>Play</button></form>'


def check_refused(page: Page, address: str) -> None:
    page.goto(address)
    with page.expect_navigation() as navigation:
        page.get_by_role("button", name="Play").click()
    assert navigation.value.status == 403
    expect(page.get_by_text("This form came from another site")).to_be_visible()


# -- copy buttons ---------------------------------------------------------------------------------

PHONE = {"width": 375, "height": 800}  # CSS pixels


def test_copy_buttons_copy_exactly_the_text(
    server: RunningServer, store: Storage, ada: dict, game_client: Client, browse_as
):
    """On plain http at another host than localhost, browsers have no navigator.clipboard."""
    with store.users.edit(ada["id"]) as user:
        user.mod_level = ADMINISTRATOR
    page = browse_as("ada", viewport=PHONE)
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined });")
    for path, count in (("/try", 6), ("", 4)):
        page.goto(f"{server.address}/developer/{game_client.id}{path}")
        open_details(page)
        widths = page.locator("pre").evaluate_all(
            "found => found.map(each => [each.scrollWidth, each.clientWidth])"
        )
        assert all(content <= box for content, box in widths), widths  # long lines wrap
        page.evaluate("document.body.append(document.createElement('textarea'))")
        page.evaluate("document.body.lastChild.ariaLabel = 'Pasted'")
        pasted, sources = page.locator("body > textarea"), page.locator("[data-copy]")
        expect(sources).to_have_count(count)
        for source in sources.all():
            name, text = source.get_attribute("data-copy"), source.text_content()
            page.get_by_role("button", name=name, exact=True).press("Enter")
            expect(source.locator("+ .copy").get_by_role("status")).to_have_text("Copied")
            pasted.fill("")
            pasted.press("Control+v")
            expect(pasted).to_have_value(text)
    check_page(page)


def test_refused_clipboard_leaves_the_text_selected(server: RunningServer, ada: dict, browse):
    """A browser's settings can forbid navigator.clipboard, and the older command too."""
    page = browse()
    page.add_init_script("navigator.clipboard.writeText = () => Promise.reject();")
    page.add_init_script("document.execCommand = () => false;")
    page.goto(f"{server.address}/users/{ada['id']}")
    button = page.get_by_role("button", name="Copy player id")
    button.press("Enter")
    expect(page.locator(".copy").get_by_role("status")).to_have_text(
        "Couldn't copy. Copy the selected text yourself."
    )
    expect(button).to_be_focused()
    assert page.evaluate("getSelection().toString()") == str(ada["id"])
    check_page(page)
