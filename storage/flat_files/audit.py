"""The audit log as a file with one JSON line for each act, and an index of it.

The index has a file with the lines by and about each user, and one with the lines about each
client, as long as it exists. A line is on the disk in all of its files before the act it describes.
"""

import json
import os
from collections.abc import Iterator

from storage import USER_ID
from storage.audit_lines import new_line, subjects_in, subjects_of
from storage.flat_files.disk import append_durably, read_json_lines
from storage.flat_files.layout import Layout


def indexed_subjects_in(layout: Layout, line: bytes) -> set[str]:
    """Return the names of the index files of an encoded line: no clients that are gone."""
    return {
        each
        for each in subjects_in(line)
        if USER_ID.fullmatch(each) or os.path.lexists(layout.client(each))
    }


class AuditLog:
    """The audit log of an installation."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def write(self, act: str, by: int | str, **ids: int | str) -> None:
        """As `Storage.write_audit`."""
        line = new_line(act, by, ids)
        content = f"{json.dumps(line)}\n".encode()
        with self._layout.audit_lock():
            append_durably(self._layout.path("audit.log"), content)
            for subject in sorted(subjects_of(line)):
                append_durably(self._layout.path("audit", subject), content)

    def read(self) -> Iterator[dict]:
        """As `Storage.read_audit`."""
        return read_json_lines(self._layout.path("audit.log"))

    def about(self, subject: int | str) -> Iterator[dict]:
        """As `Storage.audit_of`."""
        return read_json_lines(self._layout.path("audit", str(subject)))
