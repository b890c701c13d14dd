"""The README names every command, option, setting and module there is."""

import re
from pathlib import Path

import click
import pytest

from identity_admin import identity_server_command
from identity_settings import SETTINGS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def all_commands(group: click.Group, *words: str):
    """Each command below a group, as the words that are typed and the command itself."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_commands(command, *words, name)
        else:
            yield (*words, name), command


COMMANDS = [
    pytest.param(*each, id=" ".join(each[0])) for each in all_commands(identity_server_command)
]


@pytest.mark.parametrize(("words", "command"), COMMANDS)
def test_the_readme_has_every_command_and_its_options(words, command):
    rows = [row for row in README.splitlines() if f"`{' '.join(words)}" in row]
    assert rows, f"the table of commands lacks {' '.join(words)}"
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in ("as_json", "yes"):
            assert any(option.opts[0] in row for row in rows), f"{words} lacks {option.opts[0]}"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_readme_has_every_setting(name):
    assert re.search(rf"^\| `IDENTITY_{name}` \|", README, re.MULTILINE)


def test_the_readme_has_no_setting_that_there_is_not():
    assert set(re.findall(r"IDENTITY_([A-Z_]+)", README)) == set(SETTINGS)


@pytest.mark.parametrize("folder", ["", "storage", "pages", "commands"])
def test_the_readme_has_every_module(folder):
    rows = "".join(re.findall(rf"^\| .*`{folder}.*", README, re.MULTILINE))
    modules = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    assert modules and modules <= set(re.findall(r"[`/](\w+\.py)`", rows))
