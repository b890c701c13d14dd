"""Measure the pages that show players, with few players and with many.

`python -m benchmarks.pages` prints the processor time of one request in this process, without a
server, on flat files; with `--storage postgresql` it is that of the app alone. The games, and the
players who play now, are as many in both installations.
"""

import argparse
import contextlib
import itertools
import os
import random
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

from benchmarks.database import create_database, populate_database, running_database
from benchmarks.growth import new_name, request
from benchmarks.population import populate, show_progress
from benchmarks.report import Target, save, targets_table
from benchmarks.workload import Call, Installation
from storage import Storage
from storage.records import Client, Grant, now_ms, sha256

PLAYING = 200  # players, now
PLAYED = 5  # games of each of them, lately
MOST_GROWTH = 1.5  # times the processor time with few players
MOST = 50  # milliseconds of processor time
VIEWER = 7  # the user id of the player who is signed in


class Site:
    """An installation with games, and players who play now."""

    def __init__(self, folder: str, players: int, games: int, database: str | None) -> None:
        fill, url = partial(populate, pictures=False), "files"
        if database:
            url = create_database(database, f"players_{players}")
            fill = partial(fill_database, url)
        place = f"{folder}/{players}"
        installation = Installation(place, players, fill, show_progress, url)
        self.app, self.store, self.players = installation.app, installation.storage, players
        self.games = [self._add_game(number) for number in range(games)]
        self.playing = random.Random(players).sample(range(1, players + 1), PLAYING)
        self.cookie = installation.sign_in(VIEWER)

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

    def cost(self, page: str, visitor: str) -> float:
        """Return the processor time of a request, in milliseconds."""
        call = Call(self.addresses()[page], cookie="" if visitor == "guest" else self.cookie)
        if visitor == "after a sign-up":
            self.sign_up()
        started = time.thread_time()
        request(self.app, call)
        return (time.thread_time() - started) * 1000


def fill_database(url: str, _: str, users: int, progress: Callable) -> tuple[Storage, Client, str]:
    """Add players to a database, as `Installation` fills a folder."""
    return populate_database(url, users, progress)


def compare(sites: list[Site], rounds: int) -> list[Target]:
    """Measure each page of both sites in turn: for a guest, for a player, and after a sign-up."""
    targets = []
    for page in sites[0].addresses():
        for site in sites:
            site.play()
        for visitor in ("guest", "player", "after a sign-up"):
            label = f"{page}, {visitor}"
            show_progress(label)
            # The first round is a warm-up.
            costs = [[site.cost(page, visitor) for site in sites] for _ in range(rounds + 1)][1:]
            few, many = (statistics.median(column) for column in zip(*costs, strict=True))
            value = f"{many:.1f} ms, {many / few:.2f} times {few:.1f} ms"
            reached = many <= MOST and many <= MOST_GROWTH * few
            targets.append(Target(label, value, f"{MOST} ms, {MOST_GROWTH} times", reached))
    return targets


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    for name, number in {"few": 1000, "players": 100_000, "games": 1000, "rounds": 15}.items():
        help_text = f"default: {number:,}"
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N", help=help_text)
    parser.add_argument("--storage", choices=("files", "postgresql"), default="files")
    parser.add_argument("--save", metavar="FILE", help="as of `python -m benchmarks`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pages-") as folder, contextlib.ExitStack() as running:
        database = None
        if options.storage == "postgresql":
            database = running.enter_context(running_database(os.sched_getaffinity(0)))
        counts = (options.few, options.players)
        sites = [Site(folder, count, options.games, database) for count in counts]
        targets = compare(sites, options.rounds)
    show_progress("")
    print(targets_table(targets))
    if options.save:
        save(options.save, f"pages on {options.storage}", targets=targets)


if __name__ == "__main__":
    main()
