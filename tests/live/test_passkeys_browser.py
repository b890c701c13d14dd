"""Passkeys in Chromium, with its virtual authenticators (CDP, domain WebAuthn)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import CDPSession, Page, expect

from model.kinds import PASSKEYS
from model.records import Passkey, Session, now_ms
from storage import Storage

from .page_checks import check_page
from .running import PASSWORD, RunningServer, running_server
from .test_browser import Client, Game, sign_in
from .test_play_page import GAME, game_on

pytestmark = [pytest.mark.live, pytest.mark.browser]
ADD = 'form[action="/account/passkeys"]'


class AtLocalhost(RunningServer):
    """A server that people reach by a domain: an IP address can have no passkeys."""

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder, **settings)
        self.settings["BASE_URL"] = f"http://localhost:{self._port}"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(AtLocalhost) as server:
        yield server


@pytest.fixture
def ada(server: RunningServer) -> Iterator[dict]:
    """A player for one test."""
    yield server.add_user("ada")
    server.empty()


class Device:
    """A page of a browser with a virtual authenticator."""

    def __init__(self, page: Page, **options: bool) -> None:
        self.page = page
        self.cdp: CDPSession = page.context.new_cdp_session(page)
        self.cdp.send("WebAuthn.enable", {"enableUI": False})
        usual = {
            **{"protocol": "ctap2", "transport": "internal", "hasResidentKey": True},
            **{"hasUserVerification": True, "isUserVerified": True},
            "automaticPresenceSimulation": True,
        }
        added = self.cdp.send("WebAuthn.addVirtualAuthenticator", {"options": usual | options})
        self.id = added["authenticatorId"]

    def credentials(self) -> list[dict]:
        """Return what the authenticator keeps."""
        return self.cdp.send("WebAuthn.getCredentials", {"authenticatorId": self.id})["credentials"]

    def set(self, command: str, **values: bool) -> None:
        self.cdp.send(f"WebAuthn.{command}", {"authenticatorId": self.id, **values})


@pytest.fixture
def device(browse_as: Callable[..., Page], ada: dict, server: RunningServer) -> Device:
    """Ada's phone, at her security page."""
    device = Device(browse_as("ada"))
    device.page.goto(f"{server.address}/account/security")
    return device


@pytest.fixture
def phone(device: Device, server: RunningServer) -> Device:
    """Ada's phone with a passkey; she is signed out, and no page waits for a passkey."""
    add_passkey(device)
    device.page.context.clear_cookies()
    device.page.goto("about:blank")
    return device


def add_passkey(device: Device, name: str = "My phone") -> None:
    device.page.locator(ADD).get_by_label("Name (optional)").fill(name)
    device.page.get_by_role("button", name="Add a passkey").click()
    expect(device.page.get_by_text(name)).to_be_visible()


def without_suggestions(page: Page) -> None:
    """Let the sign-in page wait for the button: a virtual authenticator waits for no choice."""
    page.context.add_init_script("delete PublicKeyCredential.isConditionalMediationAvailable")


def press_passkey(page: Page) -> None:
    page.locator("button[name=passkey]").click()


