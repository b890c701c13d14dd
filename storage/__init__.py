"""What the server keeps, and what it promises about it.

This module is the contract: the errors (`storage.errors`), the record types and their rules
(`storage.rules`), and the methods that a backend offers. `storage.flat_files` keeps it as JSON
files. Nothing here knows of HTTP; the views choose a status for each error.

Times are integer milliseconds since 1970 UTC unless a name says otherwise.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager

from storage.errors import (
    AlreadyThere,
    BadFile,
    BadInstallation,
    BrokenPicture,
    CodeSpent,
    DamagedRecord,
    EmailTaken,
    IdTaken,
    InvalidField,
    InviteSpent,
    LastAdministrator,
    NameTaken,
    NoSuchClient,
    NoSuchCode,
    NoSuchPicture,
    NoSuchUser,
    NotAPicture,
    NotFound,
    OriginTaken,
    PictureRefused,
    StorageError,
    StorageFailed,
    StorageFull,
    TooManyAttempts,
    TooManyBytes,
    TooManyClients,
    TooManyPixels,
)
from storage.records import (
    ADMINISTRATOR,
    MODERATOR,
    PICTURE_SIZES,
    PLAYER,
    RECORD_TYPES,
    RULES,
    Attempt,
    AuthorizationCode,
    Client,
    Grant,
    Invite,
    Session,
    User,
    build_record,
    now_ms,
    picture_file_of,
    record_as_dict,
    refuse,
    refuse_bad_record,
    sha256,
)
from storage.rules import (
    CLIENT_ID,
    PICTURE_FILE,
    USER_ID,
    check_bio,
    check_client_name,
    check_description,
    check_email,
    check_flair,
    check_game_url,
    check_mod_level,
    check_name,
    check_password,
    check_redirect_uri,
    check_redirect_uris,
    normal_name,
    origin_of,
    unique_key,
    without_loopback_port,
)

ATTEMPTS_WINDOW = 900  # seconds: failures are counted over this and the window before it

# ---------------------------------------------------------------------------------------------
# The contract
# ---------------------------------------------------------------------------------------------


class Storage(ABC):
    """What a backend offers. Several processes and threads may use one installation at once.

    A method that saves returns when the change would survive a power cut, unless it says otherwise;
    where that cannot be had it raises StorageFull or StorageFailed, and nothing has changed. A
    method that reads sees the old record or the new one, never a part, and takes no lock; it raises
    DamagedRecord where the record it needs cannot be understood.
    """

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
        """Keep a new player, with a generated picture and an id that was never anyone's.

        The name is kept as `normal_name` has it. With an `invite` this uses it up; with `first` it
        must be the first account ever. Raises InvalidField, NameTaken, EmailTaken, InviteSpent.
        """

    @abstractmethod
    def reserve_user_ids(self, largest: int) -> None:
        """See to it that `add_user` gives no id up to this one."""

    @abstractmethod
    def add_users(
        self, users: list[User], pictures: dict[int, dict[str, bytes]]
    ) -> list[StorageError | None]:
        """Keep players who have their ids already, with the `pictures` of some, by user id.

        Returns for each what kept them out, or None: AlreadyThere, IdTaken, NameTaken, EmailTaken,
        DamagedRecord. The fields are not looked at. Where it raises, or is killed, some of them may
        be there, each of them whole.
        """

    @abstractmethod
    def is_new(self) -> bool:
        """True until the first account is made."""

    @abstractmethod
    def read_user(self, user_id: int) -> User:
        """The player with this id. Raises NoSuchUser."""

    @abstractmethod
    def find_user(self, name_or_email: str) -> User | None:
        """The player who bears this name or has this email address, however it is written."""

    @abstractmethod
    def user_ids(self) -> list[int]:
        """The ids of all players, ascending."""

    @abstractmethod
    def edit_user(self, user_id: int) -> AbstractContextManager[User]:
        """`with edit_user(id) as user:` change the fields; the end of the block saves them.

        One edit of a user runs at a time; edits never nest (RuntimeError, as for other calls that
        change a record inside one). Nothing is saved where the block raises, and nothing is
        written where nothing changed. Raises NoSuchUser, InvalidField, and ValueError for a value
        of another type or a changed id, name or email: `rename_user` and `change_email` make those.
        """

    @abstractmethod
    def rename_user(self, user_id: int, name: str) -> User:
        """Give a player another name. Raises NoSuchUser, InvalidField, NameTaken."""

    @abstractmethod
    def reset_name(self, user_id: int) -> User:
        """Name a player `player<id>`, which nobody can choose. Raises NoSuchUser."""

    @abstractmethod
    def change_email(self, user_id: int, email: str) -> User:
        """Give a player another email address. Raises NoSuchUser, InvalidField, EmailTaken."""

    @abstractmethod
    def delete_user(self, user_id: int) -> None:
        """Remove the record, the claims on name and email, and the pictures. Raises NoSuchUser."""

    @abstractmethod
    def administered_without(self, user_id: int) -> AbstractContextManager[None]:
        """`with administered_without(id):` suspend, demote or delete a player who may be needed.

        Raises LastAdministrator where nobody else administers the site. One such block runs at a
        time, over all processes: of two administrators who demote each other one is refused.
        """

    # Pictures: webp files of the sizes in PICTURE_SIZES

    @abstractmethod
    def save_picture(self, user_id: int, images: dict[str, bytes]) -> int:
        """Replace a player's picture; returns its timestamp, larger than every earlier one.

        `images` maps each size's name to a webp file. Raises NoSuchUser.
        """

    @abstractmethod
    def read_picture(self, size: str, file_name: str) -> tuple[bytes, float]:
        """A picture's bytes and when it was written, in seconds since 1970. Raises NoSuchPicture.

        Who has no timestamp and no picture gets one drawn, which is kept.

        `file_name` has the form of `User.picture_file`: the caller has checked that.
        """

    # Clients

    @abstractmethod
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
        """Register a client; returns it with its secret, which cannot be read again.

        `by` names who did it in the audit log: a user id, or "command". No two games are on one
        origin. Raises InvalidField, OriginTaken, and TooManyClients where the owner already has
        `at_most`.
        """

    @abstractmethod
    def read_client(self, client_id: str) -> Client:
        """The client with this id, whatever text that is. Raises NoSuchClient.

        Not to be changed: others get the same one. `edit_client` makes changes.
        """

    @abstractmethod
    def client_ids(self) -> list[str]:
        """The ids of all clients, ascending."""

    @abstractmethod
    def clients(self) -> list[Client]:
        """All clients whose records can be read, in the order of their ids."""

    @abstractmethod
    def edit_client(self, client_id: str) -> AbstractContextManager[Client]:
        """As `edit_user`.

        Raises NoSuchClient, InvalidField, OriginTaken, and ValueError for a changed id.
        """

    @abstractmethod
    def issue_client_secret(self, client_id: str, by: int | str) -> str:
        """Give a client a new secret; the old one ends. Raises NoSuchClient."""

    @abstractmethod
    def delete_client(self, client_id: str, by: int | str) -> None:
        """Remove a client. Raises NoSuchClient."""

    # Authorization codes

    @abstractmethod
    def add_code(self, code: str, record: AuthorizationCode) -> None:
        """Keep a code, under its hash. A power cut may lose it, and ends it in any case."""

    @abstractmethod
    def read_code(self, code: str) -> AuthorizationCode:
        """What an unspent code stands for, whatever its age. Raises NoSuchCode, CodeSpent."""

    @abstractmethod
    def spend_code(self, code: str) -> None:
        """Use a code up. Of callers that race one returns; the others get CodeSpent or NoSuchCode.

        StorageFailed leaves the code unspent.
        """

    # Invitations

    @abstractmethod
    def issue_invite(self, days: int, by: int | str) -> str:
        """A new invitation, good for one account, for `days` days; it is kept under its hash."""

    @abstractmethod
    def is_good_invite(self, invite: str) -> bool:
        """True where `add_user` would take this invitation now."""

    # Keys, attempts, audit

    @abstractmethod
    def keys(self) -> tuple[bytes, ...]:
        """The signing keys, newest last: one tuple until they change, then at once another."""

    @abstractmethod
    def rotate_keys(self, drop_old: bool, by: int | str) -> None:
        """Add a new key and keep the one before; with `drop_old` the new one alone is left.

        Then everything that was signed so far ends.
        """

    @abstractmethod
    def count_attempt(
        self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW
    ) -> Attempt:
        """Count one try of `kind` (what is guessed) by or at `subject`, before it is looked at.

        Counts are exact across processes. Raises TooManyAttempts, and counts nothing, where `limit`
        tries of this and the previous `window` (seconds) were not given back.
        """

    @abstractmethod
    def give_back_attempt(self, attempt: Attempt) -> None:
        """Take back a counted try that was right."""

    @abstractmethod
    def try_disk(self) -> None:
        """Raise StorageFailed where records or pictures cannot be read, or were not taken lately.

        A few seconds may pass before what changed is noticed: it may be asked often.
        """

    @abstractmethod
    def write_audit(self, act: str, by: int | str, **ids: int | str) -> None:
        """Add a line to the audit log, on the disk before the act it tells of: ids, no names."""

    @abstractmethod
    def read_audit(self) -> Iterator[dict]:
        """The lines of the audit log, oldest first: what `write_audit` got, and `time`.

        Raises DamagedRecord after the last, where one is damaged.
        """


def open_storage(data_dir: str, picture_dir: str) -> Storage:
    """The storage in these folders, made where they are empty.

    Raises BadInstallation for a layout that this program does not know or a key file without a key,
    StorageFailed where the folders cannot be made.
    """
    from storage.flat_files.backend import FlatFiles

    return FlatFiles(data_dir, picture_dir)
