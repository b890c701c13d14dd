"""The results of a run, as numbers to save and as Markdown tables."""

import json
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.load import SATURATED
from benchmarks.measuring import Name, Track
from identity.http.limits import HASHES_RUNNING, PICTURES_RUNNING

PACKAGES = ("gunicorn", "granian", "flask", "werkzeug")
SERVERS = ("gunicorn", "granian")
MACHINES = ((1, 1), (2, 2), (4, 4), (8, 8))  # cores, and GB of memory
# What a player who is online causes, in calls a second: two profiles and one whois a minute, and a
# token when the last one expires.
PLAYER_ONLINE = {"users/info": 2 / 60, "whois": 1 / 60, "token": 1 / 600}
UTILIZATION = 0.5  # of the cores, on average: the rest is for the busy minutes
# MiB of a worker that hashes all passwords and decodes all pictures that it may at a time: 32 for a
# hash, and 400 for a decoder, which takes 16 bytes for each of storage.pictures.MAX_PIXELS.
MOST_MEMORY = HASHES_RUNNING * 32 + PICTURES_RUNNING * 400


@dataclass
class Row:
    """Medians of one track over all rounds."""

    server: str
    call: str
    players: str
    rate: float  # requests a second
    p50: float  # milliseconds
    p99: float
    cost: float  # microseconds of processor time per request
    busy: float  # share of a core that the load generator used
    speed: dict[str, str]  # how many times as fast as others


@dataclass
class Memory:
    """The memory of the worker of a server (VmRSS), in MiB."""

    server: str
    players: str
    warm: float  # after the first calls of each kind
    end: float  # after all rounds


@dataclass
class Target:
    """A target, and whether it was reached."""

    label: str
    value: str
    target: str
    reached: bool


def summarize(
    tracks: dict[Name, Track], compare: Callable[[Track], dict[str, list[float]]]
) -> list[Row]:
    """Return the row of each track, the baselines first.

    `compare` returns the speed of a track beside others, by the label of a column.
    """
    rows = []
    for name, track in sorted(tracks.items(), key=lambda item: bool(item[0].players)):
        medians = [round(track.median(kind), 3) for kind in ("rate", "p50", "p99", "cost", "busy")]
        speed = {label: format_ratios(values) for label, values in compare(track).items()}
        rows.append(Row(*name, *medians, speed))
    return rows


def format_ratios(values: list[float]) -> str:
    """Format the median, the minimum and the maximum."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def at_least(label: str, values: list[float], least: float) -> Target:
    """Return the target that the median of these ratios is at least this number."""
    return Target(label, format_ratios(values), f"{least}", statistics.median(values) >= least)


def at_most(label: str, value: float, most: float, unit: str) -> Target:
    """Return the target that a value is at most this number."""
    return Target(label, f"{value:.2f} {unit}", f"{most} {unit}", value <= most)


def conditions() -> str:
    """Return the kind of machine and the versions, in a line."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    processor = models[0] if models else platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    machine = f"{processor}, {os.cpu_count()} cores, Linux {platform.release().partition('-')[0]}"
    return f"{machine}, Python {platform.python_version()}, {packages}"


def save(path: str, section: str, **values: str | list) -> None:
    """Replace one section of the results in a JSON file. Lists are of dataclass instances."""
    file = Path(path)
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    results[section] = {"conditions": conditions(), "date": f"{datetime.now(UTC):%Y-%m-%d}"} | {
        key: value if isinstance(value, str) else [asdict(each) for each in value]
        for key, value in values.items()
    }
    file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# -- tables -------------------------------------------------------------------------------------


def format_table(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    """Return a Markdown table whose first `left` columns are left-aligned, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * width if n < left else "-" * (width - 1) + ":" for n, width in enumerate(widths)]
    lines = []
    for row in (header, rule, *rows):
        sides = [str.ljust] * left + [str.rjust] * (len(row) - left)
        cells = [pad(cell, width) for pad, cell, width in zip(sides, row, widths, strict=True)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def rates_table(rows: list[Row]) -> str:
    """Return the table of what was measured, and one of the rows that are compared to nothing."""
    tables = []
    for part in [each for each in rows if each.speed], [each for each in rows if not each.speed]:
        if part:
            header = ["server", "players", "call", "requests/s", "p50, ms", "p99, ms"]
            header += ["processor time, µs", *part[0].speed]
            tables.append(format_table(header, [_cells(each) for each in part], left=3))
    return "\n\n".join(tables)


def _cells(row: Row) -> list[str]:
    times = [f"{row.p50:,.2f}", f"{row.p99:,.2f}", f"{row.cost:,.0f}"]
    return [row.server, row.players or "-", row.call, marked_rate(row), *times, *row.speed.values()]


def marked_rate(row) -> str:
    """Return the rate of a row, with "≥" if the load generator may have limited it."""
    return f"{'≥ ' if row.busy > SATURATED else ''}{row.rate:,.{0 if row.rate > 10 else 1}f}"


def machines_table(rows: list[Row], memory: list[Memory]) -> str:
    """Return the table of how many players each of MACHINES is enough for.

    `rows` are of one installation. `memory` is that of all workers; the largest counts.
    """
    header = ["cores, each with a worker", "memory", "the workers, MiB", "at most, MiB"]
    costs = {(row.server, row.call): row.cost for row in rows}  # microseconds
    per_core = []
    for server in SERVERS:
        player = sum(costs[server, call] * share for call, share in PLAYER_ONLINE.items())
        header.append(f"players online, {server}")
        per_core.append(UTILIZATION * 1_000_000 / player)
    header.append("sign-ins a second")
    sign_in = max(costs[server, "sign-in"] for server in SERVERS)
    per_core.append((1 - UTILIZATION) * 1_000_000 / sign_in)
    worker = max(each.end for each in memory)
    lines = []
    for cores, gigabytes in MACHINES:
        sizes = [_rounded(each * cores) for each in (worker, worker + MOST_MEMORY)]
        values = [*sizes, *(_rounded(each * cores) for each in per_core)]
        lines.append([str(cores), f"{gigabytes} GB", *values])
    return format_table(header, lines)


def _rounded(number: float) -> str:
    """Format with two digits: the machine drifts by more."""
    return f"{float(f'{number:.1e}'):,.{0 if number >= 9.95 else 1}f}"


def memory_table(memory: list[Memory]) -> str:
    """Return the table of the memory of each server."""
    header = ["memory of a worker, MiB", "players", "after the first calls", "at the end"]
    lines = [[each.server, each.players, f"{each.warm:.1f}", f"{each.end:.1f}"] for each in memory]
    return format_table(header, lines, left=2)


def targets_table(targets: list[Target]) -> str:
    """Return the table of targets."""
    header = ["target", "value", "least or most", ""]
    lines = [
        [each.label, each.value, each.target, "reached" if each.reached else "MISSED"]
        for each in targets
    ]
    return format_table(header, lines)
