"""What makes a record, a picture or a line of the audit log unusable, wherever it came from."""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from model.errors import DamagedRecord
from model.kind import Kind
from model.records import PICTURE_SIZES, User
from model.rules import TIME_END
from model.texts import BIO_CONTROLS, drop_hidden, has_controls

MAX_PICTURE_BYTES = 2**20  # of one size
LONGEST_AUDIT_LINE = 2**16  # bytes
UNARCHIVED = ("sessions", "body")  # fields that no archive has, of players and of letters
IN_LINES = ("bio", "text", "description", "announcement")  # fields with several lines


def require_sound(kind: Kind, record: Any) -> None:
    """Raise DamagedRecord for a record that could harm the server or a person who reads it."""
    place = f"{kind.name}/{record.id}.json"
    for problem in problems_in_fields(kind, record):
        raise DamagedRecord(place, problem)
    if isinstance(record, User) and not has_picture_time(record):
        raise DamagedRecord(place, "its pfp_timestamp is not a time")


def problems_in_fields(kind: Kind, record: Any) -> Iterator[str]:
    """Yield the problems with which no archive may have a record.

    They are an impossible id, a broken `must_hold` rule, control characters, and a missing key.
    """
    if not kind.may_have(record.id):
        yield f"id: No {kind.one} has this id."
    for field, check in kind.must_hold(record).items():
        if problem := check(getattr(record, field)):
            yield f"{field}: {problem}"
    for field in (each.name for each in fields(record)):
        value = getattr(record, field)
        if not value or isinstance(value, int) or field in UNARCHIVED:
            continue
        allowed, texts = BIO_CONTROLS if field in IN_LINES else "", _texts_in(value)
        if any(has_controls(text, allowed) or text != drop_hidden(text) for text in texts):
            yield f"{field}: This has control characters."
    for unique in kind.unique:
        if unique.needed and unique.of(record) is None:
            yield f"nobody can be found by its {unique.name}"


def problems_in_record(kind: Kind, record: Any) -> Iterator[str]:
    """Yield what a check names: `problems_in_fields`, and the `problems` of the kind."""
    yield from problems_in_fields(kind, record)
    yield from kind.problems(record)


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts in a record or a JSON value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value:
            yield from _texts_in(each)
        for each in value.values() if isinstance(value, dict) else ():
            yield from _texts_in(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _texts_in(getattr(value, each.name))


def check_audit_line(line: bytes) -> str | None:
    """Return why no archive may have a line of the audit log, None for a good one.

    A line that is cut off, as a kill leaves it, is no JSON and does no harm.
    """
    if len(line) > LONGEST_AUDIT_LINE:
        return f"it is longer than {LONGEST_AUDIT_LINE} bytes"
    if has_controls(line.decode(errors="replace"), allowed="\n"):
        return "it has control characters"
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if type(values) is not dict or any(isinstance(each, dict | list) for each in values.values()):
        return "it is no JSON object of plain values"
    if any(has_controls(text) or text != drop_hidden(text) for text in _texts_in(values)):
        return "it has control characters"
    return None


def needs_picture(user: User) -> bool:
    """Return True if a picture must be stored: it was uploaded, or an earlier version drew it."""
    return not user.pfp_generated and user.pfp_timestamp is not None


def has_picture_time(user: User) -> bool:
    """Return True if the user has no timestamp, or one that the address of a picture can hold."""
    return user.pfp_timestamp is None or 0 < user.pfp_timestamp < TIME_END


def check_picture(size: str, content: bytes) -> str | None:
    """Return what is wrong with the webp file of a picture of this size ("large"), or None."""
    side = PICTURE_SIZES[size]
    try:
        width, height = webp_size(content)
    except ValueError as error:
        return str(error)
    if (width, height) != (side, side):
        return f"has {width} x {height} pixels, and not {side} x {side}"
    if len(content) > MAX_PICTURE_BYTES:
        return f"has {len(content)} bytes, and may have {MAX_PICTURE_BYTES}"
    return None


def webp_size(content: bytes) -> tuple[int, int]:
    """Return width and height in pixels (RFC 9649). Raises ValueError for any other file."""
    size = int.from_bytes(content[4:8], "little")
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP" or len(content) != size + size % 2 + 8:
        raise ValueError("is not a whole webp file")
    kind, width, height = content[12:16], content[26:28], content[28:30]
    if kind == b"VP8 ":  # 2.5: after a frame tag and a start code, 14 bits each
        return int.from_bytes(width, "little") & 0x3FFF, int.from_bytes(height, "little") & 0x3FFF
    if kind == b"VP8L":  # 2.6: after a signature byte, 14 bits each, one less
        both = int.from_bytes(content[21:25], "little")
        return (both & 0x3FFF) + 1, (both >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":  # 2.7: after four bytes of flags, 24 bits each, one less
        both = int.from_bytes(content[24:30], "little")
        return (both & 0xFFFFFF) + 1, (both >> 24) + 1
    raise ValueError("is not a webp picture")
