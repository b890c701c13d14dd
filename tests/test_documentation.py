"""The README and docs/: the length of each page, its contents, and what runs its commands.

Each command of a page is matched by a row of COMMANDS, and each program by one of PROGRAMS: what
runs it, or why nothing does. A command that is in no row fails the test.
"""

import itertools
import re
import shlex
import textwrap
from collections.abc import Iterator

import click
import pytest
from documents import BLOCK, PAGES, ROOT

from identity_admin import identity_server_command

LINES, LINES_OF_README = 300, 170
SHOWN = {"", "json", "ini", "env", "toml", "yaml", "apache"}  # languages of data and settings

TESTS = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
DEMO = "tests/live/test_demo.py::test_demo_ignores_settings_and_takes_free_ports"
SETTINGS = "test_every_setting_is_on_its_page_with_its_default_and_those_of_other_pages_exist"
GRANT = "tests/live/test_grant_page.py::test_documented_commands_complete_the_grant"
STAYING = "tests/live/test_grant_page.py::test_documented_commands_refresh_and_revoke"
RECIPES = "tests/live/test_recipes.py::test_recipe_signs_a_player_in"
GAME_SERVERS = "tests/live/test_game_servers.py::test_good_ticket_lets_a_player_in"
NATIVE_GAMES = "tests/live/test_engines.py::test_native_game_shows_name_and_picture"
# What runs commands, or why nothing does, and how these commands begin. The first row counts.
COMMANDS = {
    DEMO: [r"(\S*/)?identity-server demo"],
    "tests/test_documentation.py::test_commands_of_the_server_exist_with_their_options": [
        r"(ExecStart=)?(\S*/)?identity-server\b"
    ],
    f"tests/test_readme.py::{SETTINGS}": [r"(export )?IDENTITY_\w+="],
    # of contributors
    "not run: takes hours": [
        *(r"\S*pytest .*--hypothesis-profile=long", r"\S*python -m benchmarks\.(soak|profile)"),
        r"\S*python -m tests\.mutants",
    ],
    "not run: a step of a release": [
        *(r"\S*pytest .*--renew-seconds", r"\S*python -m tests\.(cover|make_installation)"),
        *(r"rm docs/home", r"/tmp/try/bin/pip", r"version=", r"sha256sum"),
        r"git (add|commit|tag|push)",
    ],
    ".ci/run": [
        *(r"python3 -m venv", r"\.venv/bin/pip install", r"(\.venv/bin/)?pytest", r"\.ci/run"),
        r"\.venv/bin/(ruff|lint-imports)",
    ],
    "not run: needs pipx. tests/live/test_wheel.py::test_version has an installation by pip": [
        r"pipx install"
    ],
    "tests/live/test_release.py::test_release_is_the_same_bytes_from_another_folder_and_umask": [
        *(r"\S*python -m tests\.make_release", r"diff -r /tmp/release")
    ],
    "tests/test_translations.py::test_new_language_begins_with_all_sentences_in_english": [
        r"\S*pybabel init"
    ],
    "tests/test_exercises.py::test_exercise_prints_requests_and_both_results": [
        r"\S*python -m exercises"
    ],
    "tests/test_benchmarks.py::test_growth_is_measured": [r"\S*python -m benchmarks\.growth"],
    "tests/test_benchmarks.py::test_pages_are_measured": [r"\S*python -m benchmarks\.pages"],
    "tests/test_benchmarks.py::test_pages_show_the_saved_results": [
        r"\S*python -m benchmarks\.plot"
    ],
    "tests/live/test_peers.py::test_peer_exchanges_a_code_and_looks_up_the_token": [
        r"\S*python -m benchmarks\.peers"
    ],
    "tests/test_benchmarks.py::test_benchmarks_run": [r"\S*python -m benchmarks\b"],
    # of developers
    GRANT: [r"curl .*/api/"],
    RECIPES: [r"flask --app", r"node (authjs|passport)_recipe\.mjs"],
    GAME_SERVERS: [r"python game_server\.py", r"node game_server\.mjs", r"godot3-server --path"],
    NATIVE_GAMES: [r"python game\.py"],
    "tests/live/test_joining.py::test_python_program_chats_until_the_player_is_suspended": [
        r"python join\.py"
    ],
    "not run: constraints.txt has the library, or the test installs it": [r"(pip|npm) install"],
    "not run: the tests serve the page themselves": [r"python3 -m http\.server"],
    "tests/live/apps/test_oidc_agent.py::test_agent_refreshes_until_the_player_is_suspended": [
        r"oidc-(gen|token)|eval VALUE"
    ],
    "not run: the page says how somebody tried it": [
        r"gitea|cli|/usr/share/lemonldap-ng|sudo -u www-data php occ|discovery=|names="
    ],
    # of administrators
    "tests/live/test_image.py::test_commands_of_the_guide": [r"docker compose (exec|run)\b"],
    "not run: needs a Docker daemon": [r"docker compose"],
    "tests/live/test_nginx.py::test_nginx_passes_responses_through_unchanged": [r"nginx -t"],
    "not run: needs a public DNS name": [r"certbot"],
    "not run: needs two Debian machines with PostgreSQL, and root": [
        *(r"openssl req", r"scp", r"rsync", r"runuser -u postgres", r"pg_ctlcluster"),
        *(r"pg_autoctl", r"URL=", r"curl http://app1"),
    ],
    "not run: needs the repository from which the machine was installed": [r"git "],
    "not run: changes a Debian machine with systemd, as root": [
        *(r"(sudo )?apt install", r"systemctl", r"journalctl", r"timedatectl", r"adduser"),
        r"(install|cp|mkdir|chown|chmod|ln|mv|rm|sed|printf|echo|cat|grep|cd|nano|umask)\b",
    ],
    "not run: prints random text": [r"openssl rand"],
}
# The same for programs, by page and name.
PROGRAMS = {
    DEMO: ["README.md run"],
    ".ci/run": ["README.md test"],
    GRANT: ["docs/grant.md grant"],
    STAYING: [f"docs/games/staying.md {name}" for name in ("refresh", "introspect", "revoke")],
    "tests/live/test_several_machines.py::test_two_servers_on_one_machine": [
        "docs/several-machines-failures.md try"
    ],
    RECIPES: [
        *("docs/games/recipes.md authlib_recipe.py", "docs/games/recipes.md authjs_recipe.mjs"),
        "docs/games/recipes.md requests_oauthlib_recipe.py",
        "docs/games/recipes.md passport_recipe.mjs",
    ],
    "tests/live/test_popups.py::test_ten_lines_of_the_documentation_sign_a_player_in": [
        "docs/games/browser.md popup"
    ],
    "tests/live/test_popups.py::test_page_of_the_documentation_signs_a_player_in": [
        *("docs/games/browser.md page", "docs/games/browser.md exchange")
    ],
    "tests/live/test_play_page.py::test_game_of_the_documentation_asks_who_plays": [
        *("docs/games/browser.md ask", "docs/games/browser.md signed_in")
    ],
    "tests/test_device.py::test_documented_requests_are_those_of_a_device": [
        *("docs/games/devices.md start", "docs/games/devices.md poll")
    ],
    NATIVE_GAMES: ["docs/engines/pygame.md game.py", "docs/engines/godot.md godot3.gd"],
    "tests/live/test_engines.py::test_game_without_a_browser_shows_qr_code_name_and_picture": [
        *("docs/engines/pygame.md device.py", "docs/engines/godot.md godot3_device.gd")
    ],
    "tests/live/test_engines.py::test_game_on_the_play_page_shows_name_and_picture": [
        *("docs/engines/javascript.md index.html", "docs/engines/phaser.md index.html")
    ],
    GAME_SERVERS: [
        *("docs/engines/servers.md game_server.py", "docs/engines/servers.md game_server.mjs"),
        "docs/engines/dedicated.md game_server.gd",
    ],
    "tests/live/test_minetest.py::test_player_may_build_and_chat_after_the_sign_in": [
        "docs/engines/dedicated.md init.lua"
    ],
    "tests/live/test_joining.py::test_python_program_chats_until_the_player_is_suspended": [
        "docs/engines/joining.md join.py"
    ],
    "tests/live/test_joining.py::test_godot_program_chats_until_the_player_is_suspended": [
        "docs/engines/joining.md join.gd"
    ],
    "tests/live/test_joining.py::test_page_chats_until_the_player_is_suspended": [
        "docs/engines/joining.md join.html"
    ],
    "not run: needs Godot 4": ["docs/engines/godot.md godot4.gd"],
    "not run: needs Unity": ["docs/engines/unity.md SignIn.cs"],
}
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# Commands of the server without its name; tests/test_readme.py has those of docs/command.md.
OURS = "|".join(
    f"{name} ({'|'.join(group.commands)}) "
    for name, group in identity_server_command.commands.items()
    if isinstance(group, click.Group)
)
# The first words of a span that is a command; others are names of files, functions and settings.
RUNNABLE = re.compile(
    r"(sudo|pip|pipx|npm|node|flask|python3?|pytest|apt|systemctl|journalctl|certbot|git|openssl|curl|rsync|rm|cd"
    r"|docker|godot3-server|pg_\w+|\.venv/bin/\w+|\.ci/run|(\S*/)?identity-server) \S"
)


