"""A connection to a host that may have several addresses, some of which never answer."""

import socket
import time


def connect(addresses: list[tuple[int, tuple]], ends: float) -> socket.socket:
    """Connect to the first address that answers in its share of the time left. Raises OSError."""
    problem = OSError("no address")
    for left, (family, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        connected = socket.socket(family, socket.SOCK_STREAM)
        try:
            connected.settimeout(max((ends - time.monotonic()) / left, 0.01))
            connected.connect(address)
        except OSError as error:
            connected.close()
            problem = error
        else:
            return connected
    raise problem
