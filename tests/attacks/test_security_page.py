"""docs/security.md and the pages beside it: each row names an existing test."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted((ROOT / "docs").glob("security*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
ROW = re.compile(r"^\| (?P<promise>[^|]+) \|(?P<sections>[^|]*)\| `(?P<test>[^`]+)` \|$", re.M)
ROWS = list(ROW.finditer(TEXT))


@functools.cache
def read_docstrings(file: str) -> dict[str, str]:
    """Return the docstring of each test in a file, by the test's name."""
    module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [each for each in ast.walk(module) if isinstance(each, ast.FunctionDef)]
    return {each.name: ast.get_docstring(each) or "" for each in functions}


def test_every_row_names_an_existing_test():
    """The docstring of the test names the section of RFC 9700 that the row gives."""
    for row in ROWS:
        file, *_, name = row["test"].split("::")
        docstring = read_docstrings(file).get(name)
        assert docstring is not None, row["promise"]
        for section in filter(None, row["sections"].strip().split(", ")):
            assert re.search(rf"RFC 9700 (\S+ and )?{re.escape(section)}\b", docstring), row


def test_every_row_has_a_test_and_every_section_of_attacks_is_listed():
    rows = [line for line in TEXT.splitlines() if line.startswith("| ")]
    headings = [row for row in rows if row == "| promise | RFC 9700 | held by |"]
    assert len(rows) == len(headings) + len(ROWS)
    assert len(ROWS) > 50
    assert len(ROWS) == len(set(ROW.findall(TEXT)))
    named = set()
    for file in (ROOT / "tests" / "attacks").glob("*.py"):
        named |= set(re.findall(r"RFC 9700 ([0-9.]+[0-9])", file.read_text(encoding="utf-8")))
    on_the_page = {section for row in ROWS for section in re.split("[ ,]+", row[2])}
    assert named <= on_the_page
