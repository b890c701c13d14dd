"""Layout and accessibility of every page in a real browser, with the longest texts."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
import requests
from playwright.sync_api import Page, Route, expect
from waiting import wait_until

from identity.acts import applications
from identity.acts import reports as report_acts
from identity.acts.actors import Actor, Authority
from identity.site.look import colours_of
from model.door_records import NetworkBan, NetworkBans, Text
from model.kinds import LOOKS, NETWORK_BANS, NOTES, OUTBOX, REPORTS, TEXTS, WEBHOOKS
from model.records import ADMINISTRATOR, MODERATOR, Grant, Session, Suspension, now_ms
from model.rules import REPORT_LENGTH
from model.site_records import Look, Message, Note, Webhook

from .page_checks import (
    AXE,
    COLOUR_RULES,
    SCREENS,
    check_layout,
    check_page,
    check_with_axe,
    drop_undelivered_messages,
    open_details,
    serious_findings,
    set_text_size,
    visible_boxes,
)
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer, running_server
from .test_browser import set_session_cookie

pytestmark = [pytest.mark.live, pytest.mark.browser]
WIDE, LONG, DAY = "W" * 30, "Donaudampfschifffahrtskapitaen", 86_400_000
LONG_URL = f"https://{'w' * 60}.example/{'w' * 160}"
EMAIL = "Email (optional)"  # the label of its field
ACCENTS = ("#7a3fb0", "#ff8800", "#fff3b0", "#000000")  # purple, orange, pale yellow, black
# Loads the style sheet of an accent instead of the saved one; without a reload of the page.
CHANGE_ACCENT = """number => new Promise((done, fail) => {
    const link = document.querySelector("link[href^='/look.css']");
    Object.assign(link, { onload: done, onerror: fail, href: `/look.css?number=${number}` });
})"""
COUNT_LINES = """button => {
    const range = document.createRange();
    range.selectNodeContents(button);
    return range.getClientRects().length;
}"""
PHONE = {"width": 375, "height": 800}  # CSS pixels


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server where sign-ups wait for approval, whose administrator is hopper."""
    with running_server(SIGN_UP="approval") as server:
        yield server


