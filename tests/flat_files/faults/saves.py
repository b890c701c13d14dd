"""Saves of every kind, reported before and after, for tests that cut the power.

The program forks a process for each line of standard input: a seed and the two folders as JSON.
That process opens the installation, and saves until the disk fails. It prints a JSON line before
each save, [false, facts], and one after it, [true, facts]. The exit code is the last line.

Facts are observable values of the installation by name: None if deleted, and ANYTHING if only the
save itself knows the value.
"""

import functools
import hashlib
import itertools
import json
import os
import random
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator

from storage import Storage, open_storage
from storage.encoding import record_as_dict
from storage.errors import StorageFailed
from storage.files import translate_os_errors
from storage.flat_files.backend import FlatFiles
from storage.pictures import generate_picture
from storage.records import (
    PICTURE_SIZES,
    AuthorizationCode,
    Client,
    Grant,
    Session,
    Suspension,
    User,
)

ANYTHING = "anything"
DISK_FAILED, OTHER_ERROR = 0, 1  # exit codes: StorageFailed, or another exception
UPLOADS = 20  # different pictures
UNUSED_HASH = "scrypt:2:1:1$salt$" + "0" * 128  # matches no password


# ---------------------------------------------------------------------------------------------
# Facts
# ---------------------------------------------------------------------------------------------


def read_facts(storage: FlatFiles) -> dict[str, object]:
    """Return all facts, which include everything that a save changes except codes."""
    facts = {
        "keys": list(map(bytes.decode, storage.keys.current())),
        "invites": unused_invites(storage),
    }
    for user in map(storage.users.read, storage.users.ids()):
        assert (
            storage.users.find_by_login(user.name)
            == storage.users.find_by_login(user.email)
            == user
        )
        facts[f"player {user.name}"] = describe_player(storage, user)
    for client in map(storage.clients.read, storage.clients.ids()):
        facts[f"client {client.name}"] = expected_fields(client)
    for line in storage.audit.read():
        facts[f"{line['act']} by {line['by']}"] = True
    check_indexes(storage)
    return facts


def check_indexes(storage: FlatFiles) -> None:
    """Raise AssertionError if an index and the records differ."""
    users = [storage.users.read(each) for each in storage.users.ids()]
    assert storage.users.administrators() == [each for each in users if each.administers]
    clients = [storage.clients.read(each) for each in storage.clients.ids()]
    for owner_id in (None, *(user.id for user in users)):
        owned = [each for each in clients if each.owner_id == owner_id]
        assert storage.clients.of_owner(owner_id) == owned
    log = list(storage.audit.read())
    for user in users:
        lines = [line for line in log if line.get("user") == user.id]
        # The log may have the line of a change that was not made.
        assert list(storage.audit.about({user.id}))[::-1] in (lines, lines[:-1])


def expected_fields(record: User | Client) -> dict:
    """Return the fields whose values a save knows in advance."""
    unknown = {"id", "name", "created", "last_heartbeat", "pfp_timestamp", "invite"}
    return {name: each for name, each in record_as_dict(record).items() if name not in unknown}


def describe_player(storage: Storage, user: User) -> dict:
    name = f"{user.id}-{user.pfp_timestamp}.webp"
    images = {size: storage.pictures.read(size, name)[0] for size in PICTURE_SIZES}
    return expected_fields(user) | {"picture": picture_digest(images)}


def picture_digest(images: dict[str, bytes]) -> str:
    return hashlib.sha256(b"".join(images.values())).hexdigest()


@functools.cache
def cached_picture(number: int) -> dict[str, bytes]:
    return generate_picture(number)


def unused_invites(storage: FlatFiles) -> list[str]:
    """Return the hashes of the unused invitations."""
    ids = storage.invites.ids()
    for each in ids:
        storage.invites.read(each)
    return [each for each in ids if not storage.users.find_by("invite", each)]


# ---------------------------------------------------------------------------------------------
# Saves
#
# Each save first yields the facts that it will change, in the order in which they must reach the
# disk; then it saves, and may yield facts that only the save knows. `mark` is unique to the save.
# ---------------------------------------------------------------------------------------------

Save = Callable[[FlatFiles, str, random.Random], Iterator[dict]]


def add_player(storage, mark, rng):
    user = User(0, mark, f"{mark}@example.org", UNUSED_HASH)
    yield {f"player {mark}": expected_fields(user) | {"picture": picture_of_next_player(storage)}}
    storage.users.register(user.name, user.email, user.password_hash)


