"""Build what is published of the commit that is checked out; twice gives the same bytes.

    python -m tests.make_release FOLDER    fills a new folder

It gets an sdist, the wheel that is built from it, constraints.txt, a bill of materials (CycloneDX)
of the packages that come by it with the extra `all`, and SHA256SUMS. Every time is that of the
commit; the modes and the order of files are fixed, and so is the version of setuptools.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
OWN = "identity-server"
PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
TAR = ["tar", "--no-same-owner", "--no-same-permissions"]
# An sdist of setuptools has the times of now, and the names of this machine's users.
PACK = [*TAR, "--create", "--format=ustar", "--sort=name", "--owner=0", "--group=0"]
PACK += ["--numeric-owner", "--use-compress-program=gzip --best --no-name"]


def run(*command: str | Path, **options) -> str:
    """Run a program, which must succeed; return what it prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def make_release(folder: Path) -> None:
    """Fill a new folder with what is published. Raises CalledProcessError."""
    folder.mkdir()
    os.umask(0o022)
    time = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()  # seconds since 1970
    os.environ |= {"SOURCE_DATE_EPOCH": time, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    with tempfile.TemporaryDirectory() as temporary:
        source, environment = Path(temporary, "source"), Path(temporary, "environment")
        source.mkdir()
        run("git", "archive", "--output", f"{source}.tar", "HEAD", cwd=ROOT)
        run(*TAR, "--extract", f"--file={source}.tar", cwd=source)
        shutil.copy(source / "constraints.txt", folder)
        run(sys.executable, "-m", "venv", "--without-pip", environment)
        install = [*PIP, "--python", environment, "install", "--no-compile"]
        install += ["--constraint", source / "constraints.txt"]
        run(*install, "setuptools")
        built = build("sdist", environment, source, Path(temporary))
        run(*TAR, "--extract", f"--file={built}", cwd=temporary)
        unpacked = Path(temporary, built.name.removesuffix(".tar.gz"))
        sdist = folder / built.name
        run(*PACK, f"--mtime=@{time}", f"--file={sdist}", unpacked.name, cwd=temporary)
        wheel = build("wheel", environment, unpacked, folder)
        run(*install, f"{wheel}[all]")
        [packages] = environment.glob("lib/python*/site-packages")
        bill = bill_of_materials(packages, datetime.fromtimestamp(int(time), UTC))
    bill_file = folder / f"{unpacked.name}.cdx.json"
    bill_file.write_text(json.dumps(bill, indent=2) + "\n")
    sums = {path.name: hashlib.sha256(path.read_bytes()) for path in sorted(folder.iterdir())}
    lines = [f"{each.hexdigest()}  {name}\n" for name, each in sums.items()]
    (folder / "SHA256SUMS").write_text("".join(lines))


def build(what: str, environment: Path, source: Path, folder: Path) -> Path:
    """Build an "sdist" or a "wheel" in a folder, with an environment's setuptools."""
    program = f"from setuptools import build_meta; build_meta.build_{what}({str(folder)!r})"
    before = {*folder.iterdir()}
    run(environment / "bin" / "python", "-c", program, cwd=source)
    [built] = {*folder.iterdir()} - before
    return built


def bill_of_materials(packages: Path, time: datetime) -> dict:
    """Return what an installation of this server has, by CycloneDX 1.6.

    Packages that come with an extra alone are optional.
    """
    found = {canonicalize_name(each.name): each for each in distributions(path=[str(packages)])}
    graph = {name: needs_of(each, all_extras=True) & {*found} for name, each in found.items()}
    graph[OWN].discard(OWN)  # the extra `all`
    required = reachable({**graph, OWN: needs_of(found[OWN], all_extras=False)})
    refs = {name: f"pkg:pypi/{name}@{each.version}" for name, each in found.items()}

    def component(name: str) -> dict:
        data = found[name].metadata
        expression, classifiers = data["License-Expression"], data.get_all("Classifier", [])
        names = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License")]
        licences = [{"license": {"name": each}} for each in names or [data["License"]]]
        return {
            "type": "application" if name == OWN else "library",
            "bom-ref": refs[name],
            "name": name,
            "version": found[name].version,
            "scope": "required" if name in required else "optional",
            "licenses": [{"expression": expression}] if expression else licences,
            "purl": refs[name],
        }

    names = sorted(reachable(graph))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": time.isoformat(), "component": component(OWN)},
        "components": [component(name) for name in names if name != OWN],
        "dependencies": [
            {"ref": refs[name], "dependsOn": [refs[each] for each in sorted(graph[name])]}
            for name in names
        ],
    }


def needs_of(package: Distribution, all_extras: bool) -> set[str]:
    """Return the names of the packages that one needs on this Python."""
    extras = ["", *(package.metadata.get_all("Provides-Extra", []) if all_extras else [])]
    return {
        canonicalize_name(each.name)
        for each in map(Requirement, package.requires or [])
        if not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in extras)
    }


def reachable(graph: dict[str, set[str]]) -> set[str]:
    """Return the names that this server leads to in a graph, with its own."""
    found, waiting = set(), {OWN}
    while waiting:
        found |= waiting
        waiting = set().union(*(graph[name] for name in waiting)) - found
    return found


if __name__ == "__main__":
    make_release(Path(sys.argv[1]).resolve())
