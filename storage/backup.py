"""Backup: an installation into an archive, while the server goes on."""

import contextlib
import errno
import gzip
import os
import re
import shutil

from storage import (
    USER_ID,
    BadInstallation,
    Client,
    DamagedRecord,
    NoSuchPicture,
    NoSuchUser,
    NotFound,
    User,
    record_as_dict,
)
from storage.archive import (
    CHUNK,
    MEMBER,
    Archivist,
    Progress,
    Report,
    add_member,
    end_archive,
    ignore,
    picture_names,
    refuse_spoilt_picture,
    refuse_unusable,
)
from storage.disk import (
    disk_errors_named,
    encode,
    locked,
    new_file,
    read_file,
    read_number,
    read_record,
)
from storage.flat_files import USER_LOCKS

STEP = 100  # players between two reports of progress


def backup(
    data_dir: str,
    picture_dir: str,
    path: str,
    by: int | str,
    progress: Progress = ignore,
    report: Report = ignore,
) -> int:
    """Pack the installation in these folders into a new file; returns how many players are in it.

    Only the file's owner may read it. No account is added or deleted while the records are linked,
    and all goes on while they are packed. `report` gets a line for each thing that is left out.
    Raises BadFile where the file exists, BadInstallation where there can be no hard links.
    """
    return Backup(data_dir, picture_dir, progress, report).write(path, by)


class Backup(Archivist):
    """An installation on its way into an archive."""

    def write(self, path: str, by: int | str) -> int:
        """Make the archive."""
        if not self.user_ids() and not self.client_ids():
            raise BadInstallation(f"{self.data_dir} has no players and no clients to back up")
        with disk_errors_named(), new_file(path) as file, self._working():
            self._sweep()
            self.write_audit("backup", by)
            try:
                self._freeze()
                with gzip.GzipFile("", "wb", 6, file) as self._packed:
                    return self._pack()
            finally:
                shutil.rmtree(self._frozen, ignore_errors=True)

    # -- frozen --------------------------------------------------------------------------------

    def _freeze(self) -> None:
        """Link every record into a folder: replaced and never written in place, it stays so."""
        self._make_folders(self._frozen)
        with self._accounts_lock():
            with contextlib.ExitStack() as held:
                for number in range(USER_LOCKS):
                    # A folder's list may lack a name that is being replaced.
                    held.enter_context(self._user_lock(number))
                users = os.listdir(self._users)
            self._link("users", users)
            self._link("deleted", os.listdir(self._path("deleted")))
            self._link(".", ["format", "next_user_id"])
        with self._clients_lock():
            self._link("clients", os.listdir(self._path("clients")))
        with locked(self._path("audit.log")):  # it grows in place
            shutil.copyfile(self._path("audit.log"), f"{self._frozen}/audit.log")

    def _link(self, part: str, names: list[str]) -> None:
        for name in names:
            try:
                os.link(self._path(part, name), f"{self._frozen}/{part}/{name}")
            except FileNotFoundError:
                continue  # next_user_id, where it was lost
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                    raise
                raise BadInstallation(
                    f"the file system of {self.data_dir} refuses hard links, which a backup needs: "
                    f"stop the server, and copy this folder and {self.picture_dir}"
                ) from error

    # -- packed --------------------------------------------------------------------------------

    def _pack(self) -> int:
        users, deleted = self._ids("users"), self._ids("deleted")
        largest_id = max(users | deleted, default=0)
        next_id = max(read_number(f"{self._frozen}/next_user_id"), largest_id + 1)
        self._add("format", read_file(f"{self._frozen}/format", NotFound()))
        self._add("next_user_id", b"%d\n" % next_id)
        deleted -= users  # a deletion that was killed leaves both, and the record is the truth
        players = 0
        for done, user_id in enumerate(sorted(users), start=1):
            try:
                self._add_user(user_id)
                players += 1
            except NoSuchUser:
                deleted.add(user_id)  # just now
            except DamagedRecord as error:
                self._report(f"{error}: it is not in the archive")
            if done % STEP == 0 or done == len(users):
                self._progress(done, len(users))
        for user_id in sorted(deleted):
            self._add(f"deleted/{user_id}", b"")
        for name in sorted(os.listdir(f"{self._frozen}/clients")):
            if match := MEMBER.fullmatch(f"clients/{name}"):
                self._add_client(match)
        with open(f"{self._frozen}/audit.log", "rb") as log:
            size = os.fstat(log.fileno()).st_size
            add_member(self._packed, "audit.log", iter(lambda: log.read(CHUNK), b""), size)
        end_archive(self._packed)
        return players

    def _ids(self, part: str) -> set[int]:
        """The user ids that the files of a part are named after."""
        stems = (name.removesuffix(".json") for name in os.listdir(f"{self._frozen}/{part}"))
        return {int(stem) for stem in stems if USER_ID.fullmatch(stem)}

    def _add(self, name: str, content: bytes) -> None:
        add_member(self._packed, name, [content], len(content))

    def _add_user(self, user_id: int) -> None:
        name = f"users/{user_id}.json"
        user = read_record(f"{self._frozen}/{name}", User, NotFound(), id=user_id)
        refuse_unusable(user)
        self._claim_in(self._frozen, user)
        pictures = self._read_pictures(user)
        user.sessions = []
        self._add(name, encode(record_as_dict(user)))
        for each, content in pictures.items():
            self._add(each, content)

    def _read_pictures(self, user: User) -> dict[str, bytes]:
        """A player's pictures by their names in the archive.

        Where they were changed since, the newer ones, whose timestamp `user` then gets. Raises
        NoSuchUser where the player was deleted since.
        """
        while True:
            try:
                return {name: self._read_picture(name) for name in picture_names(user)}
            except NoSuchPicture as error:
                newest = self.read_user(user.id).pfp_timestamp
                if newest == user.pfp_timestamp:
                    self._report_lost_picture(user, error)
                    user.pfp_timestamp = None
                    return {}
                user.pfp_timestamp = newest

    def _read_picture(self, name: str) -> bytes:
        path = f"{self.picture_dir}/{name.removeprefix('pictures/')}"
        content = read_file(path, NoSuchPicture(f"{path} is missing"))
        try:
            refuse_spoilt_picture(name, content)
        except DamagedRecord as error:
            raise NoSuchPicture(str(error)) from error
        return content

    def _report_lost_picture(self, user: User, error: NoSuchPicture) -> None:
        if user.pfp_timestamp is not None:  # else it is drawn when somebody asks for it
            self._report(f"{error}: in the archive player {user.id} has none but the drawn one")

    def _add_client(self, name: re.Match) -> None:
        try:
            path = f"{self._frozen}/{name[0]}"
            client = read_record(path, Client, NotFound(), id=name["client"])
            self._add(name[0], encode(record_as_dict(client)))
        except DamagedRecord as error:
            self._report(f"{error}: it is not in the archive")
