"""Measure the pages that show players and those of administrators, with few players and with many.

`python -m benchmarks.pages` prints the processor time of one request in this process, without a
server, on flat files; with `--storage postgresql` it is that of the app alone. The games, and the
players who play now, are as many in both installations.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import secrets
import statistics
import tempfile
import time
from functools import partial

from benchmarks.database import create_database, fill_database, running_database
from benchmarks.growth import new_name, request
from benchmarks.population import populate, show_progress
from benchmarks.report import Target, save, targets_table
from benchmarks.workload import Call, Installation
from identity.site.statistics import last_numbers
from model.records import ADMINISTRATOR, Client, Grant, now_ms, sha256
from storage.flat_files.backend import FlatFiles

PLAYING = 200  # players, now
PLAYED = 5  # games of each of them, lately
MOST_GROWTH = 1.5  # times the processor time with few players
MOST = 50  # milliseconds of processor time
VIEWER, ADMINISTRATOR_ID = 7, 8  # the user ids of those who are signed in


class Site:
    """An installation with games, and players who play now."""

    def __init__(
        self, folder: str, players: int, counts: argparse.Namespace, database: str | None
    ) -> None:
        fill, url = partial(populate, pictures=False), "files"
        if database:
            url = create_database(database, f"players_{players}")
            fill = partial(fill_database, url)
        place = f"{folder}/{players}"
        self.installation = installation = Installation(place, players, fill, show_progress, url)
        self.app, self.store, self.players = installation.app, installation.storage, players
        self.games = [self._add_game(number) for number in range(counts.games)]
        self.playing = random.Random(players).sample(range(1, players + 1), PLAYING)
        self.cookie = installation.sign_in(VIEWER)
        self.cookies = {"player": self.cookie, "administrator": self._make_administrator()}
        self._fill_desk(counts)

    def _make_administrator(self) -> str:
        """Return the cookie of an administrator."""
        with self.store.users.edit(ADMINISTRATOR_ID) as user:
            user.mod_level = ADMINISTRATOR
        return self.installation.sign_in(ADMINISTRATOR_ID)

    def _fill_desk(self, counts: argparse.Namespace) -> None:
        """Add what administrators see: invitations, apps that were used, a long log."""
        for number in range(counts.invitations):
            self.store.invites.issue(7, uses=1000, note=f"Class {number}", used_by=[*range(1, 500)])
        for number, client_id in enumerate(self.games[:500]):
            with self.store.clients.edit(client_id) as client:
                client.used = now_ms() - number * 3_600_000
        line = {"time": now_ms(), "act": "user suspend", "by": 1, "user": 2, "days": 7}
        if isinstance(self.store, FlatFiles):  # as lines, not one after the other
            with open(self.store.audit.place, "ab") as log:
                log.write((json.dumps(line).encode() + b"\n") * counts.log)

    def _add_game(self, number: int) -> str:
        url = f"https://{new_name()}.example/"
        client = Client(secrets.token_hex(12), f"Game {number}", sha256("x"), [], 1, game_url=url)
        client.listed = True
        self.store.clients.add(client)
        return client.id

    def play(self) -> None:
        """Let the same players play again, as their heartbeats do."""
        games = itertools.cycle(self.games)
        for user_id, game in zip((VIEWER, *self.playing), games, strict=False):
            with self.store.users.edit(user_id) as user:
                user.last_heartbeat, user.last_game = now_ms(), game
                played = [game, *self.games[:PLAYED]]
                user.grants |= {each: Grant(each, ["userinfo"], 1, now_ms()) for each in played}
            self.store.playing.note(user_id, game)

    def sign_up(self) -> None:
        """Add a player."""
        self.store.users.register(new_name(), f"{new_name()}@example.org", "")

    def addresses(self) -> dict[str, str]:
        """Return an address of each page."""
        return {
            "home": "/",
            "players": "/players",
            "players, a page inside": f"/players?after=ada+{random.randrange(10**6)}",
            "players, a page back": f"/players?before=chlo%C3%A9+{random.randrange(10**6)}",
            "search": "/players?q=ada",
            "search without result": "/players?q=zz",
            "profile": f"/users/{random.randrange(1, self.players + 1)}",
            "profile of who plays": f"/users/{random.choice(self.playing)}",
            "game": f"/games/{random.choice(self.games)}",
        }

    def desk_addresses(self) -> dict[str, str]:
        """Return an address of each page of administrators."""
        return {
            "overview": "/admin",
            "players by name": "/admin/players",
            "players by a part": "/admin/players?name=da",
            "players by a part of nobody": "/admin/players?name=zzz",
            "players, newest": "/admin/players?list=newest",
            "players of the last day": "/admin/players?list=played",
            "suspended players": "/admin/players?list=suspended",
            "invitations": "/admin/invitations",
            "apps": "/admin/apps",
            "log": "/admin/log",
            "log of a player without lines": "/admin/log?player=77",
            "log of a day": "/admin/log?day=2020-01-01",
            "look": "/admin/look",
            "chat": "/admin/chat",
        }

    def cost(self, page: str, visitor: str) -> float:
        """Return the processor time of a request, in milliseconds."""
        address = (self.addresses() | self.desk_addresses())[page]
        call = Call(
            address, cookie="" if visitor == "guest" else self.cookies.get(visitor, self.cookie)
        )
        last_numbers.clear()  # they are counted anew
        if visitor == "after a sign-up":
            self.sign_up()
        started = time.thread_time()
        request(self.app, call)
        return (time.thread_time() - started) * 1000


def compare(sites: list[Site], rounds: int) -> list[Target]:
    """Measure each page of both sites in turn, for each of its visitors."""
    targets = []
    visitors = dict.fromkeys(sites[0].addresses(), ("guest", "player", "after a sign-up"))
    visitors |= dict.fromkeys(sites[0].desk_addresses(), ("administrator",))
    for page in visitors:
        for site in sites:
            site.play()
        for visitor in visitors[page]:
            label = f"{page}, {visitor}"
            show_progress(label)
            # The first round is a warm-up.
            costs = [[site.cost(page, visitor) for site in sites] for _ in range(rounds + 1)][1:]
            few, many = (statistics.median(column) for column in zip(*costs, strict=True))
            value = f"{many:.1f} ms, {many / few:.2f} times {few:.1f} ms"
            is_public = visitor != "administrator"  # a search by a part looks at each name
            reached = many <= MOST and (many <= MOST_GROWTH * few or not is_public)
            limit = f"{MOST} ms" + f", {MOST_GROWTH} times" * is_public
            targets.append(Target(label, value, limit, reached))
    return targets


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    for name, number in {
        "few": 1000,
        "players": 100_000,
        "games": 1000,
        "log": 1_000_000,
        "invitations": 2000,
        "rounds": 15,
    }.items():
        help_text = f"default: {number:,}"
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N", help=help_text)
    parser.add_argument("--storage", choices=("files", "postgresql"), default="files")
    parser.add_argument("--save", metavar="FILE", help="as of `python -m benchmarks`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pages-") as folder, contextlib.ExitStack() as running:
        database = None
        if options.storage == "postgresql":
            database = running.enter_context(running_database(os.sched_getaffinity(0)))
        sizes = (options.few, options.players)
        sites = [Site(folder, each, options, database) for each in sizes]
        targets = compare(sites, options.rounds)
    show_progress("")
    print(targets_table(targets))
    if options.save:
        save(options.save, f"pages on {options.storage}", targets=targets)


if __name__ == "__main__":
    main()
