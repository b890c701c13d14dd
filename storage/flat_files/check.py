"""Finds what is wrong with an installation on the disk, and mends what can be mended.

Every file is looked at without a lock first. What looks wrong may be a write that is under way: it
is looked at again while the locks of such a write are held, and counts where it is still so. The
records are the truth, and all that is mended follows from them; one that cannot be read is left to
a person, and keeps its claims and pictures.
"""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from storage import (
    ATTEMPTS_WINDOW,
    CLIENT_ID,
    PICTURE_FILE,
    PICTURE_SIZES,
    USER_ID,
    BadInstallation,
    Client,
    DamagedRecord,
    NoSuchClient,
    NoSuchUser,
    NotFound,
    OriginTaken,
    PictureRefused,
    StorageFailed,
    User,
    origin_of,
    unique_key,
)
from storage.archive import Archivist
from storage.flat_files.backend import FROZEN, STAGED, FlatFiles
from storage.flat_files.codes import WINDOW as CODES_WINDOW
from storage.flat_files.disk import (
    read_file,
    read_number,
    rollback_on_error,
    synced,
    translate_os_errors,
    write_file,
)
from storage.flat_files.keys import NO_KEY
from storage.flat_files.problems import (
    TIME_END,
    Problem,
    Problems,
    check_picture_file,
    damaged,
    has_picture_time,
    is_old,
    look_at_audit,
    look_at_code,
    look_at_fields,
    look_at_invite,
    look_at_link,
    look_at_mode,
    look_at_orphan,
    look_at_owner,
    look_at_rules,
    look_at_taken,
    look_at_window,
    newest_window,
    remove,
    will_be_drawn,
)
from storage.flat_files.unique_index import FIELDS, NAME_CLAIM, can_be_key, user_id_in
from storage.flat_files.user_ids import USER_IDS_END
from storage.flat_files.walk import Walk

HASH = re.compile(r"[0-9a-f]{64}")
USER_FILE = re.compile(rf"{USER_ID.pattern}\.json")
CLIENT_FILE = re.compile(rf"{CLIENT_ID.pattern}\.json")
INVITE_FILE = re.compile(rf"{HASH.pattern}\.(json|taken)")
CODE_FILE = re.compile(rf"{HASH.pattern}\.(json|spent)")
WINDOW_FOLDER = re.compile(r"[0-9]+")
LONGER_WINDOWS = re.compile(r"every-([1-9][0-9]*)-seconds")
ATTEMPTS_FOLDER = re.compile(rf"{WINDOW_FOLDER.pattern}|{LONGER_WINDOWS.pattern}")
# In the data folder itself; an administrator may keep other dot files there.
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}(\.old)?")


