"""Connections to the database: a pool of them, and a deadline for each call.

A call takes the connection that was last returned, or makes one if all are in use; a transaction
keeps it to its end. So a call costs no more than its own round trip, and statements are prepared
once. A lost connection is replaced at the next call.

A commit waits for the synchronous standby for ever (statement_timeout does not end that wait), and
a frozen server answers nothing. So the client ends a call that is overdue.
"""

import contextlib
import functools
import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence

import psycopg
from psycopg import errors
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from model.errors import SaveUnconfirmed, StorageError, StorageFailed, StorageFull
from model.records import now_ms
from storage.maintenance import Upgrade
from storage.postgresql.schema import error_of_constraint, find_upgrade, prepare_database
from storage.postgresql.watchdog import UNREACHABLE, Watchdog

CALL_TIMEOUT = 3.0  # seconds: with what ends the call and tests the database, less than five
TEST_TIMEOUT = 1.5  # seconds: for a call of the watchdog's test
LONG_COMMIT_TIMEOUT = 60.0  # seconds, after a restore
CANCEL_TIMEOUT = 0.5  # seconds
DEFAULTS = {
    "connect_timeout": 2,  # seconds, for each host
    "target_session_attrs": "read-write",  # of several hosts, the primary
    "application_name": "identity-server",
    "tcp_user_timeout": 5000,  # milliseconds: a server that is gone from the network
    "client_encoding": "utf8",
}
SESSION = {
    "client_min_messages": "warning",  # one of them says that a commit is not confirmed
    "lock_timeout": f"{CALL_TIMEOUT - 0.5}s",  # ends a wait with a clear error
    # If a machine of ours dies, its transactions keep their locks until the server notices.
    "idle_in_transaction_session_timeout": "10s",
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
PREPARE_SESSION = (
    "SELECT set_config(name, value, false) FROM json_each_text(%s::json) AS x(name, value)"
)
LIMITS = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout")
UNLIMITED = json.dumps(dict.fromkeys(LIMITS, "0"))
# Commits that return before they are on the disk would lose what was reported as saved.
SAFE_COMMITS = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
)
# What libpq says for each address that it tried, without the address.
REASON = re.compile(r".*failed: (?:FATAL: +)?(.+)")
NESTED = "edits never nest: two threads could each wait for the other"
UNCONFIRMED = "the database did not confirm this: it may have been saved"

Rows = list[tuple]


class JsonText(Loader):
    """Loads a json value as its bytes: `decode_record` decodes them."""

    def load(self, data: bytes) -> bytes:
        return bytes(data)


