"""The authorization flow in a real browser, from a client to this server and back."""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
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

from storage import Storage
from storage.records import ADMINISTRATOR

from .page_checks import CHROMIUM, check_page, visible_boxes
from .running import PASSWORD, RunningServer
from .shared import start_once

pytestmark = [pytest.mark.live, pytest.mark.browser]
PATIENCE = 1000 * waiting.PATIENCE  # milliseconds
WAIT = "Wait a moment, then press once"  # says hold.js to a press that it ignores
NOON = 1_800_000_000  # Unix seconds: the browser's time while a test pauses its clock


class Game(ThreadingHTTPServer):
    """A client's web site: pages that a test provides, and a record of the requested paths."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), GamePage)
        self.requested_paths: list[str] = []
        self.pages = {"/callback": "<title>Game</title><h1>Back in the game</h1>"}

        self.redirects: dict[str, str] = {}  # path to the origin that it redirects to

    def origin(self, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_port}"


class GamePage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requested_paths.append(self.path)
        path = urlsplit(self.path).path
        if redirect_origin := self.server.redirects.get(path):
            self.send_response(302)
            self.send_header("Location", redirect_origin + self.path.replace(path, "/callback"))
            self.end_headers()
            return
        page = self.server.pages.get(path)
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


@pytest.fixture(params=["127.0.0.1", "localhost"])
def host(request: pytest.FixtureRequest) -> str:
    """The client's host: a loopback address, whose port is not matched, or a name."""
    return request.param


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
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def set_session_cookie(page: Page, server: RunningServer, name: str = "ada") -> None:
    """Replace the browser's session by a new one of this player."""
    value = server.start_session(name)
    cookie = {"name": "session", "value": value, "url": server.address}
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
    server: RunningServer, game: Game, ada: dict, browse, host: str
):
    client = Client(server, f"{game.origin(host)}/callback")
    page = browse()
    page.goto(client.link())
    sign_in(page)
    expect(page.get_by_role("heading", name="Space Game wants to know who you are")).to_be_visible()
    expect(page.get_by_text("ada@example.org")).to_be_visible()
    page.get_by_role("button", name="Allow").click()
    client.check_arrival(page)


def test_cancel_returns_access_denied_to_the_client(
    server: RunningServer, game: Game, ada: dict, browse, host: str
):
    client = Client(server, f"{game.origin(host)}/callback")
    page = browse()
    set_session_cookie(page, server)
    page.goto(client.link())
    page.get_by_role("button", name="Cancel").click()
    expect(page).to_have_title("Game")
    assert callback_parameters(page) == {
        "error": "access_denied",
        "error_description": "the player refused",
        "state": "a state & more",
    }


def test_remembered_consent_redirects_from_sign_in_to_the_client(
    server: RunningServer, game: Game, ada: dict, browse, host: str
):
    """CSP form-action must allow the redirects from sign-in to the client."""
    client = Client(server, f"{game.origin(host)}/callback")
    first = browse()
    set_session_cookie(first, server)
    first.goto(client.link())
    first.get_by_role("button", name="Allow").click()
    client.check_arrival(first)
    page = browse()
    page.goto(client.link())
    sign_in(page)
    client.check_arrival(page)
    # Signed in and allowed: the request redirects at once.
    page.goto(client.link())
    client.check_arrival(page)


def test_client_may_redirect_to_another_host(server: RunningServer, game: Game, ada: dict, browse):
    """CSP form-action applies to every redirect after a form, the client's own included."""
    game.redirects["/back"] = game.origin("localhost")
    client = Client(server, f"{game.origin()}/back")
    for button in ("Cancel", "Allow"):
        page = browse()
        set_session_cookie(page, server)
        page.goto(client.link())
        page.get_by_role("button", name=button).click()
        expect(page).to_have_title("Game")
        assert page.url.startswith(f"{game.origin('localhost')}/callback?")
    page = browse()
    page.goto(client.link())
    sign_in(page)  # allowed before, so this form redirects to the client
    expect(page).to_have_title("Game")


