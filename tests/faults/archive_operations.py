"""Backup, restore and import for operations.py, which does them while faults are injected.

The archive to restore is where ARCHIVE says.
"""

import errno
import io
import json
import os
import sys
import tempfile
from pathlib import Path

import operations
from operations import Installation, Operation, prepare, stop_windows

from storage import Storage, StorageFailed, StorageFull
from storage.archive import backup, restore
from storage.maintenance import ignore
from storage.transfer import ImportResult, import_users

RESTORE, IMPORT, BACKUP = "restoring", "importing", "backing up"
CLEO, DORA = 70, 71  # ids of those who are imported
LINES = b"".join(
    json.dumps({"id": user_id, "name": name, "email": f"{name}@example.org"}).encode() + b"\n"
    for user_id, name in ((CLEO, "Cleo"), (DORA, "Dora"))
)


def archive_of(storage: Storage) -> Path:
    """Where a backup of this installation goes."""
    return Path(storage.layout.data_dir).with_name("archive.tar.gz")


def do_backup(storage: Storage) -> int:
    return backup(storage, str(archive_of(storage)), "command")


def do_restore(storage: Storage, report=ignore) -> int:
    archive = os.environ["ARCHIVE"]
    return restore(storage, archive, "command", report=report)


def do_import(storage: Storage, refused=ignore) -> ImportResult:
    return import_users(storage, io.BytesIO(LINES), None, "command", ignore, refused, str)


def import_everyone(storage: Storage) -> None:
    """A line is refused where what is there already cannot be read: here that is a failure too."""
    reasons = []
    do_import(storage, lambda number, reason: reasons.append(reason))
    for reason in reasons:
        full = reason.endswith((os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)))
        raise (StorageFull if full else StorageFailed)(reason)


def operation(act) -> Operation:
    return Operation(act, state=ignore, old=None, new=None)


def rename_in_steps(source: str, target: str, real=os.rename) -> None:
    """What `os.rename` is not: a file is there in part for a while, and a folder too."""
    if os.path.isdir(source):
        for name in os.listdir(source):
            real(f"{source}/{name}", f"{target}/{name}")
        return os.rmdir(source)
    content = Path(source).read_bytes()
    with open(target, "wb") as file:
        for part in (content[:20], content[20:]):
            file.write(part)
            file.flush()
    return os.remove(source)


def sync_or_try_again(descriptor: int, real=os.fsync) -> None:
    """What `disk.sync` must not do: the tests must find it out."""
    try:
        real(descriptor)
    except OSError:
        real(descriptor)


CARELESS = {"rename": rename_in_steps, "fsync": sync_or_try_again}
OPERATIONS = {
    RESTORE: operation(do_restore),
    IMPORT: operation(import_everyone),
    BACKUP: operation(do_backup),
}


if __name__ == "__main__":
    stop_windows()
    operations.OPERATIONS.clear()
    operations.OPERATIONS.update(OPERATIONS)
    with tempfile.TemporaryDirectory() as folder:
        for name, act in ((BACKUP, do_backup), (IMPORT, do_import), (RESTORE, do_restore)):
            warm = Installation(Path(folder, name)).open()
            if act is do_backup:
                prepare(warm)
            act(warm)
    for name in sys.argv[1:]:
        setattr(os, name, CARELESS[name])
    operations.serve(sys.stdin)
