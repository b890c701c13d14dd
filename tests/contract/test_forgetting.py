"""Addresses that the audit log forgets: lines and their positions stay, whatever happens beside."""

import threading
from unittest.mock import ANY

import pytest

from storage.audit_lines import decode_line, without_address

from .base import together

LINES = [
    b'{"time": 1, "act": "backup", "by": "command"}',
    b'{"time": 2, "act": "user suspend", "by": 1, "user": 7, "address": "192.0.2.1"}',
    '{"time": 3, "act": "look", "by": "é", "address": "2001:db8::", "x": 1}'.encode(),
    b'{"time": 4, "act": "by hand", "by": 1,"address" : "192.0.2.9" , "user": 7}',
    b'{"time": 5, "act": "flair grant", "by": 1, "flair": ", \\"address\\": \\"x\\""}',
    b'{"time": 6, "act": "look", "by": 1, "address": "192.0.2.2"}',
    b'{"time": 7, "act": "cut off", "address": "192.0.2',
]


@pytest.fixture
def log(storage):
    for line in LINES:
        storage.audit.add_line(line)
    return storage.audit


def read(log) -> tuple[list[int], list[dict | None]]:
    """Return the positions of the lines, oldest first, and their values; None for a damaged one."""
    positions, lines = zip(*[*log.before()][::-1], strict=True)
    return [*positions], [*map(decode_line, lines)]


def test_addresses_between_two_positions_are_forgotten(log):
    """Nothing else is, and each line stays at its position."""
    positions, before = read(log)
    forgotten = [
        {k: v for k, v in (each or {}).items() if k != "address"} or None for each in before
    ]
    log.forget(positions[1], log.seek(5))  # which may be inside the next line
    assert read(log) == (positions, [*forgotten[:5], *before[5:]])
    assert before[5]["address"] and forgotten[4] == before[4]
    log.forget(positions[5], log.ends()[1])
    log.forget(*log.ends())
    assert read(log) == (positions, forgotten)
    assert b"192.0" not in b"".join(log.lines())
    assert next(log.before(log.seek(3)))[0] == positions[2]
    log.write("look", 1, address="192.0.2.5")
    assert read(log)[1] == [*forgotten, {**before[5], "time": ANY, "address": "192.0.2.5"}]


def test_lines_that_are_written_meanwhile_stay(log, monkeypatch):
    """Each is there once, in its order, also where two forget at once."""
    log.add_line(b"")  # behind what was cut off
    written, lock = [], threading.Lock()

    def written_beside(line: bytes) -> bytes:
        with lock:
            values = {"n": len(written), "address": "192.0.2.3"}
            thread = threading.Thread(target=log.write, args=("look", 1), kwargs=values)
            thread.start()
            thread.join()
            written.append(values["n"])
        return without_address(line)

    monkeypatch.setattr(f"{type(log).__module__}.without_address", written_beside)
    assert together(lambda end: log.forget(log.ends()[0], end), [log.ends()[1]] * 2) == [None] * 2
    assert len(written) >= 2 * len(LINES)
    assert [each["n"] for each in read(log)[1] if each and "n" in each] == written
    monkeypatch.undo()
    log.forget(*log.ends())
    assert b"192.0" not in b"".join(log.lines())
