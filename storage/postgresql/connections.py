"""Connections to the database: one for each thread, made when the thread first needs it.

A thread keeps its connection, so a call costs no more than its own round trip, and statements are
prepared once. A lost connection is replaced at the next call.
"""

import contextlib
import functools
import json
import os
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence

import psycopg
from psycopg import errors
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

import storage
from storage import SaveUnconfirmed, StorageFailed, StorageFull
from storage.postgresql.schema import prepare_database
from storage.postgresql.watchdog import CALL_TIMEOUT, UNREACHABLE, Watchdog

TEST_TIMEOUT = 1.5  # seconds: for a call of the watchdog's test
LONG_COMMIT_TIMEOUT = 60.0  # seconds, after a restore
CANCEL_TIMEOUT = 0.5  # seconds
REACTION_TIME = 0.1  # seconds from the request to cancel to its effect
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
# The error for what breaks a constraint, which the statement before it did not find: another
# process was faster.
BROKEN = {
    "users_pkey": storage.IdTaken,
    "users_name_key_key": storage.NameTaken,
    "users_email_key_key": storage.EmailTaken,
    "clients_game_origin_key": storage.OriginTaken,
}
# What libpq says for each address that it tried, without the address.
REASON = re.compile(r".*failed: (?:FATAL: +)?(.+)")
UNCONFIRMED = "the database did not confirm this: it may have been saved"

Rows = list[tuple]


class JsonText(Loader):
    """Loads a json value as its bytes: `decode_record` decodes them."""

    def load(self, data: bytes) -> bytes:
        return bytes(data)


class Link:
    """One connection, and the deadline of the call that runs on it. Methods raise psycopg.Error."""

    def __init__(self, conninfo: dict, age: int) -> None:
        self.age = age  # the number of outages before it was made
        self.deadline: float | None = None
        self.in_transaction = self.keeps_lock = False  # which another connection would not have
        self.wrote = False  # in this transaction
        self.is_overdue = False  # its call was ended
        self._warned = False
        self._connection = psycopg.connect(**conninfo, autocommit=True)
        self._connection.adapters.register_loader("json", JsonText)
        self._connection.add_notice_handler(self._note)
        self._cursor = self._connection.cursor()

    def _note(self, notice: errors.Diagnostic) -> None:
        self._warned = self._warned or notice.severity_nonlocalized == "WARNING"

    def run(self, query: str, args: Sequence = (), timeout: float = CALL_TIMEOUT) -> Rows:
        """Run a statement; return the rows, none if it has no result."""
        self.deadline = time.monotonic() + timeout
        try:
            self._cursor.execute(query, args, prepare=True)
            return self._cursor.fetchall() if self._cursor.description else []
        finally:
            self.deadline = None

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

    def end_call(self) -> None:
        """Cancel the overdue call; if the server does not react, cut the connection."""
        self.is_overdue = True
        with contextlib.suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=CANCEL_TIMEOUT)
            time.sleep(REACTION_TIME)
        with contextlib.suppress(psycopg.Error, OSError):
            if self._connection.info.transaction_status == TransactionStatus.ACTIVE:
                # A duplicate: the connection keeps its own descriptor, and closes that.
                with socket.socket(fileno=os.dup(self._connection.fileno())) as its_socket:
                    its_socket.shutdown(socket.SHUT_RDWR)

    @property
    def is_lost(self) -> bool:
        """True if nothing is to be run here any more."""
        return self.is_overdue or self._connection.closed

    @property
    def connection(self) -> psycopg.Connection:
        """The connection, for what `run` cannot do."""
        return self._connection

    def close(self) -> None:
        """Close the connection, also a lost one."""
        self._connection.close()


