"""Detects processes that the tests start, with an audit hook."""

import contextlib
import sys
from collections.abc import Iterator

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
started: list[str] = []
sys.addaudithook(lambda event, _: event in STARTS and started.append(event))


@contextlib.contextmanager
def forbid_processes() -> Iterator[None]:
    """Raise AssertionError if a process was started in the block."""
    before = len(started)
    yield
    assert started[before:] == [], "a process was started: the test needs the marker `live`"
