"""Check of the records of users and clients, and of the files that follow from them.

These files are the entries of the unique index and of the index, and the pictures. Each record is
looked at with the files that it needs; then each other file that is there.
"""

import contextlib
import functools
import os
import re

import storage
from storage import DamagedRecord, NotFound, User
from storage.flat_files import disk
from storage.flat_files.index import ADMINISTRATORS, Index, index_keys
from storage.flat_files.layout import STAGED, Layout, Lock
from storage.flat_files.pictures import MODE, PictureFiles, will_be_generated
from storage.flat_files.problems import (
    Finding,
    Findings,
    Problems,
    Walk,
    is_old,
    look_at_orphan,
    remove,
)
from storage.flat_files.record_files import drop_hidden_in_bio, read_client, read_user
from storage.flat_files.unique_index import FIELDS, UniqueIndex, unique_keys, user_id_in
from storage.maintenance import check_picture, has_picture_time, problems_in_record
from storage.names import NAME_KEY, can_be_key
from storage.rules import SHA256, USER_IDS_END

USER_FILE = re.compile(rf"{storage.USER_ID.pattern}\.json")
CLIENT_FILE = re.compile(rf"{storage.CLIENT_ID.pattern}\.json")
CLIENT_KEY = re.compile(
    rf"owner-(none|{storage.USER_ID.pattern})|games-(un)?listed|origin-{SHA256.pattern}"
)

Record = User | storage.Client


