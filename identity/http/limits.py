"""Limits on the attempts of an address or a player, and on the expensive work of a worker."""

import contextlib
import ipaddress
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from flask import request
from werkzeug.exceptions import ServiceUnavailable

from identity.http.context import get_storage
from model.errors import StorageFailed, TooManyAttempts
from model.records import Attempt
from model.words import say
from storage import Storage
from storage.contract import ATTEMPTS_WINDOW

HASHES_RUNNING = HASHES_WAITING = 2  # in a worker; each takes 32 MiB and a third of a second
PICTURES_RUNNING = PICTURES_WAITING = 2  # in a worker
# In storage.ATTEMPTS_WINDOW:
ATTEMPTS_PER_NAME = 10  # wrong passwords for a name from an address
ATTEMPTS_PER_ADDRESS = 100  # wrong passwords from an address
CONFIRMATIONS = 20  # of a signed-in player with the password, right or wrong
PICTURES = 30  # uploads of a player, good or bad
EMAIL_QUESTIONS = 20  # a day from an address or of a player: does this email have an account?
# One customer may have a whole /48 of IPv6: 65,536 networks. It may fail, and hold places, so many
# times as often as one /64.
SITE_FACTOR = 2
TURN_TIMEOUT = 5  # seconds
BUSY_RETRY_AFTER = 2  # seconds


class Busy(ServiceUnavailable):
    """This worker has no place free; try again in BUSY_RETRY_AFTER seconds."""

    description = say("Too many people are doing this right now. Try again in a moment.")

    def __init__(self) -> None:
        super().__init__(retry_after=BUSY_RETRY_AFTER)


# -- addresses ----------------------------------------------------------------------------------


def networks_of(remote_address: str | None) -> dict[str, int]:
    """Return the networks that an address counts for, the widest first, with their factors.

    The factor of a network is the number of times that it may reach the limit of one address.
    """
    try:
        address = ipaddress.ip_address(remote_address or "")
    except ValueError:
        return {"unknown": 1}
    if address.version == 6 and address.ipv4_mapped is None:
        network, site = (ipaddress.IPv6Address(int(address) >> n << n) for n in (64, 80))
        return {f"{site}/48": SITE_FACTOR, str(network): 1}
    return {str(getattr(address, "ipv4_mapped", None) or address): 1}


def client_address(remote_address: str | None) -> str:
    """Return the address that attempts are counted for: IPv4, or the /64 network of an IPv6 one."""
    return list(networks_of(remote_address))[-1]


# -- attempts -----------------------------------------------------------------------------------


class AttemptLimit(NamedTuple):
    """The arguments of `Attempts.count`."""

    kind: str
    subject: str
    limit: int
    window: int = ATTEMPTS_WINDOW  # seconds


def limits_of_address(
    remote_address: str | None, kind: str, limit: int, name: str = "", window: int = ATTEMPTS_WINDOW
) -> list[AttemptLimit]:
    """Return the limits of an address: its own and that of its IPv6 /48, which comes first.

    With a `name`, the limits are on attempts at this name from the address alone.
    """
    return [
        AttemptLimit(kind, f"{network} {name}" if name else network, limit * factor, window)
        for network, factor in networks_of(remote_address).items()
    ]


def count_attempts(store: Storage, limits: Sequence[AttemptLimit]) -> list[Attempt]:
    """Count one attempt against each limit, and return what was counted.

    Raises TooManyAttempts, and then none is counted, or StorageFailed. The limits of addresses come
    first, so that an address at its limit adds no file for each name that it tries.
    """
    counted = []
    try:
        for each in limits:
            counted.append(store.attempts.count(*each))
    except TooManyAttempts:
        refund_attempts(store, counted)
        raise
    return counted


def count_guest(kind: str, limit: int) -> None:
    """Count a request of this address that needs no account. Raises TooManyAttempts.

    Where it cannot be counted, as on a full disk, it goes on: nothing is saved by it.
    """
    with contextlib.suppress(StorageFailed):
        count_attempts(get_storage(), limits_of_address(request.remote_addr, kind, limit))


