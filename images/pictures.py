"""Pictures: webp files made from an upload, or generated for a new account.

A profile picture is a webp file in each of the sizes of `model.records.PICTURE_SIZES`, and the
cover of an app in those of COVER_SIZES; `images.covers` generates covers.

An upload is decoded in a process of its own with limits on memory and time: whatever a file does
to its decoder, the worker goes on. This module is that process' program.
"""

import base64
import colorsys
import contextlib
import functools
import io
import json
import logging
import os
import re
import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator, Set
from pathlib import Path
from typing import BinaryIO

from PIL import Image, ImageCms, ImageOps

from model import errors
from model.records import COVER_SIZES, PICTURE_SIZES
from model.words import Words, say

LOG = logging.getLogger(__name__)
MAX_BYTES = 8 * 2**20  # of an upload
MAX_PIXELS = 25_000_000
MAX_MEMORY = 640 * 2**20  # bytes of the decoding process: WebP takes sixteen a pixel, others four
MAX_SECONDS = 10  # of its processor time: the largest pictures take one
SIZES = {  # width and height in pixels of each kind of picture, by size name
    "picture": {name: (side, side) for name, side in PICTURE_SIZES.items()},
    "cover": COVER_SIZES,
    "logo": {"logo": (256, 256)},
}
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")  # the decoders of rarer ones have more holes
STARTED = "started"  # what the decoding process prints before it reads the upload
SIGNATURE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|RIFF....WEBP|GIF8[79]a", re.DOTALL)
SIGNATURE_BYTES = 12
TOO_MANY = say("This picture has more than 25 million pixels. Choose a smaller one.")
ORIENTATION = 0x0112  # EXIF 2.32, 4.6.4 A
LYING = (5, 6, 7, 8)  # orientations of a picture that is turned by a quarter
# The errors of Pillow for a file whose content does not match its signature.
BROKEN = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error)

PNG, PNG_CHUNK = b"\x89PNG\r\n\x1a\n", struct.Struct(">I4s")  # PNG 5.2 and 5.3
JPEG, JPEG_SCAN, JPEG_END = b"\xff\xd8\xff", b"\xff\xda", b"\xff\xd9"  # ITU-T T.81, B.1.1.3
NO_MARKERS = bytes(range(1, 255)) * 8  # what could be more pixels

# -- an upload -----------------------------------------------------------------------------------


def require_usable_upload(upload: BinaryIO) -> None:
    """Raise TooManyBytes, BrokenPicture or NotAPicture for a wrong size or wrong first bytes."""
    size = upload.seek(0, os.SEEK_END)
    upload.seek(0)
    if size > MAX_BYTES:
        raise errors.TooManyBytes(say("This file is larger than 8 MB. Choose a smaller one."))
    if not size:
        raise errors.BrokenPicture(say("This file is empty. Choose another one."))
    if not SIGNATURE.match(upload.read(SIGNATURE_BYTES)):
        raise errors.NotAPicture(
            say("This file is not a PNG, JPEG, WebP or GIF picture. Choose another one.")
        )
    upload.seek(0)


def make_picture(upload: bytes, kind: str = "picture") -> dict[str, bytes]:
    """Return the centre of an uploaded picture, as webp files by the size names of its kind.

    `kind` is a key of SIZES. Raises NotAPicture, BrokenPicture, TooManyBytes, TooManyPixels or
    DecoderNotStarted.
    """
    require_usable_upload(io.BytesIO(upload))
    try:
        done = subprocess.run(
            # Pillow warns of each odd entry in EXIF data: an upload can cause 11 MiB of warnings.
            [sys.executable, "-W", "ignore", "-m", "images.pictures", kind],
            input=upload,
            capture_output=True,
            cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            process_group=0,  # Ctrl-C in a terminal is for the server, which finishes its requests
        )
    except OSError as error:
        LOG.error("pictures are not read: %s", error)
        raise errors.DecoderNotStarted from error
    started, _, answer = done.stdout.decode().partition("\n")
    status = done.returncode, done.stderr.decode(errors="replace")[-500:]
    if started != STARTED:
        LOG.error("pictures are not read: exit status %d %s", *status)
        raise errors.DecoderNotStarted
    if done.returncode != 0:
        LOG.warning("a picture was not read: exit status %d %s", *status)
        problem = say("This file takes too long to read. Choose a smaller picture.")
        raise errors.TooManyPixels(problem)
    answer = json.loads(answer)
    if "error" in answer:
        problem = Words(answer["problem"], {})  # marked there, without values
        raise getattr(errors, answer["error"])(problem)
    return {name: base64.b64decode(answer[name]) for name in SIZES[kind]}


