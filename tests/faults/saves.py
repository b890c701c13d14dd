"""Saves of every kind, each told before it begins and when it is done: for who cuts the power.

The program forks a process for each line of standard input: a seed and the two folders, in JSON.
That process opens the installation, and saves until the disk fails it. It prints a JSON line before
each save, [false, facts], and one after it, [true, facts]. Its exit code is the last.

A fact is something that can be seen of the installation, by name. It is None where it is gone, and
ANYTHING where only the save itself could tell.
"""

import functools
import hashlib
import itertools
import json
import os
import random
import re
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator

from storage import (
    PICTURE_SIZES,
    AuthorizationCode,
    Client,
    Grant,
    Invite,
    NotFound,
    Session,
    Storage,
    StorageFailed,
    User,
    open_storage,
    record_as_dict,
)
from storage.flat_files.backend import FlatFiles
from storage.flat_files.disk import read_record, translate_os_errors
from storage.pictures import generate_picture

ANYTHING = "anything"
TOLD, ANOTHER_ERROR = 0, 1  # exit codes: how the end of the disk showed
INVITE_FILE = re.compile(r"[0-9a-f]{64}\.json")
UPLOADS = 20  # different pictures
NOBODYS = "scrypt:2:1:1$salt$" + "0" * 128  # the hash of a password that nobody has


# ---------------------------------------------------------------------------------------------
# What can be seen
# ---------------------------------------------------------------------------------------------


def facts_of(storage: FlatFiles) -> dict[str, object]:
    """All that a save changes, but for codes."""
    facts = {
        "keys": list(map(bytes.decode, storage.keys())),
        "invites": good_invites(storage),
    }
    for user in map(storage.read_user, storage.user_ids()):
        assert storage.find_user(user.name) == storage.find_user(user.email) == user
        facts[f"player {user.name}"] = about_player(storage, user)
    for client in map(storage.read_client, storage.client_ids()):
        facts[f"client {client.name}"] = about(client)
    for line in storage.read_audit():
        facts[f"{line['act']} by {line['by']}"] = True
    check_indexes(storage)
    return facts


def check_indexes(storage: FlatFiles) -> None:
    """Fail if a look-up by an index and one that reads everything differ."""
    users = [storage.read_user(each) for each in storage.user_ids()]
    assert storage.administrators() == [each for each in users if each.administers]
    clients = [storage.read_client(each) for each in storage.client_ids()]
    for owner_id in (None, *(user.id for user in users)):
        owned = [each for each in clients if each.owner_id == owner_id]
        assert storage.clients_of(owner_id) == owned
    log = list(storage.read_audit())
    for user in users:
        lines = [line for line in log if line.get("user") == user.id]
        # The line of a change that was not made may be in the log alone.
        assert list(storage.audit_of(user.id)) in (lines, lines[:-1])


def about(record: User | Client) -> dict:
    """What a save knows before it is done."""
    unknown = {"id", "name", "created", "last_heartbeat", "pfp_timestamp"}
    return {name: each for name, each in record_as_dict(record).items() if name not in unknown}


def about_player(storage: Storage, user: User) -> dict:
    name = f"{user.id}-{user.pfp_timestamp}.webp"
    images = {size: storage.read_picture(size, name)[0] for size in PICTURE_SIZES}
    return about(user) | {"picture": about_picture(images)}


def about_picture(images: dict[str, bytes]) -> str:
    return hashlib.sha256(b"".join(images.values())).hexdigest()


@functools.cache
def drawn_picture(number: int) -> dict[str, bytes]:
    return generate_picture(number)


def good_invites(storage: FlatFiles) -> list[str]:
    """The hash of each that nobody took."""
    folder = f"{storage.layout.data_dir}/invites"
    with translate_os_errors():
        hashes = sorted(
            name.removesuffix(".json") for name in os.listdir(folder) if INVITE_FILE.fullmatch(name)
        )
    for each in hashes:
        read_record(f"{folder}/{each}.json", Invite, NotFound())
    # The link leads to the record of who took it.
    return [each for each in hashes if not os.path.exists(f"{folder}/{each}.taken")]


# ---------------------------------------------------------------------------------------------
# Saves
#
# Each first yields the facts that it will change, in the order in which they are to reach the disk;
# then it saves, and yields what can only be told then. `mark` stands in no other save.
# ---------------------------------------------------------------------------------------------

