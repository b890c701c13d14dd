"""Kill -9 of a server at every statement of each operation that changes more than one thing."""

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from storage import Storage
from storage.errors import NotFound
from storage.records import ADMINISTRATOR

pytestmark = [pytest.mark.live, pytest.mark.postgresql]
PROGRAM = Path(__file__).with_name("killed_process.py")
names = (f"Player {number}x" for number in itertools.count())


class Attempted(NamedTuple):
    """The arguments of one try of an operation, and whether it was done."""

    arguments: list
    is_done: Callable[[], bool]


def has_user(store: Storage, name: str) -> bool:
    """Return whether a user is there, whole: by name, by email address, by id."""
    user = store.users.find_by_login(name)
    by_email = store.users.find_by_login(f"{name.replace(' ', '')}@example.org")
    assert (user is None) == (by_email is None)
    if user:
        assert store.users.read(user.id) == user == by_email
        assert store.pictures.read("small", user.picture_file)
    return user is not None


def is_there(read: Callable, *arguments: object) -> bool:
    try:
        read(*arguments)
    except NotFound:
        return False
    return True


def prepare(operation: str, store: Storage) -> Attempted:
    """Return fresh arguments for an operation."""
    name = next(names).replace(" ", "")
    if operation == "add user":
        invite = store.invites.issue(1)

        def added() -> bool:
            assert has_user(store, name) != bool(store.invites.find_unused(invite))
            return has_user(store, name)

        return Attempted([name, invite], added)
    if operation == "insert user":
        user_id = 10**6 + int(name[6:-1])
        store.users.reserve_ids(user_id)  # as an import does before
        return Attempted([name, user_id], lambda: has_user(store, name))
    if operation == "rotate keys":
        keys = store.keys.current()
        return Attempted([], lambda: open_keys(store) != keys)
    user = store.users.register(name, f"{name}@example.org", "", ADMINISTRATOR)
    client, _ = store.clients.register(name, [], user.id)
    new = f"new{name}"
    found = {
        "rename": lambda: (
            bool(store.users.find_by_login(new)) and not store.users.find_by_login(name)
        ),
        "change email": lambda: store.users.find_by_login(f"{new}@example.org") is not None,
        "delete": lambda: not is_there(store.users.read, user.id),
        "edit": lambda: store.users.read(user.id).bio == "edited",
        "demote": lambda: user.id not in [each.id for each in store.users.administrators()],
        "save picture": lambda: store.users.read(user.id).pfp_timestamp != user.pfp_timestamp,
        "add client": lambda: len(store.clients.of_owner(user.id)) == 2,
        "disable client": lambda: store.clients.read(client.id).disabled,
        "delete client": lambda: not is_there(store.clients.read, client.id),
    }
    arguments = {
        "rename": [user.id, new],
        "change email": [user.id, f"{new}@example.org"],
        "add client": [new, user.id],
        "disable client": [client.id],
        "delete client": [client.id],
    }
    return Attempted(arguments.get(operation, [user.id]), found[operation])


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
        cwd=PROGRAM.parent.parent.parent,
        env={"PYTHONPATH": str(PROGRAM.parent.parent.parent), "PATH": "/usr/bin:/bin"},
    ) as process:

        def run(operation: str, arguments: list, number: int, runs: bool) -> int:
            asked = {"operation": operation, "arguments": arguments, "number": number, "runs": runs}
            process.stdin.write(f"{json.dumps(asked)}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield run
        process.stdin.close()


OPERATIONS = ["add user", "insert user", "rename", "change email", "delete", "edit", "demote"]
OPERATIONS += ["save picture", "add client", "disable client", "delete client", "rotate keys"]


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
        places = ("users/", "clients/", "audit", "installation")
        assert [each for each in storage.verify() if each.place.startswith(places)] == []
    # Negative control: some kills came before the commit, the last after it.
    assert len(outcomes) > 4
    assert not outcomes[0] and outcomes[-1]
    assert storage.users.read(first.id) == first
