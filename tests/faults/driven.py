"""A program of this folder in a process of its own, which does what each line tells it."""

import os
import subprocess
import sys
from pathlib import Path

from identity.settings import ROOT

FOLDER = Path(__file__).parent


class DrivenProgram:
    """The program at work until the `with` block ends; `command` stands before it, to trace it."""

    def __init__(self, name: str, *arguments: str, command: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*command, sys.executable, FOLDER / name, *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def tell(self, line: str) -> None:
        """Send one line."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """The next line that it prints."""
        return self.process.stdout.readline()
