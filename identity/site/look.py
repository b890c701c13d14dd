"""The look of the site, as its pages and letters show it: the name, the colours, the logo.

The accent is one colour. Its hue is kept, and a shade is made for each theme, which can be read on
the cards of the theme and under the text of a button: WCAG 2.2, 1.4.3 (AA), 4.5 to 1. The other
colours of a theme get the hue of the accent and keep their luminance, so that each pair of them
has the contrast that it has in the style sheet.
"""

import base64
import bisect
import colorsys
import contextlib
import functools
import re
from collections.abc import Mapping
from pathlib import Path

from identity.site.settings import RESOURCES
from model.errors import StorageError
from model.kinds import LOGOS, LOOKS
from model.site_records import Look
from storage import Storage

LOOK_ID = "site"
CONTRAST = 4.5
STEP = 0.005  # of the lightness
ROOT = re.compile(r":root \{(.*?)\}", re.DOTALL)
COLOUR = re.compile(r"--([a-z-]+): (#[0-9a-f]{6});")
UNTURNED = {"leaf", "problem", "on-problem", "focus"}  # leaf is the shade; red warns on every site

Theme = dict[str, str]  # colours of the style sheet, by name


def read_look(store: Storage) -> Look:
    """Return the look as it is set, an empty one while nothing can be read."""
    with contextlib.suppress(StorageError):
        return store.records(LOOKS).find(LOOK_ID) or Look(LOOK_ID, 0)
    return Look(LOOK_ID, 0)


def site_name_of(look: Look, config: Mapping[str, str]) -> str:
    """Return what the site is called: the name in its look, else that of the setting."""
    return look.name or config["SITE_NAME"]


def read_site_name(store: Storage, config: Mapping[str, str]) -> str:
    """Return what the site is called, where no look has been read."""
    return site_name_of(read_look(store), config)


def logo_png(store: Storage, look: Look, side: int) -> bytes:
    """Return the logo for programs that know no webp, or the door if there is none to be read."""
    if look.logo:
        from images.pictures import encode_png  # Pillow: memory a worker may not need

        with contextlib.suppress(StorageError, OSError):  # OSError: it is no picture
            return encode_png(base64.b64decode(store.records(LOGOS).read(look.logo).image), side)
    return Path(RESOURCES, "static/touch-icon.png").read_bytes()


@functools.cache
def read_themes() -> list[Theme]:
    """Return the colours of static/style.css: those of the light theme and of the dark one."""
    sheet = Path(RESOURCES, "static/style.css").read_text("utf-8")
    return [dict(COLOUR.findall(block)) for block in ROOT.findall(sheet)]


@functools.lru_cache(maxsize=16)
def colours_of(accent: str) -> list[Theme]:
    """Return the colours of both themes with an accent; without one, "", the site's own."""
    return [tint(theme, accent) if accent else theme for theme in read_themes()]


def tint(theme: Theme, accent: str) -> Theme:
    """Return the colours of a theme with the hue of an accent."""
    turned = theme | {name: turn(theme[name], accent) for name in theme.keys() - UNTURNED}
    return turned | {"leaf": shade(accent, turned)}


def turn(colour: str, accent: str) -> str:
    """Return a colour with the hue of an accent, no more of its saturation, and equal luminance."""
    hue, _, most = colorsys.rgb_to_hls(*_rgb(accent))
    saturation, wanted = min(most, colorsys.rgb_to_hls(*_rgb(colour))[2]), _luminance(colour)
    turned = functools.partial(_hex, hue, saturation)
    step = bisect.bisect(range(1000), wanted, key=lambda each: _luminance(turned(each / 1000)))
    return turned(step / 1000)


def shade(accent: str, theme: Theme) -> str:
    """Return the accent, made darker or lighter until it can be read in a theme."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*_rgb(accent))
    step = STEP if _luminance(theme["ink"]) > _luminance(theme["card"]) else -STEP
    while True:
        colour = _hex(hue, saturation, min(max(lightness, 0), 1))
        if min(contrast_on(theme, colour), contrast(colour, theme["on-leaf"])) >= CONTRAST:
            return colour
        lightness += step


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def contrast_on(theme: Theme, colour: str) -> float:
    """Return the lower contrast of a colour: on a card of a theme, or on an inset of one."""
    return min(contrast(colour, theme["card"]), contrast(colour, theme["inset"]))


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour, from 0 to 1 (WCAG 2.2), by its sRGB values."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in _rgb(colour)]
    return sum(share * each for share, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def _hex(hue: float, saturation: float, lightness: float) -> str:
    rgb = colorsys.hls_to_rgb(hue, lightness, saturation)
    return "#" + "".join(f"{round(each * 255):02x}" for each in rgb)
