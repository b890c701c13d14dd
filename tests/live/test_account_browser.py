"""Account pages in a real browser, from sign-up to deletion."""

import io
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from identity.acts import reports as report_acts
from identity.acts.actors import Actor, Authority
from images.pictures import MAX_BYTES, generate_picture
from model.kinds import REPORTS
from model.records import ADMINISTRATOR, MODERATOR, Grant, Session, Suspension, now_ms
from model.rules import REPORT_LENGTH
from storage import Storage

from .page_checks import check_page
from .running import PASSWORD, RunningServer, running_server
from .test_browser import WAIT, Client, pause_clock, set_session_cookie

pytestmark = [pytest.mark.live, pytest.mark.browser, pytest.mark.xdist_group("account_browser")]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with open sign-up and the administrator hopper."""
    with running_server(SIGN_UP="open") as server:
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


EMAIL = "Email (optional)"  # the label of its field


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
        check_page(page)
        fill_in(page, Name="ada", Password=PASSWORD)
        press(page, "Create account")
        expect(page.get_by_role("link", name="Admin")).to_be_visible()  # an administrator


def test_corrected_sign_up_continues_the_authorization(game_client: Client, browse):
    page = browse()
    page.goto(game_client.link())
    page.get_by_role("link", name="Create an account").click()
    expect(page.get_by_text("to continue to Space Game")).to_be_visible()
    fill_in(page, Name="ada", Password=PASSWORD, **{EMAIL: "second@example.org"})
    page.get_by_role("button", name="Create account").click()
    problem = page.get_by_text("Another player has this name. Choose a different one.")
    expect(problem).to_be_focused()
    expect(page).to_have_title("Problem: Create account - Identity Server")
    name = page.get_by_label("Name", exact=True)
    expect(name).to_have_value("ada")
    expect(name).to_have_accessible_description(re.compile("^Another player has this name."))
    expect(page.get_by_label("Email")).to_have_value("second@example.org")
    expect(page.get_by_label("Password", exact=True)).to_have_value("")
    fill_in(page, Name="second", Password=PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(
        page.get_by_text("Your account is ready. Space Game is waiting for you.")
    ).to_be_visible()
    page.get_by_role("link", name="Continue").click()
    page.get_by_role("button", name="Allow").click()
    game_client.check_arrival(page, "second")


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
    check_page(account, has_problem=True)

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
    button = page.get_by_role("button", name="Show new password", exact=True)
    button.click()
    expect(button).to_have_count(0)  # it has another name now
    button = page.get_by_role("button", name="Hide new password", exact=True)
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
    expect(page.get_by_role("button", name="Show new password")).to_be_visible()


def test_every_password_field_has_a_button(server: RunningServer, player: dict, browse, browse_as):
    link = server.command_output("user", "sign-in-link", player["name"])
    page = browse()
    for address in ("/sign-in", "/sign-up", link.removeprefix(server.address).strip()):
        page.goto(f"{server.address}{address}")
        if "#" in address:
            page.get_by_role("button", name="Continue").click()
        expect(page.locator(".password button")).to_have_count(1)
        check_page(page)
    page = browse_as(player["name"])
    for path, count in (("security", 3), ("data", 1)):
        page.goto(f"{server.address}/account/{path}")
        expect(page.locator(".password button")).to_have_count(count)
    page = browse(java_script_enabled=False)
    page.goto(f"{server.address}/sign-in")
    expect(page.get_by_role("button")).to_have_count(1)


# -- the account page and profiles --------------------------------------------------------------


def test_refused_profile_keeps_the_input(
    server: RunningServer, account: Page, store: Storage, ada: dict, player: dict
):
    with store.users.edit(player["id"]) as user:
        user.flairs.append("early bird")
    account.reload()
    bio = "\n\nI play.\n<b>Often</b>"  # HTML parsers drop the first line end of a textarea
    fill_in(account, Name="ada", **{"About you": bio})
    account.get_by_label("Flair").select_option("early bird")
    press(account, "Save profile")
    problem = "Another player has this name. Choose a different one."
    expect(account.get_by_text(problem)).to_be_focused()
    expect(account.get_by_label("Name", exact=True)).to_have_value("ada")
    expect(account.get_by_label("About you")).to_have_value(bio)
    expect(account.get_by_label("Flair")).to_have_value("early bird")
    fill_in(account, Name=player["name"])
    press(account, "Save profile")
    expect(account.get_by_text("Profile saved.")).to_be_focused()
    expect(account.get_by_label("About you")).to_have_value(bio)
    account.goto(f"{server.address}/users/{player['id']}")
    expect(account.get_by_text("<b>Often</b>")).to_be_visible()


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


# -- layout and accessibility -------------------------------------------------------------------

WIDE = "W" * 30  # the longest name and flair


@pytest.fixture(scope="module")
def profiles(server: RunningServer) -> dict[str, str]:
    """The addresses of a profile with texts of maximum length, and of a suspended player."""
    store = server.open_storage()
    wide = server.add_user(WIDE, f"{'w' * 64}@{'w' * 60}.example.org")
    address = "https://client.example/"
    client, _ = store.clients.register("W" * 60, [address], None, game_url=address)
    with store.users.edit(wide["id"]) as user:
        user.bio = f"{'W' * 200}\n\nI play.\n" + "Often.\n" * 90
        user.flairs += ["early bird", WIDE]
        user.equipped_flair = WIDE
        user.play_ms = 100 * 60_000
        user.grants[client.id] = Grant("a grant", ["userinfo", "email"], now_ms(), now_ms())
        used = now_ms() - 7_200_000
        user.sessions.append(Session("x", 1, "W" * 60, used, "2001:db8:1234:1234::"))
    with store.users.edit(server.add_user("lovelace")["id"]) as user:
        user.mod_level = MODERATOR
    with store.users.edit(server.add_user("mallory")["id"]) as suspended:
        suspended.suspension = Suspension("command")
    report_acts.report(
        Authority(store, Actor(wide["id"])), suspended, "insults", "W" * REPORT_LENGTH
    )
    [report] = store.records(REPORTS).ids()
    profile = f"/users/{wide['id']}"
    return {"wide": profile, "suspended": f"/users/{suspended.id}", "report": report}


def test_page_layout_and_accessibility(
    server: RunningServer, profiles: dict[str, str], ada: dict, browse, subtests
):
    link = server.command_output("user", "sign-in-link", WIDE).removeprefix(server.address)
    sign_up = {"Name": "W" * 100, EMAIL: "w" * 100, "Password": "W" * 100}
    confirmed = {"Current password": PASSWORD}
    page = browse()
    for player, path, has_problem, *steps in (
        # The player, the page, whether it shows a form error, and the way there: texts and buttons.
        (None, profiles["wide"], False),
        (None, "/sign-up", True, sign_up, "Create account"),
        (None, link, False, {}, "Continue"),
        (None, "/recover", False),
        *(("ada", path, False) for path in ("/account/apps", "/account/data")),
        *((WIDE, path, False) for path in ("/account/apps", "/account/security")),
        (WIDE, "/account", False, {}, "Save profile"),
        (WIDE, "/account", True, {"Name": "W" * 100, "About you": "W" * 1001}, "Save profile"),
        (WIDE, "/account/security", True, confirmed | {EMAIL: "W" * 100}, "Save email"),
        (WIDE, "/account/security", True, confirmed | {"New password": WIDE}, "Change password"),
        ("lovelace", profiles["suspended"], False),
        ("ada", f"{profiles['wide']}/report", False),
        (WIDE, f"{profiles['suspended']}/report", False),
        ("lovelace", "/admin", False),
        ("lovelace", f"/admin/reports/{profiles['report']}", False),
        (None, "/players", False),
        ("lovelace", "/players", False, {"Name": "nobody"}, "Search"),
        ("hopper", profiles["wide"], True, {"New flair": "W" * 200}, "Grant flair"),
    ):
        with subtests.test(path, player=player, steps=steps):
            if player:
                set_session_cookie(page, server, player)
            page.goto(f"{server.address}{path}")
            if steps:
                typed, button = steps
                page.locator("main details").evaluate_all(
                    "all => all.forEach(each => each.open = true)"
                )
                form = page.locator("form").filter(has=page.get_by_role("button", name=button))
                for label, text in typed.items():
                    form.get_by_label(label, exact=True).fill(text)
                press(page, button)
            check_page(page, has_problem)
