"""What holds of how every page looks, in light and dark, on a phone and on a desktop."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

TARGET = 44  # CSS pixels: the least height of what a finger presses (WCAG 2.5.5)


def check_looks(page: Page, has_problem: bool = False) -> None:
    """What holds of every page; one that tells of a problem leads there."""
    # A page that has its text, and its stylesheet not yet, is measured without it.
    page.wait_for_load_state()
    page.get_by_role("heading", level=1).wait_for()
    assert page.title().startswith("Problem: ") == has_problem
    expect(page.locator(".problem:focus")).to_have_count(int(has_problem))
    for color_scheme in ("light", "dark"):
        page.emulate_media(color_scheme=color_scheme)
        assert serious_findings(page) == []
    for width, height in ((390, 844), (1280, 800)):  # CSS pixels: a phone, a desktop
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        controls = page.locator("button, .button, input:not([type=hidden]), select, textarea")
        boxes = [each.bounding_box() for each in controls.all() if each.is_visible()]
        assert all(box["height"] >= TARGET for box in boxes)
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)


def serious_findings(page: Page) -> list[tuple[str, str, str]]:
    """What axe-core finds on a page: the rule, the element and why."""
    return [
        (each["id"], node["html"], node["failureSummary"])
        for each in Axe().run(page).response["violations"]
        for node in each["nodes"]
        if each["impact"] in ("serious", "critical")
    ]
