"""The documentation: its pages, and the blocks of programs and commands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
FILES += sorted((ROOT / "docs").glob("**/*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*) -->\n)? *```(?P<language>\w*)\n(?P<code>.*?)^ *```$", re.M | re.S
)


def read_blocks(page: str) -> dict[str, str]:
    """Return the marked blocks of a page, by the last word of the mark: often a file's name."""
    blocks = BLOCK.finditer(PAGES[page])
    return {each["mark"].split()[-1]: each["code"] for each in blocks if each["mark"]}
