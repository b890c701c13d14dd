"""The storage contract kept as JSON files on disk.

    format                  the layout's version
    secret_key              one signing key a line, newest last
    next_user_id            grows only
    accounts.lock           held while accounts are added, renamed, deleted
    users/1.json            one player
    names/ada               -> ../users/1.json: a symbolic link claims a name
    emails/<sha256>         -> ../users/1.json: and an email address
    deleted/1               empty: this id was someone's
    clients/<id>.json       one client
    invites/<sha256>.json   an invitation that nobody used yet; .taken beside it: who takes it
    codes/<quarter hour>/<sha256>.json      a live code; .spent in place of .json once it was used
    attempts/<quarter hour>/<keyed hash>    one byte a failed try
    locks/                  64 lock files for users, by id modulo 64; and one for each other thing
    audit.log               one JSON line for each act an administrator may have to explain

A record is never written in place: it goes to a temporary file beside it, is synced, and is renamed
over the old one. So a reader needs no lock. The record is the truth: a claim counts only while the
record it points at exists and bears that name, so that a kill between two steps blocks nobody.
"""

import contextlib
import functools
import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator

from storage import (
    ATTEMPTS_WINDOW,
    CLIENT_ID,
    PICTURE_SIZES,
    PLAYER,
    Attempt,
    AuthorizationCode,
    BadInstallation,
    Client,
    DamagedRecord,
    InviteSpent,
    LastAdministrator,
    NoSuchClient,
    NoSuchPicture,
    NoSuchUser,
    NotFound,
    OriginTaken,
    Storage,
    StorageError,
    TooManyClients,
    User,
    build_record,
    check_email,
    check_game_url,
    check_name,
    normal_name,
    now_ms,
    origin_of,
    picture_file_of,
    record_as_dict,
    refuse,
    refuse_bad_record,
    sha256,
    unique_key,
)
from storage.flat_files.attempts import count, give_back
from storage.flat_files.bulk_insert import BulkInsert, draw_picture
from storage.flat_files.codes import CodeFiles
from storage.flat_files.disk import (
    StatCache,
    append_durably,
    encode,
    locked,
    make_folder,
    read_file,
    read_json_lines,
    read_record,
    remove_durably,
    remove_file,
    rollback_on_error,
    storage_error_from,
    sync_removals,
    translate_os_errors,
    write_file,
)
from storage.flat_files.invites import InviteFiles
from storage.flat_files.keys import KeyFile
from storage.flat_files.unique_index import FIELDS, UniqueIndex, claimed_by, owns_key
from storage.flat_files.user_ids import UserIds
from storage.flat_files.write_probe import WriteCheck

LAYOUT_VERSION = 1
NUMBER = re.compile(rb"[1-9][0-9]{0,14}")
LAYOUT = ("users", "names", "emails", "deleted", "clients", "invites", "codes", "attempts", "locks")
FROZEN, STAGED = ".backup", ".restore"  # while these are made; the second beside pictures too
USER_LOCKS = 64


# ---------------------------------------------------------------------------------------------
# The backend
# ---------------------------------------------------------------------------------------------


