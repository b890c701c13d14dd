"""Profile pictures: an upload in, three webp files out; and the one that a new account gets.

A picture is a webp file in each of the sizes of `storage.PICTURE_SIZES`.

An upload is taken apart here, and a decoder gets only what draws the first picture in it. So
comments, places, further frames and what stands behind the picture neither survive nor cost
anything: 150 KiB of packed texts in a PNG would take 400 MiB in Pillow.
"""

import colorsys
import ctypes
import io
import re
import struct
import threading
import zlib

from PIL import GifImagePlugin, Image, ImageCms, JpegImagePlugin, PngImagePlugin, _webp

from storage import PICTURE_SIZES, BrokenPicture, NotAPicture, TooManyBytes, TooManyPixels

MAX_BYTES = 8 * 2**20  # of an upload
MAX_PIXELS = 25_000_000
MAX_DECODED = 110_000_000  # bytes: what a decoder may hold, of the 200 MiB of a worker
MAX_PROFILE = 4 * 2**20  # bytes, unpacked: those for print have 2 MiB
MAX_PARTS = 10_000  # segments or chunks in a file: programs write a thousand
MAX_SCANS = 100  # in a JPEG: programs write ten, and one of 60 bytes can cost 20 ms
WORKING_SIDE = 2 * max(PICTURE_SIZES.values())  # pixels: as much as LANCZOS needs to see
# What Pillow and the readers raise for a file that is not what its first bytes say.
BROKEN = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error)

# One at a time: two would take 300 MiB, and on the one core of a worker be no faster.
DECODING = threading.Lock()
LIBC, LIBWEBP = ctypes.CDLL(None), ctypes.CDLL(_webp.__file__)  # the libwebp that Pillow uses
# glibc would keep up to 64 MiB for every thread that ever decoded a picture; musl has no mallopt.
if hasattr(LIBC, "mallopt"):
    LIBC.mallopt(-3, 2**20)  # M_MMAP_THRESHOLD: blocks of a MiB go back to the system when freed

Parts = tuple[Image.Image, bytes, bytes]  # the centre square, the EXIF data, the colour profile


# ---------------------------------------------------------------------------------------------
# The picture in an upload
# ---------------------------------------------------------------------------------------------


def make_picture(upload: bytes) -> dict[str, bytes]:
    """The centre square of an uploaded picture, as webp bytes by size name.

    Raises NotAPicture, BrokenPicture, TooManyBytes or TooManyPixels.
    """
    if not upload:
        raise BrokenPicture("the file is empty")
    if len(upload) > MAX_BYTES:
        raise TooManyBytes(f"the file is larger than {MAX_BYTES // 2**20} MiB")
    read = next((READERS[each] for each in READERS if re.match(each, upload)), None)
    if read is None:
        raise NotAPicture("the file is not a PNG, JPEG, WebP or GIF picture")
    try:
        with DECODING:
            square, exif, profile = read(upload)
    except BROKEN as error:
        raise BrokenPicture("the file is damaged or cut off") from error
    square = _turn_upright(_convert_to_srgb(square, profile), exif)
    pictures = {}
    for name, side in PICTURE_SIZES.items():
        picture = square.resize((side, side), Image.Resampling.LANCZOS)
        # Lossy WebP has one colour for four pixels: nothing of a logo is left at 16.
        pictures[name] = _encode(picture, quality=85, lossless=side <= 16)
    return pictures


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise TooManyPixels(f"the picture has more than {MAX_PIXELS // 10**6} million pixels")


def _shrink(image: Image.Image) -> Image.Image:
    """The centre square, its sides shorter than twice WORKING_SIDE. CMYK stays CMYK.

    Converted and reduced in strips: only what the decoder made is ever whole in memory.
    """
    _check_pixels(*image.size)
    image.load()
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    factor = side // WORKING_SIDE or 1
    side //= factor
    mode = "CMYK" if image.mode == "CMYK" else "RGBa"
    square = Image.new(mode, (side, side))
    for y in range(0, side, 16):
        bottom = top + factor * min(y + 16, side)
        strip = image.crop((left, top + factor * y, left + factor * side, bottom))
        if strip.mode == "I;16":
            strip = strip.point(lambda value: value / 256).convert("L")  # convert alone clips
        if mode == "RGBa":
            strip = strip.convert("RGBA").convert("RGBa")
        square.paste(strip.reduce(factor), (0, y))
    return square


def _convert_to_srgb(square: Image.Image, profile: bytes) -> Image.Image:
    square, mode = (square, "RGB") if square.mode == "CMYK" else (square.convert("RGBA"), "RGBA")
    try:
        source, srgb = io.BytesIO(profile), ImageCms.createProfile("sRGB")
        square = ImageCms.profileToProfile(square, source, srgb, outputMode=mode)
    except ImageCms.PyCMSError:
        pass  # there is no profile, or it is damaged, or not for these colours
    return square.convert("RGBA")


