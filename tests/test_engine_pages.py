"""docs/engines/: a page for each engine. tests/live/test_engines.py runs the programs."""

import re
from pathlib import Path

ENGINES = Path(__file__).parent.parent / "docs" / "engines"
OVERVIEW = (ENGINES / "README.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^<!-- program: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(ENGINES.glob("*.md"))}
PROGRAMS = {
    "javascript.md": {"index.html"},
    "phaser.md": {"index.html"},
    "pygame.md": {"game.py"},
    "godot.md": {"godot3.gd", "godot4.gd"},
    "unity.md": {"SignIn.cs"},
}


def test_there_is_a_page_with_programs_for_each_engine():
    found = {page: {name for name, _ in PROGRAM.findall(text)} for page, text in PAGES.items()}
    assert found == PROGRAMS | {"README.md": set()}


def test_program_is_short_and_has_both_values_to_set(subtests):
    for page in PROGRAMS:
        assert "--public --redirect-uri " in PAGES[page]
        for name, text in PROGRAM.findall(PAGES[page]):
            with subtests.test(page, name=name):
                lines = text.splitlines()
                assert len(lines) < 80
                assert max(map(len, lines)) <= 100
                for value in ("https://id.example.org", "your client_id"):
                    assert text.count(value) == 1
                    assert f"| `{value}` |" in OVERVIEW
