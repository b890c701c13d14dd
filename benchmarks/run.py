"""One run: both servers on installations of several sizes, and the baselines under both."""

import contextlib
import itertools
import statistics
from collections.abc import Callable

from benchmarks.measuring import Name, Track, run_rounds
from benchmarks.population import populate, show_progress
from benchmarks.report import SERVERS, Memory, Target, at_least, at_most
from benchmarks.servers import Server, serve_baseline, serve_identity
from benchmarks.workload import (
    ACTIVE,
    CALLS,
    PAGE_OPTIONS,
    PAGES,
    SHARE_OF_ACTIVE,
    Call,
    Installation,
    requests_of,
)

BARE, PLAIN = "bare WSGI", "plain Flask"
BASELINES = {BARE: "benchmarks.baselines:bare", PLAIN: "benchmarks.baselines:plain"}
# How many times as fast as plain Flask, both under gunicorn, by processor time.
TARGETS = {"users/info": 1.45, "whois": 1.2, "token": 0.9}
GRANIAN_TARGET = 0.55  # the same of users/info and a bare WSGI function, both under granian
MEMORY_TARGET = 60  # MiB
START_TARGET = 1.5  # seconds
STARTS = 3  # timed starts of each server


class Run:
    """The servers of a run, and what is measured on them; `running` stops them."""

    def __init__(self, folder: str, running: contextlib.ExitStack, first_calls: int) -> None:
        self.folder, self.running, self.first_calls = folder, running, first_calls
        self.players = ""  # of the first installation, for which the targets are
        self.tracks: dict[Name, Track] = {}
        self.servers: dict[tuple[str, str], Server] = {}  # by server name and players
        self.starts: dict[str, list[float]] = {}  # seconds, by server name
        self.memory: dict[tuple[str, str], list[float]] = {}  # MiB, as `servers`: warm, at the end

    def start(self, sizes: list[int]) -> None:
        """Start both servers on installations with these numbers of users, and the baselines."""
        for users in sizes:
            installation = Installation(f"{self.folder}/{users}", users, populate, show_progress)
            players = f"{users:,}"
            if not self.players:
                self.players = players
                self.starts = {each: time_starts(each, installation) for each in SERVERS}
                self._add_servers(players, installation, list(CALLS))
                self._add_pages(players, installation)
                self._add_baselines()
                continue
            self._add_servers(players, installation, list(TARGETS))
            players += f", {SHARE_OF_ACTIVE:.0%} of calls for {ACTIVE:,}"
            self._add_servers(players, installation.with_active_players(), ["users/info", "whois"])

    def _add_servers(self, players: str, installation: Installation, calls: list[str]) -> None:
        for name in SERVERS:
            server = self.running.enter_context(serve_identity(installation.settings, server=name))
            for call in calls:
                self._add_track(Name(name, call, players), server, requests_of(installation, call))
            self.servers[name, players] = server
            self.memory[name, players] = [server.worker_memory()]

    def _add_pages(self, players: str, installation: Installation) -> None:
        """Start servers for the pages, apart from those whose memory is measured."""
        settings = installation.settings | {"PROXIES": "1"}
        for name in SERVERS:
            server = self.running.enter_context(serve_identity(settings, server=name))
            for call in PAGES:
                requests, options = requests_of(installation, call), PAGE_OPTIONS[call]
                self._add_track(Name(name, call, players), server, requests, **options)

    def _add_baselines(self) -> None:
        request = Call("/").as_bytes()
        for name, (baseline, application) in itertools.product(SERVERS, BASELINES.items()):
            like = self.servers[name, self.players]
            server = self.running.enter_context(serve_baseline(like, application))
            self._add_track(Name(name, baseline), server, lambda count: [request] * count)

    def _add_track(
        self, name: Name, server: Server, make_requests: Callable, **options: int
    ) -> None:
        self.tracks[name] = track = Track(name, server, make_requests, **options)
        track.first_calls = min(track.first_calls, self.first_calls)
        track.warm_up()

    def measure(self, rounds: int, seconds: float) -> None:
        """Measure all tracks in turn, and then the memory."""
        run_rounds(sorted(self.tracks.values(), key=self._position), rounds, seconds)
        for key, server in self.servers.items():
            self.memory[key].append(server.worker_memory())

    def _position(self, track: Track) -> tuple[bool, str]:
        """Return a sort key by which tracks that a target compares are next to each other."""
        has_target = track.name.players in ("", self.players) and track.name.call not in PAGES
        return not has_target, track.name.server

    def compare(self, track: Track) -> dict[str, list[float]]:
        """Return how many times as fast as the baselines an API call is, by processor time."""
        if track.name.call in PAGES:
            return {}
        plain, bare = self.tracks["gunicorn", PLAIN, ""], self.tracks[track.name.server, BARE, ""]
        return {f"of {PLAIN} under gunicorn": track.speed(plain), f"of {BARE}": track.speed(bare)}

    def memory_rows(self) -> list[Memory]:
        """Return the memory of each server."""
        return [Memory(*key, *values) for key, values in self.memory.items()]

    def targets(self) -> list[Target]:
        """Return the targets, all for the first installation."""
        targets = []
        for call, least in TARGETS.items():
            track = self.tracks["gunicorn", call, self.players]
            speed = track.speed(self.tracks["gunicorn", PLAIN, ""])
            targets.append(at_least(f"gunicorn: {call} of {PLAIN}", speed, least))
        track = self.tracks["granian", "users/info", self.players]
        speed = track.speed(self.tracks["granian", BARE, ""])
        targets.append(at_least(f"granian: users/info of {BARE}", speed, GRANIAN_TARGET))
        for name in SERVERS:
            label, memory = f"{name}: memory of a worker", max(self.memory[name, self.players])
            targets.append(at_most(label, memory, MEMORY_TARGET, "MiB"))
        for name in SERVERS:
            label, start = f"{name}: first response", statistics.median(self.starts[name])
            targets.append(at_most(label, start, START_TARGET, "s"))
        return targets


def time_starts(server: str, installation: Installation) -> list[float]:
    """Return the seconds from the command to the first response, of several starts."""
    starts = []
    for _ in range(STARTS):
        with serve_identity(installation.settings, server=server) as running:
            starts.append(running.first_response)
    return starts
