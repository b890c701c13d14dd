"""The signing keys, in the row of the installation."""

from model.errors import BadInstallation
from storage.contract import KEYS_KEPT, Keys, new_key
from storage.postgresql.connections import Database

NO_KEY = "the database has no signing key: restore a backup into an empty one"


class KeyRow(Keys):
    """The signing keys of a database."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    def read(self) -> tuple[bytes, ...]:
        [(texts,)] = self._database.execute("SELECT keys FROM installation")
        if not texts:
            raise BadInstallation(NO_KEY)
        return tuple(text.encode() for text in texts)

    def rotate(self, drop_old: bool) -> None:
        kept = 0 if drop_old else KEYS_KEPT - 1
        query = "UPDATE installation SET keys = keys[cardinality(keys) - %s + 1:] || %s::text"
        with self._database.transaction():
            self._database.save(query, [kept, new_key()])
        self.expire()
