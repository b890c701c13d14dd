"""Restore: an archive into an installation that has no players yet."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from storage import (
    PICTURE_SIZES,
    BadFile,
    BadInstallation,
    Client,
    DamagedRecord,
    NotFound,
    User,
    record_as_dict,
)
from storage.archive import (
    FOLLOWERS,
    NOT_AS_WRITTEN,
    Archivist,
    Members,
    Progress,
    Report,
    ignore,
    picture_names,
    refuse_spoilt_picture,
    refuse_unusable,
)
from storage.flat_files.backend import LAYOUT_VERSION, NUMBER
from storage.flat_files.disk import (
    append_durably,
    decode_record,
    encode,
    read_file,
    read_number,
    remove_file,
    replace_durably,
    sync_folder,
    synced,
    translate_os_errors,
    write_file,
    write_new_file,
)
from storage.flat_files.problems import TIME_END
from storage.flat_files.user_ids import IDS_LEFT_OUT


def restore(
    data_dir: str,
    picture_dir: str,
    path: str,
    by: int | str,
    progress: Progress = ignore,
    report: Report = ignore,
) -> int:
    """Put an archive into an installation without players and clients; returns how many players.

    All of it is verified first. Killed at any moment it leaves an installation without players, in
    which it can be repeated, or one with all of them. Raises BadFile, BadInstallation.
    """
    return Restore(data_dir, picture_dir, progress, report).read(path, by)


class Restore(Archivist):
    """An archive on its way into an installation: verified, and kept beside where it belongs."""

    def read(self, path: str, by: int | str) -> int:
        """Verify it, and put it in place."""
        with translate_os_errors(), self._working(), contextlib.ExitStack() as swept:
            if self.sweep():
                self._report("an earlier restore was interrupted: what it left is removed")
            self._refuse_unless_empty()
            swept.callback(self.sweep)
            with synced(self.data_dir), synced(self.picture_dir), open(path, "rb") as file:
                try:
                    self._stage(file)
                except NOT_AS_WRITTEN as error:
                    raise BadFile(f"{path} cannot be restored: {error}") from error
            self.write_audit("restore", by)
            self._put_in_place(by)
        return self._players

    def _refuse_unless_empty(self) -> None:
        if self.user_ids() or self.client_ids():
            raise BadInstallation(
                f"{self.data_dir} has players or clients: an archive is restored into an "
                "installation that has none (IDENTITY_DATA_DIR and IDENTITY_PICTURE_DIR)"
            )

    # -- verified ------------------------------------------------------------------------------

    def _stage(self, file: BinaryIO) -> None:
        self._make_folders(self._staged)
        for size in PICTURE_SIZES:
            os.makedirs(f"{self._staged_pictures}/{size}", 0o755)
        self._players = self._largest_id = 0
        self._wanted: list[str] = []  # pictures that come next
        last = ""
        for name, content in Members(file, self._progress):
            if name.lastgroup not in FOLLOWERS[last]:
                raise DamagedRecord(name[0], "it is out of place")
            last = name.lastgroup
            if last != "picture":
                self._refuse_lacking_pictures()
            getattr(self, f"_take_{last}")(name, content)
        if last != "audit":
            raise EOFError("it is cut off")
        self._next_id = max(self._next_id, self._largest_id + 1) + IDS_LEFT_OUT
        if self._next_id >= TIME_END:
            raise DamagedRecord("next_user_id", "it is too large")

    def _take_format(self, name: re.Match, content: Iterator[bytes]) -> None:
        version = _number_of(name, content)
        if version != LAYOUT_VERSION:
            raise DamagedRecord(
                name[0], f"it is of layout {version}, and this program knows {LAYOUT_VERSION}"
            )

    def _take_next_user_id(self, name: re.Match, content: Iterator[bytes]) -> None:
        self._next_id = _number_of(name, content)

    def _take_user(self, name: re.Match, content: Iterator[bytes]) -> None:
        user = decode_record(b"".join(content), User, name[0], id=int(name["user"]))
        refuse_unusable(user)
        user.sessions = []
        self._write(name[0], [encode(record_as_dict(user))])
        self._claim_in(self._staged, user)
        self._wanted = picture_names(user)
        self._is_drawn = user.pfp_timestamp is None
        self._players += 1
        self._largest_id = max(self._largest_id, user.id)

    def _take_picture(self, name: re.Match, content: Iterator[bytes]) -> None:
        if self._wanted[:1] != [name[0]]:
            raise DamagedRecord(name[0], "it is not one of the player before it")
        self._is_drawn = False
        picture = b"".join(content)
        refuse_spoilt_picture(name[0], picture)
        write_new_file(f"{self._staged_pictures}/{name['picture']}", [picture], mode=0o644)
        del self._wanted[0]

    def _refuse_lacking_pictures(self) -> None:
        """One that has no timestamp may lack, and is drawn when somebody asks for it."""
        if self._wanted and not self._is_drawn:
            raise DamagedRecord(self._wanted[0], "it is missing")
        self._wanted = []

    def _take_deleted(self, name: re.Match, content: Iterator[bytes]) -> None:
        if os.path.exists(f"{self._staged}/users/{name['deleted']}.json"):
            raise DamagedRecord(name[0], "it is a player's")
        self._write(name[0], content)
        self._largest_id = max(self._largest_id, int(name["deleted"]))

    def _take_client(self, name: re.Match, content: Iterator[bytes]) -> None:
        client = decode_record(b"".join(content), Client, name[0], id=name["client"])
        self._write(name[0], [encode(record_as_dict(client))])

    def _take_audit(self, name: re.Match, content: Iterator[bytes]) -> None:
        self._write(name[0], content)

    def _write(self, name: str, content: Iterable[bytes]) -> None:
        """Keep what comes; it is synced together with all the rest."""
        try:
            write_new_file(f"{self._staged}/{name}", content)
        except FileExistsError:
            raise DamagedRecord(name, "it is there twice") from None

    # -- put in place --------------------------------------------------------------------------

    def _put_in_place(self, by: int | str) -> None:
        """Everything else before the players: once they are there, all is."""
        with self._accounts_lock(), self._clients_lock():
            self._refuse_unless_empty()
            self._put_pictures_in_place()
            self._put_audit_in_place()
            self.rotate_keys(drop_old=True, by=by)
            # Who was here before and is deleted had an id as well.
            next_id = max(self._next_id, read_number(self._path("next_user_id")))
            write_file(self._path("next_user_id"), b"%d\n" % next_id)
            for part in ("names", "emails", "deleted"):
                for name in os.listdir(self._path(part)):
                    os.unlink(self._path(part, name))  # of players who are no more
                os.rename(f"{self._staged}/{part}", self._path(part))
            for name in os.listdir(f"{self._staged}/clients"):
                os.link(f"{self._staged}/clients/{name}", self._path("clients", name))
            sync_folder(self._path("clients"))
            sync_folder(self.data_dir)
            self._put_users_in_place()

    def _put_pictures_in_place(self) -> None:
        for size in PICTURE_SIZES:
            staged, folder = f"{self._staged_pictures}/{size}", f"{self.picture_dir}/{size}"
            for name in os.listdir(staged):
                os.rename(f"{staged}/{name}", f"{folder}/{name}")
            sync_folder(folder)

    def _put_audit_in_place(self) -> None:
        """The archive's lines, and then those of this installation."""
        log, staged = self._path("audit.log"), f"{self._staged}/audit.log"
        with self._audit_lock():
            # Not twice, where an earlier restore was interrupted here.
            ours = dict.fromkeys(read_file(log, NotFound()).splitlines(keepends=True))
            with open(staged, "rb") as file:
                for line in file:
                    ours.pop(line, None)
            append_durably(staged, b"".join(ours))
            replace_durably(staged, log)

    def _put_users_in_place(self) -> None:
        for name in os.listdir(self._users):
            if name.startswith("."):  # temporary: no folder is renamed over one that holds any
                remove_file(self._path("users", name))
        os.rename(f"{self._staged}/users", self._users)
        try:
            sync_folder(self.data_dir)
        except OSError:
            os.rename(self._users, f"{self._staged}/users")
            os.mkdir(self._users, 0o700)
            raise


def _number_of(name: re.Match, content: Iterator[bytes]) -> int:
    text = b"".join(content).strip()
    if not NUMBER.fullmatch(text):
        raise DamagedRecord(name[0], "it is no number")
    return int(text)
