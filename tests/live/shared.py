"""What is started once in a test run, when the first test needs it, and ended with the run."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

Started = TypeVar("Started")
STARTED = pytest.StashKey[dict[str, object]]()


def start_once(
    config: pytest.Config, name: str, start: Callable[[], AbstractContextManager[Started]]
) -> Started:
    """What `start()` enters, the same for everybody who asks for this name.

    A session-scoped fixture is another one in each module that takes it over from a conftest.py
    which is not its own.
    """
    started = config.stash.setdefault(STARTED, {})
    if name not in started:
        running = start()
        started[name] = running.__enter__()
        config.add_cleanup(lambda: running.__exit__(None, None, None))
    return started[name]
