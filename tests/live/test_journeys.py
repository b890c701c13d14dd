"""The first ten minutes of a newcomer, and a month of an administrator who has no shell."""

import io
import re

import pytest
from conftest import PASSWORD
from PIL import Image
from playwright.sync_api import Page, expect
from test_chat import Chat
from waiting import wait_until

from storage import Storage

from .running import RunningServer, running_server
from .test_browser import Game, sign_in, wait_a_second
from .test_play_page import GAME, game_on

pytestmark = [pytest.mark.live, pytest.mark.browser]
NEW_PASSWORD = "another three words"


@pytest.fixture
def new_server(backend, tmp_path):
    """A server on each backend, whose administrator has yet to come."""
    settings = {"STORAGE": backend.setting(str(tmp_path)), "WEBHOOK_PRIVATE": "on"}
    with running_server(CLIENT_REGISTRATION="members", **settings) as server:
        yield server


@pytest.fixture
def chat():
    chat = Chat()
    yield chat
    chat.close()


def press(page: Page, name: str) -> None:
    """Press a button once the page accepts it."""
    wait_a_second(page)
    page.get_by_role("button", name=name, exact=True).first.click()


def expect_notice(page: Page, words: str) -> None:
    """Wait until the page says what was done: only then is it done for other browsers."""
    expect(page.get_by_role("status").get_by_text(words)).to_be_visible()


def create_account(page: Page, address: str, name: str) -> None:
    page.goto(address)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Welcome")


def shown_once(page: Page) -> str:
    """Return the link or the key that a page shows once."""
    return page.locator(".done code").inner_text()


def go_to(page: Page, tab: str) -> None:
    """Open a tab of the administrators' pages."""
    page.get_by_role("link", name=re.compile("^Admin")).click()
    page.get_by_role("navigation", name="Admin").get_by_role("link", name=tab).click()


