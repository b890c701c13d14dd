"""What is published of a version: built twice in different folders, it is the same bytes."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from make_release import PIP, build, run
from test_package import CONSTRAINTS

from identity.site.settings import ROOT

pytestmark = [pytest.mark.wheel, pytest.mark.slow]


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone of the commit that is checked out."""
    folder = tmp_path_factory.mktemp("clone") / "of it"
    run("git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", folder)
    return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    """The release of this checkout."""
    return make(Path(ROOT), tmp_path_factory.mktemp("release"), umask=0o022)


def make(checkout: Path, folder: Path, umask: int) -> Path:
    command = [sys.executable, "-m", "tests.make_release", folder / "made"]
    subprocess.run(command, check=True, cwd=checkout, umask=umask, stderr=subprocess.DEVNULL)
    return folder / "made"


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_release_is_the_same_bytes_from_another_folder_and_umask(release, clone, tmp_path):
    again = make(clone, tmp_path, umask=0o077)
    assert contents_of(release) == contents_of(again)
    assert {path.suffix for path in release.iterdir()} == {".gz", ".whl", ".json", ".txt", ""}
    run("sha256sum", "--check", "--strict", "--status", "SHA256SUMS", cwd=release)


def test_wheel_of_a_checkout_is_that_of_the_sdist(release, clone, tmp_path, monkeypatch):
    environment, time = tmp_path / "environment", run("git", "log", "-1", "--format=%ct", cwd=ROOT)
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    run(*PIP, "--python", environment, "install", "-c", clone / "constraints.txt", "setuptools")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", time.strip())
    for path in clone.rglob("*"):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    built = build("wheel", environment, clone, tmp_path)
    assert built.read_bytes() == (release / built.name).read_bytes()


def test_sdist_has_the_files_of_the_repository(release):
    [path] = release.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {each.name.partition("/")[2] for each in sdist if each.isfile()}
    known = set(run("git", "ls-files", cwd=ROOT).splitlines())
    assert {each for each in known if each[0] != "."} <= names
    made = {each for each in names - known if not each.startswith("identity_server.egg-info/")}
    assert made == {"PKG-INFO"}


def test_bill_of_materials_has_the_versions_of_the_constraints(release):
    [path] = release.glob("*.cdx.json")
    bill = json.loads(path.read_text())
    listed = {each["name"]: each for each in bill["components"]}
    assert {name: each["version"] for name, each in listed.items()} == {
        name: CONSTRAINTS[name] for name in listed
    }
    required = {name for name, each in listed.items() if each["scope"] == "required"}
    assert {"flask", "gunicorn", "jinja2", "pillow"} <= required
    assert {"psycopg-binary", "granian"} <= listed.keys() - required and "pytest" not in listed
    assert all(each["licenses"] for each in bill["components"])
    refs = {each["ref"] for each in bill["dependencies"]}
    assert refs == {each["bom-ref"] for each in [*listed.values(), bill["metadata"]["component"]]}