class RecordCheck:
    """The check of the records below a data folder, and of what follows from them."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._check_folder = functools.partial(walk.check_folder, locks_of=self._locks_of)
        self._layout = walk.layout
        self._index = Index(walk.layout.path("index"))
        self._unique = UniqueIndex(walk.layout, functools.partial(read_user, walk.layout))
        # The first record that needs an entry which leads elsewhere or is missing, or an entry in
        # the folder of a game's origin. An installation has few of them.
        self._owners: dict[str, int | str] = {}
        self._last_id = 0  # the largest ever given
        self._next_id = 0  # of the next user; 0 if it is unknown

    def check_users(self) -> Problems:
        """Check the users, their unique index, their pictures, and the deleted ids."""
        walk, layout, look = self._walk, self._layout, self._look_at_entry
        deleted = layout.path("deleted")
        yield from self._check_folder(layout.users, USER_FILE, self._look_at_record)
        yield from self._check_folder(deleted, storage.USER_ID, self._look_at_deleted)
        # What belongs to a user who was not seen would look like nobody's, and be removed.
        if not walk.refused.isdisjoint((layout.users, deleted)):
            return
        yield from walk.confirmed(self._look_at_next_id, locks=[layout.accounts_lock()])
        yield from self._check_folder(layout.path("names"), NAME_KEY, look, mode=None)
        yield from self._check_folder(layout.path("emails"), SHA256, look, mode=None)
        for folder in layout.picture_folders():
            yield from self._check_folder(folder, storage.PICTURE_FILE, look, mode=MODE)

    def check_clients(self) -> Problems:
        """Check the records of the clients."""
        folder = self._layout.path("clients")
        yield from self._check_folder(folder, CLIENT_FILE, self._look_at_record)

    def check_index(self) -> Problems:
        """Check that every entry of the index is of a record that has the property."""
        for folder in (yield from self._walk.paths_in(self._layout.path("index"))):
            key = os.path.basename(folder)
            if key == ADMINISTRATORS or CLIENT_KEY.fullmatch(key):
                names = storage.USER_ID if key == ADMINISTRATORS else storage.CLIENT_ID
                yield from self._check_folder(folder, names, self._look_at_entry)
            else:
                yield from self._walk.confirmed(look_at_orphan, folder)

    def _locks_of(self, path: str) -> list[Lock]:
        """Return the locks that stop every change of a file and of the record behind it."""
        kind, name = path.split("/")[-2:]
        if kind in FIELDS:
            return [self._layout.accounts_lock()]
        record_id = _id_in(name)
        if isinstance(record_id, str):
            return [self._layout.lock("clients")]
        return [self._layout.accounts_lock(), self._layout.user_lock(record_id)]

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
            self._next_id = next_id = disk.read_number(path)
        except storage.StorageFailed as error:
            yield Finding(path, str(error))
            return
        if next_id > USER_IDS_END:
            yield Finding(path, f"is too large: ids end before {USER_IDS_END}")
        elif is_needed and next_id <= self._last_id:
            problem = f"is missing or not above {self._last_id}, the largest user id ever given"
            yield Finding(path, problem, self._raise_next_id)

    def _raise_next_id(self, path: str) -> str:
        self._next_id = self._last_id + 1
        disk.write_file(path, b"%d\n" % self._next_id)
        return f"raised to {self._next_id}"

    def _look_at_deleted(self, path: str) -> Findings:
        user_id = int(os.path.basename(path))
        yield from self._look_at_id(path, user_id)
        if os.path.exists(path) and os.path.exists(self._layout.user(user_id)):
            problem = f"says that users/{user_id}.json, which exists, was deleted"
            yield Finding(path, problem, remove)

    # -- records -------------------------------------------------------------------------------

    def _look_at_record(self, path: str) -> Findings:
        record_id = _id_in(os.path.basename(path))
        if isinstance(record_id, int):
            yield from self._look_at_id(path, record_id)
        try:
            record = _read(self._layout, record_id)
        except DamagedRecord as error:
            yield Finding(path, f"is damaged: {error.problem}")
            return
        except NotFound:
            if os.path.islink(path):
                yield Finding(path, "is a link that leads nowhere")
            return
        for problem in problems_in_record(record):
            yield Finding(path, problem)
        yield from self._look_at_entries_of(path, record)
        if isinstance(record, User):
            if record.bio != storage.drop_hidden(record.bio):
                problem = "has characters in its bio that show nothing or turn other text"
                yield Finding(path, problem, functools.partial(drop_hidden_in_bio, record))
            yield from self._look_at_pictures_of(path, record)

    # -- index entries -------------------------------------------------------------------------

    def _entries_of(self, record: Record) -> list[str]:
        """Return the paths of the index entries that a record needs."""
        unique = unique_keys(record) if isinstance(record, User) else []
        entries = [
            self._unique.path(*each) for each in unique if can_be_key(FIELDS[each[0]], each[1])
        ]
        keys = sorted(index_keys(record))
        return entries + [self._layout.path("index", key, str(record.id)) for key in keys]

    def _look_at_entries_of(self, path: str, record: Record) -> Findings:
        for entry in self._entries_of(record):
            kind = entry.split("/")[-2]
            if kind in FIELDS:
                holder, problem = _holder(entry), f"does not lead to {_name(record.id)}"
            else:
                holder, problem = record.id if os.path.lexists(entry) else None, "is missing"
            place = os.path.dirname(entry) if kind.startswith("origin-") else entry
            others = {self._owners.get(place), holder} - {record.id, None}
            if holder != record.id or place != entry:
                self._owners.setdefault(place, record.id)
            if other := next((each for each in others if self._needs(place, each)), None):
                what = FIELDS.get(kind, "origin")
                yield Finding(path, f"has the same {what} as {_name(other)}: change one of them")
                if kind in FIELDS:
                    continue  # the entry belongs to the other
            if holder != record.id:
                yield Finding(entry, problem, functools.partial(self._add_entry, record))

    def _needs(self, place: str, record_id: int | str) -> bool:
        """Return True if a record needs this entry, or one in this folder, or may need it."""
        try:
            entries = self._entries_of(_read(self._layout, record_id))
        except NotFound:
            return False
        except DamagedRecord:
            return True  # the record gets it back once it is repaired
        return place in entries or place in map(os.path.dirname, entries)

    def _add_entry(self, record: Record, path: str) -> str:
        kind, name = path.split("/")[-2:]
        if kind in FIELDS:
            with disk.rollback_on_error() as undo:
                key = dict(unique_keys(record))[kind]
                self._unique.take(kind, key, record.id, undo, durable=False)
        else:
            self._index.add(kind, name, durable=False)
        return "added"

    def _look_at_entry(self, path: str) -> Findings:
        """Look at an index entry or a picture that is there: its record has to need it."""
        if path in self._owners:
            return  # it was looked at with its record
        kind, name = path.split("/")[-2:]
        is_picture = kind in storage.PICTURE_SIZES
        record_id = _holder(path) if kind in FIELDS else _id_in(name)
        if record_id is None and not os.path.islink(path):
            if os.path.lexists(path):
                yield Finding(path, "is not a link")
            return
        try:
            record = _read(self._layout, record_id or 0)
        except DamagedRecord:
            return  # it keeps what belongs to it
        except NotFound:
            is_staged = os.path.exists(self._layout.path(STAGED))
            is_gone = is_staged or os.path.exists(self._layout.deleted(record_id or 0))
            # The pictures of a new account are there before its record, without a lock.
            if not os.path.lexists(path) or (is_picture and not is_gone and not is_old(path)):
                return
            if is_picture and record_id >= self._next_id and not is_staged:
                # Not of a killed restore, and not ours: of another installation, maybe.
                yield Finding(path, "is a picture for an id that was never given")
            else:
                problem = "leads to no user" if kind in FIELDS else "belongs to no record"
                yield Finding(path, problem, remove)
            return
        needed = self._entries_of(record)
        if isinstance(record, User):
            needed += self._layout.pictures(record.id, record.pfp_timestamp).values()
        if path not in needed and os.path.lexists(path):
            yield Finding(path, f"does not match {_name(record_id)}", remove)

    # -- pictures ------------------------------------------------------------------------------

    def _look_at_pictures_of(self, path: str, user: User) -> Findings:
        # One repair is enough for all three.
        remake = functools.cache(functools.partial(self._remake_pictures, user))
        if not has_picture_time(user):
            yield Finding(path, "pfp_timestamp is not a time", lambda path: remake())
            return
        paths = self._layout.pictures(user.id, user.pfp_timestamp)
        may_be_missing = will_be_generated(user, paths)
        for size, path in paths.items():
            if may_be_missing and not os.path.isfile(path):
                continue
            if problem := _problem_with_picture(size, path):
                yield Finding(path, problem, lambda path: remake())

    def _remake_pictures(self, user: User) -> str:
        """Give a user whole pictures at another address: the old one must stay a 404."""
        from storage.pictures import generate_picture, make_picture  # Pillow: slow to import

        if not has_picture_time(user):
            user.pfp_timestamp = None  # the new one is larger than the old, and would be none too
        old = self._layout.pictures(user.id, user.pfp_timestamp)
        good = {
            size: disk.read_file(path, NotFound())
            for size, path in old.items()
            if _problem_with_picture(size, path) is None
        }
        images, done = generate_picture(user.id), "replaced by a generated picture"
        if "large" in good:
            with contextlib.suppress(storage.PictureRefused):
                images = make_picture(good["large"]) | good
                done = "made again from the large picture"
        PictureFiles(self._layout).replace(user, images)
        for path in old.values():
            remove(path)  # also a folder
        return done


def _read(layout: Layout, record_id: int | str) -> Record:
    """Return the record of a user or a client; one that the disk refuses counts as damaged.

    Raises NotFound, DamagedRecord.
    """
    try:
        read = read_user if isinstance(record_id, int) else read_client
        return read(layout, record_id)
    except storage.StorageFailed as error:
        raise DamagedRecord(str(record_id), str(error)) from error


def _id_in(file_name: str) -> int | str:
    """Return the id of the user or the client after which a file is named."""
    if storage.CLIENT_ID.fullmatch(name := file_name.removesuffix(".json")):
        return name
    return int(storage.USER_ID.match(name)[0])


def _name(record_id: int | str) -> str:
    return f"{'users' if isinstance(record_id, int) else 'clients'}/{record_id}.json"


def _holder(entry: str) -> int | None:
    try:
        return user_id_in(os.readlink(entry))
    except OSError:  # it does not exist, or is not a link
        return None


def _problem_with_picture(size: str, path: str) -> str | None:
    try:
        return check_picture(size, disk.read_file(path, NotFound("is missing")))
    except storage.StorageError as error:
        return str(error)
