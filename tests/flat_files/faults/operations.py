"""Operations on an installation for the injection of faults, and the program that runs them.

The program runs every operation once, so that all modules are imported. Then it forks a process for
each request, which makes only the operation's own system calls. A request on standard input is one
JSON line: an operation's name and the two folders. The program prints the id of the process, waits
for a line (the tracer is attached), runs the operation and prints its exit code.
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

from storage import Storage, open_storage, pictures
from storage.errors import (
    CodeSpent,
    NoSuchCode,
    NoSuchUser,
    SaveUnconfirmed,
    StorageFailed,
    StorageFull,
)
from storage.flat_files import attempts, codes, disk
from storage.kinds import DAY_MS
from storage.pictures import generate_picture
from storage.records import ADMINISTRATOR, PICTURE_SIZES, AuthorizationCode, Invite, now_ms, sha256

DONE, FULL, FAILED, INTERRUPTED, OTHER_ERROR, UNCONFIRMED = 0, 10, 11, 12, 13, 14  # exit codes
KILLED = -9
ADA, BOB = 1, 2  # ids: operations change Ada, and must not affect Bob
OLD_PICTURE, NEW_PICTURE = generate_picture(1001), generate_picture(1002)
KEY = b"the-first-key"
INVITE = "an invitation"
CODE = AuthorizationCode("c" * 24, ADA, "a grant", ["userinfo"], "https://a.example/", None)


class Installation:
    """The folders of an installation in any state."""

    def __init__(self, folder: Path) -> None:
        self.data, self.pictures = folder / "instance", folder / "pfp"

    def open(self) -> Storage:
        return open_storage(str(self.data), str(self.pictures))

    def files(self) -> set[Path]:
        """Return every file, also temporary ones, except lock files, which are never removed."""
        paths = [path for top in (self.data, self.pictures) for path in top.rglob("*")]
        return {path for path in paths if not path.is_dir()} - {*self.data.glob("locks/*")}

    def temporary_files(self) -> set[Path]:
        return {path for path in self.files() if path.name.startswith(".")}

    def lasting_temporary_files(self) -> set[Path]:
        """Return the temporary files that are not removed when a time window ends."""
        return {each for each in self.temporary_files() if "codes" not in each.parts}

    def copy(self, folder: Path) -> "Installation":
        installation = Installation(folder)
        for source, target in (
            (self.data, installation.data),
            (self.pictures, installation.pictures),
        ):
            if source.exists():  # a first start may have been killed before
                shutil.copytree(source, target, symlinks=True)
        return installation


def small_disk(folder: Path, files: int) -> AbstractContextManager[Path]:
    """Mount a disk with room for 1 MiB and that many files."""
    return _disk_in_memory(folder, f"size=1m,nr_inodes={files}")


def large_disk(folder: Path) -> AbstractContextManager[Path]:
    """Mount a disk that is large enough for all copies of an installation."""
    return _disk_in_memory(folder, "size=2g")


@contextlib.contextmanager
def _disk_in_memory(folder: Path, options: str) -> Iterator[Path]:
    # A sync in memory takes no time.
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@dataclass(frozen=True)
class Operation:
    """An operation, the state that it changes, and names and emails that are free."""

    act: Callable[[Storage], object]
    state: Callable[[Storage], object]
    old: object
    new: object
    free_before: tuple[str, str] = ("Zed", "zed@example.org")  # free before it
    free_after: tuple[str, str] = ("Zed", "zed@example.org")  # free after it


def stop_time_windows(replace: Callable[[object, str, object], None] = setattr) -> None:
    """Stop the time windows of codes and attempts, so that an operation repeats its calls."""
    for module in (attempts, codes):
        replace(module, "window_of_now", lambda seconds: 10**6)


def prepare(storage: Storage) -> None:
    """Add the users, the client, the code and the invitation that the operations need."""
    Path(storage.layout.data_dir, "secret_key").write_bytes(KEY + b"\n")  # a known key
    for name in ("Ada", "Bob"):
        user = storage.users.register(name, f"{name.lower()}@example.org", "")
        storage.pictures.save(user.id, OLD_PICTURE)
    storage.clients.register("Chess", [], None, before=audit_line_writer(storage))
    storage.codes.add("an old code", CODE)
    storage.invites.add(Invite(sha256(INVITE), now_ms() + DAY_MS))
    storage.attempts.count("password", "ada", limit=1000)


def find_names(*texts: str) -> Callable[[Storage], list]:
    """Return a function that returns the names of the users with these names or emails."""

    def found(storage: Storage) -> list:
        users = [storage.users.find_by_login(text) for text in texts]
        return [user and user.name for user in users]

    return found


def new_user(storage: Storage, name: str = "Cleo") -> list | None:
    """Return the user's name, found by name and by email, and the sizes of the picture."""
    found = [storage.users.find_by_login(text) for text in (name, f"{name.lower()}@example.org")]
    if found == [None, None]:
        return None
    name = f"{found[0].id}-{found[0].pfp_timestamp}.webp"
    sizes = [size for size in PICTURE_SIZES if storage.pictures.read(size, name)]
    return [*(user.name for user in found), *sizes]