def check_new_codes(page: Page) -> None:
    """Check that the codes, with the first passkey, can be copied, saved and printed alone."""
    words, shown = (
        page.locator(f".codes {each}").text_content() for each in ("p >> nth=0", "code")
    )
    assert len(shown.split()) == 10
    expect(page.get_by_role("button", name="Copy recovery codes")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "recovery-codes.txt"
    assert Path(saved.value.path()).read_text(encoding="utf-8").endswith(f"\n\n{shown}")
    page.evaluate("print = () => document.title = 'printed'")
    page.get_by_role("button", name="Print").click()
    assert page.title() == "printed"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("document.body.innerText").split() == f"{words} {shown}".split()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
    page.emulate_media(media="screen", color_scheme="light")


def test_pages_of_an_account_are_short(device: Device, ada: dict, store: Storage, subtests):
    add_passkey(device)
    [passkey] = store.records(PASSKEYS).page("user", str(ada["id"]))
    for key in "ab":
        store.records(PASSKEYS).add(replace(passkey, id=key * len(passkey.id)))
    with store.users.edit(ada["id"]) as user:
        user.sessions += [Session(f"{i}", 1, "Firefox on Linux", now_ms(), "::1") for i in range(4)]
    for path in ("account", "account/security", "account/apps", "account/data"):
        device.page.goto(f"{device.page.url.partition('/account')[0]}/{path}")
        for width, most in ((1280, 1900), (390, 2600)):
            with subtests.test(path, width=width):
                device.page.set_viewport_size({"width": width, "height": 844})
                height = device.page.evaluate("document.documentElement.scrollHeight")
                assert height <= most


def test_passkey_is_added_listed_and_removed(device: Device, ada: dict, store: Storage):
    page = device.page
    check_page(page)
    add_passkey(device)
    check_page(page)
    check_new_codes(page)
    [credential] = device.credentials()
    assert credential["isResidentCredential"] and credential["rpId"] == "localhost"
    [passkey] = store.records(PASSKEYS).page("user", str(ada["id"]))
    assert (passkey.name, passkey.transports) == ("My phone", ["internal"])
    page.get_by_role("button", name="Add a passkey").click()
    said = page.locator(f"{ADD} [data-passkeys]")
    expect(said).to_have_text("This device has a passkey for this account already.")
    page.wait_for_timeout(1000)  # hold.js
    page.get_by_role("button", name="Remove the passkey My phone").click()
    expect(page.get_by_text("Passkey removed.")).to_be_visible()
    assert store.records(PASSKEYS).ids() == []


def test_one_press_signs_in_inside_an_authorization_request(
    phone: Device, server: RunningServer, game: Game
):
    client = Client(server, f"{game.origin()}/callback")
    without_suggestions(phone.page)
    phone.page.goto(client.link())
    press_passkey(phone.page)
    expect(phone.page.get_by_role("button", name="Allow")).to_be_visible()
    phone.page.wait_for_timeout(1000)
    phone.page.get_by_role("button", name="Allow").click()
    client.check_arrival(phone.page)


def test_suggestions_of_the_name_field_sign_in(phone: Device, server: RunningServer):
    """The virtual authenticator chooses at once what a player would choose from the list."""
    phone.page.goto(f"{server.address}/sign-in?next=/account")
    expect(phone.page).to_have_title("Profile - Your account - Identity Server")


def test_page_waits_for_a_choice_without_an_error(
    browse: Callable[..., Page], server: RunningServer, ada: dict
):
    """The button takes over from the suggestions; both are cancelled quietly."""
    device = Device(browse())
    device.set("setAutomaticPresenceSimulation", enabled=False)  # else it refuses at once
    page = device.page
    page.goto(f"{server.address}/sign-in")
    name = page.get_by_label("Name or email")
    expect(name).to_have_attribute("autocomplete", "username webauthn")
    expect(page.locator("button[name=passkey]")).to_be_visible()
    page.wait_for_timeout(500)
    expect(page.locator("[data-passkeys]")).to_be_empty()
    check_page(page)
    device.set("setAutomaticPresenceSimulation", enabled=True)
    press_passkey(page)
    expect(page.locator("[data-passkeys]")).to_have_text(
        "No passkey was used. You can use your password."
    )
    sign_in(page, password=PASSWORD)
    expect(page.get_by_role("link", name="Players")).to_be_visible()


def test_challenge_of_the_suggestions_is_renewed_before_it_ends(
    browse: Callable[..., Page], server: RunningServer, ada: dict
):
    """The new ceremony takes over from the old one without an error; a hidden page asks nothing."""
    device = Device(browse())
    device.set("setAutomaticPresenceSimulation", enabled=False)  # else it refuses at once
    page = device.page
    page.clock.install()
    options = "**/sign-in/passkey/options"
    with page.expect_response(options):
        page.goto(f"{server.address}/sign-in")
    for _ in range(2):
        with page.expect_response(options):
            page.clock.run_for(240_000)
    expect(page.locator("[data-passkeys]")).to_be_empty()
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => self.away ?? true })")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(600_000)
    assert asked == []
    with page.expect_response(options):
        page.evaluate("self.away = false; document.dispatchEvent(new Event('visibilitychange'))")


