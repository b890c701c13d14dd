"""The storage contract: records, rules, errors, and the methods of a backend.

The names in the `__all__` of other modules can be used from here. The methods for check, backup and
restore are in `storage.maintenance`. Nothing here knows of HTTP; the views choose a status for each
error.

Times are integer milliseconds since 1970 UTC unless a name says otherwise.
"""

import contextlib
import importlib
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TypeVar

from storage.encoding import *
from storage.errors import *
from storage.maintenance import Advice, Load, Maintenance, Problem, Progress, Snapshot, ignore
from storage.names import *
from storage.records import *
from storage.rules import *

ATTEMPTS_WINDOW = 900  # seconds: failures are counted over this and the window before it
Images = dict[str, bytes]  # a picture: one webp file for each name in PICTURE_SIZES
UserCallback = Callable[[User], None]
ClientCallback = Callable[[Client], None]
Value = TypeVar("Value")


class Storage(Maintenance):
    """The methods of a backend. Several processes and threads may use one installation at once.

    A method that saves returns when the change would survive the loss of the machine that keeps it
    (flat files: a power cut), unless it says otherwise. If that cannot be had it raises StorageFull
    or StorageFailed, and the old record stands. A backend across a network may also raise
    SaveUnconfirmed: the change may have been saved, as a later read shows.

    A method that reads sees the old record or the new one, never a part, and takes no lock; it
    raises DamagedRecord for a record that cannot be decoded.

    Several methods take a callable `before`. It is called with the record that is about to change,
    under the record's lock. An exception that it raises stops the change.
    """

    @abstractmethod
    def close(self) -> None:
        """Release the resources of this process. No other method may be called afterwards."""

    # Users

    @abstractmethod
    def add_user(
        self,
        name: str,
        email: str,
        password_hash: str,
        mod_level: int = PLAYER,
        invite: str | None = None,
        first: bool = False,
    ) -> User:
        """Add and return a user, with a generated picture and an id that is never given twice.

        The name is stored as `normal_name` returns it. An `invite` is used up; with `first` this
        must be the first account ever. Raises InvalidField, NameTaken, EmailTaken, InviteSpent.
        """

    @abstractmethod
    def reserve_user_ids(self, largest: int) -> None:
        """Make `add_user` give only ids above this one."""

    @abstractmethod
    def add_users(
        self, users: list[User], pictures: dict[int, Images]
    ) -> list[StorageError | None]:
        """Add users that have their ids already, with the `pictures` of some, by user id.

        Returns for each user None, or the error that refused it: AlreadyThere, IdTaken, NameTaken,
        EmailTaken, DamagedRecord. The fields are not checked. If it raises or is killed, some of
        the users may have been added, each of them whole.
        """

    @abstractmethod
    def is_new(self) -> bool:
        """Return True until the first account is made."""

    @abstractmethod
    def read_user(self, user_id: int) -> User:
        """Return the user with this id. Raises NoSuchUser."""

    def read_from_user(self, user_id: int, make: Callable[[User], Value]) -> Value:
        """Return `make(user)` for the user with this id. Raises NoSuchUser.

        A backend may cache the value until the record changes, so it must not be changed, and may
        depend on nothing but the record. `make` is a function of a module: its values are cached
        under it.
        """
        return make(self.read_user(user_id))

    def read_from_users(self, user_ids: list[int], make: Callable[[User], Value]) -> list[Value]:
        """Return `make(user)` for each of these users, in this order, as `read_from_user` does.

        Unknown users, and those with a damaged record, are left out.
        """
        found = []
        for user_id in user_ids:
            with contextlib.suppress(NoSuchUser, DamagedRecord):
                found.append(self.read_from_user(user_id, make))
        return found

    @abstractmethod
    def find_user(self, name_or_email: str) -> User | None:
        """Return the user with this name or email address, in any spelling of the same key."""

    @abstractmethod
    def user_ids(self) -> list[int]:
        """Return the ids of all users, ascending: for commands, not for requests."""

    @abstractmethod
    def administrators(self) -> list[User]:
        """Return the administrators who can sign in, by id, without reading all users."""

    @abstractmethod
    def edit_user(self, user_id: int) -> AbstractContextManager[User]:
        """`with edit_user(id) as user:` change the fields; the end of the block saves them.

        One edit of a user runs at a time; edits never nest (RuntimeError, as for other calls that
        change a record inside one). Nothing is saved if the block raises, and nothing is written if
        nothing changed. Raises NoSuchUser, InvalidField, and ValueError for a value of another type
        or a changed id, name or email: `rename_user` and `change_email` make those changes.

        Every method that saves a user drops grants of clients that no longer exist, then all but
        the newest GRANTS_KEPT.
        """

    @abstractmethod
    def rename_user(self, user_id: int, name: str, before: UserCallback = ignore) -> User:
        """Change a user's name. Raises NoSuchUser, InvalidField, NameTaken."""

    @abstractmethod
    def reset_name(self, user_id: int, before: UserCallback = ignore) -> User:
        """Rename a user `player<id>`. `before` may change other fields. Raises NoSuchUser."""

    @abstractmethod
    def change_email(self, user_id: int, email: str, before: UserCallback = ignore) -> User:
        """Change a user's email address. Raises NoSuchUser, InvalidField, EmailTaken."""

    @abstractmethod
    def delete_user(self, user_id: int, before: UserCallback = ignore) -> None:
        """Remove a user, who frees the name and the email address. Raises NoSuchUser."""

    @abstractmethod
    def administered_without(self, user_id: int) -> AbstractContextManager[None]:
        """`with administered_without(id):` suspend, demote or delete a user who may be needed.

        Raises LastAdministrator if the user is the only administrator. One such block runs at a
        time, over all processes: of two administrators who demote each other, one is refused.
        """

    # Pictures: webp files of the sizes in PICTURE_SIZES

    @abstractmethod
    def save_picture(self, user_id: int, images: Images, before: UserCallback = ignore) -> int:
        """Replace a user's picture and return its timestamp, larger than every earlier one.

        `images` maps each size's name to a webp file. Raises NoSuchUser.
        """

    @abstractmethod
    def read_picture(self, size: str, file_name: str) -> tuple[bytes, float]:
        """Return a picture and the time it was written, in seconds since 1970.

        `file_name` has the form of `User.picture_file`: the caller has checked that. The picture of
        a user without a timestamp is generated when it is first read. Raises NoSuchPicture.
        """

    # Clients

    @abstractmethod
    def add_client(
        self,
        name: str,
        redirect_uris: list[str],
        owner_id: int | None,
        game_url: str | None = None,
        description: str = "",
        listed: bool = False,
        at_most: int | None = None,
        before: ClientCallback = ignore,
        **flags: bool,
    ) -> tuple[Client, str | None]:
        """Register a client and return it with its secret, which cannot be read again.

        `flags` are other fields of a client; a `public` one has no secret. `owner_id` None means
        the administrators. No two games are on one origin. Raises InvalidField, OriginTaken, and
        TooManyClients if the owner already has `at_most`.
        """

    @abstractmethod
    def read_client(self, client_id: str) -> Client:
        """Return the client with this id, which may be any text. Raises NoSuchClient.

        The record is shared with other callers and must not be changed: `edit_client` does that.
        """

    @abstractmethod
    def client_ids(self, after: str = "", at_most: int | None = None) -> list[str]:
        """Return the ids of the clients, ascending: at most so many, and only ids `after` one."""

    @abstractmethod
    def clients_of(
        self, owner_id: int | None, after: str = "", at_most: int | None = None
    ) -> list[Client]:
        """Return the readable clients of an owner, by id; None means the administrators.

        `after` and `at_most` limit them as those of `client_ids`.
        """

    @abstractmethod
    def games(self, listed: bool, after: str = "", at_most: int | None = None) -> list[Client]:
        """Return the readable clients whose games are on the home page, or are not, by id.

        `after` and `at_most` limit them as those of `client_ids`.
        """

    @abstractmethod
    def edit_client(self, client_id: str) -> AbstractContextManager[Client]:
        """Change a client as `edit_user` changes a user.

        Raises NoSuchClient, InvalidField, OriginTaken, and ValueError for a changed id.
        """

    @abstractmethod
    def issue_client_secret(self, client_id: str, before: ClientCallback = ignore) -> str:
        """Replace a client's secret and return the new one. Raises NoSuchClient."""

    @abstractmethod
    def delete_client(self, client_id: str, before: ClientCallback = ignore) -> None:
        """Remove a client. Raises NoSuchClient."""

    # Authorization codes and invitations

    @abstractmethod
    def add_code(self, code: str, record: AuthorizationCode) -> None:
        """Store a code under its hash. A crash of the storage may lose it, and invalidates it."""

    @abstractmethod
    def read_code(self, code: str) -> AuthorizationCode:
        """Return the record of an unused code of any age. Raises NoSuchCode, CodeSpent."""

    @abstractmethod
    def spend_code(self, code: str) -> None:
        """Use a code up. Of racing callers one returns; the others get CodeSpent or NoSuchCode.

        StorageFailed leaves the code unused, unless it is SaveUnconfirmed.
        """

    @abstractmethod
    def issue_invite(self, days: int) -> str:
        """Return a new invitation for one account, valid for `days` days, stored as its hash."""

    @abstractmethod
    def find_invite(self, invite: str) -> Invite | None:
        """Return the invitation if `add_user` would accept it now."""

    # Keys, attempts, audit

    @abstractmethod
    def keys(self) -> tuple[bytes, ...]:
        """Return the signing keys, newest last.

        A backend may cache them for a second; `rotate_keys` returns after that second.
        """

    @abstractmethod
    def rotate_keys(self, drop_old: bool) -> None:
        """Add a key and keep the one before. With `drop_old`, no other key stays valid.

        When it returns, every process signs with the new key.
        """

    @abstractmethod
    def count_attempt(
        self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW
    ) -> Attempt:
        """Count one attempt of a `kind` (what is guessed) by or at `subject`, before it is checked.

        Counts are exact across processes. Raises TooManyAttempts, and counts nothing, if `limit`
        attempts of this and the previous `window` (seconds) were not given back. It may be called
        where `write_audit` may, and the attempt counts even if the change fails.
        """

    @abstractmethod
    def require_attempt_left(
        self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW
    ) -> None:
        """Raise TooManyAttempts if `count_attempt` would. Nothing is counted or stored."""

    @abstractmethod
    def give_back_attempt(self, attempt: Attempt) -> None:
        """Stop counting an attempt, because it succeeded."""

    @abstractmethod
    def clear_attempts(self, kind: str, subject: str, window: int = ATTEMPTS_WINDOW) -> None:
        """Stop counting all attempts of a `kind` by or at `subject`."""

    @abstractmethod
    def check_health(self) -> None:
        """Raise StorageFailed if records or pictures cannot be read and written.

        It may be called often: the result may be a few seconds old.
        """

    @abstractmethod
    def write_audit(self, act: str, by: int | str, **ids: int | str) -> None:
        """Add a line to the audit log, which is saved before the act that it describes.

        `by` and `ids` have ids, never names. In the block of an `edit_` method and in a `before`
        callable the line belongs to that change.
        """

    @abstractmethod
    def read_audit(self) -> Iterator[dict]:
        """Yield the audit log, oldest line first: the arguments of `write_audit`, and `time`.

        Raises DamagedRecord after the last line if one is damaged.
        """

    @abstractmethod
    def audit_of(self, subject: int | str) -> Iterator[dict]:
        """Yield the lines by or about a user id, or about a client id, without reading all.

        Raises as `read_audit`.
        """


