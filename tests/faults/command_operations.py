"""The `identity-server` command for operations.py, which runs it while faults are injected.

An operation's name is its arguments; what it prints goes to a file beside the two folders.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import operations
from operations import Installation, prepare

from identity_admin import main


def begin(arguments: list[str], data: str, pictures: str) -> Callable[[], int]:
    """What the forked process is to do; it returns the command's exit status."""

    def act() -> int:
        sys.argv[1:] = arguments
        os.environ |= {"IDENTITY_DATA_DIR": data, "IDENTITY_PICTURE_DIR": pictures}
        with open(f"{data}.printed", "w") as printed:
            os.dup2(printed.fileno(), sys.stdout.fileno())
        try:
            main()
        except SystemExit as stopped:
            return stopped.code or 0
        finally:
            sys.stdout.flush()
        return 0

    return act


if __name__ == "__main__":
    sys.stdin.reconfigure(line_buffering=True)
    with tempfile.TemporaryDirectory() as folder:  # all is imported, and has run once
        warm = Installation(Path(folder))
        prepare(warm.open())
        if not os.fork():
            os._exit(begin(["check", "--json"], str(warm.data), str(warm.pictures))())
        os.wait()
    operations.serve(sys.stdin, begin)
