"""Account pages in a real browser, from sign-up to deletion."""

import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from PIL import Image
from playwright.sync_api import Page, expect

from storage.pictures import MAX_BYTES
from storage.records import ADMINISTRATOR, MODERATOR, PLAYER, Grant, Suspension, User, now_ms

from . import test_browser
from .page_checks import check_page
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer, running_server
from .test_browser import (
    WAIT,
    Client,
    Game,
    pause_clock,
    set_session_cookie,
    sign_in,
    wait_a_second,
)

pytestmark = [pytest.mark.live, pytest.mark.browser, pytest.mark.xdist_group("account_browser")]
# Fixtures of the browser.
chromium, playwright = test_browser.chromium, test_browser.playwright
browse, game = test_browser.browse, test_browser.game
console_errors = test_browser.console_errors
NEW_PASSWORD = "paperclip violin lantern moss"


class Site(RunningServer):
    """A running server with look-ups for these tests."""

    def find_user(self, name: str) -> User | None:
        return self.open_storage().users.find_by_login(name)

    def token_of(self, client: Client, page: Page) -> str:
        """Return the access token for the code in the page's address."""
        code = test_browser.callback_parameters(page)["code"]
        return self.exchange_code(code, client.id, client.secret).json()["access_token"]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server with open sign-up, the player ada and the administrator hopper."""
    with running_server(Site, SIGN_UP="open") as site:
        root = site.add_user("hopper")
        with site.open_storage().users.edit(root["id"]) as user:
            user.mod_level = ADMINISTRATOR
        site.add_user("ada")
        yield site


@pytest.fixture
def empty_site() -> Iterator[Site]:
    """A server without accounts, whose sign-up needs an invitation."""
    with running_server(Site) as site:
        yield site


@pytest.fixture
def player(site: Site) -> dict:
    """A player for one test alone."""
    return site.add_user(f"p{site.open_storage().users.ids()[-1] + 1}x")


@pytest.fixture
def game_client(site: Site, game: Game) -> Client:
    """A client without consents."""
    return Client(site, f"{game.origin()}/callback")


@pytest.fixture
def browse_as(site: Site, browse: Callable[..., Page]) -> Callable[..., Page]:
    """A function that opens a page in which this player is signed in."""

    def browse_as(name: str, **options) -> Page:
        page = browse(**options)
        set_session_cookie(page, site, name)
        return page

    return browse_as


def fill_in(page: Page, **typed: str) -> None:
    for label, text in typed.items():
        page.get_by_label(label, exact=True).fill(text)


# -- sign-up ------------------------------------------------------------------------------------


def test_first_account_link_creates_one_administrator(empty_site: Site, browse):
    link = first_account_link(empty_site)
    page = browse()
    page.goto(link)
    expect(
        page.get_by_role("heading", name="Welcome! You are the first player here")
    ).to_be_visible()
    fill_in(page, Name="hopper", Email="hopper@example.org", Password=PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", name="Your account")).to_be_visible()
    expect(page.get_by_role("link", name="Players")).to_be_visible()
    assert empty_site.find_user("hopper").mod_level == ADMINISTRATOR
    page = browse()
    assert page.goto(link).status == 200
    expect(page.get_by_role("button", name="Create account")).to_have_count(0)
    assert empty_site.open_storage().users.ids() == [1]


def test_sign_up_during_authorization_returns_a_code_to_the_client(game_client: Client, browse):
    page = browse()
    page.goto(game_client.link())
    page.get_by_role("link", name="Create an account").click()
    expect(page.get_by_text("to continue to Space Game")).to_be_visible()
    fill_in(page, Name="newcomer", Email="newcomer@example.org", Password=PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", name="Space Game wants to know who you are")).to_be_visible()
    page.get_by_role("button", name="Allow").click()
    game_client.check_arrival(page, "newcomer")


def test_sign_up_retry_during_authorization_returns_a_code_to_the_client(
    game_client: Client, browse
):
    page = browse()
    page.goto(game_client.link())
    page.get_by_role("link", name="Create an account").click()
    fill_in(page, Name="ada", Email="second@example.org", Password=PASSWORD)
    page.get_by_role("button", name="Create account").click()
    problem = page.get_by_text("Another player has this name. Choose a different one.")
    expect(problem).to_be_focused()
    expect(page).to_have_title("Problem: Create account - Identity Server")
    name = page.get_by_label("Name", exact=True)
    expect(name).to_have_value("ada")
    expect(name).to_have_accessible_description(re.compile("^Another player has this name."))
    expect(page.get_by_label("Email")).to_have_value("second@example.org")
    expect(page.get_by_label("Password")).to_have_value("")
    fill_in(page, Name="second", Password=PASSWORD)
    page.get_by_role("button", name="Create account").click()
    page.get_by_role("button", name="Allow").click()
    game_client.check_arrival(page, "second")


def test_invite_link_creates_one_account_that_can_authorize_a_client(
    empty_site: Site, game: Game, browse
):
    empty_site.add_user("ada")
    client = Client(empty_site, f"{game.origin()}/callback")
    link = empty_site.command_output("invite")
    page = browse()
    page.goto(client.link())
    expect(page.get_by_text("New here?")).to_have_count(0)
    page.goto(link)
    fill_in(page, Name="guest", Email="guest@example.org", Password=PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", name="Your account")).to_be_visible()
    page.goto(client.link())
    page.get_by_role("button", name="Allow").click()
    client.check_arrival(page, "guest")
    page = browse()
    page.goto(link)
    expect(page.get_by_text("recognise this invitation")).to_be_visible()
    expect(page.get_by_label("Password")).to_have_count(0)


def test_pasted_invitation_during_authorization_returns_a_code_to_the_client(
    empty_site: Site, game: Game, browse
):
    empty_site.add_user("ada")
    client = Client(empty_site, f"{game.origin()}/callback")
    page = browse()
    page.goto(client.link())
    page.get_by_role("link", name="Create an account").click()
    expect(page.get_by_text("You need an invitation")).to_be_visible()
    check_page(page)
    for pasted, has_problem in (("mistyped", True), (empty_site.command_output("invite"), False)):
        fill_in(page, Invitation=pasted)
        press(page, "Continue")
        expect(page.get_by_text("to continue to Space Game")).to_be_visible()
        check_page(page, has_problem)
    fill_in(page, Name="guest", Email="guest@example.org", Password=PASSWORD)
    page.get_by_role("button", name="Create account").click()
    page.get_by_role("button", name="Allow").click()
    client.check_arrival(page, "guest")


def first_account_link(site: Site) -> str:
    """Return the link that `identity-server serve` printed."""
    return re.search(r"^  (http://\S+)$", site.access_log.read_text(), re.MULTILINE)[1]


# -- pictures -----------------------------------------------------------------------------------

RED, GREEN, BLUE = (200, 30, 30), (30, 150, 60), (40, 60, 200)
CLOSE = 12  # of 255: the tolerance for WebP compression of a plain colour
READ_CORNERS = """shown => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [100, 100];
    const pen = canvas.getContext("2d", {willReadFrequently: true});
    pen.drawImage(shown, 0, 0, 100, 100);
    return [[20, 20], [80, 20], [20, 80], [80, 80]].map(
        ([x, y]) => Array.from(pen.getImageData(x, y, 1, 1).data.slice(0, 3)));
}"""


def wide_picture() -> bytes:
    """Return a JPEG that EXIF rotates to an upright red, green over blue, and red square."""
    upright = Image.new("RGB", (100, 300), RED)
    upright.paste(GREEN, (0, 100, 100, 150))
    upright.paste(BLUE, (0, 150, 100, 200))
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: display rotated 90 degrees clockwise
    output = io.BytesIO()
    lying = upright.transpose(Image.Transpose.ROTATE_90)
    lying.save(output, "JPEG", quality=95, subsampling=0, exif=exif)
    return output.getvalue()


def picture_file(content: bytes) -> dict:
    return {"name": "me.jpg", "mimeType": "image/jpeg", "buffer": content}


def empty_file(folder: Path, size: int) -> Path:
    """Return a file of this size in bytes, to be read by Chromium."""
    file = folder / "me.jpg"
    file.touch()
    os.truncate(file, size)
    return file


def check_centre_square(page: Page, selector: str) -> None:
    """Check that the page shows the upright centre square of `wide_picture`."""
    shown = page.locator(selector)
    shown.evaluate("shown => shown.decode?.()")
    for seen, wanted in zip(shown.evaluate(READ_CORNERS), (GREEN, GREEN, BLUE, BLUE), strict=True):
        assert all(abs(a - b) <= CLOSE for a, b in zip(seen, wanted, strict=True)), seen


def test_preview_and_uploaded_picture_are_the_centre_square(site: Site, player: dict, browse_as):
    page = browse_as(player["name"])
    page.goto(f"{site.address}/account")
    before = site.find_user(player["name"]).pfp_timestamp
    page.get_by_label("New picture").set_input_files(picture_file(wide_picture()))
    preview = page.get_by_role("img", name="Preview of your picture, not saved yet")
    expect(preview).to_be_visible()
    expect(page.locator("#portrait")).to_have_count(0)
    check_centre_square(page, "canvas")
    assert site.find_user(player["name"]).pfp_timestamp == before
    page.get_by_role("button", name="Save picture").click()
    expect(page.get_by_text("Picture saved.")).to_be_focused()
    check_centre_square(page, "#portrait")
    assert site.find_user(player["name"]).pfp_timestamp > before


def test_choosing_an_invalid_picture_keeps_the_current_one_shown(
    site: Site, player: dict, browse_as
):
    page = browse_as(player["name"])
    page.goto(f"{site.address}/account")
    choice = page.get_by_label("New picture")
    choice.set_input_files(picture_file(wide_picture()))
    expect(page.locator("canvas")).to_be_visible()
    choice.set_input_files(picture_file(b"no picture"))
    expect(page.locator("#portrait")).to_be_visible()
    page.get_by_role("button", name="Save picture").click()
    problem = page.get_by_text("PNG, JPEG, WebP", exact=False).first
    expect(problem).to_be_focused()
    expect(page).to_have_title("Problem: Your account - Identity Server")
    expect(page.get_by_label("New picture")).to_have_attribute("aria-invalid", "true")


def test_oversized_file_is_not_sent_by_the_browser(
    site: Site, player: dict, browse_as, tmp_path: Path
):
    page = browse_as(player["name"])
    page.goto(f"{site.address}/account")
    choice = page.get_by_label("New picture")
    choice.set_input_files(empty_file(tmp_path, MAX_BYTES + 1))
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    page.get_by_role("button", name="Save picture").click()
    told = choice.evaluate("choice => choice.validationMessage")
    assert told == "This file is larger than 8 MB. Choose a smaller one."
    assert sent == []


def test_picture_upload_and_removal_without_javascript(site: Site, player: dict, browse_as):
    page = browse_as(player["name"], java_script_enabled=False)
    page.goto(f"{site.address}/account")
    generated = fetch_picture(site, player)
    page.get_by_label("New picture").set_input_files(picture_file(wide_picture()))
    page.get_by_role("button", name="Save picture").click()
    expect(page.get_by_text("Picture saved.")).to_be_visible()
    shown = Image.open(io.BytesIO(fetch_picture(site, player))).convert("RGB")
    width, height = shown.size
    for y, wanted in ((height // 4, GREEN), (height * 3 // 4, BLUE)):
        seen = shown.getpixel((width // 2, y))
        assert all(abs(a - b) <= CLOSE for a, b in zip(seen, wanted, strict=True)), seen
    wait_a_second(page)
    page.get_by_role("button", name="Remove my picture").click()
    expect(page.get_by_text("Picture removed.")).to_be_visible()
    assert fetch_picture(site, player) == generated


def test_oversized_file_shows_an_error_without_javascript(
    site: Site, player: dict, browse_as, tmp_path: Path
):
    page = browse_as(player["name"], java_script_enabled=False)
    page.goto(f"{site.address}/account")
    page.get_by_label("New picture").set_input_files(empty_file(tmp_path, MAX_BYTES * 2))
    page.get_by_role("button", name="Save picture").click()
    expect(page.get_by_text("This file is larger than 8 MB.")).to_be_visible()


def fetch_picture(site: Site, player: dict) -> bytes:
    """Return the large picture of a player as served now."""
    timestamp = site.find_user(player["name"]).pfp_timestamp
    address = f"{site.address}/pfp/large/{player['id']}-{timestamp}.webp"
    answer = requests.get(address, timeout=ANSWER_TIMEOUT)
    assert answer.status_code == 200
    return answer.content


# -- the account page ---------------------------------------------------------------------------


def test_profile_changes_are_public(site: Site, player: dict, browse_as, browse):
    with site.open_storage().users.edit(player["id"]) as user:
        user.flairs.append("early bird")
    page = browse_as(player["name"])
    page.goto(f"{site.address}/account")
    bio = "\n\nI play.\n<b>Often</b>"
    renamed = f"{player['name']} II"
    fill_in(page, Name=renamed, **{"About you": bio})
    page.get_by_label("Flair").select_option("early bird")
    page.get_by_role("button", name="Save profile").click()
    expect(page.get_by_text("Profile saved.")).to_be_focused()
    expect(page.get_by_label("About you")).to_have_value(bio)
    visitor_page = browse()
    visitor_page.goto(f"{site.address}/users/{player['id']}")
    expect(visitor_page.get_by_role("heading", name=renamed)).to_be_visible()
    expect(visitor_page.get_by_text("early bird")).to_be_visible()
    expect(visitor_page.get_by_text("<b>Often</b>")).to_be_visible()


def test_invalid_profile_keeps_the_input_and_focuses_the_error(site: Site, player: dict, browse_as):
    with site.open_storage().users.edit(player["id"]) as user:
        user.flairs.append("early bird")
    page = browse_as(player["name"])
    page.goto(f"{site.address}/account")
    fill_in(page, Name="ada", **{"About you": "\nI play."})
    page.get_by_label("Flair").select_option("early bird")
    page.get_by_role("button", name="Save profile").click()
    expect(
        page.get_by_text("Another player has this name. Choose a different one.")
    ).to_be_focused()
    expect(page.get_by_label("Name", exact=True)).to_have_value("ada")
    expect(page.get_by_label("About you")).to_have_value("\nI play.")
    expect(page.get_by_label("Flair")).to_have_value("early bird")
    assert site.find_user(player["name"]).bio == ""


def test_withdrawing_an_app_revokes_its_token_and_consent(
    site: Site, game_client: Client, player: dict, browse_as
):
    page = browse_as(player["name"])
    page.goto(game_client.link())
    page.get_by_role("button", name="Allow").click()
    expect(page).to_have_title("Game")
    token = site.token_of(game_client, page)
    assert site.whois(token).status_code == 200
    page.goto(f"{site.address}/account/apps")
    expect(page.get_by_text("Can see: your public profile, your email address")).to_be_visible()
    page.get_by_role("button", name="Remove access: Space Game").click()
    expect(page.get_by_text("Access removed.")).to_be_focused()
    expect(page.get_by_role("button", name="Remove access")).to_have_count(0)
    assert site.whois(token).status_code == 401
    page.goto(game_client.link())
    expect(page.get_by_role("button", name="Allow")).to_be_visible()


def test_another_browser_and_all_browsers_can_be_signed_out(site: Site, player: dict, browse_as):
    other, here = browse_as(player["name"]), browse_as(player["name"])
    here.goto(f"{site.address}/account/apps")
    rows = here.get_by_role("listitem").filter(has=here.get_by_role("button", name="Sign out"))
    expect(rows).to_have_count(2)
    rows.filter(has_not_text="This browser").get_by_role("button").click()
    expect(here.get_by_text("Browser signed out.")).to_be_focused()
    other.goto(f"{site.address}/account")
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    here.get_by_role("button", name="Sign out everywhere").click()
    expect(here.get_by_text("Signed out everywhere.")).to_be_focused()
    expect(here.get_by_role("link", name="Sign in")).to_be_visible()


def test_account_export_is_downloaded_as_a_file(site: Site, player: dict, browse_as):
    page = browse_as(player["name"])
    page.goto(f"{site.address}/account")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download my data").click()
    assert download.value.suggested_filename == "account.json"
    assert f"{player['name']}@example.org" in Path(download.value.path()).read_text()


def test_account_deletion_removes_the_user_tokens_and_pictures(
    site: Site, game_client: Client, player: dict, browse_as
):
    page = browse_as(player["name"])
    page.goto(game_client.link())
    page.get_by_role("button", name="Allow").click()
    expect(page).to_have_title("Game")
    token = site.token_of(game_client, page)
    page.goto(f"{site.address}/account")
    page.get_by_text("What will be deleted").click()
    delete = page.get_by_role("button", name="Delete my account")
    page.locator("#delete-password").fill(f"{PASSWORD}, mistyped")
    delete.click()
    expect(page.get_by_text("Wrong password. Try again.")).to_be_focused()
    assert site.find_user(player["name"]) is not None
    page.locator("#delete-password").fill(PASSWORD)
    delete.click()
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    assert site.whois(token).status_code == 401
    assert page.goto(f"{site.address}/users/{player['id']}").status == 404
    page.goto(f"{site.address}/sign-in")
    sign_in(page, player["name"])
    expect(page.get_by_role("alert")).to_be_focused()
    assert list(site.picture_dir.glob(f"*/{player['id']}-*")) == []


def test_a_sign_in_link_sets_a_new_password_once_and_ends_other_sessions(
    site: Site, player: dict, browse, browse_as
):
    other_session = browse_as(player["name"])
    link = site.command_output("user", "sign-in-link", player["name"])
    page = browse()
    for _ in range(2):  # opening the link does not use it up
        page.goto(link)
    expect(page.get_by_text(f"for {player['name']}")).to_be_visible()
    fill_in(page, **{"New password": NEW_PASSWORD})
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_text("Password set. You are signed in.")).to_be_focused()
    other_session.goto(f"{site.address}/account")
    expect(other_session.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(other_session, player["name"])
    expect(other_session.get_by_role("alert")).to_be_focused()
    page.goto(link)
    expect(page.get_by_text("recognise this link")).to_be_visible()
    other = browse()
    other.goto(f"{site.address}/sign-in")
    sign_in(other, player["name"], NEW_PASSWORD)
    expect(other).to_have_title("Welcome - Identity Server")


def test_suspension_ends_sessions_and_tokens_until_unsuspended(
    site: Site, game_client: Client, player: dict, browse, browse_as
):
    moderator = site.add_user(f"mod-{player['name']}")
    with site.open_storage().users.edit(moderator["id"]) as user:
        user.mod_level = MODERATOR
    player_page = browse_as(player["name"])
    player_page.goto(game_client.link())
    player_page.get_by_role("button", name="Allow").click()
    expect(player_page).to_have_title("Game")
    token = site.token_of(game_client, player_page)
    page = browse_as(moderator["name"])
    page.goto(site.address)
    page.get_by_role("link", name="Players").click()
    fill_in(page, Name=player["name"].upper())
    page.get_by_role("button", name="Find player").click()
    expect(page.get_by_role("button", name="Change level")).to_have_count(0)
    page.get_by_role("button", name="Suspend player").click()
    expect(page.get_by_text("Player suspended.")).to_be_focused()
    player_page.goto(f"{site.address}/account")
    expect(player_page.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(player_page, player["name"])
    expect(
        player_page.get_by_text(re.compile("^You are suspended until .* A mistake"))
    ).to_be_visible()
    assert site.whois(token).status_code == 401
    visitor_page = browse()
    visitor_page.goto(f"{site.address}/users/{player['id']}")
    expect(visitor_page.get_by_text("This player is suspended.")).to_be_visible()
    page.get_by_role("button", name="Unsuspend player").click()
    expect(page.get_by_text("Player unsuspended.")).to_be_focused()
    sign_in(player_page, player["name"])
    expect(player_page).to_have_title("Your account - Identity Server")


def test_button_that_acts_on_others_looks_ready_and_tells_an_early_press_to_wait(
    site: Site, player: dict, browse_as
):
    """RFC 9700 4.16. On the account page only its deletion is held back."""
    page = browse_as("hopper")
    pause_clock(page)
    page.goto(f"{site.address}/users/{player['id']}")
    suspend, wait = page.get_by_role("button", name="Suspend player"), page.get_by_text(WAIT)
    expect(suspend).to_have_attribute("aria-disabled", "true")
    expect(suspend).to_have_css("opacity", "1")
    suspend.click(force=True)
    expect(wait).to_be_visible()
    expect(wait).to_have_role("status")
    below = wait.bounding_box()["y"] - suspend.bounding_box()["y"]
    assert suspend.bounding_box()["height"] < below < 80
    page.clock.run_for(1000)
    expect(suspend).to_have_attribute("aria-disabled", "false")
    page.evaluate("dispatchEvent(new Event('focus'))")  # a window that lay above is gone
    expect(wait).to_have_count(0)
    suspend.click(force=True)
    expect(wait).to_be_visible()
    assert not site.find_user(player["name"]).suspended
    page.goto(f"{site.address}/account")
    held = page.locator("[aria-disabled]")
    expect(held).to_have_text("Delete my account")
    with page.expect_request("**/account/picture/remove"):
        page.get_by_role("button", name="Remove my picture").click()


def test_administrator_grants_and_revokes_a_flair_after_an_invalid_one(
    site: Site, player: dict, browse_as
):
    page = browse_as("hopper")
    page.goto(f"{site.address}/users/{player['id']}")
    flair = page.get_by_label("New flair")
    flair.fill("early bird" * 4)
    page.get_by_role("button", name="Grant flair").click()
    expect(page.get_by_text("Use 1-30 characters on one line.")).to_be_focused()
    expect(flair).to_have_value("early bird" * 4)
    flair.fill("early bird")
    page.get_by_role("button", name="Grant flair").click()
    expect(page.get_by_text("Flair granted.")).to_be_focused()
    expect(flair).to_have_value("")
    assert "early bird" in site.find_user(player["name"]).flairs
    page.get_by_role("button", name="Revoke early bird").click()
    expect(page.get_by_text("Flair revoked.")).to_be_focused()
    assert "early bird" not in site.find_user(player["name"]).flairs


# -- layout and accessibility -------------------------------------------------------------------

WIDE_NAME = "W" * 30
WIDE_FLAIR = "W" * 30


@pytest.fixture(scope="module")
def wide_site(site: Site) -> Site:
    """The site with texts of maximum length, and players of each level."""
    email = f"{'w' * 64}@{'w' * 60}.example.org"
    wide = site.add_user(WIDE_NAME, email)
    client = Client(site, "https://client.example/", name="W" * 60)
    with site.open_storage().users.edit(wide["id"]) as user:
        user.bio = f"{'W' * 200}\n\nI play.\n" + "Often.\n" * 90
        user.flairs += ["early bird", WIDE_FLAIR]
        user.equipped_flair = WIDE_FLAIR
        user.play_ms = 100 * 60_000
        user.grants[client.id] = Grant("a grant", ["userinfo", "email"], now_ms())
    for name, mod_level in (("lovelace", MODERATOR), ("mallory", PLAYER)):
        with site.open_storage().users.edit(site.add_user(name)["id"]) as user:
            user.mod_level = mod_level
            user.suspension = Suspension("command") if name == "mallory" else None
    return site


def press(page: Page, button: str) -> None:
    with page.expect_navigation():
        page.get_by_role("button", name=button, exact=True).click()


def open_as(site: Site, page: Page, name: str, path: str) -> None:
    """Open a page as this player."""
    set_session_cookie(page, site, name)
    page.goto(f"{site.address}{path}")


def profile_of(site: Site, name: str) -> str:
    return f"/users/{site.find_user(name).id}"


def open_sign_up(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/sign-up")


def open_sign_up_with_problems(site: Site, page: Page) -> None:
    open_sign_up(site, page)
    fill_in(page, Name="W" * 100, Email="w" * 100, Password="W" * 100)
    press(page, "Create account")


def open_account(site: Site, page: Page) -> None:
    open_as(site, page, WIDE_NAME, "/account")


def open_saved_account(site: Site, page: Page) -> None:
    open_account(site, page)
    press(page, "Save profile")


def open_profile_problems(site: Site, page: Page) -> None:
    open_account(site, page)
    fill_in(page, Name="W" * 100, **{"About you": "W" * 1001})
    press(page, "Save profile")


def open_picture_problem(site: Site, page: Page) -> None:
    open_account(site, page)
    page.get_by_label("New picture").set_input_files(picture_file(b"no picture"))
    press(page, "Save picture")


def open_picture_preview(site: Site, page: Page) -> None:
    open_account(site, page)
    page.get_by_label("New picture").set_input_files(picture_file(wide_picture()))
    expect(page.locator("canvas")).to_be_visible()


def open_email_problem(site: Site, page: Page) -> None:
    open_account(site, page)
    fill_in(page, Email="W" * 100)
    page.locator("#email-password").fill(PASSWORD)
    press(page, "Change email")


def open_password_problem(site: Site, page: Page) -> None:
    open_account(site, page)
    page.locator("#password-password").fill(PASSWORD)
    page.locator("#new-password").fill(WIDE_NAME)
    press(page, "Change password")


def open_delete_problem(site: Site, page: Page) -> None:
    open_account(site, page)
    page.get_by_text("What will be deleted").click()
    page.locator("#delete-password").fill("mistyped")
    press(page, "Delete my account")


def open_apps(site: Site, page: Page) -> None:
    open_as(site, page, WIDE_NAME, "/account/apps")


def open_apps_of_nobody(site: Site, page: Page) -> None:
    open_as(site, page, "ada", "/account/apps")


def open_public_profile(site: Site, page: Page) -> None:
    page.goto(f"{site.address}{profile_of(site, WIDE_NAME)}")


def open_own_profile(site: Site, page: Page) -> None:
    open_as(site, page, WIDE_NAME, profile_of(site, WIDE_NAME))


def open_moderated_profile(site: Site, page: Page) -> None:
    open_as(site, page, "lovelace", profile_of(site, WIDE_NAME))


def open_suspended_profile(site: Site, page: Page) -> None:
    open_as(site, page, "lovelace", profile_of(site, "mallory"))


def open_administered_profile(site: Site, page: Page) -> None:
    open_as(site, page, "hopper", profile_of(site, WIDE_NAME))


def open_profile_with_refused_flair(site: Site, page: Page) -> None:
    open_administered_profile(site, page)
    fill_in(page, **{"New flair": "W" * 200})
    press(page, "Grant flair")


def open_players(site: Site, page: Page) -> None:
    open_as(site, page, "lovelace", "/players")


def open_player_not_found(site: Site, page: Page) -> None:
    open_players(site, page)
    fill_in(page, Name="nobody")
    press(page, "Find player")


def open_new_password(site: Site, page: Page) -> None:
    page.goto(site.command_output("user", "sign-in-link", WIDE_NAME))


def open_new_password_problem(site: Site, page: Page) -> None:
    open_new_password(site, page)
    fill_in(page, **{"New password": WIDE_NAME})
    press(page, "Set password")


def open_refused_new_password(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/new-password?link=spent")


# A function that opens each page, and whether the page shows a form error.
PAGES = [
    (open_sign_up, False),
    (open_sign_up_with_problems, True),
    (open_account, False),
    (open_saved_account, False),
    (open_profile_problems, True),
    (open_picture_preview, False),
    (open_picture_problem, True),
    (open_email_problem, True),
    (open_password_problem, True),
    (open_delete_problem, True),
    (open_apps, False),
    (open_apps_of_nobody, False),
    (open_public_profile, False),
    (open_own_profile, False),
    (open_moderated_profile, False),
    (open_suspended_profile, False),
    (open_administered_profile, False),
    (open_profile_with_refused_flair, True),
    (open_players, False),
    (open_player_not_found, True),
    (open_new_password, False),
    (open_new_password_problem, True),
    (open_refused_new_password, False),
]


@pytest.mark.parametrize(("open_page", "has_problem"), PAGES)
def test_page_layout_and_accessibility(
    wide_site: Site, browse, open_page: Callable[[Site, Page], None], has_problem: bool
):
    page = browse()
    open_page(wide_site, page)
    check_page(page, has_problem)


def test_first_sign_up_layout_and_accessibility(empty_site: Site, browse):
    page = browse()
    page.goto(f"{empty_site.address}/sign-up")
    expect(page.get_by_text("This site is new.")).to_be_visible()
    check_page(page)
    page.goto(first_account_link(empty_site))
    expect(page.get_by_role("button", name="Create account")).to_be_visible()
    check_page(page)
