"""What a request or an act reads does not depend on how much else is stored.

An audit hook counts the files that are opened, and the names in the folders that are listed, below
the folders of records and indexes. Names are counted apart: a page of all clients or games lists
their names, and reads the records that it shows.
"""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from identity.acts import accounts
from identity.acts.actors import Actor, Authority
from model.records import ADMINISTRATOR
from storage import open_storage

FOLDERS = ("users", "names", "emails", "deleted", "clients", "index", "audit", "audit.log")
LISTINGS = {"os.listdir", "os.scandir"}
PAGES = ("/", "/developer", "/account/export")
recorders: list[list[tuple[str, str]]] = []  # of event and path; one during an act


def record_event(event: str, args: tuple) -> None:
    """Note what is opened and listed; a hook cannot be removed."""
    if event in {"open", *LISTINGS} and isinstance(args[0], str):
        for each in recorders:
            each.append((event, args[0]))


sys.addaudithook(record_event)


class Cost(NamedTuple):
    """The number of files that an act opens, and of names that it lists."""

    files: int
    names: int


class Site:
    """An installation that grows, with Ada, an administrator who is signed in, and Bob."""

    def __init__(self, app, browser, ada, bob) -> None:
        self.app, self.browser, self.ada, self.bob = app, browser, ada, bob
        self.added = 0
        self.reopen()
        with self.store.users.edit(ada.id) as user:
            user.mod_level = ADMINISTRATOR

    def reopen(self) -> None:
        """Forget the records that are in memory."""
        settings = (self.app.config[each] for each in ("DATA_DIR", "PICTURE_DIR", "STORAGE"))
        self.store = self.app.extensions["storage"] = open_storage(*settings)

    def add_players(self, count: int) -> int:
        """Add players; return the id of the last."""
        for _ in range(count):
            self.added += 1
            name, email = f"Visitor {self.added}", f"p{self.added}@example.org"
            user = self.store.users.register(name, email, "")
        return user.id

    def add_clients(self, count: int) -> None:
        """Add clients of Bob with listed games."""
        for _ in range(count):
            self.added += 1
            game = {"game_url": f"https://game{self.added}.example/play", "listed": True}
            self.store.clients.register(f"Game {self.added}", [], self.bob.id, **game)

    def costs(self) -> dict[str, Cost]:
        """Return the cost of each page, and of acts on and of players who were just added."""
        spammer, leaver, owner = (self.add_players(1) for _ in range(3))
        acts = {path: lambda path=path: self.read_page(path) for path in PAGES}
        acts["suspension"] = lambda: accounts.suspend(
            Authority(self.store, Actor(self.ada.id)), spammer, "spam"
        )
        acts["deletion"] = lambda: accounts.delete_user(
            Authority(self.store, Actor(leaver)), leaver
        )
        acts["registration"] = lambda: self.add_and_delete_client(owner)
        return {name: self.cost(act) for name, act in acts.items()}

    def add_and_delete_client(self, owner: int) -> None:
        client, _ = self.store.clients.register("Go", [], owner, at_most=100)
        self.store.clients.delete(client.id)

    def read_page(self, path: str) -> None:
        answer = self.browser.get(path)
        assert answer.status_code == 200
        assert answer.data  # reads the stream of the export

    def cost(self, act: Callable[[], object]) -> Cost:
        """Return what an act costs if no record is in memory."""
        self.reopen()
        return self.cost_now(act)

    def cost_now(self, act: Callable[[], object]) -> Cost:
        """Return what an act costs with what is in memory."""
        events: list[tuple[str, str]] = []
        recorders.append(events)
        try:
            act()
        finally:
            recorders.clear()
        start = f"{self.app.config['DATA_DIR']}/"
        seen = [
            (event, path)
            for event, path in events
            if path.startswith(start) and path.removeprefix(start).split("/")[0] in FOLDERS
        ]
        listed = [path for event, path in seen if event in LISTINGS and os.path.isdir(path)]
        opened = {path for event, path in seen if event == "open"}
        return Cost(len(opened), sum(len(os.listdir(each)) for each in listed))


@pytest.fixture
def site(app, adas_browser, ada, bob) -> Site:
    return Site(app, adas_browser, ada, bob)


def test_cost_is_independent_of_players_and_clients(site, subtests):
    """Pages show 100 rows, so there are more clients than that already."""
    site.add_players(10)
    site.add_clients(150)
    few = site.costs()
    site.add_players(90)
    site.add_clients(150)
    for name, cost in site.costs().items():
        with subtests.test(name):
            assert cost.files == few[name].files > 0
            if name not in ("/", "/developer"):  # these list the names of all clients
                assert cost.names == few[name].names


def test_page_of_players_lists_no_names_after_a_sign_up(site):
    """It reads the new lines of a log, and the players that it shows."""
    users = site.store.users
    for count in (10, 90):
        site.reopen()  # another process, which adds the players
        site.add_players(count)
        users.by_name("")  # lists all names once
        site.add_players(1)
        assert len(users.by_name("visitor", "visitor 1", 5)) == len(users.newest(5)) == 5
        page = site.cost_now(lambda: users.by_name("visitor", "visitor 1", 5))
        assert page == Cost(files=5, names=0)
        # The newest: the names of two days at most, and of the players who joined on the last.
        newest, joined = site.cost_now(lambda: users.newest(5)), len(list(users.ids()))
        assert newest.files == 5 and newest.names <= joined + 2
