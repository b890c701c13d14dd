"""docs/security.md: each promise is held by the test it names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<promise>[^|]+) \|(?P<sections>[^|]*)\| `(?P<test>[^`]+)` \|$", re.M)
ROWS = [pytest.param(row["test"], row["sections"], id=row["promise"]) for row in ROW.finditer(PAGE)]


def docstring_of(test: str) -> str:
    """What a test, as file::name, says of itself."""
    file, _, name = test.partition("::")
    module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = {each.name: each for each in module.body if isinstance(each, ast.FunctionDef)}
    return ast.get_docstring(functions[name]) or ""


@pytest.mark.parametrize(("test", "sections"), ROWS)
def test_a_promise_is_held_by_the_test_it_names(test, sections):
    """And where RFC 9700 asks for it, the test names the section."""
    said = docstring_of(test)
    for section in filter(None, sections.strip().split(", ")):
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
    on_the_page = {section for row in ROW.finditer(PAGE) for section in re.split("[ ,]+", row[2])}
    assert named <= on_the_page


def test_the_page_says_how_to_report_a_hole():
    assert "IDENTITY_ABOUT_URL" in PAGE
    assert "advisory" in PAGE
