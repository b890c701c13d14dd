"""Measure the API calls under both servers against a bare WSGI function and a plain Flask app.

Then the slowest answers are measured, alone and beside sign-ins. Ratios within one run can be
compared between machines; requests per second cannot.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections import Counter

from benchmarks.backends import MANY, MOST, PLAYERS, compare_backends
from benchmarks.load import CONNECTIONS, Result
from benchmarks.measuring import FIRST_CALLS
from benchmarks.options import make_parser
from benchmarks.report import (
    conditions,
    machines_table,
    memory_table,
    rates_table,
    save,
    summarize,
    targets_table,
)
from benchmarks.run import BARE, PLAIN, Run
from benchmarks.servers import LOAD_CORE, SERVER_CORE
from benchmarks.tails import FILES, POSTGRESQL, Tails, measure_tails, tails_table


def main() -> None:
    """Run the command. The exit status is 1 if a response was not a 200."""
    options = read_options()
    print_conditions()
    os.sched_setaffinity(0, LOAD_CORE)
    if options.storage == "postgresql":
        failures = compare_backends(options.rounds, options.seconds, options.large)
        tails = measure_tails([FILES, POSTGRESQL], options.rounds, options.seconds)
        print(f"\n{tails_table(tails.rows())}\n")
        failures += print_summary(tails.results(), tails.failures())
        sys.exit(1 if failures else 0)
    populations = [PLAYERS, MANY, MOST] if options.large else [PLAYERS, MANY]
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        contextlib.ExitStack() as running,
    ):
        run = Run(folder, running, options.first)
        run.start([options.users] if options.users else populations)
        run.measure(options.rounds, options.seconds)
    players = options.users or PLAYERS
    tails = measure_tails([FILES], options.rounds, options.seconds, players, options.first)
    print_results(run, tails, options.save)
    results = [each for track in run.tracks.values() for each in track.all_results()]
    failures = sum((result.failures for result in results), tails.failures())
    sys.exit(1 if print_summary(results + tails.results(), failures) else 0)


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser("python -m benchmarks", __doc__)
    help_text = f"only this number of players; default: {PLAYERS:,} and {MANY:,}"
    parser.add_argument("--users", type=int, metavar="N", help=help_text)
    help_text = f"requests of most kinds before anything is measured; default: {FIRST_CALLS:,}"
    parser.add_argument("--first", type=int, default=FIRST_CALLS, metavar="N", help=help_text)
    parser.add_argument("--large", action="store_true", help=f"also {MOST:,} players")
    help_text = "PostgreSQL beside flat files, and with more players"
    parser.add_argument("--storage", choices=["files", "postgresql"], help=help_text)
    return parser.parse_args()


def print_conditions() -> None:
    """Print the machine, the versions and the method."""
    print(conditions())
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"The machine is busy (load {busy:.1f}): rely on processor times, not on requests/s.")
    core = "another" if SERVER_CORE != LOAD_CORE else "the same"
    print(f"""
Each server has one worker on one core, with the options of `identity-server serve`, and writes its
access line for every request to /dev/null. The load comes from {core} core:
{CONNECTIONS} connections, each with one request at a time. "{PLAIN}" is a default Flask app with
one route and no secret key; it and "{BARE}" respond with 200 bytes of text. Ratios are of
processor times: 2 means half of the time. "≥" marks a rate that the generator may have limited.
""")


def print_results(run: Run, tails: Tails, file: str | None) -> None:
    """Print the tables; save their content if a file is named."""
    rows, targets, memory = summarize(run.tracks, run.compare), run.targets(), run.memory_rows()
    print(rates_table(rows))
    print(f"""
Machines, from the processor time per request with {run.players} players: neither nginx nor the load
generator is counted, and no core slows another one down. The players online use half of the
processor time, and the sign-ins the other half.
""")
    print(machines_table([each for each in rows if each.players == run.players], memory))
    print(f"\n{memory_table(memory)}\n\n{targets_table(targets)}\n\n{tails_table(tails.rows())}\n")
    if file:
        content = {"rows": rows, "memory": memory, "targets": targets, "tails": tails.rows()}
        save(file, "servers", **content, players=run.players)


def print_summary(results: list[Result], failures: Counter[str]) -> int:
    """Print totals of the run. Return the number of responses that were not a 200."""
    busiest = max(result.busy for result in results)
    print(f"{sum(result.responses for result in results):,} responses.", end=" ")
    print(f"The load generator used up to {busiest:.0%} of its core.")
    for status, count in failures.items():
        print(f"NOT 200: {count:,} times {status}")
    return failures.total()


if __name__ == "__main__":
    main()
