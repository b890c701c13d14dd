"""A person with a real browser, on the way from a game to this server and back."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import requests
import waiting
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Playwright,
    Response,
    expect,
    sync_playwright,
)

import storage

from .looks import CHROMIUM, check_looks
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer
from .shared import start_once

pytestmark = [pytest.mark.live, pytest.mark.browser]
PATIENCE = 1000 * waiting.PATIENCE  # milliseconds
NOON = 1_800_000_000  # seconds: what the browser's clock shows where a test holds it


class Game(ThreadingHTTPServer):
    """The game's own site: what was asked of it, and the pages that a test puts there."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), GamePage)
        self.asked: list[str] = []
        self.pages = {"/callback": "<title>Game</title><h1>Back in the game</h1>"}

        self.redirects: dict[str, str] = {}  # by path, the origin that it leads on to

    def origin(self, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_port}"


class GamePage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        path = urlsplit(self.path).path
        if leads_to := self.server.redirects.get(path):
            self.send_response(302)
            self.send_header("Location", leads_to + self.path.replace(path, "/callback"))
            self.end_headers()
            return
        page = self.server.pages.get(path)
        self.send_response(404 if page is None else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write((page or "").encode())

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
def complaints() -> Iterator[list[str]]:
    """The errors and warnings on browsers' consoles; none may be left at the end."""
    complaints: list[str] = []
    yield complaints
    assert complaints == []


@pytest.fixture
def browse(chromium: Browser, complaints: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens a window of somebody new."""

    def complain(message: ConsoleMessage) -> None:
        # A page that tells of a problem has its status, and that is said here too.
        of_status = message.text.startswith("Failed to load resource: the server responded with")
        if message.type in ("error", "warning") and not of_status:
            complaints.append(message.text)

    def look_at(response: Response) -> None:
        if response.status >= 400 and not response.request.is_navigation_request():
            complaints.append(f"{response.status} {response.url}")

    contexts = []

    def browse(**options) -> Page:
        context = chromium.new_context(**options)
        context.set_default_timeout(PATIENCE)
        context.on("console", complain)
        context.on("response", look_at)
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        contexts.append(context)
        return context.new_page()

    yield browse
    for context in contexts:
        context.close()


@pytest.fixture(params=["127.0.0.1", "localhost"])
def host(request: pytest.FixtureRequest) -> str:
    """A game on a loopback address, whose port is free, and one under a name."""
    return request.param


class Client:
    """A registered client, and the link that it shows to players."""

    def __init__(self, server: RunningServer, redirect_uri: str, name: str = "Space Game") -> None:
        record = server.add_client(name, redirect_uri, owner="ada")
        self.id, self.secret = record["client_id"], record["client_secret"]
        self.redirect_uri = redirect_uri
        self.server = server

    def link(self, **changed: str) -> str:
        asked = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": self.redirect_uri,
            "scope": "email",
            "state": "a state & more",
        }
        return f"{self.server.address}/oauth/authorize?{urlencode(asked | changed)}"

    def check_arrival(self, page: Page, name: str = "ada") -> None:
        """The browser is back at the client, with a code that tells who this is."""
        expect(page).to_have_title("Game")
        assert page.url.startswith(f"{self.redirect_uri}?")
        answer = answer_in(page)
        assert answer.pop("state") == "a state & more"
        form = {"grant_type": "authorization_code", "code": answer.pop("code")}
        assert answer == {}
        token = requests.post(
            f"{self.server.address}/api/oauth/token",
            {**form, "client_id": self.id, "client_secret": self.secret},
            timeout=ANSWER_TIMEOUT,
        ).json()["access_token"]
        whois = requests.get(
            f"{self.server.address}/api/oauth/whois",
            headers={"Authorization": f"Bearer {token}"},
            timeout=ANSWER_TIMEOUT,
        )
        assert whois.json()["name"] == name


def answer_in(page: Page) -> dict[str, str]:
    """What the address of a page tells the client."""
    return {name: value for name, [value] in parse_qs(urlsplit(page.url).query).items()}


@pytest.fixture
def game_client(server: RunningServer, game: Game, ada: dict) -> Client:
    """A client that nobody has allowed anything yet."""
    return Client(server, f"{game.origin()}/callback")


def sign_in(page: Page, name: str = "ada", password: str = PASSWORD) -> None:
    page.get_by_label("Name or email").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def carry_session(page: Page, server: RunningServer, name: str = "ada") -> None:
    """From the next page on, this player is signed in; who that was before is not."""
    value = server.start_session(name)
    cookie = {"name": "session", "value": value, "url": server.address}
    page.context.add_cookies([cookie | {"httpOnly": True, "sameSite": "Lax"}])


def hold_clock(page: Page) -> None:
    """From the next page on, time stands still until `page.clock.run_for` moves it."""
    page.clock.pause_at(NOON)  # and no `install` before it, after which time would still run


# -- the way to the client ----------------------------------------------------------------------


def test_a_person_signs_in_allows_and_arrives_at_the_client_with_a_good_code(
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


def test_cancel_takes_the_person_back_without_a_code(
    server: RunningServer, game: Game, ada: dict, browse, host: str
):
    client = Client(server, f"{game.origin(host)}/callback")
    page = browse()
    carry_session(page, server)
    page.goto(client.link())
    page.get_by_role("button", name="Cancel").click()
    expect(page).to_have_title("Game")
    assert answer_in(page) == {
        "error": "access_denied",
        "error_description": "the player refused",
        "state": "a state & more",
    }


def test_remembered_consent_leads_from_sign_in_straight_to_the_client(
    server: RunningServer, game: Game, ada: dict, browse, host: str
):
    """Sign-in redirects to the grant, and that to the client: CSP form-action must allow it."""
    client = Client(server, f"{game.origin(host)}/callback")
    first = browse()
    carry_session(first, server)
    first.goto(client.link())
    first.get_by_role("button", name="Allow").click()
    client.check_arrival(first)
    page = browse()
    page.goto(client.link())
    sign_in(page)
    client.check_arrival(page)
    # Signed in and allowed: the link alone is enough.
    page.goto(client.link())
    client.check_arrival(page)


def test_a_client_may_lead_on_to_another_host_of_its_own(
    server: RunningServer, game: Game, ada: dict, browse
):
    """Browsers look at each redirect after a form, the client's own as well."""
    game.redirects["/back"] = game.origin("localhost")
    client = Client(server, f"{game.origin()}/back")
    for button in ("Cancel", "Allow"):
        page = browse()
        carry_session(page, server)
        page.goto(client.link())
        page.get_by_role("button", name=button).click()
        expect(page).to_have_title("Game")
        assert page.url.startswith(f"{game.origin('localhost')}/callback?")
    page = browse()
    page.goto(client.link())
    sign_in(page)  # allowed before: this form itself leads to the client
    expect(page).to_have_title("Game")


def test_a_mistyped_password_does_not_end_the_way_to_the_client(
    game_client: Client, browse, complaints: list[str]
):
    first = browse()
    carry_session(first, game_client.server)
    first.goto(game_client.link())
    first.get_by_role("button", name="Allow").click()
    page = browse()
    page.goto(game_client.link())
    sign_in(page, password=f"{PASSWORD}, mistyped")
    sign_in(page)
    game_client.check_arrival(page)


def test_everything_works_with_javascript_switched_off(game_client: Client, browse):
    page = browse(java_script_enabled=False)
    page.goto(game_client.link())
    sign_in(page, password=f"{PASSWORD}, mistyped")
    expect(page.get_by_role("alert")).to_be_visible()
    sign_in(page)
    page.get_by_role("button", name="Allow").click()
    game_client.check_arrival(page)


def test_everything_works_by_keyboard_alone(game_client: Client, browse):
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
    """Press Tab until the focus, always to be seen, is on the control of this id or text."""
    page.wait_for_load_state()  # what the focus looks like is in the style sheet
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
    raise AssertionError(f"twelve tabs do not lead to {wanted}")


def test_the_first_tab_offers_to_skip_to_the_content(server: RunningServer, browse):
    page = browse()
    page.goto(f"{server.address}/sign-in")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Name or email")).to_be_focused()


def test_a_wrong_password_is_told_with_focus_and_the_name_stays(
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


def test_use_another_account_signs_out_and_leads_back_to_the_same_request(
    server: RunningServer, game_client: Client, browse
):
    server.add_user("babbage")
    page = browse()
    carry_session(page, server)
    page.goto(game_client.link())
    page.get_by_role("button", name="Use another account").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(page, "babbage")
    expect(page.get_by_role("main").get_by_text("babbage", exact=True)).to_be_visible()
    expect(page.get_by_text("babbage@example.org")).to_be_visible()
    page.get_by_role("button", name="Allow").click()
    game_client.check_arrival(page, "babbage")


def test_a_link_with_another_redirect_uri_ends_at_an_error_page(
    server: RunningServer, game: Game, game_client: Client, browse
):
    """Who registered the client is shown what arrived, next to what is registered."""
    elsewhere = f"{game.origin()}/elsewhere"
    page = browse()
    answer = page.goto(game_client.link(redirect_uri=elsewhere))
    assert answer.status == 400
    expect(page.get_by_role("heading", name="Something went wrong")).to_be_visible()
    expect(page.get_by_text(elsewhere)).to_have_count(0)
    carry_session(page, server)
    page.goto(game_client.link(redirect_uri=elsewhere))
    expect(page.get_by_text(elsewhere)).to_be_visible()
    expect(page.get_by_text(game_client.redirect_uri)).to_be_visible()
    assert game.asked == []


# -- pages of others ----------------------------------------------------------------------------


def test_a_page_that_frames_the_consent_page_shows_nothing_of_it(
    game: Game, game_client: Client, browse, complaints: list[str], host: str
):
    """RFC 9700 4.16."""
    page = browse()
    carry_session(page, game_client.server)
    page.goto(game_client.link())
    expect(page.get_by_role("button", name="Allow")).to_be_visible()
    game.pages["/framing"] = f'<title>Framing</title><iframe src="{game_client.link()}"></iframe>'
    with page.expect_console_message(lambda each: "frame-ancestors 'none'" in each.text):
        page.goto(f"{game.origin(host)}/framing")
        frame = page.frames[1]
        frame.wait_for_load_state()
        assert "Space Game" not in frame.content()
        assert frame.url == "chrome-error://chromewebdata/"
    assert "frame-ancestors 'none'" in complaints.pop()


def test_a_form_on_another_site_cannot_answer_the_consent_page(
    server: RunningServer,
    game: Game,
    game_client: Client,
    store: storage.Storage,
    ada: dict,
    browse,
    host: str,
):
    """Not even with the signed request, from another port, where the session cookie travels."""
    page = browse()
    carry_session(page, server)
    page.goto(game_client.link())
    signed_request = page.locator("input[name=request]").get_attribute("value")
    fields = {"request": signed_request, "decision": "allow"}
    game.pages["/forged"] = forged_form(f"{server.address}/oauth/authorize", fields)
    assert_refused(page, f"{game.origin(host)}/forged")
    assert game_client.id not in store.read_user(ada["id"]).grants


def test_a_form_on_another_site_cannot_sign_anybody_in(
    server: RunningServer, game: Game, ada: dict, browse, host: str
):
    fields = {"name": "ada", "password": PASSWORD}
    game.pages["/forged"] = forged_form(f"{server.address}/sign-in", fields)
    page = browse()
    assert_refused(page, f"{game.origin(host)}/forged")
    assert page.context.cookies() == []


def forged_form(action: str, fields: dict[str, str]) -> str:
    inputs = [f'<input type=hidden name="{name}" value="{fields[name]}">' for name in fields]
    return f'<form method=post action="{action}">{"".join(inputs)}<button>Play</button></form>'


def assert_refused(page: Page, address: str) -> None:
    page.goto(address)
    with page.expect_navigation() as navigation:
        page.get_by_role("button", name="Play").click()
    assert navigation.value.status == 403
    expect(page.get_by_text("This form came from another site")).to_be_visible()


# -- how the pages are made ---------------------------------------------------------------------

PAGES = [  # which, and its heading
    ("home", "Welcome to"),
    ("welcome", "Hello, "),
    ("sign-in", "Sign in"),
    ("problem", "Sign in"),
    ("consent", "wants to know who you are"),
    ("error", "Something went wrong"),
    ("nothing", "Page not found"),
]


@pytest.fixture(scope="module")
def widest(server: RunningServer, ada: dict) -> tuple[str, Client]:
    """The longest name that a player can have, and a client whose parts are as long."""
    name = "W" * 30
    email = f"{'w' * 64}@{'w' * 60}.example.org"
    server.add_user(name, email)
    host = ".".join(["w" * 60] * 3)
    return name, Client(server, f"https://{host}.example/{'w' * 200}", name="W" * 60)


@pytest.mark.parametrize(("which", "heading"), PAGES)
def test_pages_look_right_with_the_longest_texts(
    server: RunningServer, widest: tuple[str, Client], browse, which: str, heading: str
):
    name, client = widest
    page = browse()
    if which in ("welcome", "consent", "error"):
        carry_session(page, server, "ada" if which == "error" else name)
    addresses = {
        "home": server.address,
        "welcome": server.address,
        "consent": client.link(),
        "error": client.link(redirect_uri=f"{client.redirect_uri}{'v' * 200}"),
        "nothing": f"{server.address}/nothing",
    }
    page.goto(addresses.get(which, f"{server.address}/sign-in"))
    if which == "problem":
        sign_in(page, name, "wrong")
        page.get_by_role("alert").wait_for()
    expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
    check_looks(page, has_problem=which == "problem")