@pytest.mark.parametrize(
    "backend",
    ["flat files", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.slow])],
    indirect=True,
)
def test_administrator_needs_no_shell_for_a_month(new_server: RunningServer, browse, chat):
    boss, friend, other, guest = (browse() for _ in range(4))
    [link] = re.findall(r"http\S+/sign-up\?invite=\S+", new_server.access_log.read_text())
    create_account(boss, link, "Boss")

    # An invitation for two, and who came.
    go_to(boss, "Invitations")
    boss.get_by_label("For whom").fill("Discord channel")
    boss.get_by_label("For how many").fill("2")
    boss.get_by_label("With the flair").fill("first ten")
    press(boss, "Create invitation")
    invitation = shown_once(boss)
    create_account(friend, invitation, "Emi")
    create_account(other, invitation, "Ivo")
    go_to(boss, "Invitations")
    expect(boss.get_by_text("Discord channel")).to_be_visible()
    expect(boss.get_by_text("Used by Emi and Ivo.")).to_be_visible()
    guest.goto(f"{new_server.address}/users/2")
    expect(guest.get_by_text("first ten")).to_be_visible()

    # The chat is told of what comes.
    go_to(boss, "Chat")
    boss.get_by_label("Address").fill(f"http://127.0.0.1:{chat.port}/hook")
    boss.get_by_label("Reports about players").check()
    press(boss, "Save")
    expect_notice(boss, "Saved.")

    # A report, and a suspension with an end that its player reads.
    friend.goto(f"{new_server.address}/users/3/report")
    friend.get_by_label("Spam").check()
    press(friend, "Send report")
    wait_until(lambda: chat.received)
    assert b"Ivo was reported" in chat.received[0][1]
    boss.get_by_role("link", name=re.compile("^Admin")).click()
    boss.get_by_role("link", name="Answer: Ivo: spam").click()
    expect(boss.get_by_role("img", name="Picture of Ivo")).to_be_visible()
    boss.locator("summary", has_text="Suspend and close").click()
    boss.get_by_label("Reason").fill("Spam in the game.")
    press(boss, "Suspend and close")
    expect_notice(boss, "Player suspended, report closed.")
    expect(boss.get_by_text("Nothing is waiting.")).to_be_visible()
    expect(boss.get_by_text("Ivo: spam")).to_have_count(0)
    other.goto(f"{new_server.address}/sign-in")
    sign_in(other, "Ivo")
    refusal = re.compile(r"You are suspended until \d+ .*, \d\d:\d\d( UTC)?\. .*Spam in the game\.")
    expect(other.get_by_text(refusal)).to_be_visible()

    # A lost password.
    boss.goto(f"{new_server.address}/users/2")
    boss.get_by_text("Help with a lost password").click()
    press(boss, "Create a sign-in link")
    guest.goto(shown_once(boss))
    press(guest, "Continue")
    guest.get_by_label("New password", exact=True).fill(NEW_PASSWORD)
    guest.get_by_role("button", name="Set password").click()
    expect_notice(guest, "Password set. You are signed in.")
    friend.goto(f"{new_server.address}/sign-in")
    sign_in(friend, "Emi", NEW_PASSWORD)
    expect(friend.get_by_role("heading", level=1)).to_have_text("Hello, Emi!")

    # A game that waits to be listed.
    friend.goto(f"{new_server.address}/developer")
    friend.get_by_label("A game on this site").check()
    friend.get_by_label("Name").first.fill("Kart Club")
    friend.get_by_label("Address", exact=True).fill("https://kart.example/")
    friend.get_by_role("button", name="Register app").click()
    expect_notice(friend, "App registered.")
    boss.get_by_role("link", name=re.compile("^Admin")).click()
    boss.get_by_role("link", name="Open: Kart Club waits to be listed").click()
    press(boss, "List on the home page")
    expect_notice(boss, "Game listed.")

    # The look.
    go_to(boss, "Appearance")
    boss.get_by_label("Welcome text").fill("We are a handful of friends.")
    boss.get_by_label("Accent colour", exact=True).fill("#7a3fb0")
    press(boss, "Save")
    expect_notice(boss, "Appearance saved.")
    logo = io.BytesIO()
    Image.new("RGBA", (64, 64), (120, 60, 170, 128)).save(logo, "PNG")
    file = {"name": "logo.png", "mimeType": "image/png", "buffer": logo.getvalue()}
    boss.get_by_label("New logo").set_input_files(file)
    boss.get_by_role("button", name="Save logo").click()
    expect(boss.get_by_alt_text("The logo")).to_be_visible()
    guest.context.clear_cookies()
    guest.goto(new_server.address)
    expect(guest.get_by_text("We are a handful of friends.")).to_be_visible()
    expect(guest.get_by_role("heading", name="Kart Club")).to_be_visible()
    button = guest.locator("main").get_by_role("link", name="Sign in")
    assert button.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(122, 63, 176)"
    assert guest.locator("main img").first.evaluate("e => e.naturalWidth") == 256

    # The numbers, last night's backup, and the log.
    boss.get_by_role("link", name=re.compile("^Admin")).click()
    expect(boss.get_by_text("there is no backup yet")).to_be_visible()
    new_server.command_output(
        "backup", "--nightly", str(new_server.data_dir.parent)
    )  # by the timer
    boss.get_by_role("link", name=re.compile("^Admin")).click()
    numbers = boss.locator(".numbers > div")
    players = numbers.filter(has_text=re.compile("^players")).locator("dd")
    expect(players).to_have_text(re.compile("^[123]$"))  # each worker counts once a minute
    backup = numbers.filter(has_text="last backup").locator("dd")
    expect(backup).to_have_text(re.compile("minutes? ago$"))
    expect(boss.get_by_text("there is no backup yet")).to_have_count(0)
    go_to(boss, "Log")
    for sentence in (
        "Boss created the invitation “Discord channel” for 7 days.",
        "Emi created an account with the invitation “Discord channel”.",
        "Boss suspended Ivo for 7 days.",
        "Boss created a sign-in link for Emi.",
        "Boss listed the game Kart Club.",
        "Boss changed the appearance of the site.",
        "The command began a backup.",
    ):
        expect(boss.get_by_text(sentence).first).to_be_visible()
    boss.get_by_label("Player").fill("ivo")
    boss.get_by_role("button", name="Show").click()
    expect(boss.locator(".log li")).to_have_count(2)
    go_to(boss, "Players")
    boss.get_by_label("Which").select_option("Suspended")
    boss.get_by_role("button", name="Show").click()
    expect(boss.get_by_text("Spam in the game.")).to_be_visible()


