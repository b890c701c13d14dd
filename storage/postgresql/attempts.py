"""Counts of attempts as rows of an UNLOGGED table: one for each subject and window of time.

A count is the sum over this window and the previous one. A crash of the database resets all.
"""

import hmac
import time

from model.errors import TooManyAttempts
from model.records import Attempt
from storage.contract import ATTEMPTS_WINDOW, Attempts, Keys
from storage.maintenance import Cleaning
from storage.postgresql.connections import Database

# One statement: of racing attempts each sees the count that the one before has left.
COUNT = """
INSERT INTO attempts AS now (subject, number, count, expires)
SELECT %(subject)s, %(number)s, 1, %(expires)s WHERE %(limit)s > {before}
ON CONFLICT (subject, number) DO UPDATE SET count = now.count + 1
WHERE now.count + {before} < %(limit)s
RETURNING true
""".format(
    before="coalesce((SELECT count FROM attempts AS before WHERE before.subject = %(subject)s "
    "AND before.number = %(number)s - 1), 0)"
)


class AttemptTable(Attempts):
    """The counts in a database."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self._database = database
        self._keys = keys
        self._cleaning = Cleaning()

    def count(self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW) -> Attempt:
        if self._cleaning.is_due():
            query = "DELETE FROM attempts WHERE expires < %s"
            self._database.execute_unlogged(query, [int(time.time())])
        key, number = self._key(kind, subject, window), int(time.time()) // window
        values = {"subject": key, "number": number, "limit": limit}
        values["expires"] = (number + 2) * window
        if not self._database.execute_unlogged(COUNT, values):
            self._require_below_limit(key, number, limit, window)
            raise TooManyAttempts(1)  # one was given back just now
        return Attempt(f"{number}:{key.hex()}")

    def require_left(
        self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW
    ) -> None:
        number = int(time.time()) // window
        self._require_below_limit(self._key(kind, subject, window), number, limit, window)

    def refund(self, attempt: Attempt) -> None:
        number, _, key = attempt.place.partition(":")
        query = (
            "UPDATE attempts SET count = count - 1 WHERE subject = %s AND number = %s AND count > 0"
        )
        self._database.execute_unlogged(query, [bytes.fromhex(key), int(number)])

    def clear(self, kind: str, subject: str, window: int = ATTEMPTS_WINDOW) -> None:
        query = "DELETE FROM attempts WHERE subject = %s"
        self._database.execute_unlogged(query, [self._key(kind, subject, window)])

    def _key(self, kind: str, subject: str, window: int) -> bytes:
        # Keyed: the table tells nobody whose password was guessed, or from where.
        key = self._keys.current()[-1]
        return hmac.digest(key, f"{window}:{kind}:{subject}".encode(), "sha256")

    def _require_below_limit(self, key: bytes, number: int, limit: int, window: int) -> None:
        query = "SELECT number, count FROM attempts WHERE subject = %s AND number IN (%s, %s)"
        counts = dict(self._database.execute(query, [key, number, number - 1]))
        self.require_below(limit, counts.get(number, 0), counts.get(number - 1, 0), window)