def make_picture_of_file(path: str, kind: str = "picture") -> dict[str, bytes]:
    """Return `make_picture` of a file. Raises PictureRefused with the path in its words."""
    try:
        with open(path, "rb") as file:
            upload = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise errors.PictureRefused(f"{path}: {error.strerror}") from error
    try:
        return make_picture(upload, kind)
    except errors.PictureRefused as error:
        raise errors.PictureRefused(f"{path}: {error}") from error


def main(kind: str = "picture") -> None:
    """Read an upload from standard input, and print the pictures or what is wrong as JSON."""
    with contextlib.suppress(OSError):  # if memory runs out, this process is killed, no worker
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.nice(10)  # constant uploads must not slow other requests
    for limit, most in ((resource.RLIMIT_AS, MAX_MEMORY), (resource.RLIMIT_CPU, MAX_SECONDS)):
        _, hard = resource.getrlimit(limit)  # of the server: only root may exceed it
        lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (lower, lower))
    print(STARTED, flush=True)
    try:
        centre = read_centre(sys.stdin.buffer.read(), kind)
    except errors.PictureRefused as error:
        answer = {"error": type(error).__name__, "problem": str(error)}
    else:
        sizes, lanczos = SIZES[kind], Image.Resampling.LANCZOS
        largest = max(sizes, key=sizes.get)
        # Lossy WebP has one colour for four pixels: nothing of a logo would be left at 16.
        lossy, exact = (
            encode_webp(centre, sizes, lanczos, most_lossless, quality=85)
            for most_lossless in (16, sizes[largest][0])
        )
        # Flat colours with sharp edges, which would run into each other, are smaller without loss.
        pictures = min(exact, lossy, key=lambda each: len(each[largest]))
        answer = {name: base64.b64encode(each).decode() for name, each in pictures.items()}
    print(json.dumps(answer))


def read_centre(upload: bytes, kind: str = "picture") -> Image.Image:
    """Return the centre of a picture's first frame, upright, in sRGB with transparency.

    The centre has the shape of `kind` in SIZES. Whatever else is damaged is ignored if the pixels
    are whole. Raises BrokenPicture, TooManyPixels.
    """
    for each in _ways_to_read(upload):
        with contextlib.suppress(BROKEN), _opened(each) as image:
            return _decode(image, *max(SIZES[kind].values()))
    raise errors.BrokenPicture(say("This file is damaged. Choose another one."))


def _ways_to_read(upload: bytes) -> Iterator[bytes]:
    """Yield an upload, then what it is without the parts that may be damaged besides the pixels."""
    yield upload
    if upload.startswith(PNG):
        yield _png_with(upload, {b"tRNS", b"eXIf", b"iCCP"})
        yield _png_with(upload, {b"tRNS"})  # a profile may be too large
    elif upload.startswith(JPEG) and JPEG_SCAN in upload and _lacks_only_its_end(upload):
        yield upload + JPEG_END


def _png_with(upload: bytes, kept: Set[bytes]) -> bytes:
    """Return a PNG file with its critical chunks and the undamaged ones of these kinds."""
    chunks, at = [PNG], len(PNG)
    while at + PNG_CHUNK.size <= len(upload):
        size, kind = PNG_CHUNK.unpack_from(upload, at)
        chunk = upload[at : at + PNG_CHUNK.size + size + 4]
        checksum = zlib.crc32(chunk[4:-4]).to_bytes(4)
        is_critical = kind[:1].isupper()  # PNG 5.4
        if is_critical or (kind in kept and checksum == chunk[-4:]):
            chunks.append(chunk)
        at += len(chunk)
    return b"".join(chunks)


