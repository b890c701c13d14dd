"""The page where a player signs in on another device, in Chromium."""

import pytest
import requests
from playwright.sync_api import expect

from .page_checks import check_page
from .running import ANSWER_TIMEOUT, RunningServer
from .test_browser import set_session_cookie

pytestmark = [pytest.mark.live, pytest.mark.browser]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_player_types_a_code_and_decides(server: RunningServer, browse, scheme: str):
    """With the keyboard alone; the buttons wait for a second."""
    player = f"ada_{scheme}"
    server.add_user(player)
    client = server.add_client("Space Console", public=True, device=True)
    form = {"client_id": client["client_id"], "scope": "email groups"}
    response = requests.post(f"{server.address}/oauth/device", form, timeout=ANSWER_TIMEOUT)
    page = browse(color_scheme=scheme)
    set_session_cookie(page, server, player)
    page.goto(f"{server.address}/device")
    check_page(page)
    code = page.get_by_label("Code")
    code.fill("BBBB-BBBB")
    code.press("Enter")
    expect(page.locator(".problem")).to_have_text(
        "We don't know this code. Compare it with your device, or start again there."
    )
    check_page(page, has_problem=True)
    code.fill(response.json()["user_code"].lower())
    code.press("Enter")
    expect(page.locator(".user-code")).to_have_text(response.json()["user_code"])
    check_page(page)
    allow = page.get_by_role("button", name="Allow")
    expect(allow).not_to_have_attribute("aria-disabled", "true")
    allow.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Done. Go back to your device.")
    check_page(page)