@pytest.fixture(scope="module")
def names(server: RunningServer) -> dict[str, str]:
    """Something of everything; what the addresses of the pages name."""
    store, now = server.open_storage(), now_ms()
    for number, name in enumerate(("hopper", WIDE, LONG, "lovelace", "ada", "علي", "grace"), 1):
        email = f"{'w' * 64}@{'w' * 60}.example.org" if name == WIDE else f"{number}@example.org"
        with store.users.edit(server.add_user(name, email)["id"]) as user:
            user.agreed = {"terms 1": now} if name != "grace" else {}
    for user_id, level in ((1, ADMINISTRATOR), (4, MODERATOR)):
        with store.users.edit(user_id) as user:
            user.mod_level, user.flairs = level, ["none", *(f"flair {i}" for i in range(199))]
    register = store.clients.register
    games = [
        register(
            f"{number}" + "W" * 59 * (number == 5),
            [LONG_URL],
            2,
            game_url=f"https://{'v' * 60}{number}.example/{'w' * 100}",
            description="W" * 1000 * (number == 5),
            tags=["role-playing", "multiplayer", "simulation"] * (number == 5),
            listed=number != 8,
            used=now,
        )[0]
        for number in range(10)  # listed ones enough for a search
    ]
    device, _ = register("W" * 60, [], 1, public=True, device=True)
    with store.users.edit(2) as user:
        user.bio = f"{'W' * 200}\n\nI play.\n" + "Often.\n" * 90
        user.flairs += ["early bird", WIDE]
        user.equipped_flair, user.play_ms = WIDE, 100 * 60_000
        user.grants[device.id] = Grant("a grant", ["userinfo", "email"], now, now)
        user.sessions.append(Session("x", 1, "W" * 60, now - 7_200_000, "2001:db8:1234:1234::"))
    for user_id, until in ((3, now + DAY), (6, None)):
        with store.users.edit(user_id) as suspended:
            networks = {"2001:db8:1234:1234::": now}
            suspended.suspension = Suspension("command", now, "W" * 200, until, networks)
            suspended.invited_by = 1
    report_acts.report(Authority(store, Actor(2)), suspended, "insults", "W" * REPORT_LENGTH)
    for uses in (1, 20):
        store.invites.issue(7, uses=uses, note="W" * 60, flair="x" * 30, used_by=[2, 3, 4, 9])
    announced = {"announcement": f"{'W' * 250} {LONG_URL}", "announced_until": now + DAY}
    terms = {
        "terms": 1,
        "terms_asked": 1,
        "terms_from": now,
        "shows_privacy": True,
        "minimum_age": 16,
    }
    store.records(LOOKS).add(Look("site", 5, announced=5, **announced, **terms))
    store.records(TEXTS).add(Text("terms", f"{'W' * 200}\n{LONG_URL}\n" * 20))
    networks = [NetworkBan(f"2001:db8:{n}::/48", now, now + DAY, 1, "W" * 200) for n in range(51)]
    store.records(NETWORK_BANS).add(NetworkBans("site", networks))
    for number in range(60):
        asked = {"name": f"{'W' * 28}{number}", "email": f"{number}@{'w' * 60}.example.org"}
        asked |= {"text": "W" * 300, "address": "2001:db8::", "language": "en", "agreed": {}}
        applications.apply(store, True, **asked, password_hash="none", underage=True)
    store.records(NOTES).add(Note("0" * 15 + "-00000000", 3, 1, "W" * 300, now))
    for number in range(120):
        store.audit.write("user suspend", 1, user=number % 6, days=7)
    store.records(WEBHOOKS).add(Webhook("chat", 5, "https://x.example/", "json", ["game"], "k"))
    failed = {"created": now, "expires": now + DAY, "problem": "It answered with 404."}
    for number, given_up in enumerate((0, 5)):
        message = Message(f"{number:015}-00000000", "chat", "player", "{}", **failed)
        message.given_up, message.due = given_up, now + DAY
        store.records(OUTBOX).add(message)
    [report] = store.records(REPORTS).ids()
    link = server.command_output("user", "sign-in-link", WIDE).removeprefix(server.address)
    form = {"client_id": device.id, "scope": "email groups"}
    asked = requests.post(f"{server.address}/oauth/device", form, timeout=ANSWER_TIMEOUT).json()
    authorize = "oauth/authorize?response_type=code&scope=email&client_id="
    return {
        **{"site": server.address, "report": report, "link": link.strip()},
        "invite": store.invites.issue(7, by=2, names_inviter=True),
        "code": asked["user_code"],
        **{"app": games[5].id, "hidden": games[8].id, "device": device.id},
        "consent": f"{authorize}{games[5].id}&redirect_uri={LONG_URL}",
        "unregistered": f"{authorize}{games[5].id}&redirect_uri={LONG_URL}{'v' * 200}",
    }


