"""What is done to an installation while faults are injected, and the program that does it.

The program forks a process for each operation, so that what is traced makes no system call but the
operation's own: everything is imported, and has run once, before. A request on standard input is
one JSON line, an operation's name and the two folders. The answer is the process's id; once a line
follows (the tracer is attached) the process goes on, and its exit code is the second answer.
"""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from storage import (
    ADMINISTRATOR,
    PICTURE_SIZES,
    AuthorizationCode,
    CodeSpent,
    NoSuchCode,
    NoSuchUser,
    Storage,
    StorageFailed,
    StorageFull,
    open_storage,
    pictures,
    sha256,
)
from storage.flat_files import attempts, codes, disk
from storage.pictures import generate_picture

DONE, FULL, FAILED, STOPPED, ANOTHER_ERROR = 0, 10, 11, 12, 13  # exit codes
KILLED = -9
ADA, BOB = 1, 2  # ids: what is done is done to Ada, and Bob must not notice
OLD_PICTURE, NEW_PICTURE = generate_picture(1001), generate_picture(1002)
KEY = b"the-first-key"
INVITE = "an invitation"
CODE = AuthorizationCode("c" * 24, ADA, "a grant", ["userinfo"], "https://a.example/", None)


class Installation:
    """The folders of an installation that may be in any state."""

    def __init__(self, folder: Path) -> None:
        self.data, self.pictures = folder / "instance", folder / "pfp"

    def open(self) -> Storage:
        return open_storage(str(self.data), str(self.pictures))

    def files(self) -> set[Path]:
        """Every file, temporary ones too, but for locks, which are never removed."""
        paths = [path for top in (self.data, self.pictures) for path in top.rglob("*")]
        locks = {self.data / "accounts.lock", *self.data.glob("locks/*")}
        return {path for path in paths if not path.is_dir()} - locks

    def temporary_files(self) -> set[Path]:
        return {path for path in self.files() if path.name.startswith(".")}

    def lasting_temporary_files(self) -> set[Path]:
        """Temporary files that are not removed when a window expires."""
        return {each for each in self.temporary_files() if "codes" not in each.parts}

    def copy(self, folder: Path) -> "Installation":
        there = Installation(folder)
        for source, target in ((self.data, there.data), (self.pictures, there.pictures)):
            if source.exists():  # a first start may have ended before
                shutil.copytree(source, target, symlinks=True)
        return there


def small_disk(folder: Path, files: int) -> AbstractContextManager[Path]:
    """Mount a disk with room for 1 MiB and that many files."""
    return _disk_in_memory(folder, f"size=1m,nr_inodes={files}")


def large_disk(folder: Path) -> AbstractContextManager[Path]:
    """Mount a disk on which nothing needs to be removed."""
    return _disk_in_memory(folder, "size=2g")


@contextlib.contextmanager
def _disk_in_memory(folder: Path, options: str) -> Iterator[Path]:
    # In memory no sync takes long.
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@dataclass(frozen=True)
class Operation:
    """Something to do, and what is seen of it before and after."""

    act: Callable[[Storage], object]
    state: Callable[[Storage], object]
    old: object
    new: object
    wants: tuple[str, str] = ("Zed", "zed@example.org")  # anybody's, where it was not done
    frees: tuple[str, str] = ("Zed", "zed@example.org")  # and where it was


def stop_windows(replace: Callable[[object, str, object], None] = setattr) -> None:
    """Let no window of codes or counts end: then an operation makes the same calls each time."""
    for module in (attempts, codes):
        replace(module, "window_of_now", lambda seconds: 10**6)


def prepare(storage: Storage) -> None:
    """The installation that the operations are done to."""
    Path(storage.layout.data_dir, "secret_key").write_bytes(KEY + b"\n")  # one that is known again
    for name in ("Ada", "Bob"):
        user = storage.add_user(name, f"{name.lower()}@example.org", "")
        storage.save_picture(user.id, OLD_PICTURE)
    storage.add_client("Chess", [], None, before=audited(storage))
    storage.add_code("an old code", CODE)
    storage.issue_invite(days=7)
    (unknown,) = Path(storage.layout.data_dir, "invites").iterdir()
    unknown.rename(unknown.with_name(f"{sha256(INVITE)}.json"))
    storage.count_attempt("password", "ada", limit=1000)


