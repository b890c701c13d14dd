"""Kill -9 of a server at every statement of each operation that changes more than one thing."""

import contextlib
import functools
import itertools
import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from identity.acts import apps as app_acts
from identity.acts.actors import COMMAND, Authority
from identity.oauth.refresh import secret_after
from identity.site.settings import ROOT
from model.errors import CodeSpent, NameKept, NameTaken
from model.grant_records import AuthorizationCode
from model.kinds import COVERS, FAMILIES
from model.records import ADMINISTRATOR, COVER_SIZES, PLAYER, Client, Grant, sha256
from storage import Storage

from .killed_process import OPERATIONS, exchange

pytestmark = [pytest.mark.live, pytest.mark.postgresql]
PROGRAM = Path(__file__).with_name("killed_process.py")
numbers = itertools.count()


class Attempt(NamedTuple):
    """The arguments of one try of an operation, and whether it was done."""

    arguments: list
    is_done: Callable[[], bool]


def has_user(store: Storage, name: str) -> bool:
    """Return whether a user is there, whole: by name, by email address, by id."""
    user = store.users.find_by_login(name)
    assert user == store.users.find_by_login(f"{name}@example.org")
    if user:
        assert store.users.read(user.id) == user
        assert store.pictures.read("small", user.picture_file)
    return user is not None


def cover_of(store: Storage, client_id: str) -> str:
    """Return the small cover that a client has, which must not be missing."""
    return store.records(COVERS).read(store.clients.read(client_id).cover_id).small


def is_given_up(store: Storage, name: str) -> bool:
    """Return whether a name is kept; else its player has it, and is in the list."""
    is_kept = store.users.former_names.find_kept(name) is not None
    listed = [user.name for user in store.users.by_name(name, at_most=1)]
    assert listed == [name] * (not is_kept)
    assert bool(store.users.find_by_login(name)) != is_kept
    with pytest.raises(NameKept if is_kept else NameTaken):
        store.users.require_name(name)
    return is_kept


def prepare_tokens(operation: str, store: Storage, user_id: int, client: Client) -> Attempt:
    """Prepare an exchange, or a use of the token that one gave."""
    code = secrets.token_urlsafe(12)
    with store.users.edit(user_id) as user:
        user.grants[client.id] = Grant("a grant", ["userinfo"], 1)
    record = AuthorizationCode(client.id, user_id, "a grant", ["userinfo"], None, None)
    record.family = code
    store.codes.add(code, record)

    def newest() -> str:
        family = store.records(FAMILIES).read(code)
        assert code in store.users.read(user_id).families
        return family.current

    def is_exchanged() -> bool:
        with contextlib.suppress(CodeSpent):
            store.codes.read(code)
            return False
        salt = store.records(FAMILIES).read(code).salt
        assert newest() == sha256(secret_after(code, salt))  # also of a second try
        return True

    if operation == "exchange":
        return Attempt([code], is_exchanged)
    token = exchange(store, code)
    if operation == "refresh":
        secret = token.partition(".")[2]
        following = sha256(secret_after(secret, store.records(FAMILIES).read(code).salt))
        return Attempt([client.id, token], lambda: newest() == following)
    old = f"{code}.{43 * 'x'}"
    return Attempt([client.id, old], lambda: not store.users.read(user_id).families)


def prepare(operation: str, store: Storage) -> Attempt:
    number = next(numbers)
    name, new = f"player{number}x", f"new{number}x"
    if operation == "add user":
        invite = store.invites.issue(1)

        def is_added() -> bool:
            assert has_user(store, name) != bool(store.invites.find_unused(invite))
            return has_user(store, name)

        return Attempt([name, invite], is_added)
    if operation == "insert user":
        store.users.reserve_ids(10**6 + number)  # as an import does before
        return Attempt([name, 10**6 + number], lambda: has_user(store, name))
    if operation == "rotate keys":
        keys = store.keys.current()
        return Attempt([], lambda: open_keys(store) != keys)
    users, clients = store.users, store.clients
    user = users.register(name, f"{name}@example.org", "", ADMINISTRATOR)
    client, _ = clients.register(name, [], user.id)
    if operation in ("exchange", "refresh", "refresh with an old token"):
        return prepare_tokens(operation, store, user.id, client)
    app_acts.save_cover(Authority(store, COMMAND), client.id, dict.fromkeys(COVER_SIZES, b"old"))
    old_cover = cover_of(store, client.id)
    email, old = f"{new}@example.org", user.pfp_timestamp
    given_up = functools.partial(is_given_up, store, name)
    return {
        "rename": Attempt([user.id, new], lambda: given_up() and bool(users.find_by_login(new))),
        "change email": Attempt([user.id, email], lambda: bool(users.find_by_login(email))),
        "delete": Attempt([user.id], lambda: given_up() and user.id not in users.ids()),
        "demote": Attempt([user.id], lambda: users.read(user.id).mod_level == PLAYER),
        "save picture": Attempt([user.id], lambda: users.read(user.id).pfp_timestamp != old),
        "add client": Attempt([new, user.id], lambda: len(clients.of_owner(user.id)) == 2),
        "save cover": Attempt([client.id], lambda: cover_of(store, client.id) != old_cover),
        "delete client": Attempt([client.id], lambda: client.id not in clients.ids()),
    }[operation]


def open_keys(store: Storage) -> tuple[bytes, ...]:
    """Return the keys as they are now, which other processes know a second later."""
    with store.snapshot() as snapshot:
        return snapshot.keys()


@pytest.fixture
def run_killed(database_url) -> Iterator[Callable[..., int]]:
    """A function that runs an operation in a process of its own and returns the exit status."""
    with subprocess.Popen(
        [sys.executable, PROGRAM, database_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": ROOT, "PATH": "/usr/bin:/bin"},
    ) as process:

        def run(operation: str, arguments: list, number: int, runs: bool) -> int:
            asked = {"operation": operation, "arguments": arguments, "number": number, "runs": runs}
            process.stdin.write(f"{json.dumps(asked)}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield run
        process.stdin.close()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_kill_at_any_statement_leaves_nothing_that_blocks(storage, run_killed, operation: str):
    first = storage.users.register("First", "first@example.org", "", ADMINISTRATOR)
    outcomes = []
    for step in itertools.count(2):
        number, runs = step // 2, bool(step % 2)  # killed before statement 1, after it, before 2
        attempted = prepare(operation, storage)
        status = run_killed(operation, attempted.arguments, number, runs)
        assert status in (0, -signal.SIGKILL)
        outcomes.append(attempted.is_done())
        if status == 0:
            break
        if not outcomes[-1]:  # then the same is possible now
            assert run_killed(operation, attempted.arguments, 1000, False) == 0
            assert attempted.is_done()
        places = ("users/", "clients/", "covers/", "audit", "installation")
        assert [each for each in storage.verify() if each.place.startswith(places)] == []
    # Negative control: some kills came before the commit, the last after it.
    assert len(outcomes) > 4
    assert not outcomes[0] and outcomes[-1]
    assert storage.users.read(first.id) == first
