"""Pages in Chromium in other languages: from right to left, and in words a third longer."""

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pseudo import accented, arabic, pseudo_language
from werkzeug.serving import make_server

from identity.acts import accounts
from identity.acts.actors import Actor, Authority
from identity.site.catalogues import LANGUAGES
from identity_server import create_app

from . import test_every_page
from .page_checks import FIRST_CARD, LAYOUT_PROBLEMS, TOUCH_TARGET, visible_boxes
from .running import RunningServer, running_server
from .test_browser import set_session_cookie
from .test_every_page import WIDE, visit

pytestmark = [pytest.mark.live, pytest.mark.browser]

names = test_every_page.names
PAGES = (
    *((None, each) for each in ("", "games/{app}", "play/{app}", "players", "users/2", "language")),
    *((None, each) for each in ("sign-in", "sign-up?invite={invite}", "recover")),
    *((WIDE, each) for each in ("{consent}", "account", "account/security")),
    *(("lovelace", each) for each in ("welcome", "admin/reports/{report}")),
    *(("hopper", f"admin{each}") for each in ("", "/players", "/invitations", "/log", "/look")),
    *(("hopper", each) for each in ("", "users/3")),
)
# Nothing but texts and fields: from right to left they are like those above.
FORMS = (
    *(("ada", each) for each in ("account/apps", "account/data", "device", "users/2/report")),
    *(("hopper", each) for each in ("admin/chat", "admin/announcement")),
)
# Words of sentences with a line end inside. A pseudo language has no letter of ASCII in them.
BROKEN_WORDS = r"""() => {
    const broken = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text; (text = texts.nextNode()); )
        for (const word of text.data.matchAll(/[^\x00-\x7f“”…]{2,}/g)) {
            const around = text.parentElement;
            if (around.closest("bdi, .unseen, option") || !around.checkVisibility()) continue;
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            const boxes = [...range.getClientRects()].filter((box) => box.width);
            if (new Set(boxes.map((box) => box.top)).size > 1) broken.push(word[0]);
        }
    return broken;
}"""
# Names whose beginning is outside of what cuts them off.
CUT_NAMES = """() => [...document.querySelectorAll("bdi")].filter((name) => {
    let around = name;
    while (around && getComputedStyle(around).textOverflow !== "ellipsis")
        around = around.parentElement;
    if (!around || !name.checkVisibility() || !name.firstChild?.length) return false;
    const range = document.createRange(), box = around.getBoundingClientRect();
    range.setStart(name.firstChild, 0);
    range.setEnd(name.firstChild, 1);
    const { left, right } = range.getBoundingClientRect();
    return box.width > 1 && (left < box.left - 1 || right > box.right + 1);
}).map((name) => name.parentElement.outerHTML.slice(0, 200))"""


class Served(RunningServer):
    """A server in a thread of this process, which has the pseudo languages."""

    def start(self) -> None:
        self.address = f"http://127.0.0.1:{self._port}"
        folders = {"DATA_DIR": str(self.data_dir), "PICTURE_DIR": str(self.picture_dir)}
        app = create_app({**folders, "BASE_URL": self.address, **self.settings})
        self.server = make_server("127.0.0.1", self._port, app, threaded=True)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def end(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with running_server(Served, SIGN_UP="open") as server:
        yield server


@pytest.fixture(scope="module")
def someone_plays(server: Served, names: dict[str, str]) -> None:
    """Ada plays a game with a long name."""
    store = server.open_storage()
    with store.users.edit(5) as ada:
        ada.created = ada.last_heartbeat = 1  # the sign-up counts as a heartbeat
    accounts.add_heartbeat(Authority(store, Actor(5)), 5, names["app"])


def set_language(page: Page, server: Served, code: str) -> None:
    page.context.add_cookies([{"name": "language", "value": code, "url": server.address}])


@pytest.mark.parametrize(
    ("code", "change", "pages"), [("ar", arabic, PAGES), ("qps", accented, PAGES + FORMS)]
)
def test_pages_fit_and_break_no_word(
    server, names, someone_plays, browse, subtests, tmp_path: Path, code, change: Callable, pages
):
    page = browse()
    set_language(page, server, code)

    def check(page: Page, _: bool) -> None:
        shown = page.locator("html")
        assert shown.get_attribute("dir") == ("rtl" if code == "ar" else "ltr")
        for width in (1280, 320):
            page.set_viewport_size({"width": width, "height": 844})
            assert page.evaluate(LAYOUT_PROBLEMS, [FIRST_CARD, TOUCH_TARGET, True]) == []
            assert page.evaluate(CUT_NAMES) == []
        assert page.evaluate(BROKEN_WORDS) == []

    with pseudo_language(tmp_path, code, change):
        visit(pages, page, server, names, subtests, check)


@pytest.mark.parametrize(
    ("player", "path", "texts", "text"),
    [
        (WIDE, "{consent}", ".choice button", "Предоставить"),
        (None, "users/2", "dl *", "Последнее посещение"),
    ],
)
def test_columns_are_as_wide_as_their_words(
    server, names, browse, player: str | None, path: str, texts: str, text: str
):
    """As in Russian, for example: "Allow" and "Cancel" stand below each other."""
    page = browse(viewport={"width": 320, "height": 844})
    if player:
        set_session_cookie(page, server, player)
    page.goto(f"{server.address}/{path.format_map(names)}")
    page.locator(texts).evaluate_all(
        "(all, text) => all.forEach((each) => (each.textContent = text))", text
    )
    assert page.evaluate(BROKEN_WORDS) == []


def test_header_of_administrators_is_one_row_on_a_small_phone(server, names, browse, subtests):
    page = browse(viewport={"width": 320, "height": 844})
    set_session_cookie(page, server, "hopper")
    for code in LANGUAGES:
        with subtests.test(code):
            set_language(page, server, code)
            page.goto(f"{server.address}/language")
            page.locator(".count").evaluate("count => (count.textContent = '99+')")
            boxes = visible_boxes(page, "header a, header summary")
            assert len(boxes) == 4
            assert len({box["y"] + box["height"] / 2 for box in boxes}) == 1, boxes
            assert all(one["right"] <= next_one["x"] for one, next_one in pairwise(boxes)), boxes


def test_language_is_chosen_by_keyboard(server, names, browse):
    page = browse()
    page.goto(f"{server.address}/language?next=/recover")
    page.get_by_role("button", name="Deutsch", exact=True).press("Enter")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    assert page.url == f"{server.address}/recover"
    page.goto(f"{server.address}/language")
    current = page.locator("main [aria-current]")
    expect(current).to_have_accessible_name("Deutsch")
    # Not by its colour alone.
    assert "✓" in current.evaluate("each => getComputedStyle(each, '::before').content")
