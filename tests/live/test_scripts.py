"""The messages of static/play.js and static/identity.js in Node, and the types of identity.js."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from identity.site.settings import ROOT

from . import npm

pytestmark = [pytest.mark.live, pytest.mark.node]
TESTS = Path(__file__).parent / "scripts"


@pytest.mark.parametrize("script", ["play", "identity"])
def test_script_passes_its_tests_in_node(script: str):
    """RFC 9700 4.4, RFC 9700 4.7.1, RFC 9700 4.17.2: which windows and sites they listen to."""
    command = [shutil.which("node"), "--test", str(TESTS / f"{script}.test.mjs")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# -- types for the editors of game developers ------------------------------------------------------

OPTIONS = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--lib", "es2022,dom"]
OPTIONS += ["--target", "es2022", "--module", "esnext"]
USE = 'import { pictureOf, players, signIn } from "./identity.js";\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with TypeScript and the module."""
    folder = tmp_path_factory.mktemp("types")
    npm.install(folder, "typescript")
    shutil.copy(Path(ROOT, "static/identity.js"), folder)
    return folder


def type_errors(folder: Path, source: str = "") -> str:
    """Return what TypeScript finds wrong in a module that uses identity.js."""
    (folder / "game.js").write_text(USE + source, encoding="utf-8")
    command = [folder / "node_modules/.bin/tsc", *OPTIONS, "game.js", "identity.js"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


def test_module_and_its_use_have_no_type_errors(folder: Path):
    game = """
        const player = await signIn({ clientId: "a", scope: "email", mode: "redirect" });
        document.title = player.name;
        const [first] = await players([1, 2]);
        new Image().src = pictureOf(first, "large");
        await signIn({ clientId: "a", exchange: async ({ code }) => fetch("/", { body: code }) });
    """
    assert type_errors(folder, game) == ""


def test_wrong_uses_are_type_errors(folder: Path):
    wrong = [
        "await signIn();",
        "await signIn({ client_id: 'a' });",
        "await signIn({ clientId: 'a', mode: 'window' });",
        "await players('1,2');",
        "pictureOf({ id: 1 }, 'huge');",
    ]
    reported = re.findall(r"^game\.js\((\d+),", type_errors(folder, "\n".join(wrong)), re.MULTILINE)
    assert reported == ["2", "3", "4", "5", "6"]  # the first line is USE
