"""The audit log as a file with one JSON line for each act, on the disk before the act."""

import json
from collections.abc import Iterator, Set

from storage.audit_lines import decode_lines, lines_about, new_line
from storage.contract import Audit
from storage.files import raises_storage_errors, translate_os_errors
from storage.flat_files.disk import append_durably, open_log, read_backwards
from storage.flat_files.layout import Layout


class AuditFile(Audit):
    """The audit log of an installation."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._path = layout.path("audit.log")

    @raises_storage_errors
    def write(self, act: str, by: int | str, **ids: int | str) -> None:
        line = new_line(act, by, ids)
        with self._layout.audit_lock():
            append_durably(self._path, f"{json.dumps(line)}\n".encode())

    def read(self) -> Iterator[dict]:
        with translate_os_errors():
            try:
                file = open_log(self._path)
            except FileNotFoundError:
                return
            with file:
                yield from decode_lines(file, self._path)

    def about(self, subjects: Set[int | str]) -> Iterator[dict]:
        with translate_os_errors():
            yield from lines_about(read_backwards(self._path), subjects, self._path)
