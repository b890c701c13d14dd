"""Backup, restore and copy as operations for child.py, for the injection of faults.

The environment variable ARCHIVE is the path of the archive to restore, and SOURCE the folder of the
installation to copy.
"""

import os
from pathlib import Path

from saves import Installation, raise_reported

from model.errors import BadInstallation
from storage import Storage
from storage.maintenance import ignore
from storage.whole.archive import backup, restore
from storage.whole.copying import copy

RESTORE, COPY, BACKUP = "restore", "copy", "backup"


def archive_path(storage: Storage) -> Path:
    return Path(storage.layout.data_dir).with_name("archive.tar.gz")


def do_backup(storage: Storage) -> int:
    return backup(storage, str(archive_path(storage)), "command")


def do_restore(storage: Storage, report=ignore) -> int:
    return restore(storage, os.environ["ARCHIVE"], "command", report=report)


def do_copy(storage: Storage) -> int:
    """Copy SOURCE; raise StorageFull or StorageFailed if a record of it is unreadable."""
    source, reasons = Installation(Path(os.environ["SOURCE"])).open(), []
    try:
        return copy(source, storage, report=reasons.append)
    except BadInstallation:
        raise_reported(reasons)
        raise


OPERATIONS = {BACKUP: do_backup, RESTORE: do_restore, COPY: do_copy}
