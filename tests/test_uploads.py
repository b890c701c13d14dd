"""Conversion of an uploaded file into a picture: formats, appearance, time and memory."""

import io
import itertools
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageCms, ImageDraw, PngImagePlugin

from images.pictures import MAX_BYTES, SIZES, make_picture, read_centre
from model import errors
from model.records import PICTURE_SIZES
from model.soundness import webp_size

ROOT = Path(__file__).parent.parent
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
COLOURS = {"R": (255, 0, 0, 255), "G": (0, 128, 0, 255), "B": (0, 0, 255, 255)}
COLOURS |= {"W": (255, 255, 255, 255), "K": (0, 0, 0, 255), "-": (0, 0, 0, 0)}
every_format = pytest.mark.parametrize("format_", FORMATS)


def encode(image: Image.Image, format_: str, **options) -> bytes:
    output = io.BytesIO()
    image.save(output, format_, **options)
    return output.getvalue()


def test_size_of_each_kind_of_webp_file():
    kinds = {b"VP8 ": ("RGB", False), b"VP8L": ("RGB", True), b"VP8X": ("RGBA", False)}
    for kind, (mode, lossless) in kinds.items():
        content = encode(Image.new(mode, (300, 20)), "WEBP", lossless=lossless)
        assert (content[12:16], webp_size(content)) == (kind, (300, 20))


def tiles(rows: list[str], side: int = 40) -> Image.Image:
    """Return a picture of square tiles; a letter of COLOURS stands for each."""
    image = Image.new("RGBA", (len(rows[0]) * side, len(rows) * side))
    for y, row in enumerate(rows):
        for x, letter in enumerate(row):
            box = (x * side, y * side, (x + 1) * side, (y + 1) * side)
            image.paste(COLOURS[letter], box)
    return image


def opaque(rows: list[str]) -> Image.Image:
    return tiles(rows).convert("RGB")