def picture_of_next_player(storage: FlatFiles) -> str:
    number = 1
    if storage.users.ids():
        with translate_os_errors(), open(f"{storage.layout.data_dir}/next_user_id") as file:
            number = int(file.read())
    return picture_digest(cached_picture(number))


def invite(storage, mark, rng):
    line = {f"invite by {mark}": True}
    yield line | {"invites": ANYTHING}
    storage.audit.write("invite", mark)
    storage.invites.issue(7)
    yield line | {"invites": unused_invites(storage)}


def add_invited_player(storage, mark, rng):
    user = User(0, mark, f"{mark}@example.org", UNUSED_HASH)
    player = {
        f"player {mark}": expected_fields(user) | {"picture": picture_of_next_player(storage)}
    }
    line = {f"invite by {mark}": True}
    yield line | {"invites": ANYTHING} | player
    storage.audit.write("invite", mark)
    invite_token = storage.invites.issue(7)
    storage.users.register(user.name, user.email, user.password_hash, invite=invite_token)
    yield line | {"invites": unused_invites(storage)} | player


def choose_player(storage: Storage, rng: random.Random) -> User:
    """Return a player as the next save leaves the record: grants of deleted clients are dropped."""
    user = storage.users.read(rng.choice(storage.users.ids()))
    clients = storage.clients.ids()
    user.grants = {each: grant for each, grant in user.grants.items() if each in clients}
    return user


def edit_player(change: Callable[[User, str], None]) -> Save:
    """Return a save that changes the record of a player with this function."""

    def save(storage, mark, rng):
        user = choose_player(storage, rng)
        picture = {"picture": describe_player(storage, user)["picture"]}
        change(user, mark)
        yield {f"player {user.name}": expected_fields(user) | picture}
        with storage.users.edit(user.id) as edited:
            change(edited, mark)

    return save


def write_bio(user: User, mark: str) -> None:
    user.bio = f"{mark} " * 100


def allow(storage, mark, rng):
    user, client = choose_player(storage, rng), choose_client(storage, rng)
    user.grants[client.id] = grant = Grant(mark, ["userinfo", "email"], 1)
    yield {f"player {user.name}": describe_player(storage, user)}
    with storage.users.edit(user.id) as edited:
        edited.grants[client.id] = grant


def sign_in(user: User, mark: str) -> None:
    user.sessions = [*user.sessions, Session(mark, 1, "Firefox on Linux")][-20:]


def promote(user: User, mark: str) -> None:
    user.mod_level = (user.mod_level + 1) % 3


def play(user: User, mark: str) -> None:
    user.play_ms += 60_000


def suspend(storage, mark, rng):
    user = choose_player(storage, rng)
    user.suspension = suspension = None if user.suspended else Suspension("command", since=1)
    changed = describe_player(storage, user)
    yield {f"suspend by {mark}": True, f"player {user.name}": changed}
    with storage.users.edit(user.id) as edited:
        storage.audit.write("suspend", by=mark, user=user.id)
        edited.suspension = suspension


def rename(storage, mark, rng):
    user = choose_player(storage, rng)
    yield {f"player {mark}": describe_player(storage, user), f"player {user.name}": None}
    storage.users.rename(user.id, mark)


def change_email(storage, mark, rng):
    user = choose_player(storage, rng)
    email = f"new-{mark}@example.org"
    yield {f"player {user.name}": describe_player(storage, user) | {"email": email}}
    storage.users.change_email(user.id, email)


def change_picture(storage, mark, rng):
    user = storage.users.read(rng.choice(storage.users.ids()))
    images = cached_picture(10**6 + rng.randrange(UPLOADS))
    yield {f"player {user.name}": expected_fields(user) | {"picture": picture_digest(images)}}
    storage.pictures.save(user.id, images)


def delete_player(storage, mark, rng):
    user = choose_player(storage, rng)
    if len(storage.users.ids()) < 3:
        yield from add_player(storage, mark, rng)
        return
    yield {f"player {user.name}": None}
    storage.users.delete(user.id)


def audit_line_writer(storage: FlatFiles, act: str, mark: str) -> Callable[[Client], None]:
    return lambda client: storage.audit.write(act, mark, client=client.id)


