"""The address of a client, as the proxies in front tell it in X-Forwarded-For."""

import functools
import ipaddress
import logging
import re
from collections.abc import Callable, Iterable, Iterator

from identity.site.formatting import format_age
from identity.site.states import edit_state
from model.errors import StorageError
from model.kind import DAY_MS
from model.kinds import STATES
from model.records import now_ms
from storage import Storage
from storage.maintenance import Advice

UNREADABLE = "address"  # the id of the state that has the last one
EACH = 60_000  # milliseconds
NAMED = DAY_MS  # milliseconds after the last one
FORWARDED = re.compile(r"\[(.*)\](?::[0-9]*)?|([0-9.]+):[0-9]*")
LOG = logging.getLogger(__name__)


@functools.lru_cache(maxsize=1024)
def plain_address(text: str) -> str | None:
    """Return an address without brackets, port (RFC 7239 6) and zone; None for other text."""
    match = FORWARDED.fullmatch(text)
    bare = (match[1] or match[2] or "") if match else text
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


class PlainAddress:
    """WSGI middleware (PEP 3333) that gives the log and the limits the plain address."""

    def __init__(self, app: Callable, store: Storage) -> None:
        self._app = app
        self._store = store
        self._noted = 0  # when

    def __call__(self, environ: dict, start_response: Callable) -> Iterable[bytes]:
        received = environ.get("REMOTE_ADDR") or ""
        if address := plain_address(received):
            environ["REMOTE_ADDR"] = address
        elif abs(now_ms() - self._noted) >= EACH:
            self._noted = now_ms()
            note_unreadable(self._store, ascii(received)[:64])
        return self._app(environ, start_response)


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
    state = store.records(STATES).find(UNREADABLE) if proxies else None
    if state and now_ms() - state.time < NAMED:
        yield Advice(
            f"X-Forwarded-For had no address but {state.problem} ({format_age(state.time)}): rate "
            "limits count all such clients as one",
            "let the proxy send the address of the client, and set IDENTITY_PROXIES to the number "
            "of proxies",
        )
