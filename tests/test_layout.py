"""The structure of the code: what import-linter and ruff do not find, and that they run."""

import ast
import functools
import graphlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest
from jinja2 import Environment, nodes

ROOT = Path(__file__).parent.parent
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
PACKAGES = CONFIGURATION["root_packages"]
# What the modules outside of packages may import of the server.
TOP_LEVEL = {
    "wsgi.py": {"identity", "identity_server"},
    "identity_admin.py": {"commands", "storage", "model"},
    "identity_server.py": {"pages", "identity", "storage", "model"},
}
MOST_LINES = 400
LINES = {"identity_server.py": 800}
# What a template may call, besides macros: their `caller`, functions that format an address, and
# the name of the site, which macros need too; it is read once for a request.
TEMPLATE_CALLS = {"caller", "url_for", "picture_address", "cover_address", "site_name"}
TEMPLATE_CALLS |= {"_", "ngettext", "pgettext"}  # sentences


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Return the modules of the server, by their paths in the project."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for pattern in ("*.py", *(f"{package}/**/*.py" for package in PACKAGES))
        for path in ROOT.glob(pattern)
    }


def run(program: str, *arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess:
    command = [Path(sys.executable).with_name(program), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.live
def test_linters_find_nothing(subtests):
    for command in (["lint-imports", "--no-cache"], ["ruff", "check", "--no-cache"]):
        with subtests.test(command[0]):
            done = run(*command)
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.live
def test_each_contract_of_imports_finds_a_wrong_import(tmp_path: Path):
    """Negative control."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, line in (
        ("identity/http/signing.py", "import pages.community.games"),
        ("pages/kit/forms.py", "import pages.admin.desk"),
        ("identity/acts/apps.py", "def f():\n    import identity.access.links"),
        ("commands/players.py", "def f():\n    import identity_server"),
        ("pages/community/games.py", "if x:\n    from serving import access_log"),
        ("model/rules.py", "from werkzeug.security import x"),
        ("storage/maintenance.py", "import storage.whole.archive"),
        ("storage/whole/transfer.py", "from storage.flat_files import backend"),
    ):
        with (tmp_path / module).open("a") as file:
            file.write(f"\n{line}\n")
    done = run("lint-imports", "--no-cache", folder=tmp_path)
    assert f"{len(CONFIGURATION['contracts'])} broken" in done.stdout


def test_no_imports_form_a_circle():
    """The contract acyclic_siblings would not find a circle through a package's __init__.py."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError


def test_each_package_names_its_modules():
    """A stranger finds the module by the docstring of its package."""
    for init in (each for each in modules() if each.endswith("__init__.py")):
        folder = (ROOT / init).parent
        parts = {each.name.removesuffix(".py") for each in folder.glob("[a-z]*.py")}
        parts |= {each.parent.name for each in folder.glob("*/__init__.py")}
        named = re.findall(r"`(\w+)(?:\.\w+)?`", ast.get_docstring(modules()[init]))
        assert parts <= set(named), init


def imported_names(tree: ast.Module) -> list[str]:
    """Return the modules that a module imports anywhere, and the names that it imports of them."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def test_modules_import_no_private_name_and_top_level_ones_from_lower_layers_only(subtests):
    """Ruff's SLF001 finds private names that are used as attributes."""
    own = {*PACKAGES, "tests", "benchmarks", "examples", *(Path(each).stem for each in TOP_LEVEL)}
    assert {each for each in modules() if "/" not in each} == TOP_LEVEL.keys()
    for module, allowed in TOP_LEVEL.items():
        names = imported_names(modules()[module])
        with subtests.test(module):
            assert {each.partition(".")[0] for each in names} & own <= allowed
            assert not [each for each in names if each.startswith(("storage.flat", "storage.post"))]
    for module, tree in modules().items():
        private = [each for each in imported_names(tree) if "._" in each.replace("__", "")]
        assert private == [], module


def test_storage_classes_inherit_from_the_contract():
    """A part for one kind of records is besides the class that keeps the records of any kind."""
    inside = ("storage/flat_files", "storage/postgresql", "storage/archive", "storage/copying")
    classes = {
        module: [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for module, tree in modules().items()
    }
    own = {each.name for module in classes if module.startswith(inside) for each in classes[module]}
    for each in sum(classes.values(), []):
        bases = {ast.unparse(base).rpartition(".")[2] for base in each.bases}
        assert not bases & own - {"RecordFiles", "RecordTable"}, each.name


def template_calls(source: str) -> set[str]:
    """Return the names of the functions that a template calls, without its macros."""
    tree = Environment().parse(source)
    macros = {each.name for each in tree.find_all(nodes.Macro)}
    for each in tree.find_all(nodes.FromImport):
        macros.update(name if isinstance(name, str) else name[1] for name in each.names)
    called = {
        each.node.name if isinstance(each.node, nodes.Name) else "a method"
        for each in tree.find_all(nodes.Call)
    }
    return called - macros


def test_templates_call_nothing_that_reads_or_signs():
    wrong = "{% macro m() %}{% endmacro %}{{ m() }}{{ sign(client) }}{{ store.users.read(1) }}"
    assert template_calls(wrong) == {"sign", "a method"}
    for path in ROOT.glob("templates/*/*"):
        assert template_calls(path.read_text(encoding="utf-8")) <= TEMPLATE_CALLS, path.name


def test_modules_are_short_enough_to_read():
    for module in modules():
        lines = (ROOT / module).read_text(encoding="utf-8").count("\n")
        assert lines <= LINES.get(module, MOST_LINES), module