def names_of(*texts: str) -> Callable[[Storage], list]:
    """The names of those who are found by these names and addresses."""

    def found(storage: Storage) -> list:
        users = [storage.find_user(text) for text in texts]
        return [user and user.name for user in users]

    return found


def new_user(storage: Storage, name: str = "Cleo") -> list | None:
    """A player as found by name and by address, with the sizes in which she has a picture."""
    found = [storage.find_user(text) for text in (name, f"{name.lower()}@example.org")]
    if found == [None, None]:
        return None
    name = f"{found[0].id}-{found[0].pfp_timestamp}.webp"
    sizes = [size for size in PICTURE_SIZES if storage.read_picture(size, name)]
    return [*(user.name for user in found), *sizes]


def picture_of(storage: Storage, user_id: int = ADA) -> dict[str, bytes]:
    """What the three files of a user's picture hold."""
    name = f"{user_id}-{storage.read_user(user_id).pfp_timestamp}.webp"
    return {size: storage.read_picture(size, name)[0] for size in PICTURE_SIZES}


def state_of_code(code: str) -> Callable[[Storage], str]:
    def state(storage: Storage) -> str:
        try:
            storage.read_code(code)
        except NoSuchCode:
            return "unknown"
        except CodeSpent:
            return "spent"
        return "live"

    return state


def make_administrator(storage: Storage) -> None:
    with storage.edit_user(ADA) as user:
        user.mod_level = ADMINISTRATOR


def audited(storage: Storage) -> Callable[[object], None]:
    """Write an audit line under the lock of the change."""
    return lambda record: storage.write_audit("act", "command", client=record.id)


def old_keys(storage: Storage) -> list[bool]:
    """For each key, whether it is the one of before."""
    keys = storage.keys()
    return [key == KEY for key in keys]


def client_names(storage: Storage) -> list[str]:
    return sorted(client.name for client in map(storage.read_client, storage.client_ids()))


def id_of_chess(storage: Storage) -> str:
    (client_id,) = (
        client.id
        for client in map(storage.read_client, storage.client_ids())
        if client.name == "Chess"
    )
    return client_id


def edit_bio(storage: Storage) -> None:
    with storage.edit_user(ADA) as user:
        user.bio = "new " * 250


def is_gone(storage: Storage) -> bool:
    try:
        return storage.read_user(ADA) is None
    except NoSuchUser:
        return True


FIRST_START = "starting on empty folders"
OPERATIONS = {
    FIRST_START: Operation(
        act=lambda storage: None,
        state=lambda storage: (len(storage.keys()), storage.user_ids()),
        old=(1, []),
        new=(1, []),
    ),
    "adding a user": Operation(
        act=lambda storage: storage.add_user("Cleo", "cleo@example.org", ""),
        state=new_user,
        old=None,
        new=["Cleo", "Cleo", *PICTURE_SIZES],
        wants=("CLEO", "CLEO@example.org"),
    ),
    "adding an invited user": Operation(
        act=lambda storage: storage.add_user("Dora", "dora@example.org", "", invite=INVITE),
        state=lambda storage: [new_user(storage, "Dora"), storage.is_good_invite(INVITE)],
        old=[None, True],
        new=[["Dora", "Dora", *PICTURE_SIZES], False],
        wants=("DORA", "DORA@example.org"),
    ),
    "editing a user": Operation(
        act=edit_bio,
        state=lambda storage: storage.read_user(ADA).bio,
        old="",
        new="new " * 250,
    ),
    "renaming a user": Operation(
        act=lambda storage: storage.rename_user(ADA, "Grace"),
        state=names_of("Ada", "Grace", "ada@example.org"),
        old=["Ada", None, "Ada"],
        new=[None, "Grace", "Grace"],
        wants=("Grace", "zed@example.org"),
        frees=("Ada", "zed@example.org"),
    ),
    "changing an email address": Operation(
        act=lambda storage: storage.change_email(ADA, "grace@example.org"),
        state=names_of("ada@example.org", "grace@example.org", "Ada"),
        old=["Ada", None, "Ada"],
        new=[None, "Ada", "Ada"],
        wants=("Zed", "grace@example.org"),
        frees=("Zed", "ada@example.org"),
    ),
    "becoming an administrator": Operation(
        act=make_administrator,
        state=lambda storage: [user.id for user in storage.administrators()],
        old=[],
        new=[ADA],
    ),
    "changing a picture": Operation(
        act=lambda storage: storage.save_picture(ADA, NEW_PICTURE),
        state=picture_of,
        old=OLD_PICTURE,
        new=NEW_PICTURE,
    ),
    "deleting an account": Operation(
        act=lambda storage: storage.delete_user(ADA),
        state=lambda storage: [is_gone(storage), *names_of("Ada", "ada@example.org")(storage)],
        old=[False, "Ada", "Ada"],
        new=[True, None, None],
        frees=("Ada", "ada@example.org"),
    ),
    "adding a client": Operation(
        act=lambda storage: storage.add_client("Checkers", [], None, before=audited(storage)),
        state=client_names,
        old=["Chess"],
        new=["Checkers", "Chess"],
    ),
    "deleting a client": Operation(
        act=lambda storage: storage.delete_client(id_of_chess(storage), audited(storage)),
        state=client_names,
        old=["Chess"],
        new=[],
    ),
    "adding a code": Operation(
        act=lambda storage: storage.add_code("a code", CODE),
        state=state_of_code("a code"),
        old="unknown",
        new="live",
    ),
    "spending a code": Operation(
        act=lambda storage: storage.spend_code("an old code"),
        state=state_of_code("an old code"),
        old="live",
        new="spent",
    ),
    "rotating the key": Operation(
        act=lambda storage: storage.rotate_keys(drop_old=False),
        state=old_keys,
        old=[True],
        new=[True, False],
    ),
    "dropping the old keys": Operation(
        act=lambda storage: storage.rotate_keys(drop_old=True),
        state=old_keys,
        old=[True],
        new=[False],
    ),
}


