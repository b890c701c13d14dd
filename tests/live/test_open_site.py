"""A month of the administrator of an open site: bots, a banned member, terms and privacy."""

import contextlib
import re
from functools import partial

import pytest
import requests
from playwright.sync_api import Page, expect
from test_chat import Chat
from waiting import wait_until

from model.kind import DAY_MS
from model.records import ADMINISTRATOR, MODERATOR

from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer, running_server
from .test_browser import Game, decide, sign_in
from .test_journeys import expect_notice, go_to, press

pytestmark = [pytest.mark.live, pytest.mark.browser]
HOME = "203.0.113.7"  # of a member who is banned, and of a flatmate


class OpenServer(RunningServer):
    is_quick = False  # asks for the real proof of work


@pytest.fixture
def site(backend, tmp_path):
    """An open site behind a proxy on each backend, with four old members."""
    settings = {"STORAGE": backend.setting(str(tmp_path)), "WEBHOOK_PRIVATE": "on"}
    settings |= {"SIGN_UP": "open", "PROXIES": "1", "TICKET_DAYS": "3"}
    with running_server(OpenServer, **settings) as site:
        for name, level in (("Boss", ADMINISTRATOR), ("Mo", MODERATOR), ("Rex", 0), ("Fay", 0)):
            with site.open_storage().users.edit(site.add_user(name)["id"]) as user:
                user.mod_level, user.created = level, user.created - 365 * DAY_MS
        yield site


def visit(site: OpenServer, browse, address: str, path="/sign-up", name="", **options):
    """Return a page of a new browser that has an address of its own, signed in by `name`."""
    page = browse(extra_http_headers={"X-Forwarded-For": address}, **options)
    page.goto(f"{site.address}{path}")
    if name:
        sign_in(page, name)
    return page


def sign_up(page: Page, name: str, email: str = "", age="at least 16", button="Create account"):
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Email (optional)").fill(email)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label(age).check()
    page.get_by_label("I agree to the terms").check()
    page.get_by_role("button", name=button).click()


def save(page: Page, button: str, notice: str, *checked: str, **typed: str) -> None:
    """Fill in a form by the beginnings of its labels, and read what was done."""
    for label, text in typed.items():
        page.get_by_label(label.replace("_", " ")).first.fill(text)
    for label in checked:
        page.get_by_label(label).check()
    press(page, button)
    expect_notice(page, notice)


def expect_texts(page: Page, *texts: str) -> None:
    for text in texts:
        expect(page.locator("main").get_by_text(text).first).to_be_visible()


def check_ticket(site: OpenServer, page: Page, client: dict, uri: str) -> dict:
    """Allow a program, whose game server then asks whose ticket it got; return the answer."""
    request = f"client_id={client['client_id']}&redirect_uri={uri}&scope=userinfo%20join"
    page.goto(f"{site.address}/oauth/authorize?response_type=code&{request}")
    decide(page)
    page.wait_for_url(f"{uri}**")
    [code] = re.findall(r"[?&]code=([^&]+)", page.url)
    token = site.exchange_code(code, **client, redirect_uri=uri).json()["access_token"]
    headers, form = {"Authorization": f"Bearer {token}"}, {"server": "play.example.org:30000"}
    send = partial(requests.post, timeout=ANSWER_TIMEOUT)
    form |= {"ticket": send(f"{site.address}/api/tickets", form, headers=headers).json()["ticket"]}
    return send(f"{site.address}/api/tickets/check", form).json()


