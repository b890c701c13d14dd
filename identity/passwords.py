"""Password hashes, and the limits on guessing passwords and on the work that they cost."""

import ipaddress
import threading
import time

from flask import current_app, request
from werkzeug.exceptions import ServiceUnavailable
from werkzeug.security import check_password_hash, generate_password_hash

from identity.context import get_storage
from storage import (
    Attempt,
    DamagedRecord,
    StorageFailed,
    TooManyAttempts,
    User,
    unique_key,
)

PASSWORD_METHOD = "scrypt:32768:8:3"  # OWASP's; Werkzeug's default costs a third of it
# Compared with the password if there is no such player, so that the answer takes as long.
NOBODYS_HASH = f"{PASSWORD_METHOD}$0000000000000000${'0' * 128}"
# About a hundredth of that: fills up the time that an older hash saves.
SMALL_HASH = f"scrypt:1024:8:1$0000000000000000${'0' * 128}"
HASHES_RUNNING = 2  # at a time in a worker; each takes 32 MiB and a third of a second
HASHES_WAITING = 2
PICTURES_RUNNING = 2  # at a time in a worker
PICTURES_WAITING = 2
GUESSES_PER_NAME = 10  # failures for a name from an address, in storage.ATTEMPTS_WINDOW
GUESSES_PER_ADDRESS = 100  # failures from an address
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
# By method, what the last password took in seconds of processor time: machines slow down at times.
last_costs: dict[str, float] = {}


def hash_password(password: str) -> str:
    """Return the hash to store for a password."""
    return generate_password_hash(password, PASSWORD_METHOD)


def needs_rehash(kept_hash: str) -> bool:
    """Return True for a hash made by another method than today's."""
    return not kept_hash.startswith(f"{PASSWORD_METHOD}$")


def find_by_password(name: str, password: str) -> User | None:
    """Return the player with this name or email if the password matches.

    Raises TooManyAttempts, Busy, PasswordsUnavailable.
    """
    user = get_storage().find_user(name)
    right = verify_password_with_limits(user.password_hash if user else "", password, name)
    return user if right else None


def verify_password_with_limits(kept_hash: str, password: str, *names: str) -> bool:
    """Return True for the right password. An empty hash never matches, and takes the same time.

    A wrong password counts against the limits on guessing, for each of the `names` that it opens.
    Raises TooManyAttempts, Busy, PasswordsUnavailable.
    """
    with password_limit:  # before the count: an attempt refused as Busy is not counted
        counted = count_guess(*names)
        right = _hash_matches(kept_hash or NOBODYS_HASH, password)
    if right:
        give_back(counted)
    return right


def _hash_matches(kept_hash: str, password: str) -> bool:
    started = time.thread_time()
    try:
        right = check_password_hash(kept_hash, password)
    except ValueError as error:
        raise DamagedRecord("a password hash", str(error)) from error
    if not needs_rehash(kept_hash):
        last_costs[PASSWORD_METHOD] = time.thread_time() - started
    elif not right:
        # An older hash, of an imported account, may cost less, which would tell that it exists.
        if PASSWORD_METHOD not in last_costs:
            _hash_matches(NOBODYS_HASH, password)
        while time.thread_time() - started < last_costs[PASSWORD_METHOD]:
            check_password_hash(SMALL_HASH, "")
    return right


def count_guess(*names: str) -> list[Attempt]:
    """Count one attempt at a password, before it is checked.

    Raises TooManyAttempts, PasswordsUnavailable.
    """
    store, address = get_storage(), client_address(request.remote_addr)
    counted = []
    try:
        counted.append(store.count_attempt("password from", address, GUESSES_PER_ADDRESS))
        for name in names:
            subject = f"{address} {unique_key(name)}"
            counted.append(store.count_attempt("password of", subject, GUESSES_PER_NAME))
    except TooManyAttempts:
        give_back(counted)
        raise
    except StorageFailed as error:
        current_app.logger.error("passwords refused, attempts cannot be counted: %s", error)
        raise PasswordsUnavailable from error
    return counted


def give_back(counted: list[Attempt]) -> None:
    """Take back counted attempts that were not guesses."""
    for attempt in counted:
        get_storage().give_back_attempt(attempt)


def client_address(remote_address: str | None) -> str:
    """Return whom attempts are counted against: an IPv4 address, or an IPv6 /64 network."""
    try:
        address = ipaddress.ip_address(remote_address or "")
    except ValueError:
        return "unknown"
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))
