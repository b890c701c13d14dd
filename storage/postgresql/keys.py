"""The signing keys, in the row of the installation."""

import time

from storage.contract import KEYS_KEPT, Keys, new_key
from storage.errors import BadInstallation
from storage.postgresql.connections import Database

BELIEVED = 1.0  # seconds: each signature needs the keys, and they rarely change
NO_KEY = "the database has no signing key: restore a backup into an empty one"


class KeyRow(Keys):
    """The signing keys of a database. Methods raise BadInstallation if there is none."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys: tuple[bytes, ...] = ()
        self._until = 0.0  # time.monotonic()

    def current(self) -> tuple[bytes, ...]:
        started = time.monotonic()
        if started >= self._until:
            [(texts,)] = self._database.execute("SELECT keys FROM installation")
            keys = tuple(text.encode() for text in texts)
            if not keys:
                raise BadInstallation(NO_KEY)
            if keys != self._keys:
                self._keys = keys
            # From before they were read: a rotation since is known in time.
            self._until = started + BELIEVED
        return self._keys

    def rotate(self, drop_old: bool) -> None:
        kept = 0 if drop_old else KEYS_KEPT - 1
        query = "UPDATE installation SET keys = keys[cardinality(keys) - %s + 1:] || %s::text"
        with self._database.transaction():
            self._database.save(query, [kept, new_key()])
        self.expire()

    def expire(self) -> None:
        """Return when no process believes in keys from before this call."""
        self._until = 0.0
        time.sleep(BELIEVED)
