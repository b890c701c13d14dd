"""The records of users and clients: reading one, and changing one under its lock."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Set

import storage
from storage import Client, User
from storage.flat_files import disk
from storage.flat_files.index import Index, index_keys
from storage.flat_files.layout import Layout, Lock


def read_user(layout: Layout, user_id: int) -> User:
    """Return the user with this id. Raises NoSuchUser, DamagedRecord, StorageFailed."""
    missing = storage.NoSuchUser(f"there is no user {user_id}")
    return disk.read_record(layout.user(user_id), User, missing, id=user_id)


def read_client(layout: Layout, client_id: str) -> Client:
    """Return the client with this id. Raises NoSuchClient, DamagedRecord, StorageFailed."""
    missing = storage.NoSuchClient("there is no such client")
    return disk.read_record(layout.client(client_id), Client, missing, id=client_id)


def drop_hidden_in_bio(user: User, path: str) -> str:
    """Remove hidden characters, which an older version accepted, from the record at a path."""
    user.bio = storage.drop_hidden(user.bio)
    disk.write_record(path, user)
    return "removed"


def user_ids(layout: Layout) -> list[int]:
    """Return the ids of all users, ascending. Raises OSError."""
    names = (name.removesuffix(".json") for name in os.listdir(layout.users))
    return sorted(int(name) for name in names if storage.USER_ID.fullmatch(name))


def client_ids(layout: Layout) -> list[str]:
    """Return the ids of all clients, ascending. Raises OSError."""
    names = (name.removesuffix(".json") for name in os.listdir(layout.path("clients")))
    return sorted(filter(storage.CLIENT_ID.fullmatch, names))


@contextlib.contextmanager
def edit_record(
    layout: Layout,
    index: Index,
    lock: Lock,
    path: str,
    read: Callable,
    fixed: set[str],
    unchecked: Set[str] = frozenset(),
    before_save: Callable = storage.ignore,
) -> Iterator:
    """Hold `lock`, yield the record that `read` returns, and save it at the end of the block.

    Nothing is written if nothing changed. The rules of the fields in `unchecked` are not applied.
    `before_save` may change the record that is about to be saved.
    Raises ValueError if a field in `fixed` has changed, InvalidField, StorageFailed.
    """
    with contextlib.ExitStack() as held:
        with disk.translate_os_errors():
            held.enter_context(lock)
        held.enter_context(layout.editing())
        record = read()
        before = storage.record_as_dict(record)
        old_keys = index_keys(record)
        yield record
        changed = storage.changed_fields(record, before, fixed, unchecked)
        if changed:
            with disk.translate_os_errors(), index.updated(record, old_keys):
                before_save(record)
                disk.write_record(path, record)


def drop_stale_grants(layout: Layout, user: User) -> None:
    """Keep the newest GRANTS_KEPT grants of clients that exist. A damaged client exists."""
    user.keep_grants(functools.partial(_exists, layout))


def _exists(layout: Layout, client_id: str) -> bool:
    try:
        path = layout.client(client_id)
    except storage.NoSuchClient:
        return False
    try:
        os.lstat(path)
    except FileNotFoundError:
        return not os.path.isdir(os.path.dirname(path))  # nothing is known of any client then
    except OSError:  # the folder cannot be read now
        return True
    return True
