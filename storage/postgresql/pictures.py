"""Profile pictures as rows: what players uploaded. Others are generated when they are read."""

from model.errors import NoSuchPicture
from model.kinds import USERS
from model.records import PICTURE_SIZES, User, now_ms
from model.rules import PICTURE_FILE
from storage.contract import Pictures
from storage.maintenance import ignore
from storage.postgresql.connections import Database
from storage.postgresql.record_table import RecordTable
from storage.repositories import Before, Images

COLUMNS = ["user_id", "pfp_timestamp", "written", *PICTURE_SIZES]
SAVE = (
    f"INSERT INTO pictures ({', '.join(COLUMNS)}) VALUES (%s, %s, %s, %s, %s, %s) "
    "ON CONFLICT (user_id) DO UPDATE SET "
    + ", ".join(f"{each} = excluded.{each}" for each in COLUMNS)
)


def row_of_pictures(user: User, images: Images) -> list:
    """Return the row of a user's pictures, in the order of COLUMNS."""
    return [user.id, user.pfp_timestamp, now_ms(), *(images[size] for size in PICTURE_SIZES)]


class PictureTable(Pictures):
    """The pictures in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._users = RecordTable(database, USERS)

    def save(self, user_id: int, images: Images | None, before: Before[User] = ignore) -> int:
        with self._users.locked(user_id) as user:
            before(user)
            self.replace(user, images)
        return user.pfp_timestamp

    def replace(self, user: User, images: Images | None) -> None:
        """Replace a user's pictures, None for the generated one; the caller has locked the row."""
        user.pfp_timestamp = max(now_ms(), (user.pfp_timestamp or 0) + 1)
        user.pfp_generated = images is None
        self._users.save(user)
        if images:
            self.write(user, images)
        else:
            self._database.save("DELETE FROM pictures WHERE user_id = %s", [user.id])

    def write(self, user: User, images: Images) -> None:
        """Save the pictures of a user, which have the timestamp of the record."""
        self._database.save(SAVE, row_of_pictures(user, images))

    def read(self, size: str, file_name: str) -> tuple[bytes, float]:
        match = PICTURE_FILE.fullmatch(file_name)
        missing = NoSuchPicture(f"there is no picture {size}/{file_name}")
        if not match or size not in PICTURE_SIZES:
            raise missing
        rows = self._database.execute(
            f"SELECT (record ->> 'pfp_timestamp')::bigint, (record ->> 'created')::bigint, "
            f"pictures.pfp_timestamp, written, {size} "
            "FROM users LEFT JOIN pictures ON user_id = id WHERE id = %s",
            [int(match[1])],
        )
        asked = int(match[2][1:]) if match[2] else None
        if not rows or rows[0][0] != asked:
            raise missing
        _, created, timestamp, written, content = rows[0]
        if content is None:
            return self.generated(int(match[1]), size), (asked or created) / 1000
        if timestamp != asked:
            raise missing
        return content, written / 1000
