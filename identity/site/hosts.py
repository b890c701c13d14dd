"""Which hosts only this machine reaches, which are public, and which can have passkeys."""

import functools
import ipaddress
import re
from importlib.util import find_spec

from identity.site.settings import host_of

# RFC 6762, 6761, 8375, and suffixes that home routers use. A name without a dot is private, too.
PRIVATE_NAME = re.compile(r"[^.]+|.*\.(local|localhost|internal|home\.arpa|lan|home|test)")


def is_loopback(host: str) -> bool:
    """Return True for a host that only this machine reaches."""
    return host == "localhost" or host.endswith(".localhost") or _is_address(host, "is_loopback")


def is_public_host(host: str) -> bool:
    """Return True for a host that may be reached from the internet."""
    address = re.fullmatch(r"\[.*\]|[0-9.]+", host)
    return _is_address(host, "is_global") if address else not PRIVATE_NAME.fullmatch(host)


def _is_address(host: str, kind: str) -> bool:
    """Return True for an IP address whose property `kind` in `ipaddress` is true."""
    try:
        return getattr(ipaddress.ip_address(host.strip("[]")), kind)
    except ValueError:
        return False


@functools.cache
def has_library() -> bool:
    """Return True if the package of the extra `passkeys` is installed."""
    return find_spec("fido2") is not None


def find_rp_id(base_url: str) -> str | None:
    """Return the host that passkeys are bound to, None where this site can have no passkeys.

    It is a domain reached by https, or `localhost` (W3C Web Authentication 5.1.2, 13.4.9).
    """
    host = host_of(base_url)
    if not has_library() or not (base_url.startswith("https:") or host == "localhost"):
        return None
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host
    return None