class Link(psycopg.Connection):
    """One connection, and the time limit of the call that runs on it."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.pool: list[Link] = []  # to which it is returned
        self._timeout: float | None = None  # seconds
        self._warned = False
        self.adapters.register_loader("json", JsonText)
        self.add_notice_handler(self._note)
        self._cursor = self.cursor()

    @classmethod
    def open(cls, conninfo: dict, pool: list["Link"]) -> "Link":
        """Connect, make the tables of a new installation, and return the connection.

        It goes back to `pool` later. Raises psycopg.Error, BadInstallation.
        """
        link = cls.connect(**conninfo, autocommit=True)
        try:
            link.pool = pool
            link.run(PREPARE_SESSION, [json.dumps(SESSION)])
            link.run(SAFE_COMMITS)
            prepare_database(link.run)
        except BaseException:
            link.close()
            raise
        return link

    def _note(self, notice: errors.Diagnostic) -> None:
        """Remember a warning of the server, for `commit`."""
        self._warned = self._warned or notice.severity_nonlocalized == "WARNING"

    def wait(self, gen: Generator, interval: float = 0.1, timeout: float | None = None) -> object:
        """Wait for the server, as all methods do: most of them take no time limit themselves."""
        return super().wait(gen, interval, timeout or self._timeout)

    def run(self, query: str, args: Sequence = (), timeout: float = CALL_TIMEOUT) -> Rows:
        """Run a statement; return the rows, none if it has no result. Raises psycopg.Error.

        An overdue statement is cancelled, because it would keep its locks, and the connection is
        closed.
        """
        self._timeout = timeout
        try:
            self._cursor.execute(query, args, prepare=True)
            # Not `description`, which is made anew each time: a tenth of a look-up.
            return [] if self._cursor.rownumber is None else self._cursor.fetchall()
        except psycopg.OperationalError as error:
            if self.info.transaction_status != TransactionStatus.ACTIVE:  # the server answered
                raise
            with contextlib.suppress(psycopg.Error):
                self.cancel_safe(timeout=CANCEL_TIMEOUT)
            self.close()
            raise errors.QueryCanceled("overdue") from error
        finally:
            self._timeout = None

    def commit(self, timeout: float = CALL_TIMEOUT) -> None:
        """Commit. Raises SaveUnconfirmed unless the change is wherever it has to be."""
        self._warned = False
        try:
            self.run("COMMIT", timeout=timeout)
        except psycopg.Error as error:
            raise SaveUnconfirmed(UNCONFIRMED) from error
        # A cancelled wait for the standby is only a warning: this server alone has the change.
        if self._warned:
            raise SaveUnconfirmed(UNCONFIRMED)
        if self._cursor.statusmessage != "COMMIT":  # a statement failed before, and nobody noticed
            raise StorageFailed("the database rolled this back")

    def run_or_close(self, query: str, args: Sequence = ()) -> None:
        """Run a statement that ends a transaction or a lock; if it fails, closing does that."""
        try:
            self.run(query, args)
        except psycopg.Error:
            self.close()


class ThreadState(threading.local):
    """What a thread keeps during a transaction, and while it has an advisory lock."""

    link: Link | None = None
    in_transaction = False
    wrote = False  # in this transaction


class Database:
    """The database at a URL, for all threads of a process. The methods raise StorageError.

    Nothing is connected before the first call.
    """

    def __init__(self, url: str) -> None:
        self._conninfo = DEFAULTS | conninfo_to_dict(url)
        self.start()
        # A child process must neither use nor end the connections of its parent.
        os.register_at_fork(after_in_child=functools.partial(_start_again, weakref.ref(self)))

    def start(self) -> None:
        """Begin without connections."""
        self._state = ThreadState()
        self._idle: list[Link] = []
        self._watchdog = Watchdog(self._test)

    def close(self) -> None:
        """Close the connections of all threads, those in use when they are returned."""
        idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    # -- statements ----------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        """True in a block of `transaction`, in this thread."""
        return self._state.in_transaction

    def execute(self, query: str, args: Sequence = ()) -> Rows:
        """Run a statement that changes nothing; in a `transaction`, as a part of it."""
        if (link := self._state.link) is None:
            return self.execute_unlogged(query, args)
        self._watchdog.require_reading()
        try:
            return link.run(query, args)
        except psycopg.Error as error:
            raise self._failure(link, error) from error

    def execute_unlogged(self, query: str, args: Sequence = ()) -> Rows:
        """Run and commit a statement on UNLOGGED tables, which is no part of a `transaction`.

        If the connection was lost, it runs once more: it may have run twice.
        """
        link, rows = self._run(query, args)
        self._give(link)
        return rows

    def save(self, query: str, args: Sequence = ()) -> Rows:
        """Run a statement that changes records, as a part of the `transaction`."""
        self._state.wrote = True
        return self.execute(query, args)

    @contextlib.contextmanager
    def transaction(self, record: str = "") -> Iterator[None]:
        """Run the block as a transaction; if it raises, nothing is saved.

        Of those with one name in `record`, one runs at a time in this process. Raises
        SaveUnconfirmed if the change may have been saved, and RuntimeError inside another.
        """
        if self.in_transaction:
            raise RuntimeError(NESTED)
        with self._watchdog.saving(record), self._keep("BEGIN") as link:
            self._state.in_transaction, self._state.wrote = True, False
            try:
                yield
                if self._state.wrote:  # a lock alone would wait for the standby as well
                    link.commit()
                else:
                    link.run_or_close("ROLLBACK")
            except BaseException as error:
                link.run_or_close("ROLLBACK")
                if isinstance(error, SaveUnconfirmed):
                    self._watchdog.suspect(saves=False)
                raise
            finally:
                self._state.in_transaction = False

    @contextlib.contextmanager
    def own_transaction(self, mode: str = "") -> Iterator[psycopg.Connection]:
        """Run the block as a transaction on a connection of its own, without time limits.

        `mode` is what follows BEGIN, such as "READ ONLY". Raises SaveUnconfirmed.
        """
        with contextlib.closing(self._connect()) as link:
            try:
                link.run(PREPARE_SESSION, [UNLIMITED])
                link.run(f"BEGIN {mode}")
                yield link
                link.commit(LONG_COMMIT_TIMEOUT)
            except psycopg.Error as error:
                raise storage_error(error) from error

    def find_upgrade(self) -> Upgrade | None:
        """Return what the next connection does to the tables, None without an installation."""
        try:
            with Link.connect(**self._conninfo) as link:  # not `open`, which does it
                link.read_only = True
                return find_upgrade(link.run)
        except psycopg.Error as error:
            raise storage_error(error) from error

    @contextlib.contextmanager
    def advisory_lock(self, number: int) -> Iterator[None]:
        """Hold an advisory lock for the block, which may begin transactions in this thread.

        Raises RuntimeError within a transaction.
        """
        if self.in_transaction:
            raise RuntimeError(NESTED)
        with self._keep("SELECT pg_advisory_lock(%s)", [number]) as link:
            try:
                yield
            finally:
                link.run_or_close("SELECT pg_advisory_unlock(%s)", [number])

    # -- connections ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _keep(self, query: str, args: Sequence = ()) -> Iterator[Link]:
        """Run a statement, and the block with its calls in this thread on the same connection."""
        if (link := self._state.link) is not None:
            self.execute(query, args)
            yield link
            return
        link, _ = self._run(query, args)
        self._state.link = link
        try:
            yield link
        finally:
            self._state.link = None
            self._give(link)

    def _run(self, query: str, args: Sequence) -> tuple[Link, Rows]:
        """Run a statement; return its rows, and the connection, which the caller must `_give` back.

        If an idle connection was lost, the statement runs on a new one: it may have run twice.
        """
        self._watchdog.require_reading()
        for is_last in (False, True):
            link = self._take()
            try:
                return link, link.run(query, args)
            except psycopg.Error as error:
                self._give(link)
                if is_last or not link.closed or isinstance(error, errors.QueryCanceled):
                    raise self._failure(link, error) from error
            except BaseException:  # for text that is no UTF-8, for example
                self._give(link)
                raise
            self.close()  # the others were probably lost with it
        raise AssertionError("the last try returns or raises")

    def _take(self) -> Link:
        """Return the connection that was last returned, a new one if there is none."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _give(self, link: Link) -> None:
        """Return a connection to the pool; one from before `close` is closed."""
        if link.pool is self._idle and not link.closed:
            link.pool.append(link)
        else:
            link.close()

    def _connect(self) -> Link:
        try:
            return Link.open(self._conninfo, self._idle)
        except psycopg.Error as error:
            if isinstance(error, psycopg.OperationalError):
                self._watchdog.suspect()
            raise storage_error(error) from error

    def _failure(self, link: Link, error: psycopg.Error) -> StorageError:
        """Return the storage error for what failed on a connection; test the database if needed."""
        if link.closed:
            self._watchdog.suspect()
        return storage_error(error)

    def _test(self, report_reading: Callable[[bool], None]) -> bool:
        """Test the database for the watchdog, in a thread of that."""
        try:
            link = self._connect()
        except StorageError:
            self.close()  # the connections may lead to a server that is lost
            report_reading(False)
            return False
        report_reading(True)
        with contextlib.closing(link):
            try:
                link.run("BEGIN")
                link.run("UPDATE health SET at = %s", [now_ms()], TEST_TIMEOUT)
                link.commit(TEST_TIMEOUT)
            except (psycopg.Error, StorageFailed):
                return False
        return True


def _start_again(reference: weakref.ref[Database]) -> None:
    """Start a database in a child process, if it is still in use."""
    if (database := reference()) is not None:
        database.start()


def storage_error(error: psycopg.Error) -> StorageError:
    """Return the storage error for one of psycopg, with a text of one line and no address."""
    diagnosis = error.diag
    if taken := error_of_constraint(diagnosis.constraint_name):
        return taken
    if isinstance(error, errors.DiskFull):
        return StorageFull("the disk of the database is full")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StorageFailed("the database is read-only: is it a standby?")
    if isinstance(error, errors.LockNotAvailable | errors.QueryCanceled):
        return StorageFailed("the database took too long")
    if isinstance(error, psycopg.OperationalError) and diagnosis.sqlstate is None:
        reasons = dict.fromkeys(REASON.findall(str(error)))
        return StorageFailed(": ".join([UNREACHABLE, *reasons]))
    return StorageFailed(f"the database refuses this: {diagnosis.message_primary or error}")
