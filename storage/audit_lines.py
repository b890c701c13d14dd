"""The lines of the audit log, which every backend keeps as encoded JSON objects."""

import json
import re
from collections.abc import Iterable, Iterator, Set

from model.errors import DamagedRecord
from model.soundness import check_audit_line

# In a text, a quote is behind a backslash. A line that was cut off may lack the last one.
ADDRESS = re.compile(rb', *"address" *: *"[^"\\\n]*"?')


def lines_about(lines: Iterable[bytes], subjects: Set[int | str], place: str) -> Iterator[dict]:
    """Yield the lines by or about these ids. Raises DamagedRecord after the last if one is bad."""
    # Most lines are about others: looking for the ids is faster than decoding each.
    ids = re.compile("|".join(rf"\b{each}\b" for each in subjects).encode() or rb"\Z.")
    candidates = (each for each in lines if ids.search(each) or not each.rstrip().endswith(b"}"))
    for line in decode_lines(candidates, place, numbered=False):
        named = (line.get(name) for name in ("by", "user", "client"))
        # A line that was edited by hand may have other values there.
        if not subjects.isdisjoint(each for each in named if type(each) in (int, str)):
            yield line


def decode_lines(lines: Iterable[bytes], place: str, numbered: bool = True) -> Iterator[dict]:
    """Yield the value of each line. Raises DamagedRecord after the last, for the first damaged one.

    `place` is where the lines are, which are `numbered` if they are all lines from the first.
    """
    damage = None
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
            if type(values) is not dict:
                raise ValueError("it is no JSON object")
        except (ValueError, RecursionError) as error:
            where = f"{place}, line {number}," if numbered else f"a line of {place}"
            damage = damage or DamagedRecord(where, str(error))
        else:
            yield values
    if damage:
        raise damage


def decode_line(line: bytes) -> dict | None:
    """Return the values of a line, None for a damaged one."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return values if type(values) is dict else None


def time_of(line: bytes) -> int | None:
    """Return when a line was written, None if it does not say or is damaged."""
    time = (decode_line(line) or {}).get("time")
    return time if type(time) is int else None


def is_whole(line: bytes) -> bool:
    """Return True for a line that can be read, and that a backup takes."""
    return decode_line(line) is not None and check_audit_line(line) is None


def without_address(line: bytes) -> bytes:
    """Return a line of the same length without the address that a request came from."""
    return ADDRESS.sub(lambda match: b" " * len(match[0]), line)
