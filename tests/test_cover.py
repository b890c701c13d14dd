"""tests/cover.txt names tests that exist, and a cover executes all lines."""

import functools
import re
from pathlib import Path

from cover import COVER, ROOT, choose_cover

CONTRACTS = sorted(Path(ROOT, "tests", "contract").glob("*.py"))


@functools.cache
def names_in(*files: Path) -> set[str]:
    """Return the names of the classes and test functions of these files."""
    texts = (file.read_text(encoding="utf-8") for file in files if file.exists())
    return set(re.findall(r"^ *(?:class|def) ([Tt]est\w+)", "\n".join(texts), re.MULTILINE))


def test_every_line_names_an_existing_test():
    cover = COVER.read_text(encoding="utf-8").splitlines()
    assert len(cover) > 100 and cover == sorted(set(cover))
    lost = []
    for each in cover:
        path, *names = each.split("::")
        inherited = CONTRACTS if len(names) > 1 else []
        if not names_in(ROOT / path, *inherited).issuperset(names):
            lost.append(each)
    assert lost == [], "python -m tests.cover renews tests/cover.txt"


def test_cover_executes_all_lines_with_few_tests():
    lines = {"few": {1}, "most": {1, 2, 3}, "others": {2, 4}, "same": {3, 4}}
    assert choose_cover(lines) == ["most", "others"]
