"""A load generator: keep-alive connections to one server, each with one request at a time.

It runs on the server's machine, so it must cost little: requests are prepared bytes, only the
status and the length of a response are read, and an epoll loop costs a third of asyncio. The result
has the share of a core that it used: near 1 the server could have answered more.
"""

import itertools
import re
import select
import socket
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

CONNECTIONS = 16
GRACE_TIME = 10  # seconds without any response after which a measurement fails
MOST_BYTES = 65536  # of a response, read at once
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
SUCCESSES = b"HTTP/1.1 200 ", b"HTTP/1.1 303 "  # 303: a form was accepted
SATURATED = 0.9  # of its core: a generator that is busier measures itself


@dataclass(slots=True)
class Result:
    """The result of one measurement."""

    responses: int
    rate: float  # responses per second
    p50: float  # milliseconds from a request's first byte to its response's last
    p99: float
    busy: float  # share of one core that the generator used, 0 to 1
    failures: Counter[str]  # responses that were no success, by status line
    cost: float = 0.0  # microseconds of the server's processor time per response; set by the caller


class Load:
    """A load of `requests` on a port of this machine, until they or the seconds run out."""

    def __init__(
        self, port: int, requests: Iterable[bytes], seconds: float, connections: int = CONNECTIONS
    ) -> None:
        self.address = ("127.0.0.1", port)
        self.count = connections
        self.requests = iter(requests)
        self.seconds = seconds
        self.latencies: list[float] = []  # seconds
        self.failures: Counter[str] = Counter()
        self.connections: dict[int, Connection] = {}  # the open ones, by descriptor

    def run(self) -> Result:
        """Send the requests. Return the measurement. Raises TimeoutError if the server hangs."""
        busy, started = time.process_time(), time.perf_counter()
        self.deadline = started + self.seconds
        with select.epoll() as epoll:
            for _ in range(self.count):
                connection = Connection(self)
                self.connections[connection.fileno] = connection
                epoll.register(connection.fileno, select.EPOLLIN)
                connection.send(time.perf_counter())
            while self.connections:
                readable = epoll.poll(GRACE_TIME)
                if not readable:
                    raise TimeoutError(f"no response within {GRACE_TIME} s")
                for descriptor, _ in readable:
                    self.connections[descriptor].receive()
        elapsed = time.perf_counter() - started
        return Result(
            responses=len(self.latencies),
            rate=len(self.latencies) / elapsed,
            p50=statistics.median(self.latencies) * 1000,
            p99=statistics.quantiles(self.latencies, n=100)[98] * 1000,
            busy=(time.process_time() - busy) / elapsed,
            failures=self.failures,
        )


class Connection:
    """A connection that sends its next request when the last response is complete."""

    __slots__ = ("fileno", "load", "received", "sent", "socket")

    def __init__(self, load: Load) -> None:
        self.load = load
        self.socket = socket.create_connection(load.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fileno = self.socket.fileno()
        self.received = b""

    def send(self, now: float) -> None:
        """Send the next request; close the connection if there is none or the time is over."""
        request = next(self.load.requests, None) if now < self.load.deadline else None
        if request is None:
            self.close()
            return
        self.sent = now
        self.socket.sendall(request)

    def receive(self) -> None:
        """Read what has arrived; after a complete response send the next request."""
        try:
            data = self.socket.recv(MOST_BYTES)
        except ConnectionError:
            data = b""
        now = time.perf_counter()
        if not data:
            self.load.failures["closed without a response"] += 1
            self.close()
            return
        data = self.received + data
        end = data.find(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(data, 0, end + 2) if end > 0 else None
        if length is None or len(data) < end + 4 + int(length[1]):
            self.received = data
            return
        self.received = b""
        self.load.latencies.append(now - self.sent)
        if not data.startswith(SUCCESSES):
            self.load.failures[data.partition(b"\r\n")[0].decode("latin-1")] += 1
        self.send(now)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
        del self.load.connections[self.fileno]


def measure(
    port: int, requests: Iterable[bytes], seconds: float, connections: int = CONNECTIONS
) -> Result:
    """Put load on a port of this machine until the requests or the seconds run out."""
    return Load(port, requests, seconds, connections).run()


def send_once(port: int, requests: Iterable[bytes], count: int) -> Result:
    """Send the first `count` of the requests, within a minute."""
    return measure(port, itertools.islice(requests, count), 60)
