"""The `identity-server` command as an operation for operations.py, for the injection of faults.

The name of an operation is its list of arguments. The output goes to DATA_FOLDER.printed.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import operations
from operations import Installation, prepare

from identity_admin import main


def prepare_run(arguments: list[str], data: str, pictures: str) -> Callable[[], int]:
    """Return a function that runs the command in the forked process and returns its exit status."""

    def run_command() -> int:
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

    return run_command


if __name__ == "__main__":
    sys.stdin.reconfigure(line_buffering=True)
    with tempfile.TemporaryDirectory() as folder:  # a first run imports all modules
        installation = Installation(Path(folder))
        prepare(installation.open())
        if not os.fork():
            os._exit(
                prepare_run(
                    ["check", "--json"], str(installation.data), str(installation.pictures)
                )()
            )
        os.wait()
    operations.serve(sys.stdin, prepare_run)
