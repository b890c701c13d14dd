"""The slowest answers: how long a public profile takes, alone and beside sign-ins.

One percentile of a short measurement says little, so the latencies of all rounds are pooled. Those
of the sign-ins, each of which hashes a password, are counted apart.
"""

import contextlib
import functools
import itertools
import random
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.backends import PLAYERS
from benchmarks.database import create_database, fill_database, running_database
from benchmarks.load import Apart, Result, percentiles
from benchmarks.measuring import FIRST_CALLS, Name, Track, run_rounds
from benchmarks.population import populate, show_progress
from benchmarks.report import SERVERS, format_table, marked_rate
from benchmarks.servers import SERVER_CORE, Server, serve_identity
from benchmarks.workload import Installation, requests_of

CALL = "users/info"
CONNECTIONS = (16, 256)
ONE_IN = 100  # of the mixed requests is a sign-in
LONGER, FEWER = 4, 3  # the measurements than others: an accepted sign-in takes seconds
ACCEPTED, REFUSED = "HTTP/1.1 303 ", "HTTP/1.1 503 "  # sign-ins; Busy refuses those without a place
FILES, POSTGRESQL = "flat files", "PostgreSQL"

MakeRequests = Callable[[int], list[bytes]]


@dataclass
class Tail:
    """The latencies of a server under one load, of all rounds."""

    server: str
    storage: str
    connections: int
    rate: float  # calls a second, the median of the rounds
    p50: float  # milliseconds
    p99: float
    p999: float
    busy: float  # share of a core that the load generator used, at most
    sign_ins: int = 0  # beside the calls
    refused: int = 0  # of the sign-ins
    wait: float = 0.0  # seconds of an accepted sign-in, the median


def mix(make_calls: MakeRequests, make_sign_ins: MakeRequests, count: int) -> list[bytes]:
    """Return requests in random order, one in ONE_IN of them a sign-in, which is counted apart."""
    sign_ins = [Apart(each) for each in make_sign_ins(count // ONE_IN)]
    requests = make_calls(count - len(sign_ins)) + sign_ins
    random.shuffle(requests)
    return requests


class Tails:
    """The measured servers; `running` stops those that are started here."""

    def __init__(
        self, running: contextlib.ExitStack, players: int = PLAYERS, first_calls: int = FIRST_CALLS
    ) -> None:
        self.running, self.players, self.first_calls = running, players, first_calls
        self.tracks: list[Track] = []

    def add(
        self,
        name: str,
        storage: str,
        server: Server,
        make_calls: MakeRequests,
        make_sign_ins: MakeRequests,
    ) -> None:
        """Add a running server."""
        mixed = functools.partial(mix, make_calls, make_sign_ins)
        for connections, requests in itertools.product(CONNECTIONS, (make_calls, mixed)):
            track = Track(Name(name, CALL, storage), server, requests, connections)
            track.first_calls = self.first_calls
            track.warm_up()
            self.tracks.append(track)

    def add_ourselves(self, storage: str) -> None:
        """Start both servers on an installation of their own; a database shares their core."""
        fill, url = populate, "files"
        if storage == POSTGRESQL:
            database = self.running.enter_context(running_database(SERVER_CORE))
            url = create_database(database, "tails")
            fill = functools.partial(fill_database, url)
        folder = self.running.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-"))
        installation = Installation(folder, self.players, fill, show_progress, url)
        calls, sign_ins = (requests_of(installation, each) for each in (CALL, "sign-in"))
        settings = installation.settings | {"PROXIES": "1"}  # each sign-in has its own address
        for name in SERVERS:
            server = self.running.enter_context(serve_identity(settings, server=name))
            self.add(name, storage, server, calls, sign_ins)

    def measure(self, rounds: int, seconds: float) -> None:
        """Measure all servers in turn."""
        run_rounds(self.tracks, -(-rounds // FEWER), seconds * LONGER)

    def rows(self) -> list[Tail]:
        """Return the results."""
        return [summarize_tail(each) for each in self.tracks]

    def results(self) -> list[Result]:
        """Return all results."""
        return [each for track in self.tracks for each in track.all_results()]

    def failures(self) -> Counter[str]:
        """Return the responses that were no success, by status line, without refused sign-ins."""
        apart = [status for each in self.results() for status, _ in each.apart]
        unexpected = Counter(each for each in apart if not each.startswith((ACCEPTED, REFUSED)))
        return sum((each.failures for each in self.results()), unexpected)


def measure_tails(
    storages: list[str],
    rounds: int,
    seconds: float,
    players: int = PLAYERS,
    first_calls: int = FIRST_CALLS,
) -> Tails:
    """Measure both servers on each of the storages."""
    with contextlib.ExitStack() as running:
        tails = Tails(running, players, first_calls)
        for each in storages:
            tails.add_ourselves(each)
        tails.measure(rounds, seconds)
    return tails


def summarize_tail(track: Track) -> Tail:
    """Return the results of a track, its latencies and sign-ins of all rounds pooled."""
    latencies = [latency for each in track.results for latency in each.latencies]
    apart = [each for result in track.results for each in result.apart]
    waits = [latency / 1000 for status, latency in apart if status.startswith(ACCEPTED)]
    values = (track.median("rate"), *percentiles(latencies), max(r.busy for r in track.results))
    return Tail(
        track.name.server,
        track.name.players,
        track.connections,
        *(round(each, 3) for each in values),
        sign_ins=len(apart),
        refused=sum(status.startswith(REFUSED) for status, _ in apart),
        wait=round(statistics.median(waits), 2) if waits else 0.0,
    )


def tails_table(rows: list[Tail]) -> str:
    """Return the table of the slowest answers."""
    header = ["slowest answers", "storage", "connections", "calls/s"]
    header += ["p50, ms", "p99, ms", "p99.9, ms", "sign-ins", "refused", "accepted, s"]
    lines = []
    for row in rows:
        cells = [marked_rate(row), *(f"{each:,.2f}" for each in (row.p50, row.p99, row.p999))]
        if row.sign_ins:
            cells += [f"{row.sign_ins:,}", f"{row.refused / row.sign_ins:.0%}", f"{row.wait:.1f}"]
        else:
            cells += ["-"] * 3
        lines.append([row.server, row.storage, str(row.connections), *cells])
    return format_table(header, lines, left=2)
