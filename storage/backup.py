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
    StorageFailed,
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
from storage.flat_files.backend import LAYOUT_VERSION, USER_LOCKS
from storage.flat_files.disk import (
    encode,
    new_file,
    read_file,
    read_number,
    read_record,
    translate_os_errors,
    write_new_file,
)
from storage.flat_files.problems import will_be_drawn
from storage.flat_files.user_ids import USER_IDS_END

STEP = 100  # players between two reports of progress
CANNOT_BE_READ = (DamagedRecord, NotFound, StorageFailed)


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
        with translate_os_errors(), new_file(path) as file, self._working():
            self.sweep()
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
        self._refuse_without_links()
        with self._accounts_lock():
            with contextlib.ExitStack() as held:
                for number in range(USER_LOCKS):
                    # A folder's list may lack a name that is being replaced.
                    held.enter_context(self._user_lock(number))
                users = os.listdir(self._users)
            refused = self._link("users", users)
        with self._clients_lock():
            refused += self._link("clients", os.listdir(self._path("clients")))
        with self._audit_lock():  # it grows in place
            shutil.copyfile(self._path("audit.log"), f"{self._frozen}/audit.log")
        for path in refused:  # told once no lock is held: whoever reads it may take their time
            self._leave_out(f"{path} belongs to another user of the system, or is no file")

    def _refuse_without_links(self) -> None:
        own = f"{self._frozen}/own"
        write_new_file(own, [])
        try:
            os.link(own, f"{own}.link")
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            raise BadInstallation(
                f"the file system of {self.data_dir} refuses hard links, which a backup needs: "
                f"stop the server, and copy this folder and {self.picture_dir}"
            ) from error

    def _link(self, part: str, names: list[str]) -> list[str]:
        """Link the records among these; returns the paths of those that cannot be linked."""
        refused = []
        for name in names:
            if MEMBER.fullmatch(f"{part}/{name}"):
                path = self._path(part, name)
                try:
                    os.link(path, f"{self._frozen}/{part}/{name}", follow_symlinks=False)
                except PermissionError:  # proc(5), protected_hardlinks; or a folder
                    refused.append(path)
        return refused

    def _leave_out(self, reason: str) -> None:
        self._report(f"{reason}: it is not in the archive")

    # -- packed --------------------------------------------------------------------------------

    def _pack(self) -> int:
        users = self._ids(f"{self._frozen}/users")
        # These two were not frozen: they only grow, and what came since is true as well.
        deleted = self._ids(self._path("deleted"))
        next_id = max(self._read_next_id(), max(users | deleted, default=0) + 1)
        self._add("format", b"%d\n" % LAYOUT_VERSION)  # no other is opened
        self._add("next_user_id", b"%d\n" % next_id)
        deleted -= users  # a deletion that was killed leaves both, and the record is the truth
        players = 0
        for done, user_id in enumerate(sorted(users), start=1):
            try:
                self._add_user(user_id)
                players += 1
            except NoSuchUser:
                deleted.add(user_id)  # just now
            except CANNOT_BE_READ as error:
                self._leave_out(str(error))
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

    def _ids(self, folder: str) -> set[int]:
        """The user ids that the files in a folder are named after."""
        stems = (name.removesuffix(".json") for name in os.listdir(folder))
        ids = {int(stem) for stem in stems if USER_ID.fullmatch(stem)}
        for user_id in sorted(each for each in ids if each >= USER_IDS_END):
            self._leave_out(f"{os.path.basename(folder)} has the id {user_id}, which is too large")
            ids.remove(user_id)
        return ids

    def _read_next_id(self) -> int:
        """The next id, or 0 where it is lost: then it follows from the ids that are there."""
        path = self._path("next_user_id")
        try:
            next_id = read_number(path)
        except StorageFailed as error:
            self._leave_out(str(error))
            return 0
        if next_id > USER_IDS_END:
            self._leave_out(f"{path} is too large")
            return 0
        return next_id

    def _add(self, name: str, content: bytes) -> None:
        add_member(self._packed, name, [content], len(content))

    def _add_user(self, user_id: int) -> None:
        name = f"users/{user_id}.json"
        user = self._read(name, User, id=user_id)
        refuse_unusable(user)
        self._claim_in(self._frozen, user)
        pictures = self._read_pictures(user)
        user.sessions = []
        self._add(name, encode(record_as_dict(user)))
        for each, content in pictures.items():
            self._add(each, content)

    def _read(self, name: str, record_type: type, **expected: object):
        missing = NotFound(f"{name} is a link that leads nowhere")
        return read_record(f"{self._frozen}/{name}", record_type, missing, **expected)

    def _read_pictures(self, user: User) -> dict[str, bytes]:
        """A player's pictures by their names in the archive.

        Where they were changed since, the newer ones, whose timestamp `user` then gets. Raises
        NoSuchUser where the player was deleted since.
        """
        with contextlib.suppress(NoSuchPicture):
            return self._read_generation(user)
        try:
            with self._user_lock(user.id):  # else they may be in the making
                user.pfp_timestamp = self.read_user(user.id).pfp_timestamp
                paths = self._picture_paths(user.id, user.pfp_timestamp)
                if will_be_drawn(user, paths):
                    return {}
                return self._read_generation(user)
        except NoSuchPicture as error:
            self._report(f"{error}: in the archive player {user.id} has none but the drawn one")
        user.pfp_timestamp = None
        return {}

    def _read_generation(self, user: User) -> dict[str, bytes]:
        return {name: self._read_picture(name) for name in picture_names(user)}

    def _read_picture(self, name: str) -> bytes:
        path = f"{self.picture_dir}/{name.removeprefix('pictures/')}"
        try:
            content = read_file(path, NoSuchPicture(f"{path} is missing"))
            refuse_spoilt_picture(name, content)
        except (DamagedRecord, StorageFailed) as error:
            raise NoSuchPicture(str(error)) from error
        return content

    def _add_client(self, name: re.Match) -> None:
        try:
            client = self._read(name[0], Client, id=name["client"])
            self._add(name[0], encode(record_as_dict(client)))
        except CANNOT_BE_READ as error:
            self._leave_out(str(error))