def tile_letters(upload: bytes, rows: int = 2) -> str:
    """Convert an upload; return the letters of its tiles, in this number of rows and columns."""
    square = read_centre(upload)  # without the child process, which takes 0.1 s
    centres = [(2 * n + 1) * square.width // (2 * rows) for n in range(rows)]
    return " ".join(
        "".join(nearest_letter(square.getpixel((x, y))) for x in centres) for y in centres
    )


def nearest_letter(pixel: tuple[int, ...]) -> str:
    """Return the letter of this colour, or "?" if it is none of COLOURS."""
    if pixel[3] < 10:
        return "-"
    found = [
        letter
        for letter, colour in COLOURS.items()
        if max(abs(a - b) for a, b in zip(pixel, colour, strict=True)) < 24
    ]
    return found[0] if found else "?"


def centre_colour(upload: bytes) -> tuple[int, ...]:
    """Convert an upload; return the colour of its centre."""
    square = read_centre(upload)
    return square.getpixel((square.width // 2, square.height // 2))


def png_chunk(kind: bytes, content: bytes) -> bytes:
    crc = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)


def flat_png(
    width: int, height: int, bits: int, colour_type: int, *chunks: bytes, row: bytes = b""
) -> bytes:
    """Return a PNG file with equal rows, black by default, and these additional chunks."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]
    row = row or bytes((width * bits * channels + 7) // 8)
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(b"\0" + row) for _ in range(height)) + packer.flush()
    header = struct.pack(">2I5B", width, height, bits, colour_type, 0, 0, 0)
    parts = [(b"IHDR", header), *zip(chunks[::2], chunks[1::2], strict=True)]
    parts += [(b"IDAT", packed), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*part) for part in parts)


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    content = b"".join(
        kind + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)
        for kind, content in chunks
    )
    return b"RIFF" + struct.pack("<I", len(content) + 4) + b"WEBP" + content


def flat_webp(width: int, height: int) -> bytes:
    """Return a red lossless WebP file: five prefix codes of one symbol need no bits per pixel."""
    fields = [(0x2F, 8), (width - 1, 14), (height - 1, 14), (1, 1), (0, 3), (0, 3)]
    for symbol in (0, 255, 0, 255, 0):  # green, red, blue, alpha, distance
        fields += [(1, 1), (0, 1), (1, 1), (symbol, 8)]
    number = position = 0
    for value, bits in fields:
        number |= value << position
        position += bits
    return riff((b"VP8L", number.to_bytes(position // 8 + 2, "little")))


def exif(orientation: int, order: str = "<") -> bytes:
    """Return EXIF data with a camera name, an orientation and a GPS position."""
    entries = [
        (0x010F, 2, 7, struct.pack(f"{order}I", 50)),
        (0x0112, 3, 1, struct.pack(f"{order}2H", orientation, 0)),
        (0x8825, 4, 1, struct.pack(f"{order}I", 58)),
    ]
    start = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}IH", 8, len(entries))
    packed = (struct.pack(f"{order}HHI", *entry[:3]) + entry[3] for entry in entries)
    position = struct.pack(f"{order}HHHI4sI", 1, 1, 2, 2, b"N\0\0\0", 0)
    return start + b"".join(packed) + bytes(4) + b"SECRET\0\0" + position


def swapped_profile() -> bytes:
    """Return an sRGB profile with red and blue swapped."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for old, new in ((b"rXYZ", b"tmp."), (b"bXYZ", b"rXYZ"), (b"tmp.", b"bXYZ")):
        assert old in profile
        profile = profile.replace(old, new, 1)
    return profile


# -- size, crop and orientation -----------------------------------------------------------------


@pytest.mark.live
@every_format
def test_upload_becomes_a_webp_file_in_each_size(format_):
    """A square picture, or a cover of 16 by 10."""
    covers = make_picture(encode(opaque(["KRRK", "KRRK"]), format_), "cover")
    images = make_picture(encode(opaque(["KRGK", "KBWK"]), format_))
    for made, sizes in (
        (covers, {"small": (320, 200), "large": (640, 400)}),
        (images, {name: (side, side) for name, side in PICTURE_SIZES.items()}),
    ):
        seen = {name: Image.open(io.BytesIO(content)) for name, content in made.items()}
        assert {name: (each.format, each.size, each.n_frames) for name, each in seen.items()} == {
            name: ("WEBP", size, 1) for name, size in sizes.items()
        }
    for image in (each.convert("RGBA") for each in seen.values()):
        near, far = image.width // 4, image.width * 3 // 4
        corners = [(near, near), (far, near), (near, far), (far, far)]
        assert "".join(nearest_letter(image.getpixel(each)) for each in corners) == "RGBW"


@pytest.mark.live
def test_small_size_keeps_every_pixel_of_a_16_pixel_upload():
    noise = Image.effect_noise((16, 16), 90)
    upload = Image.merge("RGB", [noise, noise.rotate(90), noise.rotate(180)])
    small = Image.open(io.BytesIO(make_picture(encode(upload, "PNG"))["small"]))
    assert small.convert("RGB").tobytes() == upload.tobytes()


@pytest.mark.load
def test_picture_is_cropped_to_the_centre_square_at_any_upload_size(subtests):
    """Small pictures are enlarged; above 1,000 pixels each format is reduced differently."""
    for format_ in FORMATS:
        for rows in (["RRGWBB", "RRBKGG"], ["RR", "BB", "GW", "BK", "WW", "GG"]):
            picture = opaque(rows)
            for factor in (1, 7, 16):
                size = (picture.width * factor - 1, picture.height * factor + 3)
                upload = encode(picture.resize(size, Image.Resampling.NEAREST), format_)
                with subtests.test(format_, rows=rows, factor=factor):
                    assert tile_letters(upload) == "GW BK"


@pytest.mark.load
def test_cover_is_cropped_to_16_by_10_around_the_centre(subtests):
    """The centre of an upright picture, also if the pixels of the file lie on their side."""
    centre = opaque(["R" * 8 + "G" * 8] * 5 + ["B" * 8 + "W" * 8] * 5)
    for margins in ((0, 0), (70, 0), (0, 50), (1, 0)):
        wide = Image.new("RGB", (640 + 2 * margins[0], 400 + 2 * margins[1]))
        wide.paste(centre, margins)
        lying = wide.transpose(Image.Transpose.ROTATE_90)
        for format_, prefix in (("JPEG", b"Exif\0\0"), ("PNG", b""), ("WEBP", b"")):
            for upload in (
                encode(wide, format_),
                encode(wide.resize((4 * wide.width, 4 * wide.height)), format_),
                encode(lying, format_, exif=prefix + exif(6)),
            ):
                with subtests.test(format_, margins=margins):
                    cover = read_centre(upload, "cover")
                    assert abs(cover.width - 1.6 * cover.height) <= 2
                    assert cover.width >= 640
                    corners = [
                        (cover.width * x // 20, cover.height * y // 20)
                        for y in (1, 9, 11, 19)
                        for x in (1, 9, 11, 19)
                    ]
                    seen = "".join(nearest_letter(cover.getpixel(each)) for each in corners)
                    assert seen == "RRGG" * 2 + "BBWW" * 2


def test_extreme_aspect_ratios_are_accepted(subtests):
    shapes = (1, 1), (10_000, 1), (1, 10_000), (2, 3), (16_000, 20), (17, 10)
    for format_, size, kind in itertools.product(FORMATS, shapes, SIZES):
        with subtests.test(format_, size=size, kind=kind):
            red = read_centre(encode(Image.new("RGB", size, (255, 0, 0)), format_), kind)
            assert red.getpixel((red.width // 2, red.height // 2))[0] > 240


def test_first_frame_of_an_animation_is_used():
    frames = [opaque(["R"]), opaque(["G"]), opaque(["B"])]
    for format_ in ("GIF", "PNG", "WEBP"):
        upload = encode(frames[0], format_, save_all=True, append_images=frames[1:], duration=100)
        assert Image.open(io.BytesIO(upload)).n_frames == 3
        assert tile_letters(upload, 1) == "R"


def test_exif_orientation_is_applied(subtests):
    """Unknown values are ignored."""
    corners = ["RG BW", "GR WB", "WB GR", "BW RG", "RB GW", "BR WG", "WG BR", "GW RB"]
    expected = dict(enumerate(corners, start=1)) | dict.fromkeys((0, 9, 65535), "RG BW")
    picture, prefixes = opaque(["KRGK", "KBWK"]), {"JPEG": b"Exif\0\0", "PNG": b"", "WEBP": b""}
    for format_, orientation, order in itertools.product(prefixes, expected, "<>"):
        upload = encode(picture, format_, exif=prefixes[format_] + exif(orientation, order))
        with subtests.test(format_, orientation=orientation, order=order):
            assert tile_letters(upload) == expected[orientation]


# -- colours ------------------------------------------------------------------------------------


def test_colours_and_grey_levels_are_the_same_in_every_mode_and_depth(subtests):
    image = opaque(["RG", "BW"])
    for format_, each in (
        ("PNG", image),
        ("PNG", image.convert("RGBA")),
        ("PNG", image.quantize()),
        ("JPEG", image.convert("CMYK")),
    ):
        assert tile_letters(encode(each, format_)) == "RG BW"
    for bits, colour_type, colours, alpha in (
        *((8, 0, 1, 0), (16, 0, 1, 0), (16, 2, 3, 0)),
        *((16, 4, 1, 1), (16, 6, 3, 1), (8, 4, 1, 1)),
    ):
        for level in (0, 64, 128, 200, 255):
            sample = bytes([level, 0x80][: bits // 8])
            pixel = sample * colours + b"\xff" * alpha * (bits // 8)
            upload = flat_png(8, 8, bits, colour_type, row=pixel * 8)
            with subtests.test(bits=bits, colour_type=colour_type, level=level):
                *seen, opacity = centre_colour(upload)
                assert max(abs(each - level) for each in seen) <= 3
                assert opacity == 255


@pytest.mark.live
def test_small_picture_is_exact_where_it_is_drawn():
    """Lossy WebP has one colour for 2 x 2 pixels, so that flat colours run into each other."""

    def losses(image: Image.Image) -> dict[str, int]:
        """Return the largest error of a channel in the picture of each size."""
        found = {}
        for size, made in make_picture(encode(image, "PNG")).items():
            exact = image.resize(SIZES["picture"][size], Image.Resampling.LANCZOS)
            with Image.open(io.BytesIO(made)) as picture:
                difference = ImageChops.difference(exact, picture.convert("RGB"))
            found[size] = max(high for _, high in difference.getextrema())
        return found

    drawn = opaque(["RGBW", "GRWB", "KRGB", "BKWR"]).resize((256, 256), Image.Resampling.NEAREST)
    assert losses(drawn) == {"large": 0, "medium": 0, "small": 0}
    photograph = Image.merge("RGB", [Image.effect_noise((256, 256), 60) for _ in "RGB"])
    lost = losses(photograph)
    assert lost["large"] > 0 and lost["medium"] > 0 == lost["small"]


def test_transparency_is_kept(subtests):
    """Of pixels, and of the colours of a palette."""
    colour = (200, 100, 40, 120)
    for format_ in ("PNG", "WEBP"):
        for mode in ("RGBA", "LA"):
            assert tile_letters(encode(tiles(["W-", "-K"]).convert(mode), format_)) == "W- -K"
        seen = centre_colour(encode(Image.new("RGBA", (9, 9), colour), format_, lossless=True))
        assert max(abs(a - b) for a, b in zip(seen, colour, strict=True)) <= 4
    image = Image.new("P", (40, 40), 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    assert centre_colour(encode(image, "PNG", transparency=bytes([255, 128])))[3] in range(126, 131)
    assert tile_letters(encode(image, "PNG", transparency=1), 1) == "-"
    assert tile_letters(encode(image, "GIF", transparency=1), 1) == "-"
    assert tile_letters(encode(image, "GIF"), 1) == "R"
    for bits, colour_type, key, row, expected in (
        (8, 0, (255,), b"\xff" * 8, "-"),
        (8, 2, (255, 0, 0), b"\xff\0\0" * 8, "-"),
        (16, 0, (0xFFFF,), b"\xff\xff" * 8, "-"),
        (16, 0, (0x00FF,), b"\xff\xff" * 8, "W"),
        (16, 2, (0xFF00, 0, 0), b"\xff\0\0\0\0\0" * 8, "-"),
        (16, 2, (0x00FF, 0x00FF, 0x00FF), b"\xff" * 48, "W"),
    ):
        packed = struct.pack(f">{len(key)}H", *key)
        upload = flat_png(8, 8, bits, colour_type, b"tRNS", packed, row=row)
        with subtests.test(bits=bits, key=key):
            assert tile_letters(upload, 1) == expected


def test_colour_profile_is_applied_if_it_is_valid(subtests):
    for format_ in ("PNG", "JPEG", "WEBP"):
        picture = opaque(["RG", "BW"])
        for profile in (b"no profile", swapped_profile()[:300], b"\0" * 5000):
            with subtests.test(format_, profile=profile[:10]):
                assert tile_letters(encode(picture, format_, icc_profile=profile)) == "RG BW"
        if format_ != "JPEG":
            picture.putalpha(255)
        with subtests.test(format_):
            swapped = encode(picture, format_, icc_profile=swapped_profile())
            assert tile_letters(swapped) == "BG RW"


# -- metadata -----------------------------------------------------------------------------------


def webp_chunks(content: bytes) -> set[bytes]:
    kinds, at = set(), 12
    while at < len(content):
        kind, length = struct.unpack_from("<4sI", content, at)
        kinds.add(kind)
        at += 8 + length + length % 2
    assert at == len(content) == 8 + int.from_bytes(content[4:8], "little")
    return kinds


@pytest.mark.live
@every_format
def test_only_pixels_are_kept(format_):
    """Camera, GPS position, profile, comments and trailing bytes are removed."""
    picture = Image.new("RGBA", (80, 80), (255, 0, 0, 128))
    text = PngImagePlugin.PngInfo()
    text.add_text("SECRET", "SECRET")
    text.add_itxt("XML:com.adobe.xmp", "SECRET")
    profile = {"icc_profile": swapped_profile()}
    options = {
        "PNG": {"exif": exif(1), "pnginfo": text} | profile,
        "WEBP": {"exif": exif(1), "xmp": b"SECRET"} | profile,
        "JPEG": {"exif": b"Exif\0\0" + exif(1), "comment": b"SECRET"} | profile,
        "GIF": {"comment": b"SECRET"},
    }[format_]
    upload = encode(picture.convert("RGB") if format_ == "JPEG" else picture, format_, **options)
    upload += b"<script>alert('SECRET')</script>"
    assert upload.count(b"SECRET") >= 2
    for content in make_picture(upload).values():
        assert webp_chunks(content) <= {b"VP8X", b"VP8 ", b"ALPH", b"VP8L"}
        assert not re.search(b"SECRET|script|Exif|http|acsp", content)


@pytest.mark.live
def test_colours_of_transparent_pixels_are_removed():
    hidden = Image.new("RGBA", (300, 300), (255, 255, 255, 0))
    ImageDraw.Draw(hidden).text((10, 10), "SECRET", fill=(255, 0, 0, 0), font_size=80)
    blank = make_picture(encode(Image.new("RGBA", (300, 300)), "PNG"))
    assert make_picture(encode(hidden, "PNG")) == blank
    assert make_picture(encode(hidden, "WEBP", lossless=True, exact=True)) == blank


# -- damage besides the pixels ------------------------------------------------------------------


def with_chunk(png: bytes, kind: bytes, content: bytes, change: int = 0) -> list[bytes]:
    """Return a PNG file with a chunk before its pixels, and behind them; `change` its checksum."""
    chunk = bytearray(png_chunk(kind, content))
    chunk[-1] ^= change
    places = (png.index(b"IDAT") - 4, png.rindex(b"IEND") - 4)
    return [png[:at] + chunk + png[at:] for at in places]


def test_damage_besides_the_pixels_is_ignored(subtests):
    picture = opaque(["RG", "BW"])
    png = encode(picture, "PNG")
    large = zlib.compress(b"x" * (2**20 + 1))
    chunks = {
        **{b"tEXt": b"Title\0x", b"zTXt": b"Title\0\0" + large, b"iCCP": b"profile\0\0" + large},
        **{b"iTXt": b"Title\0\1\0\0\0" + large, b"eXIf": exif(3), b"gAMA": b"\0\0\xb1\x8f"},
        **{b"tRNS": b"\0\xff\0\0\0\0", b"xxXx": b"?"},  # red, and unknown
    }
    uploads = {kind: with_chunk(png, kind, content, 1) for kind, content in chunks.items()}
    for kind in (b"zTXt", b"iTXt", b"iCCP"):
        uploads[f"large {kind}"] = with_chunk(png, kind, chunks[kind])
    for kind in (b"eXIf", b"tRNS"):  # Pillow applies one behind the pixels, whatever its checksum
        uploads[kind].pop()
    uploads["no end"] = [
        encode(picture, each, **options)[:-cut]
        for each, cuts in (("PNG", (1, 12)), ("GIF", (1,)), ("JPEG", (1, 2)))
        for cut in cuts
        for options in ({}, {"progressive": True}, {"progressive": True, "restart_marker_rows": 1})
    ]
    prefixes = {"PNG": b"", "WEBP": b"", "JPEG": b"Exif\0\0"}
    uploads["EXIF"] = [
        encode(picture, each, exif=prefix + b"no TIFF" * 9) for each, prefix in prefixes.items()
    ]
    for name, files in uploads.items():
        for number, upload in enumerate(files):
            with subtests.test(name, number=number):
                assert tile_letters(upload) == "RG BW"
    # A profile beside damage is applied.
    png = encode(opaque(["RG", "BW"]), "PNG", icc_profile=swapped_profile(), exif=exif(3))
    for upload in with_chunk(png, b"tEXt", b"Title\0x", 1):
        assert tile_letters(upload) == "WR GB"


# -- refused files ------------------------------------------------------------------------------


def test_other_format_or_truncated_file_is_refused(subtests):
    for upload in (
        b"Dear player, this is no picture.",
        b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>',
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200),
        b"\0\0\0\x1cftypavif\0\0\0\0avifmif1" + bytes(200),
        b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n",
        *(encode(Image.new("RGB", (8, 8)), each) for each in ("BMP", "TIFF", "ICO")),
        b"RIFF\x24\0\0\0WAVEfmt " + bytes(28),
        b"\n" + encode(Image.new("RGB", (8, 8)), "PNG"),
        b"\0",
    ):
        with subtests.test(upload[:20]), pytest.raises(errors.NotAPicture):
            make_picture(upload)
    with pytest.raises(errors.BrokenPicture, match="empty"):
        make_picture(b"")
    noise = Image.merge("RGB", [Image.effect_noise((200, 150), 60)] * 3)
    several = ({}, {"progressive": True, "lossless": True})
    for format_, options in itertools.product(FORMATS, several):
        upload = encode(noise, format_, **options)
        assert read_centre(upload).size == (150, 150)
        for part in (0.1, 0.5, 0.9, 0.98):
            with subtests.test(format_, part=part), pytest.raises(errors.BrokenPicture):
                read_centre(upload[: int(len(upload) * part)])


@pytest.mark.live
def test_newline_byte_in_the_webp_length_is_accepted():
    files = (riff((b"VP8L", flat_webp(9, 9)[20:]), (b"junk", bytes(n))) for n in range(256))
    upload = next(each for each in files if each[4] == ord("\n"))
    assert make_picture(upload).keys() == PICTURE_SIZES.keys()


def test_first_bytes_decide_the_format(subtests):
    """A picture after the signature of another format is refused."""
    signatures = {"PNG": b"\x89PNG\r\n\x1a\n", "JPEG": b"\xff\xd8\xff"}
    signatures |= {"GIF": b"GIF89a", "WEBP": b"RIFF\0\0\1\0WEBP"}
    refused = errors.BrokenPicture, errors.TooManyPixels
    for name, signature in signatures.items():
        for format_ in signatures.keys() - {name}:
            with subtests.test(name, format_=format_), pytest.raises(refused):
                read_centre(signature + encode(opaque(["R"]), format_))


@pytest.mark.live
def test_upload_limit_is_exactly_8_mib():
    *uploads, upload = (encode(opaque(["R"]), each).ljust(MAX_BYTES, b"\0") for each in FORMATS)
    assert len(upload) == 8 * 1024 * 1024
    for other_format in uploads:
        assert tile_letters(other_format, 1) == "R"
    assert make_picture(upload).keys() == PICTURE_SIZES.keys()
    for too_large in (*uploads, upload):
        with pytest.raises(errors.TooManyBytes, match="8 MB"):
            make_picture(too_large + b"\0")


def gif_of_size(screen: tuple[int, int], frame: tuple[int, int], before: bytes = b"") -> bytes:
    """Return a GIF file of this size without pixels, whose frame has a disposal method."""
    header = b"GIF89a" + struct.pack("<2H3B", *screen, 0x80, 0, 0) + bytes(6)
    control = b"!\xf9\4\x08\0\0\0\0"
    return header + control + before + b"," + struct.pack("<4HB", 0, 0, *frame, 0) + b"\2\1\4\0;"


def jpeg_of_size(width: int, height: int, **options) -> bytes:
    """Return a JPEG file with this size in its header and the pixels of a small picture."""
    jpeg = encode(Image.new(options.pop("mode", "RGB"), (64, 64)), "JPEG", **options)
    at = re.search(rb"\xff[\xc0-\xc2]\0.\x08", jpeg, re.DOTALL).end()
    return jpeg[:at] + struct.pack(">2H", height, width) + jpeg[at + 4 :]


def test_over_25_megapixels_is_refused(subtests):
    for name, upload in {
        "PNG": flat_png(5000, 5001, 1, 0),
        "wide PNG": flat_png(25_000_001, 1, 1, 0),
        "WebP": flat_webp(5000, 5001),
        "GIF": gif_of_size((5000, 5001), (10, 10)),
        "GIF frame": gif_of_size((10, 10), (5000, 5001)),
        "largest GIF": gif_of_size((65535, 65535), (65535, 65535)),
        "JPEG": jpeg_of_size(5000, 5001),
        "largest JPEG": jpeg_of_size(65000, 65000, progressive=True),
    }.items():
        with subtests.test(name), pytest.raises(errors.TooManyPixels, match="25 million"):
            read_centre(upload)


@pytest.mark.load
@pytest.mark.parametrize(
    "upload, kinds",
    [
        (lambda: encode(Image.new("L", (5000, 5000)), "GIF"), ["picture"]),
        (lambda: encode(Image.new("L", (5000, 5000)), "JPEG"), ["picture"]),
        (
            lambda: encode(Image.new("CMYK", (5000, 5000)), "JPEG", progressive=True)[:-2],
            ["picture"],
        ),
        (lambda: jpeg_of_size(5000, 5000, progressive=True, mode="CMYK"), ["picture"]),
        (lambda: jpeg_of_size(4000, 4000, progressive=True, subsampling=0), ["picture"]),
        (lambda: jpeg_of_size(25_000, 1000, subsampling=0), ["picture"]),
        (lambda: flat_webp(6320, 3950), ["cover"]),
        (
            lambda: flat_png(
                6320, 3950, 8, 6, b"iCCP", b"x\0\0" + zlib.compress(swapped_profile())
            ),
            SIZES,
        ),
    ],
    ids=["GIF", "JPEG", "without an end", "CMYK", "4:4:4", "wide", "WebP", "PNG"],
)
def test_25_megapixels_are_accepted(upload, kinds):
    """The last two have the shape of a cover, so that nothing of them is cut off."""
    for kind in kinds:
        assert make_picture(upload(), kind).keys() == SIZES[kind].keys()


# -- memory and time ----------------------------------------------------------------------------

WORKER = """
import sys, threading

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) // 1024

def work():
    try:
        results.append(sorted(make_picture(upload)))
    except PictureRefused as error:
        results.append(type(error).__name__)

upload = sys.stdin.buffer.read()
results = []
before = memory("VmRSS")
from model.errors import PictureRefused
from images.pictures import make_picture
threads = [threading.Thread(target=work) for _ in range(int(sys.argv[1]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*results, sep="\\n")
print(memory("VmHWM") - before, memory("VmRSS") - before)
"""


def measure_conversion(upload: bytes, threads: int = 1) -> tuple[str, int, int]:
    """Convert an upload in a new process; return the result, and its peak and final memory in MiB.

    The memory does not count what the process used before.
    """
    command = [sys.executable, "-c", WORKER, str(threads)]
    done = subprocess.run(command, input=upload, cwd=ROOT, capture_output=True, check=True)
    *results, memory = done.stdout.decode().splitlines()
    peak, remaining = map(int, memory.split())
    assert results == results[:1] * threads
    return results[0], peak, remaining


PICTURE_MADE = str(sorted(PICTURE_SIZES))


@pytest.mark.load
@pytest.mark.parametrize(
    "upload",
    [lambda: flat_png(5000, 5000, 8, 6).ljust(MAX_BYTES, b"\0"), lambda: flat_webp(5000, 5000)],
    ids=["PNG", "lossless WebP"],
)
def test_parallel_large_uploads_stay_under_200_mib(upload):
    """The worker has 50 MiB before; three uploads are converted in parallel."""
    result, peak, remaining = measure_conversion(upload(), threads=3)
    assert (result, peak < 150, remaining < 50) == (PICTURE_MADE, True, True), (peak, remaining)


def text_bomb() -> bytes:
    """Return a PNG file with 150 KiB of texts that take 200 MiB decompressed."""
    text = zlib.compress(("\N{GRINNING FACE}" + "a" * 1_000_000).encode(), 9)
    return flat_png(
        8, 8, 8, 2, *(each for n in range(60) for each in (b"iTXt", b"%d\0\1\0\0\0" % n + text))
    )


def profile_bomb() -> bytes:
    """Return a PNG file with a colour profile that takes 95 MiB decompressed; it is ignored."""
    return flat_png(8, 8, 8, 2, b"iCCP", b"x\0\0" + zlib.compress(bytes(10**8)))


@pytest.mark.load
@pytest.mark.parametrize(
    "upload, result",
    [
        (lambda: flat_png(13_000, 13_000, 1, 0), "TooManyPixels"),
        (text_bomb, PICTURE_MADE),
        (profile_bomb, PICTURE_MADE),
        (lambda: gif_of_size((8, 8), (8, 8), b"!\xfe\2xx\0" * 10**6), "BrokenPicture"),
        (lambda: b"\xff\xd8" + b"\xff\xe0\0\2" * 2_000_000, "BrokenPicture"),
        (lambda: riff(*((b"ALPH", b"12345678") for _ in range(400_000))), "BrokenPicture"),
    ],
    ids=["pixels", "texts", "profile", "GIF comments", "segments", "WebP chunks"],
)
def test_decompression_bomb_uses_little_memory(upload, result):
    bomb = upload()
    assert len(bomb) <= MAX_BYTES
    seen, peak, _ = measure_conversion(bomb)
    assert (seen, peak < 60) == (result, True), peak


def decode(upload: bytes, limit: str = "MAX_SECONDS", then: str = ""):
    """Run the decoding process with one of its limits changed, and code after it."""
    program = f"from images import pictures; pictures.{limit}; pictures.main(){then}"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, input=upload, cwd=ROOT, capture_output=True)


@pytest.mark.load
def test_decoder_is_killed_at_the_time_limit():
    """A progressive JPEG file can have 100,000 scans of 25 megapixels each."""
    jpeg = encode(Image.new("RGB", (5000, 5000)), "JPEG", progressive=True)
    last = jpeg[jpeg.rindex(b"\xff\xc4") : -2]
    endless = jpeg[:-2] + last * 10_000 + jpeg[-2:]
    assert decode(endless, "MAX_SECONDS = 1").returncode == -signal.SIGKILL


@pytest.mark.live
def test_decoder_fails_at_the_memory_limit():
    """A large JPEG file is below it: it is decoded at reduced size."""
    for limit, upload, fits in (
        (200, flat_webp(5000, 5000), False),
        (200, flat_webp(50, 50), True),
        (128, encode(Image.new("RGB", (5000, 5000)), "JPEG"), True),
    ):
        done = decode(upload, f"MAX_MEMORY = {limit} * 2**20")
        assert (b"large" in done.stdout) is fits


@pytest.mark.live
def test_decoder_has_low_priority():
    done = decode(encode(opaque(["R"]), "PNG"), then="; import os; print(os.nice(0))")
    assert int(done.stdout.split()[-1]) == min(19, os.nice(0) + 10)


@pytest.mark.live
def test_crashed_decoder_refuses_the_picture(monkeypatch, tmp_path):
    """Its process group is its own: Ctrl-C in a terminal is for the server."""
    crashing, group = tmp_path / "python", "$(cut -d ' ' -f 5 /proc/$$/stat)"
    crashing.write_text(f"#!/bin/sh\n[ {group} = $$ ] && echo started\nexit 1\n")
    crashing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(crashing))
    with pytest.raises(errors.TooManyPixels, match="too long to read"):
        make_picture(encode(opaque(["R"]), "PNG"))


@pytest.mark.live
def test_decoder_that_does_not_start_is_503(monkeypatch):
    for program in (shutil.which("false"), "no-such-program"):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(errors.DecoderNotStarted, match="Tell the people who run this site"):
            make_picture(encode(opaque(["R"]), "PNG"))


UNDER_A_LIMIT = """
import resource, sys
from images.pictures import make_picture
resource.setrlimit(resource.RLIMIT_AS, (400 * 2**20, 400 * 2**20))
print(*make_picture(sys.stdin.buffer.read()))
"""


@pytest.mark.live
def test_decoder_works_below_the_memory_limit_of_the_server():
    """A systemd LimitAS, say. No process but root's may raise a hard limit, not even to 640 MiB."""
    unprivileged = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]
    done = subprocess.run(
        [*(unprivileged if os.geteuid() == 0 else ()), sys.executable, "-c", UNDER_A_LIMIT],
        input=encode(opaque(["R"]), "PNG"),
        capture_output=True,
        cwd=ROOT,
    )
    assert (done.stdout.split(), done.stderr) == ([*map(str.encode, PICTURE_SIZES)], b"")
