"""What `check` finds wrong with users, clients and their pictures, a row at a time.

A repair saves what follows from the record. It is called in a transaction that has locked the row.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import storage
from storage import CLIENT_ID, PICTURE_SIZES, Client, DamagedRecord, User, drop_hidden, now_ms
from storage.maintenance import check_picture, has_picture_time, problems_in_record
from storage.postgresql import clients, users
from storage.postgresql.connections import Database
from storage.postgresql.pictures import PictureTable
from storage.postgresql.snapshot import problems_with_pictures
from storage.rules import USER_IDS_END


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a row."""

    place: str
    problem: str  # continues a sentence that begins with the place
    repair: Callable[[], str] | None = None  # repairs the row, and returns what was done


Findings = Iterator[Finding]


class RowCheck:
    """The check of single rows; each method gets the columns of its query in `check`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pictures = PictureTable(database)

    def look_at_user(self, user_id: int, record: bytes, *columns: object) -> Findings:
        place, keys, picture = f"users/{user_id}", columns[:3], columns[3:]
        yield from _look_at_id(place, user_id)
        try:
            user = users.decode_user(user_id, record)
        except DamagedRecord as error:
            yield Finding(place, f"is damaged: {error.problem}")
            return
        save = functools.partial(self._save_user, user)
        yield from _look_at_record(place, user, keys, users.keys_of(user), save)
        if user.bio != drop_hidden(user.bio):
            problem = "has characters in its bio that show nothing or turn other text"
            yield Finding(place, problem, functools.partial(self._drop_hidden, user))
        yield from self._look_at_pictures(place, user, *picture)

    def look_at_deleted(self, user_id: int, exists: bool) -> Findings:
        place = f"deleted_users/{user_id}"
        yield from _look_at_id(place, user_id)
        if exists:
            forget = functools.partial(self._forget_deletion, user_id)
            yield Finding(place, f"says that users/{user_id}, which exists, was deleted", forget)

    def look_at_client(self, client_id: str, record: bytes, *columns: object) -> Findings:
        place = f"clients/{client_id}"
        if not CLIENT_ID.fullmatch(client_id):
            yield Finding(f"clients/{client_id!r}", "has an id that no client has")
            return
        try:
            client = clients.decode_client(client_id, record)
        except DamagedRecord as error:
            yield Finding(place, f"is damaged: {error.problem}")
            return
        save = functools.partial(self._save_client, client)
        yield from _look_at_record(place, client, columns, clients.keys_of(client), save)

    def _look_at_pictures(
        self, place: str, user: User, has_row: bool, timestamp: int | None, *content: bytes | None
    ) -> Findings:
        pictures = dict(zip(PICTURE_SIZES, content, strict=True)) if has_row else {}
        # One repair is enough for all three.
        remake = functools.cache(functools.partial(self._remake_pictures, user, pictures))
        if not has_picture_time(user):
            yield Finding(place, "pfp_timestamp is not a time", remake)
        elif has_row:
            for problem in problems_with_pictures(user, timestamp, pictures):
                yield Finding(f"pictures/{user.id}", problem, remake)

    # -- repairs -------------------------------------------------------------------------------

    def _save_user(self, user: User) -> str:
        self._database.save(users.SET, users.columns_of(user))
        return "set to what the record says"

    def _save_client(self, client: Client) -> str:
        self._database.save(clients.SET, clients.columns_of(client))
        return "set to what the record says"

    def _drop_hidden(self, user: User) -> str:
        user.bio = drop_hidden(user.bio)
        self._save_user(user)
        return "removed"

    def _forget_deletion(self, user_id: int) -> str:
        self._database.save("DELETE FROM deleted_users WHERE id = %s", [user_id])
        return "removed"

    def _remake_pictures(self, user: User, pictures: dict[str, bytes]) -> str:
        """Give a user whole pictures at another address: the old one must stay a 404."""
        from storage.pictures import make_picture  # Pillow: slow to import

        images = {size: each for size, each in pictures.items() if not check_picture(size, each)}
        done = "moved to a new address"
        if "large" in images and images.keys() != PICTURE_SIZES.keys():
            done = "made again from the large picture"
            with contextlib.suppress(storage.PictureRefused):
                images = make_picture(images["large"]) | images
        old = user.pfp_timestamp if has_picture_time(user) else None
        user.pfp_timestamp = max(now_ms(), (old or 0) + 1)
        self._save_user(user)
        if images.keys() == PICTURE_SIZES.keys():
            self._pictures.save(user, images)
            return done
        self._database.save("DELETE FROM pictures WHERE user_id = %s", [user.id])
        return "replaced by a generated picture"


def _look_at_id(place: str, user_id: int) -> Findings:
    if not 0 < user_id < USER_IDS_END:
        yield Finding(place, f"is of an id that is never given: ids end before {USER_IDS_END}")


def _look_at_record(
    place: str, record: User | Client, columns: tuple, needed: list, save: Callable[[], str]
) -> Findings:
    """Look at the fields of a record, and at the columns that follow from it."""
    for problem in problems_in_record(record):
        yield Finding(place, problem)
    if list(columns) != needed:
        problem = f"has the keys {list(columns)}, and its record {needed}"
        yield Finding(place, problem, functools.cache(save))
