"""PostgreSQL beside flat files, and with more and more players.

`python -m benchmarks --storage postgresql` measures both backends in turn, with 1,000 players, and
then PostgreSQL with 100,000 players, and with `--large` with 1,000,000.
"""

import contextlib
import functools
import tempfile
import time

from benchmarks.database import create_database, fill_database, running_database, size_of
from benchmarks.measuring import Name, Track, run_rounds
from benchmarks.population import populate, show_progress
from benchmarks.report import format_table
from benchmarks.servers import LOAD_CORE, serve_identity
from benchmarks.workload import PAGE_OPTIONS, PAGES, Installation, requests_of

# The app's processor time on PostgreSQL, of that on flat files.
TARGETS = {"users/info": 1.5, "whois": 1.6, "token": 1.9}
ALL_CALLS = [*TARGETS, *PAGES]
PLAYERS, MANY, MOST = 1_000, 100_000, 1_000_000
FLAT = 0.15  # more players may add so much to the processor time of a call


class Subject:
    """A server on an installation, measured."""

    def __init__(self, name: str, installation: Installation, running: contextlib.ExitStack):
        self.name = name
        server = running.enter_context(serve_identity(installation.settings | {"PROXIES": "1"}))
        self.tracks = {}
        for call in ALL_CALLS:
            requests, options = requests_of(installation, call), PAGE_OPTIONS.get(call, {})
            track = Track(Name("gunicorn", call, name), server, requests, **options)
            self.tracks[call] = track
        self.size = 0  # of the database, in bytes

    def median(self, call: str, kind: str = "cost") -> float:
        """Return the median over all rounds: "cost" in microseconds, "rate" a second."""
        return self.tracks[call].median(kind)


def compare_backends(rounds: int, seconds: float, large: bool) -> int:
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
        tracks = [subject.tracks[call] for call in ALL_CALLS for subject in subjects]
        for track in tracks:
            track.warm_up()
        run_rounds(tracks, rounds, seconds)
        print_backends(*subjects[:2])
        print_populations(subjects[1:])
        results = [each for track in tracks for each in track.all_results()]
        return sum(each.failures.total() for each in results)


def _database_subject(
    folder: str, url: str, players: int, running: contextlib.ExitStack
) -> Subject:
    database = create_database(url, f"players_{players}")
    started = time.monotonic()
    fill = functools.partial(fill_database, database)
    installation = Installation(f"{folder}/{players}", players, fill, show_progress, database)
    print(f"{players:,} players loaded in {time.monotonic() - started:.0f} s")
    subject = Subject(f"{players:,} players", installation, running)
    subject.size = size_of(database)
    return subject


def print_backends(files: Subject, database: Subject) -> None:
    """Print the cost of each call on both backends, as a Markdown table."""
    header = [f"{PLAYERS:,} players", "flat files, µs", "PostgreSQL, µs", "ratio", "target"]
    lines = []
    for call in ALL_CALLS:
        costs = [files.median(call), database.median(call)]
        rates = f"{files.median(call, 'rate'):,.0f} / {database.median(call, 'rate'):,.0f}"
        cells = [*(f"{cost:,.0f}" for cost in costs), f"{costs[1] / costs[0]:.2f}"]
        lines.append([call, *cells, str(TARGETS.get(call, "")), rates])
    print(f"\n{format_table([*header, 'requests/s'], lines)}")


def print_populations(subjects: list[Subject]) -> None:
    """Print the cost of each call with more players, as a Markdown table."""
    lines = []
    for call in ALL_CALLS:
        costs = [each.median(call) for each in subjects]
        growth = max(costs) / costs[0] - 1
        flat = "yes" if growth <= FLAT else f"NO: +{growth:.0%}"
        lines.append([call, *(f"{cost:,.0f}" for cost in costs), flat])
    sizes = [f"{each.size / 2**20:,.0f} MiB" for each in subjects]
    lines.append(["size of the database", *sizes, ""])
    print(f"\n{format_table(['µs', *(each.name for each in subjects), 'flat'], lines)}")
