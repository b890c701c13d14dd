"""A load generator: keep-alive connections to one server, each with one request at a time.

It runs on the server's machine, so it must cost little: requests are prepared bytes, and only the
status and the length of a response are read. The result has the share of a core that it used.
"""

import asyncio
import itertools
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

CONNECTIONS = 16
GRACE_TIME = 10  # seconds for the last responses when the time is over
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)


@dataclass(slots=True)
class Result:
    """The result of one measurement."""

    responses: int
    rate: float  # responses per second
    p50: float  # milliseconds from a request's first byte to its response's last
    p99: float
    busy: float  # share of one core that the generator used, 0 to 1
    failures: Counter[str]  # responses other than 200, by status line
    cost: float = 0.0  # microseconds of the server's processor time per response; set by the caller


class Load:
    """A load of `requests` on a port of this machine, until they or the seconds run out."""

    def __init__(
        self, port: int, requests: Iterable[bytes], seconds: float, connections: int = CONNECTIONS
    ) -> None:
        self.port = port
        self.connections = connections
        self.requests = iter(requests)
        self.seconds = seconds
        self.latencies: list[float] = []  # seconds
        self.failures: Counter[str] = Counter()

    def next_request(self) -> bytes | None:
        """Return the next request of a connection, or None to close it."""
        if time.perf_counter() >= self.deadline:
            return None
        return next(self.requests, None)

    async def run(self) -> Result:
        """Send the requests. Return the measurement."""
        loop = asyncio.get_running_loop()
        busy = time.process_time()
        started = time.perf_counter()
        self.deadline = started + self.seconds
        async with asyncio.timeout(self.seconds + GRACE_TIME):
            connections = [
                (await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port))[1]
                for _ in range(self.connections)
            ]
            await asyncio.gather(*(connection.closed for connection in connections))
        elapsed = time.perf_counter() - started
        return Result(
            responses=len(self.latencies),
            rate=len(self.latencies) / elapsed,
            p50=statistics.median(self.latencies) * 1000,
            p99=statistics.quantiles(self.latencies, n=100)[98] * 1000,
            busy=(time.process_time() - busy) / elapsed,
            failures=self.failures,
        )


class Connection(asyncio.Protocol):
    """A connection that sends its next request when the last response is complete."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.received = b""
        self.waiting = False
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        request = self.load.next_request()
        self.waiting = request is not None
        if request is None:
            self.transport.close()
            return
        self.sent = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(head + b"\r\n") if end else None
        if length is None or len(body) < int(length[1]):
            return
        self.load.latencies.append(time.perf_counter() - self.sent)
        if not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 303 ")):  # a form was accepted
            self.load.failures[head.partition(b"\r\n")[0].decode("latin-1")] += 1
        self.received = b""
        self.send()

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiting:
            self.load.failures["closed without a response"] += 1
        self.closed.set_result(None)


def measure(
    port: int, requests: Iterable[bytes], seconds: float, connections: int = CONNECTIONS
) -> Result:
    """Put load on a port of this machine until the requests or the seconds run out."""
    return asyncio.run(Load(port, requests, seconds, connections).run())


def send_once(port: int, requests: Iterable[bytes], count: int) -> Result:
    """Send the first `count` of the requests, within a minute."""
    return measure(port, itertools.islice(requests, count), 60)
