"""Waiting for other processes and threads."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 60  # seconds: far more than anything here takes, for machines under load


def wait_until(
    condition: Callable[[], object],
    process: subprocess.Popen | None = None,
    message: Callable[[], str] = str,
    meanwhile: Callable[[], object] = lambda: time.sleep(0.01),
) -> None:
    """Return as soon as `condition()` is true; call `meanwhile()` repeatedly until then.

    Raises AssertionError with `message()` after PATIENCE seconds, or if `process` has ended.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline and (not process or process.poll() is None), message()
        meanwhile()


def is_waiting_for_a_lock(pid: int | None = None) -> bool:
    """Return whether a thread of a process, by default of this one, waits for a file's lock."""
    # proc(5): an arrow marks a blocked request.
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(words[1] == "->" and words[5] == str(pid or os.getpid()) for words in waiting)
