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
from storage.flat_files.walk import Problems, Walk
from storage.rules import TIME_END

CLIENT_FILE = re.compile(rf"{CLIENT_ID.pattern}\.json")
HASH = re.compile(r"[0-9a-f]{64}")
INDEX_KEY = re.compile(
    rf"{ADMINISTRATORS}|owner-(none|{USER_ID.pattern})|games-(un)?listed|origin-{HASH.pattern}"
)


class ClientCheck:
    """The check of the clients below a data folder."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._layout = walk.layout
        self._origins: dict[str, str] = {}  # client ids, by the origin of their game

    def problems(self) -> Problems:
        yield from self._walk.check_folder(
            self._layout.path("clients"), CLIENT_FILE, self._check_client
        )

    def _check_client(self, path: str) -> Problems:
        locks = [self._layout.clients_lock()]
        yield from self._walk.confirmed(self._look_at_client, path, locks=locks)

    def _look_at_client(self, path: str) -> Findings:
        client_id = os.path.basename(path).removesuffix(".json")
        client = yield from look_at_record(read_client, self._layout, client_id, path)
        if client is None:
            return
        if not HASH.fullmatch(client.secret_sha256):
            yield Finding(path, "secret_sha256 is not a SHA-256")
        if not 0 <= client.created < TIME_END:
            yield Finding(path, "created is not a time")
        wrong = list(look_at_rules(path, client, ["redirect_uris", "game_url"]))
        yield from wrong
        if not wrong and client.game_url and self._is_second_on_origin(client):
            yield Finding(path, str(OriginTaken()))
        yield from look_at_index_of(self._layout, client)

    def _is_second_on_origin(self, client: Client) -> bool:
        origin = origin_of(client.game_url)
        first = self._origins.setdefault(origin, client.id)
        if first == client.id:
            return False
        try:
            other = read_or_damaged(read_client, self._layout, first)
        except (NotFound, DamagedRecord):
            return False
        return bool(other.game_url) and origin_of(other.game_url) == origin


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

    def check_entry(path: str) -> Problems:
        key, member = path.split("/")[-2:]
        locks = [layout.clients_lock()]
        if key == ADMINISTRATORS:
            locks = [layout.accounts_lock(), layout.user_lock(int(member))]
        yield from walk.confirmed(_look_at_entry, layout, path, locks=locks)

    for folder in (yield from walk.paths_in(layout.path("index"))):
        key = os.path.basename(folder)
        if not INDEX_KEY.fullmatch(key):
            yield from walk.confirmed(look_at_orphan, folder)
            continue
        names = USER_ID if key == ADMINISTRATORS else CLIENT_ID
        yield from walk.check_folder(folder, names, check_entry)


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
