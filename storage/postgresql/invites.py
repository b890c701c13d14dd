"""Invitations as rows, by their hash. `UserTable.add` removes the one that it uses."""

import secrets

from storage import now_ms, sha256
from storage.postgresql.connections import Database

DAY_MS = 86_400_000


class InviteTable:
    """The invitations of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def issue(self, days: int) -> str:
        """As `Storage.issue_invite`."""
        invite = secrets.token_urlsafe(32)
        values = [sha256(invite), now_ms() + days * DAY_MS]
        with self._database.transaction():
            self._database.save("INSERT INTO invites (hash, expires) VALUES (%s, %s)", values)
        return invite

    def is_good(self, invite: str) -> bool:
        """As `Storage.is_good_invite`."""
        query = "SELECT true FROM invites WHERE hash = %s AND expires > %s"
        return bool(self._database.execute(query, [sha256(invite), now_ms()]))
