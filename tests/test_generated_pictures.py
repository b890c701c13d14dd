"""The generated picture of a new account."""

import io

import pytest
from PIL import Image

from storage import pictures
from storage.pictures import generate_picture
from storage.records import PICTURE_SIZES


def decode(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content), formats=("WEBP",)).convert("RGB")


def test_small_pictures_of_the_first_1000_ids_differ(monkeypatch):
    """The decoded pixels are compared, at 16 x 16."""
    whole = generate_picture(7)
    monkeypatch.setattr(pictures, "PICTURE_SIZES", {"small": PICTURE_SIZES["small"]})
    assert generate_picture(7) == {"small": whole["small"]}  # the other sizes take most of the time
    pixels = {decode(generate_picture(number)["small"]).tobytes() for number in range(1, 1001)}
    assert len(pixels) == 1000


@pytest.mark.parametrize("user_id", [1, 2, 1000, 10**6, 10**15 - 1])
def test_generated_picture_is_a_square_webp_file_in_each_size(user_id):
    images = generate_picture(user_id)
    assert {name: decode(content).size for name, content in images.items()} == {
        name: (side, side) for name, side in PICTURE_SIZES.items()
    }


def test_generated_picture_is_deterministic():
    assert generate_picture(7) == generate_picture(7) != generate_picture(8)


def test_all_sizes_show_the_same_picture():
    images = generate_picture(7)
    small = decode(images["small"])
    for content in images.values():
        assert decode(content).resize(small.size, Image.Resampling.NEAREST) == small


def test_generated_picture_is_small_and_has_no_metadata():
    for content in generate_picture(7).values():
        assert len(content) < 2000
        assert Image.open(io.BytesIO(content)).info.keys() <= {"loop", "background", "timestamp"}
