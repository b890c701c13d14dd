"""Waiting for what another process or thread is about to do."""

import subprocess
import time
from collections.abc import Callable

PATIENCE = 60  # seconds: nothing here takes more than a few, but a machine may be busy


def wait_until(
    true: Callable[[], object],
    process: subprocess.Popen | None = None,
    told: Callable[[], str] = str,
    meanwhile: Callable[[], object] = lambda: time.sleep(0.01),
) -> None:
    """Return as soon as `true()` is; until then `meanwhile()` is done again and again.

    AssertionError: it is not within a minute, or the process that it waits for has ended; with what
    was `told` meanwhile.
    """
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline and (not process or process.poll() is None), told()
        meanwhile()
