"""The audit log as a file with one JSON line for each act, on the disk before the act."""

import contextlib
import os
from collections.abc import Iterator

from storage.contract import Audit
from storage.files import raises_storage_errors, translate_os_errors
from storage.flat_files.disk import append_durably, read_backwards, read_lines
from storage.flat_files.layout import Layout


class AuditFile(Audit):
    """The audit log of an installation."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.place = layout.path("audit.log")

    @raises_storage_errors
    def add_line(self, line: bytes) -> None:
        with self._layout.audit_lock():
            append_durably(self.place, line + b"\n")

    def lines(self) -> Iterator[bytes]:
        with translate_os_errors():
            yield from read_lines(self.place)

    def before(self, position: int | None = None) -> Iterator[tuple[int, bytes]]:
        with translate_os_errors():
            yield from read_backwards(self.place, position)

    @raises_storage_errors
    def ends(self) -> tuple[int, int]:
        with contextlib.suppress(FileNotFoundError):
            return 0, os.stat(self.place).st_size
        return 0, 0
