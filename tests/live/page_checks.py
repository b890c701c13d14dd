"""Layout and accessibility checks for pages: light and dark, phone and desktop."""

import shutil
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

# The headless shell, Chromium without its user interface, takes a third of the processor time.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
AXE = Axe()
COLOUR_RULES = ["color-contrast", "link-in-text-block"]  # axe-core's rules about colours
FIRST_CARD = 84  # CSS pixels: the top of the first card of every page with the site's header
TOUCH_TARGET = 44  # CSS pixels: the minimum height of a touch target (WCAG 2.5.5)
USUAL_SIZE = 16  # CSS pixels: the text size of browsers
# Each width, with the text sizes of the browser's settings that are checked there. In CSS pixels.
SCREENS = dict.fromkeys((320, 375, 390, 480, 1280, 1920), [USUAL_SIZE]) | {
    390: [32, 24, USUAL_SIZE]
}

# What does not fit: on the screen, under a finger; with text of the usual size also in its card.
LAYOUT_PROBLEMS = """([firstCard, touchTarget, isUsualSize]) => {
    const problems = [];
    const report = (problem, each) => problems.push([problem, each.outerHTML.slice(0, 200)]);
    const box = (each) => each.getBoundingClientRect();
    const find = (selector) => [...document.querySelectorAll(selector)].filter((each) =>
        each.checkVisibility({ visibilityProperty: true }) && box(each).width && box(each).height);
    if (document.documentElement.scrollWidth > innerWidth) report("too wide", document.body);
    const controls = find("button, .button, input:not([type=hidden]), select, textarea");
    for (const each of [...controls, ...find(".quiet")])
        if (box(each).left < 0 || box(each).right > innerWidth) report("off the screen", each);
    for (const each of controls) if (box(each).height < touchTarget) report("too low", each);
    if (!isUsualSize) return problems;
    const clips = (each) => getComputedStyle(each).overflowX !== "visible"; // or scrolls
    for (const each of find("main :is(section, .game) :not(.unseen)")) {
        const card = each.parentElement.closest("section, .game");
        const [left, right] = [box(card).left, box(card).right];
        if (box(each).left >= left && box(each).right <= right) continue;
        let around = each.parentElement;
        while (around !== card && !clips(around)) around = around.parentElement;
        if (around === card) report("cut off by its card", each);
    }
    const cards = "header:has(.site) ~ main :is(section, .announcement)";
    const [card] = document.querySelectorAll(cards);
    const isWindow = card?.querySelector(".game-name"); // beside a game: its header is lower
    if (card && !isWindow && box(card).top + scrollY !== firstCard) report("not at the top", card);
    return problems;
}"""


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
    check_layout(page)


def check_layout(page: Page) -> None:
    """Check that everything fits, on each screen and with larger text."""
    for width, text_sizes in SCREENS.items():
        page.set_viewport_size({"width": width, "height": 844})
        for size in text_sizes:
            if len(text_sizes) > 1:
                set_text_size(page, size)
            sizes = [FIRST_CARD, TOUCH_TARGET, size == USUAL_SIZE]
            problems = page.evaluate(LAYOUT_PROBLEMS, sizes)
            assert not problems, (width, size, problems)


def check_focus_without_ring(page: Page) -> None:
    """Check that there is no ring around what got the focus from the page, for screen readers."""
    for each in page.locator('[tabindex="-1"]:focus').all():
        expect(each).to_have_css("outline-style", "none")


def set_text_size(page: Page, pixels: int) -> None:
    """Change the text size in the settings of the page's browser."""
    # The session stays open: its end would take a virtual authenticator away.
    settings = page.context.new_cdp_session(page)
    settings.send("Page.setFontSizes", {"fontSizes": {"standard": pixels}})


def open_details(page: Page) -> None:
    """Open every part of the page that can be opened, beside the menu."""
    page.locator("main details").evaluate_all("all => all.forEach(each => each.open = true)")


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
