"""The storage contract: what every backend does, a class for each part.

Several processes and threads may use one installation at once.

A method that saves returns when the change would survive the loss of the machine that keeps it
(flat files: a power cut), unless it says otherwise. If that cannot be had it raises StorageFull or
StorageFailed, and the old record stands; or SaveUnconfirmed, and the change may have been saved, as
a later read shows.

A method that reads sees the old record or the new one, never a part, and takes no lock; it raises
DamagedRecord for a record that cannot be decoded.

The block of `edit`, `adding` and `deleting` runs under the record's lock. Other methods take a
callable `before`, and call it there with the record that is about to change. An exception that is
raised there stops the change. Edits never nest: there, methods that change records raise
RuntimeError. `Audit.write` and `Attempts.count` may be called.

Methods that take `after` and `at_most` return at most so many, and only those behind that id.
"""

import contextlib
import functools
import json
import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager
from typing import TypeVar

from model import kinds
from model.errors import StorageError, TooManyAttempts
from model.grant_records import AuthorizationCode, DeviceRequest
from model.kind import Kind
from model.records import Attempt, User, now_ms
from model.site_records import OpenIdKey
from storage.audit_lines import decode_lines, lines_about, time_of
from storage.maintenance import Load, Problem, Progress, Report, Snapshot, ignore
from storage.repositories import Clients, FormerEmails, FormerNames, Images, Invites, Records
from storage.users import Handles, Users

ATTEMPTS_WINDOW = 900  # seconds: failures are counted over this and the window before it
PLAYING_KEPT = 150  # seconds, as a sitting; the play page sends a heartbeat each minute
PLAYING_LISTED = 2000  # users
KEYS_KEPT = 2  # after a rotation: signatures by the key before still verify
KEYS_CACHED = 1.0  # seconds: each signature needs the keys, and they rarely change
HEALTH_INTERVAL = 5  # seconds between two saves of the health check
UNKNOWN_CODE = "this authorization code is unknown"
GENERATED_CACHED = 4096  # pictures that were drawn: about 200 bytes each
PARTS = {each.kind: each for each in (Clients, Invites, FormerNames, FormerEmails, Handles)}
Code = TypeVar("Code", AuthorizationCode, DeviceRequest)


class Pictures(ABC):
    """The profile pictures: webp files of the sizes in PICTURE_SIZES."""

    @abstractmethod
    def save(
        self, user_id: int, images: Images | None, before: Callable[[User], None] = ignore
    ) -> int:
        """Replace a user's picture and return its timestamp, larger than every earlier one.

        Without images the picture is the generated one. Raises NoSuchUser.
        """

    @abstractmethod
    def read(self, size: str, file_name: str) -> tuple[bytes, float]:
        """Return a picture and the time it was written, in seconds since 1970.

        `file_name` matches PICTURE_FILE: the caller has checked that. The picture of a user without
        an upload is drawn. Raises NoSuchPicture.
        """

    @staticmethod
    @functools.lru_cache(maxsize=GENERATED_CACHED)
    def generated(user_id: int, size: str) -> bytes:
        """Return the webp file that is drawn for a user without a stored picture."""
        from images.pictures import generate_picture  # Pillow: memory a worker may not need

        return generate_picture(user_id, size)[size]


class Codes(ABC):
    """The authorization codes, and those of devices, stored under their hash."""

    @abstractmethod
    def add(self, code: str, record: Code) -> None:
        """Store a code. A crash of the storage may lose it, and invalidates it."""

    @abstractmethod
    def read(self, code: str, record_type: type[Code] = AuthorizationCode) -> Code:
        """Return the record of an unused code of any age. Raises NoSuchCode, CodeSpent.

        NoSuchCode also for the code of a record of another type.
        """

    @abstractmethod
    def spend(self, code: str, record_type: type[Code] = AuthorizationCode) -> None:
        """Use a code up, of which `read` returned the record. Raises CodeSpent, NoSuchCode.

        If several callers race, one returns. StorageFailed leaves the code unused, unless it is
        SaveUnconfirmed.
        """


def new_key() -> str:
    """Return a new signing key, which is ASCII."""
    return secrets.token_urlsafe(32)