def picture_of(storage: Storage, user_id: int = ADA) -> dict[str, bytes]:
    """Return the content of the three files of a user's picture."""
    name = f"{user_id}-{storage.users.read(user_id).pfp_timestamp}.webp"
    return {size: storage.pictures.read(size, name)[0] for size in PICTURE_SIZES}


def state_of_code(code: str) -> Callable[[Storage], str]:
    def state(storage: Storage) -> str:
        try:
            storage.codes.read(code)
        except NoSuchCode:
            return "unknown"
        except CodeSpent:
            return "used"
        return "valid"

    return state


def make_administrator(storage: Storage) -> None:
    with storage.users.edit(ADA) as user:
        user.mod_level = ADMINISTRATOR


def audit_line_writer(storage: Storage) -> Callable[[object], None]:
    """Return a function that writes an audit line, to call under the lock of the change."""
    return lambda record: storage.audit.write("act", "command", client=record.id)


def keys_are_old(storage: Storage) -> list[bool]:
    """Return for each key whether it is KEY."""
    keys = storage.keys.current()
    return [key == KEY for key in keys]


def client_names(storage: Storage) -> list[str]:
    return sorted(client.name for client in map(storage.clients.read, storage.clients.ids()))


def id_of_chess(storage: Storage) -> str:
    (client_id,) = (
        client.id
        for client in map(storage.clients.read, storage.clients.ids())
        if client.name == "Chess"
    )
    return client_id


def edit_bio(storage: Storage) -> None:
    with storage.users.edit(ADA) as user:
        user.bio = "new " * 250


def is_deleted(storage: Storage) -> bool:
    try:
        return storage.users.read(ADA) is None
    except NoSuchUser:
        return os.path.exists(storage.layout.deleted(ADA))  # the id is marked before