# EXIF 2.32, 4.6.4 A: tag 0x0112, one SHORT, in either byte order. A search, because reading the
# directory as Pillow does costs what the upload wants it to cost.
ORIENTATION = re.compile(
    rb"\x12\x01\x03\0\x01\0\0\0([\x01-\x08])\0|\x01\x12\0\x03\0\0\0\x01\0([\x01-\x08])"
)
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def _turn_upright(square: Image.Image, exif: bytes) -> Image.Image:
    entry = ORIENTATION.search(exif)
    orientation = ord(entry[1] or entry[2]) if entry else 1
    return square if orientation == 1 else square.transpose(TURNS[orientation])


def _encode(image: Image.Image, **options: int) -> bytes:
    output = io.BytesIO()
    image.save(output, "WEBP", icc_profile=None, **options)
    return output.getvalue()


# ---------------------------------------------------------------------------------------------
# The formats: what draws the picture is kept, checked and decoded
# ---------------------------------------------------------------------------------------------


JPEG_SEGMENT = re.compile(rb"\xff([\xc0-\xcf\xda-\xfe])(..)", re.DOTALL)  # kind, length


def _read_jpeg(upload: bytes) -> Parts:
    kept, exif, profile, at = {}, b"", b"", 2
    for _ in range(MAX_PARTS):
        found = JPEG_SEGMENT.search(upload, at)
        if not found:
            raise ValueError("there is no picture")
        start, kind, at = found.start(), found[1], found.start(2) + int.from_bytes(found[2])
        segment, body = upload[start:at], upload[found.end() : at]
        if kind == b"\xda":  # the first scan
            break
        if kind in b"\xc0\xc1\xc2\xc4\xdb\xdd":  # frame, tables, restart interval
            kept[start] = segment
        elif kind in b"\xe0\xee":  # JFIF, Adobe: how the colours are meant
            kept.setdefault(kind, segment)
        elif body.startswith(b"Exif\0"):
            exif = exif or body
        elif body.startswith(b"ICC_PROFILE\0"):
            profile += body[14:]
    else:
        raise ValueError("too many segments")
    scans = upload[start : upload.index(b"\xff\xd9", at) + 2]
    whole = b"".join([upload[:2], *kept.values(), scans])
    image = JpegImagePlugin.JpegImageFile(io.BytesIO(whole))
    _check_pixels(*image.size)
    coefficients = 0
    if "progressive" in image.info or body[0] < image.layers:
        # In several scans: libjpeg holds all coefficients, and walks over them at each scan.
        samples = [across * down for _, down, across, _ in image.layer]
        coefficients = image.width * image.height * sum(samples) // max([1, *samples])
        if scans.count(b"\xff\xda") > MAX_SCANS:
            raise TooManyPixels("the JPEG has too many scans")
    image.draft(None, (WORKING_SIDE, WORKING_SIDE))
    if 2 * coefficients + 4 * image.width * image.height > MAX_DECODED:
        raise TooManyPixels("the picture is too large for a progressive JPEG")
    return _shrink(image), exif, profile


def _read_png(upload: bytes) -> Parts:
    kept, exif, profile, at = [upload[:8]], b"", b"", 8
    deep = upload[24:25] == b"\x10"
    for _ in range(MAX_PARTS):
        length, kind = struct.unpack_from(">I4s", upload, at)
        chunk = memoryview(upload)[at : at + length + 12]
        at += length + 12
        # Pillow would compare the 16 bits of a deep transparent colour with 8 of each pixel.
        if kind in (b"IHDR", b"PLTE", b"IDAT", b"IEND") or kind == b"tRNS" and not deep:
            kept.append(chunk)
        elif kind == b"eXIf":
            exif = bytes(chunk)
        elif kind == b"iCCP" and not profile:
            packed = bytes(chunk[8:-4]).partition(b"\0")[2][1:]
            profile = zlib.decompressobj().decompress(packed, MAX_PROFILE)
        if kind == b"IEND":
            break
    else:
        raise ValueError("too many chunks")
    image = PngImagePlugin.PngImageFile(io.BytesIO(b"".join(kept)))
    return _shrink(image), exif, profile


def _read_gif(upload: bytes) -> Parts:
    start = at = 13 + (3 << (upload[10] & 7) + 1 if upload[10] & 0x80 else 0)
    control = b""  # says which colour is transparent
    while upload[at] == ord("!"):  # an extension: kind, blocks, and an empty one
        control = upload[at : at + 8] if upload[at + 1] == 0xF9 else control
        at += 2
        while upload[at]:
            at += 1 + upload[at]
        at += 1
    separator, left, top, width, height = struct.unpack_from("<c4H", upload, at)
    if separator != b",":
        raise ValueError("there is no picture")
    screen = struct.unpack_from("<2H", upload, 6)
    _check_pixels(max(screen[0], left + width), max(screen[1], top + height))
    image = GifImagePlugin.GifImageFile(io.BytesIO(upload[:start] + control + upload[at:]))
    return _shrink(image), b"", b""


