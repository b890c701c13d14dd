"""The structure of the code: imports, private names, inheritance, templates, length of modules."""

import ast
import graphlib
import re
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

ROOT = Path(__file__).parent.parent

# A module imports from its own layer or from a lower one. `storage` is two layers: a backend knows
# the contract, and the contract knows no backend (`open_storage` loads it by its name).
LAYERS = [
    {"wsgi", "identity_admin"},
    {"commands", "identity_server"},
    {"pages"},
    {"identity"},
    {"storage.flat_files", "storage.postgresql"},
    {"storage"},
    {"serving"},
]
PACKAGES = {name.partition(".")[0] for layer in LAYERS for name in layer}
FORBIDDEN = {"commands": {"identity_server", "pages"}}  # besides what the layers forbid
BACKENDS = ("storage.flat_files", "storage.postgresql")
HTTP = {"flask", "werkzeug", "itsdangerous", "gunicorn", "click", "http", "identity"}
OTHERS = {"tests", "benchmarks", "examples"}  # not part of the server
MOST_LINES = 400
LINES = {"identity_server": 800}
# What a template may call, besides macros: functions that only format an address.
TEMPLATE_CALLS = {"url_for", "picture_address"}
# Private names that Python itself documents.
DOCUMENTED = {"_exit", "_replace", "_asdict", "_fields"}


def read_modules() -> dict[str, str]:
    """Return the source of every module of the server by its dotted name."""
    paths = [*ROOT.glob("*.py")]
    for package in PACKAGES:
        paths += ROOT.glob(f"{package}/**/*.py")
    return {module_name(path): path.read_text(encoding="utf-8") for path in paths}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = read_modules()


# -- imports ------------------------------------------------------------------------------------


def imported_modules(source: str, modules: set[str]) -> set[str]:
    """Return the modules that a source imports anywhere; submodules by their own names."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in modules else node.module)
    return found


def layer_of(module: str) -> int | None:
    """Return the number of a module's layer, 0 for the highest; None for another library."""
    for number, names in enumerate(LAYERS):
        if any(f"{module}.".startswith(f"{name}.") for name in names):
            # The longest name counts: storage.flat_files is no part of the layer storage.
            return number
    return None


def wrong_imports(module: str, source: str) -> set[str]:
    """Return what this module imports and may not."""
    package = module.partition(".")[0]
    wrong = set()
    for each in imported_modules(source, MODULES.keys() | {module}):
        top, layer = each.partition(".")[0], layer_of(each)
        if layer is not None and layer < layer_of(module):
            wrong.add(each)
        if top in OTHERS | FORBIDDEN.get(package, set()):
            wrong.add(each)
        if package == "storage" and top in HTTP:
            wrong.add(each)
        if package != "storage" and each.startswith(BACKENDS):  # `open_storage` loads them
            wrong.add(each)
    return wrong


def test_imports_lead_to_the_same_layer_or_a_lower_one(subtests):
    for module, source in MODULES.items():
        with subtests.test(module):
            assert wrong_imports(module, source) == set()


@pytest.mark.parametrize(
    "module, source, wrong",
    [
        ("storage.rules", "import flask", {"flask"}),
        ("storage.rules", "def f():\n    from werkzeug.security import x", {"werkzeug.security"}),
        ("storage.transfer", "from storage.flat_files import disk", {"storage.flat_files.disk"}),
        ("storage.flat_files.check", "import identity.sessions as x", {"identity.sessions"}),
        ("identity.sessions", "from pages.games import games", {"pages.games"}),
        ("pages.games", "import storage, identity_server", {"identity_server"}),
        ("commands", "from storage.flat_files import disk", {"storage.flat_files.disk"}),
        ("wsgi", "import storage.postgresql", {"storage.postgresql"}),
        ("commands.players", "import identity_server", {"identity_server"}),
        ("commands.players", "from pages import games", {"pages.games"}),
        ("identity_server", "if x:\n    import wsgi", {"wsgi"}),
        ("identity_server", "from tests import conftest", {"tests"}),
        ("pages.account", "from pages import games\nimport flask, storage.rules", set()),
        ("identity_admin", "import identity.sessions, storage, click, commands", set()),
    ],
)
def test_an_import_of_a_higher_layer_is_found(module, source, wrong):
    assert wrong_imports(module, source) == wrong


def import_circle(modules: dict[str, str]) -> list[str] | None:
    """Return the modules of an import circle, None if there is none."""
    graph = {
        name: imported_modules(source, modules.keys()) & modules.keys() - {name}
        for name, source in modules.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def test_no_imports_form_a_circle():
    assert import_circle(MODULES) is None


def test_an_import_circle_is_found():
    assert import_circle({"a": "import b", "b": "from c import x", "c": "import a"})


def test_every_module_is_in_a_layer():
    assert all(layer_of(module) is not None for module in MODULES)
    assert {"identity_server", "storage", "storage.flat_files.backend"} <= MODULES.keys()


# -- private names and inheritance --------------------------------------------------------------


def foreign_private_names(source: str) -> set[str]:
    """Return the private names that a module uses and does not define itself."""
    used, defined = set(), set(DOCUMENTED)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            is_definition = isinstance(node.ctx, ast.Store) and is_self(node.value)
            (defined if is_definition else used).add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            used.update(alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
    return {name for name in used - defined if re.match("_[^_]", name)}


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_no_module_uses_a_private_name_of_another(subtests):
    for module, source in MODULES.items():
        with subtests.test(module):
            assert foreign_private_names(source) == set()


@pytest.mark.parametrize(
    "source, names",
    [
        ("from storage.keys import _new_key", {"_new_key"}),
        ("store._users", {"_users"}),
        ("class A(B):\n    def f(self):\n        return self._path", {"_path"}),
        ("class A:\n    def f(self):\n        self._x = 1\n        return self._x", set()),
        ("def _f(): ...\n_f()", set()),
        ("x.__class__", set()),
    ],
)
def test_a_private_name_of_another_module_is_found(source, names):
    assert foreign_private_names(source) == names


def test_storage_classes_inherit_from_the_contract_alone(subtests):
    own = {
        node.name
        for module, source in MODULES.items()
        if module.startswith(("storage.flat_files", "storage.postgresql"))
        or module in ("storage.archive", "storage.copying")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    }
    for module, source in MODULES.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                with subtests.test(f"{module}.{node.name}"):
                    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                    assert not bases & own


# -- templates ----------------------------------------------------------------------------------


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


def test_templates_call_nothing_that_reads_or_signs(subtests):
    for path in sorted(ROOT.glob("templates/*")):
        with subtests.test(path.name):
            assert template_calls(path.read_text(encoding="utf-8")) <= TEMPLATE_CALLS


def test_a_call_in_a_template_is_found():
    source = "{% macro m() %}{% endmacro %}{{ m() }}{{ sign(client) }}{{ store.read_user(1) }}"
    assert template_calls(source) == {"sign", "a method"}


# -- length -------------------------------------------------------------------------------------


def test_modules_are_short_enough_to_read(subtests):
    for module, source in MODULES.items():
        with subtests.test(module):
            assert source.count("\n") <= LINES.get(module, MOST_LINES)