FIRST_START = "starting on empty folders"
OPERATIONS = {
    FIRST_START: Operation(
        act=lambda storage: None,
        state=lambda storage: (len(storage.keys.current()), storage.users.ids()),
        old=(1, []),
        new=(1, []),
    ),
    "adding a user": Operation(
        act=lambda storage: storage.users.register("Cleo", "cleo@example.org", ""),
        state=new_user,
        old=None,
        new=["Cleo", "Cleo", *PICTURE_SIZES],
        free_before=("CLEO", "CLEO@example.org"),
    ),
    "adding an invited user": Operation(
        act=lambda storage: storage.users.register("Dora", "dora@example.org", "", invite=INVITE),
        state=lambda storage: [
            new_user(storage, "Dora"),
            bool(storage.invites.find_unused(INVITE)),
        ],
        old=[None, True],
        new=[["Dora", "Dora", *PICTURE_SIZES], False],
        free_before=("DORA", "DORA@example.org"),
    ),
    "editing a user": Operation(
        act=edit_bio, state=lambda storage: storage.users.read(ADA).bio, old="", new="new " * 250
    ),
    "renaming a user": Operation(
        act=lambda storage: storage.users.rename(ADA, "Grace"),
        state=find_names("Ada", "Grace", "ada@example.org"),
        old=["Ada", None, "Ada"],
        new=[None, "Grace", "Grace"],
        free_before=("Grace", "zed@example.org"),
        free_after=("Ada", "zed@example.org"),
    ),
    "changing an email address": Operation(
        act=lambda storage: storage.users.change_email(ADA, "grace@example.org"),
        state=find_names("ada@example.org", "grace@example.org", "Ada"),
        old=["Ada", None, "Ada"],
        new=[None, "Ada", "Ada"],
        free_before=("Zed", "grace@example.org"),
        free_after=("Zed", "ada@example.org"),
    ),
    "becoming an administrator": Operation(
        act=make_administrator,
        state=lambda storage: [user.id for user in storage.users.administrators()],
        old=[],
        new=[ADA],
    ),
    "changing a picture": Operation(
        act=lambda storage: storage.pictures.save(ADA, NEW_PICTURE),
        state=picture_of,
        old=OLD_PICTURE,
        new=NEW_PICTURE,
    ),
    "deleting an account": Operation(
        act=lambda storage: storage.users.delete(ADA),
        state=lambda storage: [is_deleted(storage), *find_names("Ada", "ada@example.org")(storage)],
        old=[False, "Ada", "Ada"],
        new=[True, None, None],
        free_after=("Ada", "ada@example.org"),
    ),
    "adding a client": Operation(
        act=lambda storage: storage.clients.register(
            "Checkers", [], None, before=audit_line_writer(storage)
        ),
        state=client_names,
        old=["Chess"],
        new=["Checkers", "Chess"],
    ),
    "deleting a client": Operation(
        act=lambda storage: storage.clients.delete(
            id_of_chess(storage), audit_line_writer(storage)
        ),
        state=client_names,
        old=["Chess"],
        new=[],
    ),
    "adding a code": Operation(
        act=lambda storage: storage.codes.add("a code", CODE),
        state=state_of_code("a code"),
        old="unknown",
        new="valid",
    ),
    "using a code": Operation(
        act=lambda storage: storage.codes.spend("an old code"),
        state=state_of_code("an old code"),
        old="valid",
        new="used",
    ),
    "rotating the key": Operation(
        act=lambda storage: storage.keys.rotate(drop_old=False),
        state=keys_are_old,
        old=[True],
        new=[True, False],
    ),
    "dropping the old keys": Operation(
        act=lambda storage: storage.keys.rotate(drop_old=True),
        state=keys_are_old,
        old=[True],
        new=[False],
    ),
}


def write_in_place(
    path: str, content: bytes, mode: int = 0o600, durable: bool = True, commits: bool = False
) -> None:
    """Replace `disk.write_file` by one that writes in place, which the tests must detect."""
    with open(path, "wb") as file:
        for part in (content[:20], content[20:]):
            file.write(part)
            file.flush()


def run_operation(name: str, storage: Storage | None, folders: tuple[str, ...]) -> int:
    """Run an operation; return the exit code for its result."""
    try:
        OPERATIONS[name].act(storage or open_storage(*folders))
    except StorageFull:
        return FULL
    except SaveUnconfirmed:
        return UNCONFIRMED
    except StorageFailed:
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        return OTHER_ERROR
    return DONE


def prepare_run(name: str, *folders: str) -> Callable[[], int]:
    """Return the function for the forked process to call."""
    storage = None if name == FIRST_START else open_storage(*folders)
    return lambda: run_operation(name, storage, folders)


def serve(requests, prepare_run: Callable[..., Callable[[], int]] = prepare_run) -> None:
    for line in requests:
        act = prepare_run(*json.loads(line))
        read_end, write_end = os.pipe()
        process = os.fork()
        if not process:
            os.read(read_end, 1)
            os._exit(act())
        print(process, flush=True)
        requests.readline()
        os.write(write_end, b"\n")
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
        os.close(read_end)
        os.close(write_end)


if __name__ == "__main__":
    stop_time_windows()
    pictures.generate_picture = functools.cache(generate_picture)
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(f"{folder}/instance", f"{folder}/pfp")
        prepare(storage)
        for operation in OPERATIONS.values():
            operation.act(storage)
    if sys.argv[1:] == [write_in_place.__name__]:
        disk.write_file = write_in_place
    serve(sys.stdin)
