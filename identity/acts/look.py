"""The look of the site, and the acts of administrators on it.

The accent is one colour. Its hue is kept, and a shade is made for each theme, which can be read on
the cards of the theme and under the text of a button: WCAG 2.2, 1.4.3 (AA), 4.5 to 1.

The acts raise NotAllowed, StorageFailed, InvalidField, TooManyAttempts, and ChangedBefore if the
look was changed since the time `seen`.
"""

import base64
import colorsys
import contextlib
import re
from typing import NamedTuple

from identity.acts.actors import Authority
from identity.acts.blobs import adding, discard
from identity.acts.rights import may_administer
from identity.site.settings import WELCOME_LENGTH
from model.errors import AlreadyThere, ChangedBefore, StorageError
from model.kinds import LOGOS, LOOKS
from model.records import now_ms
from model.rules import check_accent, refuse
from model.site_records import Logo, Look
from model.texts import check_line
from storage import Storage

LOOK_ID = "site"
CONTRAST = 4.5
STEP = 0.005  # of the lightness
EMAIL = re.compile(r"[^\s@?&%<>\"]+@[^\s@?&%<>\"]+")
WEB = re.compile(r"https?://[^\s<>\"]+")


class Theme(NamedTuple):
    """The colours of static/style.css that a shade of the accent has to fit."""

    card: str
    inset: str
    on_leaf: str
    leaf: str  # without an accent
    is_dark: bool


LIGHT = Theme("#fbfdf9", "#eaf3ec", "#ffffff", "#1d6b4c", is_dark=False)
DARK = Theme("#182831", "#20353d", "#0c2418", "#8fdcae", is_dark=True)


class Shade(NamedTuple):
    """A shade of the accent, and its contrast on the cards of the theme."""

    colour: str
    ratio: float


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def contrast_on(theme: Theme, colour: str) -> float:
    """Return the lower contrast of a colour: on a card of a theme, or on an inset of one."""
    return min(contrast(colour, theme.card), contrast(colour, theme.inset))


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour, from 0 to 1 (WCAG 2.2), by its sRGB values."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in _rgb(colour)]
    return sum(share * each for share, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def parse_accent(text: str) -> str:
    """Return a colour as "#7a3fb0", "" for none. Raises InvalidField."""
    digits = text.strip().lower().removeprefix("#")
    digits = "".join(each * 2 for each in digits) if len(digits) == 3 else digits
    accent = f"#{digits}" if text.strip() else ""
    refuse("accent", check_accent(accent))
    return accent


def shade(accent: str, theme: Theme) -> Shade:
    """Return the accent, made darker or lighter until it can be read in a theme.

    Without one, "", it is the site's own colour.
    """
    if not accent:
        return Shade(theme.leaf, contrast_on(theme, theme.leaf))
    hue, lightness, saturation = colorsys.rgb_to_hls(*_rgb(accent))
    while True:
        rgb = colorsys.hls_to_rgb(hue, min(max(lightness, 0), 1), saturation)
        colour = "#" + "".join(f"{round(each * 255):02x}" for each in rgb)
        ratio = contrast_on(theme, colour)
        if min(ratio, contrast(colour, theme.on_leaf)) >= CONTRAST:
            return Shade(colour, ratio)
        lightness += STEP if theme.is_dark else -STEP


def check_contact(text: str) -> str | None:
    """Return what is wrong with a web or email address, None for a good or an empty one."""
    if not text or (len(text) <= 200 and (WEB.fullmatch(text) or EMAIL.fullmatch(text))):
        return None
    return "Enter an address like https://example.org/contact or ada@example.org."


def check_welcome(text: str) -> str | None:
    """Return what is wrong with the text that guests read on the home page, or None."""
    return check_line(text, WELCOME_LENGTH, least=0)


def read_look(store: Storage) -> Look:
    """Return the look as it is set, an empty one while nothing can be read."""
    with contextlib.suppress(StorageError):
        return store.records(LOOKS).find(LOOK_ID) or Look(LOOK_ID, 0)
    return Look(LOOK_ID, 0)


def change(by: Authority, seen: int, welcome: str, contact: str, accent: str) -> None:
    refuse("welcome", check_welcome(welcome))
    refuse("contact", check_contact(contact))
    fields = {"welcome": welcome, "contact": contact, "accent": parse_accent(accent)}
    save_fields(by, seen, "look", **fields)


def save_logo(by: Authority, seen: int, image: bytes) -> None:
    """Make a webp file the logo."""
    by.require(may_administer)
    new = Logo(max(now_ms(), seen + 1), base64.b64encode(image).decode())
    try:
        with adding(by.store.records(LOGOS), new):
            save_fields(by, seen, "look", logo=new.id)
    except AlreadyThere as error:  # of this millisecond, by another administrator
        raise ChangedBefore from error


def remove_logo(by: Authority, seen: int) -> None:
    """Remove the logo: pages show the picture of a door, as before there was one."""
    save_fields(by, seen, "look", logo=None)


def save_fields(by: Authority, seen: int, act: str, **fields: str | int | None) -> None:
    """Change fields of the look, which is added if there is none, and delete a replaced logo.

    The `act` is for the audit log.
    """
    looks = by.store.records(LOOKS)
    with contextlib.suppress(AlreadyThere), looks.adding(Look(LOOK_ID, 0)):
        by.require(may_administer)
    with looks.edit(LOOK_ID) as look:
        by.begin_change(look, seen, act)
        old = look.logo
        look.changed = max(now_ms(), look.changed + 1)
        for name, value in fields.items():
            setattr(look, name, value)
    if "logo" in fields:
        discard(by.store.records(LOGOS), old)
