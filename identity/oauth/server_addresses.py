"""The one form of a game server's address: a ticket is for a server if the two texts are equal.

docs/games/tickets.md has a table of what becomes of an address.
"""

import functools
import ipaddress
import re

from identity.oauth.terms import InvalidRequest

LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){LABEL}(?:\.{LABEL})*")  # RFC 1035 2.3.4
# Browsers and C libraries read 127.1 and 0x7f000001 as IPv4 addresses, each in its own way.
NUMERIC_HOST = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
PORT = re.compile(r"[1-9][0-9]{0,4}")
USAGE = "like play.example.org:30000, 192.0.2.1:30000 or [2001:db8::1]:30000"


@functools.lru_cache(maxsize=1024)
def normal_address(text: str) -> str:
    """Return the one form of an address `host:port`. Raises InvalidRequest.

    Names that are not ASCII are refused, because libraries disagree on whose they are: Python's
    codec `idna` takes faß.de for fass.de, browsers take it for xn--fa-hia.de.
    """
    if not text.isascii():
        raise InvalidRequest("write the server's name in ASCII: as xn--...")
    host, _, port = text.lower().rpartition(":")
    if not PORT.fullmatch(port) or int(port) > 65535:
        raise InvalidRequest(f"write the server as host:port, {USAGE}")
    return f"{_normal_host(host.removesuffix('.'))}:{port}"


def _normal_host(host: str) -> str:
    """Return the one form of a host in lower case. Raises InvalidRequest."""
    try:
        if host.startswith("[") and host.endswith("]") and "%" not in host:
            address = ipaddress.IPv6Address(host[1:-1])
            return str(address.ipv4_mapped or f"[{address}]")
        if NUMERIC_HOST.fullmatch(host):
            return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise InvalidRequest(f"the server's IP address is malformed: write it {USAGE}") from None
    if not HOST_NAME.fullmatch(host):
        raise InvalidRequest(f"the server's name is malformed: write it {USAGE}")
    return host
