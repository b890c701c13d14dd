"""Check of the users, their entries in the unique index, their pictures, and the deleted ids."""

import contextlib
import functools
import os
import re

from storage import (
    PICTURE_FILE,
    USER_ID,
    DamagedRecord,
    NoSuchUser,
    NotFound,
    PictureRefused,
    StorageError,
    StorageFailed,
    User,
    check_hash_format,
    unique_key,
)
from storage.flat_files.check_clients import HASH, look_at_index_of
from storage.flat_files.disk import read_file, read_number, rollback_on_error, write_file
from storage.flat_files.layout import STAGED
from storage.flat_files.pictures import MODE, PictureFiles, will_be_generated
from storage.flat_files.problems import (
    Finding,
    Findings,
    look_at_record,
    look_at_rules,
    read_or_damaged,
    remove,
)
from storage.flat_files.record_files import read_user
from storage.flat_files.unique_index import (
    FIELDS,
    NAME_ENTRY,
    UniqueIndex,
    can_be_key,
    unique_keys,
    user_id_in,
)
from storage.flat_files.walk import Problems, Walk, user_locks
from storage.maintenance import check_picture, has_picture_time
from storage.rules import TIME_END, USER_IDS_END

USER_FILE = re.compile(rf"{USER_ID.pattern}\.json")
TIMES = ("created", "last_heartbeat", "play_ms")  # fields of a user


