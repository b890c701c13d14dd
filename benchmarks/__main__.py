"""Measure the server's API calls against a bare WSGI function and a plain Flask app.

Ratios within one run can be compared between machines; requests per second cannot.
"""

import argparse
import contextlib
import itertools
import os
import platform
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version

from benchmarks.backends import MOST, compare_backends
from benchmarks.load import CONNECTIONS, Result, measure
from benchmarks.population import populate, show_progress
from benchmarks.servers import LOAD_CORE, SERVER_CORE, Server, serve_baseline, serve_identity
from benchmarks.workload import CALLS, Call, Installation

BARE, PLAIN = "bare WSGI", "plain Flask"
BASELINES = {BARE: "benchmarks.baselines:bare", PLAIN: "benchmarks.baselines:plain"}
TARGETS = {"users/info": 0.95, "whois": 0.85, "token": 0.65}  # of the requests/s of plain Flask
MEMORY_TARGET = 60  # MiB
START_TARGET = 1.5  # seconds
SCALE = (100, 100_000)  # users
STARTS = 3  # timed starts of each installation
MEASURES = {"rate": "requests/s", "p50": "p50, ms", "p99": "p99, ms", "cost": "processor, µs"}

Round = dict[str, Result]  # by the name of the measurement


def main() -> None:
    """Run the command. The exit status is 1 if a response was not a 200."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    # Many short rounds: the machine drifts little between two measurements that are compared.
    parser.add_argument(
        "--rounds", type=int, choices=range(1, 100), default=15, metavar="N", help="default: 15"
    )
    # Codes are issued before the measurement, and expire after a minute.
    help_text = "length of each measurement; default: 1"
    parser.add_argument(
        "--seconds", type=int, choices=range(1, 16), default=1, metavar="S", help=help_text
    )
    parser.add_argument("--users", type=int, default=1000, metavar="N", help="default: 1000")
    help_text = f"the API calls with {SCALE[0]:,} and with {SCALE[1]:,} users"
    parser.add_argument("--scale", action="store_true", help=help_text)
    help_text = "PostgreSQL beside flat files, and with more players"
    parser.add_argument("--storage", choices=["files", "postgresql"], help=help_text)
    help_text = f"with --storage postgresql: also {MOST:,} players"
    parser.add_argument("--large", action="store_true", help=help_text)
    options = parser.parse_args()
    print_conditions()
    os.sched_setaffinity(0, LOAD_CORE)
    if options.storage == "postgresql":
        sys.exit(1 if compare_backends(options.rounds, options.large) else 0)
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        contextlib.ExitStack() as running,
    ):
        populations = SCALE if options.scale else (options.users,)
        subjects = [Subject(folder, users, running) for users in populations]
        calls = list(TARGETS if options.scale else CALLS)
        rounds = measure_rounds(subjects, calls, options.rounds, options.seconds, running)
    print_rates(rounds, [f"{call}, {each.name}" for call in calls for each in subjects])
    if options.scale:
        print_scale(rounds, calls, *subjects)
    for subject in subjects:
        print_targets(rounds, subject)
    failures = print_summary([*rounds, *(subject.first_calls for subject in subjects)])
    sys.exit(1 if failures else 0)


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


class Subject:
    """A server on an installation with this number of users; `running` stops it."""

    def __init__(self, folder: str, users: int, running: contextlib.ExitStack) -> None:
        self.name = f"{users:,} users"
        self.installation = Installation(f"{folder}/{users}", users, populate, show_progress)
        self.starts = []  # seconds
        for _ in range(STARTS):
            with serve_identity(self.installation.settings) as server:
                self.starts.append(server.first_response)
        self.server = running.enter_context(serve_identity(self.installation.settings))
        self.first_calls: Round = {call: self.measure(call, 1000, seconds=30) for call in CALLS}
        self.memory = self.server.worker_memory()  # MiB

    def measure(self, call: str, count: int, seconds: float) -> Result:
        """Make `count` of a call, or as many as these seconds allow."""
        calls = CALLS[call](self.installation, count)
        return put_load(self.server, [each.as_bytes() for each in calls], seconds)


def put_load(server: Server, requests: Iterable[bytes], seconds: float) -> Result:
    """Send requests until they or the seconds run out."""
    before = server.worker_time()
    result = measure(server.port, requests, seconds)
    result.cost = (server.worker_time() - before) / result.responses * 1_000_000
    return result


def measure_rounds(
    subjects: list[Subject],
    calls: list[str],
    rounds: int,
    seconds: float,
    running: contextlib.ExitStack,
) -> list[Round]:
    """Measure the baselines and the calls in turn, in each round."""
    baselines = {
        name: running.enter_context(serve_baseline(subjects[0].server, application))
        for name, application in BASELINES.items()
    }
    request = Call("/").as_bytes()
    for server in baselines.values():
        put_load(server, [request] * 1000, seconds=30)  # warm up, as each Subject does
    done = []
    for number in range(rounds):
        show_progress(f"round {number + 1} of {rounds}")
        results = {
            name: put_load(server, itertools.repeat(request), seconds)
            for name, server in baselines.items()
        }
        # No call is 20% faster than plain Flask; if one were, its measurement would only end early.
        count = int(results[PLAIN].rate * seconds * 1.2)
        # In reverse order every other round, so that drift favours no subject.
        for call, subject in itertools.product(calls, subjects[:: (-1) ** number]):
            results[f"{call}, {subject.name}"] = subject.measure(call, count, seconds)
        done.append(results)
    show_progress("")
    return done


# ---------------------------------------------------------------------------------------------
# Printing
# ---------------------------------------------------------------------------------------------


def print_conditions() -> None:
    """Print the machine, the versions and the method."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    processor = models[0] if models else platform.machine()
    print(f"{processor}, {os.cpu_count()} cores, Linux {platform.release()}")
    packages = ", ".join(f"{name} {version(name)}" for name in ("gunicorn", "flask", "werkzeug"))
    print(f"Python {platform.python_version()}, {packages}")
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"The machine is busy (load {busy:.1f}): rely on processor times, not on requests/s.")
    core = "another" if SERVER_CORE != LOAD_CORE else "the same"
    print(f"""
Each server is gunicorn with one worker on one core, with the arguments of `identity-server serve`;
each writes its access line for every request, to /dev/null. The load comes from {core} core:
{CONNECTIONS} keep-alive connections, each with one request at a time. "{PLAIN}" is a default Flask
app with one route and no secret key; it and "{BARE}" respond with 200 bytes of text.
""")


