"""The terms of work on a whole installation: progress, problems, advice, snapshots and loads."""

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from model.errors import PictureRefused
from model.kind import Kind
from model.records import User

CLEANING_INTERVAL = 60  # seconds
REMOVED_AT_ONCE = 50  # expired records
STEP = 100  # records, files or lines between two reports of progress
Item = TypeVar("Item")

Progress = Callable[[int, int], None]  # gets how much is done, and of how much
Report = Callable[[str], None]  # gets a line for a person


def ignore(*_: object) -> None:
    """Do nothing: the default of `progress`, `report` and `before`."""


class Steps:
    """Counts the steps of long work, and reports the progress each STEP steps."""

    def __init__(self, progress: Progress, total: int = 0) -> None:
        self.total = total  # that are expected
        self._progress = progress
        self._done = 0

    def advance(self, number: int = 1) -> None:
        """Count so many steps; there may be more than were expected."""
        before, self._done = self._done, self._done + number
        if before // STEP < self._done // STEP:
            self._progress(min(self._done, self.total), self.total)

    def each(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items, and count each as a step when the caller is done with it."""
        for item in items:
            yield item
            self.advance()

    def end(self) -> None:
        """Report that everything is done: what may follow is to wait for the disk."""
        self._progress(self.total, self.total)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong in an installation, and what was done about it."""

    place: str  # where it is; in flat files a path
    problem: str  # continues a sentence that begins with the place: "is missing"
    repaired: str | None = None  # what was done


@dataclass(frozen=True, slots=True)
class Advice:
    """A problem and its fix, each as a clause that starts in lower case and has no full stop."""

    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What the next start of this program does to an installation that an older one made."""

    layout: int
    next_layout: int
    keys: dict[str, int]  # those that are added, each with the number of records that get it
    kinds: list[str]  # those that are new, without records
    removed: list[str]  # keys that older programs need
    seconds: float  # an estimate, from a measurement on this installation

    @property
    def keeps_way_back(self) -> bool:
        """True if the older program can use what the start leaves."""
        return self.layout == self.next_layout and not self.removed


class Snapshot(ABC):
    """One state of an installation.

    Authorization codes and counted attempts are no part of it: they expire.
    """

    next_user_id: int  # larger than every id in the snapshot

    @abstractmethod
    def users(self) -> Iterator[tuple[User, dict[str, bytes]]]:
        """Yield the users by id, with their sessions, each with the pictures by size.

        The picture of a user without any is generated.
        """

    @abstractmethod
    def deleted_ids(self) -> Iterable[int]:
        """Return the ids of deleted users, ascending. Call it after `users`, which may add some."""

    @abstractmethod
    def records(self, kind: Kind) -> Iterator[Any]:
        """Yield the readable records of another kind by id. No two have one unique key."""

    @abstractmethod
    def keys(self) -> tuple[bytes, ...]:
        """Return the signing keys, newest last."""

    @abstractmethod
    def audit_lines(self) -> Iterator[bytes]:
        """Yield the encoded lines of the audit log, oldest first, with their ends."""


class Load(ABC):
    """What an installation is filled with. Every method raises DamagedRecord for a duplicate."""

    next_user_id = 1  # no smaller id will be given
    keys: tuple[bytes, ...] | None = None  # the signing keys; None: a new one

    @abstractmethod
    def add_user(self, user: User, pictures: dict[str, bytes]) -> None:
        """Add a user, with a picture of each size or none."""

    @abstractmethod
    def add_deleted_id(self, user_id: int) -> None:
        """Add the id of a deleted user."""

    @abstractmethod
    def add(self, kind: Kind, record: Any) -> None:
        """Add a record of another kind."""

    @abstractmethod
    def add_audit_log(self, lines: Iterable[bytes]) -> None:
        """Add the lines of an audit log in front of those that are there."""


class Cleaning:
    """When a process cleans up: at most once in CLEANING_INTERVAL."""

    _last = -math.inf  # time.monotonic()

    def is_due(self) -> bool:
        """Return True if it is time, and count from now on."""
        now = time.monotonic()
        if now - self._last < CLEANING_INTERVAL:
            return False
        self._last = now
        return True


def remake_pictures(good: dict[str, bytes]) -> tuple[dict[str, bytes] | None, str]:
    """Return new pictures of a user by size, and what was done; `good` are the whole old ones.

    Without a good large picture None is in their place: the picture is generated.
    """
    from images.pictures import make_picture  # Pillow: slow to import

    with contextlib.suppress(PictureRefused, KeyError):
        return make_picture(good["large"]) | good, "made again from the large picture"
    return None, "replaced by a generated picture"