class Links(threading.local):
    """The connections of a thread."""

    main: Link | None = None
    apart: Link | None = None  # for what is no part of the transaction on the main one


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
        self._links = Links()
        self._made: dict[threading.Thread, list[Link]] = {}
        self._making = threading.Lock()  # held while `_made` is used
        self._test_link: Link | None = None
        self._watchdog = Watchdog(self._test_reading, self._test_saving)

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._making:
            made, self._made, self._links = self._made, {}, Links()
        for link in [each for links in made.values() for each in links]:
            self._discard(link)

    # -- statements ----------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        """True in a block of `transaction`, in this thread."""
        return self._links.main is not None and self._links.main.in_transaction

    def execute(self, query: str, args: Sequence = ()) -> Rows:
        """Run a statement that changes nothing; in a `transaction`, as a part of it."""
        return self._run("main", query, args)

    def execute_unlogged(self, query: str, args: Sequence = ()) -> Rows:
        """Run and commit a statement on UNLOGGED tables, which is no part of a `transaction`.

        If the connection was lost, it runs once more: it may have run twice.
        """
        return self._run("apart" if self.in_transaction else "main", query, args)

    def save(self, query: str, args: Sequence = ()) -> Rows:
        """Run a statement that changes records, as a part of the `transaction`."""
        self._links.main.wrote = True
        return self._run("main", query, args)

    @contextlib.contextmanager
    def transaction(self, record: str = "") -> Iterator[None]:
        """Run the block as a transaction; if it raises, nothing is saved.

        Of those with one name in `record`, one runs at a time in this process. Raises
        SaveUnconfirmed if the change may have been saved, and RuntimeError inside another.
        """
        if self.in_transaction:
            raise RuntimeError("edits never nest: two threads could each wait for the other")
        with self._watchdog.saving(record):
            self._run("main", "BEGIN")
            link = self._links.main
            link.in_transaction, link.wrote = True, False
            try:
                yield
                self._commit(link)
            except BaseException:
                _end_transaction(link)
                raise
            finally:
                link.in_transaction = False

    def _commit(self, link: Link) -> None:
        if not link.wrote:  # a lock alone would wait for the standby as well
            return _end_transaction(link)
        try:
            return link.commit()
        except SaveUnconfirmed:
            self._watchdog.suspect(saves=False)
            raise

    @contextlib.contextmanager
    def own_transaction(self, mode: str = "") -> Iterator[psycopg.Connection]:
        """Run the block as a transaction on a connection of its own, without time limits.

        `mode` is what follows BEGIN, such as "READ ONLY". Raises SaveUnconfirmed.
        """
        link = self._connect()
        try:
            link.run(PREPARE_SESSION, [UNLIMITED])
            link.run(f"BEGIN {mode}")
            yield link.connection
            link.commit(LONG_COMMIT_TIMEOUT)
        except psycopg.Error as error:
            raise storage_error(error) from error
        finally:
            self._discard(link)

    @contextlib.contextmanager
    def advisory_lock(self, number: int) -> Iterator[None]:
        """Hold an advisory lock for the transactions of the block."""
        if self.in_transaction:
            raise RuntimeError("edits never nest: two threads could each wait for the other")
        self._run("main", "SELECT pg_advisory_lock(%s)", [number])
        link = self._links.main
        link.keeps_lock = True
        try:
            yield
        finally:
            link.keeps_lock = False
            try:
                link.run("SELECT pg_advisory_unlock(%s)", [number])
            except psycopg.Error:
                link.close()

    # -- connections ---------------------------------------------------------------------------

    def _run(self, name: str, query: str, args: Sequence = ()) -> Rows:
        """Run a statement on a connection of this thread, and once more if that was lost."""
        self._watchdog.require_reading()
        for is_last in (False, True):
            link = self._link(name)
            is_fixed = link.in_transaction or link.keeps_lock
            try:
                return link.run(query, args)
            except psycopg.Error as error:
                if link.is_lost:
                    self._watchdog.suspect()
                if is_last or is_fixed or not link.connection.closed or link.is_overdue:
                    raise storage_error(error) from error
        raise AssertionError("the last try returns or raises")

    def _link(self, name: str) -> Link:
        """Return this thread's connection, a new one if there is none or it is lost."""
        link = getattr(self._links, name)
        if link is not None:
            if link.in_transaction or link.keeps_lock:
                return link
            if not link.is_lost and link.age == self._watchdog.outages:
                return link
            self._discard(link)
        link = self._connect()
        setattr(self._links, name, link)
        with self._making:
            self._made.setdefault(threading.current_thread(), []).append(link)
            ended = [thread for thread in self._made if not thread.is_alive()]
            unused = [each for thread in ended for each in self._made.pop(thread)]
        for each in unused:
            self._discard(each)
        return link

    def _connect(self) -> Link:
        age = self._watchdog.outages
        try:
            link = Link(self._conninfo, age)
        except psycopg.Error as error:
            self._watchdog.suspect()
            raise storage_error(error) from error
        self._watchdog.watch(link)
        try:
            link.run(PREPARE_SESSION, [json.dumps(SESSION)])
            link.run(SAFE_COMMITS)
            prepare_database(link.run)
        except BaseException as error:
            self._discard(link)
            if isinstance(error, psycopg.Error):
                raise storage_error(error) from error
            raise
        return link

    def _discard(self, link: Link) -> None:
        self._watchdog.forget(link)
        link.close()
        with self._making:
            for links in self._made.values():
                with contextlib.suppress(ValueError):
                    links.remove(link)

    # -- the tests of the watchdog, in its thread ----------------------------------------------

    def _test_reading(self) -> None:
        if self._test_link is None or self._test_link.is_lost:
            self._test_link = self._connect()
        self._test(self._test_link, lambda link: link.run("SELECT 1", timeout=TEST_TIMEOUT))

    def _test_saving(self) -> None:
        def save(link: Link) -> None:
            link.run("BEGIN", timeout=TEST_TIMEOUT)
            link.run("UPDATE health SET at = %s", [storage.now_ms()], TEST_TIMEOUT)
            link.commit(TEST_TIMEOUT)

        self._test(self._test_link, save)
        self._discard(self._test_link)

    def _test(self, link: Link, test: Callable[[Link], object]) -> None:
        try:
            test(link)
        except (psycopg.Error, StorageFailed) as error:
            self._discard(link)
            raise StorageFailed(UNREACHABLE) from error


def _start_again(reference: weakref.ref[Database]) -> None:
    if (database := reference()) is not None:
        database.start()


def _end_transaction(link: Link) -> None:
    """Roll a transaction back; close the connection if that fails."""
    try:
        link.run("ROLLBACK")
    except psycopg.Error:
        link.close()


def storage_error(error: psycopg.Error) -> storage.StorageError:
    """Return the storage error for one of psycopg, with a text of one line and no address."""
    diagnosis = error.diag
    if isinstance(error, errors.UniqueViolation) and diagnosis.constraint_name in BROKEN:
        return BROKEN[diagnosis.constraint_name]()
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
