"""`identity-server demo` as a newcomer runs it: a process with a terminal's worth of output."""

import os
import re
import runpy
import signal
import subprocess
from pathlib import Path

from identity.settings import ROOT

from .running import COMMAND, STOP_TIMEOUT

EXAMPLE = runpy.run_path(f"{ROOT}/examples/demo")  # what examples/demo/__main__.py defines


class Demo:
    """The demo on free loopback ports, with a folder of its own for temporary files."""

    def __init__(
        self, folder: Path, host: str = "127.0.0.1", port: int = 0, **environment: str
    ) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.errors = folder / "errors"
        self.said = ""
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, "demo", "--bind", f"{host}:{port}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"TMPDIR": str(self.temporary)} | environment,
                cwd=ROOT,
                text=True,
                start_new_session=True,
            )

    def listen_for(self, words: str) -> None:
        """Read what it says, until it said this."""
        while words not in self.said:
            line = self.process.stdout.readline()
            assert line, f"it ended: {self.said}{self.errors.read_text()}"
            self.said += line

    def start(self) -> None:
        """Wait until all of it is there."""
        self.listen_for("Ctrl-C ends it")
        self.site = self._address("the community")
        self.play = self._address("the Space Game")
        self.web_app = self._address("a web app")

    def _address(self, name: str) -> str:
        return re.search(rf"^  {name} +(\S+?)/?( .*)?$", self.said, re.MULTILINE)[1]

    def press_ctrl_c(self) -> None:
        """What a terminal sends: a signal to each process of the group in front."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> int:
        """The exit status."""
        self.said += self.process.communicate(timeout=2 * STOP_TIMEOUT)[0]
        return self.process.returncode

    def processes(self) -> list[int]:
        """The ids of all processes that were started since, in whatever group they are."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(") ")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
            if int(fields[3]) == self.process.pid and fields[0] != "Z":  # session, state: proc(5)
                found.append(int(stat.parent.name))
        return found

    def kill(self) -> None:
        """End whatever is left of it, for a test that failed."""
        for each in self.processes():
            os.kill(each, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
