"""One state of the flat files while the server goes on, as a backup reads it.

The records of a kind are read while its lock is held, into a file that has no name. What is made
of them, and the pictures, come after that.
"""

import contextlib
import os
import pickle
import tempfile
from array import array
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from model import kinds
from model.encoding import decode_record
from model.errors import DamagedRecord, NoSuchPicture, NoSuchUser, NotFound, StorageFailed
from model.kind import Kind
from model.kinds import USERS
from model.records import User
from model.rules import USER_ID, USER_IDS_END
from model.soundness import check_picture, require_sound
from storage.files import translate_os_errors
from storage.flat_files import disk
from storage.flat_files.entries import keys_of
from storage.flat_files.keys import KeyFile
from storage.flat_files.layout import Layout
from storage.flat_files.load import remove_leftovers
from storage.flat_files.pictures import will_be_generated
from storage.flat_files.record_files import RecordFiles
from storage.maintenance import Progress, Report, Snapshot, Steps, ignore

Spool = tuple[list, BinaryIO]  # ids, and a pickle of the content of each record


@contextlib.contextmanager
def snapshot(
    layout: Layout, before: Callable[[], None], report: Report, progress: Progress
) -> Iterator[Snapshot]:
    """Yield one state of the installation, as `Storage.snapshot` says."""
    steps = Steps(progress)  # not shown under the locks: a terminal may take long, or stop
    with translate_os_errors(), layout.lock("archive"), contextlib.ExitStack() as opened:

        def new_file() -> BinaryIO:
            return opened.enter_context(tempfile.TemporaryFile(dir=layout.data_dir))

        remove_leftovers(layout)
        before()
        spools = {}
        with contextlib.ExitStack() as held:
            for kind in (each for each in kinds.KINDS if each.copied and each.checked):
                # Until the last kind is read: an app and its cover are of one moment.
                held.enter_context(layout.kind_lock(kind))
                spools[kind.name] = _spool(layout, kind, new_file())
                steps.total += len(spools[kind.name][0])
        log = new_file()
        with layout.audit_lock():  # copied, because it grows in place
            for line in disk.read_lines(layout.path("audit.log")):
                log.write(line)
                steps.total += 1
        log.seek(0)
        yield FrozenFiles(layout, spools, log, report, steps)
        steps.end()


def _spool(layout: Layout, kind: Kind, file: BinaryIO) -> Spool:
    """Write the records of a kind, whose lock is held, to a file; an error in place of one."""
    records = RecordFiles(layout, kind)
    with contextlib.ExitStack() as held:
        for lock in layout.record_locks(kind):
            # The list of a folder may lack a name that is being replaced.
            held.enter_context(lock)
        ids = records.ids()
    for record_id in ids:
        missing = NotFound(f"{kind.name}/{record_id}.json is a link that leads nowhere")
        try:
            content = disk.read_file(records.path(record_id), missing)
        except (NotFound, StorageFailed) as error:
            content = str(error)
        pickle.dump(content, file)
    file.seek(0)
    return ids, file


class Holders:
    """Which record had each unique key first: a hash table of 12 bytes a slot.

    A dict of 100,000 names and addresses takes 40 MB, and one of their hashes 20. Two of them have
    the same 64 bits once in a billion backups. That one is then reported as left out, and the next
    backup has other hashes.
    """

    def __init__(self, most: int) -> None:
        self._size = 2 * most + 1
        self._hashes = array("q", bytes(8 * self._size))
        self._places = array("I", bytes(4 * self._size))

    def first(self, key: str, value: str, place: int) -> int:
        """Return the place of the first record with this value of a key, by default this one."""
        digest = hash((key, value)) or 1
        slot = digest % self._size
        while self._hashes[slot] not in (0, digest):
            slot = (slot + 1) % self._size
        if not self._hashes[slot]:
            self._hashes[slot], self._places[slot] = digest, place
        return self._places[slot]