Save = Callable[[FlatFiles, str, random.Random], Iterator[dict]]


def add_player(storage, mark, dice):
    user = User(0, mark, f"{mark}@example.org", NOBODYS)
    yield {f"player {mark}": about(user) | {"picture": picture_of_next_player(storage)}}
    storage.add_user(user.name, user.email, user.password_hash)


def picture_of_next_player(storage: FlatFiles) -> str:
    number = 1
    if storage.user_ids():
        with translate_os_errors(), open(f"{storage.layout.data_dir}/next_user_id") as file:
            number = int(file.read())
    return about_picture(drawn_picture(number))


def invite(storage, mark, dice):
    line = {f"invite by {mark}": True}
    yield line | {"invites": ANYTHING}
    storage.write_audit("invite", mark)
    storage.issue_invite(7)
    yield line | {"invites": good_invites(storage)}


def add_invited_player(storage, mark, dice):
    user = User(0, mark, f"{mark}@example.org", NOBODYS)
    player = {f"player {mark}": about(user) | {"picture": picture_of_next_player(storage)}}
    line = {f"invite by {mark}": True}
    yield line | {"invites": ANYTHING} | player
    storage.write_audit("invite", mark)
    spent = storage.issue_invite(7)
    storage.add_user(user.name, user.email, user.password_hash, invite=spent)
    yield line | {"invites": good_invites(storage)} | player


def some_player(storage: Storage, dice: random.Random) -> User:
    return storage.read_user(dice.choice(storage.user_ids()))


def edit_player(change: Callable[[User, str], None]) -> Save:
    """A save that changes the record of a player so."""

    def save(storage, mark, dice):
        user = some_player(storage, dice)
        picture = {"picture": about_player(storage, user)["picture"]}
        change(user, mark)
        yield {f"player {user.name}": about(user) | picture}
        with storage.edit_user(user.id) as edited:
            change(edited, mark)

    return save


def write_bio(user: User, mark: str) -> None:
    user.bio = f"{mark} " * 100


def allow(user: User, mark: str) -> None:
    user.grants[mark] = Grant(mark, ["userinfo", "email"], 1)


def sign_in(user: User, mark: str) -> None:
    user.sessions = [*user.sessions, Session(mark, 1, "Firefox on Linux")][-20:]


def promote(user: User, mark: str) -> None:
    user.mod_level = (user.mod_level + 1) % 3


def play(user: User, mark: str) -> None:
    user.play_ms += 60_000


def suspend(storage, mark, dice):
    user = some_player(storage, dice)
    suspended = not user.suspended
    changed = about_player(storage, user) | {"suspended": suspended}
    yield {f"suspend by {mark}": True, f"player {user.name}": changed}
    with storage.edit_user(user.id) as edited:
        storage.write_audit("suspend", by=mark, user=user.id)
        edited.suspended = suspended


def rename(storage, mark, dice):
    user = some_player(storage, dice)
    yield {f"player {mark}": about_player(storage, user), f"player {user.name}": None}
    storage.rename_user(user.id, mark)


def change_email(storage, mark, dice):
    user = some_player(storage, dice)
    email = f"new-{mark}@example.org"
    yield {f"player {user.name}": about_player(storage, user) | {"email": email}}
    storage.change_email(user.id, email)


def change_picture(storage, mark, dice):
    user = some_player(storage, dice)
    images = drawn_picture(10**6 + dice.randrange(UPLOADS))
    yield {f"player {user.name}": about(user) | {"picture": about_picture(images)}}
    storage.save_picture(user.id, images)


def delete_player(storage, mark, dice):
    user = some_player(storage, dice)
    if len(storage.user_ids()) < 3:
        yield from add_player(storage, mark, dice)
        return
    yield {f"player {user.name}": None}
    storage.delete_user(user.id)


def audited(storage: FlatFiles, act: str, mark: str) -> Callable[[Client], None]:
    return lambda client: storage.write_audit(act, mark, client=client.id)


