"""The tester in a real browser, and its samples as the programs that they are."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forms import parse
from playwright.sync_api import Page, expect
from waiting import PATIENCE

from model.records import ADMINISTRATOR

from .form_browser import FormBrowser
from .page_checks import check_page
from .running import RunningServer
from .test_browser import Game, decide, set_session_cookie, wait_a_second

pytestmark = pytest.mark.live
CALLBACK = "https://client.example/callback"  # never requested, only parsed
KINDS = ["public", "confidential"]


@pytest.fixture(scope="module")
def ada(server: RunningServer) -> dict:
    """An administrator, who may register apps."""
    record = server.add_user("ada")
    with server.open_storage().users.edit(record["id"]) as user:
        user.mod_level = ADMINISTRATOR
    return record


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, server: RunningServer, ada: dict) -> Iterator[dict]:
    """An app of Ada, of each kind."""
    record = server.add_client(
        "Space Game", CALLBACK, owner="ada", public=request.param == "public"
    )
    yield record
    server.open_storage().clients.delete(record["client_id"])


def open_tester(page: Page, server: RunningServer, client: dict) -> None:
    set_session_cookie(page, server)
    page.goto(f"{server.address}/developer/{client['client_id']}/try")


def exchange(page: Page, client: dict) -> None:
    """Press the button that exchanges the code, with the secret if there is one."""
    if "client_secret" in client:
        page.get_by_label("Client secret").fill(client["client_secret"])
    page.get_by_role("button", name="Exchange the code").click()


def check_result(page: Page, answers: int = 2) -> None:
    """Check that the page shows the player and all messages, and no code in its address."""
    expect(page.get_by_role("heading", name="Hello, ada! It works.")).to_be_visible()
    expect(page.locator(".message")).to_have_count(6)
    expect(page.get_by_text("200 OK", exact=True)).to_have_count(answers)
    expect(page.get_by_text("All tokens that this app had for you have ended.")).to_be_visible()
    assert "?" not in page.url


@pytest.mark.browser
def test_tester_layout_and_accessibility(server: RunningServer, client: dict, browse):
    """Each page of a test: at the start, cancelled, with a code, wrong, and done."""
    page = browse()
    open_tester(page, server, client)
    page.get_by_role("button", name="Start").click()
    decide(page, "Cancel")
    expect(page.get_by_text("You pressed Cancel")).to_be_focused()
    check_page(page, has_problem=True)
    page.get_by_role("button", name="Start again").click()
    decide(page, "Allow")
    expect(page.get_by_text("Exchange it within 60 seconds")).to_be_focused()
    check_page(page)
    if "client_secret" in client:
        exchange(page, {"client_secret": "wrong"})
        expect(page.get_by_text("Wrong client secret.")).to_be_focused()
        check_page(page, has_problem=True)
    exchange(page, client)
    check_result(page)
    expect(page.get_by_role("group", name="Hello, ada! It works.")).to_be_focused()
    check_page(page)


@pytest.mark.browser
@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_device_tester_layout_and_accessibility(
    server: RunningServer, ada: dict, browse, java_script_enabled: bool
):
    """Each page of a test: the player decides in the tab that the link opens."""
    check = check_page if java_script_enabled else lambda page: None  # axe-core is a script
    fields = {"owner": "ada", "public": True, "device": True}
    client = server.add_client("Space Console", **fields)
    page = browse(java_script_enabled=java_script_enabled)
    open_tester(page, server, client)
    page.get_by_role("button", name="Start").click()
    user_code = page.locator(".user-code").text_content()
    check(page)
    page.get_by_role("button", name="Ask for the token").click()
    expect(page.get_by_text("The player has not decided yet.")).to_be_focused()
    check(page)
    with page.expect_popup() as opened:
        page.get_by_role("link", name=f"{server.address}/device").click()
    tab = opened.value
    expect(tab.get_by_label("Code")).to_have_value(user_code)
    tab.get_by_role("button", name="Continue").click()
    expect(tab.locator(".user-code")).to_have_text(user_code)
    wait_a_second(tab)
    tab.get_by_role("button", name="Allow").click()
    expect(tab.get_by_role("status")).to_have_text("Done. Go back to your device.")
    check(tab)
    page.get_by_role("button", name="Ask again").click()
    check_result(page, answers=3)
    expect(page.get_by_role("group", name="Hello, ada! It works.")).to_be_focused()
    check(page)


@pytest.mark.browser
def test_code_is_in_no_log_and_no_referer(server: RunningServer, client: dict, browse):
    """RFC 9700 4.2.4: nor is it in the address of a page, and all works without JavaScript."""
    page = browse(java_script_enabled=False)
    sent = []
    page.on("request", lambda request: sent.append((request.url, request.headers.get("referer"))))
    open_tester(page, server, client)
    page.get_by_role("button", name="Start").click()
    decide(page, "Allow")
    expect(page.get_by_text("You are back, with a code")).to_be_visible()
    assert "?" not in page.url
    exchange(page, client)
    check_result(page)
    page.reload()  # sends the form once more, but no code
    expect(page.get_by_text("This test is over")).to_be_visible()
    [code] = {match[1] for url, _ in sent if (match := re.search("[?]code=([^&]*)", url))}
    assert not any(code in (referer or "") for _, referer in sent)
    logged = server.access_log.read_text() + server.error_log.read_text()
    assert "/try/callback" in logged
    assert code not in logged
    assert client.get("client_secret", code) not in logged


@pytest.mark.browser
def test_game_is_registered_and_signs_in_with_the_code_that_is_shown(
    server: RunningServer, ada: dict, game: Game, page: Page
):
    page.goto(f"{server.address}/developer")
    page.get_by_label("A game on this site").check()
    check_page(page)
    page.get_by_label("Name", exact=True).fill("Kart Club")
    page.get_by_label("Address", exact=True).fill(f"{game.origin('localhost')}/")
    page.get_by_role("button", name="Register app").click()
    game.pages["/"] = page.locator("[data-copy='Copy page code']").text_content()
    page.get_by_role("link", name="Test your app").click()
    page.get_by_role("button", name="Start").click()
    decide(page, "Allow")
    page.get_by_role("button", name="Exchange the code").click()
    check_result(page)
    page.get_by_role("link", name="Kart Club").click()
    page.get_by_role("link", name="Play", exact=True).click()
    frame = page.frame_locator("#game")
    frame.get_by_role("button", name="Sign in").click()
    wait_a_second(page)
    page.get_by_role("button", name="Allow").click()
    expect(frame.locator("#player")).to_have_text("Hello, ada!")


@pytest.mark.browser
def test_program_is_set_up_by_its_address(server: RunningServer, page: Page):
    page.goto(f"{server.address}/developer")
    address, flair = (page.get_by_label(each, exact=True) for each in ("Address", "Flair"))
    page.get_by_label("A forum, wiki or chat").check()
    expect(page.get_by_label("Name", exact=True)).to_be_hidden()
    page.get_by_label("Program", exact=True).select_option(label="Traefik")
    address.fill("app.example")
    page.get_by_role("button", name="Register app").click()
    expect(page.get_by_text("Start with https://")).to_be_focused()
    check_page(page, has_problem=True)
    address.fill(f"https://{'w' * 60}.example/{'w' * 100}/")
    page.get_by_role("button", name="Register app").click()
    expect(page.locator(".done")).to_be_focused()
    expect(page.get_by_role("button", name="Copy settings 2")).to_be_visible()
    expect(flair).to_be_hidden()
    check_page(page)
    page.reload()
    expect(page.get_by_text("Put the client secret in place of CLIENT_SECRET.")).to_be_visible()
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Players with a flair").check()
    flair.fill("W" * 30)
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_text("App saved.")).to_be_focused()
    page.get_by_text("More", exact=True).click()
    expect(flair).to_have_value("W" * 30)
    check_page(page)


# -- samples --------------------------------------------------------------------------------------


def run_sample(command: list[str], form_browser: FormBrowser, client: dict) -> str:
    """Run a sample, open the address that it prints, paste the redirect; return what it prints."""
    environment = {**os.environ, "CLIENT_SECRET": client.get("client_secret", "")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as program:
        opened, address = program.stdout.readline().split()
        assert opened == "Open"
        redirect = form_browser.allow(address, "ada").address
        printed, _ = program.communicate(f"{redirect}\n", timeout=PATIENCE)
        assert program.returncode == 0
    return printed


SAMPLES = [(kind, "Python", [sys.executable, "-u"]) for kind in KINDS]
SAMPLES += [pytest.param("confidential", "JavaScript", ["node"], marks=pytest.mark.node)]


@pytest.mark.parametrize(("client", "language", "command"), SAMPLES, indirect=["client"])
def test_sample_signs_in(
    adas_form_browser: FormBrowser, client: dict, tmp_path: Path, language, command
):
    address = f"{adas_form_browser.server_address}/developer/{client['client_id']}/try"
    query = {"scope": "userinfo email"}
    page = adas_form_browser.session.get(address, params=query, timeout=PATIENCE)
    sample = parse(page).find(attrs={"data-copy": f"Copy code: {language}"}).text
    program = tmp_path / "sign_in.mjs"
    program.write_text(sample, encoding="utf-8")
    printed = run_sample([*command, str(program)], adas_form_browser, client)
    assert "'ada'" in printed and "ada@example.org" in printed
