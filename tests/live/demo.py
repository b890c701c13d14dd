"""`identity-server demo` in a process of its own."""

import os
import re
import runpy
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from identity.site.settings import ROOT

from .running import COMMAND, STOP_TIMEOUT

EXAMPLE = runpy.run_path(f"{ROOT}/examples/demo")  # what examples/demo/__main__.py defines


class Demo:
    """The demo on free loopback ports, with a folder of its own for temporary files."""

    def __init__(
        self,
        folder: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        arguments: Sequence[str] = (),
        **environment: str,
    ) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.errors = folder / "errors"
        self.output = ""
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, "demo", "--bind", f"{host}:{port}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"TMPDIR": str(self.temporary)} | environment,
                cwd=ROOT,
                text=True,
                start_new_session=True,
            )

    def read_until(self, words: str) -> None:
        """Read its output until these words."""
        while words not in self.output:
            line = self.process.stdout.readline()
            assert line, f"it ended: {self.output}{self.errors.read_text()}"
            self.output += line

    def start(self) -> None:
        """Wait until it has printed all addresses."""
        self.read_until("Ctrl-C ends it")
        printed = re.findall(r"^  .*? {2,}(http://\S+?)/?(?: |$)", self.output, re.MULTILINE)
        self.site, self.play, self.web_app, self.letters = printed

    def press_ctrl_c(self) -> None:
        """Send SIGINT to its process group, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> int:
        """Wait for its end. Return the exit status."""
        self.output += self.process.communicate(timeout=2 * STOP_TIMEOUT)[0]
        return self.process.returncode

    def processes(self) -> list[int]:
        """Return the ids of all its processes, in any process group."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(") ")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            if int(fields[3]) == self.process.pid and fields[0] != "Z":  # session, state: proc(5)
                found.append(int(stat.parent.name))
        return found

    def kill(self) -> None:
        """Kill its remaining processes, after a failed test."""
        for each in self.processes():
            os.kill(each, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
