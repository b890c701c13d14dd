"""The documentation names every command, option, setting and module."""

import re
from pathlib import Path

import click
from documents import PAGES, ROOT

import identity_server
from identity.acts import families, logouts
from identity.http import signing, stamps
from identity.oauth import authorization, clients, grants, logout_channel, refresh
from identity.site.settings import SETTINGS
from identity_admin import identity_server_command
from model import records

README, CONTRIBUTING = PAGES["README.md"], PAGES["CONTRIBUTING.md"]
SETTINGS_PAGE, COMMANDS = PAGES["docs/settings.md"], PAGES["docs/command.md"]
READING = PAGES["docs/reading.md"]
WHERE = READING.partition("## Where to find what")[2].partition("\n## ")[0]
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]*)+|\w+\.py)`")  # a file, or a folder that ends with "/"


def all_commands(group: click.Group, *words: str):
    """Yield the words and the object of each command below a group."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_commands(command, *words, name)
            if command.invoke_without_command:
                yield (*words, name), command
        else:
            yield (*words, name), command


def test_every_command_and_option_is_documented_and_no_other(subtests):
    for words, command in all_commands(identity_server_command):
        with subtests.test(" ".join(words)):
            rows = [row for row in COMMANDS.splitlines() if f"`{' '.join(words)}" in row]
            assert rows, "docs/command.md has no row for it"
            for option in command.params:
                if isinstance(option, click.Option) and option.name not in ("as_json", "yes"):
                    assert any(option.opts[0] in row for row in rows), option.opts[0]
    documented = set(re.findall(r"`([a-z]+(?:-[a-z]+)*(?: [a-z]+(?:-[a-z]+)*)?)[ `]", COMMANDS))
    groups = {words[0] for words, _ in all_commands(identity_server_command) if len(words) == 2}
    typed = {each for each in documented if each.partition(" ")[0] in groups}
    assert typed <= {" ".join(words) for words, _ in all_commands(identity_server_command)}


def test_readme_is_short():
    assert len(README.split()) < 1300


def test_every_setting_is_on_its_page_with_its_default_and_those_of_other_pages_exist():
    rows = re.findall(r"^\| `IDENTITY_(\w+)` \| (.*?) \|", SETTINGS_PAGE, re.MULTILINE)
    defaults = {name: each.default.removeprefix(f"{ROOT}/") for name, each in SETTINGS.items()}
    shown = {name: f"`{default}`" if default else "none" for name, default in defaults.items()}
    assert sorted(rows) == sorted((shown | {"PROXIES": "1 with https, else 0"}).items())
    for text in PAGES.values():
        assert set(re.findall(r"\bIDENTITY_([A-Z_]+)", text)) <= set(SETTINGS)


def test_help_and_readme_name_the_same_first_settings():
    named = re.findall(r"^[|-] `IDENTITY_(\w+)`", README, re.MULTILINE)
    lines = re.findall(
        r"^ *IDENTITY_(\w+) +\w", identity_server_command.commands["settings"].help, re.M
    )
    assert len(named) == 5 and named == lines


def test_map_of_contributing_has_each_package():
    named = set(PATH.findall(CONTRIBUTING.partition("## The map")[2].partition("\n## ")[0]))
    packages = {path.parent.relative_to(ROOT) for path in ROOT.glob("[a-z]*/**/__init__.py")}
    product = {f"{each}/" for each in packages if each.parts[0] not in ("tests", "benchmarks")}
    programs = {path.name for path in ROOT.glob("*.py")}
    assert product | programs <= named


def test_files_that_contributors_read_of_exist():
    for page in (CONTRIBUTING, READING):
        paths = PATH.findall(page)
        assert len(paths) > 40
        assert [each for each in paths if not (ROOT / each).exists()] == []


def test_places_where_to_find_what_define_the_names(subtests):
    for row in re.findall(r"^\| [^|*]+ \| (`.*) \|$", WHERE, re.MULTILINE):
        files = [(ROOT / each).read_text(encoding="utf-8") for each in PATH.findall(row)]
        names = set(re.findall(r"`(\w+)`", row))
        with subtests.test(row):
            assert files
            for name in names:
                definition = rf"^ *((def|class) {name}\b|{name}(: .*)? = )"
                assert any(re.search(definition, each, re.MULTILINE) for each in files), name


def test_reading_page_names_functions_of_a_family():
    section = READING.partition("## An app that stays")[2].partition("\n## ")[0]
    names = set(re.findall(r"`([a-z]+_[a-z_]+|[A-Z]\w+)`", section)) - {"offline_access"}
    names |= {*re.findall(r"[#;] ([a-z]+_[a-z_]+)", section)}  # in the comments of the drawings
    places = (identity_server, families, logouts, logout_channel, refresh)
    assert len(names) >= 10
    assert names <= {name for each in places for name in vars(each)}


def test_reading_page_names_functions_of_the_grant():
    section = READING.partition("## One sign-in")[2].partition("\n## ")[0]
    names = set(re.findall(r"`([A-Za-z]+(?:_[a-z]+)+|[A-Z]\w+)`", section))
    assert len(names) > 10
    assert names <= vars(identity_server).keys() | vars(authorization).keys() | vars(grants).keys()
    places = (
        *(identity_server, authorization, clients, grants, signing, stamps, records),
        records.Client,
    )
    functions = {name for each in places for name, value in vars(each).items() if callable(value)}
    # In the comments of the code blocks: "# authorize", "# read_scope: unknown scopes are ignored".
    comments = re.findall(r" # (.*)", section)
    named = {name for each in comments for name in re.findall(r"\w+_\w+|^\w+(?=:|$)", each)}
    assert len(named) > 20
    assert named <= functions


def test_links_lead_to_files_and_headings(subtests):
    for name, text in PAGES.items():
        page = ROOT / name
        for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
            with subtests.test(f"{name}: {target}#{heading}"):
                linked = page.parent / target if target else page
                assert linked.exists()
                assert not heading or heading in anchors_of(linked)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall("^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