def add_client(storage, mark, rng):
    line = {f"client add by {mark}": True}
    yield line | {f"client {mark}": ANYTHING}
    owner_id = rng.choice([None, *storage.users.ids()])
    client, _ = storage.clients.register(
        mark,
        ["https://a.example/"],
        owner_id,
        before=audit_line_writer(storage, "client add", mark),
    )
    yield line | {f"client {mark}": expected_fields(client)}


def choose_client(storage: Storage, rng: random.Random) -> Client:
    return storage.clients.read(rng.choice(storage.clients.ids()))


def edit_client(storage, mark, rng):
    client = choose_client(storage, rng)
    uris = [f"https://{mark}.example/"]
    yield {f"client {client.name}": expected_fields(client) | {"redirect_uris": uris}}
    with storage.clients.edit(client.id) as edited:
        edited.redirect_uris = uris


def change_secret(storage, mark, rng):
    client = choose_client(storage, rng)
    line = {f"client new-secret by {mark}": True}
    yield line | {f"client {client.name}": ANYTHING}
    storage.clients.issue_secret(client.id, audit_line_writer(storage, "client new-secret", mark))
    yield line | {f"client {client.name}": expected_fields(storage.clients.read(client.id))}


def delete_client(storage, mark, rng):
    client = choose_client(storage, rng)
    if len(storage.clients.ids()) < 3:
        yield from add_client(storage, mark, rng)
        return
    yield {f"client delete by {mark}": True, f"client {client.name}": None}
    storage.clients.delete(client.id, audit_line_writer(storage, "client delete", mark))


def rotate_keys(storage, mark, rng):
    line = {f"key rotate by {mark}": True}
    yield line | {"keys": ANYTHING}
    storage.audit.write("key rotate", mark)
    storage.keys.rotate(drop_old=False)
    yield line | {"keys": list(map(bytes.decode, storage.keys.current()))}


def use_codes(storage, mark, rng):
    """Save codes, which have no facts: all codes are invalid after a power cut."""
    yield {}
    record = AuthorizationCode("c" * 24, 1, mark, ["userinfo"], None, None)
    storage.codes.add(f"valid {mark}", record)
    storage.codes.add(f"used {mark}", record)
    storage.codes.spend(f"used {mark}")


SAVES: list[Save] = [
    *(add_player, add_client),  # first, because the others need a player and a client
    *(
        invite,
        add_invited_player,
        rename,
        change_email,
        change_picture,
        suspend,
        allow,
        delete_player,
    ),
    *map(edit_player, (write_bio, sign_in, play, promote)),
    *(edit_client, change_secret, delete_client, rotate_keys, use_codes),
]


# ---------------------------------------------------------------------------------------------
# The program
# ---------------------------------------------------------------------------------------------


def save(seed: int, *folders: str) -> Iterator[tuple[bool, dict]]:
    """Open an installation, and save endlessly: first each kind once, then at random."""
    rng = random.Random(seed)
    yield False, {"keys": ANYTHING, "invites": []}
    storage = open_storage(*folders)
    yield True, {"keys": list(map(bytes.decode, storage.keys.current())), "invites": []}
    kinds = SAVES[:2] + rng.sample(SAVES[2:], len(SAVES) - 2)
    for number in itertools.count():
        kind = kinds[number] if number < len(kinds) else rng.choice(SAVES)
        steps = kind(storage, f"p{seed}-{number}", rng)
        changes = next(steps)
        yield False, changes
        yield True, next(steps, changes)


def run_saves(seed: int, *folders: str) -> int:
    """Save until the disk fails; return DISK_FAILED or OTHER_ERROR."""
    try:
        for event in save(seed, *folders):
            print(json.dumps(event), flush=True)
    except StorageFailed:
        return DISK_FAILED
    except Exception:
        traceback.print_exc()
    return OTHER_ERROR


def disable_fsync(has_mode: Callable[[int], bool]) -> None:
    """Disable os.fsync for files of this mode, which the tests must detect."""
    fsync = os.fsync
    os.fsync = lambda each: None if has_mode(os.fstat(each).st_mode) else fsync(each)


def serve(requests) -> None:
    for line in requests:
        process = os.fork()
        if not process:
            os._exit(run_saves(*json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # a first run imports all modules
        list(itertools.islice(save(0, f"{folder}/instance", f"{folder}/pfp"), 100))
    for number in (*range(UPLOADS), *range(10**6, 10**6 + UPLOADS)):
        cached_picture(number)
    for kind in sys.argv[1:]:
        disable_fsync({"files": stat.S_ISREG, "folders": stat.S_ISDIR}[kind])
    serve(sys.stdin)
