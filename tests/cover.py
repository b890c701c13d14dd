"""A cover: tests that together execute every line of the product that a test executes.

    python -m tests.cover       renews tests/cover.txt; takes some minutes
    pytest -m "not (ci or live)" @tests/cover.txt

What can fail on another Python alone is in some line, whichever test executes it: .ci/run runs the
cover on another Python. Lines that run at imports are not measured. Each line of the list is the id
of a test function, with all its parameters; pytest fails if one no longer exists.
"""

import collections
import tempfile
from pathlib import Path

import coverage

from tests.mutants import QUICK, copy_checkout, measure, names_of_tests

ROOT = Path(__file__).resolve().parent.parent
COVER = ROOT / "tests" / "cover.txt"

Line = tuple[str, int]  # file and number


def lines_by_function(measured: coverage.CoverageData) -> dict[str, set[Line]]:
    """Return the lines that each test function executes, by its id without parameters."""
    lines = collections.defaultdict(set)
    modules = (each for each in measured.measured_files() if each.endswith(".py"))  # no templates
    for file in modules:
        for number, contexts in measured.contexts_by_lineno(file).items():
            for test in names_of_tests(contexts):
                lines[test.partition("[")[0]].add((file, number))
    return lines


def choose_cover(lines: dict[str, set[Line]]) -> list[str]:
    """Return functions that execute all lines: always the one with the most new ones."""
    missing, chosen = set().union(*lines.values()), []
    while missing:
        chosen.append(max(sorted(lines), key=lambda each: len(lines[each] & missing)))
        missing -= lines[chosen[-1]]
    return sorted(chosen)


def main() -> None:
    """Measure the tests that start no process, and write the list."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_checkout(ROOT, Path(folder, "copy"))
        lines = lines_by_function(measure(copy, QUICK, Path(folder)))
    cover = choose_cover(lines)
    COVER.write_text("".join(f"{each}\n" for each in cover), encoding="utf-8")
    print(
        f"{len(cover)} of {len(lines)} functions execute {len(set().union(*lines.values()))} lines."
    )


if __name__ == "__main__":
    main()