DOCUMENTS = ("", "/games", "/grant", "/engines", "/godot", "/apps", "/discourse")
OF_ADMINISTRATORS = (
    *("admin", "admin/players", "admin/players?list=suspended", "admin/players?name=zzz"),
    *("admin/docs", "admin/docs/administrator"),
    *("admin/invitations", "admin/apps", "admin/log", "admin/look", "admin/chat"),
    *("admin/announcement", "admin/door", "admin/networks"),
    *("admin/applications", "admin/applications?page=2"),
    "admin/applications?group=network%202001:db8::/48",
    *("users/3", "games/{app}", "developer", "developer/{app}", "developer/{app}/try"),
    *("developer/{device}", "developer/{device}/try"),
)
OF_GAMES = ("", "?q=zzz&order=name", "games/{hidden}", "games/{app}", "playing")
OF_PLAYERS = ("play/{app}", "play/{app}/signed-in")
PROBLEM = True
GAME = "A game on this site"  # the start of the label of a radio button
GATE = {"I am at least 16 years old": "", "I agree to the terms": ""}
SIGN_UP = {"Name": "W" * 100, EMAIL: "w" * 100, "Password": "W" * 100} | GATE
APPLICANT = {"Name": "M" * 30, EMAIL: f"{'w' * 60}@{'w' * 60}.example", "Password": PASSWORD} | GATE
BAN = {"Address or network": "2001:db8:1234::/48", "Reason": "W" * 200}
APP = {
    **{GAME: "", "Name": "W" * 60, "Description": "W" * 1000},
    **{"Redirect URIs": f"{LONG_URL}\nhttp://127.0.0.1/", "Address": f"{LONG_URL}/own"},
}
CONFIRMED = {"Current password": PASSWORD}
# The player or None, the address, and the way to the page: what is typed, the button that is
# pressed, and whether the page shows a form error. Nothing is typed into what is chosen.
PAGES = (
    *((None, each) for each in (*OF_GAMES, "sign-in", "nothing", "players", "recover", "users/2")),
    *((None, each) for each in (*OF_PLAYERS, "sign-up?next=/play/{app}/signed-in")),
    *((None, f"developer/docs{each}") for each in DOCUMENTS),
    (None, "sign-up?invite={invite}"),
    (None, "terms"),
    (None, "privacy"),
    (None, "sign-up", SIGN_UP, "Ask to join", PROBLEM),
    (None, "sign-up", APPLICANT | {"I am younger": ""}, "Ask to join"),
    (None, "sign-up", APPLICANT, "Ask to join"),
    (None, "application", {"Name": "W" * 100}, "Save", PROBLEM),
    (None, "application", {}, "Delete my request"),
    (None, "{link}", {}, "Continue"),
    *((WIDE, each) for each in ("", "{consent}", "account/apps", "account/security")),
    (WIDE, "account", {}, "Save profile"),
    (WIDE, "account", {"Name": "W" * 100, "About you": "W" * 1001}, "Save profile", PROBLEM),
    (WIDE, "account/security", CONFIRMED | {EMAIL: "W" * 100}, "Save email", PROBLEM),
    (WIDE, "account/security", CONFIRMED | {"New password": WIDE}, "Change password", PROBLEM),
    (WIDE, "users/6/report"),
    *(("ada", each) for each in (*OF_PLAYERS, "account/apps", "account/data", "{unregistered}")),
    ("ada", "device"),
    ("ada", "users/2/report"),
    ("ada", "device", {"Code": "BBBB-BBBB"}, "Continue", PROBLEM),
    ("ada", "device", {"Code": "{code}"}, "Continue"),
    *(("lovelace", each) for each in (*OF_GAMES, "users/6", "admin", "admin/reports/{report}")),
    *(("lovelace", f"welcome{each}") for each in ("", "/flair", "/game", "?next=/play/{app}")),
    ("lovelace", "players", {"Name": "nobody"}, "Search"),
    ("grace", "terms"),
    *(("hopper", each) for each in OF_ADMINISTRATORS),
    ("hopper", "users/3", {}, "Look for them"),
    ("hopper", "admin/networks", BAN, "Show who would be hit"),
    ("hopper", "admin/networks", BAN | {"Days": "91"}, "Show who would be hit", PROBLEM),
    ("hopper", "admin/applications", {}, "Decline chosen", PROBLEM),
    ("hopper", "users/2", {"New flair": "W" * 200}, "Grant flair", PROBLEM),
    ("hopper", "developer", APP | {"Address": "{site}/game"}, "Register app", PROBLEM),
    ("hopper", "developer", APP, "Register app"),
    ("hopper", "games/{app}", {}, "Unlist"),
)
ERRORS = {"nothing": 404, "{unregistered}": 400}


