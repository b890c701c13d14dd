"""What holds of how every page looks, in light and dark, on a phone and on a desktop."""

import shutil
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

# The headless shell is Chromium without its own windows and menus: a third of the processor time.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
AXE = Axe()
BY_COLOUR = ["color-contrast", "link-in-text-block"]  # axe-core's rules that look at colours
CONTROLS = "button, .button, input:not([type=hidden]), select, textarea"
TARGET = 44  # CSS pixels: the least height of what a finger presses (WCAG 2.5.5)


def forget_undelivered_messages(complaints: list[str]) -> None:
    """Drop what the console says of messages to an origin that the other window does not have.

    For a test in which such messages are sent on purpose, or by axe-core between frames: Chromium
    with windows tells nobody of them, the headless shell does.
    """
    complaints[:] = [each for each in complaints if "The target origin provided" not in each]


def check_looks(page: Page, has_problem: bool = False) -> None:
    """What holds of every page; one that tells of a problem leads there."""
    # A page that has its text, and its stylesheet not yet, is measured without it.
    page.wait_for_load_state()
    page.get_by_role("heading", level=1).wait_for()
    assert page.title().startswith("Problem: ") == has_problem
    expect(page.locator(".problem:focus")).to_have_count(int(has_problem))
    check_with_axe(page)
    for width, height in ((390, 844), (1280, 800)):  # CSS pixels: a phone, a desktop
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = visible_boxes(page, CONTROLS)
        assert all(box["height"] >= TARGET for box in boxes)
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)


def visible_boxes(page: Page, selector: str) -> list[dict[str, float]]:
    """Where each element that can be seen is, in CSS pixels from the top left of the window."""
    return page.locator(selector).evaluate_all(
        """found => found
            .filter(each => each.checkVisibility({ visibilityProperty: true }))
            .map(each => each.getBoundingClientRect().toJSON())
            .filter(({ width, height }) => width && height)"""
    )


def check_with_axe(page: Page) -> None:
    """Axe-core finds nothing serious, in light and in dark, which differ in colours alone."""
    page.evaluate(AXE.axe_script)
    for color_scheme, options in (("light", {}), ("dark", {"runOnly": BY_COLOUR})):
        page.emulate_media(color_scheme=color_scheme)
        found = serious_findings(page, **options)
        assert not found, found


def serious_findings(page: Page, **options: Any) -> list[tuple[str, str, str]]:
    """What axe-core finds on a page that has it: the rule, the element and why."""
    options = {"resultTypes": ["violations"], **options}
    results = page.evaluate("options => axe.run(options)", options)
    return [
        (each["id"], node["html"], node["failureSummary"])
        for each in results["violations"]
        for node in each["nodes"]
        if each["impact"] in ("serious", "critical")
    ]
