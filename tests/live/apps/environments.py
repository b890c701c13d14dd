"""Environments of real programs, made at the first use and kept beside the checkout, in .apps/."""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from programs import ROOT

from .. import npm

APPS = ROOT / ".apps"


def python_environment(name: str, *requirements: str) -> Path:
    """Return the folder of a virtual environment with these packages, as pip names them."""

    def make(folder: Path) -> None:
        for command in (
            [sys.executable, "-m", "venv", folder],
            [folder / "bin/pip", "install", "--quiet", *requirements],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

    return kept_folder(name, requirements, make)


def npm_environment(name: str, *packages: str) -> Path:
    """Return a folder with these packages in node_modules, as npm names them."""

    def make(folder: Path) -> None:
        folder.mkdir()
        # npm would use a package.json of a parent folder; its scripts are modules.
        (folder / "package.json").write_text('{"type": "module"}\n')
        npm.install(folder, *packages)

    return kept_folder(name, packages, make)


def kept_folder(name: str, requirements: tuple[str, ...], make: Callable[[Path], None]) -> Path:
    """Return the folder .apps/<name>; make it anew with `make(folder)` if the requirements changed.

    The file `requirements` in it lists what it was made with. A lock makes other processes wait.
    """
    folder = APPS / name
    made_with, wanted = folder / "requirements", "\n".join(requirements)
    APPS.mkdir(exist_ok=True)
    with (APPS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made_with.exists() or made_with.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            made_with.write_text(wanted)
    return folder
