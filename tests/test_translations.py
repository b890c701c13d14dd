"""The catalogues are whole, with the places and tags of the sources; `translations/update`."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jinja2 import Environment, nodes
from pseudo import TEMPLATE
from test_layout import ROOT, modules

from identity.site.catalogues import LANGUAGES, build_catalogue, forms_of, parse_entries, problem_of
from identity.site.languages import FOLDER, file_of

OFFERED_FROM = 0.8  # of the sentences
FOLDERS = ("identity", "images", "model", "pages", "storage", "templates", "translations")
MARKERS = {"say": 1, "say_number": 2, "say_in": 2, "_": 1, "ngettext": 2, "pgettext": 2}


@pytest.mark.live
def test_catalogues_are_as_the_marked_sentences_make_them(tmp_path):
    """Otherwise run translations/update."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "identity_server.py", tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [tmp_path / "translations" / "update"]
    subprocess.run(command, env=os.environ | {"PATH": path}, check=True, timeout=60)
    assert {each.stem for each in FOLDER.glob("*.po")} == {
        file_of(code).stem for code in TRANSLATED
    }
    for kept in FOLDER.glob("*.po*"):
        assert (tmp_path / "translations" / kept.name).read_text() == kept.read_text(), kept.name


@pytest.mark.live
def test_new_language_begins_with_all_sentences_in_english(tmp_path):
    """The command of docs/translating.md."""
    [command] = re.findall(
        r"`\.venv/bin/(pybabel init [^`]*)`", (ROOT / "docs/translating.md").read_text()
    )
    made = command.replace("translations/nl.po", str(tmp_path / "nl.po"))
    program, *arguments = made.split()
    subprocess.run([Path(sys.executable).with_name(program), *arguments], cwd=ROOT, check=True)
    catalogue = build_catalogue((tmp_path / "nl.po").read_text(), tmp_path / "nl.po")
    _, *template = parse_entries(TEMPLATE.read_text())
    assert catalogue.missing == len(template)


TRANSLATED = [code for code in LANGUAGES if code != "en"]


@pytest.mark.parametrize("code", TRANSLATED)
def test_translations_have_the_places_and_tags_of_their_sources(code):
    text = file_of(code).read_text(encoding="utf-8")
    assert "#, fuzzy" not in text
    plurals = int(re.search(r"nplurals=(\d)", text)[1])
    _, *entries = parse_entries(text)
    translated = [each for each in entries if any(forms_of(each))]
    problems = {each["msgid"]: problem_of(each, plurals) for each in translated}
    assert {source: problem for source, problem in problems.items() if problem} == {}
    share = len(translated) / len(entries)
    assert share == 1 if code == "de" else share >= OFFERED_FROM
    assert build_catalogue(text, file_of(code)).missing == len(entries) - len(translated)


def test_sentences_are_literals():
    """Babel finds no others: not those of a constant or an f-string."""
    for module, tree in modules().items():
        for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
            name = getattr(call.func, "id", "")
            for argument in call.args[: MARKERS.get(name, 0)]:
                assert isinstance(argument, ast.Constant), f"{module}: {ast.unparse(call)}"
    for path in ROOT.glob("templates/*/*.html"):
        for call in Environment().parse(path.read_text(encoding="utf-8")).find_all(nodes.Call):
            name = getattr(call.node, "name", "")
            for argument in call.args[: MARKERS.get(name, 0)]:
                assert isinstance(argument, nodes.Const), f"{path.name}, line {call.lineno}"
