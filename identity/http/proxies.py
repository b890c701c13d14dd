"""The address of a client, as the proxies in front tell it in X-Forwarded-For."""

import functools
import ipaddress
import re
from collections.abc import Callable, Iterable

from identity.site.networks import EACH, note_unreadable
from model.records import now_ms
from storage import Storage

FORWARDED = re.compile(r"\[(.*)\](?::[0-9]*)?|([0-9.]+):[0-9]*")


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
