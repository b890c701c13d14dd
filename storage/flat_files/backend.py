"""The parts of the storage contract kept as JSON files on disk.

A record is never written in place: it is written to a temporary file beside it, synced, and renamed
over the old one. So a reader needs no lock.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from model.errors import StorageFailed
from model.records import now_ms
from storage.contract import Storage
from storage.files import raises_storage_errors, translate_os_errors
from storage.flat_files import disk
from storage.flat_files.added_keys import add_keys
from storage.flat_files.attempts import AttemptFiles
from storage.flat_files.audit import AuditFile
from storage.flat_files.codes import CodeFiles
from storage.flat_files.keys import KeyFile
from storage.flat_files.layout import Layout
from storage.flat_files.leads import Leads
from storage.flat_files.playing import PlayingFiles
from storage.flat_files.record_files import RecordFiles
from storage.flat_files.users import UserFiles
from storage.maintenance import Load, Problem, Progress, Report, Snapshot, ignore

PROBE = 4096  # bytes: a full disk still makes empty files


@contextlib.contextmanager
def explained_refusals(data_dir: str, picture_dir: str) -> Iterator[None]:
    """Raise StorageFailed with the fix if the block fails where this process cannot write."""
    try:
        yield
    except (OSError, StorageFailed) as error:
        from storage.flat_files.advice import check_folders  # workers do not need its memory

        for advice in check_folders(data_dir, picture_dir):
            raise StorageFailed(f"{advice.problem}: {advice.fix}") from error
        raise


class FlatFiles(Storage):
    """The storage contract on a data folder and a picture folder, made if they are missing.

    Raises BadInstallation, StorageFailed.
    """

    def __init__(self, data_dir: str, picture_dir: str) -> None:
        self.layout = layout = Layout(data_dir, picture_dir)
        with translate_os_errors(), explained_refusals(data_dir, picture_dir):
            layout.version()
            add_keys(layout)
            layout.make_folders()
            self.keys = KeyFile(layout)
            layout.record_version()
        users = UserFiles(layout)
        self.keep_records(users, RecordFiles, layout)
        self.pictures = users.pictures
        self.codes = CodeFiles(layout.path("codes"))
        self.attempts = AttemptFiles(layout, self.keys)
        self.playing = PlayingFiles(layout.path("playing"))
        self.audit = AuditFile(layout)
        self._leads = Leads(layout)

    def try_reading(self) -> None:
        self.keys.read()

    @raises_storage_errors
    def try_saving(self) -> None:
        for folder in (self.users.folder, self.layout.picture_folders()[0]):
            path = disk.temporary_beside(f"{folder}/probe")
            with disk.created(path) as descriptor:
                os.unlink(path)  # before the write: a kill leaves no file
                # Random: a file system may store zeros without a block.
                disk.write_all(descriptor, secrets.token_bytes(PROBE))
                disk.sync(descriptor)

    @raises_storage_errors
    def free_space(self) -> int | None:
        disks = map(os.statvfs, (self.layout.data_dir, self.layout.picture_dir))
        return min(each.f_bavail * each.f_frsize for each in disks)

    def lead(self, task: str) -> int | None:
        with translate_os_errors():
            return 0 if self._leads.hold(task) else None

    def time(self) -> int:
        return now_ms()

    def close(self) -> None:
        self._leads.close()

    def verify(self, repair: bool = False, progress: Progress = ignore) -> Iterator[Problem]:
        from storage.flat_files.check import check  # only here: workers do not need its memory

        return check(self.layout.data_dir, self.layout.picture_dir, repair, progress)

    def snapshot(
        self,
        before: Callable[[], None] = ignore,
        report: Report = ignore,
        progress: Progress = ignore,
    ) -> AbstractContextManager[Snapshot]:
        from storage.flat_files.snapshot import snapshot

        return snapshot(self.layout, before, report, progress)

    def load(
        self, before: Callable[[], None] = ignore, report: Report = ignore
    ) -> AbstractContextManager[Load]:
        from storage.flat_files.load import load

        return load(self.layout, before, report)