def test_authorization_continues_after_a_wrong_password(
    game_client: Client, browse, console_errors: list[str]
):
    first = browse()
    set_session_cookie(first, game_client.server)
    first.goto(game_client.link())
    first.get_by_role("button", name="Allow").click()
    page = browse()
    page.goto(game_client.link())
    sign_in(page, password=f"{PASSWORD}, mistyped")
    sign_in(page)
    game_client.check_arrival(page)


def test_authorization_works_without_javascript(game_client: Client, browse):
    page = browse(java_script_enabled=False)
    page.goto(game_client.link())
    sign_in(page, password=f"{PASSWORD}, mistyped")
    expect(page.get_by_role("alert")).to_be_visible()
    sign_in(page)
    expect(page.get_by_role("button", name="Allow")).to_be_visible()
    wait_a_second(page)
    page.get_by_role("button", name="Allow").click()
    game_client.check_arrival(page)


def test_authorization_works_by_keyboard_alone(game_client: Client, browse):
    page = browse()
    page.goto(game_client.link())
    tab_to(page, "name")
    page.keyboard.type("ada")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Space Game wants to know who you are").wait_for()
    tab_to(page, "Allow")
    expect(page.get_by_role("button", name="Allow")).to_have_attribute("aria-disabled", "false")
    page.keyboard.press("Enter")
    game_client.check_arrival(page)


def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until the control with this id or text has the focus; check every outline."""
    page.wait_for_load_state()  # the focus outline comes from the stylesheet
    for _ in range(12):
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
    raise AssertionError(f"{wanted} was not focused after twelve tabs")


def test_first_tab_focuses_the_skip_link(server: RunningServer, browse):
    page = browse()
    page.goto(f"{server.address}/sign-in")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Name or email")).to_be_focused()


def test_wrong_password_focuses_the_error_and_keeps_the_name(
    server: RunningServer, ada: dict, browse
):
    page = browse()
    page.goto(f"{server.address}/sign-in")
    sign_in(page, password=f"{PASSWORD}, mistyped")
    problem = page.get_by_role("alert")
    expect(problem).to_have_text("Wrong name or password.")
    expect(problem).to_be_focused()
    expect(page).to_have_title("Problem: Sign in - Identity Server")
    expect(page.get_by_label("Name or email")).to_have_value("ada")
    expect(page.get_by_label("Password")).to_have_value("")
    expect(page.get_by_label("Password")).to_have_accessible_description(problem.inner_text())


def test_use_another_account_returns_to_the_same_request(
    server: RunningServer, game_client: Client, browse
):
    server.add_user("babbage")
    page = browse()
    set_session_cookie(page, server)
    page.goto(game_client.link())
    page.get_by_role("button", name="Use another account").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(page, "babbage")
    expect(page.get_by_role("main").get_by_text("babbage", exact=True)).to_be_visible()
    expect(page.get_by_text("babbage@example.org")).to_be_visible()
    page.get_by_role("button", name="Allow").click()
    game_client.check_arrival(page, "babbage")


def test_unregistered_redirect_uri_shows_an_error_page(
    server: RunningServer, game: Game, game_client: Client, browse
):
    """The client's owner sees the received URI next to the registered ones."""
    elsewhere = f"{game.origin()}/elsewhere"
    page = browse()
    answer = page.goto(game_client.link(redirect_uri=elsewhere))
    assert answer.status == 400
    expect(page.get_by_role("heading", name="Something went wrong")).to_be_visible()
    expect(page.get_by_text(elsewhere)).to_have_count(0)
    set_session_cookie(page, server)
    page.goto(game_client.link(redirect_uri=elsewhere))
    expect(page.get_by_text(elsewhere)).to_be_visible()
    expect(page.get_by_text(game_client.redirect_uri)).to_be_visible()
    assert game.requested_paths == []


# -- attacks by other sites ---------------------------------------------------------------------