# -- pages -----------------------------------------------------------------------------------------


def test_page_is_short_and_begins_with_its_contents(subtests):
    for name, text in PAGES.items():
        with subtests.test(name):
            lines = text.count("\n")
            assert lines <= (LINES_OF_README if name == "README.md" else LINES)
            wanted = contents_of(text)
            if name.startswith("docs/") and wanted.count("\n") >= 2:
                title, introduction, contents, *_ = text.split("\n\n")
                assert title.startswith("# ") and not introduction.startswith(("-", "#"))
                assert contents == wanted


def contents_of(text: str) -> str:
    """Return the list of links to the headings of a page, of the second level and the third."""
    headings = re.findall(r"^##(#?) (.*)$", BLOCK.sub("", text), re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for _, heading in headings]
    return "\n".join(
        f"{'  ' * len(level)}- [{heading}](#{anchor})"
        for (level, heading), anchor in zip(headings, anchors, strict=True)
    )


# -- commands --------------------------------------------------------------------------------------


def find_commands() -> Iterator[tuple[str, list[str], bool]]:
    """Yield the name of a page, the words of a command, and whether it is a line of a block.

    Blocks with a mark run as a whole: PROGRAMS has them.
    """
    for name, text in PAGES.items():
        for block in BLOCK.finditer(text):
            if block["language"] == "sh" and not block["mark"]:
                for words in split_commands(textwrap.dedent(block["code"])):
                    yield name, words, True
        prose = BLOCK.sub("", text)
        for line in re.findall(r"^    (\S*identity-server .*)$", prose, re.MULTILINE):
            yield name, shlex.split(line), True
        for span in SPAN.findall(prose):
            line = " ".join(span.replace("|", "/").split())  # files|postgresql: one of both
            if re.match(OURS, line) and name != "docs/command.md":
                line = f"identity-server {line}"
            if RUNNABLE.match(line):
                yield from ((name, words, False) for words in split_commands(line))


