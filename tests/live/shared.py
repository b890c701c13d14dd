"""Resources that are started once per test run, on first use, and closed at its end."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

Started = TypeVar("Started")
STARTED = pytest.StashKey[dict[str, object]]()


def start_once(
    config: pytest.Config, name: str, start: Callable[[], AbstractContextManager[Started]]
) -> Started:
    """Enter the context manager `start()` once per name, and return the same result each time.

    A session-scoped fixture would not do: pytest runs it again in each module that imports it from
    the conftest.py of another folder.
    """
    started = config.stash.setdefault(STARTED, {})
    if name not in started:
        running = start()
        started[name] = running.__enter__()
        config.add_cleanup(lambda: running.__exit__(None, None, None))
    return started[name]
