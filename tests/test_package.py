"""What setup.cfg installs, and constraints.txt. The built wheel is in tests/live/test_wheel.py."""

import configparser
import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
CONSTRAINTS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def setup_options() -> configparser.SectionProxy:
    """The section `options` of setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup["options"]


def requirements(name: str, extras: set[str]) -> list[Requirement]:
    """What a distribution requires on this Python; nothing where it is not installed."""
    try:
        lines = map(Requirement, requires(name) or [])
    except PackageNotFoundError:
        return []
    return [
        each
        for each in lines
        if each.marker is None
        or any(each.marker.evaluate({"extra": extra}) for extra in extras | {""})
    ]


def required_distributions() -> dict[str, list[Requirement]]:
    """All that the program and its tests need, by normalized name, with what is asked of each."""
    found: dict[str, list[Requirement]] = {}
    waiting = requirements("identity-server", {"test"})
    while waiting:
        each = waiting.pop()
        name = canonicalize_name(each.name)
        if name not in found:
            waiting += requirements(name, set(each.extras))
        found.setdefault(name, []).append(each)
    return found


def test_constraints_name_every_distribution_at_a_version_that_is_allowed(subtests):
    """So that an installation with them is the one that was tested."""
    required = required_distributions()
    assert {"flask", "gunicorn", "pillow", "pytest"} <= required.keys()
    for name, asked in required.items():
        with subtests.test(name):
            assert all(each.specifier.contains(CONSTRAINTS[name]) for each in asked)


def test_dependencies_whose_internals_are_overridden_have_an_upper_bound():
    bounded = {
        Requirement(line).name
        for line in setup_options()["install_requires"].splitlines()
        if re.search("<", line)
    }
    assert {"flask", "werkzeug", "gunicorn"} <= bounded


def test_every_module_and_resource_folder_is_installed():
    options = setup_options()
    modules = {path.stem for path in ROOT.glob("*.py")}
    packages = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for pattern in ("*/__init__.py", "*/*/__init__.py")
        for path in ROOT.glob(pattern)
    }
    assert set(options["py_modules"].split()) == modules
    folders = dict(re.findall(r"^(\S+) = (\S+)$", options["package_dir"], re.MULTILINE))
    resources = {
        str(path.relative_to(ROOT))
        for top in ("templates", "static", "examples")
        for path in [ROOT / top, *(ROOT / top).rglob("*")]
        if path.is_dir() and not {"pfp", "__pycache__"} & set(path.parts)
    }
    assert set(folders.values()) == resources
    ours = {each for each in packages if each.partition(".")[0] not in ("tests", "benchmarks")}
    assert set(options["packages"].split()) == ours | set(folders)