def split_commands(script: str) -> Iterator[list[str]]:
    """Yield the commands of a script, without comments and the texts that it writes to files."""
    script = re.sub(r"(<< ?'?(\w+)'?.*\n)(?:.*\n)*?\2$", r"\1", script, flags=re.MULTILINE)
    script = re.sub(r"\$\(.*\)", "VALUE", script.replace("\\\n", " "))
    for line in script.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";|&()"):
                words = words[words[:1] in (["do"], ["{"]) :]
                while words[1:] and re.match(r"(?!ExecStart)\w+=", words[0]):  # a setting
                    del words[0]
                if words and words[0] not in ("for", "done", "}"):
                    yield words
                words = []
            else:
                words.append(word)


def rows_of(words: list[str]) -> list[str]:
    """Return the patterns of COMMANDS that a command matches."""
    patterns = itertools.chain(*COMMANDS.values())
    return [each for each in patterns if re.match(each, " ".join(words))]


def test_every_command_runs_in_a_test_or_is_named_as_not_run():
    found = [(name, words, rows_of(words)) for name, words, _ in find_commands()]
    assert [(name, " ".join(words)) for name, words, rows in found if not rows] == []
    unused = set(itertools.chain(*COMMANDS.values())) - {rows[0] for *_, rows in found}
    assert unused == set()  # what no page has any more


def test_every_program_runs_in_a_test_or_is_named_as_not_run():
    found = set()
    for name, text in PAGES.items():
        for block in BLOCK.finditer(text):
            lines = textwrap.dedent(block["code"]).splitlines()
            if block["language"] in SHOWN:
                assert not any(map(RUNNABLE.match, lines)), f"{name}: these are sh: {lines}"
            elif (block["mark"] or block["language"] != "sh") and "docs/apps/" not in name:
                found.add(f"{name} {(block['mark'] or lines[0]).split()[-1]}")
    assert found == set(itertools.chain(*PROGRAMS.values()))


def test_what_runs_a_command_exists(subtests):
    for held in [*COMMANDS, *PROGRAMS]:
        with subtests.test(held):
            assert held.startswith(("not run: ", "tests/")) or (ROOT / held).is_file()
            for file, test in TESTS.findall(held):
                assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8")


def test_commands_of_the_server_exist_with_their_options(subtests):
    number = 0
    for name, words, is_line in find_commands():
        in_docker = words[0] == "docker" and "identity-server" in words
        start = words.index("identity-server") if in_docker else 0
        if re.fullmatch(r"(ExecStart=)?(\S*/)?identity-server", words[start]):
            number += 1
            with subtests.test(f"{name}: {' '.join(words)}"):
                check_words(words[start + 1 :], is_line)
    assert number > 60


def check_words(words: list[str], is_line: bool) -> None:
    """Check that the command takes these words. In prose its arguments may be left out."""
    words = [*itertools.takewhile(lambda word: word not in ("<", ">", "2>"), words)]
    command: click.Command = identity_server_command
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    context = click.Context(command)
    values, more, _ = command.make_parser(context).parse_args(words)  # or click.UsageError
    assert more == []
    for parameter in command.params:
        value = values.get(parameter.name)
        if isinstance(parameter.type, (click.Choice, click.IntRange)) and value:
            parameter.type_cast_value(context, value)
        if is_line and isinstance(parameter, click.Argument) and parameter.required:
            assert value


@pytest.mark.parametrize("words", ["user ad ada", "user add ada --mail x", "serve --server x"])
def test_command_that_does_not_exist_is_found(words):
    with pytest.raises((click.UsageError, AssertionError)):
        check_words(words.split(), is_line=False)
