"""What the server's calls cost, beside the least that gunicorn and that Flask cost.

Ratios within one run can be believed, and compared between machines; requests a second cannot.
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

from benchmarks.load import CONNECTIONS, Result, measure
from benchmarks.population import show_progress
from benchmarks.servers import LOAD_CORE, SERVER_CORE, Server, serve_floor, serve_identity
from benchmarks.workload import CALLS, Call, Installation

BARE, PLAIN = "bare WSGI", "plain Flask"
FLOORS = {BARE: "benchmarks.floors:bare", PLAIN: "benchmarks.floors:plain"}
REACH = {"users/info": 0.95, "whois": 0.85, "token": 0.65}  # of the requests/s of plain Flask
REACH_MEMORY = 60  # MiB
REACH_START = 1.5  # seconds
SCALE = (100, 100_000)  # users
STARTS = 3  # of each installation, timed
MEASURES = {"rate": "requests/s", "p50": "p50, ms", "p99": "p99, ms", "cost": "processor, µs"}

Round = dict[str, Result]  # by what was measured


def main() -> None:
    """The command; exit status 1 where an answer was not a 200."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    # Short and many: what is compared stands close together, however the machine drifts.
    parser.add_argument(
        "--rounds", type=int, choices=range(1, 100), default=15, metavar="N", help="default: 15"
    )
    # Codes are issued before they are measured, and good for a minute.
    help_text = "of each measurement; default: 1"
    parser.add_argument(
        "--seconds", type=int, choices=range(1, 16), default=1, metavar="S", help=help_text
    )
    parser.add_argument("--users", type=int, default=1000, metavar="N", help="default: 1000")
    help_text = f"the API calls with {SCALE[0]:,} and with {SCALE[1]:,} users"
    parser.add_argument("--scale", action="store_true", help=help_text)
    options = parser.parse_args()
    print_conditions()
    os.sched_setaffinity(0, LOAD_CORE)
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        contextlib.ExitStack() as running,
    ):
        populations = SCALE if options.scale else (options.users,)
        subjects = [Subject(folder, users, running) for users in populations]
        calls = list(REACH if options.scale else CALLS)
        rounds = measure_rounds(subjects, calls, options.rounds, options.seconds, running)
    print_rates(rounds, [f"{call}, {each.name}" for call in calls for each in subjects])
    if options.scale:
        print_scale(rounds, calls, *subjects)
    for subject in subjects:
        print_reached(rounds, subject)
    failures = print_conduct([*rounds, *(subject.first_calls for subject in subjects)])
    sys.exit(1 if failures else 0)


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


class Subject:
    """A server on an installation of so many users; `running` ends it."""

    def __init__(self, folder: str, users: int, running: contextlib.ExitStack) -> None:
        self.name = f"{users:,} users"
        self.installation = Installation(f"{folder}/{users}", users, show_progress)
        self.starts = []  # seconds
        for _ in range(STARTS):
            with serve_identity(self.installation.settings) as server:
                self.starts.append(server.first_answer)
        self.server = running.enter_context(serve_identity(self.installation.settings))
        self.first_calls: Round = {call: self.measure(call, 1000, seconds=30) for call in CALLS}
        self.memory = self.server.worker_memory()  # MiB

    def measure(self, call: str, count: int, seconds: float) -> Result:
        """Make so many of a call, or as many as these seconds allow."""
        calls = CALLS[call](self.installation, count)
        return put_load(self.server, [each.as_bytes() for each in calls], seconds)


def put_load(server: Server, requests: Iterable[bytes], seconds: float) -> Result:
    """Send requests for so long, or while they last."""
    before = server.worker_time()
    result = measure(server.port, requests, seconds)
    result.cost = (server.worker_time() - before) / result.answers * 1_000_000
    return result


def measure_rounds(
    subjects: list[Subject],
    calls: list[str],
    rounds: int,
    seconds: float,
    running: contextlib.ExitStack,
) -> list[Round]:
    """The floors and the calls in turn, again and again."""
    floors = {
        name: running.enter_context(serve_floor(subjects[0].server, application))
        for name, application in FLOORS.items()
    }
    request = Call("/").as_bytes()
    for floor in floors.values():
        put_load(floor, [request] * 1000, seconds=30)  # warm, as the subjects are
    done = []
    for number in range(rounds):
        show_progress(f"round {number + 1} of {rounds}")
        results = {
            name: put_load(floor, itertools.repeat(request), seconds)
            for name, floor in floors.items()
        }
        # No call outruns plain Flask by so much; one that did would only end early.
        count = int(results[PLAIN].rate * seconds * 1.2)
        # Every other round the other way about: a drifting machine favours nobody.
        for call, subject in itertools.product(calls, subjects[:: (-1) ** number]):
            results[f"{call}, {subject.name}"] = subject.measure(call, count, seconds)
        done.append(results)
    show_progress("")
    return done


