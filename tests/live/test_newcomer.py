"""The first ten minutes of somebody who has the address of the site and an invitation."""

import pytest
from conftest import PASSWORD
from playwright.sync_api import Page, expect

from storage import Storage

from .running import RunningServer
from .test_browser import Game, wait_a_second
from .test_play_page import GAME, game_on

pytestmark = [pytest.mark.live, pytest.mark.browser]
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
    page.goto(f"{server.address}/sign-up?invite={store.invites.issue(1)}")
    page.get_by_label("Name").fill(f"Emi {screen}")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
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
