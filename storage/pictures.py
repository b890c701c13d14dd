"""Profile pictures: the one that a new account gets.

A picture is a webp file in each of the sizes of `storage.PICTURE_SIZES`.
"""

import colorsys
import io

from PIL import Image

from storage import PICTURE_SIZES

CELLS = 8  # a creature is drawn on 8 x 8 cells, so that 16 pixels show each as 2 x 2
HUES = 512
# The left half of the face; the right half mirrors it. "#" is always body, "o" an eye, "." always
# background, and each "?" is one bit of the creature's number.
FACE = (
    "....",
    ".???",
    ".???",
    ".#o#",
    ".?##",
    ".???",
    ".???",
    "....",
)
BODY_BITS = sum(row.count("?") for row in FACE)


def generate_picture(user_id: int) -> dict[str, bytes]:
    """A small creature for this id, as webp bytes by size name.

    The same id gives the same picture, and ids less than 2**22 apart never the same one.
    """
    number = _scatter(user_id)
    creature = _draw(number >> 9, number % HUES)
    return {name: _encode(creature, side) for name, side in PICTURE_SIZES.items()}


def _scatter(user_id: int) -> int:
    """Neighbouring ids far apart: an odd factor permutes the numbers below a power of two."""
    return user_id * 0x9E3779B1 % 2 ** (BODY_BITS + 9)


def _draw(body: int, hue: int) -> Image.Image:
    """The creature, one pixel a cell."""
    background = _colour(hue, lightness=0.87, saturation=0.55)
    skin = _colour(hue + HUES // 2 + HUES // 12, lightness=0.42, saturation=0.62)
    eye = (255, 255, 255)
    image = Image.new("RGB", (CELLS, CELLS), background)
    for y, row in enumerate(FACE):
        for x, cell in enumerate(row):
            filled = cell == "#"
            if cell == "?":
                body, bit = divmod(body, 2)
                filled = bool(bit)
            if filled or cell == "o":
                colour = eye if cell == "o" else skin
                image.putpixel((x, y), colour)
                image.putpixel((CELLS - 1 - x, y), colour)
    return image


def _colour(hue: int, lightness: float, saturation: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hls_to_rgb(hue % HUES / HUES, lightness, saturation)
    return round(red * 255), round(green * 255), round(blue * 255)


def _encode(creature: Image.Image, side: int) -> bytes:
    output = io.BytesIO()
    # Lossless: flat colours are smaller so, and no two creatures blur into one at 16 pixels.
    creature.resize((side, side), Image.Resampling.NEAREST).save(output, "WEBP", lossless=True)
    return output.getvalue()
