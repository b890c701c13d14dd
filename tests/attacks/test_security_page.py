"""docs/security.md: each promise is held by the test it names."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<promise>[^|]+) \|(?P<sections>[^|]*)\| `(?P<test>[^`]+)` \|$", re.M)
ROWS = list(ROW.finditer(PAGE))


@functools.cache
def docstrings_in(file: str) -> dict[str, str]:
    """What each test in a file says of itself, by its name."""
    module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [each for each in module.body if isinstance(each, ast.FunctionDef)]
    return {each.name: ast.get_docstring(each) or "" for each in functions}


def test_a_promise_is_held_by_the_test_it_names(subtests):
    """And where RFC 9700 asks for it, the test names the section."""
    for row in ROWS:
        with subtests.test(row["promise"]):
            file, _, name = row["test"].partition("::")
            said = docstrings_in(file)[name]
            for section in filter(None, row["sections"].strip().split(", ")):
                assert re.search(rf"RFC 9700 (\S+ and )?{re.escape(section)}\b", said)


def test_every_promise_has_its_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    headings = [row for row in rows if row == "| promise | RFC 9700 | held by |"]
    assert len(rows) == len(headings) + len(ROWS)
    assert len(ROWS) > 50
    assert len(ROWS) == len(set(ROW.findall(PAGE)))


def test_every_section_that_a_test_of_the_attacks_names_is_on_the_page():
    named = set()
    for file in (ROOT / "tests" / "attacks").glob("*.py"):
        named |= set(re.findall(r"RFC 9700 ([0-9.]+[0-9])", file.read_text(encoding="utf-8")))
    on_the_page = {section for row in ROWS for section in re.split("[ ,]+", row[2])}
    assert named <= on_the_page


def test_the_page_says_how_to_report_a_hole():
    assert "IDENTITY_ABOUT_URL" in PAGE
    assert "advisory" in PAGE
