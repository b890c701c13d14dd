"""The lines of the audit log, which every backend keeps as encoded JSON objects."""

import json
from collections.abc import Iterable, Iterator

from storage.errors import DamagedRecord
from storage.maintenance import check_audit_line
from storage.records import now_ms
from storage.rules import CLIENT_ID, TIME_END, USER_ID


def new_line(act: str, by: int | str, ids: dict[str, int | str]) -> dict:
    """Return the line for an act of now."""
    return {"time": now_ms(), "act": act, "by": by, **ids}


def subjects_of(line: dict) -> set[str]:
    """Return the ids, as texts, of the users and clients by whom or about whom a line is."""
    users = {str(line.get(name)) for name in ("by", "user") if type(line.get(name)) is int}
    clients = {line.get("client")} if type(line.get("client")) is str else set()
    return set(filter(USER_ID.fullmatch, users)) | set(filter(CLIENT_ID.fullmatch, clients))


def subjects_in(line: bytes) -> set[str]:
    """Return the subjects of an encoded line, none if it is damaged."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return set()
    return subjects_of(values) if isinstance(values, dict) else set()


def decode_lines(lines: Iterable[bytes], place: str) -> Iterator[dict]:
    """Yield the value of each line. Raises DamagedRecord after the last, for the first damaged one.

    `place` is where the lines are.
    """
    damage = None
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
            if type(values) is not dict:
                raise ValueError("it is no JSON object")
        except (ValueError, RecursionError) as error:
            damage = damage or DamagedRecord(f"{place}, line {number},", str(error))
        else:
            yield values
    if damage:
        raise damage


def is_act(line: bytes) -> bool:
    """Return True for a line as `write_audit` adds it."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(values, dict)
        and check_audit_line(line) is None  # else a backup leaves it out
        and {"time", "act", "by"} <= values.keys()
        and all(type(each) in (int, str) for each in values.values())
        and type(values["act"]) is str
        and type(values["time"]) is int
        and 0 <= values["time"] < TIME_END
    )
