"""Sessions of libraries in other languages, each in a process of its own.

A driver is a program for one library. Its argument is the configuration as JSON. A line of its
standard input is a call, `["exchange", "https://..."]`, and a line of its standard output the
answer, either `{"result": ...}` or `{"error": "..."}`.
"""

import json
import os
import select
import subprocess
from pathlib import Path

from waiting import PATIENCE

from .session import Configuration, LibraryError


class DriverSession:
    """A session of a library, in a driver; `folder` is one of its own."""

    def __init__(self, command: list[str | Path], configuration: Configuration, folder: Path):
        opened = folder / "opened"
        os.mkfifo(opened)  # between the browser that a native app opens and its driver
        programs = Path(command[-1]).parent  # with xdg-open
        self._process = subprocess.Popen(
            [*command, json.dumps(configuration)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OPENED": str(opened), "PATH": f"{programs}:{os.environ['PATH']}"},
            text=True,
        )

    def authorize(self) -> str:
        return self._call("authorize")

    def exchange(self, callback: str) -> list:
        return self._call("exchange", callback)

    def refresh(self) -> list:
        return self._call("refresh")

    def introspect(self) -> dict:
        return self._call("introspect")

    def revoke(self) -> None:
        self._call("revoke")

    def start_on_device(self) -> list[str]:
        """Start the flow of RFC 8628; return the user code, and where it is typed."""
        return self._call("start_on_device")

    def poll(self) -> list:
        """Poll until the player has decided; return what `exchange` does."""
        return self._call("poll")

    def whois(self) -> dict:
        return self._call("whois")

    def close(self) -> None:
        """End the driver."""
        self._process.kill()
        self._process.communicate()

    def _call(self, *call: str) -> object:
        print(json.dumps(call), file=self._process.stdin, flush=True)
        # Nothing else is in the buffer: each call has one answer.
        answered, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert answered, f"no answer to {call[0]}"
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise LibraryError(answer["error"])
        return answer.get("result")  # JSON leaves undefined out