def visit(pages, page: Page, server: RunningServer, names: dict[str, str], subtests, check) -> None:
    """Call `check` with each of some PAGES, open, and whether it shows a form error."""
    signed_in = None
    page.route("https://vvv*/**", lambda route: route.fulfill(body="<title>Game</title>"))
    for player, path, *way in pages:
        typed, button, has_problem = [*way, *({}, "", False)[len(way) :]]
        with subtests.test(path, player=player, button=button):
            if player != signed_in:
                set_session_cookie(page, server, player)
                signed_in = player
            answer = page.goto(f"{server.address}/{path.format_map(names).removeprefix('/')}")
            assert answer.status == ERRORS.get(path, 200)
            assert not player or "/sign-in" not in page.url  # not sent away
            open_details(page)
            for label, text in typed.items():
                field = page.locator("form", has=page.get_by_role("button", name=button))
                field = field.get_by_label(label, exact=bool(text))
                if text:
                    field.fill(text.format_map(names))
                else:  # a button to choose
                    field.check()
            if button:
                with page.expect_navigation():
                    page.get_by_role("button", name=button, exact=True).click()
                open_details(page)
            check(page, has_problem)


def test_every_page_fits_every_screen_and_is_accessible(
    server: RunningServer, names: dict[str, str], browse, subtests, console_errors: list[str]
):
    visit(PAGES, browse(), server, names, subtests, check_page)
    drop_undelivered_messages(console_errors)


@pytest.mark.slow
def test_every_page_can_be_read_with_each_accent(
    server: RunningServer, names: dict[str, str], browse, subtests, console_errors: list[str]
):
    looks, sheets, page = server.open_storage().records(LOOKS), [], browse()
    look = looks.read("site")
    for number, accent in enumerate(ACCENTS):
        looks.put(replace(look, changed=number + 6, accent=accent))
        sheets.append(requests.get(f"{server.address}/look.css", timeout=ANSWER_TIMEOUT).text)

    def show_sheet(route: Route) -> None:
        sheet = sheets[int(route.request.url[-1])]
        route.fulfill(body=sheet, content_type="text/css")

    def check_colours(page: Page, _: bool) -> None:
        page.evaluate(AXE.axe_script)
        for number in range(len(sheets)):
            page.evaluate(CHANGE_ACCENT, number)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                findings = serious_findings(page, runOnly=COLOUR_RULES)
                assert not findings, (ACCENTS[number], scheme, findings)

    page.route(re.compile(r"look\.css\?number="), show_sheet)
    visit([each for each in PAGES if len(each) == 2], page, server, names, subtests, check_colours)
    looks.put(look)
    drop_undelivered_messages(console_errors)


# -- what single pages promise --------------------------------------------------------------------


def test_layout_check_finds_each_problem(browse, subtests):
    page = browse()
    for html, problem in (
        ("<p style='width: 101vw'>wide", "too wide"),
        ("<p class=quiet style='margin-left: -9px'>off", "off the screen"),
        ("<button>low</button>", "too low"),
        ("<main><section style='width: 99px'><p style='width: 100px'>cut", "cut off by its card"),
        ("<header><a class=site></a></header><main><section>low", "not at the top"),
    ):
        with subtests.test(problem):
            page.set_content(f"<!doctype html><style>body {{ margin: 0 }}</style>{html}")
            with pytest.raises(AssertionError, match=problem):
                check_layout(page)


