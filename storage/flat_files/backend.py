"""The storage contract kept as JSON files on disk; `layout.py` lists them.

A record is never written in place: it is written to a temporary file beside it, synced, and renamed
over the old one. So a reader needs no lock. The record is the truth: an index entry counts only
while its record agrees, so that a kill between two steps blocks nobody.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from storage import Problem, Storage
from storage.files import storage_error_from, translate_os_errors
from storage.flat_files.attempts import AttemptFiles
from storage.flat_files.audit import AuditLog
from storage.flat_files.clients import ClientFiles
from storage.flat_files.codes import CodeFiles
from storage.flat_files.index import Index
from storage.flat_files.invites import InviteFiles
from storage.flat_files.keys import KeyFile
from storage.flat_files.layout import Layout
from storage.flat_files.pictures import PictureFiles
from storage.flat_files.upgrade import upgrade
from storage.flat_files.users import UserFiles
from storage.flat_files.write_probe import WriteProbe
from storage.maintenance import Load, Progress, Report, Snapshot, ignore


def delegate(part: str, method: str) -> Callable:
    """Return a method of FlatFiles that calls a method of one of its parts.

    An OSError becomes the storage error.
    """

    def call(self: "FlatFiles", *args: object, **kwargs: object) -> object:
        try:  # not translate_os_errors(), which takes a tenth of the time of a look-up
            return getattr(getattr(self, part), method)(*args, **kwargs)
        except OSError as error:
            raise storage_error_from(error) from error

    return call


class FlatFiles(Storage):
    """The storage contract on a data folder and a picture folder, made if they are missing.

    Raises BadInstallation, StorageFailed.
    """

    def __init__(self, data_dir: str, picture_dir: str) -> None:
        self.layout = layout = Layout(data_dir, picture_dir)
        index = Index(layout.path("index"))
        self.pictures = PictureFiles(layout)
        self.invites = InviteFiles(layout)
        self.users = UserFiles(layout, index, self.pictures, self.invites)
        self.audit = AuditLog(layout)
        self.clients = ClientFiles(layout, index)
        self.probe = WriteProbe(layout.users, layout.picture_folders()[0])
        with translate_os_errors():
            layout.make_folders()
            self.codes = CodeFiles(layout.path("codes"))
            self.key_file = KeyFile(layout)
            self.attempts = AttemptFiles(layout, self.key_file)
            upgrade(layout, index)

    add_user = delegate("users", "add")
    reserve_user_ids = delegate("users", "reserve_ids")
    add_users = delegate("users", "add_many")
    is_new = delegate("users", "is_new")
    read_user = delegate("users", "read")
    read_from_user = delegate("users", "read_from")
    find_user = delegate("users", "find")
    user_ids = delegate("users", "ids")
    administrators = delegate("users", "administrators")
    edit_user = delegate("users", "edit")
    rename_user = delegate("users", "rename")
    reset_name = delegate("users", "reset_name")
    change_email = delegate("users", "change_email")
    delete_user = delegate("users", "delete")
    administered_without = delegate("users", "administered_without")
    save_picture = delegate("users", "save_picture")
    read_picture = delegate("pictures", "read")

    add_client = delegate("clients", "add")
    read_client = delegate("clients", "read")
    client_ids = delegate("clients", "ids")
    clients_of = delegate("clients", "of_owner")
    games = delegate("clients", "games")
    edit_client = delegate("clients", "edit")
    issue_client_secret = delegate("clients", "issue_secret")
    delete_client = delegate("clients", "delete")

    add_code = delegate("codes", "add")
    read_code = delegate("codes", "read")
    spend_code = delegate("codes", "spend")
    issue_invite = delegate("invites", "issue")
    find_invite = delegate("invites", "find")

    keys = delegate("key_file", "read")
    rotate_keys = delegate("key_file", "rotate")
    count_attempt = delegate("attempts", "count")
    require_attempt_left = delegate("attempts", "require_left")
    give_back_attempt = delegate("attempts", "give_back")
    clear_attempts = delegate("attempts", "clear")
    write_audit = delegate("audit", "write")
    read_audit = delegate("audit", "read")
    audit_of = delegate("audit", "about")

    def check_health(self) -> None:
        self.keys()
        self.probe.run()

    def close(self) -> None:
        """As the contract says; no file stays open."""

    def verify(self, repair: bool = False, progress: Progress = ignore) -> Iterator[Problem]:
        from storage.flat_files.check import check  # only here: workers do not need its memory

        return check(self.layout.data_dir, self.layout.picture_dir, repair, progress)

    def snapshot(
        self, before: Callable[[], None] = ignore, report: Report = ignore
    ) -> AbstractContextManager[Snapshot]:
        from storage.flat_files.snapshot import snapshot

        return snapshot(self.layout, before, report)

    def load(
        self, before: Callable[[], None] = ignore, report: Report = ignore
    ) -> AbstractContextManager[Load]:
        from storage.flat_files.load import load

        return load(self.layout, before, report)