def write_in_place(path: str, content: bytes, mode: int = 0o600, durable: bool = True) -> None:
    """What `disk.write_file` must not be: the tests must find it out."""
    with open(path, "wb") as file:
        for part in (content[:20], content[20:]):
            file.write(part)
            file.flush()


def write_and_leave(path: str, content: bytes, mode: int = 0o600, durable: bool = True) -> None:
    """Whole, but never synced, with a temporary file left behind where the rename fails."""
    temporary = f"{os.path.dirname(path)}/.temporary"
    with open(temporary, "wb") as file:
        file.write(content)
    os.rename(temporary, path)


def write_and_try_again(path: str, content: bytes, mode: int = 0o600, durable: bool = True) -> None:
    """Whole, and synced a second time where the first one failed."""
    with open(f"{os.path.dirname(path)}/.temporary", "wb") as file:
        file.write(content)
        file.flush()
        try:
            os.fsync(file.fileno())
        except OSError:
            os.fsync(file.fileno())
    os.rename(file.name, path)


WRITERS = {
    writer.__name__: writer
    for writer in (disk.write_file, write_in_place, write_and_leave, write_and_try_again)
}


def outcome(name: str, storage: Storage | None, folders: tuple[str, ...]) -> int:
    """Carry out an operation; returns the exit code that tells how it went."""
    try:
        OPERATIONS[name].act(storage or open_storage(*folders))
    except StorageFull:
        return FULL
    except StorageFailed:
        return FAILED
    except KeyboardInterrupt:
        return STOPPED
    except Exception:
        traceback.print_exc()
        return ANOTHER_ERROR
    return DONE


def begin(name: str, *folders: str) -> Callable[[], int]:
    """What the forked process is to do."""
    storage = None if name == FIRST_START else open_storage(*folders)
    return lambda: outcome(name, storage, folders)


def serve(requests, begin: Callable[..., Callable[[], int]] = begin) -> None:
    for line in requests:
        act = begin(*json.loads(line))
        waits, goes = os.pipe()
        process = os.fork()
        if not process:
            os.read(waits, 1)
            os._exit(act())
        print(process, flush=True)
        requests.readline()
        os.write(goes, b"\n")
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
        os.close(waits)
        os.close(goes)


if __name__ == "__main__":
    stop_windows()
    pictures.generate_picture = functools.cache(generate_picture)
    with tempfile.TemporaryDirectory() as folder:
        warm = open_storage(f"{folder}/instance", f"{folder}/pfp")
        prepare(warm)
        for operation in OPERATIONS.values():
            operation.act(warm)
    disk.write_file = WRITERS[sys.argv[1]]
    serve(sys.stdin)
