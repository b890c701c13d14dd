"""Export and import of players, each as a line of `storage.whole.player_lines`."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from model import kinds
from model.errors import (
    AlreadyThere,
    BadFile,
    BadInstallation,
    DamagedRecord,
    IdTaken,
    InvalidField,
    NoSuchUser,
    PictureRefused,
    StorageError,
    StorageFailed,
)
from model.kinds import USERS
from model.records import User
from model.rules import PASSWORD_METHOD, WRAPPED
from storage import Storage
from storage.files import output_file, translate_os_errors
from storage.maintenance import Progress, Report, Steps
from storage.repositories import Images
from storage.whole.player_lines import (
    LARGEST_ID,
    LONGEST_LINE,
    LineRefused,
    read_line,
    read_object,
    write_line,
)

PICTURE_ENDINGS = ("webp", "png", "jpg", "jpeg", "jpe", "jfif", "gif")  # also in capitals


# -- export -------------------------------------------------------------------------------------


def export_users(
    store: Storage,
    path: str,
    by: int | str,
    with_passwords: bool,
    progress: Progress,
    report: Report,
) -> int:
    """Write all players to an `output_file`, new and its owner's; return the number of players.

    `report` gets a line for each whose record cannot be read. Raises BadFile if the file exists.
    """
    players = 0
    with translate_os_errors(), output_file(path) as file:
        store.audit.write("export passwords" if with_passwords else "export", by)
        user_ids = store.users.ids()
        for user_id in Steps(progress, len(user_ids)).each(user_ids):
            try:
                user = store.users.read(user_id)
            except NoSuchUser:
                continue  # deleted since
            except (DamagedRecord, StorageFailed) as error:
                report(f"{error}: not exported")
            else:
                file.write(write_line(user, with_passwords))
                players += 1
    return players


# -- import -------------------------------------------------------------------------------------


@dataclass
class ImportResult:
    """What became of the lines of a file."""

    added: int = 0
    there: int = 0  # before; the file was imported already, or a part of it
    refused: int = 0


def import_users(
    store: Storage,
    file: BinaryIO,
    pictures: str | None,
    by: int | str,
    progress: Progress,
    refused: Callable[[int, str], None],
    wrap_hash: Callable[[str], str],
    check: bool = False,
) -> ImportResult:
    """Add the players that the lines of a file describe, with pictures from a folder.

    `refused` gets the number of each refused line, and the reason, once for each reason.
    `wrap_hash` makes our hash of a password hash of another method. With `check` nothing is added.
    An import that was interrupted can be repeated: a player who exists already is counted as that.
    A new installation has nobody until all are there. Raises BadFile, BadInstallation.
    """
    if not file.seekable():
        raise BadFile("a file can be imported, and no pipe: it is read twice")
    with translate_os_errors():
        number, largest_id = find_last_line_and_largest_id(file)
        file.seek(0)
        lines = Steps(progress, number).each(_numbered_lines(file))
        reader = Reader(store, pictures, refused, wrap_hash=None if check else wrap_hash)
        if check:
            reader.result.added = sum(1 for _ in reader.new_players(lines))
        elif is_unused(store):
            _load_players(reader, lines, largest_id, by)
        else:
            store.audit.write("import", by)
            # Before the first line: else somebody who signs up now gets the id of a later one.
            store.users.reserve_ids(largest_id)
            _insert_players(reader, lines)
    return reader.result


def is_unused(store: Storage) -> bool:
    """Return True for an installation that has nothing which a load could replace."""
    archived = (store.records(kind) for kind in kinds.KINDS if kind.archived)
    return store.users.is_new() and not any(each.ids(at_most=1) for each in archived)


def _load_players(reader: "Reader", lines: Iterable, largest_id: int, by: int | str) -> None:
    """Add everybody at once. Raises BadInstallation if somebody signs up meanwhile."""
    store = reader.store
    try:
        with store.load(lambda: store.audit.write("import", by)) as load:
            for _, user, images in reader.new_players(lines):
                load.add_user(user, images or {})
                reader.result.added += 1
            load.add_audit_log(())
            load.keys, load.next_user_id = store.keys.current(), largest_id + 1
    except BadInstallation as error:
        raise BadInstallation("somebody signed up meanwhile: nobody is added, repeat it") from error


def _insert_players(reader: "Reader", lines: Iterable) -> None:
    """Save one player after the other. Raises StorageFailed if nothing can be saved."""
    for number, user, images in reader.new_players(lines):
        try:
            reader.store.users.insert(user, images)
        except (AlreadyThere, InvalidField) as error:  # of somebody who was faster
            reader.count_refused(number, error)
        else:
            reader.result.added += 1


class SeenPlayers:
    """The players of earlier lines, as `Users.require_new` sees those of an installation."""

    def __init__(self) -> None:
        self._keys_by_id: dict[int, list] = {}
        self._taken: set[tuple[str, str | None]] = set()

    def require_new(self, user: User) -> None:
        """Raise AlreadyThere, IdTaken or the error of a taken key, as `Users.require_new` does."""
        keys = _keys_of(user)
        if user.id in self._keys_by_id:
            raise AlreadyThere if self._keys_by_id[user.id] == keys else IdTaken
        for unique, key in zip(USERS.unique, keys, strict=True):
            if key in self._taken:
                raise unique.taken

    def add(self, user: User) -> None:
        keys = self._keys_by_id[user.id] = _keys_of(user)
        self._taken.update(key for key in keys if key[1] is not None)


def _keys_of(user: User) -> list[tuple[str, str | None]]:
    return [(unique.name, unique.of(user)) for unique in USERS.unique]


@dataclass
class Reader:
    """Reads the lines of a file as players, and reports and counts those that it refuses."""

    store: Storage
    folder: str | None  # of pictures
    refused: Callable[[int, str], None]
    wrap_hash: Callable[[str], str] | None
    result: ImportResult = field(default_factory=ImportResult)
    seen: SeenPlayers = field(default_factory=SeenPlayers)

    def new_players(self, lines: Iterable) -> Iterator[tuple[int, User, Images | None]]:
        """Yield the number of each line that is good, its player and the pictures."""
        for number, line in lines:
            try:
                user, images = self._read(line)
            except StorageError as error:
                self.count_refused(number, error)
                continue
            self.seen.add(user)
            if images is None:
                user.pfp_timestamp, user.pfp_generated = None, True  # none was at that address
            is_ours = user.password_hash.startswith((WRAPPED, f"{PASSWORD_METHOD}$"))
            if user.password_hash and not is_ours and self.wrap_hash:
                user.password_hash = self.wrap_hash(user.password_hash)
            yield number, user, images

    def _read(self, line: bytes) -> tuple[User, Images | None]:
        """Return the player of a line, and the pictures or None.

        Raises AlreadyThere, and LineRefused with everything that is wrong.
        """
        read = read_line(line)
        user, problems, images = read.user, read.problems, None
        try:
            self.seen.require_new(user)
            self.store.users.require_new(user)  # now: pictures and hashes take long
        except AlreadyThere:
            if not problems:
                raise
        except InvalidField as error:
            problems.setdefault(error.field, error.problem)
        try:
            images = make_picture_of(user, self.folder, read.picture)
        except PictureRefused as error:
            problems.setdefault("picture", str(error))
        if problems:
            raise LineRefused(*(f"{name}: {each}" for name, each in problems.items()))
        return user, images

    def count_refused(self, number: int, error: StorageError) -> None:
        """Count a line that adds nobody, and report it unless its player is there."""
        if isinstance(error, AlreadyThere):
            self.result.there += 1
            return
        self.result.refused += 1
        for problem in error.problems if isinstance(error, LineRefused) else (str(error),):
            self.refused(number, problem)


def find_last_line_and_largest_id(file: BinaryIO) -> tuple[int, int]:
    """Return the number of the last line and the largest id in a file, each 0 if there is none.

    What is wrong with a line is reported when it is read again.
    """
    last = largest_id = 0
    for number, line in _numbered_lines(file):
        last = number
        with contextlib.suppress(LineRefused):
            user_id = read_object(line).get("id")
            if type(user_id) is int and user_id <= LARGEST_ID:
                largest_id = max(largest_id, user_id)
    return last, largest_id


def _numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not blank; of one that is too long only a part, still too long."""
    for number in itertools.count(1):
        line = file.readline(LONGEST_LINE + 1)
        rest = line
        while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE + 1)
        if not line:
            return
        if line.strip():
            yield number, line


