"""Pages of players and developers in a real browser."""

import io
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mail_server import MailServer, code_in, link_in, text_of_letter
from PIL import Image
from playwright.sync_api import Page, expect
from waiting import wait_until

from images.pictures import MAX_BYTES, generate_picture
from model.records import ADMINISTRATOR, Suspension
from storage import Storage

from .page_checks import check_page
from .running import PASSWORD, RunningServer, running_server
from .test_browser import WAIT, Client, pause_clock

pytestmark = [pytest.mark.live, pytest.mark.browser]

WIDE = "W" * 30  # a name of maximum length


@pytest.fixture(scope="module")
def mail_server() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def server(mail_server: MailServer) -> Iterator[RunningServer]:
    """A server with mail, open sign-up, the administrator hopper and a game of a player."""
    settings = {"SMTP_URL": mail_server.url(), "MAIL_FROM": "site@games.example"}
    with running_server(SIGN_UP="open", **settings) as server:
        owner, game_url = server.add_user(WIDE), "https://game.example/"
        register = server.open_storage().clients.register
        register("A game", [], owner["id"], game_url=game_url, listed=True)
        root = server.add_user("hopper")
        with server.open_storage().users.edit(root["id"]) as user:
            user.mod_level = ADMINISTRATOR
        yield server


@pytest.fixture
def player(server: RunningServer, store: Storage) -> dict:
    """A player for one test alone."""
    return server.add_user(f"p{store.users.ids()[-1] + 1}x")


@pytest.fixture
def account(server: RunningServer, player: dict, browse_as) -> Page:
    """The account page of this player."""
    page = browse_as(player["name"])
    page.goto(f"{server.address}/account")
    return page


def fill_in(page: Page, **typed: str) -> None:
    for label, text in typed.items():
        page.get_by_label(label, exact=True).fill(text)


def press(page: Page, button: str) -> None:
    with page.expect_navigation():
        page.get_by_role("button", name=button, exact=True).click()


# -- sign-up ------------------------------------------------------------------------------------


def test_printed_link_makes_the_first_account(browse):
    with running_server() as empty:
        page = browse()
        page.goto(f"{empty.address}/sign-up")
        expect(page.get_by_text("This site is new.")).to_be_visible()
        check_page(page)
        # The link that `identity-server serve` printed.
        page.goto(re.search(r"^  (http://\S+)$", empty.access_log.read_text(), re.MULTILINE)[1])
        fill_in(page, Name="ada", Password=PASSWORD)
        press(page, "Create account")
        expect(page.get_by_role("link", name="Admin")).to_be_visible()  # an administrator


def test_problem_of_a_form_has_the_focus_and_describes_its_field(server: RunningServer, browse):
    page = browse()
    page.goto(f"{server.address}/sign-up")
    fill_in(page, Name="hopper", Password=PASSWORD)
    press(page, "Create account")
    problem = page.get_by_text("Another player has this name. Choose a different one.")
    expect(problem).to_be_focused()
    name = page.get_by_label("Name", exact=True)
    expect(name).to_have_accessible_description(re.compile("^Another player has this name."))


# -- pictures -----------------------------------------------------------------------------------

PREVIEW = "Preview of your picture, not saved yet"
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


def test_preview_and_picture_are_the_centre_square(account: Page, store: Storage, player: dict):
    choice = account.get_by_label("New picture")
    choice.set_input_files(picture_file(wide_picture()))
    expect(account.locator("canvas")).to_be_visible()
    choice.set_input_files(picture_file(b"no picture"))
    expect(account.locator("#portrait")).to_be_visible()  # the current one
    press(account, "Save picture")
    expect(account.get_by_text("PNG, JPEG, WebP").first).to_be_focused()
    expect(choice).to_have_attribute("aria-invalid", "true")

    before = store.users.read(player["id"]).pfp_timestamp
    choice.set_input_files(picture_file(wide_picture()))
    preview = account.get_by_role("application", name=PREVIEW)
    expect(preview).to_be_visible()
    expect(account.locator("#portrait")).to_have_count(0)
    check_centre_square(account, "canvas")
    assert store.users.read(player["id"]).pfp_timestamp == before
    check_page(account, has_problem=True)
    press(account, "Save picture")
    expect(account.get_by_text("Picture saved.")).to_be_focused()
    check_centre_square(account, "#portrait")


