"""A load generator: keep-alive connections to one server, each with one request at a time.

It runs on the server's machine, so it must cost little: requests are prepared bytes, only the
status and the length of a response are read, and an epoll loop costs a third of asyncio. The result
has the share of a core that it used: near 1 the server could have answered more.

A connection sends its next request when it has its answer. So a slow server gets fewer requests,
and with more connections than it has threads a latency is mostly the time of waiting in line.
"""

import re
import select
import socket
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

CONNECTIONS = 16
OPENING = b"GET /api/users/info?id=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"  # of others a 404
GRACE_TIME = 10  # seconds without any response after which a measurement fails
MOST_BYTES = 65536  # of a response, read at once
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
SUCCESSES = b"HTTP/1.1 200 ", b"HTTP/1.1 303 "  # 303: a form was accepted
SATURATED = 0.9  # of its core: a generator that is busier measures itself


class Apart(bytes):
    """A request that is counted apart from the others, with whatever status."""


@dataclass(slots=True)
class Result:
    """The result of one measurement. Only `apart` is about requests that are counted apart."""

    latencies: list[float]  # milliseconds from a request's first byte to its response's last
    rate: float  # responses per second
    p50: float  # milliseconds
    p99: float
    busy: float  # share of one core that the generator used, 0 to 1
    failures: Counter[str]  # responses that were no success, by status line
    apart: list[tuple[str, float]]  # status line and latency
    cost: float = 0.0  # microseconds of the server's processor time per response; set by the caller

    @property
    def responses(self) -> int:
        """Return the number of responses."""
        return len(self.latencies)


class Load:
    """A load of `requests` on a port of this machine, until they or the seconds run out.

    The connections are opened here, before anything is measured, each with a response: node accepts
    one at a time between the requests of all others.
    """

    def __init__(
        self, port: int, requests: Iterable[bytes], seconds: float, connections: int = CONNECTIONS
    ) -> None:
        self.address = ("127.0.0.1", port)
        self.requests = iter(requests)
        self.seconds = seconds
        self.latencies: list[float] = []  # milliseconds
        self.failures: Counter[str] = Counter()
        self.apart: list[tuple[str, float]] = []
        opened = [Connection(self) for _ in range(connections)]
        self.connections = {each.fileno: each for each in opened}  # the open ones, by descriptor
        self.last = 0.0  # time of the last response that is in `latencies`

    def run(self) -> Result:
        """Send the requests. Return the measurement. Raises TimeoutError if the server hangs."""
        with select.epoll() as epoll:
            for descriptor in self.connections:
                epoll.register(descriptor, select.EPOLLIN)
            busy, started = time.process_time(), time.perf_counter()
            self.deadline = started + self.seconds
            for connection in list(self.connections.values()):
                connection.send(time.perf_counter())
            while self.connections:
                readable = epoll.poll(GRACE_TIME)
                if not readable:
                    raise TimeoutError(f"no response within {GRACE_TIME} s")
                for descriptor, _ in readable:
                    self.connections[descriptor].receive()
        elapsed = self.last - started
        p50, p99, _ = percentiles(self.latencies)
        return Result(
            latencies=self.latencies,
            rate=len(self.latencies) / elapsed,
            p50=p50,
            p99=p99,
            busy=(time.process_time() - busy) / elapsed,
            failures=self.failures,
            apart=self.apart,
        )

    def note(self, request: bytes, latency: float, response: bytes) -> None:
        """Note a response and its latency in milliseconds."""
        status = response.partition(b"\r\n")[0].decode("latin-1")
        if isinstance(request, Apart):
            self.apart.append((status, latency))
            return
        self.last = time.perf_counter()
        self.latencies.append(latency)
        if not response.startswith(SUCCESSES):
            self.failures[status] += 1


class Connection:
    """A connection that sends its next request when the last response is complete."""

    __slots__ = ("fileno", "load", "received", "request", "sent", "socket")

    def __init__(self, load: Load) -> None:
        self.load = load
        self.socket = socket.create_connection(load.address, GRACE_TIME)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fileno = self.socket.fileno()
        self.received = b""
        self.socket.sendall(OPENING)
        while self.read() is None:
            pass
        self.socket.settimeout(None)  # epoll waits: a timeout costs a system call for each read

    def send(self, now: float) -> None:
        """Send the next request; close the connection if there is none or the time is over."""
        request = next(self.load.requests, None) if now < self.load.deadline else None
        if request is None:
            self.close()
            return
        self.request, self.sent = request, now
        self.socket.sendall(request)

    def receive(self) -> None:
        """Read what has arrived; after a complete response send the next request."""
        response = self.read()
        now = time.perf_counter()
        if response is None:
            return
        if not response:
            self.load.failures["closed without a response"] += 1
            self.close()
            return
        self.load.note(self.request, (now - self.sent) * 1000, response)
        self.send(now)

    def read(self) -> bytes | None:
        """Read what has arrived. Return a complete response, or b"" if the connection has ended."""
        try:
            data = self.socket.recv(MOST_BYTES)
        except ConnectionError:
            return b""
        if not data:
            return data
        data = self.received + data
        end = data.find(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(data, 0, end + 2) if end > 0 else None
        if length is None or len(data) < end + 4 + int(length[1]):
            self.received = data
            return None
        self.received = b""
        return data

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
        del self.load.connections[self.fileno]


def percentiles(latencies: Iterable[float]) -> tuple[float, float, float]:
    """Return the 50th, the 99th and the 99.9th percentile of at least two latencies."""
    points = statistics.quantiles(latencies, n=1000, method="inclusive")
    return points[499], points[989], points[998]