def test_consent_page_cannot_be_framed(
    game: Game, game_client: Client, browse, console_errors: list[str], host: str
):
    """RFC 9700 4.16."""
    page = browse()
    set_session_cookie(page, game_client.server)
    page.goto(game_client.link())
    expect(page.get_by_role("button", name="Allow")).to_be_visible()
    game.pages["/framing"] = f'<title>Framing</title><iframe src="{game_client.link()}"></iframe>'
    with page.expect_console_message(lambda each: "frame-ancestors 'none'" in each.text):
        page.goto(f"{game.origin(host)}/framing")
        frame = page.frames[1]
        frame.wait_for_load_state()
        assert "Space Game" not in frame.content()
        assert frame.url == "chrome-error://chromewebdata/"
    assert "frame-ancestors 'none'" in console_errors.pop()


def test_cross_site_form_cannot_submit_consent(
    server: RunningServer,
    game: Game,
    game_client: Client,
    store: Storage,
    ada: dict,
    browse,
    host: str,
):
    """Not even with the signed request and from another port, which receives the session cookie."""
    page = browse()
    set_session_cookie(page, server)
    page.goto(game_client.link())
    signed_request = page.locator("input[name=request]").get_attribute("value")
    fields = {"request": signed_request, "decision": "allow"}
    game.pages["/forged"] = forged_form(f"{server.address}/oauth/authorize", fields)
    check_refused(page, f"{game.origin(host)}/forged")
    assert game_client.id not in store.users.read(ada["id"]).grants


def test_cross_site_form_cannot_sign_in(
    server: RunningServer, game: Game, ada: dict, browse, host: str
):
    fields = {"name": "ada", "password": PASSWORD}
    game.pages["/forged"] = forged_form(f"{server.address}/sign-in", fields)
    page = browse()
    check_refused(page, f"{game.origin(host)}/forged")
    assert page.context.cookies() == []


def forged_form(action: str, fields: dict[str, str]) -> str:
    inputs = [f'<input type=hidden name="{name}" value="{fields[name]}">' for name in fields]
    return f'<form method=post action="{action}">{"".join(inputs)}<button>Play</button></form>'


def check_refused(page: Page, address: str) -> None:
    page.goto(address)
    with page.expect_navigation() as navigation:
        page.get_by_role("button", name="Play").click()
    assert navigation.value.status == 403
    expect(page.get_by_text("This form came from another site")).to_be_visible()


# -- how the pages are made ---------------------------------------------------------------------

PAGES = [  # page, heading
    ("home", "Welcome to"),
    ("welcome", "Hello, "),
    ("sign-in", "Sign in"),
    ("problem", "Sign in"),
    ("consent", "wants to know who you are"),
    ("error", "Something went wrong"),
    ("nothing", "Page not found"),
]


@pytest.fixture(scope="module")
def longest_texts(server: RunningServer, ada: dict) -> tuple[str, Client]:
    """A player and a client with texts of maximum length."""
    name = "W" * 30
    email = f"{'w' * 64}@{'w' * 60}.example.org"
    server.add_user(name, email)
    host = ".".join(["w" * 60] * 3)
    return name, Client(server, f"https://{host}.example/{'w' * 200}", name="W" * 60)


@pytest.mark.parametrize(("page_name", "heading"), PAGES)
def test_page_layout_with_the_longest_texts(
    server: RunningServer, longest_texts: tuple[str, Client], browse, page_name: str, heading: str
):
    name, client = longest_texts
    page = browse()
    if page_name in ("welcome", "consent", "error"):
        set_session_cookie(page, server, "ada" if page_name == "error" else name)
    addresses = {
        "home": server.address,
        "welcome": server.address,
        "consent": client.link(),
        "error": client.link(redirect_uri=f"{client.redirect_uri}{'v' * 200}"),
        "nothing": f"{server.address}/nothing",
    }
    page.goto(addresses.get(page_name, f"{server.address}/sign-in"))
    if page_name == "problem":
        sign_in(page, name, "wrong")
        page.get_by_role("alert").wait_for()
    expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
    check_page(page, has_problem=page_name == "problem")


