"""Back in with nothing but a browser and a mailbox, in Chromium."""

import itertools
import re
from collections.abc import Iterator

import pytest
from mail_server import MailServer, code_in, link_in, text_of_letter
from playwright.sync_api import expect
from waiting import wait_until

from .page_checks import check_page
from .running import PASSWORD, RunningServer, running_server

pytestmark = pytest.mark.browser

NEW = "another good phrase"
NUMBERS = itertools.count(100)


@pytest.fixture(scope="module")
def mail_server() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def server(mail_server) -> Iterator[RunningServer]:
    settings = {"SMTP_URL": mail_server.url(), "MAIL_FROM": "site@games.example"}
    with running_server(SIGN_UP="open", **settings) as server:
        yield server


@pytest.fixture
def player(server, mail_server) -> Iterator[str]:
    """The name of a player with a confirmed address, at the domain example.org."""
    server.forget_attempts()
    name = f"lea{next(NUMBERS)}"
    user = server.add_user(name)
    server.open_storage().users.change_email(user["id"], user["email"], verified=True)
    yield name


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
    check_page(page)
    page.get_by_label("Email").fill(f"{name}@example.org")
    page.get_by_role("button", name="Send the link").click()
    expect(page.get_by_text("Look in your mailbox.")).to_be_visible()
    check_page(page)


def test_link_of_a_letter_sets_a_password(server, mail_server, player, browse):
    page = browse()
    ask_for_letter(page, server, player)
    page.goto(link_in(letter_to(mail_server, player)))
    expect(page).not_to_have_url(re.compile("#"))  # no list of visited pages has it
    check_page(page)
    page.get_by_role("button", name="Continue").press("Enter")
    check_page(page)
    page.get_by_label("New password", exact=True).fill(NEW)
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_text("Password set. You are signed in.")).to_be_visible()


def test_link_of_a_letter_leads_back_to_where_the_sign_in_was_for(
    server, mail_server, player, browse
):
    page = browse()
    page.goto(f"{server.address}/sign-in?next=/users/1?app%3Dx")
    page.get_by_role("link", name="Set a new one").click()
    page.get_by_label("Email").fill(f"{player}@example.org")
    page.get_by_role("button", name="Send the link").click()
    expect(page.get_by_text("Look in your mailbox.")).to_be_visible()
    tab = page.context.new_page()
    tab.goto(link_in(letter_to(mail_server, player)))
    tab.get_by_role("button", name="Continue").click()
    tab.get_by_label("New password", exact=True).fill(NEW)
    tab.get_by_role("button", name="Set password").click()
    expect(tab.get_by_text("Password set. You are signed in.")).to_be_visible()
    check_page(tab)
    tab.get_by_role("link", name="Continue").click()
    expect(tab).to_have_url(f"{server.address}/users/1?app=x")


def test_another_device_asks_for_the_code(server, mail_server, player, browse):
    ask_for_letter(browse(), server, player)
    text, phone = letter_to(mail_server, player), browse(viewport={"width": 360, "height": 740})
    phone.goto(link_in(text))
    phone.get_by_role("button", name="Continue").click()
    phone.get_by_label("New password", exact=True).fill(NEW)
    phone.get_by_role("button", name="Set password").click()
    check_page(phone, has_problem=True)
    phone.get_by_label("Code from the email").fill(code_in(text))
    phone.get_by_label("New password", exact=True).fill(NEW)
    phone.get_by_role("button", name="Set password").click()
    expect(phone.get_by_text("Password set. You are signed in.")).to_be_visible()


def test_page_that_follows_links_changes_nothing(server, mail_server, player, browse):
    ask_for_letter(browse(), server, player)
    link, posts = link_in(letter_to(mail_server, player)), []
    scanner = browse()
    scanner.on("request", lambda each: posts.append(each) if each.method == "POST" else None)
    scanner.goto(link)
    scanner.wait_for_load_state("networkidle")
    assert posts == []
    assert link.partition("#")[2] not in server.access_log.read_text()


def test_without_script_the_code_or_a_pasted_link_works(server, mail_server, player, browse):
    page = browse(java_script_enabled=False)
    page.goto(f"{server.address}/recover")
    page.get_by_label("Email").fill(f"{player}@example.org")
    page.get_by_role("button", name="Send the link").click()
    text = letter_to(mail_server, player)
    page.get_by_text("Paste a link").click()
    page.get_by_label("Link", exact=True).fill(link_in(text))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Set password")).to_be_visible()
    page.goto(f"{server.address}/recover")
    page.get_by_label("Code from the email").fill(code_in(text))
    page.get_by_label("New password", exact=True).fill(NEW)
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_text("Password set. You are signed in.")).to_be_visible()


def test_new_player_confirms_the_address(server, mail_server, player, browse):
    """`player` is there first: on a new site nobody signs up without a link."""
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