def add_client(storage, mark, dice):
    line = {f"client add by {mark}": True}
    yield line | {f"client {mark}": ANYTHING}
    owner_id = dice.choice([None, *storage.user_ids()])
    client, _ = storage.add_client(
        mark, ["https://a.example/"], owner_id, before=audited(storage, "client add", mark)
    )
    yield line | {f"client {mark}": about(client)}


def some_client(storage: Storage, dice: random.Random) -> Client:
    return storage.read_client(dice.choice(storage.client_ids()))


def edit_client(storage, mark, dice):
    client = some_client(storage, dice)
    uris = [f"https://{mark}.example/"]
    yield {f"client {client.name}": about(client) | {"redirect_uris": uris}}
    with storage.edit_client(client.id) as edited:
        edited.redirect_uris = uris


def change_secret(storage, mark, dice):
    client = some_client(storage, dice)
    line = {f"client new-secret by {mark}": True}
    yield line | {f"client {client.name}": ANYTHING}
    storage.issue_client_secret(client.id, audited(storage, "client new-secret", mark))
    yield line | {f"client {client.name}": about(storage.read_client(client.id))}


def delete_client(storage, mark, dice):
    client = some_client(storage, dice)
    if len(storage.client_ids()) < 3:
        yield from add_client(storage, mark, dice)
        return
    yield {f"client delete by {mark}": True, f"client {client.name}": None}
    storage.delete_client(client.id, audited(storage, "client delete", mark))


def rotate_keys(storage, mark, dice):
    line = {f"key rotate by {mark}": True}
    yield line | {"keys": ANYTHING}
    storage.write_audit("key rotate", mark)
    storage.rotate_keys(drop_old=False)
    yield line | {"keys": list(map(bytes.decode, storage.keys()))}


def use_codes(storage, mark, dice):
    """No fact: none of it counts after a power cut."""
    yield {}
    record = AuthorizationCode("c" * 24, 1, mark, ["userinfo"], None, None)
    storage.add_code(f"live {mark}", record)
    storage.add_code(f"spent {mark}", record)
    storage.spend_code(f"spent {mark}")


SAVES: list[Save] = [
    *(add_player, add_client),  # first: the others need one
    *(invite, add_invited_player, rename, change_email, change_picture, suspend, delete_player),
    *map(edit_player, (write_bio, allow, sign_in, play, promote)),
    *(edit_client, change_secret, delete_client, rotate_keys, use_codes),
]


# ---------------------------------------------------------------------------------------------
# The program
# ---------------------------------------------------------------------------------------------


def save(seed: int, *folders: str) -> Iterator[tuple[bool, dict]]:
    """Open an installation, and save without end: each kind once, then at random."""
    dice = random.Random(seed)
    yield False, {"keys": ANYTHING, "invites": []}
    storage = open_storage(*folders)
    yield True, {"keys": list(map(bytes.decode, storage.keys())), "invites": []}
    kinds = SAVES[:2] + dice.sample(SAVES[2:], len(SAVES) - 2)
    for number in itertools.count():
        kind = kinds[number] if number < len(kinds) else dice.choice(SAVES)
        saving = kind(storage, f"p{seed}-{number}", dice)
        changes = next(saving)
        yield False, changes
        yield True, next(saving, changes)


def outcome(seed: int, *folders: str) -> int:
    """Save until the disk fails; returns the exit code that tells how that showed."""
    try:
        for told in save(seed, *folders):
            print(json.dumps(told), flush=True)
    except StorageFailed:
        return TOLD
    except Exception:
        traceback.print_exc()
    return ANOTHER_ERROR


def leave_unsynced(is_such: Callable[[int], bool]) -> None:
    """Let os.fsync do nothing where the mode is such: the tests must find it out."""
    fsync = os.fsync
    os.fsync = lambda each: None if is_such(os.fstat(each).st_mode) else fsync(each)


def serve(requests) -> None:
    for line in requests:
        process = os.fork()
        if not process:
            os._exit(outcome(*json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # all is imported, and has run once
        list(itertools.islice(save(0, f"{folder}/instance", f"{folder}/pfp"), 100))
    for number in (*range(UPLOADS), *range(10**6, 10**6 + UPLOADS)):
        drawn_picture(number)
    for kind in sys.argv[1:]:
        leave_unsynced({"files": stat.S_ISREG, "folders": stat.S_ISDIR}[kind])
    serve(sys.stdin)
