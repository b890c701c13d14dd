"""From which networks players sign in, and what proxies tell that is no address."""

import hmac
import logging
from collections.abc import Iterator

from identity.site.formatting import format_age
from identity.site.hosts import is_public_host
from identity.site.settings import host_of
from identity.site.states import edit_state, find_state
from model.errors import StorageError
from model.kind import DAY_MS
from model.records import now_ms
from model.site_records import State
from storage import Storage
from storage.maintenance import Advice

UNREADABLE = "address"  # the id of the state that has the last text that was no address
NETWORK = "network"  # the id of the state that has the only network of the last sign-ins
PLAYERS = 5  # so many from one network may be a proxy that is not trusted, fewer a family
EACH = 60_000  # milliseconds between two notes of a text that was no address
NAMED = DAY_MS  # milliseconds after the last one
LOG = logging.getLogger(__name__)


def note_unreadable(store: Storage, received: str) -> None:
    """Keep and log what was received in place of an address, once a minute in all workers."""
    now = now_ms()
    try:
        with edit_state(store, UNREADABLE) as state:
            if abs(now - state.time) < EACH:
                return
            state.time, state.problem = now, received
    except StorageError as error:
        LOG.warning("cannot save that an address is unreadable: %s", error)
    LOG.warning("X-Forwarded-For has no address but %s: these clients count as one", received)


def check_proxies(store: Storage, proxies: int) -> Iterator[Advice]:
    """Yield an advice if the proxies sent something other than an address in the last day."""
    state = find_state(store, UNREADABLE) if proxies else None
    if state and now_ms() - state.time < NAMED:
        yield Advice(
            f"X-Forwarded-For had no address but {state.problem} ({format_age(state.time)}): rate "
            "limits count all such clients as one",
            "let the proxy send the address of the client, and set IDENTITY_PROXIES to the number "
            "of proxies",
        )


# -- sign-ins from one network ------------------------------------------------------------------

# What is kept tells no address: a keyed hash of the network of all sign-ins while it is the only
# one, and when the first of each of up to PLAYERS players was. It is written a few times a day:
# once a second network was seen, not before the next day.


def note_sign_in(store: Storage, base_url: str, address: str, last_sign_in: int) -> None:
    """Keep from how many networks players sign in, where these can differ. No error is raised.

    `address` is IPv4, or the /64 network of an IPv6 one; `last_sign_in` is that before this one.
    """
    if not is_public_host(host_of(base_url)):
        return
    network = address.rpartition(".")[0] or address  # the /24 of IPv4
    is_new = abs(now_ms() - last_sign_in) > DAY_MS
    try:
        hashes = [
            hmac.digest(key, f"network {network}".encode(), "sha256").hex()
            for key in reversed(store.keys.current())
        ]
        kept = find_state(store, NETWORK) or State(NETWORK, 0)
        if _count_sign_in(kept, hashes, is_new):
            with edit_state(store, NETWORK) as state:  # another worker may have changed it
                _count_sign_in(state, hashes, is_new)
    except StorageError as error:
        LOG.warning("cannot save from how many networks players sign in: %s", error)


def _count_sign_in(state: State, hashes: list[str], is_new: bool) -> bool:
    """Count a sign-in in the state; return False if that changes nothing.

    Its `problem` is the hash of the only network, "" once there was another one at its `time`. Its
    `times` are of the first sign-in of different players. `hashes` are those of the network of this
    sign-in, by each key that is still good: the newest is first.
    """
    now = now_ms()
    if not state.problem and abs(now - state.time) < DAY_MS:
        return False
    if state.problem and state.problem not in hashes:
        state.time, state.problem, state.times = now, "", []
        return True
    recent = _of_last_day(state)
    if len(recent) >= PLAYERS or (state.problem and not is_new):
        return False
    state.problem, state.times = hashes[0], [*recent, now]
    return True


def _of_last_day(state: State) -> list[int]:
    return [each for each in state.times if abs(now_ms() - each) < DAY_MS]


def check_networks(store: Storage, base_url: str) -> Iterator[Advice]:
    """Yield an advice if all sign-ins of the last day, of PLAYERS players, were of one network."""
    state = find_state(store, NETWORK) if is_public_host(host_of(base_url)) else None
    if state and state.problem and len(_of_last_day(state)) >= PLAYERS:
        yield Advice(
            "all sign-ins of the last day came from one network: unless your players share one, it "
            "is that of a proxy, and rate limits count all of them as one",
            "let the proxy send X-Forwarded-For (deploy/nginx.conf does), and set IDENTITY_PROXIES "
            "to the number of proxies",
        )
