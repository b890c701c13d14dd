"""Servers measured in turn, round by round, so that the drift of a machine favors none of them."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.load import CONNECTIONS, Load, Result
from benchmarks.population import show_progress
from benchmarks.servers import Server

FIRST_CALLS = 1000  # of most kinds, before anything is measured
TIME_LIMIT = 30  # seconds for a measurement


class Name(NamedTuple):
    """What a track measures."""

    server: str  # "gunicorn" or "granian"
    call: str
    players: str = ""  # of the installation; "" for a baseline


@dataclass
class Track:
    """One kind of request to one server, and its results, one for each round."""

    name: Name
    server: Server
    make_requests: Callable[[int], list[bytes]]  # returns this number of them
    connections: int = CONNECTIONS
    least_calls: int = 200  # in a round
    first_calls: int = FIRST_CALLS
    first: list[Result] = field(default_factory=list)  # before the rounds
    results: list[Result] = field(default_factory=list)

    def _send(self, count: int) -> Result:
        load = Load(self.server.port, self.make_requests(count), TIME_LIMIT, self.connections)
        before = self.server.worker_time()
        result = load.run()
        result.cost = (self.server.worker_time() - before) / result.responses * 1_000_000
        return result

    def warm_up(self, times: int = 1) -> None:
        """Send the first requests, once or several times. The results do not count."""
        self.first += [self._send(self.first_calls) for _ in range(times)]

    def measure(self, seconds: float) -> None:
        """Note the result of as many requests as take about this time."""
        last = self.all_results()[-1]
        self.results.append(self._send(max(self.least_calls, int(last.rate * seconds))))

    def all_results(self) -> list[Result]:
        """Return all results, with that of the warm-up."""
        return [*self.first, *self.results]

    def median(self, kind: str) -> float:
        """Return the median over all rounds of an attribute of `Result`."""
        return statistics.median(getattr(each, kind) for each in self.results)

    def speed(self, other: "Track", kind: str = "cost") -> list[float]:
        """Return how many times as fast as another track this one is, in each round.

        `kind` is "cost", of processor time, or "rate", of requests a second.
        """
        pairs = zip(self.results, other.results, strict=True)
        if kind == "cost":
            return [its.cost / own.cost for own, its in pairs]
        return [own.rate / its.rate for own, its in pairs]


def run_rounds(tracks: list[Track], rounds: int, seconds: float) -> None:
    """Measure each track once in each round, in reverse order in every other round."""
    for number in range(rounds):
        show_progress(f"round {number + 1} of {rounds}")
        for track in tracks[:: (-1) ** number]:
            track.measure(seconds)
    show_progress("")