def test_sign_in_beside_a_game_keeps_the_game(phone: Device, server: RunningServer, game: Game):
    game.pages["/"] = GAME
    client, _ = server.open_storage().clients.register(
        "Space Game", [], None, game_url=f"{game.origin()}/"
    )
    page = phone.page
    without_suggestions(page)
    page.goto(f"{server.address}/play/{client.id}")
    game_on(page)
    with page.expect_popup() as opened:
        page.locator("#sign-in").click()
    beside = opened.value
    window = Device(beside)
    for credential in phone.credentials():
        window.cdp.send(
            "WebAuthn.addCredential", {"authenticatorId": window.id, "credential": credential}
        )
    with beside.expect_event("close"):
        press_passkey(beside)
    expect(page.locator("#me")).to_contain_text("ada")


def test_cancelled_and_unverified_sign_ins_say_what_to_do(phone: Device, server: RunningServer):
    page = phone.page
    without_suggestions(page)
    phone.set("setUserVerified", isUserVerified=False)
    page.goto(f"{server.address}/sign-in")
    press_passkey(page)
    said = page.locator("[data-passkeys]")
    expect(said).to_have_text("No passkey was used. You can use your password.")
    phone.set("setUserVerified", isUserVerified=True)
    press_passkey(page)
    expect(page).to_have_url(f"{server.address}/")


def test_device_forgets_a_passkey_that_was_removed(
    phone: Device, server: RunningServer, store: Storage, console_errors: list[str]
):
    for passkey_id in store.records(PASSKEYS).ids():
        store.records(PASSKEYS).delete(passkey_id)
    without_suggestions(phone.page)
    phone.page.goto(f"{server.address}/sign-in")
    press_passkey(phone.page)
    expect(phone.page.locator("[data-passkeys]")).to_contain_text("doesn't know that passkey")
    assert phone.credentials() == []
    assert console_errors == [f"404 {server.address}/sign-in/passkey"]
    console_errors.clear()


def test_player_without_a_password_confirms_with_a_passkey(
    device: Device, server: RunningServer, store: Storage, ada: dict
):
    add_passkey(device)
    with store.users.edit(ada["id"]) as user:
        user.password_hash, user.email_verified = "", True
        for session in user.sessions:
            session.since -= 300_000
    page = device.page
    page.goto(f"{server.address}/account/data")
    page.get_by_text("What will be deleted").click()
    page.locator("button[name=confirm]").click()
    page.wait_for_url(f"{server.address}/account/data")
    expect(page.locator("button[name=confirm]")).to_have_count(0)
    page.get_by_text("What will be deleted").click()
    page.wait_for_timeout(1000)
    page.get_by_role("button", name="Delete my account").click()
    expect(page.get_by_text("Account deleted.")).to_be_visible()


@pytest.mark.parametrize("has_password", [True, False])
def test_page_of_a_proof_sends_the_form_again_after_a_passkey(
    device: Device, server: RunningServer, store: Storage, ada: dict, has_password: bool
):
    add_passkey(device)
    old = Passkey("0" * 64, ada["id"], "YQ", "YQ", "YQ", "localhost", "Old key", 1)
    store.records(PASSKEYS).add(old)
    with store.users.edit(ada["id"]) as user:
        user.password_hash, user.email_verified = user.password_hash if has_password else "", True
        for session in user.sessions:
            session.since -= 300_000
    page = device.page
    page.goto(f"{server.address}/account/security")
    page.wait_for_timeout(1000)
    page.get_by_role("button", name="Remove the passkey Old key").click()
    field = page.get_by_label("Password" if has_password else "Recovery code", exact=True)
    expect(field).to_be_focused()
    check_page(page)
    page.wait_for_timeout(1000)
    page.get_by_role("button", name="Confirm with a passkey").click()
    expect(page.get_by_text("Passkey removed.")).to_be_visible()
    assert store.records(PASSKEYS).find(old.id) is None


def test_page_without_javascript_offers_the_password_alone(
    browse: Callable[..., Page], server: RunningServer, ada: dict
):
    page = browse(java_script_enabled=False)
    page.goto(f"{server.address}/sign-in?next=/account/security")
    expect(page.locator("button[name=passkey]")).to_be_hidden()
    sign_in(page)
    # Chromium renders <noscript> if the user disables scripts, but not if Playwright does.
    assert "<noscript><p>Adding a passkey needs JavaScript." in page.content()
    expect(page.locator(ADD)).to_be_hidden()
