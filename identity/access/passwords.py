"""Password hashes: our own, those of other servers (legacy), and legacy hashes wrapped in ours.

All are text in Werkzeug's form "<method>$<salt>$<digest>"; a wrapped one begins with
`model.rules.WRAPPED`.
"""

import functools
import hashlib
import time
from collections.abc import Iterable

from flask import current_app, request
from werkzeug.security import check_password_hash, generate_password_hash

from identity.http.context import get_storage
from identity.http.limits import (
    ATTEMPTS_PER_ADDRESS,
    ATTEMPTS_PER_NAME,
    CONFIRMATIONS,
    AttemptLimit,
    Busy,
    limits_of_address,
    password_place,
    refund_attempts,
)
from model.addresses import attempts_key
from model.errors import DamagedRecord, StorageFailed
from model.rules import PASSWORD_METHOD, WRAPPED, normal_password
from model.words import say

# Compared with the password if there is no such user, so that the response takes as long.
NOBODYS_HASH = f"{PASSWORD_METHOD}$0000000000000000${'0' * 128}"
# About 1/24 of PASSWORD_METHOD; repeated, it makes a legacy hash as expensive as ours.
WRAPPING_STEP = "scrypt:4096:8"
MOST_STEPS = 32  # what `model.rules.check_hash_format` accepts; a busy machine may measure more


class PasswordsUnavailable(Busy):
    """An attempt cannot be counted, so there is no rate limit and no password is checked."""

    description = say("We can't check passwords right now. Try again in a moment.")


def hash_password(password: str) -> str:
    """Return the hash to store for a password, in whatever Unicode form it was typed."""
    return generate_password_hash(normal_password(password), PASSWORD_METHOD)


def needs_rehash(kept_hash: str, password: str = "") -> bool:
    """Return True for a hash, of this `password`, that `hash_password` would make another way."""
    is_ours = kept_hash.startswith(f"{PASSWORD_METHOD}$")
    return not is_ours or password != normal_password(password)


def verify_password_with_limits(
    kept_hash: str, password: str, *names: str, player_id: int | None = None, is_code: bool = False
) -> str | None:
    """Return the right password in the Unicode form that was hashed, or None for a wrong one.

    Hashes of earlier versions and of other servers are of the password as it was typed: where this
    is another form it is tried as well, for whatever hash. Then the attempt counts twice against
    the limits on what an address, or a player, may have hashed.

    With `is_code` the caller has found that `password` is a recovery code: it counts under the same
    limits, takes the same time, and is returned. An empty hash never matches, in the same time.

    A wrong password counts against the limit of each of the `names` that it signs in with. A
    password by which the signed-in player `player_id` confirms something counts also if it is
    right: otherwise one player could keep a worker hashing. Raises TooManyAttempts, Busy,
    PasswordsUnavailable, and DamagedRecord for a malformed hash.
    """
    forms = list(dict.fromkeys((normal_password(password), password)))
    limits = limits_of_wrong_passwords(names, len(forms))
    confirmations = []
    if player_id is not None:
        confirmations = [AttemptLimit("confirmation by", str(player_id), CONFIRMATIONS)]
    try:
        with password_place(player_id, [*limits, *confirmations * len(forms)]) as counted:
            right = find_right_form(kept_hash or NOBODYS_HASH, forms)
    except StorageFailed as error:
        current_app.logger.error("passwords refused, attempts cannot be counted: %s", error)
        raise PasswordsUnavailable from error
    except ValueError as error:
        raise DamagedRecord("a password hash", str(error)) from error
    right = password if is_code else right
    if right is not None:
        refund_attempts(get_storage(), counted[: len(limits)])
    return right


def find_right_form(kept_hash: str, forms: Iterable[str]) -> str | None:
    """Return the form that a hash is of, or None. Raises ValueError for a malformed hash."""
    return next((each for each in forms if verify_password(kept_hash, each)), None)


def limits_of_wrong_passwords(names: Iterable[str], hashes: int) -> list[AttemptLimit]:
    """Return the limits for the names, and `hashes` times those for this request's address."""
    limits = limits_of_address(request.remote_addr, "password from", ATTEMPTS_PER_ADDRESS) * hashes
    return limits + [limit for name in names for limit in _limits_of_name(name)]


def _limits_of_name(name: str) -> list[AttemptLimit]:
    key = attempts_key(name)
    return limits_of_address(request.remote_addr, "password of", ATTEMPTS_PER_NAME, key)


def clear_wrong_passwords(*names: str) -> None:
    """Stop counting the wrong passwords for these names from the address of this request.

    The player has a new password, and other devices have to sign in with it.
    """
    try:
        for name in names:
            for limit in _limits_of_name(name):
                get_storage().attempts.clear(limit.kind, limit.subject)
    except StorageFailed as error:  # the new password is set all the same
        current_app.logger.error("wrong passwords still count: %s", error)


def verify_password(kept_hash: str, password: str) -> bool:
    """Return True for the right password. Raises ValueError for a malformed hash.

    A wrong password takes about the same time with hashes of all kinds: the time must not tell
    which names exist, or come from another server.
    """
    if kept_hash.startswith(WRAPPED):
        wrapping, _, legacy = kept_hash.removeprefix(WRAPPED).partition("|")
        method, _, salt = legacy.partition("$")
        return check_password_hash(wrapping, legacy_digest(method, salt, password))
    right = check_password_hash(kept_hash, password)
    if needs_rehash(kept_hash) and not right:
        method, _, _ = kept_hash.partition("$")
        check_password_hash(f"{wrapping_method(method)}$0${'0' * 128}", "")
    return right


# -- legacy hashes ------------------------------------------------------------------------------


def wrap_hash(legacy_hash: str) -> str:
    """Return a legacy hash, scrypt or PBKDF2 of Werkzeug's form, wrapped in a scrypt hash.

    The wrapped hash has the method and salt of the legacy one, but not its digest. Slow: as a
    password check, and some seconds more for the first hash of each legacy method.
    """
    method, salt, digest = legacy_hash.split("$")
    return f"{WRAPPED}{generate_password_hash(digest, wrapping_method(method))}|{method}${salt}"


def legacy_digest(method: str, salt: str, password: str) -> str:
    """Return the hex digest in Werkzeug's hash of a password. Raises ValueError for the method."""
    kind, *parameters = method.split(":")
    if kind == "scrypt":
        n, r, p = map(int, parameters)
        options = {"n": n, "r": r, "p": p, "maxmem": 132 * n * r * p}
        return hashlib.scrypt(password.encode(), salt=salt.encode(), **options).hex()
    name, rounds = parameters
    return hashlib.pbkdf2_hmac(name, password.encode(), salt.encode(), int(rounds)).hex()


@functools.lru_cache(maxsize=64)
def wrapping_method(legacy_method: str) -> str:
    """Return the scrypt method that takes, with the legacy method, as long as PASSWORD_METHOD."""
    ours, legacy, step = map(processor_time, (PASSWORD_METHOD, legacy_method, f"{WRAPPING_STEP}:1"))
    steps = round((ours - legacy) / step)
    return f"{WRAPPING_STEP}:{min(max(steps, 1), MOST_STEPS)}"


def processor_time(method: str) -> float:
    """Return the seconds that a hash takes on this machine: the least of three."""
    times = []
    for _ in range(3):
        started = time.thread_time()
        check_password_hash(f"{method}$0${'0' * 128}", "")
        times.append(time.thread_time() - started)
    return min(times)
