"""Packages from npm, for the marked tests that need them."""

import shutil
import subprocess
from pathlib import Path


def install(folder: Path, *packages: str) -> None:
    """Install packages in a folder; without any, those of its package.json."""
    command = [shutil.which("npm"), "install", "--no-audit", "--no-fund", *packages]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
