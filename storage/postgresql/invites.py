"""Invitations as rows, by their hash. `UserTable.add` removes the one that it uses."""

import secrets

from storage import Invite, now_ms, sha256
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

    def find(self, invite: str) -> Invite | None:
        """As `Storage.find_invite`."""
        query = "SELECT expires FROM invites WHERE hash = %s AND expires > %s"
        rows = self._database.execute(query, [sha256(invite), now_ms()])
        return Invite(*rows[0]) if rows else None
