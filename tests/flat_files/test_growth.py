"""What a request or an act reads does not depend on how much else is stored.

An audit hook counts the different files that are opened, and the names in the folders that are
listed, below the folders of records and indexes. Names are counted apart: a page of all clients or
games lists their names, and reads the records that it shows.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from identity.accounts import Acts
from identity.actors import Actor
from storage import open_storage
from storage.records import ADMINISTRATOR

FOLDERS = ("users", "names", "emails", "deleted", "clients", "index", "audit", "audit.log")
LISTINGS = {"os.listdir", "os.scandir"}
events: list[tuple[str, str]] = []  # event and path
counting = [False]


def record_event(event: str, args: tuple) -> None:
    """Note what is opened and listed while `counting`; a hook cannot be removed."""
    if counting[0] and (event == "open" or event in LISTINGS) and isinstance(args[0], str):
        events.append((event, args[0]))


sys.addaudithook(record_event)


class Cost(NamedTuple):
    """What an act opens, and how many bytes and names that is."""

    files: int
    audit_bytes: int
    names: int


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Record the events of the block."""
    events.clear()
    counting[0] = True
    try:
        yield
    finally:
        counting[0] = False


class Site:
    """An installation that grows, with Ada, an administrator who is signed in, and Bob."""

    def __init__(self, app, browser, ada, bob) -> None:
        self.app, self.browser, self.ada, self.bob = app, browser, ada, bob
        self.players = self.clients = self.lines = 0
        self.data_dir = app.config["DATA_DIR"]
        self.reopen()
        with self.store.users.edit(ada.id) as user:
            user.mod_level = ADMINISTRATOR

    def reopen(self) -> None:
        """Forget the records that are kept in memory."""
        config = self.app.config
        settings = (config["DATA_DIR"], config["PICTURE_DIR"], config["STORAGE"])
        self.store = self.app.extensions["storage"] = open_storage(*settings)

    def grow(self, players: int = 0, clients: int = 0) -> None:
        """Add other players, and clients of Bob with listed games."""
        for _ in range(players):
            self.add_player()
        for _ in range(clients):
            self.add_client(f"https://game{self.clients}.example/play")

    def add_player(self) -> int:
        self.players += 1
        name = f"Visitor {self.players}"
        return self.store.users.register(name, f"p{self.players}@example.org", "").id

    def add_client(self, game_url: str | None = None) -> None:
        self.clients += 1
        self.store.clients.register(
            f"Game {self.clients}", [], self.bob.id, game_url=game_url, listed=game_url is not None
        )

    def cost(self, act: Callable[["Site"], Callable[[], None]]) -> Cost:
        """Return what an act costs when no record is in memory."""
        run = act(self)
        self.reopen()
        with counted():
            run()
        start = f"{self.data_dir}/"
        seen = [
            (event, path)
            for event, path in events
            if path.startswith(start) and path.removeprefix(start).split("/")[0] in FOLDERS
        ]
        opened = {path for event, path in seen if event == "open"}
        listed = [path for event, path in seen if event in LISTINGS]
        logs = [
            each for each in opened if each.startswith(f"{start}audit") and os.path.isfile(each)
        ]
        names = sum(len(os.listdir(each)) for each in listed if os.path.isdir(each))
        return Cost(len(opened), sum(map(os.path.getsize, logs)), names)


def suspension(site: Site) -> Callable[[], None]:
    user_id = site.add_player()
    return lambda: Acts(site.store, Actor(site.ada.id)).suspend(user_id, "spam")


def deletion(site: Site) -> Callable[[], None]:
    user_id = site.add_player()
    return lambda: Acts(site.store, Actor(user_id)).delete_user(user_id)


def page(path: str) -> Callable[[Site], Callable[[], None]]:
    def request(site: Site) -> Callable[[], None]:
        def get() -> None:
            answer = site.browser.get(path)
            assert answer.status_code == 200
            assert answer.data  # reads the stream of the export

        return get

    return request


def new_client(site: Site) -> Callable[[], None]:
    ada_id = site.ada.id
    return lambda: site.store.clients.register("Chess", [], ada_id, at_most=100)


PAGES = {name: page(name) for name in ("/", "/developer", "/account/export")}
ACTS = {"suspension": suspension, "deletion": deletion}


@pytest.fixture
def site(app, adas_browser, ada, bob) -> Site:
    """The installation of this test."""
    return Site(app, adas_browser, ada, bob)


def costs(site: Site, acts: dict) -> dict[str, Cost]:
    return {name: site.cost(act) for name, act in acts.items()}


def test_cost_does_not_depend_on_number_of_players(site, subtests):
    acts = ACTS | PAGES
    site.grow(players=10, clients=3)
    few = costs(site, acts)
    site.grow(players=290)
    many = costs(site, acts)
    for name in acts:
        with subtests.test(name):
            assert many[name].files == few[name].files > 0
            assert many[name].names == few[name].names


def test_cost_does_not_depend_on_number_of_clients(site, subtests):
    """Pages show 100 rows, so there are more than that already."""
    acts = PAGES | ACTS
    site.grow(clients=150)
    few = costs(site, acts)
    site.grow(clients=150)
    many = costs(site, acts)
    for name in acts:
        with subtests.test(name):
            assert many[name].files == few[name].files > 0
            if name not in ("/", "/developer"):  # these list the names of all clients
                assert many[name].names == few[name].names


def test_adding_a_client_does_not_read_those_of_others(site):
    site.grow(players=1, clients=10)
    few = site.cost(new_client)
    site.grow(clients=290)
    many = site.cost(new_client)
    # The second addition reads the client that the first one has added.
    assert 0 < many.files <= few.files + 1
    assert many.names <= few.names + 1