class UserCheck:
    """The check of the users below a data folder, and of what belongs to them."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._layout = walk.layout
        self._read = functools.partial(read_or_damaged, read_user, walk.layout)
        self._unique = UniqueIndex(walk.layout, self._read)
        self._timestamps: dict[int, int | None] = {}  # of the pictures, by user id
        self._holders: dict[str, int] = {}  # user ids, by the index entry that each should have
        self._last_id = 0  # the largest ever given
        self._next_id = 0  # of the next user; 0 if it is unknown

    def problems(self) -> Problems:
        walk, layout = self._walk, self._layout
        locks_of = functools.partial(user_locks, layout)
        deleted = layout.path("deleted")
        yield from walk.check_folder(layout.users, USER_FILE, self._look_at_user, locks_of)
        yield from walk.check_folder(deleted, USER_ID, self._look_at_deleted, locks_of)
        # What belongs to a user who was not seen would look like nobody's, and be removed.
        if not walk.refused.isdisjoint((layout.users, deleted)):
            return
        yield from walk.confirmed(self._look_at_next_id, locks=[layout.accounts_lock()])
        for kind, names in (("names", NAME_ENTRY), ("emails", HASH)):
            folder, accounts_lock = layout.path(kind), lambda path: [layout.accounts_lock()]
            yield from walk.check_folder(folder, names, self._look_at_entry, accounts_lock, None)
        for folder in layout.picture_folders():
            yield from walk.check_folder(
                folder, PICTURE_FILE, self._look_at_picture, locks_of, MODE
            )

    # -- ids -----------------------------------------------------------------------------------

    def _look_at_id(self, path: str, user_id: int) -> Findings:
        if user_id < USER_IDS_END:
            self._last_id = max(self._last_id, user_id)
        else:
            problem = f"is of an id that is never given: ids end before {USER_IDS_END}"
            yield Finding(path, problem)

    def _look_at_next_id(self) -> Findings:
        path = self._layout.path("next_user_id")
        is_needed = self._last_id or os.path.exists(path)  # an empty installation may have none
        try:
            self._next_id = next_id = read_number(path)
        except StorageFailed as error:
            yield Finding(path, str(error))
            return
        if next_id > USER_IDS_END:
            yield Finding(path, f"is too large: ids end before {USER_IDS_END}")
        elif is_needed and next_id <= self._last_id:
            problem = f"is missing or not above {self._last_id}, the largest user id ever given"
            yield Finding(path, problem, self._raise_next_id)

    def _raise_next_id(self, path: str) -> str:
        self._next_id = self._last_id + 1
        write_file(path, b"%d\n" % self._next_id)
        return f"raised to {self._next_id}"

    def _look_at_deleted(self, path: str) -> Findings:
        user_id = int(os.path.basename(path))
        yield from self._look_at_id(path, user_id)
        if os.path.exists(path) and os.path.exists(self._layout.user(user_id)):
            problem = f"says that users/{user_id}.json, which exists, was deleted"
            yield Finding(path, problem, remove)

    # -- users ---------------------------------------------------------------------------------

    def _look_at_user(self, path: str) -> Findings:
        user_id = user_id_in(path)
        yield from self._look_at_id(path, user_id)
        user = yield from look_at_record(read_user, self._layout, user_id, path)
        if user is None:
            return
        self._timestamps[user_id] = user.pfp_timestamp
        yield from _look_at_fields(path, user)
        for kind, key in unique_keys(user):
            yield from self._look_at_entry_of(user, kind, key)
        yield from look_at_index_of(self._layout, user)
        yield from self._look_at_pictures_of(user)

    # -- the unique index ----------------------------------------------------------------------

    def _look_at_entry_of(self, user: User, kind: str, key: str) -> Findings:
        record = self._layout.user(user.id)
        if not can_be_key(kind, key):
            yield Finding(record, f"nobody can be found by its {FIELDS[kind]}")
            return
        entry = self._unique.path(kind, key)
        holder = _holder(entry)
        for other in {self._holders.setdefault(entry, user.id), holder} - {user.id, None}:
            if self._unique.counts(kind, key, other):
                problem = f"{FIELDS[kind]} is that of users/{other}.json too: change one of them"
                yield Finding(record, problem)
                return
        if holder != user.id:
            make = functools.partial(self._make_entry, user, kind, key)
            yield Finding(entry, f"does not lead to users/{user.id}.json", make)

    def _make_entry(self, user: User, kind: str, key: str, path: str) -> str:
        with rollback_on_error() as undo:
            self._unique.take(kind, key, user.id, undo, durable=False)
        return "leads there now"

    def _look_at_entry(self, path: str) -> Findings:
        if path in self._holders:
            return  # it was looked at with its user
        if not os.path.islink(path):
            if os.path.lexists(path):
                yield Finding(path, "is not a link")
            return
        holder, kind = _holder(path), os.path.basename(os.path.dirname(path))
        try:
            user = self._read(holder or 0)
        except NoSuchUser:
            problem = "leads to no user"
        except DamagedRecord:
            return  # it keeps its entries
        else:
            problem = f"leads to users/{holder}.json, which has another {FIELDS[kind]}"
            key = unique_key(getattr(user, FIELDS[kind]))
            if can_be_key(kind, key) and self._unique.path(kind, key) == path:
                return
        yield Finding(path, problem, remove)

    # -- pictures ------------------------------------------------------------------------------

    def _look_at_pictures_of(self, user: User) -> Findings:
        remake = functools.cache(functools.partial(self._remake_pictures, user))
        if not has_picture_time(user):
            problem = "pfp_timestamp is not a time"
            yield Finding(self._layout.user(user.id), problem, lambda path: remake())
            return
        paths = self._layout.pictures(user.id, user.pfp_timestamp)
        may_be_missing = will_be_generated(user, paths)
        for size, path in paths.items():
            if may_be_missing and not os.path.isfile(path):
                continue
            if problem := _check_picture_file(size, path):
                # One repair is enough for all three.
                yield Finding(path, problem, lambda path: remake())

    def _remake_pictures(self, user: User) -> str:
        """Give a user whole pictures at another address: the old one must stay a 404."""
        from storage.pictures import generate_picture, make_picture  # Pillow: slow to import

        if not has_picture_time(user):
            user.pfp_timestamp = (
                None  # the new one is larger than the old, and would be none either
            )
        old = self._layout.pictures(user.id, user.pfp_timestamp)
        good = {
            size: read_file(path, NotFound())
            for size, path in old.items()
            if _check_picture_file(size, path) is None
        }
        images, done = generate_picture(user.id), "replaced by a generated picture"
        if "large" in good:
            with contextlib.suppress(PictureRefused):
                images = make_picture(good["large"]) | good
                done = "made again from the large picture"
        PictureFiles(self._layout).replace(user, images)
        for path in old.values():
            remove(path)  # also a folder
        return done

    def _look_at_picture(self, path: str) -> Findings:
        user_id = int(PICTURE_FILE.fullmatch(os.path.basename(path))[1])
        if user_id in self._timestamps and self._is_named(path, user_id, self._timestamps[user_id]):
            return  # it was looked at with its user
        problem, repair = "is a picture of nobody", remove
        try:
            user = self._read(user_id)
        except DamagedRecord:
            return  # it keeps its pictures
        except NoSuchUser:
            if user_id >= self._next_id and not os.path.exists(self._layout.path(STAGED)):
                # Not of a killed restore, and not ours: of another installation, maybe.
                problem, repair = "is a picture for an id that was never given", None
        else:
            problem = f"is not a picture that users/{user_id}.json names"
            if self._is_named(path, user_id, user.pfp_timestamp):
                return
        if os.path.lexists(path):
            yield Finding(path, problem, repair)

    def _is_named(self, path: str, user_id: int, timestamp: int | None) -> bool:
        return path in self._layout.pictures(user_id, timestamp).values()


def _look_at_fields(path: str, user: User) -> Findings:
    """Look at the fields that would break a user's pages, and signing in."""
    yield from look_at_rules(path, user, ["mod_level"])
    moments = {field: getattr(user, field) for field in TIMES}
    moments |= {f"grants.{client}.since": each.since for client, each in user.grants.items()}
    moments |= {f"sessions[{n}].since": each.since for n, each in enumerate(user.sessions)}
    for field, moment in moments.items():
        if not 0 <= moment < TIME_END:
            yield Finding(path, f"{field} is not a time")
    if problem := check_hash_format(user.password_hash):
        yield Finding(path, f"password_hash: {problem}")


def _check_picture_file(size: str, path: str) -> str | None:
    try:
        return check_picture(size, read_file(path, NotFound("is missing")))
    except StorageError as error:
        return str(error)


def _holder(entry: str) -> int | None:
    try:
        return user_id_in(os.readlink(entry))
    except OSError:  # it does not exist, or is not a link
        return None
