"""The methods of the storage contract, each of them one of the parts of this package."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from storage import Problem, Storage, StorageError, now_ms
from storage.maintenance import Load, Progress, Report, Snapshot, ignore
from storage.postgresql.attempts import AttemptTable
from storage.postgresql.audit import AuditTable
from storage.postgresql.clients import ClientTable
from storage.postgresql.codes import CodeTable
from storage.postgresql.connections import Database
from storage.postgresql.invites import InviteTable
from storage.postgresql.keys import Keys
from storage.postgresql.pictures import PictureTable
from storage.postgresql.users import UserTable

HEALTH_INTERVAL = 5  # seconds between two saves of the health check
READ_ALL = "SELECT " + ", ".join(
    f"(SELECT true FROM {table} LIMIT 1)" for table in ("users", "pictures", "clients", "codes")
)


def delegate(part: str, method: str) -> Callable:
    """Return a method of PostgreSQL that calls a method of one of its parts."""

    def call(self: "PostgreSQL", *args: object, **kwargs: object) -> object:
        return getattr(getattr(self, part), method)(*args, **kwargs)

    return call


class PostgreSQL(Storage):
    """The storage contract on the database at a URL. Nothing is connected before the first call."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.database = database = Database(url)
        self.key_row = Keys(database)
        self.attempts = AttemptTable(database, self.key_row)
        self.audit = AuditTable(database)
        self.clients = ClientTable(database)
        self.codes = CodeTable(database)
        self.invites = InviteTable(database)
        self.pictures = PictureTable(database)
        self.users = UserTable(database, self.pictures)
        self._saved = -math.inf  # time.monotonic()
        self._problem: StorageError | None = None

    add_user = delegate("users", "add")
    reserve_user_ids = delegate("users", "reserve_ids")
    add_users = delegate("users", "add_many")
    is_new = delegate("users", "is_new")
    read_user = delegate("users", "read")
    read_from_users = delegate("users", "read_from_many")
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

    keys = delegate("key_row", "read")
    rotate_keys = delegate("key_row", "rotate")
    count_attempt = delegate("attempts", "count")
    require_attempt_left = delegate("attempts", "require_left")
    give_back_attempt = delegate("attempts", "give_back")
    clear_attempts = delegate("attempts", "clear")
    write_audit = delegate("audit", "write")
    read_audit = delegate("audit", "read")
    audit_of = delegate("audit", "about")
    close = delegate("database", "close")

    def check_health(self) -> None:
        self.keys()
        self.database.execute(READ_ALL)  # the keys may be from before an outage
        if time.monotonic() - self._saved >= HEALTH_INTERVAL:
            self._saved = time.monotonic()  # before the save: of many calls at once one saves
            self._problem = None
            try:
                with self.database.transaction():
                    self.database.save("UPDATE health SET at = %s", [now_ms()])
            except StorageError as error:
                self._problem = error
        if self._problem:
            raise self._problem

    def verify(self, repair: bool = False, progress: Progress = ignore) -> Iterator[Problem]:
        from storage.postgresql.check import check  # only here: workers do not need its memory

        return check(self.database, self._url, repair, progress)

    def snapshot(
        self, before: Callable[[], None] = ignore, report: Report = ignore
    ) -> AbstractContextManager[Snapshot]:
        from storage.postgresql.snapshot import snapshot

        return snapshot(self.database, before, report)

    @contextmanager
    def load(self, before: Callable[[], None] = ignore, report: Report = ignore) -> Iterator[Load]:
        from storage.postgresql.load import load

        with load(self.database, before, report) as loaded:
            yield loaded
        self.key_row.expire()
