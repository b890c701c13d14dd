"""The pictures of the README show pages of today, of the demo.

To make them anew, remove docs/home-*.png and docs/phone-*.png, and run these tests:

    .venv/bin/pytest -m browser tests/live/test_pictures.py

One that is missing is made, and fails its test.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import requests
from PIL import Image, ImageChops, ImageStat
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Page, expect

from identity.site.settings import ROOT

from .demo import EXAMPLE, Demo
from .running import ANSWER_TIMEOUT

# Pictures are renewed for a release: docs/releasing.md
pytestmark = [pytest.mark.live, pytest.mark.browser, pytest.mark.slow]
TEXT = "Description"  # the part of a PNG file that has the text of the page
CELLS = (12, 12)  # into which a picture is divided: other fonts move letters, but no cards
MOST = 10  # mean difference of colours, from 0 to 255, that other fonts explain
MOST_BYTES = 150_000
SERIF = "* { font-family: serif !important }"
RECOLOURED = ":root { --leaf: #7a3fb0 !important; --card: #dddddd !important }"


class Shot(NamedTuple):
    """What a picture shows, in which size."""

    path: str  # of the page
    end: str  # a selector: the picture ends below this
    width: int  # CSS pixels
    scale: int  # pixels of the picture for each of them


SHOTS = {
    "home": Shot("/", ".home", 1280, 1),
    "phone": Shot(
        "/oauth/authorize?response_type=code&scope=email&client_id=" + EXAMPLE["SPACE_GAME"].id,
        "main section",
        390,
        2,
    ),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[dict]]]:
    """The address of a demo, whose ids and faces are the same each time; the cookies of jun."""
    demo = Demo(tmp_path_factory.mktemp("demo"))
    demo.start()
    with requests.Session() as browser:
        form = {"name": "jun", "password": EXAMPLE["PASSWORD"]}
        browser.post(f"{demo.site}/sign-in", form, timeout=ANSWER_TIMEOUT).raise_for_status()
        cookies = [{"name": k, "value": v, "url": demo.site} for k, v in browser.cookies.items()]
    yield demo.site, cookies
    demo.kill()


def take(page: Page, shot: Shot) -> tuple[Image.Image, str]:
    """Return a picture of a page, and its text: lines in any order, no ports and months."""
    box = page.locator(shot.end).first.bounding_box()
    end = {"x": 0, "y": 0, "width": shot.width, "height": box["y"] + box["height"] + 24}
    content = page.screenshot(clip=end, full_page=True)
    text = re.sub(r":\d+|(?<=Joined in ).*", "", page.locator("body").inner_text())
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    return picture, "\n".join(sorted(text.split("\n")))


def difference(one: Image.Image, other: Image.Image) -> float:
    """Return how much two pictures differ, whatever the fonts: from 0 to 255."""
    small = [each.convert("RGB").resize(CELLS, Image.Resampling.BOX) for each in (one, other)]
    return max(ImageStat.Stat(ImageChops.difference(*small)).mean)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", SHOTS)
def test_picture_is_that_of_today(browse, site, name, theme):
    address, cookies = site
    shot = SHOTS[name]
    size = {"width": shot.width, "height": 1000}
    page = browse(
        viewport=size, device_scale_factor=shot.scale, color_scheme=theme, bypass_csp=True
    )
    page.context.add_cookies(cookies)
    page.goto(address + shot.path)
    expect(page.locator("main [aria-disabled=true]")).to_have_count(0)
    page.wait_for_timeout(500)  # a button fades in
    picture, text = take(page, shot)
    path = Path(ROOT, f"docs/{name}-{theme}.png")
    if not path.exists():
        information = PngInfo()
        information.add_itxt(TEXT, text)
        palette = picture.quantize(256, dither=Image.Dither.NONE)
        palette.save(path, pnginfo=information, optimize=True)
        pytest.fail(f"{path} was made: look at it")
    kept = Image.open(path)
    assert kept.text[TEXT] == text
    assert path.stat().st_size < MOST_BYTES
    assert difference(kept, picture) < MOST
    # Other fonts pass, other colours do not.
    page.add_style_tag(content=SERIF)
    assert difference(kept, take(page, shot)[0]) < MOST
    page.add_style_tag(content=RECOLOURED)
    assert difference(kept, take(page, shot)[0]) > MOST