@pytest.mark.parametrize(
    "backend",
    ["flat files", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.slow])],
    indirect=True,
)
def test_open_site_needs_no_shell_for_a_month(site: OpenServer, game: Game, browse):
    client = site.add_client("Space Game", uri := f"{game.origin()}/callback")
    arrive = partial(visit, site, browse)
    boss, moderator = (arrive("192.0.2.1", "/sign-in?next=/admin", name) for name in ("Boss", "Mo"))
    with contextlib.closing(Chat()) as chat:
        # Who may come in, the terms, and what the chat is told.
        go_to(boss, "Door")
        boss.get_by_label("Minimum age").select_option("16")
        save(boss, "Save", "Saved.", "Refuse addresses of throw-away services")
        save(boss, "Save terms", "Terms saved.", Text="Be kind.")
        go_to(boss, "Chat")
        hook = f"http://127.0.0.1:{chat.port}/hook"
        save(boss, "Save", "Saved.", "Requests to join", Address=hook)
        # Three come in without a proof of work, one with it, and two do not.
        for number, name in enumerate(("Ana", "Ben", "Cleo", "Dan"), 10):
            person = arrive(f"192.0.2.{number}")
            expect(person.locator("[name=challenge]")).to_have_count(int(name == "Dan"))
            sign_up(person, name)
            expect_texts(person, "Welcome, ")
        tom = arrive("192.0.2.20")
        sign_up(tom, "Tom", "tom@mailinator.com")
        expect_texts(tom, "This site does not take email addresses of this domain.")
        sign_up(tom, "Tom", age="I am younger")
        expect_texts(tom, "You have to be at least 16 years old")
        # One without JavaScript asks to join; so do three bots.
        eve = arrive("192.0.2.21", java_script_enabled=False)
        sign_up(eve, "Eve", button="Wait for approval")
        save(eve, "Save", "Saved.", How_did_you="Ana told me.")
        for number in (1, 2, 3):
            bot = FormBrowser(site.address)
            bot.session.headers["X-Forwarded-For"] = f"198.51.100.{number}"
            typed = {"name": f"Bot {number}", "password": PASSWORD, "age": "16", "terms": "yes"}
            bot.press(bot.open("/sign-up"), "Wait for approval", **typed)
            bot.close()
        wait_until(lambda: len(chat.received) == 4)
        assert b"Eve asks to join." in chat.received[0][1]
    # A moderator lets one in, and declines the others at once. Both read that.
    go_to(moderator, "Requests to join")
    expect_texts(moderator, "4 people ask to join", "Ana told me.")
    save(moderator, "Approve chosen", "1 request decided.", "Eve")
    moderator.get_by_role("link", name="Network 198.51.100.0/24").click()
    save(moderator, "Decline all 3", "3 requests decided.", Reason="You look like bots.")
    for name, told in (("Eve", "A moderator let you in."), ("Bot 2", "You look like bots.")):
        expect_texts(arrive("192.0.2.22", "/sign-in", name), told)
    # A member is suspended, and comes back with a new account, but not to a game server.
    expect_texts(arrive(HOME, "/sign-in", "Rex"), "Hello, Rex!")
    expect_texts(fay := arrive(HOME, "/sign-in", "Fay"), "Hello, Fay!")
    moderator.goto(f"{site.address}/users/3")
    moderator.locator("summary", has_text="Suspend").click()
    save(moderator, "Suspend player", "Player suspended.", Reason="Cheats.")
    sign_up(back := arrive(HOME), "Rexy")
    expect_texts(back, "Welcome, ")
    assert "younger than 3 days" in check_ticket(site, back, client, uri)["message"]
    assert check_ticket(site, fay, client, uri)["user"]["name"] == "Fay"
    # The moderator finds that account, and bans the network; the flatmate is not hit.
    press(moderator, "Look for them")
    links = moderator.get_by_role("status").get_by_role("link")
    expect(links).to_have_text(["Rexy", "Fay", f"Network {HOME}"])
    go_to(moderator, "Networks")
    ban = {"Address_or_network": HOME, "Days_before": "1", "Reason": "Cheats again."}
    save(moderator, "Show who would be hit", "3 accounts used this network lately.", **ban)
    expect_texts(moderator, "1 of them can't sign in from there any more.")
    save(moderator, "Ban network", "Network banned.")
    back = arrive(HOME, "/sign-in", "Rexy")
    expect_texts(back, "New accounts can't sign in from your network", "Cheats again.")
    sign_up(back := arrive(HOME), "Rexyy")
    expect_texts(back, "Nobody can join from your network until")
    # New terms: the flatmate reads them first, then is where they wanted to go.
    go_to(boss, "Door")
    save(boss, "Save terms", "Terms saved.", "Players have to agree", Text="No cheats.")
    expect_texts(fay := arrive(HOME, "/account/apps", "Fay"), "No cheats.")
    press(fay, "I agree")
    expect(fay).to_have_url(f"{site.address}/account/apps")
    # What is kept, and what was done.
    fay.goto(f"{site.address}/privacy")
    expect_texts(fay, "no birthday", "Requests to join, for 30 days", "in the log, for 90 days")
    go_to(boss, "Log")
    expect_texts(boss, "Boss changed who may come in.", "Boss changed the terms.")
    expect_texts(boss, "Mo banned a network.", "Mo declined a request to join.")
