"""The pages of moderators and administrators in a real browser, with texts of any length."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from identity.acts.look import DARK, LIGHT, shade
from model.kinds import LOOKS, NOTES, OUTBOX, WEBHOOKS
from model.records import ADMINISTRATOR, Suspension, now_ms
from model.site_records import Look, Message, Note, Webhook

from .page_checks import check_page
from .running import RunningServer, running_server
from .test_browser import set_session_cookie

pytestmark = [pytest.mark.live, pytest.mark.browser]
LONG, DAY = "Donaudampfschifffahrtskapitaen", 86_400_000
ACCENT = "#7a3fb0"
PAGES = (
    *("/admin", "/admin/players", "/admin/players?list=suspended", "/admin/players?name=zzz"),
    *("/admin/invitations", "/admin/apps", "/admin/log", "/admin/look", "/admin/chat"),
    *("/users/2", "/games/<game>", "/developer/<game>"),
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with the administrator hopper, and something of everything that waits."""
    with running_server() as server:
        store, now = server.open_storage(), now_ms()
        for name in ("hopper", LONG, "W" * 30, "علي"):
            server.add_user(name, f"{len(store.users.ids())}@example.org")
        with store.users.edit(1) as user:
            user.mod_level = ADMINISTRATOR
        for user_id, until in ((2, now + DAY), (3, None)):
            with store.users.edit(user_id) as user:
                user.suspension = Suspension("command", now, "W" * 200, until)
                user.invited_by = 1
        store.clients.register("W" * 60, [], 2, game_url="https://game.example/", used=now)
        for uses in (1, 20):
            store.invites.issue(7, uses=uses, note="W" * 60, flair="x" * 30, used_by=[2, 3, 4, 9])
        store.records(NOTES).add(Note("0" * 15 + "-00000000", 2, 1, "W" * 300, now))
        for number in range(120):
            store.audit.write("user suspend", 1, user=number % 6, days=7)
        store.records(WEBHOOKS).add(Webhook("chat", 5, "https://x.example/", "json", ["game"], "k"))
        failed = {"created": now, "expires": now + DAY, "problem": "It answered with 404."}
        for number, given_up in enumerate((0, 5)):
            message = Message(f"{number:015}-00000000", "chat", "player", "{}", **failed)
            message.given_up, message.due = given_up, now + DAY
            store.records(OUTBOX).add(message)
        yield server


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_administrators_fit_and_are_accessible(server, browse, subtests, scheme):
    [game] = server.open_storage().clients.ids()
    page = browse(color_scheme=scheme)
    set_session_cookie(page, server, "hopper")
    for address in PAGES:
        with subtests.test(address):
            page.goto(server.address + address.replace("<game>", game))
            for each in page.locator(".acts details").all():
                each.evaluate("element => { element.open = true }")
            check_page(page)


def test_shade_of_the_accent_fills_the_buttons(server, browse):
    store = server.open_storage()
    store.records(LOOKS).add(Look("site", 5, accent=ACCENT))
    for scheme, theme in (("light", LIGHT), ("dark", DARK)):
        page = browse(color_scheme=scheme)
        page.goto(f"{server.address}/sign-in")
        colour = shade(ACCENT, theme).colour
        rgb = ", ".join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
        expect(page.get_by_role("button", name="Sign in")).to_have_css(
            "background-color", f"rgb({rgb})"
        )
        check_page(page)
    store.records(LOOKS).delete("site")
