"""Time limits: no call waits long for a database that hangs, and none for one that is known to.

A commit waits for the synchronous standby for ever (statement_timeout does not end that wait), and
a frozen server answers nothing. So a thread looks for overdue calls and ends them.

After a failure another thread tests the database, twice a second, until it reads and saves again.
Meanwhile calls fail at once: a page makes several, also when it says that the site is out of
order, and soon all threads of a worker would be waiting.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from storage import StorageFailed

CALL_TIMEOUT = 3.0  # seconds: with what ends the call and tests the database, less than five
TICK = 0.2  # seconds between two looks at the deadlines
TEST_INTERVAL = 0.5  # seconds
VERDICT_TIMEOUT = 0.5  # seconds: calls wait so long for the first test; mostly it takes a few ms
MOST_SAVES = 6  # at a time; a worker has twelve threads, and look-ups need some
STUCK = 0.5  # seconds: a save that takes longer waits for something
TURN_TIMEOUT = 1.0  # seconds: for other saves of the same record
TESTS = "database tests"  # the name of the thread that tests after a failure

UNREACHABLE = "the database does not answer"
NOT_SAVING = "the database does not save now"
OTHER_SAVES = "too many saves of the same record"


class Watched(Protocol):
    """A connection whose calls have deadlines."""

    deadline: float | None  # of the call that runs, by time.monotonic(); None: no call, or no limit

    def end_call(self) -> None:
        """Make the overdue call fail."""


class Watchdog:
    """Ends the overdue calls of a process, and knows whether its database reads and saves.

    `test_reading` and `test_saving` make a call with a short time limit. They raise StorageFailed.
    """

    def __init__(self, test_reading: Callable[[], None], test_saving: Callable[[], None]) -> None:
        self._test_reading = test_reading
        self._test_saving = test_saving
        self._watched: set[Watched] = set()
        self._changed = threading.Condition()
        self._reads = self._saves = True  # as far as is known
        self._tests = False  # the testing thread runs
        self._suspected: float | None = None  # since when a failure awaits the first test
        self._saving = 0  # threads that save
        self._records: set[str] = set()  # which they save
        self._runs = False
        self.outages = 0  # so far; a connection from before an outage may lead to a lost server

    # -- deadlines -----------------------------------------------------------------------------

    def watch(self, connection: Watched) -> None:
        """Enforce a connection's deadlines until `forget`."""
        with self._changed:
            self._watched.add(connection)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._enforce, daemon=True).start()

    def forget(self, connection: Watched) -> None:
        """Stop watching a connection."""
        with self._changed:
            self._watched.discard(connection)

    def _enforce(self) -> None:
        """End overdue calls while there are connections."""
        while True:
            time.sleep(TICK)
            now = time.monotonic()
            with self._changed:
                watched = list(self._watched)
                self._runs = bool(watched)
            if not watched:
                return
            for each in watched:
                deadline = each.deadline
                if deadline is not None and deadline < now:
                    each.deadline = None
                    threading.Thread(target=each.end_call, daemon=True).start()

    # -- whether the database works ------------------------------------------------------------

    def require_reading(self) -> None:
        """Raise StorageFailed if the database is known not to answer."""
        if self._reads and self._suspected is None:  # without the lock: this is almost always so
            return
        with self._changed:
            if self._suspected is not None:
                left = self._suspected + VERDICT_TIMEOUT - time.monotonic()
                self._changed.wait_for(lambda: self._suspected is None, max(0.0, left))
            if not self._reads or self._suspected is not None:
                raise StorageFailed(UNREACHABLE)

    @contextlib.contextmanager
    def saving(self, record: str = "") -> Iterator[None]:
        """Run a block that saves. Raises StorageFailed if the database is known not to save.

        When MOST_SAVES blocks run, the next waits a moment, and fails if they are stuck. Of the
        blocks of one `record` one runs at a time: a player who saves without a pause in between
        takes one of these places, and leaves the rest to others.
        """
        self.require_reading()
        with self._turn(record) if record else contextlib.nullcontext(), self._place():
            yield

    @contextlib.contextmanager
    def _turn(self, record: str) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(
                lambda: record not in self._records or not self._saves, TURN_TIMEOUT
            )
            if record in self._records:
                raise StorageFailed(OTHER_SAVES)
            self._records.add(record)
        try:
            yield
        finally:
            with self._changed:
                self._records.remove(record)
                self._changed.notify_all()

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        with self._changed:
            if self._saving == MOST_SAVES:
                self._changed.wait_for(lambda: self._saving < MOST_SAVES or not self._saves, STUCK)
                if self._saving == MOST_SAVES:  # the next save need not wait as long
                    self._suspect(saves=False)
            if not self._saves:
                raise StorageFailed(NOT_SAVING)
            self._saving += 1
        try:
            yield
        finally:
            with self._changed:
                self._saving -= 1
                self._changed.notify_all()

    def suspect(self, saves: bool = True) -> None:
        """Test the database because a call failed; with `saves` False, no save is tried until then.

        Other calls wait a moment for the first result.
        """
        with self._changed:
            self._suspect(saves)

    def _suspect(self, saves: bool) -> None:
        self._saves = self._saves and saves
        if not self._tests:
            self._tests, self._suspected = True, time.monotonic()
            threading.Thread(target=self._test_until_it_works, name=TESTS, daemon=True).start()

    def _test_until_it_works(self) -> None:
        while True:
            reads = _succeeds(self._test_reading)
            with self._changed:
                self.outages += self._reads and not reads
                self._reads, self._suspected = reads, None
                self._changed.notify_all()
            saves = reads and _succeeds(self._test_saving)
            with self._changed:
                self._saves, self._tests = saves, not saves
                if saves:
                    return
            time.sleep(TEST_INTERVAL)


def _succeeds(test: Callable[[], None]) -> bool:
    try:
        test()
    except StorageFailed:
        return False
    return True
