"""Backup, restore, copy and import as operations for operations.py, for the injection of faults.

The environment variable ARCHIVE is the path of the archive to restore, and SOURCE the folder of the
installation to copy.
"""

import errno
import io
import json
import os
import sys
import tempfile
from pathlib import Path

import operations
from operations import Installation, Operation, prepare, stop_time_windows

from storage import Storage
from storage.archive import backup, restore
from storage.copying import copy
from storage.errors import BadInstallation, StorageFailed, StorageFull
from storage.maintenance import ignore
from storage.transfer import ImportResult, import_users

RESTORE, COPY, IMPORT, BACKUP = "restore", "copy", "import", "backup"
CLEO, DORA = 70, 71  # ids of the imported players
LINES = b"".join(
    json.dumps({"id": user_id, "name": name, "email": f"{name}@example.org"}).encode() + b"\n"
    for user_id, name in ((CLEO, "Cleo"), (DORA, "Dora"))
)


def archive_path(storage: Storage) -> Path:
    """Return the path for a backup of this installation."""
    return Path(storage.layout.data_dir).with_name("archive.tar.gz")


def do_backup(storage: Storage) -> int:
    return backup(storage, str(archive_path(storage)), "command")


def do_restore(storage: Storage, report=ignore) -> int:
    archive = os.environ["ARCHIVE"]
    return restore(storage, archive, "command", report=report)


def do_copy(storage: Storage, report=ignore) -> int:
    source = Installation(Path(os.environ["SOURCE"])).open()
    return copy(source, storage, report=report)


def do_import(storage: Storage, refused=ignore) -> ImportResult:
    return import_users(storage, io.BytesIO(LINES), None, "command", ignore, refused, str)


def import_all(storage: Storage) -> None:
    """Import LINES; raise StorageFull or StorageFailed if a line is refused.

    An import refuses a line if an existing record is unreadable.
    """
    reasons = []
    do_import(storage, lambda number, reason: reasons.append(reason))
    refuse_failures(reasons)


def copy_all(storage: Storage) -> None:
    """Copy SOURCE; raise StorageFull or StorageFailed if a record of it is unreadable."""
    reasons = []
    try:
        do_copy(storage, reasons.append)
    except BadInstallation:
        refuse_failures(reasons)
        raise


def refuse_failures(reasons: list[str]) -> None:
    for reason in reasons:
        full = any(os.strerror(each) in reason for each in (errno.ENOSPC, errno.EDQUOT))
        raise (StorageFull if full else StorageFailed)(reason)


def operation(act) -> Operation:
    return Operation(act, state=ignore, old=None, new=None)


OPERATIONS = {
    RESTORE: operation(do_restore),
    COPY: operation(copy_all),
    IMPORT: operation(import_all),
    BACKUP: operation(do_backup),
}


if __name__ == "__main__":
    stop_time_windows()
    operations.OPERATIONS.clear()
    operations.OPERATIONS.update(OPERATIONS)
    with tempfile.TemporaryDirectory() as folder:
        for name, act in (
            (BACKUP, do_backup),
            (IMPORT, do_import),
            (RESTORE, do_restore),
            (COPY, do_copy),
        ):
            storage = Installation(Path(folder, name)).open()
            if act is do_backup:
                prepare(storage)
            act(storage)
    operations.serve(sys.stdin)
