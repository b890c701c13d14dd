"""Check of the audit log and its index."""

import functools
import json
import os
import re
import zlib
from collections.abc import Iterable

from storage import CLIENT_ID, USER_ID
from storage.flat_files.audit import subjects_in
from storage.flat_files.disk import READ_SIZE
from storage.flat_files.layout import Layout
from storage.flat_files.problems import Finding, Findings, remove
from storage.flat_files.upgrade import index_audit_log
from storage.flat_files.walk import Problems, Walk
from storage.rules import TIME_END

SUBJECT = re.compile(f"{USER_ID.pattern}|{CLIENT_ID.pattern}")


def check_audit(walk: Walk) -> Problems:
    """Check that the log can be read, and that each index file has its lines of the log."""
    layout = walk.layout
    yield from walk.check_folder(layout.path("audit"), SUBJECT)
    locks = [layout.clients_lock(), layout.audit_lock()]
    yield from walk.confirmed(_look_at_audit, layout, locks=locks)


def _look_at_audit(layout: Layout) -> Findings:
    log, folder = layout.path("audit.log"), layout.path("audit")
    indexed = set(filter(SUBJECT.fullmatch, os.listdir(folder)))
    if not os.path.lexists(log):
        if indexed:
            yield Finding(log, "is missing, and audit/ has lines of it")
        return
    is_damaged = False
    sums: dict[str, tuple[int, int]] = {}  # of the lines about each subject
    with open(log, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not _is_act(line):
                yield Finding(log, f"has a damaged line, number {number}")
                is_damaged = True
            for subject in subjects_in(layout, line):
                sums[subject] = _sum([line], sums.get(subject))
    if is_damaged:
        return  # the index may have the line that a person puts back
    rebuild = functools.cache(lambda: index_audit_log(layout))
    for subject in sorted(indexed | sums.keys()):
        path = f"{folder}/{subject}"
        if subject not in sums:
            yield Finding(path, "is about nobody, or about a client that is gone", remove)
        elif _sum_of_file(path) != sums[subject]:
            problem = "does not have the lines that audit.log has"
            yield Finding(path, problem, lambda path: rebuild() or "rebuilt from audit.log")


def _sum(chunks: Iterable[bytes], before: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return the size and the check sum of some bytes."""
    size, checked = before or (0, 0)
    for chunk in chunks:
        size, checked = size + len(chunk), zlib.crc32(chunk, checked)
    return size, checked


def _sum_of_file(path: str) -> tuple[int, int] | None:
    try:
        with open(path, "rb") as file:
            return _sum(iter(lambda: file.read(READ_SIZE), b""))
    except FileNotFoundError:
        return None


def _is_act(line: bytes) -> bool:
    """Return True for a line as `write_audit` adds it."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if type(values) is not dict or not {"time", "act", "by"} <= values.keys():
        return False
    if not all(type(each) in (int, str) for each in values.values()):
        return False
    moment, act = values["time"], values["act"]
    return type(act) is str and type(moment) is int and 0 <= moment < TIME_END
