"""The storage contract kept as JSON files on disk; `layout.py` lists them.

A record is never written in place: it is written to a temporary file beside it, synced, and renamed
over the old one. So a reader needs no lock. The record is the truth: an index entry counts only
while its record agrees, so that a kill between two steps blocks nobody.
"""

import hmac
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from storage import (
    ATTEMPTS_WINDOW,
    PLAYER,
    Attempt,
    AuthorizationCode,
    Client,
    Load,
    Problem,
    Snapshot,
    Storage,
    StorageError,
    User,
    no_check,
)
from storage.flat_files import attempts
from storage.flat_files.audit import AuditLog
from storage.flat_files.clients import ClientFiles
from storage.flat_files.codes import CodeFiles
from storage.flat_files.disk import translate_os_errors
from storage.flat_files.index import Index
from storage.flat_files.invites import InviteFiles
from storage.flat_files.keys import KeyFile
from storage.flat_files.layout import Layout
from storage.flat_files.pictures import PictureFiles
from storage.flat_files.upgrade import upgrade
from storage.flat_files.users import UserFiles
from storage.flat_files.write_probe import WriteProbe
from storage.maintenance import Progress, Report, ignore


class FlatFiles(Storage):
    """The storage contract on a data folder and a picture folder, made if they are missing.

    Raises BadInstallation, StorageFailed.
    """

    def __init__(self, data_dir: str, picture_dir: str) -> None:
        self.layout = layout = Layout(data_dir, picture_dir)
        index = Index(layout.path("index"))
        self._pictures = PictureFiles(layout)
        self._invites = InviteFiles(layout)
        self._users = UserFiles(layout, index, self._pictures, self._invites)
        self._clients = ClientFiles(layout, index)
        self._audit = AuditLog(layout)
        self._probe = WriteProbe(layout.users, layout.picture_folders()[0])
        with translate_os_errors():
            layout.make_folders()
            self._codes = CodeFiles(layout.path("codes"))
            self._keys = KeyFile(layout.path("secret_key"))
            upgrade(layout, index)

    def close(self) -> None:
        """As the contract says; no file stays open."""

    # -- users ---------------------------------------------------------------------------------

    def add_user(
        self,
        name: str,
        email: str,
        password_hash: str,
        mod_level: int = PLAYER,
        invite: str | None = None,
        first: bool = False,
    ) -> User:
        return self._users.add(name, email, password_hash, mod_level, invite, first)

    def reserve_user_ids(self, largest: int) -> None:
        self._users.reserve_ids(largest)

    def add_users(
        self, users: list[User], pictures: dict[int, dict[str, bytes]]
    ) -> list[StorageError | None]:
        return self._users.add_many(users, pictures)

    def is_new(self) -> bool:
        return self._users.is_new()

    def read_user(self, user_id: int) -> User:
        return self._users.read(user_id)

    def find_user(self, name_or_email: str) -> User | None:
        return self._users.find(name_or_email)

    def user_ids(self) -> list[int]:
        return self._users.ids()

    def administrators(self) -> list[User]:
        return self._users.administrators()

    def edit_user(self, user_id: int) -> AbstractContextManager[User]:
        return self._users.edit(user_id, fixed={"id", "name", "email"})

    def rename_user(
        self, user_id: int, name: str, before: Callable[[User], None] = no_check
    ) -> User:
        return self._users.rename(user_id, name, before)

    def reset_name(self, user_id: int, before: Callable[[User], None] = no_check) -> User:
        return self._users.reset_name(user_id, before)

    def change_email(
        self, user_id: int, email: str, before: Callable[[User], None] = no_check
    ) -> User:
        return self._users.change_email(user_id, email, before)

    def delete_user(self, user_id: int, before: Callable[[User], None] = no_check) -> None:
        self._users.delete(user_id, before)

    def administered_without(self, user_id: int) -> AbstractContextManager[None]:
        return self._users.administered_without(user_id)

    def save_picture(
        self, user_id: int, images: dict[str, bytes], before: Callable[[User], None] = no_check
    ) -> int:
        return self._users.save_picture(user_id, images, before)

    def read_picture(self, size: str, file_name: str) -> tuple[bytes, float]:
        return self._pictures.read(size, file_name)

    # -- clients -------------------------------------------------------------------------------

    def add_client(
        self,
        name: str,
        redirect_uris: list[str],
        owner_id: int | None,
        game_url: str | None = None,
        description: str = "",
        listed: bool = False,
        at_most: int | None = None,
        before: Callable[[Client], None] = no_check,
    ) -> tuple[Client, str]:
        client = Client("", name, "", redirect_uris, owner_id)
        client.game_url, client.description, client.listed = game_url, description, listed
        return self._clients.add(client, at_most, before)

    def read_client(self, client_id: str) -> Client:
        return self._clients.read(client_id)

    def client_ids(self) -> list[str]:
        return self._clients.ids()

    def clients_of(self, owner_id: int | None) -> list[Client]:
        return self._clients.of_owner(owner_id)

    def games(self, listed: bool) -> list[Client]:
        return self._clients.games(listed)

    def edit_client(self, client_id: str) -> AbstractContextManager[Client]:
        return self._clients.edit(client_id)

    def issue_client_secret(
        self, client_id: str, before: Callable[[Client], None] = no_check
    ) -> str:
        return self._clients.issue_secret(client_id, before)

    def delete_client(self, client_id: str, before: Callable[[Client], None] = no_check) -> None:
        self._clients.delete(client_id, before)

    # -- codes and invitations -----------------------------------------------------------------

    def add_code(self, code: str, record: AuthorizationCode) -> None:
        self._codes.add(code, record)

    def read_code(self, code: str) -> AuthorizationCode:
        return self._codes.read(code)

    def spend_code(self, code: str) -> None:
        self._codes.spend(code)

    def issue_invite(self, days: int) -> str:
        with translate_os_errors():
            return self._invites.issue(days)

    def is_good_invite(self, invite: str) -> bool:
        return self._invites.is_good(invite)

    # -- keys, attempts, audit, health ---------------------------------------------------------

    def keys(self) -> tuple[bytes, ...]:
        return self._keys.read()

    def rotate_keys(self, drop_old: bool) -> None:
        with translate_os_errors(), self.layout.keys_lock():
            self._keys.rotate(drop_old)

    def count_attempt(
        self, kind: str, subject: str, limit: int, window: int = ATTEMPTS_WINDOW
    ) -> Attempt:
        # Keyed: the folder tells nobody whose password was guessed, or from where.
        digest = hmac.new(self.keys()[-1], f"{kind}:{subject}".encode(), "sha256").hexdigest()
        # Quarters of an hour stand in attempts/ itself, longer windows in folders of their own.
        longer = [] if window == ATTEMPTS_WINDOW else [f"every-{window}-seconds"]
        with translate_os_errors():
            return attempts.count(self.layout.path("attempts", *longer), digest, limit, window)

    def give_back_attempt(self, attempt: Attempt) -> None:
        with translate_os_errors():
            attempts.give_back(attempt)

    def write_audit(self, act: str, by: int | str, **ids: int | str) -> None:
        self._audit.write(act, by, **ids)

    def read_audit(self) -> Iterator[dict]:
        return self._audit.read()

    def audit_of(self, user_id: int) -> Iterator[dict]:
        return self._audit.about(user_id)

    def audit_of_client(self, client_id: str) -> Iterator[dict]:
        return self._audit.about(client_id)

    # -- everything ----------------------------------------------------------------------------

    def verify(self, repair: bool = False, progress: Progress = ignore) -> Iterator[Problem]:
        from storage.flat_files.check import check  # only here: workers do not need its memory

        return check(self.layout.data_dir, self.layout.picture_dir, repair, progress)

    def snapshot(
        self, before: Callable[[], None] = ignore, report: Report = ignore
    ) -> AbstractContextManager[Snapshot]:
        from storage.flat_files.snapshot import snapshot

        return snapshot(self.layout, before, report)

    def load(
        self, before: Callable[[], None] = ignore, report: Report = ignore
    ) -> AbstractContextManager[Load]:
        from storage.flat_files.load import load

        return load(self.layout, before, report)

    def check_health(self) -> None:
        self.keys()
        self._probe.run()