class FlatFiles(Storage):
    """The storage contract on a data folder and a picture folder."""

    def __init__(self, data_dir: str, picture_dir: str) -> None:
        self.data_dir = os.path.abspath(data_dir)
        self.picture_dir = os.path.abspath(picture_dir)
        self._users = f"{self.data_dir}/users"
        self._editing = threading.local()
        self._next_ids = UserIds(self.data_dir)
        self._claims = UniqueIndex(self.data_dir, self.read_user)
        self._clients = StatCache()
        self._invites = InviteFiles(self._path("invites"))
        self._write_check = WriteCheck(self._users, f"{self.picture_dir}/large")
        self._open()

    def _open(self) -> None:
        with translate_os_errors():
            self._make_layout()
            self._codes = CodeFiles(self._path("codes"))
            self._keys = KeyFile(self._path("secret_key"))
            # Last: an installation without it was never whole.
            if not os.path.exists(self._path("format")):
                write_file(self._path("format"), b"%d\n" % LAYOUT_VERSION)

    def _path(self, *parts: str) -> str:
        return "/".join((self.data_dir, *parts))

    def _make_layout(self) -> None:
        """Make what is missing. Each step can be repeated: a start may be killed at any."""
        self._refuse_other_layout()
        if self._players_are_lost():
            # A new one would be empty: each claim and picture would seem to be nobody's.
            raise BadInstallation(
                f"{self._users} is missing, and players were added: put it back, or restore a "
                "backup into an empty installation"
            )
        for folder in ("", *LAYOUT):
            make_folder(self._path(folder), 0o700)
        for folder in (self.picture_dir, *self._picture_folders()):
            make_folder(folder, 0o755)

    def _players_are_lost(self) -> bool:
        """True where players were added, and the folder of their records is nowhere."""
        # A restore that could not end has taken them back.
        places = self._users, self._path(STAGED, "users")
        return os.path.exists(self._path("next_user_id")) and not any(map(os.path.isdir, places))

    def _refuse_other_layout(self) -> None:
        try:
            content = read_file(self._path("format"), NotFound()).strip()
        except NotFound:
            return
        if not NUMBER.fullmatch(content):
            raise BadInstallation(f"{self._path('format')} holds no version number")
        version = int(content)
        if version > LAYOUT_VERSION:
            raise BadInstallation(
                f"{self.data_dir} has layout {version} and this program knows {LAYOUT_VERSION}: "
                "run the newer program that made it"
            )

    # -- users ---------------------------------------------------------------------------------

    def _user_path(self, user_id: int) -> str:
        return f"{self._users}/{user_id}.json"

    def _deleted_path(self, user_id: int) -> str:
        return self._path("deleted", str(user_id))

    def _user_lock(self, user_id: int) -> contextlib.AbstractContextManager[int]:
        return self._lock("locks", str(user_id % USER_LOCKS))

    def _accounts_lock(self) -> contextlib.AbstractContextManager[int]:
        return self._lock("accounts.lock")

    def _lock(self, *parts: str) -> contextlib.AbstractContextManager[int]:
        if getattr(self._editing, "now", False):
            raise RuntimeError("edits never nest: two threads could each wait for the other")
        return locked(self._path(*parts))

    def read_user(self, user_id: int) -> User:
        missing = NoSuchUser(f"there is no user {user_id}")
        return read_record(self._user_path(user_id), User, missing, id=user_id)

    def find_user(self, name_or_email: str) -> User | None:
        key = unique_key(name_or_email)
        kind = "emails" if "@" in key else "names"  # no name has an @
        with translate_os_errors():
            holder = self._claims.holder(kind, key)
        try:
            user = self.read_user(holder) if holder else None
        except NoSuchUser:
            return None
        return user if user and owns_key(user, kind, key) else None

    def user_ids(self) -> list[int]:
        with translate_os_errors():
            names = [name.removesuffix(".json") for name in os.listdir(self._users)]
        return sorted(int(name) for name in names if name.isdecimal())

    def add_user(
        self,
        name: str,
        email: str,
        password_hash: str,
        mod_level: int = PLAYER,
        invite: str | None = None,
        first: bool = False,
    ) -> User:
        from storage.pictures import generate_picture  # Pillow: memory a worker rarely needs

        user = User(0, normal_name(name), email.strip(), password_hash, mod_level)
        user.last_heartbeat = user.pfp_timestamp = user.created
        refuse_bad_record(user)
        with translate_os_errors(), self._accounts_lock(), rollback_on_error() as undo:
            for kind, text in claimed_by(user):
                self._claims.refuse_taken(kind, text)
            if (first and not self.is_new()) or (invite and not self.is_good_invite(invite)):
                raise InviteSpent
            user.id = self._next_ids.take()
            undo.callback(self._remove_pictures, user.id, user.pfp_timestamp)
            self._write_pictures(user.id, user.pfp_timestamp, generate_picture(user.id))
            for kind, text in claimed_by(user):
                self._claims.take(kind, text, user.id, undo)
            with self._invites.taken(invite, user.id):
                write_file(self._user_path(user.id), encode(record_as_dict(user)))
        return user

    def reserve_user_ids(self, largest: int) -> None:
        with translate_os_errors(), self._accounts_lock():
            self._next_ids.reserve(largest)

    def add_users(
        self, users: list[User], pictures: dict[int, dict[str, bytes]]
    ) -> list[StorageError | None]:
        with translate_os_errors(), self._accounts_lock():
            return BulkInsert(self, pictures).add(users)

    def is_new(self) -> bool:
        try:
            return read_file(self._path("next_user_id"), NotFound()).strip() == b"1"
        except NotFound:
            return not self.user_ids()

    @contextlib.contextmanager
    def edit_user(self, user_id: int) -> Iterator[User]:
        with self._edit_user(user_id, fixed={"id", "name", "email"}) as user:
            yield user

    def _edit_user(self, user_id: int, fixed: set[str], checked: frozenset[str] = frozenset()):
        read = functools.partial(self.read_user, user_id)
        path = self._user_path(user_id)
        return self._edit(self._user_lock(user_id), path, read, fixed, checked)

    @contextlib.contextmanager
    def _edit(
        self,
        lock,
        path: str,
        read: Callable,
        fixed: set[str],
        checked: frozenset[str] = frozenset(),
    ) -> Iterator:
        """Hold `lock`, yield the record that `read` gives, and put it back as it is then.

        The fields in `fixed` must not change; the rules of those in `checked` are not looked at.
        """
        with contextlib.ExitStack() as held:
            with translate_os_errors():
                held.enter_context(lock)
            self._editing.now = True
            held.callback(setattr, self._editing, "now", False)
            record = read()
            before = record_as_dict(record)
            yield record
            after = record_as_dict(record)
            changed = {name for name in after if after[name] != before[name]}
            if changed & fixed:
                raise ValueError(f"not changed by an edit: {', '.join(sorted(changed & fixed))}")
            refuse_bad_record(record, changed - checked)
            if changed:
                build_record(type(record), after)  # what could not be read again is not written
                with translate_os_errors():
                    write_file(path, encode(after))

    def rename_user(self, user_id: int, name: str) -> User:
        name = normal_name(name)
        refuse("name", check_name(name))
        return self._change_claimed(user_id, "names", name)

    def reset_name(self, user_id: int) -> User:
        return self._change_claimed(user_id, "names", f"player{user_id}")

    def change_email(self, user_id: int, email: str) -> User:
        email = email.strip()
        refuse("email", check_email(email))
        return self._change_claimed(user_id, "emails", email)

    def _change_claimed(self, user_id: int, kind: str, text: str) -> User:
        """New claim, record (the commit), old claim: in this order a kill blocks nobody."""
        field = FIELDS[kind]
        edit = self._edit_user(user_id, {"id"}, checked=frozenset((field,)))
        with translate_os_errors(), self._accounts_lock():
            with rollback_on_error() as undo, edit as user:
                old_key = unique_key(getattr(user, field))
                setattr(user, field, text)
                self._claims.refuse_taken(kind, text, but=user_id)
                if unique_key(text) != old_key:
                    self._claims.take(kind, text, user_id, undo)
            if unique_key(text) != old_key:
                self._claims.release(kind, old_key, user_id)
        return user

    def delete_user(self, user_id: int) -> None:
        with translate_os_errors(), self._accounts_lock(), self._user_lock(user_id):
            user = self.read_user(user_id)
            with rollback_on_error() as undo:
                undo.callback(remove_file, self._deleted_path(user_id))
                write_file(self._deleted_path(user_id), b"")
                remove_durably(self._user_path(user_id))
            for kind, text in claimed_by(user):
                self._claims.release(kind, unique_key(text), user_id)
            self._remove_pictures(user_id, user.pfp_timestamp)
            sync_removals([*map(self._path, FIELDS), *self._picture_folders()])

    @contextlib.contextmanager
    def administered_without(self, user_id: int) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            with translate_os_errors():
                # Not accounts.lock: the search may take seconds, and nobody else waits for it.
                held.enter_context(self._lock("locks", "administrators"))
            needed = self.read_user(user_id).administers
            # The first player is one, as a rule. That there is no other, only all records can tell.
            others = (each for each in self.user_ids() if each != user_id)
            if needed and not any(map(self._administers, others)):
                raise LastAdministrator
            yield

    def _administers(self, user_id: int) -> bool:
        try:
            return self.read_user(user_id).administers
        except (NoSuchUser, DamagedRecord):
            return False

    # -- pictures ------------------------------------------------------------------------------

    def _picture_folders(self) -> list[str]:
        return [f"{self.picture_dir}/{size}" for size in PICTURE_SIZES]

    def _picture_paths(self, user_id: int, timestamp: int | None) -> dict[str, str]:
        """Where each size of one generation of a player's picture is."""
        name = picture_file_of(user_id, timestamp)
        return {size: f"{self.picture_dir}/{size}/{name}" for size in PICTURE_SIZES}

    def _write_pictures(self, user_id: int, timestamp: int, images: dict[str, bytes]) -> None:
        for size, path in self._picture_paths(user_id, timestamp).items():
            write_file(path, images[size], mode=0o644)

    def _remove_pictures(self, user_id: int, timestamp: int | None) -> None:
        for path in self._picture_paths(user_id, timestamp).values():
            remove_file(path)

    def save_picture(self, user_id: int, images: dict[str, bytes]) -> int:
        with translate_os_errors(), self._user_lock(user_id):
            return self._replace_picture(self.read_user(user_id), images)

    def _replace_picture(self, user: User, images: dict[str, bytes]) -> int:
        """New files, record (the commit), old files; the caller holds the user's lock."""
        old = user.pfp_timestamp
        user.pfp_timestamp = max(now_ms(), (old or 0) + 1)
        with rollback_on_error() as undo:
            undo.callback(self._remove_pictures, user.id, user.pfp_timestamp)
            self._write_pictures(user.id, user.pfp_timestamp, images)
            write_file(self._user_path(user.id), encode(record_as_dict(user)))
        self._remove_pictures(user.id, old)
        sync_removals(self._picture_folders())
        return user.pfp_timestamp

    def read_picture(self, size: str, file_name: str) -> tuple[bytes, float]:
        path = f"{self.picture_dir}/{size}/{file_name}"
        missing = NoSuchPicture(f"there is no picture {size}/{file_name}")
        try:
            return read_file(path, missing), os.stat(path).st_mtime
        except (NoSuchPicture, FileNotFoundError):
            return draw_picture(self, size, file_name)
        except OSError as error:
            raise storage_error_from(error) from error

    # -- clients -------------------------------------------------------------------------------

    def _client_path(self, client_id: str) -> str:
        if not CLIENT_ID.fullmatch(client_id):  # before it becomes a file name
            raise NoSuchClient("there is no such client")
        return self._path("clients", f"{client_id}.json")

    def _clients_lock(self) -> contextlib.AbstractContextManager[int]:
        return self._lock("locks", "clients")

    def add_client(
        self,
        name: str,
        redirect_uris: list[str],
        owner_id: int | None,
        by: int | str,
        game_url: str | None = None,
        description: str = "",
        listed: bool = False,
        at_most: int | None = None,
    ) -> tuple[Client, str]:
        secret = secrets.token_urlsafe(32)
        client = Client(secrets.token_hex(12), name, sha256(secret), redirect_uris, owner_id)
        client.game_url, client.description, client.listed = game_url, description, listed
        refuse_bad_record(client)
        with translate_os_errors(), self._clients_lock():
            self._refuse_taken_origin(client)
            owned = [each for each in self.clients() if each.owner_id == owner_id]
            if at_most is not None and len(owned) >= at_most:
                raise TooManyClients(at_most)
            self.write_audit("client add", by, client=client.id)
            write_file(self._client_path(client.id), encode(record_as_dict(client)))
        return client, secret

    def read_client(self, client_id: str) -> Client:
        read = functools.partial(self._read_client, client_id)
        return self._clients.get(self._client_path(client_id), read)

    def _read_client(self, client_id: str) -> Client:
        missing = NoSuchClient("there is no such client")
        return read_record(self._client_path(client_id), Client, missing, id=client_id)

    def client_ids(self) -> list[str]:
        with translate_os_errors():
            names = [name.removesuffix(".json") for name in os.listdir(self._path("clients"))]
        return sorted(name for name in names if CLIENT_ID.fullmatch(name))

    def clients(self) -> list[Client]:
        readable = []
        for client_id in self.client_ids():
            with contextlib.suppress(NoSuchClient, DamagedRecord):
                readable.append(self.read_client(client_id))
        return readable

    def _refuse_taken_origin(self, client: Client) -> None:
        """Raise OriginTaken where another client's game is on the origin of this one's."""
        if client.game_url is None:
            return
        others = (each.game_url for each in self.clients() if each.id != client.id)
        # People edit records: what breaks the rule is no game's address.
        games = (url for url in others if url and check_game_url(url) is None)
        if origin_of(client.game_url) in map(origin_of, games):
            raise OriginTaken

    @contextlib.contextmanager
    def edit_client(self, client_id: str) -> Iterator[Client]:
        path = self._client_path(client_id)
        read = functools.partial(self._read_client, client_id)
        with self._edit(self._clients_lock(), path, read, fixed={"id"}) as client:
            before = client.game_url
            yield client
            if client.game_url != before:
                refuse_bad_record(client, {"game_url"})
                self._refuse_taken_origin(client)

    def issue_client_secret(self, client_id: str, by: int | str) -> str:
        secret = secrets.token_urlsafe(32)
        with self.edit_client(client_id) as client:
            self.write_audit("client new-secret", by, client=client_id)
            client.secret_sha256 = sha256(secret)
        return secret

    def delete_client(self, client_id: str, by: int | str) -> None:
        with translate_os_errors(), self._clients_lock():
            self.read_client(client_id)
            self.write_audit("client delete", by, client=client_id)
            remove_durably(self._client_path(client_id))

    # -- authorization codes -------------------------------------------------------------------

    def add_code(self, code: str, record: AuthorizationCode) -> None:
        self._codes.add(code, record)

    def read_code(self, code: str) -> AuthorizationCode:
        return self._codes.read(code)

    def spend_code(self, code: str) -> None:
        self._codes.spend(code)

    # -- invitations ---------------------------------------------------------------------------

    def issue_invite(self, days: int, by: int | str) -> str:
        self.write_audit("invite", by, days=days)
        with translate_os_errors():
            return self._invites.issue(days)

    def is_good_invite(self, invite: str) -> bool:
        return self._invites.is_good(invite)

    # -- keys, attempts, audit -----------------------------------------------------------------

    def keys(self) -> tuple[bytes, ...]:
        return self._keys.read()

    def rotate_keys(self, drop_old: bool, by: int | str) -> None:
        with translate_os_errors(), self._lock("locks", "keys"):
            self.write_audit("key drop-old" if drop_old else "key rotate", by)
            self._keys.rotate(drop_old)

    def count_attempt(
        self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW
    ) -> Attempt:
        # Keyed: the folder tells nobody who was guessed at, or from where.
        digest = hmac.new(self.keys()[-1], f"{kind}:{subject}".encode(), "sha256").hexdigest()
        # Quarters of an hour stand in attempts/ itself, longer windows in a folder of their own.
        longer = [] if window == ATTEMPTS_WINDOW else [f"every-{window}-seconds"]
        with translate_os_errors():
            return count(self._path("attempts", *longer), digest, limit, window)

    def give_back_attempt(self, attempt: Attempt) -> None:
        with translate_os_errors():
            give_back(attempt)

    def try_disk(self) -> None:
        self.keys()
        self._write_check.run()

    def write_audit(self, act: str, by: int | str, **ids: int | str) -> None:
        line = json.dumps({"time": now_ms(), "act": act, "by": by, **ids}) + "\n"
        with translate_os_errors(), self._audit_lock():
            append_durably(self._path("audit.log"), line.encode())

    def _audit_lock(self) -> contextlib.AbstractContextManager[int]:
        # Not _lock: an edit writes a line too. Not the log: restore puts another in its place.
        return locked(self._path("locks", "audit"))

    def read_audit(self) -> Iterator[dict]:
        return read_json_lines(self._path("audit.log"))
