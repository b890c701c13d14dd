"""Write the saved results into docs/, with two plots: `python -m benchmarks.plot`.

The tables are in two pages. The results are from `python -m benchmarks --save
docs/performance.json`, and from `benchmarks.growth`, `benchmarks.pages` and `benchmarks.peers` with
the same option.
"""

import json
import math
import re
from html import escape
from pathlib import Path

from benchmarks.report import (
    SERVERS,
    Memory,
    Row,
    Target,
    machines_table,
    memory_table,
    rates_table,
    targets_table,
)
from benchmarks.tails import CONNECTIONS, ONE_IN, Tail, tails_table

DOCS = Path(__file__).parent.parent / "docs"
RESULTS, PAGE, PLOT = (DOCS / f"performance.{each}" for each in ("json", "md", "svg"))
MEASURED, TAILS = DOCS / "performance-measured.md", DOCS / "tails.svg"
# The rows of the plot: a title, and the names of the call.
GROUPS = {
    "A public profile": ("users/info",),
    "Who is this player?": ("whois", "userinfo"),
    "A code for a token": ("token",),
}
WIDTH, BARS_AT, LONGEST = 880, 270, 540  # pixels
BAR, GAP, GROUP_GAP = 22, 6, 44
TITLE = "Requests a second that one core answers, from the processor time of each"
TAILS_WIDTH, AXIS_AT, AXIS, RATES_AT = 480, 20, 380, 468  # pixels
TAILS_TITLE = "Milliseconds within which 50%, 99% and 99.9% are answered"
MIXED = f"with {1 / ONE_IN:.0%} sign-ins"
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height}" role="img">
  <title>{title}</title>
  <style>
    text {{ font: 14px system-ui, sans-serif; fill: #22302b; }}
    .group {{ font-weight: 600; }}
    .end {{ text-anchor: end; }}
    .tick {{ text-anchor: middle; font-size: 12px; }}
    .ours {{ fill: #1e6b4f; }}
    .peer {{ fill: #a9bab2; }}
    .alone {{ stroke: #22302b; fill: #22302b; }}
    .mixed {{ stroke: #a34b00; fill: none; stroke-width: 2; }}
    path.mixed {{ stroke-dasharray: 3 4; stroke-width: 1; }}
    .grid {{ stroke: #a9bab2; stroke-width: 0.5; }}
    @media (prefers-color-scheme: dark) {{
      text {{ fill: #e3ece7; }}
      .ours {{ fill: #6fcfa6; }}
      .peer {{ fill: #53645c; }}
      .alone {{ stroke: #e3ece7; fill: #e3ece7; }}
      .mixed {{ stroke: #ffab66; }}
    }}
  </style>
  {content}
</svg>
"""


def main() -> None:
    """Run the command."""
    for path, text in render(json.loads(RESULTS.read_text(encoding="utf-8"))).items():
        path.write_text(text, encoding="utf-8")


def render(results: dict) -> dict[Path, str]:
    """Return the content of the pages and plots that show these results."""
    peers = results["peers"]
    return {
        PAGE: fill_page(PAGE, guide_sections(results)),
        MEASURED: fill_page(MEASURED, measured_sections(results)),
        PLOT: draw_plot(read_rows(peers)),
        TAILS: draw_tails(read_tails(peers)),
    }


def read_rows(section: dict) -> list[Row]:
    """Return the rows of a section of the results."""
    return [Row(**each) for each in section["rows"]]


def read_tails(section: dict) -> list[Tail]:
    """Return the slowest answers of a section of the results."""
    return [Tail(**each) for each in section["tails"]]


def fill_page(path: Path, sections: dict[str, str]) -> str:
    """Return a page with these texts between its markers."""
    page = path.read_text(encoding="utf-8")
    for name, text in sections.items():
        start, end = f"<!-- {name} -->\n", "<!-- end -->"
        pattern = re.compile(f"({re.escape(start)}).*?({end})", re.DOTALL)
        page, count = pattern.subn(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
        if count != 1:
            raise ValueError(f"the page has {count} times {start.strip()}, expected once")
    return page


def guide_sections(results: dict) -> dict[str, str]:
    """Return the text for each marker of the page about what a machine is enough for."""
    servers = results["servers"]
    memory = [Memory(**each) for each in servers["memory"]]
    rows = [each for each in read_rows(servers) if each.players == servers["players"]]
    growing = ("growth", "pages on files", "pages on postgresql")
    return {
        "machines": machines_table(rows, memory),
        "memory": memory_table(memory),
        **{
            each: targets_table([Target(**target) for target in results[each]["targets"]])
            for each in growing
        },
    }


def measured_sections(results: dict) -> dict[str, str]:
    """Return the text for each marker of the page with the measurements."""
    servers, peers = results["servers"], results["peers"]
    return {
        "conditions": f"{servers['date']}: {servers['conditions']}.",
        "rates": rates_table(read_rows(servers)),
        "targets": targets_table([Target(**each) for each in servers["targets"]]),
        "race conditions": f"{peers['date']}: {peers['conditions']}, {peers['versions']}.",
        "race": rates_table(read_rows(peers)),
        "tails": tails_table(read_tails(peers)),
        "race memory": memory_table([Memory(**each) for each in peers["memory"]]),
        "race targets": targets_table([Target(**each) for each in peers["targets"]]),
    }


def draw_plot(rows: list[Row]) -> str:
    """Return an SVG of the requests a second that one core of each server answers."""
    most = max(1_000_000 / each.cost for each in rows)
    top, parts = 60, [draw_text(20, 26, TITLE)]
    for title, calls in GROUPS.items():
        parts.append(draw_text(20, top, f"{title} ({' or '.join(calls)})", "group"))
        group = [each for each in rows if each.call in calls]
        for row in sorted(group, key=lambda row: row.cost):
            parts += draw_bar(row, most, top + 10)
            top += BAR + GAP
        top += GROUP_GAP
    return SVG.format(width=WIDTH, height=top, title=TITLE, content="\n  ".join(parts))


def draw_bar(row: Row, most: float, top: int) -> list[str]:
    """Return the elements of one bar."""
    rate = 1_000_000 / row.cost
    kind = "ours" if row.server in SERVERS else "peer"
    width, line = round(rate / most * LONGEST), top + BAR - 6
    return [
        draw_text(BARS_AT - 8, line, label(row.server), "end"),
        f'<rect class="{kind}" x="{BARS_AT}" y="{top}" width="{width}" height="{BAR}" rx="3"/>',
        draw_text(BARS_AT + width + 8, line, f"{rate:,.0f}"),
    ]


def draw_tails(rows: list[Tail]) -> str:
    """Return an SVG of the percentiles of each server, on a logarithmic axis of milliseconds."""
    powers = [math.log10(each) for row in rows for each in (row.p50, row.p999)]
    axis = range(math.floor(min(powers)), math.ceil(max(powers)) + 1)
    parts = [draw_text(AXIS_AT, 26, TAILS_TITLE)]
    for left, kind, name in (AXIS_AT + 6, "alone", "alone"), (AXIS_AT + 186, "mixed", MIXED):
        parts += [*draw_points([left, left + 20, left + 40], 50, kind)]
        parts.append(draw_text(left + 56, 55, name))
    top = 60
    for connections in CONNECTIONS:
        top += 34
        parts.append(draw_text(AXIS_AT, top, f"{connections} connections", "group"))
        parts.append(draw_text(RATES_AT, top, "calls", "end"))
        start = top + 8
        for row in (each for each in rows if each.connections == connections):
            if not row.sign_ins:
                top += 28
                parts.append(draw_text(AXIS_AT, top, f"{label(row.server)}, {row.storage}"))
            top += 16
            places = [place(each, axis) for each in (row.p50, row.p99, row.p999)]
            parts += draw_points(places, top, "mixed" if row.sign_ins else "alone")
            parts.append(draw_text(RATES_AT, top + 5, f"{row.rate:,.0f}/s", "end"))
        top += 30
        for latency in (10**power for power in axis):
            x = place(latency, axis)
            parts.append(f'<path class="grid" d="M {x} {start} V {top - 16}"/>')
            parts.append(draw_text(x, top, f"{latency:,g}", "tick"))
    content = "\n  ".join(parts)
    return SVG.format(width=TAILS_WIDTH, height=top + 12, title=TAILS_TITLE, content=content)


def place(latency: float, axis: range) -> float:
    """Return where a latency in milliseconds is, on an axis from one power of ten to another."""
    return round(AXIS_AT + (math.log10(latency) - axis[0]) / (axis[-1] - axis[0]) * AXIS, 1)


def draw_points(places: list[float], top: int, kind: str) -> list[str]:
    """Return the elements of points on a line."""
    line = f'<path class="{kind}" d="M {places[0]} {top} H {places[-1]}"/>'
    return [line, *(f'<circle class="{kind}" cx="{x}" cy="{top}" r="4.5"/>' for x in places)]


def draw_text(x: float, y: int, text: str, kind: str = "") -> str:
    """Return a text element."""
    attribute = f' class="{kind}"' if kind else ""
    return f'<text{attribute} x="{x}" y="{y}">{escape(text)}</text>'


def label(server: str) -> str:
    """Return how a plot names a server."""
    return f"this server, {server}" if server in SERVERS else server


if __name__ == "__main__":
    main()
