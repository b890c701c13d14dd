"""Where things live: which module may import which, how long they are, what is installed."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# An import leads from a module to one further down, never up or sideways.
ORDER = [
    {"wsgi", "identity_admin"},
    {"commands"},
    {"identity_server"},
    {"pages"},
    {"identity"},
    {"storage"},
]
RANKS = {name: rank for rank, names in enumerate(ORDER) for name in names}
HTTP = {"flask", "werkzeug", "itsdangerous", "gunicorn", "click", "http"}

OTHERS = {"tests", "benchmarks", "examples"}  # no part of the server
LONGEST = {"identity_server": 800}  # lines; other modules:
LONG = 550


def modules() -> dict[str, str]:
    """The source of every module of the server, by its path without `.py`."""
    paths = [*ROOT.glob("*.py"), *(path for name in RANKS for path in ROOT.glob(f"{name}/**/*.py"))]
    return {
        str(path.relative_to(ROOT).with_suffix("")): path.read_text(encoding="utf-8")
        for path in paths
    }


MODULES = modules()


def imported_packages(source: str) -> set[str]:
    """The first names of what a module imports, wherever the import stands in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they lead"
            found.add(node.module.partition(".")[0])
    return found


def wrong_imports(module: str, source: str) -> set[str]:
    """What this module imports and may not."""
    package = module.partition("/")[0]
    allowed = {name for name, rank in RANKS.items() if rank > RANKS[package]} | {package}
    imported = imported_packages(source)
    wrong = imported & (RANKS.keys() | OTHERS) - allowed
    return wrong | (imported & HTTP if package == "storage" else set())


def test_imports_run_one_way(subtests):
    for module, source in MODULES.items():
        with subtests.test(module):
            assert wrong_imports(module, source) == set()


@pytest.mark.parametrize(
    "module, source, wrong",
    [
        ("storage/flat_files/disk", "import flask", {"flask"}),
        ("storage/flat_files/disk", "def f():\n    from werkzeug.security import x", {"werkzeug"}),
        ("storage/check", "import identity.sessions as x", {"identity"}),
        ("identity/sessions", "from pages.games import games", {"pages"}),
        ("pages/games", "import storage, identity_server", {"identity_server"}),
        ("identity_server", "if x:\n    import wsgi", {"wsgi"}),
        ("wsgi", "import identity_admin", {"identity_admin"}),
        ("identity_server", "from tests import conftest", {"tests"}),
        ("pages/account", "from pages import games\nimport flask, storage.flat_files.disk", set()),
        ("identity_admin", "import identity_server, identity.sessions, storage, click", set()),
    ],
)
def test_an_import_the_wrong_way_would_be_found(module, source, wrong):
    assert wrong_imports(module, source) == wrong


def test_the_order_names_every_module():
    """Else a new module could import what it liked."""
    assert {module.partition("/")[0] for module in MODULES} <= RANKS.keys()
    assert {"identity_server", "storage/__init__", "storage/flat_files/backend"} <= MODULES.keys()


def test_a_module_is_short_enough_to_be_read(subtests):
    for module, source in MODULES.items():
        with subtests.test(module):
            assert source.count("\n") < LONGEST.get(module, LONG)
