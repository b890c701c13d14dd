"""The audit log as a file with one JSON line for each act, on the disk before the act."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator

from storage.audit_lines import without_address
from storage.contract import Audit
from storage.files import (
    commit,
    created,
    raises_storage_errors,
    remove_file,
    sync,
    translate_os_errors,
)
from storage.flat_files.disk import append_durably, open_log, read_backwards, read_lines, write_all
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

    @raises_storage_errors
    def forget(self, start: int, end: int) -> None:
        # Named as `temporary_beside` does, and always the same: what a kill leaves has addresses.
        lock, temporary = self._layout.audit_lock, self._layout.path(".audit.log.00000000")
        with self._layout.inner_lock("forgetting"), contextlib.suppress(FileNotFoundError):
            remove_file(temporary)
            try:
                with open_log(self.place) as old, created(temporary) as new:
                    with lock():
                        size = os.fstat(old.fileno()).st_size  # no line is half written
                    if shutil.disk_usage(os.path.dirname(self.place)).free < 2 * size:
                        # Before it fills the disk for a moment, and all other saves fail.
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
                    end = min(end, size)
                    _copy(old.fileno(), new, 0, start)
                    old.seek(start)
                    while (line := old.readline()) and start + len(line) <= end:
                        write_all(new, without_address(line))
                        start += len(line)
                    _copy(old.fileno(), new, start, size)
                    sync(new)  # what is left under the lock is little
                    with lock():
                        if os.path.samestat(os.fstat(old.fileno()), os.stat(self.place)):
                            _copy(old.fileno(), new, size, os.fstat(old.fileno()).st_size)
                            sync(new)
                            commit(temporary, self.place)
            finally:
                remove_file(temporary)


def _copy(source: int, target: int, start: int, end: int) -> None:
    """Append a range of a file to another one."""
    while start < end and (sent := os.sendfile(target, source, start, end - start)):
        start += sent
