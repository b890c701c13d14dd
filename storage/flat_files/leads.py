"""Which process does a task that repeats: the one that holds its lock, until it ends."""

import fcntl
import os

from storage.flat_files.layout import Layout


class Leads:
    """The locks of tasks that this process holds."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._held: dict[str, int] = {}  # descriptors by task
        self._folder: int | None = None  # a descriptor, so that its number is given to no other

    def hold(self, task: str) -> bool:
        """Return True if this process holds the lock of a task, from now on at the latest.

        False for ever once another data folder has taken the place of the first one: a server that
        was left over would else do the tasks of an installation that it does not know.
        """
        data_dir = self._layout.data_dir
        if self._folder is None:
            self._folder = os.open(data_dir, os.O_RDONLY | os.O_CLOEXEC)
        if not os.path.samestat(os.fstat(self._folder), os.stat(data_dir)):
            return False
        if task not in self._held:
            path = self._layout.path("locks", task)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            self._held[task] = descriptor
        return True

    def close(self) -> None:
        """Leave the tasks to other processes."""
        for descriptor in (*self._held.values(), self._folder):
            if descriptor is not None:
                os.close(descriptor)
        self._held, self._folder = {}, None
