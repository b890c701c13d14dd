"""Race this server against two servers for node that keep everything in memory.

One core for each server in turn, another one for the load: 16 connections exchange codes for tokens
and ask who the player is. Then the slowest answers are measured, alone and beside sign-ins.
"""

import contextlib
import itertools
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.database import is_installed
from benchmarks.measuring import Name, Track, run_rounds
from benchmarks.options import make_parser
from benchmarks.peers import DRIVERS, PLAYERS, Peer, install, running_peer
from benchmarks.population import populate, show_progress
from benchmarks.report import (
    Memory,
    Target,
    at_least,
    conditions,
    memory_table,
    rates_table,
    save,
    summarize,
    targets_table,
)
from benchmarks.servers import LOAD_CORE, Server, serve_identity
from benchmarks.tails import FILES, POSTGRESQL, Tails, tails_table
from benchmarks.workload import Installation, requests_of

# The call of a peer to which each call of this server is compared.
COUNTERPARTS = {"users/info": "userinfo", "whois": "userinfo", "token": "token"}
# How many times as fast as the better peer.
TARGETS = {
    "gunicorn": {"users/info": 1.0, "whois": 0.85, "token": 0.75},
    "granian": {"users/info": 5, "whois": 2, "token": 1.4},
}
WARM_UPS = 8  # times 1,000 requests: node compiles what runs often
KINDS = {"rate": "requests/s", "cost": "processor time"}


def main() -> None:
    """Run the command. The exit status is 1 if a response was not a 200."""
    options = make_parser("python -m benchmarks.peers", __doc__).parse_args()
    os.sched_setaffinity(0, LOAD_CORE)
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        contextlib.ExitStack() as running,
    ):
        race = Race(running)
        race.add_peers(Path(folder))
        race.add_ourselves(folder)
        race.measure(options.rounds, options.seconds)
        race.measure_tails(options.rounds, options.seconds)
    race.print_results(options.save)
    sys.exit(1 if race.failures() else 0)


class Race:
    """The servers of a race, and what is measured on them; `running` stops them."""

    def __init__(self, running: contextlib.ExitStack) -> None:
        self.running = running
        self.peers: dict[str, Peer] = {}
        self.servers: dict[str, Server] = {}
        self.tracks: dict[Name, Track] = {}
        self.memory: list[Memory] = []
        self.tails = Tails(running)
        self.versions = ""

    def add_peers(self, folder: Path) -> None:
        """Install and start the peers."""
        show_progress("npm install")
        self.versions = install(folder)
        for package in DRIVERS:
            peer = self.running.enter_context(running_peer(folder, package))
            self.peers[package] = peer
            self._add(package, "token", peer.server, peer.token_requests)
            self._add(package, "userinfo", peer.server, peer.userinfo_requests)

    def add_ourselves(self, folder: str) -> None:
        """Start this server under gunicorn and under granian."""
        installation = Installation(folder, PLAYERS, populate, show_progress)
        for name in TARGETS:
            server = self.running.enter_context(serve_identity(installation.settings, server=name))
            for call in COUNTERPARTS:
                self._add(name, call, server, requests_of(installation, call))

    def _add(self, name: str, call: str, server: Server, make_requests) -> None:
        track = Track(Name(name, call, f"{PLAYERS:,}"), server, make_requests)
        self.servers[name] = server
        self.tracks[track.name] = track
        track.warm_up(WARM_UPS)

    def measure(self, rounds: int, seconds: float) -> None:
        """Measure all tracks in turn, and the memory before and after."""
        warm = {name: server.worker_memory() for name, server in self.servers.items()}
        # Tracks that are compared are next to each other.
        tracks = sorted(self.tracks.values(), key=lambda track: track.name.call == "token")
        run_rounds(tracks, rounds, seconds)
        for name, server in self.servers.items():
            self.memory.append(Memory(name, f"{PLAYERS:,}", warm[name], server.worker_memory()))

    def measure_tails(self, rounds: int, seconds: float) -> None:
        """Measure the slowest answers of all servers, on PostgreSQL too if it is installed."""
        for name, peer in self.peers.items():
            self.tails.add(
                name, "memory", peer.server, peer.userinfo_requests, peer.sign_in_requests
            )
        self.tails.add_ourselves(FILES)
        if is_installed():
            self.tails.add_ourselves(POSTGRESQL)
        self.tails.measure(rounds, seconds)

    def better_peer(self, call: str, kind: str) -> Track:
        """Return the faster peer's track, by KINDS, that a call is compared to."""
        counterpart = COUNTERPARTS.get(call, call)
        peers = [self.tracks[name, counterpart, f"{PLAYERS:,}"] for name in DRIVERS]
        if kind == "cost":
            return min(peers, key=lambda track: track.median("cost"))
        return max(peers, key=lambda track: track.median("rate"))

    def compare(self, track: Track) -> dict[str, list[float]]:
        """Return how many times as fast as the better peer a track is."""
        return {
            f"of the better peer, by {label}": self._speed(track, kind)
            for kind, label in KINDS.items()
        }

    def _speed(self, track: Track, kind: str) -> list[float]:
        return track.speed(self.better_peer(track.name.call, kind), kind)

    def targets(self) -> list[Target]:
        """Return the targets."""
        targets = []
        for name, calls in TARGETS.items():
            for (call, least), (kind, label) in itertools.product(calls.items(), KINDS.items()):
                speed = self._speed(self.tracks[name, call, f"{PLAYERS:,}"], kind)
                targets.append(at_least(f"{name}: {call}, by {label}", speed, least))
        return targets

    def print_results(self, file: str | None) -> None:
        """Print the tables; save their content if a file is named."""
        rows, targets = summarize(self.tracks, self.compare), self.targets()
        print(f"{conditions()}, {self.versions}\n")
        tables = [rates_table(rows), memory_table(self.memory), targets_table(targets)]
        print("\n\n".join([*tables, tails_table(self.tails.rows())]))
        for status, count in self.failures().items():
            print(f"NOT 200: {count:,} times {status}")
        if file:
            content = {"rows": rows, "memory": self.memory, "targets": targets}
            save(file, "peers", **content, tails=self.tails.rows(), versions=self.versions)

    def failures(self) -> Counter[str]:
        """Return the responses that were no success, by status line."""
        results = [each for track in self.tracks.values() for each in track.all_results()]
        return sum((each.failures for each in results), self.tails.failures())


if __name__ == "__main__":
    main()
