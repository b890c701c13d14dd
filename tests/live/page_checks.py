"""Layout and accessibility checks for pages: light and dark, phone and desktop."""

import shutil
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

# The headless shell, Chromium without its user interface, takes a third of the processor time.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
AXE = Axe()
COLOUR_RULES = ["color-contrast", "link-in-text-block"]  # axe-core's rules about colours
CONTROLS = "button, .button, input:not([type=hidden]), select, textarea"
FIRST_CARD = 84  # CSS pixels: the top of the first card of every page with the site's header
TOUCH_TARGET = 44  # CSS pixels: the minimum height of a touch target (WCAG 2.5.5)

CARD_TOPS = """[...document.querySelectorAll("header:has(.site) ~ main section")]
    .map(card => card.getBoundingClientRect().top + scrollY)"""


def drop_undelivered_messages(console_errors: list[str]) -> None:
    """Drop console messages about a postMessage whose target origin does not match.

    For tests in which such messages are sent on purpose, or by axe-core between frames. The
    headless shell logs them, Chromium with windows does not.
    """
    console_errors[:] = [
        each for each in console_errors if "The target origin provided" not in each
    ]


def check_page(page: Page, has_problem: bool = False) -> None:
    """Check layout and accessibility; a form error must have the focus and be in the title."""
    # Before the stylesheet has loaded, the measurements would be wrong.
    page.wait_for_load_state()
    page.get_by_role("heading", level=1).wait_for()
    assert page.title().startswith("Problem: ") == has_problem
    expect(page.locator(".problem:focus")).to_have_count(int(has_problem))
    check_focus_without_ring(page)
    check_with_axe(page)
    for width, height in ((390, 844), (1280, 800)):  # CSS pixels: a phone, a desktop
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        has_header = page.locator("header .site").count()
        assert page.evaluate(CARD_TOPS)[:1] == [FIRST_CARD] * has_header
        boxes = visible_boxes(page, CONTROLS)
        assert all(box["height"] >= TOUCH_TARGET for box in boxes)
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)


def check_focus_without_ring(page: Page) -> None:
    """Check that there is no ring around what got the focus from the page, for screen readers."""
    for each in page.locator('[tabindex="-1"]:focus').all():
        expect(each).to_have_css("outline-style", "none")


def visible_boxes(page: Page, selector: str) -> list[dict[str, float]]:
    """Return the bounding box of each visible element, in CSS pixels from the top left."""
    return page.locator(selector).evaluate_all(
        """found => found
            .filter(each => each.checkVisibility({ visibilityProperty: true }))
            .map(each => each.getBoundingClientRect().toJSON())
            .filter(({ width, height }) => width && height)"""
    )


def check_with_axe(page: Page) -> None:
    """Check that axe-core finds nothing serious, in light and in dark (which differ in colours)."""
    page.evaluate(AXE.axe_script)
    for color_scheme, options in (("light", {}), ("dark", {"runOnly": COLOUR_RULES})):
        page.emulate_media(color_scheme=color_scheme)
        findings = serious_findings(page, **options)
        assert not findings, findings


def serious_findings(page: Page, **options: Any) -> list[tuple[str, str, str]]:
    """Return axe-core's serious findings as (rule, element, reason); axe must be loaded."""
    options = {"resultTypes": ["violations"], **options}
    results = page.evaluate("options => axe.run(options)", options)
    return [
        (each["id"], node["html"], node["failureSummary"])
        for each in results["violations"]
        for node in each["nodes"]
        if each["impact"] in ("serious", "critical")
    ]
