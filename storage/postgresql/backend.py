"""The parts of the storage contract in a database."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from model import kinds
from model.records import now_ms
from storage.contract import Storage
from storage.maintenance import Load, Problem, Progress, Report, Snapshot, ignore
from storage.postgresql.attempts import AttemptTable
from storage.postgresql.audit import AuditTable
from storage.postgresql.codes import CodeTable
from storage.postgresql.connections import Database
from storage.postgresql.keys import KeyRow
from storage.postgresql.playing import PlayingTable
from storage.postgresql.record_table import RecordTable
from storage.postgresql.users import UserTable

CLAIM = 120_000  # milliseconds; longer than any message takes


class PostgreSQL(Storage):
    """The storage contract on the database at a URL. Nothing is connected before the first call."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.database = database = Database(url)
        self.keys = KeyRow(database)
        users = UserTable(database)
        self.keep_records(users, RecordTable, database)
        self.pictures = users.pictures
        self.codes = CodeTable(database)
        self.attempts = AttemptTable(database, self.keys)
        self.playing = PlayingTable(database)
        self.audit = AuditTable(database)

    def free_space(self) -> int | None:
        return None  # the disk is that of another machine

    def lead(self, task: str) -> int | None:
        return CLAIM  # no lock of a session: one of a pooler passes from client to client

    def time(self) -> int:
        query = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        [(now,)] = self.database.execute(query)
        return now

    def close(self) -> None:
        self.database.close()

    def try_reading(self) -> None:
        self.keys.current()
        tables = [*(kind.name for kind in kinds.KINDS), "pictures", "codes"]
        reads = ", ".join(f"(SELECT true FROM {table} LIMIT 1)" for table in tables)
        self.database.execute(f"SELECT {reads}")  # the keys may be from before an outage

    def try_saving(self) -> None:
        with self.database.transaction():
            self.database.save("UPDATE health SET at = %s", [now_ms()])

    def verify(self, repair: bool = False, progress: Progress = ignore) -> Iterator[Problem]:
        from storage.postgresql.check import check  # only here: workers do not need its memory

        return check(self.database, self._url, repair, progress)

    def snapshot(
        self,
        before: Callable[[], None] = ignore,
        report: Report = ignore,
        progress: Progress = ignore,
    ) -> AbstractContextManager[Snapshot]:
        from storage.postgresql.snapshot import snapshot

        return snapshot(self.database, before, report, progress)

    def load(
        self, before: Callable[[], None] = ignore, report: Report = ignore
    ) -> AbstractContextManager[Load]:
        from storage.postgresql.load import load

        return load(self.database, self.keys, before, report)
