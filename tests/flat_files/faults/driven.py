"""A program of this folder in a child process, controlled by lines on its standard input."""

import os
import subprocess
import sys
from pathlib import Path

from identity.settings import ROOT

FOLDER = Path(__file__).parent


class DrivenProgram:
    """The program, running until the `with` block ends."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, FOLDER / name, *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def send_line(self, line: str) -> None:
        """Send one line."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def read_line(self) -> str:
        """Return the next line of its standard output."""
        return self.process.stdout.readline()
