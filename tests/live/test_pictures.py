"""The pictures of the documentation show pages of today.

To make one anew, delete it and run these tests: one that is missing is made, and fails its test.
"""

import io
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Page, expect

from identity.site.settings import ROOT

from .running import running_server
from .test_browser import set_session_cookie

pytestmark = [pytest.mark.live, pytest.mark.browser]
TEXT = "Description"  # the part of a PNG file that has the text of the page
WIDTH = 640  # CSS pixels, as in the README
CELLS = (12, 12)  # into which a picture is divided: other fonts move letters, but no cards
MOST = 10  # mean difference of colours, from 0 to 255, that other fonts explain
REQUEST = {
    "response_type": "code",
    "scope": "email",
    "redirect_uri": "http://127.0.0.1:5000/callback",
}
SERIF = "* { font-family: serif !important }"
RECOLOURED = ":root { --leaf: #7a3fb0 !important; --card: #dddddd !important }"


@pytest.fixture(scope="module")
def consent():
    """A server of its own, whose ids and faces are the same each time; an authorization request."""
    with running_server() as server:
        for name in ("ada", "grace"):
            server.add_user(name)
        client = server.add_client("Space Game", REQUEST["redirect_uri"], owner="grace")
        query = "&".join(f"{name}={text}" for name, text in REQUEST.items())
        yield server, f"{server.address}/oauth/authorize?{query}&client_id={client['client_id']}"


def take(page: Page) -> tuple[Image.Image, str]:
    """Return a picture of a page down to the end of its card, and its text."""
    box = page.locator("main section").bounding_box()
    end = {"x": 0, "y": 0, "width": WIDTH, "height": box["y"] + box["height"] + 24}
    content = page.screenshot(clip=end)
    return Image.open(io.BytesIO(content)).convert("RGB"), page.locator("body").inner_text()


def difference(one: Image.Image, other: Image.Image) -> float:
    """Return how much two pictures differ, whatever the fonts: from 0 to 255."""
    small = [each.convert("RGB").resize(CELLS, Image.Resampling.BOX) for each in (one, other)]
    return max(ImageStat.Stat(ImageChops.difference(*small)).mean)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_picture_of_the_consent_page_is_that_of_today(browse, consent, theme):
    server, address = consent
    size = {"width": WIDTH, "height": 1000}
    page = browse(viewport=size, device_scale_factor=2, color_scheme=theme, bypass_csp=True)
    set_session_cookie(page, server)
    page.goto(address)
    allow = page.get_by_role("button", name="Allow")
    expect(allow).to_have_attribute("aria-disabled", "false")
    page.wait_for_timeout(500)  # the button fades in
    picture, text = take(page)
    path = Path(ROOT, f"docs/consent-{theme}.png")
    if not path.exists():
        information = PngInfo()
        information.add_itxt(TEXT, text)
        picture.save(path, pnginfo=information, optimize=True)
        pytest.fail(f"{path} was made: look at it")
    kept = Image.open(path)
    assert kept.text[TEXT] == text
    assert difference(kept, picture) < MOST
    # Other fonts pass, other colours do not.
    page.add_style_tag(content=SERIF)
    assert difference(kept, take(page)[0]) < MOST
    page.add_style_tag(content=RECOLOURED)
    assert difference(kept, take(page)[0]) > MOST