# -- how the pages look ---------------------------------------------------------------------------

PHONE = {"width": 375, "height": 800}  # CSS pixels


@pytest.fixture(scope="module")
def admin(server: RunningServer) -> str:
    """An administrator, whose header has the most links. It has a game, which is not listed."""
    record = server.add_user("W" * 29 + "i")
    store = server.open_storage()
    with store.users.edit(record["id"]) as user:
        user.mod_level = ADMINISTRATOR
    store.clients.register("Chess", [], record["id"], game_url="https://chess.example/play")
    return record["name"]


def test_notice_has_the_focus_without_a_ring(server: RunningServer, ada: dict, browse):
    page = browse()
    set_session_cookie(page, server)
    page.goto(f"{server.address}/account")
    page.get_by_role("button", name="Save profile").press("Enter")
    notice = page.locator("p.done:focus")
    expect(notice).to_have_css("outline-style", "none")
    page.keyboard.press("Tab")
    expect(page.locator(":focus:not(.done)")).to_have_css("outline-style", "solid")


def test_header_is_one_row_on_a_phone(
    server: RunningServer, admin: str, longest_texts: tuple[str, Client], browse
):
    for name in (None, longest_texts[0], admin):
        page = browse(viewport=PHONE)
        if name:
            set_session_cookie(page, server, name)
        page.goto(server.address)
        assert page.locator("header nav").count() == (name == admin)
        # The site's name is the administrator's choice, and may be long.
        page.locator(".site bdi").evaluate("name => (name.textContent = 'W'.repeat(30))")
        boxes = visible_boxes(page, "header a, header button")
        assert len(boxes) == {None: 1, admin: 5}.get(name, 3)
        assert len({box["y"] + box["height"] / 2 for box in boxes}) == 1, boxes
        assert all(one["right"] <= next_one["x"] for one, next_one in pairwise(boxes)), boxes
        assert boxes[-1]["right"] <= PHONE["width"]


def test_file_chooser_has_the_colours_of_the_site(server: RunningServer, ada: dict, browse):
    page = browse()
    set_session_cookie(page, server)
    page.goto(f"{server.address}/account")
    for color_scheme in ("light", "dark"):
        page.emulate_media(color_scheme=color_scheme)
        button, card = page.get_by_label("New picture").evaluate(
            """field => [
                getComputedStyle(field, "::file-selector-button"),
                getComputedStyle(field.closest("section")),
            ].map(({ backgroundColor, color }) => [backgroundColor, color])"""
        )
        assert button == card, color_scheme


def test_cards_of_the_home_page_have_one_left_edge(server: RunningServer, admin: str, browse):
    page = browse()
    set_session_cookie(page, server, admin)
    page.goto(server.address)
    for width in (1280, PHONE["width"]):
        page.set_viewport_size({"width": width, "height": 800})
        cards = visible_boxes(page, ".welcome, .games, .games li")
        assert len(cards) >= 3
        assert len({card["x"] for card in cards}) == 1, cards


def open_samples(page: Page) -> None:
    """Open every part of a page that can be opened."""
    page.locator("details").evaluate_all("found => found.forEach(each => (each.open = true))")


def test_long_code_lines_wrap(server: RunningServer, admin: str, game_client: Client, browse):
    page = browse(viewport=PHONE)
    set_session_cookie(page, server, admin)
    page.goto(f"{server.address}/developer/{game_client.id}/try")
    open_samples(page)
    widths = page.locator("pre").evaluate_all(
        "found => found.map(each => [each.scrollWidth, each.clientWidth])"
    )
    assert len(widths) == 6
    assert all(content <= box for content, box in widths), widths