def _lacks_only_its_end(jpeg: bytes) -> bool:
    """Return True if a JPEG that is cut off has all pixels: they do not depend on what follows."""
    found = set()
    for rest in (JPEG_END, NO_MARKERS + JPEG_END):
        with contextlib.suppress(BROKEN), _opened(jpeg + rest) as image:
            found.add(zlib.crc32(image.tobytes()))
    return len(found) == 1


@contextlib.contextmanager
def _opened(upload: bytes) -> Iterator[Image.Image]:
    """Open a picture for a block. Raises TooManyPixels, and the errors of BROKEN."""
    try:
        with Image.open(io.BytesIO(upload), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise errors.TooManyPixels(TOO_MANY)
            yield image
    except Image.DecompressionBombError as error:
        raise errors.TooManyPixels(TOO_MANY) from error


def _decode(image: Image.Image, width: int, height: int) -> Image.Image:
    """Return the centre, upright and in sRGB, in this shape, its sides below four times these."""
    _shorten_transparent_colour(image)  # now: what is loaded does not tell its depth any more
    orientation, profile = _orientation_of(image), image.info.get("icc_profile")
    if orientation in LYING:
        width, height = height, width
    enough = (2 * width, 2 * height)  # as much as LANCZOS needs to see
    image.draft(None, enough)  # JPEG: decoded at an eighth of its size
    centre = _convert_to_srgb(_shrink(image, *enough), profile)
    centre.getexif()[ORIENTATION] = orientation
    return ImageOps.exif_transpose(centre)


def _orientation_of(image: Image.Image) -> int | None:
    """Return the EXIF orientation of a picture, None for none or damaged EXIF data."""
    if image.format == "PNG":
        image.load()  # its EXIF data may follow the pixels
    with contextlib.suppress(BROKEN):  # they are damaged
        return image.getexif().get(ORIENTATION)
    return None


def _shorten_transparent_colour(image: Image.Image) -> None:
    """Keep the upper 8 bits of the transparent colour of a PNG with 16 bits a channel (tRNS).

    Pillow keeps the upper 8 bits of its pixels, and would keep the lower 8 of this colour.
    """
    colour = image.info.get("transparency")
    if colour is None or not any(";16" in str(tile.args) for tile in image.tile):
        return
    shortened = tuple(each >> 8 for each in colour) if isinstance(colour, tuple) else colour >> 8
    image.info["transparency"] = shortened


def _shrink(image: Image.Image, width: int, height: int) -> Image.Image:
    """Return the centre in the shape of `width` to `height`, with sides less than twice as long.

    CMYK stays CMYK. It is converted and reduced in strips: only the decoded picture is ever whole
    in memory.
    """
    wide = min(image.width, image.height * width // height) or 1
    high = min(image.height, image.width * height // width) or 1
    left, top = (image.width - wide) // 2, (image.height - high) // 2
    factor = min(wide // width, high // height) or 1
    wide, high = wide // factor, high // factor
    mode = "CMYK" if image.mode == "CMYK" else "RGBa"  # alpha first, so that no edge darkens
    centre = Image.new(mode, (wide, high))
    for y in range(0, high, 16):
        bottom = top + factor * min(y + 16, high)
        strip = image.crop((left, top + factor * y, left + factor * wide, bottom))
        if strip.mode.startswith("I"):  # 16 bits of grey: convert() would clip what is above 8
            strip = strip.point(lambda value: value / 256).convert("L")
        if mode == "RGBa":
            strip = strip.convert("RGBA").convert("RGBa")
        centre.paste(strip.reduce(factor), (0, y))
    return centre if mode == "CMYK" else centre.convert("RGBA")


def _convert_to_srgb(centre: Image.Image, profile: bytes | None) -> Image.Image:
    """Return a picture in RGBA, with the colours that its ICC profile, if there is one, means."""
    mode = "RGB" if centre.mode == "CMYK" else "RGBA"
    if profile:
        # A profile that is damaged or for other colours is ignored.
        with contextlib.suppress(ImageCms.PyCMSError):
            source, srgb = io.BytesIO(profile), ImageCms.createProfile("sRGB")
            centre = ImageCms.profileToProfile(centre, source, srgb, outputMode=mode)
    return centre.convert("RGBA")


def encode_webp(
    image: Image.Image,
    sizes: dict[str, tuple[int, int]],
    resampling: Image.Resampling,
    most_lossless: int,
    **options: int,
) -> dict[str, bytes]:
    """Return webp files by size name, lossless up to a width of `most_lossless` pixels.

    `options` are those of Pillow's encoder.
    """
    encoded = {}
    for name, size in sizes.items():
        output, options["lossless"] = io.BytesIO(), size[0] <= most_lossless
        image.resize(size, resampling).save(output, "WEBP", icc_profile=None, **options)
        encoded[name] = output.getvalue()
    return encoded


@functools.lru_cache(maxsize=4)
def encode_png(image: bytes, side: int) -> bytes:
    """Return a picture of ours as a square PNG file on white, which shows it on any ground."""
    output, white = io.BytesIO(), Image.new("RGBA", (side, side), "white")
    logo = Image.open(io.BytesIO(image), formats=("WEBP",)).convert("RGBA").resize(white.size)
    Image.alpha_composite(white, logo).convert("RGB").quantize().save(output, "PNG")
    return output.getvalue()


# -- the picture of a new account ----------------------------------------------------------------

CELLS = 8  # a creature is drawn on 8 x 8 cells, so that 16 pixels show each as 2 x 2
HUES = 512  # a power of two
# The left half of the face; the right half mirrors it. "#" is always body, "o" an eye, "." always
# background, and each "?" is one bit of the creature's number.
FACE = ("....", ".???", ".???", ".#o#", ".?##", ".???", ".???", "....")
BODY_BITS = sum(row.count("?") for row in FACE)
CONTRAST = HUES // 2 + HUES // 12  # from the hue of the background to that of the body


def generate_picture(user_id: int, *names: str) -> dict[str, bytes]:
    """Return a small creature as webp files by size name: those of `names`, by default all.

    The same id gives the same picture, and ids less than 2**22 apart never the same one.
    """
    # An odd factor permutes the numbers below a power of two: neighbouring ids are far apart.
    body, hue = divmod(user_id * 0x9E3779B1 % (HUES << BODY_BITS), HUES)
    # Lossless: flat colours are smaller so, and no two creatures blur into one at 16 pixels.
    colours = {
        ".": colour_of(hue, lightness=0.87, saturation=0.55),
        "#": colour_of(hue + CONTRAST, lightness=0.42, saturation=0.62),
        "o": (255, 255, 255),
    }
    face = draw_face(body, colours)
    sizes = {name: SIZES["picture"][name] for name in names or PICTURE_SIZES}
    return encode_webp(face, sizes, Image.Resampling.NEAREST, most_lossless=256)


def draw_face(body: int, colours: dict[str, tuple | int], mode: str = "RGB") -> Image.Image:
    """Return the creature with this number, one pixel a cell, in a colour for each kind of cell."""
    pixels = []
    for row in FACE:
        half = []
        for cell in row:
            kind = cell
            if cell == "?":
                body, bit = divmod(body, 2)
                kind = "#" if bit else "."
            half.append(colours[kind])
        pixels += half + half[::-1]
    image = Image.new(mode, (CELLS, CELLS))
    image.putdata(pixels)
    return image


def colour_of(hue: int, lightness: float, saturation: float) -> tuple[int, int, int]:
    """Return an RGB colour; `hue` counts steps around the colour wheel, which has HUES."""
    red, green, blue = colorsys.hls_to_rgb(hue % HUES / HUES, lightness, saturation)
    return round(red * 255), round(green * 255), round(blue * 255)


if __name__ == "__main__":
    main(*sys.argv[1:])