def ratios(rounds: list[Round], kind: str, name: str, to: str) -> list[float]:
    """Return the ratio of `name` to `to` in each round."""
    return [getattr(each[name], kind) / getattr(each[to], kind) for each in rounds]


def format_value(values: list[float]) -> str:
    """Format the median, the minimum and the maximum."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def print_rates(rounds: list[Round], names: list[str]) -> None:
    """Print medians, each with its ratios to the two baselines."""
    print(f"{'medians':51}   {'of ' + BARE:22}of {PLAIN}")
    for name in (*BASELINES, *names):
        for kind, unit in MEASURES.items():
            value = statistics.median(getattr(each[name], kind) for each in rounds)
            number = f"{value:,.0f}" if kind == "rate" else f"{value:.2f}"
            columns = [format_value(ratios(rounds, kind, name, each)) for each in BASELINES]
            label = name if kind == "rate" else ""
            print(f"{label:28}{unit:15}{number:>8}   {columns[0]:22}{columns[1]}")
    print()


def print_scale(rounds: list[Round], calls: list[str], few: Subject, many: Subject) -> None:
    """Print what a call costs with many users, as ratios of the cost with few."""
    print(f"{many.name}, as ratios of {few.name}")
    for call, (kind, unit) in itertools.product(calls, MEASURES.items()):
        compared = ratios(rounds, kind, f"{call}, {many.name}", f"{call}, {few.name}")
        print(f"{call if kind == 'rate' else '':28}{unit:26}{format_value(compared)}")
    print()


def print_targets(rounds: list[Round], subject: Subject) -> None:
    """Print the targets, and whether they were reached."""
    print(f"{subject.name}: targets")
    for call, least in TARGETS.items():
        name = f"{call}, {subject.name}"
        by_rate = ratios(rounds, "rate", name, PLAIN)
        # On a quiet machine the two ratios are equal.
        by_cost = ratios(rounds, "cost", PLAIN, name)
        for way, reached in (("requests/s", by_rate), ("processor time", by_cost)):
            met = statistics.median(reached) >= least
            print_line(f"{call} of {PLAIN}, by {way}", format_value(reached), f"{least}", met)
    met = subject.memory < MEMORY_TARGET
    label = "worker after 1,000 of each call"
    print_line(label, f"{subject.memory:.1f} MiB", f"under {MEMORY_TARGET}", met)
    met = statistics.median(subject.starts) <= START_TARGET
    label = "first response after `serve`, seconds"
    print_line(label, format_value(subject.starts), f"{START_TARGET}", met)
    print()


def print_line(label: str, value: str, target: str, met: bool) -> None:
    """Print one target."""
    print(f"{label:45}{value:24}{target:10}{'reached' if met else 'MISSED'}")


def print_summary(rounds: list[Round]) -> int:
    """Print totals of the run. Return the number of responses that were not a 200."""
    results = [result for each in rounds for result in each.values()]
    busiest = max(result.busy for result in results)
    print(f"{sum(result.responses for result in results):,} responses.", end=" ")
    print(f"The load generator used up to {busiest:.0%} of its core.")
    failures = sum((result.failures for result in results), Counter())
    for status, count in failures.items():
        print(f"NOT 200: {count:,} times {status}")
    return failures.total()


if __name__ == "__main__":
    main()
