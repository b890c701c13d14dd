"""Check of the records of each kind, and of the files that follow from them.

These files are the entries of keys and, of users, the pictures. Each record is looked at with the
files that it needs; then each other file that is there.
"""

import contextlib
import functools
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from model import kinds
from model.errors import DamagedRecord, NotFound, StorageError, StorageFailed
from model.kind import SHORT_KEY, Index, Kind, Unique
from model.kinds import USERS
from model.records import PICTURE_SIZES, User
from model.rules import PICTURE_FILE, SHA256, USER_ID, USER_IDS_END
from model.soundness import check_picture, has_picture_time, problems_in_record
from storage.flat_files import disk
from storage.flat_files.entries import SAFE_NAME, Key, keys_of
from storage.flat_files.layout import Lock
from storage.flat_files.pictures import MODE, PictureFiles, will_be_generated
from storage.flat_files.problems import (
    Finding,
    Findings,
    Problems,
    Walk,
    is_old,
    look_at_access,
    look_at_orphan,
    remove,
)
from storage.flat_files.record_files import RecordFiles
from storage.maintenance import remake_pictures


class RecordCheck:
    """The check of the records below a data folder, and of what follows from them."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._layout = walk.layout
        self._records = {kind.name: RecordFiles(walk.layout, kind) for kind in kinds.KINDS}
        # The first record that needs an entry which leads elsewhere or is missing. An installation
        # has few of them.
        self._owners: dict[str, int | str] = {}
        # The entries and pictures in each folder that were found sound with their records: the sum
        # of the hashes of their names, which takes no memory, and differs if one goes and another
        # comes. Where there are no others they are not looked at again, each with its record.
        self._sound: Counter[str] = Counter()
        self._last_id = 0  # of a user, the largest ever given
        self._next_id = 0  # of the next user; 0 if it is unknown

    def check_users(self) -> Problems:
        """Yield problems of users, deleted ids, the next id, entries and pictures."""
        walk, layout, deleted = self._walk, self._layout, self._layout.path("deleted")
        yield from self._check_records(USERS)
        locks_of = functools.partial(self._locks_of, USERS)
        yield from walk.check_folder(deleted, USER_ID, self._look_at_deleted, locks_of)
        # What belongs to a user who was not seen would look like nobody's, and be removed.
        if not walk.refused.isdisjoint((layout.users, deleted)):
            return
        locks = [layout.kind_lock(USERS)]
        yield from walk.confirmed(self._look_at_next_id, locks=locks)
        yield from self._check_entries(USERS)
        for folder in layout.picture_folders():
            look, sound = self._look_at_picture, self._sound[folder]
            yield from walk.check_folder(folder, PICTURE_FILE, look, locks_of, MODE, sound)

    def check_others(self) -> Problems:
        """Check the records of the other kinds, and the entries of their keys."""
        for kind in kinds.KINDS:
            if not kind.checked:
                yield from self._check_names(kind)
            elif kind is not USERS:
                yield from self._check_records(kind)
                if self._layout.path(kind.name) not in self._walk.refused:
                    yield from self._check_entries(kind)

    def _check_records(self, kind: Kind) -> Problems:
        names = re.compile(rf"(?:{kind.id.pattern})\.json")
        look = functools.partial(self._look_at_record, kind)
        locks_of = functools.partial(self._locks_of, kind)
        yield from self._walk.check_folder(self._layout.path(kind.name), names, look, locks_of)

    def _check_names(self, kind: Kind) -> Problems:
        """Check the files of a kind that is not `checked` without reading them."""
        names = re.compile(rf"(?:{kind.id.pattern})\.json")
        yield from self._walk.check_folder(self._layout.path(kind.name), names)
        for index in (yield from self._walk.paths_in(self._layout.path("index", kind.name))):
            for value in (yield from self._walk.paths_in(index)):
                yield from self._walk.check_folder(value, kind.id, mode=None)

    def _check_entries(self, kind: Kind) -> Problems:
        """Check the entries of a kind that no record of it was found to need, and the folders."""
        walk, look = self._walk, functools.partial(self._look_at_entry, kind)
        locks_of = functools.partial(self._locks_of, kind)
        for unique in kind.unique:
            folder = self._layout.path(unique.folder)
            names, sound = SAFE_NAME if unique.ordered else SHA256, self._sound[folder]
            yield from walk.check_folder(folder, names, look, locks_of, mode=None, sound=sound)
        known = {index.name for index in kind.keys[len(kind.unique) :]}
        for folder in (yield from walk.paths_in(self._layout.path("index", kind.name))):
            if os.path.basename(folder) not in known:
                yield from walk.confirmed(look_at_orphan, folder)
                continue
            for value in (yield from walk.paths_in(folder)):
                if SHORT_KEY.fullmatch(os.path.basename(value)):
                    sound = self._sound[value]
                    yield from walk.check_folder(value, kind.id, look, locks_of, sound=sound)
                else:
                    yield from walk.confirmed(look_at_orphan, value)

    def _locks_of(self, kind: Kind, path: str) -> Iterator[Lock]:
        """Yield the locks that stop every change of a file and of the record behind it."""
        record_id = _id_in(kind, path)
        yield self._layout.kind_lock(kind)
        if kind.locks > 1 and record_id is not None:
            yield self._layout.record_lock(kind, record_id)

    # -- ids -----------------------------------------------------------------------------------

    def _note_id(self, user_id: int) -> None:
        if USERS.may_have(user_id):
            self._last_id = max(self._last_id, user_id)

    def _look_at_next_id(self) -> Findings:
        """Look at the next user id, after all users and deleted ids: it has to be larger."""
        path = self._layout.path("next_user_id")
        is_needed = self._last_id or os.path.exists(path)  # an empty installation may have none
        try:
            self._next_id = next_id = disk.read_number(path)
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
        disk.write_file(path, b"%d\n" % self._next_id)
        return f"raised to {self._next_id}"

    def _look_at_deleted(self, path: str) -> Findings:
        user_id = int(os.path.basename(path))
        self._note_id(user_id)
        if os.path.exists(path) and os.path.exists(self._layout.user(user_id)):
            problem = f"says that users/{user_id}.json, which exists, was deleted"
            yield Finding(path, problem, remove)

    # -- records -------------------------------------------------------------------------------

    def _look_at_record(self, kind: Kind, path: str) -> Findings:
        """Look at a record with its entries, owners and pictures; note those that are sound."""
        record_id = _id_in(kind, path)
        if kind is USERS:
            self._note_id(record_id)
        try:
            record = self._read(kind, record_id)
        except DamagedRecord as error:
            yield Finding(path, f"is damaged: {error.problem}")
            return
        except NotFound:
            if os.path.islink(path):
                yield Finding(path, "is a link that leads nowhere")
            return
        entries = self._entries_of(kind, record)
        pictures = self._pictures_of(record) if kind is USERS else {}
        found = [Finding(path, problem) for problem in problems_in_record(kind, record)]
        found += self._look_at_entries_of(kind, path, record, entries)
        found += self._look_at_owners_of(kind, path, record)
        if kind is USERS:
            found += self._look_at_pictures_of(path, record, pictures)
        if not found:  # else it is looked at twice, and would be noted twice
            for entry, (key, _) in entries.items():
                self._note_sound(entry, None if isinstance(key, Unique) else 0o600)
            for picture in pictures.values():
                self._note_sound(picture, MODE)
        yield from found

    def _note_sound(self, path: str, mode: int | None) -> None:
        """Note a file that a record needs; a link has no mode."""
        if mode is None or not any(look_at_access(path, mode, self._walk.owner)):
            folder, name = os.path.split(path)
            self._sound[folder] += hash(name)

    def _read(self, kind: Kind, record_id: int | str) -> Any:
        """Return a record; one that the disk refuses counts as damaged. Raises NotFound."""
        try:
            return self._records[kind.name].read_file(record_id)
        except StorageFailed as error:
            raise DamagedRecord(str(record_id), str(error)) from error

    def _look_at_owners_of(self, kind: Kind, path: str, record: Any) -> Findings:
        """Find a record whose owner, with whom it should have gone, is gone."""
        for index in kind.indexes:
            if index.dies_with and (value := index.of(record)) is not None:
                owners = self._records[index.dies_with]
                if not owners.existing([owners.kind.parse_id(value)]):
                    problem = f"belongs to {index.dies_with}/{value}.json, which is gone"
                    yield Finding(
                        path, problem, functools.partial(self._remove_record, kind, record)
                    )

    def _remove_record(self, kind: Kind, record: Any, path: str) -> str:
        for key, value in keys_of(kind, record):
            self._records[kind.name].entries.remove(key, value, record.id)
        return remove(path)

    # -- entries of keys -----------------------------------------------------------------------

    def _entries_of(self, kind: Kind, record: Any) -> dict[str, Key]:
        """Return the keys of a record by the path of the entry that it needs."""
        entries = self._records[kind.name].entries
        return {entries.path(*key, record.id): key for key in keys_of(kind, record)}

    def _look_at_entries_of(
        self, kind: Kind, path: str, record: Any, entries: dict[str, Key]
    ) -> Findings:
        """Look at the entries that a record needs, and for records with the same unique key."""
        for entry, (key, value) in entries.items():
            if isinstance(key, Index):
                if not os.path.lexists(entry):
                    add = functools.partial(self._add_entry, kind, key, value, record.id)
                    yield Finding(entry, "is missing", add)
                continue
            holder = self._holder(kind, entry)
            others = {self._owners.get(entry), holder} - {record.id, None}
            if holder != record.id:
                self._owners.setdefault(entry, record.id)
            other = next((each for each in others if self._needs(kind, entry, each)), None)
            if other is not None:
                same = f"has the same {key.name} as {_name(kind, other)}: change one of them"
                yield Finding(path, same)
            elif holder != record.id:
                add = functools.partial(self._add_entry, kind, key, value, record.id)
                yield Finding(entry, f"does not lead to {_name(kind, record.id)}", add)

    def _needs(self, kind: Kind, entry: str, record_id: int | str) -> bool:
        """Return True if a record needs this entry, or may need it."""
        try:
            return entry in self._entries_of(kind, self._read(kind, record_id))
        except NotFound:
            return False
        except DamagedRecord:
            return True  # the record gets it back once it is repaired

    def _add_entry(
        self, kind: Kind, key: Unique | Index, value: str, record_id: int | str, path: str
    ) -> str:
        self._records[kind.name].entries.put(key, value, record_id, durable=False)
        return "added"

    def _holder(self, kind: Kind, entry: str) -> int | str | None:
        """Return the id that a unique key's entry links to, None for no link or no id."""
        with contextlib.suppress(OSError):  # it does not exist, or is not a link
            return self._records[kind.name].entries.holder_in(entry)
        return None

    def _look_at_entry(self, kind: Kind, path: str) -> Findings:
        """Look at an entry that is there: its record has to need it."""
        if path in self._owners:
            return  # it was looked at with its record
        is_unique = not path.startswith(self._layout.path("index"))
        record_id = self._holder(kind, path) if is_unique else _id_in(kind, path)
        if is_unique and not os.path.islink(path):
            if os.path.lexists(path):
                yield Finding(path, "is not a link")
            return
        try:
            record = self._read(
                kind, (0 if kind.number else "") if record_id is None else record_id
            )
        except DamagedRecord:
            return  # it keeps what belongs to it
        except NotFound:
            if os.path.lexists(path):
                problem = f"leads to no {kind.one}" if is_unique else "belongs to no record"
                yield Finding(path, problem, remove)
            return
        if path not in self._entries_of(kind, record) and os.path.lexists(path):
            yield Finding(path, f"does not match {_name(kind, record_id)}", remove)

    # -- pictures ------------------------------------------------------------------------------

    def _look_at_picture(self, path: str) -> Findings:
        """Look at a picture that is there: it has to be the one of its user."""
        user_id = _id_in(USERS, path)
        try:
            user = self._read(USERS, user_id)
        except DamagedRecord:
            return  # it keeps what belongs to it
        except NotFound:
            is_gone = os.path.exists(self._layout.deleted(user_id))
            # An import writes the pictures of a new account before its record.
            if not os.path.lexists(path) or (not is_gone and not is_old(path)):
                return
            if user_id >= self._next_id:  # not ours: of another installation, maybe
                yield Finding(path, "is a picture for an id that was never given")
            else:
                yield Finding(path, "belongs to no record", remove)
            return
        needed = self._layout.pictures(user.id, user.pfp_timestamp).values()
        if (user.pfp_generated or path not in needed) and os.path.lexists(path):
            yield Finding(path, f"does not match {_name(USERS, user_id)}", remove)

    def _pictures_of(self, user: User) -> dict[str, str]:
        """Return the paths of the pictures that must be stored, by size."""
        paths = self._layout.pictures(user.id, user.pfp_timestamp)
        return {} if will_be_generated(user, paths) else paths

    def _look_at_pictures_of(self, path: str, user: User, pictures: dict[str, str]) -> Findings:
        remake = functools.cache(lambda: self._remake_pictures(user))  # once for all sizes

        def repair(_: str) -> str:
            return remake()

        if not has_picture_time(user):
            yield Finding(path, "pfp_timestamp is not a time", repair)
            return
        for size, path in pictures.items():
            if problem := _problem_with_picture(size, path):
                yield Finding(path, problem, repair)

    def _remake_pictures(self, user: User) -> str:
        """Give a user whole pictures at another address: the old one must stay a 404."""
        if not has_picture_time(user):
            user.pfp_timestamp = None  # the new one is larger than the old, and would be none too
        paths = self._layout.pictures(user.id, user.pfp_timestamp)
        whole = [size for size, path in paths.items() if not _problem_with_picture(size, path)]
        good = {size: disk.read_file(paths[size], NotFound()) for size in whole}
        images, done = remake_pictures(good)
        PictureFiles(self._layout).replace(user, images)
        for path in paths.values():
            remove(path)  # also a folder
        return done


def _id_in(kind: Kind, path: str) -> int | str | None:
    """Return the id of the record after which a file is named, None for no id."""
    name = os.path.basename(path)
    if os.path.basename(os.path.dirname(path)) in PICTURE_SIZES:
        return int(USER_ID.match(name)[0])
    return kind.parse_id(name.removesuffix(".json"))


def _name(kind: Kind, record_id: int | str) -> str:
    return f"{kind.name}/{record_id}.json"


def _problem_with_picture(size: str, path: str) -> str | None:
    try:
        return check_picture(size, disk.read_file(path, NotFound("is missing")))
    except StorageError as error:
        return str(error)
