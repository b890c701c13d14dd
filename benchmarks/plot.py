"""Write the saved results into docs/performance.md, with a plot: `python -m benchmarks.plot`.

`python -m benchmarks --save docs/performance.json` saves them, and `benchmarks.growth`,
`benchmarks.pages` and `benchmarks.peers` with the same option.
"""

import json
import re
from html import escape
from pathlib import Path

from benchmarks.report import (
    Memory,
    Row,
    Target,
    cores_table,
    memory_table,
    rates_table,
    targets_table,
)
from benchmarks.run import SERVERS

DOCS = Path(__file__).parent.parent / "docs"
RESULTS, PAGE, PLOT = (DOCS / f"performance.{each}" for each in ("json", "md", "svg"))
# The rows of the plot: a title, and the names of the call.
GROUPS = {
    "A public profile": ("users/info",),
    "Who is this player?": ("whois", "userinfo"),
    "A code for a token": ("token",),
}
WIDTH, BARS_AT, LONGEST = 880, 270, 540  # pixels
BAR, GAP, GROUP_GAP = 22, 6, 44
TITLE = "Requests a second that one core answers, from the processor time of each"
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
  <title>{title}</title>
  <style>
    text {{ font: 14px system-ui, sans-serif; fill: #22302b; }}
    .group {{ font-weight: 600; }}
    .name {{ text-anchor: end; }}
    .ours {{ fill: #1e6b4f; }}
    .peer {{ fill: #a9bab2; }}
    @media (prefers-color-scheme: dark) {{
      text {{ fill: #e3ece7; }}
      .ours {{ fill: #6fcfa6; }}
      .peer {{ fill: #53645c; }}
    }}
  </style>
  {content}
</svg>
"""


def main() -> None:
    """Run the command."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    PLOT.write_text(draw_plot(read_rows(results["peers"])), encoding="utf-8")


def read_rows(section: dict) -> list[Row]:
    """Return the rows of a section of the results."""
    return [Row(**each) for each in section["rows"]]


def fill_page(page: str, results: dict) -> str:
    """Return the page with the tables of these results between its markers."""
    for name, text in page_sections(results).items():
        start, end = f"<!-- {name} -->\n", "<!-- end -->"
        pattern = re.compile(f"({re.escape(start)}).*?({end})", re.DOTALL)
        page, count = pattern.subn(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
        if count != 1:
            raise ValueError(f"the page has {count} times {start.strip()}, expected once")
    return page


def page_sections(results: dict) -> dict[str, str]:
    """Return the text for each marker of the page."""
    servers, peers = results["servers"], results["peers"]
    rows = read_rows(servers)
    first = [each for each in rows if each.players == servers["players"]]
    return {
        "conditions": f"{servers['date']}: {servers['conditions']}.",
        "rates": rates_table(rows),
        "cores": cores_table(first),
        "memory": memory_table([Memory(**each) for each in servers["memory"]]),
        "targets": targets_table([Target(**each) for each in servers["targets"]]),
        "growth": targets_table([Target(**each) for each in results["growth"]["targets"]]),
        **{
            each: targets_table([Target(**target) for target in results[each]["targets"]])
            for each in ("pages on files", "pages on postgresql")
        },
        "race conditions": f"{peers['date']}: {peers['conditions']}, {peers['versions']}.",
        "race": rates_table(read_rows(peers)),
        "race memory": memory_table([Memory(**each) for each in peers["memory"]]),
        "race targets": targets_table([Target(**each) for each in peers["targets"]]),
    }


def draw_plot(rows: list[Row]) -> str:
    """Return an SVG of the requests a second that one core of each server answers."""
    most = max(1_000_000 / each.cost for each in rows)
    top, parts = 60, [f'<text x="20" y="26">{TITLE}</text>']
    for title, calls in GROUPS.items():
        parts.append(f'<text class="group" x="20" y="{top}">{title} ({" or ".join(calls)})</text>')
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
    name = row.server if kind == "peer" else f"this server, {row.server}"
    width, line = round(rate / most * LONGEST), top + BAR - 6
    return [
        f'<text class="name" x="{BARS_AT - 8}" y="{line}">{escape(name)}</text>',
        f'<rect class="{kind}" x="{BARS_AT}" y="{top}" width="{width}" height="{BAR}" rx="3"/>',
        f'<text x="{BARS_AT + width + 8}" y="{line}">{rate:,.0f}</text>',
    ]


if __name__ == "__main__":
    main()
