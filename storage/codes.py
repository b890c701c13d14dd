"""Authorization codes as files: a code's record stands under the hash of the code.

    <sha256>.json           live
    spent/<sha256>.json     used, kept so that a second use is known as one

Renaming the file spends a code: of callers that race one wins. A record carries the kernel's boot
id, and one of an earlier boot is refused. So nothing needs a sync here: what a power cut could
bring back is dead already.
"""

import contextlib
import dataclasses
import os
import time

from storage import AuthorizationCode, CodeSpent, DamagedRecord, NoSuchCode, record_as_dict
from storage.disk import (
    disk_errors_named,
    disk_refused,
    encode,
    move_durably,
    read_boot_id,
    read_record,
    remove_file,
    sha256,
    write_file,
)

KEPT = 900  # seconds a code's file is kept
SWEEP_INTERVAL = 60  # seconds between two removals of old ones


class CodeFiles:
    """The authorization codes in a folder; the methods are those of `storage.Storage`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._boot_id = read_boot_id()  # None where the system has none: then everything is synced
        self._swept = time.monotonic()

    def _paths(self, code: str) -> tuple[str, str]:
        """Where a code's file is while it is live, and once it is spent."""
        name = f"{sha256(code)}.json"
        return f"{self._folder}/{name}", f"{self._folder}/spent/{name}"

    def add(self, code: str, record: AuthorizationCode) -> None:
        self._sweep()
        record = dataclasses.replace(record, boot_id=self._boot_id)
        with disk_errors_named():
            content = encode(record_as_dict(record))
            write_file(self._paths(code)[0], content, durable=self._boot_id is None)

    def read(self, code: str) -> AuthorizationCode:
        live, spent = self._paths(code)
        try:
            return self._read_file(live)
        except NoSuchCode:
            raise CodeSpent(self._read_file(spent)) from None

    def _read_file(self, path: str) -> AuthorizationCode:
        unknown = NoSuchCode("this authorization code is unknown")
        try:
            record = read_record(path, AuthorizationCode, unknown)
        except DamagedRecord:  # never synced, so a power cut may leave anything
            raise unknown from None
        if record.boot_id != self._boot_id:
            raise unknown
        return record

    def spend(self, code: str) -> None:
        live, spent = self._paths(code)
        rename = move_durably if self._boot_id is None else os.rename
        try:
            rename(live, spent)
        except FileNotFoundError:
            raise CodeSpent(self._read_file(spent)) from None
        except OSError as error:
            raise disk_refused(error) from error

    def _sweep(self) -> None:
        """Remove what is too old to be of use, at most once in SWEEP_INTERVAL."""
        if time.monotonic() - self._swept < SWEEP_INTERVAL:
            return
        self._swept = time.monotonic()
        with contextlib.suppress(OSError):  # the next sweep tries again
            for folder in (self._folder, f"{self._folder}/spent"):
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.is_file() and time.time() - entry.stat().st_mtime > KEPT:
                            remove_file(entry.path)