class Keys(ABC):
    """The signing keys, which each process caches for KEYS_CACHED."""

    def __init__(self) -> None:
        self._cached: tuple[float, tuple[bytes, ...]] = 0.0, ()  # until when: time.monotonic()

    def current(self) -> tuple[bytes, ...]:
        """Return the keys that verify, newest last, as they were up to KEYS_CACHED seconds ago."""
        until, keys = self._cached
        started = time.monotonic()
        if started >= until:
            keys = self.read()
            # From before they were read: a rotation since is known in time.
            self._cached = started + KEYS_CACHED, keys
        return keys

    @abstractmethod
    def read(self) -> tuple[bytes, ...]:
        """Return the keys as they are now. Raises BadInstallation if there is none."""

    @abstractmethod
    def rotate(self, drop_old: bool) -> None:
        """Add a key and keep the one before. With `drop_old`, no other key stays valid.

        When it returns, after `expire`, every process signs with the new key.
        """

    def expire(self) -> None:
        """Wait until no process caches keys from before this call."""
        self._cached = 0.0, ()
        time.sleep(KEYS_CACHED)


class Attempts(ABC):
    """Counts of attempts of a `kind` (what is guessed) by or at a `subject`."""

    @abstractmethod
    def count(self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW) -> Attempt:
        """Count one attempt, before it is checked.

        Counts are exact across processes. Raises TooManyAttempts, and counts nothing, if `limit`
        attempts of this and the previous `window` (seconds) were not given back. The attempt counts
        even if the change around it fails.
        """

    @abstractmethod
    def require_left(
        self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW
    ) -> None:
        """Raise TooManyAttempts if `count` would. Nothing is counted or stored."""

    @abstractmethod
    def refund(self, attempt: Attempt) -> None:
        """Stop counting an attempt, because it succeeded."""

    @abstractmethod
    def clear(self, kind: str, subject: str, window: int = ATTEMPTS_WINDOW) -> None:
        """Stop counting all attempts of a kind by or at a subject, in windows of this length."""

    @staticmethod
    def require_below(limit: int, now: int, before: int, window: int) -> None:
        """Raise TooManyAttempts if the counts of this window and the one before reach `limit`."""
        if now + before >= limit:
            windows = 2 if now >= limit else 1
            raise TooManyAttempts(windows * window - int(time.time()) % window)


class Playing(ABC):
    """Who plays now, and which game. A crash of the storage may lose it.

    No request fails because of it: what cannot be noted or read is left out.
    """

    def note(self, user_id: int, game: str | None) -> None:
        """Remember that a user plays now, and the client id of the game if it may be named."""
        with contextlib.suppress(StorageError):
            self.put(user_id, game)

    def now(self) -> dict[int, str | None]:
        """Return the games by user id of those who were noted in the last minutes.

        They are in the order in which they were noted, the latest first, as far as it is known, and
        at most PLAYING_LISTED.
        """
        with contextlib.suppress(StorageError):
            return self.read()
        return {}

    @abstractmethod
    def put(self, user_id: int, game: str | None) -> None:
        """Do what `note` does. Raises StorageFailed."""

    @abstractmethod
    def read(self) -> dict[int, str | None]:
        """Return what `now` does. Raises StorageFailed."""