def test_site_name_and_menu_are_one_row_on_a_phone(server: RunningServer, names, browse):
    page = browse(viewport=PHONE)
    for name, count in ((None, 3), (WIDE, 3), ("hopper", 4)):
        if name:
            set_session_cookie(page, server, name)
        page.goto(server.address)
        # The site's name is the administrator's choice, and may be long.
        page.locator(".site bdi").evaluate("name => (name.textContent = 'W'.repeat(30))")
        # The site and the players; then the sign-in or the menu, and Admin.
        boxes = visible_boxes(page, "header a, header button, header summary")
        assert len(boxes) == count
        assert len({box["y"] + box["height"] / 2 for box in boxes}) == 1, boxes
        assert all(one["right"] <= next_one["x"] for one, next_one in pairwise(boxes)), boxes
        assert boxes[-1]["right"] <= PHONE["width"]


def test_allow_and_cancel_are_one_line_at_each_text_size(server: RunningServer, names, browse):
    page = browse(viewport={"width": 390, "height": 844})
    set_session_cookie(page, server, WIDE)
    page.goto(f"{server.address}/{names['consent']}")
    for size in SCREENS[390]:
        set_text_size(page, size)
        for button in ("Allow", "Cancel"):
            label = page.get_by_role("button", name=button, exact=True)
            assert label.evaluate(COUNT_LINES) == 1, (button, size)


def test_sections_of_security_are_closed_on_a_phone_without_an_error(
    server: RunningServer, names, browse
):
    page = browse(viewport={"width": 1280, "height": 844}, java_script_enabled=False)
    set_session_cookie(page, server, "ada")
    page.goto(f"{server.address}/account/security")
    password = page.get_by_label("New password", exact=True)
    expect(password).to_be_visible()
    expect(page.locator(".fold summary").first).to_be_hidden()
    page.set_viewport_size(PHONE)
    expect(password).to_be_hidden()
    for title in ("Password", "Email", "Where you are signed in"):
        expect(page.get_by_role("heading", name=title)).to_have_count(1)
    page.locator("summary", has_text="Password").first.click()
    password.fill("password1234")  # too common
    page.get_by_label("Current password").first.fill(PASSWORD)
    page.get_by_role("button", name="Change password").click()
    expect(page.locator(".fold .problem")).to_be_visible()
    expect(page.locator(".fold details[open]")).to_have_count(1)


def test_long_bio_scrolls_by_keyboard(server: RunningServer, names, browse):
    page = browse(viewport={"width": 390, "height": 844})
    page.goto(f"{server.address}/users/2")
    bio = page.locator(".bio")
    assert bio.bounding_box()["height"] < 844
    bio.focus()
    page.keyboard.press("End")
    wait_until(lambda: bio.evaluate("bio => bio.scrollTop > 0"))


def test_warning_fits_every_screen_until_it_is_confirmed(server: RunningServer, names, browse):
    store, page = server.open_storage(), browse()
    note = Note("0" * 15 + "-00000001", 5, 1, "W" * 300, now_ms(), warns=True)
    store.records(NOTES).add(note)
    with store.users.edit(note.user_id) as ada:
        ada.warning = note.id
    set_session_cookie(page, server, "ada")
    page.goto(f"{server.address}/account/apps")
    check_with_axe(page)
    page.locator("main section").evaluate_all("all => all.forEach(each => each.remove())")
    check_layout(page)  # by then the page is old enough for a press
    page.get_by_role("button", name="I have read this").click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator(".warning")).to_have_count(0)
    assert page.url == f"{server.address}/account/apps"


def test_shade_of_the_accent_fills_the_buttons(server: RunningServer, names, browse):
    looks = server.open_storage().records(LOOKS)
    looks.put(Look("site", 5, accent=ACCENTS[0]))
    page = browse()
    page.goto(f"{server.address}/sign-in")
    for scheme, theme in zip(("light", "dark"), colours_of(ACCENTS[0]), strict=True):
        page.emulate_media(color_scheme=scheme)
        colour = theme["leaf"]
        rgb = ", ".join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
        button = page.get_by_role("button", name="Sign in")
        expect(button).to_have_css("background-color", f"rgb({rgb})")
    check_page(page)
    looks.delete("site")
