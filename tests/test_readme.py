"""The README names every command, option, setting and module there is."""

import re
from pathlib import Path

import click

from identity.settings import SETTINGS
from identity_admin import identity_server_command

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def all_commands(group: click.Group, *words: str):
    """Each command below a group, as the words that are typed and the command itself."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_commands(command, *words, name)
        else:
            yield (*words, name), command


def test_the_readme_has_every_command_and_its_options(subtests):
    for words, command in all_commands(identity_server_command):
        with subtests.test(" ".join(words)):
            rows = [row for row in README.splitlines() if f"`{' '.join(words)}" in row]
            assert rows, "the table of commands lacks it"
            for option in command.params:
                if isinstance(option, click.Option) and option.name not in ("as_json", "yes"):
                    assert any(option.opts[0] in row for row in rows), option.opts[0]


def test_the_readme_has_every_setting(subtests):
    for name in SETTINGS:
        with subtests.test(name):
            assert re.search(rf"^\| `IDENTITY_{name}` \|", README, re.MULTILINE)


def test_the_readme_has_no_setting_that_there_is_not():
    assert set(re.findall(r"IDENTITY_([A-Z_]+)", README)) == set(SETTINGS)


def test_the_readme_has_every_module(subtests):
    for folder in ("", "storage", "pages", "commands", "identity"):
        with subtests.test(folder):
            rows = "".join(re.findall(rf"^\| .*`{folder}.*", README, re.MULTILINE))
            modules = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
            assert modules and modules <= set(re.findall(r"[`/](\w+\.py)`", rows))