# -- a newcomer ------------------------------------------------------------------------------------

HOUR = 3_600_000  # milliseconds
SCREENS = {
    "wide": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True},
}


def make_older(store: Storage, name: str) -> None:
    """Let an account be an hour old: a sign-up counts as a heartbeat."""
    with store.users.edit(store.users.find_by_login(name).id) as user:
        user.created -= HOUR
        user.last_heartbeat = user.created


def play(page: Page, game: str) -> None:
    """Play the game of this page until the server knows."""
    with page.expect_response("**/api/users/heartbeat") as answer:
        page.get_by_role("link", name=f"Play {game}").click()
    assert answer.value.status == 200
    game_on(page)


@pytest.mark.parametrize("screen", SCREENS)
def test_newcomer_finds_a_friend_and_plays(
    server: RunningServer, store, game: Game, browse, screen
):
    game.pages["/"] = GAME
    bob = f"Bob {screen}"
    if not store.users.find_by_login("ada"):
        server.add_user("ada")
    server.add_user(bob, f"{screen}@example.org")
    make_older(store, bob)
    host = {"wide": "localhost", "phone": "127.0.0.1"}[screen]
    client, _ = store.clients.register(
        f"Space {screen}", [], None, game_url=f"{game.origin(host)}/", listed=True, public=True
    )
    bobs = browse()
    bobs.context.add_cookies(
        [{"name": "identity_session", "value": server.start_session(bob), "url": server.address}]
    )
    bobs.goto(f"{server.address}/games/{client.id}")
    play(bobs, client.name)

    page = browse(**SCREENS[screen])
    page.goto(server.address)  # a guest sees what the place is, and who is there
    expect(page.get_by_role("heading", name="Playing now")).to_be_visible()
    expect(page.locator(".people").get_by_role("link", name=bob)).to_be_visible()
    invitation = f"{server.address}/sign-up?invite={store.invites.issue(1)}"
    create_account(page, invitation, f"Emi {screen}")
    for step in ("Welcome, ", "Where do you want to start?"):
        expect(page.get_by_role("heading", level=1)).to_contain_text(step)
        page.get_by_role("link", name="Skip", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Hello, Emi {screen}!")
    make_older(store, f"Emi {screen}")

    page.get_by_role("link", name="Players", exact=True).click()
    page.get_by_label("Name").fill("bob")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=bob).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(bob)
    page.get_by_role("link", name=f"Space {screen}").first.click()
    expect(page.get_by_text("One person is playing it now.")).to_be_visible()
    play(page, client.name)
    game_on(page).evaluate(
        "id => ask({ client_id: id, scopes: ['userinfo'], code_challenge: 'x'.repeat(43), "
        "code_challenge_method: 'S256' })",
        client.id,
    )
    wait_a_second(page)
    page.get_by_role("button", name="Allow").click()
    expect(game_on(page).locator("output")).to_contain_text('"error":false')

    page.get_by_role("link", name="Leave").click()
    for visitor, other in ((page, bob), (bobs, f"Emi {screen}")):
        visitor.goto(server.address)
        side = visitor.locator("section", has=visitor.get_by_role("heading", name="Playing now"))
        expect(side.get_by_role("link", name=other)).to_be_visible()
