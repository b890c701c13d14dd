"""Authorization codes as files, named after their hash, in a folder for each quarter of an hour.

Renaming the file from .json to .spent uses a code up: if several callers race, one succeeds, and a
second use is recognised. A file holds the kernel's boot id, and a code of an earlier boot is
refused. So nothing is synced here: a code that a power cut brings back is invalid.
"""

import contextlib
import os
from collections.abc import Iterator

from model.encoding import DECODER, build_record, encode_values, record_as_dict
from model.errors import CodeSpent, NoSuchCode
from model.grant_records import AuthorizationCode
from model.records import sha256
from storage.contract import UNKNOWN_CODE, Code, Codes
from storage.files import raises_storage_errors
from storage.flat_files import disk
from storage.flat_files.windows import make_window, window_of_now

WINDOW = 900  # seconds; a file is kept for one to two windows


class CodeFiles(Codes):
    """The authorization codes in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._boot_id = disk.read_boot_id()  # None if the system has none: then all is synced

    @raises_storage_errors
    def add(self, code: str, record: Code) -> None:
        number = window_of_now(WINDOW)
        make_window(self._folder, number)
        path = f"{self._folder}/{number}/{sha256(code)}.json"
        content = encode_values(record_as_dict(record, stored=True) | {"boot_id": self._boot_id})
        disk.write_file(path, content, durable=self._boot_id is None)

    @raises_storage_errors
    def read(self, code: str, record_type: type[Code] = AuthorizationCode) -> Code:
        for place in self._places(code):
            with contextlib.suppress(NoSuchCode):
                return self._read_file(f"{place}.json", record_type)
        raise self._spent(code, record_type)

    @raises_storage_errors
    def spend(self, code: str, record_type: type[Code] = AuthorizationCode) -> None:
        rename = disk.commit if self._boot_id is None else os.rename
        for place in self._places(code):
            with contextlib.suppress(FileNotFoundError):
                return rename(f"{place}.json", f"{place}.spent")
        raise self._spent(code, record_type)

    def _places(self, code: str) -> Iterator[str]:
        """Yield the possible paths of a code's file, without the extension."""
        name, now = sha256(code), window_of_now(WINDOW)
        yield f"{self._folder}/{now}/{name}"
        # Rarely another window: one that has just ended, or any after the clock was set.
        windows = {int(each) for each in os.listdir(self._folder) if each.isdecimal()}
        for each in windows - {now}:
            yield f"{self._folder}/{each}/{name}"

    def _spent(self, code: str, record_type: type) -> CodeSpent:
        """Return the error for a code that is not live. Raises NoSuchCode if it is unknown."""
        for place in self._places(code):
            with contextlib.suppress(NoSuchCode):
                return CodeSpent(self._read_file(f"{place}.spent", record_type))
        raise NoSuchCode(UNKNOWN_CODE)

    def _read_file(self, path: str, record_type: type[Code]) -> Code:
        """Return the record in a file. Raises NoSuchCode, also for a code of an earlier boot."""
        unknown = NoSuchCode(UNKNOWN_CODE)
        content = disk.read_file(path, unknown)
        try:
            values = DECODER.decode(content.decode())
            boot_id = values.pop("boot_id")
            record = build_record(record_type, values)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise unknown from None  # never synced: after a power cut it may hold anything
        if boot_id != self._boot_id:
            raise unknown
        return record
