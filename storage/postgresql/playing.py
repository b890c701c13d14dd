"""Who plays now, as rows of an UNLOGGED table: one for each player."""

from model.records import now_ms
from storage.contract import PLAYING_KEPT, PLAYING_LISTED, Playing
from storage.maintenance import Cleaning
from storage.postgresql.connections import Database


class PlayingTable(Playing):
    """The rows of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cleaning = Cleaning()

    def put(self, user_id: int, game: str | None) -> None:
        if self._cleaning.is_due():
            self._database.execute_unlogged("DELETE FROM playing WHERE at < %s", [_oldest()])
        self._database.execute_unlogged(
            "INSERT INTO playing (user_id, game, at) VALUES (%s, %s, %s) "
            "ON CONFLICT (user_id) DO UPDATE SET game = excluded.game, at = excluded.at",
            [user_id, game, now_ms()],
        )

    def read(self) -> dict[int, str | None]:
        query = "SELECT user_id, game FROM playing WHERE at >= %s ORDER BY at DESC LIMIT %s"
        return dict(self._database.execute(query, [_oldest(), PLAYING_LISTED]))


def _oldest() -> int:
    """Return the time of a heartbeat from which somebody still plays."""
    return now_ms() - PLAYING_KEPT * 1000