# The package of each backend, by URL scheme.
BACKENDS = {
    "files": "storage.flat_files",
    "postgresql": "storage.postgresql",
    "postgres": "storage.postgresql",
}


def open_storage(data_dir: str, picture_dir: str, url: str = "files") -> Storage:
    """Return the storage that the setting IDENTITY_STORAGE names, made if it does not exist.

    "files" keeps records and pictures in the two folders; the URL of a database needs neither, and
    is connected at the first call. Raises BadInstallation for an unknown setting, a layout that
    this program does not know or a key file without a key, and StorageFailed if the folders cannot
    be made.
    """
    return _backend_of(url).open_storage(data_dir, picture_dir, url)


def check_installation(
    data_dir: str,
    picture_dir: str,
    url: str = "files",
    repair: bool = False,
    progress: Progress = ignore,
) -> Iterator[Problem]:
    """Yield what `Storage.verify` does, of an installation that is not opened before.

    Opening makes what is missing; here that is a problem, unless there is no installation at all.
    The first arguments are those of `open_storage`. Raises BadInstallation, StorageFailed.
    """
    return _backend_of(url).check_installation(data_dir, picture_dir, url, repair, progress)


def find_advice(data_dir: str, picture_dir: str, url: str = "files") -> list[Advice]:
    """Return what looks wrong with the place of the records, without changing anything.

    The arguments are those of `open_storage`. Raises BadInstallation for an unknown backend.
    """
    return list(_backend_of(url).find_advice(data_dir, picture_dir, url))


def _backend_of(url: str) -> ModuleType:
    if problem := check_url(url):
        raise BadInstallation(f"IDENTITY_STORAGE {problem}")
    return importlib.import_module(BACKENDS[url.partition("://")[0]])


def check_url(url: str) -> str | None:
    """Return what is wrong with a value of IDENTITY_STORAGE, without showing it, or None."""
    scheme, separator, _ = url.partition("://")
    if scheme in BACKENDS and bool(separator) == (scheme != "files"):
        return None
    return "is neither files nor a URL like postgresql://user@host/database"


def mask_url(url: str) -> str:
    """Return a value of IDENTITY_STORAGE without its passwords, to be shown."""
    # Up to the last @: of a malformed URL rather too much is masked.
    url = re.sub(r"(?<=://)([^/?#@:]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"([?&](?:password|sslpassword)=)[^&]*", r"\1***", url)