# ---------------------------------------------------------------------------------------------
# Printing
# ---------------------------------------------------------------------------------------------


def print_conditions() -> None:
    """What it runs on, and how."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    processor = models[0] if models else platform.machine()
    print(f"{processor}, {os.cpu_count()} cores, Linux {platform.release()}")
    packages = ", ".join(f"{name} {version(name)}" for name in ("gunicorn", "flask", "werkzeug"))
    print(f"Python {platform.python_version()}, {packages}")
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"The machine is busy (load {busy:.1f}): believe processor times, not requests/s.")
    core = "another" if SERVER_CORE != LOAD_CORE else "the same"
    print(f"""
Each server is gunicorn with one worker on one core, with the arguments of `identity-server serve`;
each writes its access line for every request, to /dev/null. The load comes from {core} core:
{CONNECTIONS} keep-alive connections, each with one request under way. "{PLAIN}" is a default Flask
app with one route and no secret key; it and "{BARE}" answer with 200 bytes of text.
""")


def ratios(rounds: list[Round], kind: str, name: str, to: str) -> list[float]:
    """What `name` measured in each round, to what `to` did."""
    return [getattr(each[name], kind) / getattr(each[to], kind) for each in rounds]


def format_value(values: list[float]) -> str:
    """The median, the least and the most."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def print_rates(rounds: list[Round], names: list[str]) -> None:
    """Medians, each with its ratios to the two floors."""
    print(f"{'medians':51}   {'of ' + BARE:22}of {PLAIN}")
    for name in (*FLOORS, *names):
        for kind, unit in MEASURES.items():
            value = statistics.median(getattr(each[name], kind) for each in rounds)
            number = f"{value:,.0f}" if kind == "rate" else f"{value:.2f}"
            columns = [format_value(ratios(rounds, kind, name, floor)) for floor in FLOORS]
            label = name if kind == "rate" else ""
            print(f"{label:28}{unit:15}{number:>8}   {columns[0]:22}{columns[1]}")
    print()


def print_scale(rounds: list[Round], calls: list[str], few: Subject, many: Subject) -> None:
    """What many users cost more than few."""
    print(f"{many.name}, as ratios of {few.name}")
    for call, (kind, unit) in itertools.product(calls, MEASURES.items()):
        compared = ratios(rounds, kind, f"{call}, {many.name}", f"{call}, {few.name}")
        print(f"{call if kind == 'rate' else '':28}{unit:26}{format_value(compared)}")
    print()


def print_reached(rounds: list[Round], subject: Subject) -> None:
    """What was to be reached, and whether it was."""
    print(f"{subject.name}: what was to be reached")
    for call, least in REACH.items():
        name = f"{call}, {subject.name}"
        by_rate = ratios(rounds, "rate", name, PLAIN)
        # What the server would do where nothing else runs: the same, on a quiet machine.
        by_cost = ratios(rounds, "cost", PLAIN, name)
        for way, reached in (("requests/s", by_rate), ("processor time", by_cost)):
            met = statistics.median(reached) >= least
            print_line(f"{call} of {PLAIN}, by {way}", format_value(reached), f"{least}", met)
    met = subject.memory < REACH_MEMORY
    label = "worker after 1,000 of each call"
    print_line(label, f"{subject.memory:.1f} MiB", f"under {REACH_MEMORY}", met)
    met = statistics.median(subject.starts) <= REACH_START
    label = "first answer after `serve`, seconds"
    print_line(label, format_value(subject.starts), f"{REACH_START}", met)
    print()


def print_line(label: str, value: str, wanted: str, met: bool) -> None:
    """One thing that was to be reached."""
    print(f"{label:45}{value:24}{wanted:10}{'reached' if met else 'MISSED'}")


def print_conduct(rounds: list[Round]) -> int:
    """How the measuring itself went; returns how many answers were wrong."""
    results = [result for each in rounds for result in each.values()]
    busiest = max(result.busy for result in results)
    print(f"{sum(result.answers for result in results):,} answers.", end=" ")
    print(f"The load generator used up to {busiest:.0%} of its core.")
    failures = sum((result.failures for result in results), Counter())
    for status, count in failures.items():
        print(f"NOT 200: {count:,} times {status}")
    return failures.total()


if __name__ == "__main__":
    main()