def _read_webp(upload: bytes) -> Parts:
    parts, at, end = {}, 12, 8 + int.from_bytes(upload[4:8], "little")
    if end > len(upload):
        raise ValueError("cut off")
    for _ in range(MAX_PARTS):
        if at >= end:
            break
        kind, length = struct.unpack_from("<4sI", upload, at)
        size = 8 + length + length % 2
        parts.setdefault(kind, upload[at : at + size])
        at += size
    # The first frame of an animation, or the only one: chunks that libwebp reads as they are
    animated = parts.get(b"ANMF", b"")
    frame = animated[24:] or b"".join(map(parts.get, (b"ALPH", b"VP8 ", b"VP8L"), [b""] * 3))
    size = (ctypes.c_int * 2)()
    if not LIBWEBP.WebPGetInfo(frame, ctypes.c_size_t(len(frame)), size, ctypes.byref(size, 4)):
        raise ValueError("there is no picture")
    _check_pixels(*size)
    canvas = tuple(size)
    if b"VP8X" in parts:
        canvas = 1 + _int24(parts[b"VP8X"], 12), 1 + _int24(parts[b"VP8X"], 15)
    _check_pixels(*canvas)
    side = min(canvas)
    factor = side // WORKING_SIDE or 1
    # The square as the frame sees it, which may be but a part of the canvas
    left = (canvas[0] - side) // 2 - 2 * _int24(animated, 8)
    top = (canvas[1] - side) // 2 - 2 * _int24(animated, 11)
    box = max(left, 0), max(top, 0), min(left + side, size[0]), min(top + side, size[1])
    square = Image.new("RGBa", (side // factor, side // factor))
    if box[0] < box[2] and box[1] < box[3]:
        place = (box[0] - left) // factor, (box[1] - top) // factor
        square.paste(_decode_webp(frame, box, factor), place)
    return square, parts.get(b"EXIF", b""), parts.get(b"ICCP", b"")[8:]


def _int24(chunk: bytes, at: int) -> int:
    return int.from_bytes(chunk[at : at + 3], "little")


class WebPDecoderConfig(ctypes.Structure):
    """As in libwebp's decode.h, of which Pillow offers only what takes 16 bytes a pixel."""

    _fields_ = [
        ("input", ctypes.c_int * 10),
        ("output", ctypes.c_int * 4),  # colour space, width, height, "the memory is ours"
        # A union: where the pixels go, the bytes in a row and in all come first
        ("pixels", ctypes.c_size_t * (8 + 16 // ctypes.sizeof(ctypes.c_size_t))),
        ("reserved", ctypes.c_int * 4),
        ("private_memory", ctypes.c_void_p),
        ("options", ctypes.c_int * 19),  # from the third: "crop", its box, "scale", its size
    ]


def _decode_webp(frame: bytes, box: tuple[int, int, int, int], factor: int) -> Image.Image:
    """What the box shows of a frame, as many times smaller as factor says."""
    left, top, right, bottom = box
    width, height = max((right - left) // factor, 1), max((bottom - top) // factor, 1)
    pixels = ctypes.create_string_buffer(4 * width * height)
    config = WebPDecoderConfig()
    if not LIBWEBP.WebPInitDecoderConfigInternal(ctypes.byref(config), 0x0209):
        raise RuntimeError("this libwebp has another ABI")
    config.output[:] = 7, 0, 0, 1  # MODE_rgbA
    config.pixels[:3] = ctypes.addressof(pixels), 4 * width, len(pixels)
    # Scaled only where needed: 2 x 2 pixels scaled to 2 x 2 lose their colours in libwebp.
    config.options[2:10] = 1, left, top, right - left, bottom - top, factor > 1, width, height
    status = LIBWEBP.WebPDecode(frame, ctypes.c_size_t(len(frame)), ctypes.byref(config))
    if status:
        raise ValueError(f"libwebp says {status}")
    return Image.frombuffer("RGBa", (width, height), pixels, "raw", "RGBa", 0, 1)


# The first bytes of each format that is taken; a file's name and announced type say nothing.
READERS = {
    rb"\x89PNG\r\n\x1a\n": _read_png,
    rb"\xff\xd8\xff": _read_jpeg,
    rb"(?s)RIFF....WEBP": _read_webp,
    rb"GIF8[79]a": _read_gif,
}


# ---------------------------------------------------------------------------------------------
# The picture of a new account
# ---------------------------------------------------------------------------------------------

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
    # Lossless: flat colours are smaller so, and no two creatures blur into one at 16 pixels.
    return {
        name: _encode(creature.resize((side, side), Image.Resampling.NEAREST), lossless=True)
        for name, side in PICTURE_SIZES.items()
    }


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
