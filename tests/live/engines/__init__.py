"""The programs of docs/engines/, and what runs and watches them."""

import io
from pathlib import Path

from documents import read_blocks
from PIL import Image

from images import pictures
from storage import Storage

from ..running import RunningServer

ORANGE = (250, 120, 10)
PICTURE_PIXELS = 64 * 64  # of the size "medium"


def read_program(page: str, name: str, server: RunningServer, client_id: str) -> str:
    """Return a program with the two values set, as docs/engines/README.md says."""
    text = read_blocks(f"docs/engines/{page}")[name]
    for placeholder, value in (
        ("https://id.example.org", server.address),
        ("your client_id", client_id),
    ):
        assert text.count(placeholder) == 1
        text = text.replace(placeholder, value)
    return text


def save_orange_picture(store: Storage, user_id: int) -> None:
    """Give a player a picture in one colour."""
    file = io.BytesIO()
    Image.new("RGB", (256, 256), ORANGE).save(file, "png")
    store.pictures.save(user_id, pictures.make_picture(file.getvalue()))


def count_orange_pixels(file: Path | io.BytesIO) -> int:
    """Return how many pixels of an image are orange; WebP changes a colour a little."""
    image = Image.open(file).convert("RGB")
    return sum(
        number
        for number, colour in image.getcolors(image.width * image.height)
        if all(abs(one - other) < 12 for one, other in zip(colour, ORANGE, strict=True))
    )
