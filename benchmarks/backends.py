"""PostgreSQL beside flat files, and with more and more players.

`python -m benchmarks --storage postgresql` measures both backends in turn, with 1,000 players, and
then PostgreSQL with 100,000 players, and with `--large` with 1,000,000.
"""

import contextlib
import itertools
import statistics
import tempfile
import time

from benchmarks.database import create_database, populate_database, running_database, size_of
from benchmarks.load import Result, measure
from benchmarks.population import populate, show_progress
from benchmarks.servers import LOAD_CORE, serve_identity
from benchmarks.workload import CALLS, PAGES, Installation

# The app's processor time on PostgreSQL, of that on flat files.
TARGETS = {"users/info": 1.5, "whois": 1.6, "token": 1.9}
PLAYERS, MANY, MOST = 1_000, 100_000, 1_000_000
FLAT = 0.15  # more players may add so much to the processor time of a call
CALLS_A_ROUND = {"sign-in": 6, "save": 200, "home page": 200}
COUNT = 1000  # of the other calls in a round
SECONDS = 30  # at most, for one measurement
CONNECTIONS = {"sign-in": 2}  # a worker hashes two passwords at a time


class Subject:
    """A server on an installation, measured."""

    def __init__(self, name: str, installation: Installation, running: contextlib.ExitStack):
        self.name, self.installation = name, installation
        settings = installation.settings | {"PROXIES": "1"}
        self.server = running.enter_context(serve_identity(settings))
        self.results: dict[str, list[Result]] = {call: [] for call in all_calls()}
        self.size = 0  # of the database, in bytes

    def measure(self, call: str, count: int | None = None) -> None:
        """Make calls of a kind, and note the result."""
        make = all_calls()[call]
        requests = make(self.installation, count or CALLS_A_ROUND.get(call, COUNT))
        before = self.server.worker_time()
        content = [each.as_bytes() for each in requests]
        result = measure(self.server.port, content, SECONDS, CONNECTIONS.get(call, 16))
        result.cost = (self.server.worker_time() - before) / result.responses * 1_000_000
        self.results[call].append(result)

    def median(self, call: str, kind: str = "cost") -> float:
        """Return the median over all rounds: "cost" in microseconds, "rate" a second."""
        return statistics.median(getattr(each, kind) for each in self.results[call])


def all_calls() -> dict:
    """Return the functions that make calls of each kind, by its name."""
    return {name: CALLS[name] for name in TARGETS} | PAGES


def compare_backends(rounds: int, large: bool) -> int:
    """Measure and print everything; return the number of responses that were no success."""
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        contextlib.ExitStack() as running,
    ):
        url = running.enter_context(running_database(LOAD_CORE))
        files = Installation(f"{folder}/files", PLAYERS, populate, show_progress)
        subjects = [Subject("flat files", files, running)]
        for players in (PLAYERS, MANY, MOST) if large else (PLAYERS, MANY):
            subjects.append(_database_subject(folder, url, players, running))
        for subject, call in itertools.product(subjects, all_calls()):
            subject.measure(call)  # warm up
            subject.results[call].clear()
        for number in range(rounds):
            show_progress(f"round {number + 1} of {rounds}")
            # In reverse order every other round, so that drift favours no subject.
            for call, subject in itertools.product(all_calls(), subjects[:: (-1) ** number]):
                subject.measure(call)
        show_progress("")
        print_backends(*subjects[:2])
        print_populations(subjects[1:])
        results = [
            each for subject in subjects for call in subject.results.values() for each in call
        ]
        return sum(each.failures.total() for each in results)


def _database_subject(
    folder: str, url: str, players: int, running: contextlib.ExitStack
) -> Subject:
    database = create_database(url, f"players_{players}")
    started = time.monotonic()

    def fill(folder, users, pictures=True, progress=show_progress):
        return populate_database(database, users, progress)

    installation = Installation(f"{folder}/{players}", players, fill, show_progress, database)
    print(f"{players:,} players loaded in {time.monotonic() - started:.0f} s")
    subject = Subject(f"{players:,} players", installation, running)
    subject.size = size_of(database)
    return subject


def print_backends(files: Subject, database: Subject) -> None:
    """Print the cost of each call on both backends, as a Markdown table."""
    print(
        f"\n| {PLAYERS:,} players | flat files, µs | PostgreSQL, µs | ratio | target | requests/s |"
    )
    print("|---|---|---|---|---|---|")
    for call in all_calls():
        ratio = database.median(call) / files.median(call)
        target = f"{TARGETS[call]}" if call in TARGETS else ""
        rates = f"{files.median(call, 'rate'):,.0f} / {database.median(call, 'rate'):,.0f}"
        costs = f"{files.median(call):,.0f} | {database.median(call):,.0f}"
        print(f"| {call} | {costs} | {ratio:.2f} | {target} | {rates} |")


def print_populations(subjects: list[Subject]) -> None:
    """Print the cost of each call with more players, as a Markdown table."""
    print(f"\n| µs | {' | '.join(each.name for each in subjects)} | flat |")
    print(f"|---|{'---|' * len(subjects)}---|")
    for call in all_calls():
        costs = [each.median(call) for each in subjects]
        growth = max(costs) / costs[0] - 1
        cells = " | ".join(f"{cost:,.0f}" for cost in costs)
        print(f"| {call} | {cells} | {'yes' if growth <= FLAT else f'NO: +{growth:.0%}'} |")
    sizes = " | ".join(f"{each.size / 2**20:,.0f} MiB" for each in subjects)
    print(f"| size of the database | {sizes} | |")
