"""A circuit breaker: after a failure calls fail at once until the database reads and saves again.

A page makes several calls, also when it says that the site is out of order: if each of them waited
for a database that hangs, soon all threads of a worker would. So a thread tests the database, twice
a second, in place of the calls.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from model.errors import StorageFailed

TEST_INTERVAL = 0.5  # seconds
VERDICT_TIMEOUT = 0.5  # seconds: calls wait so long for the first test; mostly it takes a few ms
MOST_SAVES = 6  # at a time; a worker has twelve threads, and look-ups need some
TURN_TIMEOUT = 1.0  # seconds: for a place, and for other saves of the same record
TESTS = "database tests"  # the name of the thread that tests after a failure

UNREACHABLE = "the database does not answer"
NOT_SAVING = "the database does not save now"
OTHER_SAVES = "too many saves of the same record"


class Watchdog:
    """Knows whether the database reads and saves.

    `test` tests both, with a short time limit: it calls its argument with whether the database
    reads, and returns whether it saves.
    """

    def __init__(self, test: Callable[[Callable[[bool], None]], bool]) -> None:
        self._test = test
        self._changed = threading.Condition()  # its lock can be acquired again by its owner
        self._reads = self._saves = True  # as far as is known
        self._tests = False  # the testing thread runs
        self._suspected: float | None = None  # since when a failure awaits the first test
        self._saving: list[str] = []  # the records that are saved now, "" for others

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

        Of the blocks of one `record` one runs at a time: a player who saves without a pause in
        between takes one of the MOST_SAVES places, and leaves the rest to others. If no place
        becomes free, the saves are stuck.
        """
        self.require_reading()
        with self._changed:
            if not self._changed.wait_for(lambda: self._may_save(record), TURN_TIMEOUT):
                if record and record in self._saving:
                    raise StorageFailed(OTHER_SAVES)
                self.suspect(saves=False)  # the next save need not wait as long
            if not self._saves:
                raise StorageFailed(NOT_SAVING)
            self._saving.append(record)
        try:
            yield
        finally:
            with self._changed:
                self._saving.remove(record)
                self._changed.notify_all()

    def _may_save(self, record: str) -> bool:
        """Return whether a save of a record need not wait, or would be in vain."""
        is_free = len(self._saving) < MOST_SAVES and (not record or record not in self._saving)
        return is_free or not self._saves

    def suspect(self, saves: bool = True) -> None:
        """Test the database because a call failed; with `saves` False, no save is tried until then.

        Other calls wait a moment for the first result.
        """
        with self._changed:
            self._saves = self._saves and saves
            if not self._tests:
                self._tests, self._suspected = True, time.monotonic()
                threading.Thread(target=self._test_until_it_works, name=TESTS, daemon=True).start()

    def _test_until_it_works(self) -> None:
        while True:
            saves = self._test(self._note_reading)
            with self._changed:
                self._saves, self._tests = saves, not saves
            if saves:
                return
            time.sleep(TEST_INTERVAL)

    def _note_reading(self, reads: bool) -> None:
        with self._changed:
            self._reads, self._suspected = reads, None
            self._changed.notify_all()
