"""Profile pictures as rows: what players uploaded. Others are generated when they are read."""

import functools

import storage
from storage import PICTURE_SIZES, Images, User
from storage.postgresql.connections import Database

GENERATED_CACHED = 256  # users: about 1 KiB each
SAVE = """
INSERT INTO pictures (user_id, pfp_timestamp, written, large, medium, small)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (user_id) DO UPDATE SET (pfp_timestamp, written, large, medium, small)
= (excluded.pfp_timestamp, excluded.written, excluded.large, excluded.medium, excluded.small)
"""


class PictureTable:
    """The pictures in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, user: User, images: Images) -> None:
        """Save the pictures of a user, which have the timestamp of the record."""
        files = [images[size] for size in ("large", "medium", "small")]
        values = [user.id, user.pfp_timestamp, storage.now_ms(), *files]
        self._database.save(SAVE, values)

    def read(self, size: str, file_name: str) -> tuple[bytes, float]:
        """As `Storage.read_picture`."""
        match = storage.PICTURE_FILE.fullmatch(file_name)
        missing = storage.NoSuchPicture(f"there is no picture {size}/{file_name}")
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
            return generated_picture(int(match[1]))[size], (asked or created) / 1000
        if timestamp != asked:
            raise missing
        return content, written / 1000


@functools.lru_cache(maxsize=GENERATED_CACHED)
def generated_picture(user_id: int) -> Images:
    """Return the picture of a user without another one, by size."""
    from storage.pictures import generate_picture  # Pillow: memory a worker may not need

    return generate_picture(user_id)