# -- pictures -----------------------------------------------------------------------------------


def make_picture_of(user: User, folder: str | None, name: str | None) -> Images | None:
    """Return the pictures from a player's file, None without one. Raises PictureRefused."""
    path = _picture_path(user, folder, name)
    if path is None:
        return None
    from images.pictures import make_picture_of_file

    return make_picture_of_file(path)


def _picture_path(user: User, folder: str | None, name: str | None) -> str | None:
    """Return the file a line names, or one with the player's id, or None. Raises PictureRefused."""
    if name is not None:
        if folder is None:
            raise PictureRefused("the line names a file: name its folder with --pictures")
        path = os.path.realpath(f"{folder}/{name}") if name.isprintable() else ""
        inside = path.startswith(f"{os.path.realpath(folder)}/")  # the line may be from anyone
        if not inside or not os.path.isfile(path):
            raise PictureRefused(f"there is no file {name!r} in {folder}")
        return path
    if folder is None:
        return None
    endings = (each for ending in PICTURE_ENDINGS for each in (ending, ending.upper()))
    names = [f"{user.id}.{ending}" for ending in endings]
    # Or the folder is the picture folder of another server.
    names += [f"large/{user.picture_file}", f"large/{user.id}.webp"]
    return next(filter(os.path.isfile, (f"{folder}/{each}" for each in names)), None)
