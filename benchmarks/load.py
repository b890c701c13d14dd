"""A load generator: keep-alive connections to one server, each with one request under way.

It runs beside the server, so it must cost little: requests are ready-made bytes, and of an answer
only the status and the length are read. What it used of its core is part of the result.
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
PATIENCE = 10  # seconds for the answers under way when the time is over
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)


@dataclass(slots=True)
class Result:
    """One measurement."""

    answers: int
    rate: float  # answers a second
    p50: float  # milliseconds from a request's first byte to its answer's last
    p99: float
    busy: float  # how much of one core the generator used, 0 to 1
    failures: Counter[str]  # every answer that is not a 200, by its status line
    cost: float = 0.0  # microseconds of the server's processor time an answer; the caller sets it


class Load:
    """Sends `requests` to a port of this machine until they or the seconds run out."""

    def __init__(self, port: int, requests: Iterable[bytes], seconds: float) -> None:
        self.port = port
        self.requests = iter(requests)
        self.seconds = seconds
        self.latencies: list[float] = []  # seconds
        self.failures: Counter[str] = Counter()

    def next_request(self) -> bytes | None:
        """What a connection sends next; None when it shall close."""
        if time.perf_counter() >= self.deadline:
            return None
        return next(self.requests, None)

    async def run(self) -> Result:
        """Measure."""
        loop = asyncio.get_running_loop()
        busy = time.process_time()
        started = time.perf_counter()
        self.deadline = started + self.seconds
        async with asyncio.timeout(self.seconds + PATIENCE):
            connections = [
                (await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port))[1]
                for _ in range(CONNECTIONS)
            ]
            await asyncio.gather(*(connection.closed for connection in connections))
        elapsed = time.perf_counter() - started
        return Result(
            answers=len(self.latencies),
            rate=len(self.latencies) / elapsed,
            p50=statistics.median(self.latencies) * 1000,
            p99=statistics.quantiles(self.latencies, n=100)[98] * 1000,
            busy=(time.process_time() - busy) / elapsed,
            failures=self.failures,
        )


class Connection(asyncio.Protocol):
    """One connection: the next request goes out when the answer to the last is whole."""

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
        if not head.startswith(b"HTTP/1.1 200 "):
            self.load.failures[head.partition(b"\r\n")[0].decode("latin-1")] += 1
        self.received = b""
        self.send()

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiting:
            self.load.failures["closed without an answer"] += 1
        self.closed.set_result(None)


def measure(port: int, requests: Iterable[bytes], seconds: float) -> Result:
    """Put load on a port of this machine for so many seconds, or while requests last."""
    return asyncio.run(Load(port, requests, seconds).run())


def send_once(port: int, requests: Iterable[bytes], count: int) -> Result:
    """Send so many of the requests, however long it takes (a minute at most)."""
    return measure(port, itertools.islice(requests, count), 60)