def test_oversized_file_is_not_sent_by_the_browser(account: Page, tmp_path: Path):
    choice = account.get_by_label("New picture")
    choice.set_input_files(empty_file(tmp_path, MAX_BYTES + 1))
    sent = []
    account.on("request", lambda request: sent.append(request.url))
    account.get_by_role("button", name="Save picture").click()
    told = choice.evaluate("choice => choice.validationMessage")
    assert told == "This file is larger than 8 MB. Choose a smaller one."
    assert sent == []


def corners(page: Page, selector: str) -> list[str]:
    """Return the names of the colours in the corners of a picture, from the top left."""
    shown = page.locator(selector)
    shown.evaluate("shown => shown.decode?.()")
    names = {"red": RED, "green": GREEN, "blue": BLUE}

    def name_of(seen: list[int]) -> str:
        return min(names, key=lambda each: math.dist(names[each], seen))

    return [name_of(each) for each in shown.evaluate(READ_CORNERS)]


def test_picture_is_moved_and_zoomed_before_it_is_sent(account: Page, store: Storage, player: dict):
    """By the pointer and by the keyboard; the square alone is sent, and is what the page shows."""
    account.get_by_label("New picture").set_input_files(picture_file(wide_picture()))
    preview = account.get_by_role("application", name=PREVIEW)
    expect(preview).to_have_accessible_description(re.compile("arrow keys"))
    before = corners(account, "canvas")
    assert before == ["green", "green", "blue", "blue"]
    preview.scroll_into_view_if_needed()
    box = preview.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    account.mouse.move(x, y)
    account.mouse.move(x, y + 40)  # no button is down
    assert corners(account, "canvas") == before
    account.mouse.down()
    account.mouse.move(x, y + 40 + box["height"] / 2, steps=5)
    account.mouse.up()
    assert corners(account, "canvas") == ["red", "red", "green", "green"]
    preview.focus()
    for _ in range(30):  # as far as the picture goes
        account.keyboard.press("ArrowDown")
    assert corners(account, "canvas") == ["red"] * 4
    for _ in range(10):
        account.keyboard.press("ArrowUp")
    assert corners(account, "canvas") == ["blue", "blue", "red", "red"]
    account.get_by_label("Zoom").focus()
    account.keyboard.press("End")
    for _ in range(30):
        preview.press("ArrowUp")
    assert corners(account, "canvas") == ["blue"] * 4
    check_page(account)
    assert sent_size(account) < len(wide_picture())
    expect(account.get_by_text("Picture saved.")).to_be_focused()
    assert corners(account, "#portrait") == ["blue"] * 4
    assert store.users.read(player["id"]).pfp_timestamp is not None


def test_cover_and_logo_are_moved_before_they_are_sent(
    server: RunningServer, store: Storage, browse_as
):
    """In the shape of each: a cover is 16 to 10."""
    page, [game] = browse_as("hopper"), store.clients.games(True)
    for path, name, shape in ((f"developer/{game.id}", "cover", 1.6), ("admin/look", "logo", 1)):
        page.goto(f"{server.address}/{path}")
        page.get_by_label(f"New {name}").set_input_files(picture_file(wide_picture()))
        preview = page.get_by_role("application", name=PREVIEW)
        box = preview.bounding_box()
        assert abs(box["width"] / box["height"] - shape) < 0.01
        assert corners(page, "canvas") == ["green", "green", "blue", "blue"]
        check_page(page)
        for _ in range(30):
            preview.press("ArrowDown")
        assert corners(page, "canvas") == ["red"] * 4
        press(page, f"Save {name}")
        expect(page.get_by_text(f"{name.title()} saved.")).to_be_focused()
        assert corners(page, f".{name}") == ["red"] * 4


