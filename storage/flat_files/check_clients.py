"""Check of the clients, and of the index of clients and administrators."""

import functools
import os
import re

from storage import (
    CLIENT_ID,
    USER_ID,
    Client,
    DamagedRecord,
    NotFound,
    OriginTaken,
    User,
    origin_of,
)
from storage.flat_files.index import ADMINISTRATORS, Index, index_keys
from storage.flat_files.layout import Layout
from storage.flat_files.problems import (
    Finding,
    Findings,
    look_at_orphan,
    look_at_record,
    look_at_rules,
    read_or_damaged,
    remove,
)
from storage.flat_files.record_files import read_client, read_user
from storage.flat_files.walk import Problems, Walk, user_locks
from storage.rules import TIME_END

CLIENT_FILE = re.compile(rf"{CLIENT_ID.pattern}\.json")
HASH = re.compile(r"[0-9a-f]{64}")
CLIENT_KEY = re.compile(rf"owner-(none|{USER_ID.pattern})|games-(un)?listed|origin-{HASH.pattern}")


def check_clients(walk: Walk) -> Problems:
    """Check the records of the clients, and that they are in the index."""
    layout = walk.layout
    look = functools.partial(_look_at_client, layout, {})
    folder = layout.path("clients")
    yield from walk.check_folder(folder, CLIENT_FILE, look, lambda path: [layout.clients_lock()])


def _look_at_client(layout: Layout, origins: dict[str, str], path: str) -> Findings:
    """Look at a client; `origins` has the ids of clients by the origin of their game."""
    client_id = os.path.basename(path).removesuffix(".json")
    client = yield from look_at_record(read_client, layout, client_id, path)
    if client is None:
        return
    if not HASH.fullmatch(client.secret_sha256):
        yield Finding(path, "secret_sha256 is not a SHA-256")
    if not 0 <= client.created < TIME_END:
        yield Finding(path, "created is not a time")
    wrong = list(look_at_rules(path, client, ["redirect_uris", "game_url"]))
    yield from wrong
    if not wrong and client.game_url:
        origin = origin_of(client.game_url)
        other_id = origins.setdefault(origin, client.id)
        if other_id != client.id and _has_game_on(layout, other_id, origin):
            yield Finding(path, str(OriginTaken()))
    yield from look_at_index_of(layout, client)


def _has_game_on(layout: Layout, client_id: str, origin: str) -> bool:
    try:
        client = read_or_damaged(read_client, layout, client_id)
    except (NotFound, DamagedRecord):
        return False
    return bool(client.game_url) and origin_of(client.game_url) == origin


def look_at_index_of(layout: Layout, record: User | Client) -> Findings:
    """Look at the index entries that a record needs."""
    for key in sorted(index_keys(record)):
        path = layout.path("index", key, str(record.id))
        if not os.path.lexists(path):
            yield Finding(path, "is missing", functools.partial(_add_entry, layout, key))


def _add_entry(layout: Layout, key: str, path: str) -> str:
    Index(layout.path("index")).add(key, os.path.basename(path), durable=False)
    return "added"


def check_index(walk: Walk) -> Problems:
    """Check that every entry of the index is of a record that has the property."""
    layout = walk.layout
    look = functools.partial(_look_at_entry, layout)
    for folder in (yield from walk.paths_in(layout.path("index"))):
        if os.path.basename(folder) == ADMINISTRATORS:
            yield from walk.check_folder(
                folder, USER_ID, look, functools.partial(user_locks, layout)
            )
        elif CLIENT_KEY.fullmatch(os.path.basename(folder)):
            yield from walk.check_folder(folder, CLIENT_ID, look, lambda _: [layout.clients_lock()])
        else:
            yield from walk.confirmed(look_at_orphan, folder)


def _look_at_entry(layout: Layout, path: str) -> Findings:
    key, member = path.split("/")[-2:]
    is_user = key == ADMINISTRATORS
    try:
        record = read_or_damaged(
            *(read_user, layout, int(member)) if is_user else (read_client, layout, member)
        )
    except NotFound:
        problem = f"is of no {'user' if is_user else 'client'}"
    except DamagedRecord:
        return  # it keeps its entries
    else:
        if key in index_keys(record):
            return
        problem = "is of a record that does not have this property"
    if os.path.lexists(path):
        yield Finding(path, problem, remove)
