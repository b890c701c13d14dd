"""Authorization codes as rows of an UNLOGGED table, by their hash.

A crash empties the table, and the standby that replaces a lost primary has none of its rows. So a
code from before is unknown: it can never be used a second time.
"""

import contextlib
import json
import secrets

from model.encoding import decode_record, record_as_dict
from model.errors import CodeSpent, DamagedRecord, NoSuchCode, SaveUnconfirmed, StorageFailed
from model.grant_records import AuthorizationCode
from model.records import now_ms, sha256
from storage.contract import UNKNOWN_CODE, Code, Codes
from storage.maintenance import Cleaning
from storage.postgresql.connections import Database

KEPT = 900_000  # milliseconds: a second use is recognised for so long


class CodeTable(Codes):
    """The authorization codes of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cleaning = Cleaning()

    def add(self, code: str, record: Code) -> None:
        if self._cleaning.is_due():
            oldest = now_ms() - KEPT
            self._database.execute_unlogged("DELETE FROM codes WHERE issued < %s", [oldest])
        values = json.dumps(record_as_dict(record, stored=True), ensure_ascii=False)
        # It may run twice, after a lost connection, and finds its own row then.
        self._database.execute_unlogged(
            "INSERT INTO codes (hash, record, issued) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            [sha256(code), values, now_ms()],
        )

    def read(self, code: str, record_type: type[Code] = AuthorizationCode) -> Code:
        query = "SELECT record, spent_by FROM codes WHERE hash = %s"
        for content, spent_by in self._database.execute(query, [sha256(code)]):
            with contextlib.suppress(DamagedRecord):
                record = decode_record(content, record_type, "codes")
                if spent_by is None:
                    return record
                raise CodeSpent(record)
        raise NoSuchCode(UNKNOWN_CODE)

    def spend(self, code: str, record_type: type[Code] = AuthorizationCode) -> None:
        # The statement may run twice, after a lost connection, and then finds its own mark.
        query = (
            "UPDATE codes SET spent_by = %(mark)s WHERE hash = %(hash)s "
            "AND (spent_by IS NULL OR spent_by = %(mark)s) RETURNING true"
        )
        values = {"mark": secrets.token_urlsafe(12), "hash": sha256(code)}
        try:
            spent = self._database.execute_unlogged(query, values)
        except StorageFailed as error:
            problem = "the database did not confirm this: the code may be used up"
            raise SaveUnconfirmed(problem) from error
        if not spent:
            self.read(code, record_type)  # which raises CodeSpent or NoSuchCode
            raise StorageFailed("an authorization code was restored while it was used")
