"""Which hosts only this machine reaches, which are public, and which can have passkeys."""

import contextlib
import ipaddress
import re

from identity.site.settings import host_of

# RFC 6762, 6761, 8375, and suffixes that home routers use. A name without a dot is private, too.
PRIVATE_NAME = re.compile(r"[^.]+|.*\.(local|localhost|internal|home\.arpa|lan|home|test)")


def is_loopback(host: str) -> bool:
    """Return True for a host that only this machine reaches."""
    address = find_address(host)
    return address.is_loopback if address else host.endswith(".localhost") or host == "localhost"


def is_public_host(host: str) -> bool:
    """Return True for a host that may be reached from the internet."""
    if not re.fullmatch(r"\[.*\]|[0-9.]+", host):
        return not PRIVATE_NAME.fullmatch(host)
    address = find_address(host)
    return address is not None and address.is_global


def find_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a host is, None for a name; an IPv6 address is in brackets."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]"))
    return None


def find_rp_id(base_url: str) -> str | None:
    """Return the host that passkeys are bound to, None where this site can have no passkeys.

    It is a domain reached by https, or `localhost` (W3C Web Authentication 5.1.2, 13.4.9).
    """
    host = host_of(base_url)
    if not base_url.startswith("https:") and host != "localhost":
        return None
    return None if find_address(host) else host
