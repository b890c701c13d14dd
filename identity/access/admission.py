"""Which sign-ups get in by themselves, and which wait for a moderator.

The first few of an hour get in, and the first of each address in a day; later ones wait, so that
neither five hundred bots get in nor is anybody refused. Those who wait count as well. Invitations
count for nothing here.
"""

import contextlib

from flask import current_app, request

from identity.acts.actors import HALF_AN_HOUR
from identity.http.context import get_storage
from identity.http.limits import AttemptLimit, count_attempts, limits_of_address
from identity.site.formatting import DAY
from model.errors import TooManyAttempts
from model.records import Attempt

FREE_SIGN_UPS = 3  # in half an hour to an hour; later ones bring a proof of work
SIGN_UPS_A_DAY = 10  # from an address; later ones wait
MOST_A_DAY = 60  # from an address; with invitations as many again
UNLIMITED = 10**9


def _of_site(most: int) -> AttemptLimit:
    return AttemptLimit("sign-ups", "all", most, HALF_AN_HOUR)


def _of_address(most: int, kind: str = "sign-up") -> list[AttemptLimit]:
    return limits_of_address(request.remote_addr, kind, most, window=DAY)


def needs_proof() -> bool:
    """Return True if a sign-up without an invitation has to bring a proof of work now."""
    return not _has_left([_of_site(FREE_SIGN_UPS)])


def would_wait() -> bool:
    """Return True if the next sign-up without an invitation would wait for a moderator."""
    if current_app.config["SIGN_UP"] == "approval":
        return True
    return not _has_left(_to_get_in())


def _to_get_in() -> list[AttemptLimit]:
    return [*_of_address(SIGN_UPS_A_DAY), _of_site(current_app.config["SIGN_UPS_AN_HOUR"])]


def _has_left(limits: list[AttemptLimit]) -> bool:
    with contextlib.suppress(TooManyAttempts):
        _require_left(limits)
        return True
    return False


def _require_left(limits: list[AttemptLimit]) -> None:
    for each in limits:
        get_storage().attempts.require_left(*each)


def _of_day(invited: bool) -> list[AttemptLimit]:
    # Whoever has an invitation that leaked could have passwords hashed for ever.
    return _of_address(MOST_A_DAY, "invited sign-up" if invited else "sign-up")


def require_left(invited: bool) -> None:
    """Raise TooManyAttempts, and count nothing, if this address has no sign-up left today."""
    _require_left(_of_day(invited))


def admit(must_wait: bool, invited: bool) -> tuple[list[Attempt], bool]:
    """Count a sign-up; return what was counted, and True if it gets in by itself.

    Counts are exact: if several processes race for the last place, one of them gets it. Raises
    TooManyAttempts, StorageFailed.
    """
    store = get_storage()
    if invited:
        return count_attempts(store, _of_day(invited)), not must_wait
    if not must_wait:
        with contextlib.suppress(TooManyAttempts):
            return count_attempts(store, _to_get_in()), True
    return count_attempts(store, [*_of_day(invited), _of_site(UNLIMITED)]), False