class Audit(ABC):
    """The audit log: what an administrator may have to explain."""

    place = "the audit log"  # to people

    def write(self, act: str, by: int | str, **ids: int | str) -> None:
        """Add a line, which is saved before the act that it describes.

        `by` and `ids` have ids, never names. In an edit, in `adding` and `deleting`, and in a
        `before` callable a database saves both or neither; in files the line stays if the change
        fails after it.
        """
        self.add_line(json.dumps({"time": now_ms(), "act": act, "by": by, **ids}).encode())

    @abstractmethod
    def add_line(self, line: bytes) -> None:
        """Add an encoded line, as `write` says."""

    @abstractmethod
    def lines(self) -> Iterator[bytes]:
        """Yield the lines as they are stored, oldest first; a part of the log is read at a time."""

    @abstractmethod
    def before(self, position: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the lines before a position, by default all, newest first, each behind its own.

        Positions grow from line to line. `position` may be any number.
        """

    @abstractmethod
    def ends(self) -> tuple[int, int]:
        """Return a position before all lines, and one behind them."""

    @abstractmethod
    def forget(self, start: int, end: int) -> None:
        """Remove the addresses in the line at `start` and all later ones that end before `end`.

        All positions stay.
        """

    def seek(self, time: int) -> int:
        """Return the position behind the lines written until `time`, if all clocks agree."""
        low, high = self.ends()
        while low < high:
            middle = (low + high + 1) // 2
            timed = ((each, time_of(line)) for each, line in self.before(middle))
            position, last = next((each for each in timed if each[1] is not None), (low, None))
            if last is None or last <= time:
                low = middle
            else:
                high = position
        return low

    def read(self) -> Iterator[dict]:
        """Yield the lines, oldest first: the arguments of `write`, and `time`.

        Raises DamagedRecord after the last line if one is damaged.
        """
        return decode_lines(self.lines(), self.place)

    def about(self, subjects: Set[int | str]) -> Iterator[dict]:
        """Yield the lines by or about these user ids and client ids, newest first.

        The whole log is read. Raises DamagedRecord after the last line if one is damaged.
        """
        return lines_about((line for _, line in self.before()), subjects, self.place)


class Storage(ABC):
    """An installation: its parts, and what is done to it as a whole.

    Of `snapshot` and `load` one runs at a time. Each calls `before` when it is certain that it will
    be done and before anything is changed, and `report` with each thing that a person should know.
    """

    users: Users
    clients: Clients
    invites: Invites
    handles: Handles
    openid_keys: Records[OpenIdKey]
    pictures: Pictures
    codes: Codes
    keys: Keys
    attempts: Attempts
    playing: Playing
    audit: Audit

    _tried_saving = -math.inf  # time.monotonic()
    _problem: StorageError | None = None  # of that save

    def keep_records(self, users: Users, backend: type[Records], place: object) -> None:
        """Set `users` and the parts of the other kinds, each made as `backend(place, kind)`."""
        self._backend, self._place = backend, place
        self._records: dict[Kind, Records] = {kinds.USERS: users}
        self.users, self.clients, self.invites, self.handles, self.openid_keys = map(
            self.records,
            (kinds.USERS, kinds.CLIENTS, kinds.INVITES, kinds.HANDLES, kinds.OPENID_KEYS),
        )
        users.clients, users.invites = self.clients, self.invites
        users.families = self.records(kinds.FAMILIES)
        users.applications = self.records(kinds.APPLICATIONS)
        users.former_names = self.records(kinds.FORMER_NAMES)
        users.former_emails = self.records(kinds.FORMER_EMAILS)
        self.invites.accounts_of = users.accounts_of

    def records(self, kind: Kind) -> Records:
        """Return the records of any kind, with the methods of its class in PARTS."""
        if kind not in self._records:
            part, backend = PARTS.get(kind), self._backend
            made = type(part.__name__, (backend, part), {}) if part else backend
            self._records[kind] = made(self._place, kind)
        return self._records[kind]

    def is_empty(self) -> bool:
        """Return True if there is no record of a kind that counts: user, client or handle."""
        return not any(self.records(each).ids(at_most=1) for each in kinds.KINDS if each.counts)

    def require_health(self) -> None:
        """Raise StorageError if records or pictures cannot be read or saved.

        It may be called often: it tries to save only once in HEALTH_INTERVAL.
        """
        self.try_reading()
        if time.monotonic() - self._tried_saving >= HEALTH_INTERVAL:
            self._tried_saving = time.monotonic()  # now: of many calls at once one saves
            problem = None
            try:
                self.try_saving()
            except StorageError as error:
                problem = error
            self._problem = problem
        if self._problem:
            raise self._problem

    @abstractmethod
    def try_reading(self) -> None:
        """Raise StorageError if nothing can be read."""

    @abstractmethod
    def try_saving(self) -> None:
        """Raise StorageError if nothing can be saved."""

    @abstractmethod
    def free_space(self) -> int | None:
        """Return how many bytes are free for records and pictures, None if that is unknown."""

    @abstractmethod
    def lead(self, task: str) -> int | None:
        """Try to become the process that does a repeating task; ask again before each round.

        Return None if another process does it, and 0 if no other one will until this one ends. Else
        others may do it, too: claim each record for this number of milliseconds before the work.
        """

    @abstractmethod
    def time(self) -> int:
        """Return the time in milliseconds, by a clock that all machines share."""

    @abstractmethod
    def close(self) -> None:
        """Release the resources of this process. No other method may be called afterwards."""

    @abstractmethod
    def verify(self, repair: bool = False, progress: Progress = ignore) -> Iterator[Problem]:
        """Yield what is wrong; with `repair` it is repaired if that invents no data."""

    @abstractmethod
    def snapshot(
        self,
        before: Callable[[], None] = ignore,
        report: Report = ignore,
        progress: Progress = ignore,
    ) -> AbstractContextManager[Snapshot]:
        """Read one state of everything while other processes go on.

        `report` gets a line for each record or picture that cannot be read and is left out,
        `progress` how many records and lines of the audit log were read.
        """

    @abstractmethod
    def load(
        self, before: Callable[[], None] = ignore, report: Report = ignore
    ) -> AbstractContextManager[Load]:
        """Fill an installation that `is_empty`, and replace its signing keys.

        When the block ends, everything that it added is there at once. If it raises or is killed,
        nothing is there. Raises BadInstallation if the installation is not empty, and
        SaveUnconfirmed if all of it may be there, or nothing.
        """
