"""The pages for developers in a real browser: layout, colours, keys, links."""

import pytest
from playwright.sync_api import expect

from . import test_browser
from .page_checks import check_page
from .running import RunningServer

pytestmark = [pytest.mark.live, pytest.mark.browser]
chromium, playwright = test_browser.chromium, test_browser.playwright
browse, console_errors = test_browser.browse, test_browser.console_errors
DOCS = "/developer/docs"
SMALL = {"width": 320, "height": 640}  # CSS pixels
# What lies outside of its card, and outside of a box that scrolls.
CUT_OFF = """[...document.querySelectorAll("main section *:not(.scroll *)")]
    .map(each => [each, each.closest("section")].map(one => one.getBoundingClientRect().right))
    .filter(([right, edge]) => right > edge)"""


def test_pages_fit_every_screen(server: RunningServer, browse, subtests):
    """The index, the longest page, one with a picture, and one each of engines and programs."""
    page = browse()
    for name in ("", "/games", "/grant", "/engines", "/godot", "/apps", "/discourse"):
        with subtests.test(name):
            page.goto(f"{server.address}{DOCS}{name}")
            check_page(page)
            page.set_viewport_size(SMALL)
            assert page.evaluate("document.documentElement.scrollWidth") <= SMALL["width"]
            assert page.evaluate(CUT_OFF) == []


def test_keys_scroll_a_wide_table(server: RunningServer, browse):
    page = browse(viewport=SMALL)
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
    page.get_by_role("navigation", name="On this page").get_by_role("link", name="Errors").click()
    expect(page.get_by_role("heading", name="Errors", exact=True)).to_be_in_viewport()
    page.get_by_role("button", name="Copy code 1", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()
