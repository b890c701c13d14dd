"""The lines of the audit log: JSON objects of the arguments of `Storage.write_audit` and a time."""

import json
from collections.abc import Iterable, Iterator

from storage.errors import DamagedRecord
from storage.records import now_ms
from storage.rules import CLIENT_ID, USER_ID


def new_line(act: str, by: int | str, ids: dict[str, int | str]) -> dict:
    """Return the line for an act of now."""
    return {"time": now_ms(), "act": act, "by": by, **ids}


def subjects_of(line: dict) -> set[str]:
    """Return by and about whom a line is: ids of users, as text, and of clients."""
    users = {str(line.get(name)) for name in ("by", "user") if type(line.get(name)) is int}
    clients = {line.get("client")} if type(line.get("client")) is str else set()
    return set(filter(USER_ID.fullmatch, users)) | set(filter(CLIENT_ID.fullmatch, clients))


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
