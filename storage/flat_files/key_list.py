"""The sorted keys of an ordered unique key, such as the names of all players.

The entries in the key's folder are the truth. Each process lists them once, and then follows a log
of the changes of all processes, `names.log`: a line `<key><tab>+` before an entry is written, and
`<key><tab>-` after one was removed. So no key is ever missing in a list; one too many does no harm,
as an entry counts only if its record has the key. The log begins with a line of its own: if that
changes, the entries are listed anew. A power cut may take lines away, and ends all processes that
would have followed them: nothing here is synced. A line that is cut off has no sign and says
nothing. Methods raise OSError.
"""

import bisect
import contextlib
import itertools
import os
import secrets
import threading

from storage.flat_files import disk

HEAD = 33  # bytes of the first line
LONGEST_LOG = 2**20  # bytes: some 50,000 changes
MOST_FOLLOWED = 2**16  # bytes of changes that cost less one by one than a new list


def renew(path: str) -> None:
    """Begin a new log: every process lists the entries anew."""
    disk.write_file(path, secrets.token_hex(HEAD // 2).encode() + b"\n", durable=False)


def note(path: str, key: str, is_there: bool) -> None:
    """Add a line about a key to the log; the caller holds the lock of the kind."""
    with contextlib.suppress(FileNotFoundError):
        if HEAD <= os.stat(path).st_size < LONGEST_LOG:
            with disk.opened(path, os.O_WRONLY | os.O_APPEND) as descriptor:
                # The first line end is for a line that a full disk cut off.
                line = f"\n{key}\t{'+' if is_there else '-'}\n"
                disk.write_all(descriptor, line.encode())
            return
    renew(path)
    note(path, key, is_there)


class KeyList:
    """The sorted keys, as this process knows them."""

    def __init__(self, folder: str, log: str) -> None:
        self._folder = folder
        self._log = log
        self._lock = threading.Lock()
        self._head = b""  # the first line of the log that is followed
        self._end = HEAD  # of the whole lines that were read of it
        self._keys: list[str] = []

    def page(self, part: str, after: str, at_most: int, backwards: bool = False) -> list[str]:
        """Return the first keys that contain `part` and come after `after`.

        With `backwards` the last ones before it, the last one first. All keys may be looked at:
        4 milliseconds for 100,000.
        """
        with self._lock:
            self._follow()
            keys = self._keys
            places = range(bisect.bisect_right(keys, after), len(keys))
            if backwards:
                places = range(bisect.bisect_left(keys, after))[::-1]
            matching = (keys[place] for place in places if part in keys[place])
            return list(itertools.islice(matching, at_most))

    def length(self) -> int:
        """Return how many keys there are."""
        with self._lock:
            self._follow()
            return len(self._keys)

    def _follow(self) -> None:
        """Bring the keys up to date with the log. The caller holds `self._lock`."""
        head, lines, is_known = b"", b"", False
        with contextlib.suppress(FileNotFoundError), disk.open_log(self._log) as log:
            head = log.read(HEAD)
            news = os.fstat(log.fileno()).st_size - self._end
            is_known = head == self._head and 0 <= news < MOST_FOLLOWED
            log.seek(self._end if is_known else HEAD)
            lines = log.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        changes = _changes_in(whole.decode(errors="replace"))
        if is_known:
            self._change(changes)
        else:
            # Listed after the log was read: what changes later is in later lines. An entry of which
            # the log tells may be about to be written.
            keys = {name for name in os.listdir(self._folder) if not name.startswith(".")}
            keys.update(key for key, is_there in changes.items() if is_there)
            self._keys, self._head, self._end = sorted(keys), head, HEAD
        self._end += len(whole)

    def _change(self, changes: dict[str, bool]) -> None:
        """Insert each key that is there, and remove the others. The caller holds `self._lock`."""
        keys = self._keys
        for key, is_there in changes.items():
            place = bisect.bisect_left(keys, key)
            if keys[place : place + 1] == [key]:
                if not is_there:
                    del keys[place]
            elif is_there:
                keys.insert(place, key)


def _changes_in(lines: str) -> dict[str, bool]:
    """Return whether a key is there, as the last line about it says."""
    changes = {}
    for line in lines.split("\n"):
        key, _, sign = line.rpartition("\t")
        if key and sign in ("+", "-"):
            changes[key] = sign == "+"
    return changes
