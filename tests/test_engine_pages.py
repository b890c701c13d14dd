"""docs/engines/: a page for each engine. tests/live/test_engines.py runs the programs."""

import re
from pathlib import Path

ENGINES = Path(__file__).parent.parent / "docs" / "engines"
OVERVIEW = (ENGINES / "README.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^<!-- program: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(ENGINES.glob("*.md"))}


def test_program_is_short_and_has_both_values_to_set(subtests):
    for page in PAGES.keys() - {"README.md", "servers.md"}:
        assert "--public --redirect-uri " in PAGES[page]
        programs = PROGRAM.findall(PAGES[page])
        assert programs
        for name, text in programs:
            with subtests.test(page, name=name):
                lines = text.splitlines()
                assert len(lines) <= 80
                assert max(map(len, lines)) <= 100
                assert ("/api/oauth/whois?client_id=" in text) == ("identity.js" not in text)
                for value in ("https://id.example.org", "your client_id"):
                    assert text.count(value) == 1
                    assert f"| `{value}` |" in OVERVIEW


def test_game_server_is_short_and_has_limits(subtests):
    for name, text in PROGRAM.findall(PAGES["servers.md"]):
        with subtests.test(name):
            lines = [each for each in text.splitlines() if each]
            # The mod is a client as well, and signs players in.
            assert 40 <= len(lines) <= (85 if name == "init.lua" else 70)
            assert max(map(len, lines)) <= 100
            assert f"| [`{name}`](#" in PAGES["servers.md"]
            assert "ANSWER_TIMEOUT" in text