def check(
    data_dir: str,
    picture_dir: str,
    repair: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Problems:
    """What is wrong with the installation in these folders; with `repair` it is mended as well.

    `progress` gets now and then how many files were looked at, of how many. Raises BadInstallation
    where there is no installation, or one whose layout this program does not know.
    """
    return Inspection(data_dir, picture_dir, repair, progress).problems()


class Inspection(Walk):
    """An installation as it is. What a `_look_at_` finds may be under way; a `_check_` is sure."""

    def __init__(self, *walk: object) -> None:
        super().__init__(*walk)
        self._timestamps: dict[int, int | None] = {}  # of the pictures, by user id
        self._bearers: dict[str, int] = {}  # user ids, by the claim that each should have
        self._origins: dict[str, str] = {}  # client ids, by the origin of their game
        self._last_id = 0  # the largest ever given

    def problems(self) -> Problems:
        """All that is wrong, in the order in which it is found."""
        if not os.path.isdir(self.data_dir):
            raise BadInstallation(f"there is no installation in {self.data_dir}")
        self._refuse_other_layout()
        # One sync for all that is mended: a claim for each of 100,000 players would take an hour.
        lasting = synced(self.data_dir) if self._repair else contextlib.nullcontext()
        with translate_os_errors(), lasting:
            yield from self._confirmed(self._look_at_layout)
            yield from self._check_data_folder()
            if all(map(os.path.isdir, self._folders())):
                yield from self._check_contents()

    def _check_contents(self) -> Problems:
        for folder in self._folders():
            yield from self._count_in(folder)
        yield from self._check_folder(self._users, USER_FILE, self._check_user)
        yield from self._check_folder(self._path("deleted"), USER_ID, self._check_deleted)
        # What is of a player who was not seen would look like nobody's, and be removed.
        if self._refused.isdisjoint((self._users, self._path("deleted"))):
            yield from self._check_what_players_have()
        yield from self._check_folder(self._path("clients"), CLIENT_FILE, self._check_client)
        yield from self._check_folder(self._path("invites"), INVITE_FILE, self._check_invite)
        yield from self._check_codes()
        yield from self._check_attempts(self._path("attempts"), ATTEMPTS_WINDOW)
        yield from self._check_audit()
        yield from self._confirmed(self._look_at_archiving, locks=[self._lock("locks", "archive")])

    def _check_what_players_have(self) -> Problems:
        yield from self._confirmed(self._look_at_next_user_id, locks=[self._accounts_lock()])
        for kind, names in (("names", NAME_CLAIM), ("emails", HASH)):
            yield from self._check_folder(self._path(kind), names, self._check_claim)
        for folder in self._picture_folders():
            yield from self._check_folder(folder, PICTURE_FILE, self._check_picture)

    # -- the installation as a whole -----------------------------------------------------------

    def _look_at_layout(self) -> Problems:
        for path, mode in self._folders().items():
            if not os.path.isdir(path):
                # Without any record every picture would be one of nobody, and removed.
                lost = path == self._users and self._players_are_lost()
                mend = None if lost else self._make
                yield Problem(path, "is missing: the rest was not looked at", mend=mend)
                continue
            # An administrator may let a group into these two, or keep it out.
            spare = {self.data_dir: 0o050, self.picture_dir: 0o044}.get(path, 0)
            yield from look_at_mode(path, mode, spare)
            if path != self.picture_dir:
                yield from look_at_owner(path, self._owner)
        if not os.path.exists(self._path("format")):
            yield Problem(self._path("format"), "is missing", mend=self._make)

    def _check_data_folder(self) -> Problems:
        """The files that stand in the data folder itself, and the locks."""
        yield from self._confirmed(self._look_at_key)
        for path in map(self._path, ("secret_key", "next_user_id", "audit.log")):
            yield from self._confirmed(look_at_owner, path, self._owner)
        others = map(self._path, ("format", "accounts.lock"))
        locks = self._path("locks")
        held = (yield from self._paths_in(locks)) if os.path.isdir(locks) else []
        for path in (*others, *held):
            yield from self._confirmed(look_at_owner, path, self._owner)
            yield from self._confirmed(look_at_mode, path, 0o600)
        for path in (yield from self._paths_in(self.data_dir)):
            if TEMPORARY.fullmatch(os.path.basename(path)):
                yield from self._confirmed(look_at_orphan, path)

    def _make(self, path: str) -> str:
        FlatFiles(self.data_dir, self.picture_dir)  # as the next start would
        return "made" + ": everyone signs in again" * path.endswith("secret_key")

    def _look_at_key(self) -> Problems:
        path = self._path("secret_key")
        yield from look_at_mode(path, 0o600)
        try:
            if not read_file(path, NotFound()).split():
                yield Problem(path, NO_KEY)
        except NotFound:
            yield Problem(path, "is missing", mend=self._make)
        except StorageFailed as error:
            yield Problem(path, str(error))

    def _look_at_next_user_id(self) -> Problems:
        path = self._path("next_user_id")
        yield from look_at_mode(path, 0o600)
        needed = self._last_id or os.path.exists(path)  # an empty installation may have none
        try:
            next_id = read_number(path)
        except StorageFailed as error:
            yield Problem(path, str(error))
            return
        if next_id > USER_IDS_END:
            yield Problem(path, f"is too large: ids end before {USER_IDS_END}")
        elif needed and next_id <= self._last_id:
            problem = f"is missing or not above {self._last_id}, the largest user id ever given"
            yield Problem(path, problem, mend=self._raise_next_user_id)

    def _check_id(self, path: str, user_id: int) -> Problems:
        if user_id < USER_IDS_END:
            self._last_id = max(self._last_id, user_id)
        else:
            yield Problem(path, f"is of an id that is never given: ids end before {USER_IDS_END}")

    def _raise_next_user_id(self, path: str) -> str:
        write_file(path, b"%d\n" % (self._last_id + 1))
        return f"raised to {self._last_id + 1}"

    def _check_audit(self) -> Problems:
        path = self._path("audit.log")
        yield from self._confirmed(look_at_audit, path, locks=[self._audit_lock()])

    def _look_at_archiving(self) -> Problems:
        frozen, staged = self._path(FROZEN), self._path(STAGED)
        for path in (frozen, staged, f"{self.picture_dir}/{STAGED}"):
            if is_old(path):
                problem = "was left behind by a backup or a restore"
                yield Problem(path, problem, mend=self._take_back)

    def _take_back(self, path: str) -> str:
        """Remove what was left, and the clients of a restore that put no players in place."""
        unfinished = Archivist(self.data_dir, self.picture_dir).sweep()
        done = remove(path)  # where that met an error
        return "taken back: the restore can be repeated" if unfinished else done

    # -- users ---------------------------------------------------------------------------------

    def read_user(self, user_id: int) -> User:
        with _refused_is_damaged(self._user_path(user_id)):
            return super().read_user(user_id)

    def _locks_of(self, user_id: int) -> list[AbstractContextManager]:
        """What holds up every change of a user, their claims and their pictures."""
        return [self._accounts_lock(), self._user_lock(user_id)]

    def _check_user(self, path: str) -> Problems:
        user_id = user_id_in(path)
        yield from self._check_id(path, user_id)
        yield from self._confirmed(self._look_at_user, user_id, locks=self._locks_of(user_id))

    def _look_at_user(self, user_id: int) -> Problems:
        path = self._user_path(user_id)
        yield from look_at_mode(path, 0o600)
        try:
            user = self.read_user(user_id)
        except NoSuchUser:
            yield from look_at_link(path)
            return
        except DamagedRecord as error:
            yield damaged(path, error)
            return
        self._timestamps[user_id] = user.pfp_timestamp
        yield from look_at_fields(path, user)
        for kind in FIELDS:
            yield from self._look_at_claim_of(user, kind)
        yield from self._look_at_pictures_of(user)

    # -- claims --------------------------------------------------------------------------------

    def _look_at_claim_of(self, user: User, kind: str) -> Problems:
        record, field = self._user_path(user.id), FIELDS[kind]
        key = unique_key(getattr(user, field))
        if not can_be_key(kind, key):
            yield Problem(record, f"{field} is one by which nobody can be found")
            return
        claim = self._claims.path(kind, key)
        holder = _holder(claim)
        for other in {self._bearers.setdefault(claim, user.id), holder} - {user.id, None}:
            if self._claims.counts(kind, key, other):
                problem = f"{field} is that of users/{other}.json too: one of them needs another"
                yield Problem(record, problem)
                return
        if holder != user.id:
            make = functools.partial(self._make_claim, user, kind)
            yield Problem(claim, f"does not lead to users/{user.id}.json", mend=make)

    def _make_claim(self, user: User, kind: str, path: str) -> str:
        with rollback_on_error() as undo:
            self._claims.take(kind, getattr(user, FIELDS[kind]), user.id, undo, durable=False)
        return "leads there now"

    def _check_claim(self, path: str) -> Problems:
        if path not in self._bearers:  # else it was looked at from the user's side
            yield from self._confirmed(self._look_at_claim, path, locks=[self._accounts_lock()])

    def _look_at_claim(self, path: str) -> Problems:
        if not os.path.islink(path):
            if os.path.lexists(path):
                yield Problem(path, "is no link, and so no claim")
            return
        holder, kind = _holder(path), os.path.basename(os.path.dirname(path))
        problem = "leads to nobody"
        try:
            user = self.read_user(holder or 0)
        except NoSuchUser:
            user = None
        except DamagedRecord:
            return  # it keeps its claims
        if user:
            problem = f"leads to users/{holder}.json, which has another {FIELDS[kind]}"
            key = unique_key(getattr(user, FIELDS[kind]))
            if can_be_key(kind, key) and self._claims.path(kind, key) == path:
                return
        yield Problem(path, problem, mend=remove)

    # -- pictures ------------------------------------------------------------------------------

    def _look_at_pictures_of(self, user: User) -> Problems:
        remake = functools.cache(functools.partial(self._remake_pictures, user))
        paths = self._picture_paths(user.id, user.pfp_timestamp)
        if not has_picture_time(user):
            problem = "pfp_timestamp is no time"
            yield Problem(self._user_path(user.id), problem, mend=lambda path: remake())
            return
        drawn = will_be_drawn(user, paths)
        for size, path in paths.items():
            if os.path.isfile(path):
                yield from look_at_mode(path, 0o644)
            elif drawn:
                continue  # when it is first asked for
            if problem := check_picture_file(path, PICTURE_SIZES[size]):
                # Whatever is wrong with the three, one act mends it.
                yield Problem(path, problem, mend=lambda path: remake())

    def _remake_pictures(self, user: User) -> str:
        """Give a player whole pictures, at another address: the old one must stay a 404."""
        from storage.pictures import generate_picture, make_picture  # Pillow takes its time

        if not has_picture_time(user):
            user.pfp_timestamp = None  # else the new one is above it, and no time either
        old = self._picture_paths(user.id, user.pfp_timestamp)
        good = {
            size: read_file(path, NotFound())
            for size, path in old.items()
            if check_picture_file(path, PICTURE_SIZES[size]) is None
        }
        images, done = generate_picture(user.id), "a generated picture stands in for it"
        if "large" in good:
            with contextlib.suppress(PictureRefused):
                images = make_picture(good["large"]) | good
                done = "made anew from the large picture"
        self._replace_picture(user, images)
        for path in old.values():
            remove(path)  # also a folder
        return done

    def _check_picture(self, path: str) -> Problems:
        user_id = int(PICTURE_FILE.fullmatch(os.path.basename(path))[1])
        named = user_id in self._timestamps and self._picture_paths(
            user_id, self._timestamps[user_id]
        )
        if not named or path not in named.values():
            yield from self._confirmed(
                self._look_at_picture, path, user_id, locks=self._locks_of(user_id)
            )

    def _look_at_picture(self, path: str, user_id: int) -> Problems:
        problem, mend = "is a picture of nobody", remove
        try:
            user = self.read_user(user_id)
        except NoSuchUser:
            user = None
        except DamagedRecord:
            return  # it keeps its pictures
        if user:
            problem = f"is no picture that users/{user_id}.json names"
            if path in self._picture_paths(user_id, user.pfp_timestamp).values():
                return
        elif not self._was_given(user_id) and not os.path.exists(self._path(STAGED)):
            # Neither a killed restore's nor ours: the folder may be another installation's.
            problem, mend = "is a picture for an id that was never given", None
        if os.path.lexists(path):
            yield Problem(path, problem, mend=mend)

    def _was_given(self, user_id: int) -> bool:
        try:
            return user_id < read_number(self._path("next_user_id"))
        except StorageFailed:
            return False  # nobody knows

    # -- deleted, clients, codes, attempts -----------------------------------------------------

    def _check_deleted(self, path: str) -> Problems:
        user_id = int(os.path.basename(path))
        yield from self._check_id(path, user_id)
        yield from self._confirmed(self._look_at_deleted, user_id, locks=self._locks_of(user_id))

    def _look_at_deleted(self, user_id: int) -> Problems:
        path = self._deleted_path(user_id)
        yield from look_at_mode(path, 0o600)
        if os.path.exists(path) and os.path.exists(self._user_path(user_id)):
            problem = f"says that users/{user_id}.json, which is there, was deleted"
            yield Problem(path, problem, mend=remove)

    def _check_client(self, path: str) -> Problems:
        client_id = os.path.basename(path).removesuffix(".json")
        yield from self._confirmed(self._look_at_client, client_id, locks=[self._clients_lock()])

    def _read_client(self, client_id: str) -> Client:
        with _refused_is_damaged(self._client_path(client_id)):
            return super()._read_client(client_id)

    def _look_at_client(self, client_id: str) -> Problems:
        path = self._client_path(client_id)
        yield from look_at_mode(path, 0o600)
        try:
            client = self.read_client(client_id)
        except NoSuchClient:
            yield from look_at_link(path)
            return
        except DamagedRecord as error:
            yield damaged(path, error)
            return
        if not HASH.fullmatch(client.secret_sha256):
            yield Problem(path, "secret_sha256 is no SHA-256")
        if not 0 <= client.created < TIME_END:
            yield Problem(path, "created is no time")
        wrong = list(look_at_rules(path, client, ["redirect_uris", "game_url"]))
        yield from wrong
        if not wrong and client.game_url:
            yield from self._look_at_origin_of(client)

    def _look_at_origin_of(self, client: Client) -> Problems:
        if self._origins.setdefault(origin_of(client.game_url), client.id) != client.id:
            try:
                self._refuse_taken_origin(client)
            except OriginTaken as error:
                yield Problem(self._client_path(client.id), str(error))

    def _check_invite(self, path: str) -> Problems:
        look = look_at_taken if path.endswith(".taken") else look_at_invite
        yield from self._confirmed(look, path, locks=[self._accounts_lock()])

    def _check_codes(self) -> Problems:
        folder = self._path("codes")
        newest = newest_window((yield from self._paths_in(folder)), CODES_WINDOW)

        def check_window(path: str) -> Problems:
            yield from self._confirmed(look_at_window, path, newest, CODES_WINDOW)
            yield from self._count_in(path)
            yield from self._check_folder(path, CODE_FILE, check_code)

        def check_code(path: str) -> Problems:
            yield from self._confirmed(look_at_code, path)

        yield from self._check_folder(folder, WINDOW_FOLDER, check_window)

    def _check_attempts(self, folder: str, window: int) -> Problems:
        newest = newest_window((yield from self._paths_in(folder)), window)

        def check_folder(path: str) -> Problems:
            if longer := LONGER_WINDOWS.fullmatch(os.path.basename(path)):
                yield from self._confirmed(look_at_mode, path, 0o700)
                yield from self._check_attempts(path, int(longer[1]))
            else:
                yield from self._confirmed(look_at_window, path, newest, window)

        yield from self._check_folder(folder, ATTEMPTS_FOLDER, check_folder)


@contextlib.contextmanager
def _refused_is_damaged(path: str) -> Iterator[None]:
    """Here a record that the disk refuses to give counts as damaged."""
    try:
        yield
    except StorageFailed as error:
        raise DamagedRecord(path, str(error)) from error


def _holder(claim: str) -> int | None:
    try:
        return user_id_in(os.readlink(claim))
    except OSError:  # none, or no link
        return None