def refund_attempts(store: Storage, counted: list[Attempt]) -> None:
    """Remove counted attempts, such as those with the right password."""
    for attempt in counted:
        store.attempts.refund(attempt)


# -- expensive work -----------------------------------------------------------------------------


class ConcurrencyLimit:
    """A limit on blocks of code: `running` run at a time, `waiting` wait, the next raises Busy.

    Each holder has a limit of its own, so that none of them can keep the others out. One block
    whose holders have no place left waits for them, up to TURN_TIMEOUT: the second click of a
    double click, or a neighbour behind the same address.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self._changed = threading.Condition()
        self._free = running + waiting
        self._held: Counter[str] = Counter()
        self._one_waits = False  # for its holders; only one, because it occupies a thread
        self._running = threading.Semaphore(running)
        self._all = running + waiting
        self.on_change: Callable[[int], object] = lambda taken: None  # for identity.http.metrics

    @contextlib.contextmanager
    def place(self, holders: Mapping[str, int]) -> Iterator[None]:
        """Run the block on a place that counts for each of the holders. Raises Busy.

        `holders` has the number of places, waiting ones included, that each may hold at a time.
        """
        with self._changed:
            self._await_holders(holders)
            if not self._free:
                raise Busy
            self._free -= 1
            self.on_change(self._all - self._free)
            self._held += Counter(holders.keys())
        try:
            with self._running:
                yield
        finally:
            with self._changed:
                self._free += 1
                self.on_change(self._all - self._free)
                self._held -= Counter(holders.keys())  # which drops what holds none
                self._changed.notify_all()

    def _await_holders(self, holders: Mapping[str, int]) -> None:
        """Return when each holder may have one place more. The caller holds `self._changed`.

        One call waits at a time, up to TURN_TIMEOUT seconds; then, or for another one, raises Busy.
        """

        def may_hold() -> bool:
            return all(self._held[name] < holders[name] for name in holders)

        if may_hold():
            return
        if self._one_waits:
            raise Busy
        self._one_waits = True
        try:
            if not self._changed.wait_for(may_hold, TURN_TIMEOUT):
                raise Busy
        finally:
            self._one_waits = False


password_limit = ConcurrencyLimit(HASHES_RUNNING, HASHES_WAITING)
picture_limit = ConcurrencyLimit(PICTURES_RUNNING, PICTURES_WAITING)
letter_limit = ConcurrencyLimit(1, 0)  # test letters: a silent mail server holds one thread


def password_place(
    player_id: int | None = None, limits: Sequence[AttemptLimit] = ()
) -> contextlib.AbstractContextManager[list[Attempt]]:
    """Return the `_counted_place` for a block that hashes a password."""
    return _counted_place(password_limit, player_id, limits)


def picture_place(
    player_id: int, limits: Sequence[AttemptLimit]
) -> contextlib.AbstractContextManager[list[Attempt]]:
    """Return the `_counted_place` for a block that decodes a picture."""
    return _counted_place(picture_limit, player_id, limits)


@contextlib.contextmanager
def _counted_place(
    limit: ConcurrencyLimit, player_id: int | None, limits: Sequence[AttemptLimit]
) -> Iterator[list[Attempt]]:
    """Run the block on a place of this request, and count an attempt against each of the limits.

    `player_id` is the player who makes the request, if that is proven: a guest who types a name
    must not hold that player's place. Raises TooManyAttempts, Busy, StorageFailed.
    """
    store = get_storage()
    for each in limits:  # first: a refused attempt needs no place, and leaves no empty file
        store.attempts.require_left(*each)
    with limit.place(holders_of_request(player_id)):  # what is refused as Busy is not counted
        yield count_attempts(store, limits)


def holders_of_request(player_id: int | None) -> dict[str, int]:
    """Return who holds the place of this request, networks and player, and how many each may."""
    players = {} if player_id is None else {f"player {player_id}": 1}
    return networks_of(request.remote_addr) | players