def test_error_pages_have_a_decorative_picture(server: RunningServer, browse):
    page = browse()
    page.goto(f"{server.address}/nothing")
    picture = page.locator("main img[alt='']")
    assert picture.evaluate("picture => picture.decode().then(() => picture.naturalWidth)") > 0


# -- copy buttons ---------------------------------------------------------------------------------

HIDE_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: undefined });"


@pytest.mark.parametrize("is_secure", [True, False])
def test_copy_buttons_copy_exactly_the_text(
    server: RunningServer, admin: str, game_client: Client, browse, is_secure: bool
):
    """On plain http at another host than localhost, browsers have no navigator.clipboard."""
    page = browse()
    set_session_cookie(page, server, admin)
    if not is_secure:
        page.add_init_script(HIDE_CLIPBOARD)
    for path, count in (("/try", 6), ("", 1)):
        page.goto(f"{server.address}/developer/{game_client.id}{path}")
        open_samples(page)
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


def test_confirmation_of_a_copy_ends_after_two_seconds(server: RunningServer, ada: dict, browse):
    page = browse()
    pause_clock(page)
    page.goto(f"{server.address}/users/{ada['id']}")
    page.get_by_role("button", name="Copy player id").click()
    status = page.locator(".copy").get_by_role("status")
    expect(status).to_have_text("Copied")
    page.clock.run_for(2000)
    expect(status).to_have_text("")


def test_pages_have_no_copy_buttons_without_javascript(server: RunningServer, ada: dict, browse):
    page = browse(java_script_enabled=False)
    page.goto(f"{server.address}/users/{ada['id']}")
    expect(page.locator("[data-copy]")).to_have_text(str(ada["id"]))
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)


@pytest.mark.parametrize("is_copied", [True, False])
def test_refused_clipboard_copies_or_leaves_the_text_selected(
    server: RunningServer, ada: dict, browse, is_copied: bool
):
    """A browser's settings can forbid navigator.clipboard, and the older command too."""
    page = browse()
    page.add_init_script("navigator.clipboard.writeText = () => Promise.reject();")
    if not is_copied:
        page.add_init_script("document.execCommand = () => false;")
    page.goto(f"{server.address}/users/{ada['id']}")
    button = page.get_by_role("button", name="Copy player id")
    button.press("Enter")
    said = "Copied" if is_copied else "Couldn't copy. Copy the selected text yourself."
    expect(page.locator(".copy").get_by_role("status")).to_have_text(said)
    expect(button).to_be_focused()
    selected = "" if is_copied else str(ada["id"])
    assert page.evaluate("getSelection().toString()") == selected
    check_page(page)


def test_new_secret_can_be_copied(server: RunningServer, admin: str, game_client: Client, browse):
    page = browse()
    set_session_cookie(page, server, admin)
    page.goto(f"{server.address}/developer/{game_client.id}")
    wait_a_second(page)
    page.get_by_role("button", name="Create new secret").click()
    shown = page.get_by_role("group", name="This is the client secret.")
    expect(shown).to_be_focused()
    shown.get_by_role("button", name="Copy client secret").click()
    expect(shown.get_by_role("status")).to_have_text("Copied")
    page.context.grant_permissions(["clipboard-read"])
    secret = page.evaluate("navigator.clipboard.readText()")
    kept = server.open_storage().clients.read(game_client.id).secret_sha256
    assert hashlib.sha256(secret.encode()).hexdigest() == kept
    check_page(page)
    assert page.url == f"{server.address}/developer/{game_client.id}"
    page.reload()  # which posts nothing
    expect(page.get_by_role("button", name="Create new secret")).to_be_visible()
    assert server.open_storage().clients.read(game_client.id).secret_sha256 == kept


def test_copy_buttons_make_no_row_higher(server: RunningServer, ada: dict, browse):
    page = browse()
    page.goto(f"{server.address}/users/{ada['id']}")
    heights = [box["height"] for box in visible_boxes(page, "dd")]
    assert len(heights) == 3
    assert max(heights) - min(heights) < 4, heights