class FrozenFiles(Snapshot):
    """The records of one moment, and the pictures as they are now."""

    def __init__(
        self, layout: Layout, spools: dict[str, Spool], log: BinaryIO, report: Report, steps: Steps
    ) -> None:
        self._layout = layout
        self._spools = spools
        self._log = log
        self._report = report
        self._steps = steps
        self._current = RecordFiles(layout, USERS)
        users = set(filter(USERS.may_have, spools["users"][0]))
        # Of now: deleted ids only grow, and later ones are true as well.
        names = os.listdir(layout.path("deleted"))
        deleted = {int(name) for name in names if USER_ID.fullmatch(name)}
        # A deletion that was killed leaves both, and the record is the truth.
        self._deleted = set(filter(USERS.may_have, deleted - users))
        largest = max(self._deleted | users, default=0)
        self.next_user_id = max(self._read_next_id(), largest + 1)

    def _skip(self, reason: object) -> None:
        self._report(f"{reason}: left out")

    def _read_next_id(self) -> int:
        """Return the next id; 0 if it is lost: then it follows from the ids that are there."""
        path = self._layout.path("next_user_id")
        try:
            next_id = disk.read_number(path)
        except StorageFailed as error:
            self._skip(error)
            return 0
        if next_id <= USER_IDS_END:
            return next_id
        self._skip(f"{path} is too large")
        return 0

    def users(self) -> Iterator[tuple[User, dict[str, bytes]]]:
        for user in self.records(USERS):
            try:
                pictures = self._read_pictures(user)
            except NoSuchUser:
                self._deleted.add(user.id)  # just now
            except (DamagedRecord, StorageFailed) as error:
                self._skip(error)
            else:
                user.pfp_generated = not pictures  # which records of earlier versions may lack
                yield user, pictures

    def deleted_ids(self) -> list[int]:
        return sorted(self._deleted)

    def records(self, kind: Kind) -> Iterator[Any]:
        if not kind.checked:  # only for a copy; those of a moment later are as good
            with tempfile.TemporaryFile(dir=self._layout.data_dir) as file:
                with self._layout.kind_lock(kind):
                    spool = _spool(self._layout, kind, file)
                self._steps.total += len(spool[0])
                yield from self._records_in(kind, *spool)
        else:
            yield from self._records_in(kind, *self._spools[kind.name])

    def _records_in(self, kind: Kind, ids: list, file: BinaryIO) -> Iterator[Any]:
        holders = Holders(len(ids) * len(kind.unique))
        skip = self._skip if kind.checked else ignore  # else no check would name it
        for place, record_id in enumerate(self._steps.each(ids)):
            content, name = pickle.load(file), f"{kind.name}/{record_id}.json"
            if isinstance(content, str):
                skip(content)
                continue
            try:
                record = decode_record(content, kind.record, name, id=record_id)
                require_sound(kind, record)
                for key, value in keys_of(kind, record):
                    if key not in kind.unique:
                        continue
                    holder = ids[holders.first(key.name, value, place)]
                    if holder != record_id:
                        other = f"{kind.name}/{holder}.json"
                        raise DamagedRecord(name, f"its {key.name} is that of {other}")
            except DamagedRecord as error:
                skip(error)
            else:
                yield record

    def keys(self) -> tuple[bytes, ...]:
        # Of now: if they were rotated since, the older ones may be known to others.
        return KeyFile(self._layout).read()

    def audit_lines(self) -> Iterator[bytes]:
        yield from self._steps.each(self._log)

    def _read_pictures(self, user: User) -> dict[str, bytes]:
        """Return a user's pictures by size.

        If they were changed since, these are the new ones, whose timestamp `user` then gets. Raises
        NoSuchUser if the user was deleted since.
        """
        if user.pfp_generated:
            return {}
        with contextlib.suppress(NoSuchPicture):
            return self._read_generation(user)
        try:
            with self._layout.record_lock(USERS, user.id):  # else they may be in the making
                now = self._current.read_file(user.id)
                user.pfp_timestamp, user.pfp_generated = now.pfp_timestamp, now.pfp_generated
                if will_be_generated(user, self._layout.pictures(user.id, user.pfp_timestamp)):
                    return {}
                return self._read_generation(user)
        except NoSuchPicture as error:
            self._report(f"{error}: left out, player {user.id} gets a generated picture")
            user.pfp_timestamp = None  # caches keep what was at the old address
        return {}

    def _read_generation(self, user: User) -> dict[str, bytes]:
        """Return the pictures at a user's address by size. Raises NoSuchPicture."""
        paths = self._layout.pictures(user.id, user.pfp_timestamp)
        return {size: _read_picture(size, path) for size, path in paths.items()}


def _read_picture(size: str, path: str) -> bytes:
    """Return the webp file at a path. Raises NoSuchPicture for a missing or unusable one."""
    try:
        content = disk.read_file(path, NoSuchPicture(f"{path} is missing"))
    except StorageFailed as error:
        raise NoSuchPicture(str(error)) from error
    if problem := check_picture(size, content):
        raise NoSuchPicture(f"{path} {problem}")
    return content
