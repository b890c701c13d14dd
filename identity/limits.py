"""Limits on the attempts of an address, and on the expensive work that a worker does at a time."""

import ipaddress
import threading

from flask import current_app, request
from werkzeug.exceptions import ServiceUnavailable

from identity.context import get_storage
from storage import Attempt, StorageFailed, TooManyAttempts, unique_key

HASHES_RUNNING = HASHES_WAITING = 2  # in a worker; each takes 32 MiB and a third of a second
PICTURES_RUNNING = PICTURES_WAITING = 2  # in a worker
ATTEMPTS_PER_NAME = 10  # wrong passwords for a name from an address, in storage.ATTEMPTS_WINDOW
ATTEMPTS_PER_ADDRESS = 100  # wrong passwords from an address
BUSY_RETRY_AFTER = 2  # seconds


class Busy(ServiceUnavailable):
    """This worker has no place free; try again in BUSY_RETRY_AFTER seconds."""

    description = "Too many people are doing this right now. Try again in a moment."

    def __init__(self) -> None:
        super().__init__(retry_after=BUSY_RETRY_AFTER)


class PasswordsUnavailable(Busy):
    """An attempt cannot be counted, so there is no rate limit and no password is checked."""

    description = "We can't check passwords right now. Try again in a moment."


class ConcurrencyLimit:
    """A context manager: `running` blocks run at a time, `waiting` wait, the next raises Busy."""

    def __init__(self, running: int, waiting: int) -> None:
        self._places = threading.Semaphore(running + waiting)
        self._running = threading.Semaphore(running)

    def __enter__(self) -> None:
        if not self._places.acquire(blocking=False):
            raise Busy
        self._running.acquire()

    def __exit__(self, *_: object) -> None:
        self._running.release()
        self._places.release()


password_limit = ConcurrencyLimit(HASHES_RUNNING, HASHES_WAITING)
picture_limit = ConcurrencyLimit(PICTURES_RUNNING, PICTURES_WAITING)


def count_attempts(*names: str) -> list[Attempt]:
    """Count one attempt at a password from this address, and one for each name, before the check.

    Raises TooManyAttempts, PasswordsUnavailable.
    """
    store, address = get_storage(), client_address(request.remote_addr)
    counted = []
    try:
        counted.append(store.count_attempt("password from", address, ATTEMPTS_PER_ADDRESS))
        for name in names:
            subject = f"{address} {unique_key(name)}"
            counted.append(store.count_attempt("password of", subject, ATTEMPTS_PER_NAME))
    except TooManyAttempts:
        give_back_attempts(counted)
        raise
    except StorageFailed as error:
        current_app.logger.error("passwords refused, attempts cannot be counted: %s", error)
        raise PasswordsUnavailable from error
    return counted


def give_back_attempts(counted: list[Attempt]) -> None:
    """Remove counted attempts, such as those with the right password."""
    for attempt in counted:
        get_storage().give_back_attempt(attempt)


def client_address(remote_address: str | None) -> str:
    """Return the address that attempts are counted for: IPv4, or the /64 network of an IPv6 one."""
    try:
        address = ipaddress.ip_address(remote_address or "")
    except ValueError:
        return "unknown"
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))
