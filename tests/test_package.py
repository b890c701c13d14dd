"""setup.cfg, constraints.txt and the imports of the command. tests/live/test_wheel.py: a wheel."""

import configparser
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
CONSTRAINTS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def requirements(name: str, extras: set[str]) -> list[Requirement]:
    """Return the requirements of a distribution on this Python, none if it is not installed."""
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
    """Return the requirements of the server and its tests, by normalized distribution name."""
    found: dict[str, list[Requirement]] = {}
    waiting = requirements("identity-server", {"test"})
    while waiting:
        each = waiting.pop()
        name = canonicalize_name(each.name)
        if name not in found or each.extras:
            waiting += requirements(name, set(each.extras))
        if name != "identity-server":  # whose extras name each other
            found.setdefault(name, []).append(each)
    return found


def test_dependencies_are_pinned_and_bounded():
    """An installation with constraints.txt has the tested versions."""
    required = required_distributions()
    assert {"flask", "gunicorn", "pillow", "pytest"} <= required.keys()
    for name, its_requirements in required.items():
        assert all(each.specifier.contains(CONSTRAINTS[name]) for each in its_requirements), name
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = setup["options"]["install_requires"].splitlines()
    bounded = {Requirement(line).name for line in lines if "<" in line}
    assert {"flask", "werkzeug", "gunicorn"} <= bounded


@pytest.mark.live
def test_command_start_imports_no_heavy_library():
    program = (
        "import sys, identity_admin\n"
        "try:\n    identity_admin.identity_server_command(['--help'])\n"
        "except SystemExit:\n    print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: ")
    assert {"click", "storage"} <= set(done.stderr.split())
    heavy = {"PIL", "flask", "werkzeug", "itsdangerous", "gunicorn", "identity_server", "pages"}
    assert heavy.isdisjoint(done.stderr.split())