BROKEN = {
    "createImageBitmap": "async () => { throw new Error() }",
    "HTMLCanvasElement.prototype.toBlob": "(done) => setTimeout(done, 0, null)",
    "CanvasRenderingContext2D.prototype.getImageData": """((own) => function (...area) {
        return area[2] === 16 ? new ImageData(16, 16) : own.apply(this, area);
    })(CanvasRenderingContext2D.prototype.getImageData)""",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_whole_file_is_sent_if_the_browser_cannot_crop(
    server: RunningServer, player: dict, browse_as, broken
):
    page = browse_as(player["name"])
    page.add_init_script(f"{broken} = {BROKEN[broken]}")
    page.goto(f"{server.address}/account")
    content = wide_picture()
    page.get_by_label("New picture").set_input_files(picture_file(content))
    assert sent_size(page) > len(content)
    expect(page.get_by_text("Picture saved.")).to_be_focused()
    check_centre_square(page, "#portrait")


def sent_size(page: Page) -> int:
    """Save the chosen picture; return the bytes of the form that was sent."""
    with page.expect_request("**/account/picture") as sent:
        press(page, "Save picture")
    return int(sent.value.header_value("content-length"))


# -- passwords ----------------------------------------------------------------------------------


def test_password_is_shown_while_typing_and_hidden_when_sent(
    server: RunningServer, player: dict, browse_as
):
    page = browse_as(player["name"])
    page.goto(f"{server.address}/account/security")
    shown, hidden = page.locator("#new-password"), page.locator("#password-password")
    shown.fill("short")
    button = page.get_by_role("button", name="Show: New password", exact=True)
    button.click()
    expect(button).to_have_count(0)  # it has another name now
    button = page.get_by_role("button", name="Hide: New password", exact=True)
    expect(button).to_be_focused()
    expect(button).to_have_attribute("aria-controls", "new-password")
    expect(shown).to_have_attribute("type", "text")
    expect(shown).to_have_value("short")
    expect(hidden).to_have_attribute("type", "password")
    check_page(page)
    page.evaluate("addEventListener('submit', (event) => event.preventDefault())")
    hidden.fill(PASSWORD)
    shown.fill("another good phrase")
    page.get_by_role("button", name="Change password").click()
    expect(shown).to_have_attribute("type", "password")
    expect(page.get_by_role("button", name="Show: New password")).to_be_visible()


def test_every_password_field_has_a_button(server: RunningServer, player: dict, browse, browse_as):
    link = server.command_output("user", "sign-in-link", player["name"])
    page = browse()
    for address in ("/sign-in", "/sign-up", link.removeprefix(server.address).strip()):
        page.goto(f"{server.address}{address}")
        if "#" in address:
            page.get_by_role("button", name="Continue").click()
        expect(page.locator(".password button")).to_have_count(1)
    page = browse_as(player["name"])
    for path, count in (("security", 3), ("data", 1)):
        page.goto(f"{server.address}/account/{path}")
        expect(page.locator(".password button")).to_have_count(count)
    page = browse(java_script_enabled=False)
    page.goto(f"{server.address}/sign-in")
    expect(page.get_by_role("button")).to_have_count(1)


# -- the account page and profiles --------------------------------------------------------------


def test_held_button_tells_an_early_press_to_wait(
    server: RunningServer, store: Storage, player: dict, browse_as
):
    """RFC 9700 4.16. On the account pages only the deletion is held back."""
    page = browse_as("hopper")
    pause_clock(page)
    page.goto(f"{server.address}/users/{player['id']}")
    page.locator("summary", has_text="Suspend").click()
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
    assert not store.users.read(player["id"]).suspended
    # A press that counts holds the button back again: a second one would send the form twice.
    page.evaluate(
        """() => {
            self.sent = 0;
            addEventListener("submit", (event) => { sent += 1; event.preventDefault(); });
        }"""
    )
    page.clock.run_for(1000)
    for _ in range(2):
        suspend.click(force=True)
    assert page.evaluate("sent") == 1
    page.goto(f"{server.address}/account/data")
    held = page.locator("[aria-disabled]")
    expect(held).to_have_text("Delete my account")
    store.pictures.save(store.users.find_by_login("hopper").id, generate_picture(77))
    page.goto(f"{server.address}/account")
    with page.expect_request("**/account/picture/remove"):
        page.get_by_role("button", name="Remove my picture").click()


# -- times of day ---------------------------------------------------------------------------------

NOON = 1_763_985_540_000  # 24 November 2025, 11:59 UTC
UNTIL = 2_047_982_340_000  # nine years later


def test_times_are_in_the_zone_of_the_browser(
    server: RunningServer, store: Storage, player: dict, browse, browse_as
):
    """The days of the log begin there at another time, too."""
    with store.users.edit(player["id"]) as user:
        user.suspension = Suspension("command", NOON, until=UNTIL)
    for time in (NOON, NOON + 120_000):
        line = {"time": time, "act": "user suspend", "by": "command", "user": player["id"]}
        store.audit.add_line(json.dumps(line).encode())
    for zone, until, days in (
        ("Pacific/Fiji", "24 November 2034, 23:59", ["Tuesday, 25", "Monday, 24"]),
        ("UTC", "24 November 2034, 11:59 UTC", ["Monday, 24"]),
    ):
        page = browse_as("hopper", timezone_id=zone)
        page.goto(f"{server.address}/users/{player['id']}")
        expect(page.get_by_text(until, exact=True)).to_be_visible()
        page.goto(f"{server.address}/admin/log")
        shown = page.locator(".day").all_text_contents()[: len(days)]
        assert shown == [f"{day} November 2025" for day in days]
        minutes = page.locator(".log time").all_text_contents()[:2]
        assert [each.partition(":")[2] for each in minutes] == ["01", "59"]
        said = "in UTC" if zone == "UTC" else "in your own time zone"
        expect(page.get_by_text(f"Times are {said}.")).to_be_visible()
        check_page(page)
    page = browse(timezone_id="Asia/Kathmandu")
    page.goto(f"{server.address}/sign-in")
    fill_in(page, **{"Name or email": player["name"], "Password": PASSWORD})
    press(page, "Sign in")
    expect(page.get_by_role("alert")).to_contain_text("until 24 November 2034, 17:44. A mistake?")


# -- the home page and the steps after the sign-up -------------------------------------------------


def test_card_plays_and_its_links_lead_elsewhere(server: RunningServer, store: Storage, browse):
    page, [game] = browse(), store.clients.games(True)
    page.goto(server.address)
    card = page.locator(".game", has=page.get_by_role("link", name=f"Play {game.name}", exact=True))
    reached = []
    card.get_by_role("link", name=game.name, exact=True).focus()
    for _ in range(3):
        reached.append(page.evaluate("document.activeElement.getAttribute('href')"))
        page.keyboard.press("Tab")
    assert reached == [f"/games/{game.id}", f"/users/{game.owner_id}", f"/play/{game.id}"]
    for place, path in (
        (card.locator(".cover"), f"/play/{game.id}"),
        (card.get_by_role("link", name=game.name, exact=True), f"/games/{game.id}"),
        (card.get_by_role("link", name=WIDE), f"/users/{game.owner_id}"),
    ):
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        # The link over the card, or the one above it.
        pressed = page.evaluate(
            "([x, y]) => document.elementFromPoint(x, y).closest('a').getAttribute('href')",
            [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2],
        )
        assert pressed == path


def test_sign_up_for_an_app_leads_through_a_picture_to_the_app(
    store: Storage, game_client: Client, browse
):
    """The policy of no page on the way stops the redirects after its form."""
    page = browse()
    page.goto(game_client.link(scope="userinfo"))
    page.get_by_role("link", name="Create an account").click()
    fill_in(page, Name="gabi", Password=PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(
        page.get_by_text("Your account is ready. Space Game is waiting for you.")
    ).to_be_visible()
    page.get_by_role("link", name="Choose a picture first").click()
    page.get_by_label("New picture").set_input_files(picture_file(wide_picture()))
    expect(page.get_by_label("Zoom")).to_be_visible()
    check_page(page)
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Allow").click()
    game_client.check_arrival(page, "gabi")
    user = store.users.find_by_login("gabi")
    assert user.pfp_timestamp > user.created


def test_steps_work_without_javascript(server: RunningServer, store: Storage, browse):
    page = browse(java_script_enabled=False)
    page.goto(f"{server.address}/sign-up")
    fill_in(page, Name="hana", Password=PASSWORD)
    page.get_by_role("button", name="Create account").click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Welcome, hana!")
    page.get_by_role("button", name="Continue").click()  # without a file
    expect(heading).to_have_text("Where do you want to start?")
    user = store.users.find_by_login("hana")
    assert user.pfp_timestamp == user.created
    page.go_back()
    page.get_by_label("New picture").set_input_files(picture_file(wide_picture()))
    page.get_by_role("button", name="Continue").click()
    expect(heading).to_have_text("Where do you want to start?")
    assert store.users.read(user.id).pfp_timestamp > user.created
    page.get_by_role("link", name="Skip", exact=True).click()
    expect(heading).to_have_text("Hello, hana!")


# -- the pages of docs/ ----------------------------------------------------------------------------

DOCS = "/developer/docs"


def test_keys_scroll_a_wide_table(server: RunningServer, browse):
    page = browse(viewport={"width": 320, "height": 640})
    page.goto(f"{server.address}{DOCS}/javascript")
    table = page.get_by_role("group", name="Table")
    assert table.evaluate("box => box.scrollWidth > box.clientWidth")
    table.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.scroll').scrollLeft > 0")


def test_reader_gets_from_the_footer_to_a_heading(server: RunningServer, browse):
    page = browse()
    page.goto(server.address)
    page.get_by_role("contentinfo").get_by_role("link", name="For developers").click()
    page.get_by_role("link", name="Game engines").click()
    page.get_by_role("link", name="another game's would do as well").click()
    expect(page).to_have_url(f"{server.address}{DOCS}/games#rules-for-clients")
    expect(page.get_by_role("heading", name="Rules for clients")).to_be_in_viewport()
    beside = page.get_by_role("navigation", name="Pages")
    beside.get_by_role("link", name="Errors").click()
    expect(page.get_by_role("heading", name="Errors", exact=True)).to_be_in_viewport()
    expect(beside.get_by_role("link", name="Errors")).to_be_in_viewport()
    beside.get_by_role("link", name="Sites with a server").click()
    page.get_by_role("button", name="Copy code 1", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()


def test_phone_without_script_folds_the_headings(server: RunningServer, browse):
    page = browse(viewport={"width": 390, "height": 844}, java_script_enabled=False)
    page.goto(f"{server.address}{DOCS}/games")
    assert page.get_by_role("navigation", name="Pages").is_hidden()
    errors = page.get_by_role("navigation", name="On this page").get_by_role("link", name="Errors")
    expect(errors).to_be_hidden()
    page.get_by_text("On this page").click()
    errors.click()
    expect(page.get_by_role("heading", name="Errors", exact=True)).to_be_in_viewport()


# -- back in with nothing but a browser and a mailbox ---------------------------------------------

NEW = "another good phrase"


@pytest.fixture
def confirmed(server: RunningServer, store: Storage, player: dict) -> str:
    """The name of a player with a confirmed address, at the domain example.org."""
    server.forget_attempts()
    store.users.change_email(player["id"], player["email"], verified=True)
    return player["name"]


def letter_to(mail_server: MailServer, name: str) -> str:
    """Return the text of the letter with a link to a player."""

    def found() -> list[str]:
        letters = [each for each in mail_server.letters if each["To"] == f"{name}@example.org"]
        return [text for text in map(text_of_letter, letters) if "#" in text]

    wait_until(found)
    return found()[0]


def ask_for_letter(page, server: RunningServer, name: str) -> None:
    page.goto(f"{server.address}/sign-in")
    page.get_by_role("link", name="Set a new one").click()
    page.get_by_label("Email").fill(f"{name}@example.org")
    page.get_by_role("button", name="Send the link").click()
    expect(page.get_by_text("Look in your mailbox.")).to_be_visible()


def test_link_of_a_letter_sets_a_password(server, mail_server, confirmed, browse):
    page = browse()
    page.goto(f"{server.address}/recover")
    check_page(page)
    ask_for_letter(page, server, confirmed)
    check_page(page)
    page.goto(link_in(letter_to(mail_server, confirmed)))
    expect(page).not_to_have_url(re.compile("#"))  # no list of visited pages has it
    check_page(page)
    page.get_by_role("button", name="Continue").press("Enter")
    page.get_by_label("New password", exact=True).fill(NEW)
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_text("Password set. You are signed in.")).to_be_visible()


def test_page_that_follows_links_changes_nothing(server, mail_server, confirmed, browse):
    ask_for_letter(browse(), server, confirmed)
    link, posts = link_in(letter_to(mail_server, confirmed)), []
    scanner = browse()
    scanner.on("request", lambda each: posts.append(each) if each.method == "POST" else None)
    scanner.goto(link)
    scanner.wait_for_load_state("networkidle")
    assert posts == []
    assert link.partition("#")[2] not in server.access_log.read_text()


def test_without_script_the_code_or_a_pasted_link_works(server, mail_server, confirmed, browse):
    page = browse(java_script_enabled=False)
    page.goto(f"{server.address}/recover")
    page.get_by_label("Email").fill(f"{confirmed}@example.org")
    page.get_by_role("button", name="Send the link").click()
    text = letter_to(mail_server, confirmed)
    page.get_by_text("Paste a link").click()
    page.get_by_label("Link", exact=True).fill(link_in(text))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Set password")).to_be_visible()
    page.goto(f"{server.address}/recover")
    page.get_by_label("Code from the email").fill(code_in(text))
    page.get_by_label("New password", exact=True).fill(NEW)
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_text("Password set. You are signed in.")).to_be_visible()


def test_new_player_confirms_the_address(server, mail_server, browse):
    page = browse()
    page.goto(f"{server.address}/sign-up")
    page.get_by_label("Name").fill("Newcomer")
    page.get_by_label("Email (optional)").fill("newcomer@example.org")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Create account")
    text = letter_to(mail_server, "newcomer")
    page.goto(f"{server.address}/account/security")
    expect(page.get_by_text("Not confirmed")).to_be_visible()
    check_page(page)
    page.get_by_role("link", name="Type its code").click()
    check_page(page)
    page.goto(link_in(text))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("Email confirmed.")).to_be_visible()
    expect(page.locator(".badge", has_text="Confirmed")).to_be_visible()
    check_page(page)
