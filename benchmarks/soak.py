"""A mixed load at half of what the server can do, for twenty minutes: `python -m benchmarks.soak`.

Two workers, and as many players as connections, who do everything that players and programs do, in
shares. What grows shows: memory, open files, times, and what is left on the disk. Exit status 1
where memory grew by more than a tenth since minute two, p99 was twice as long in the second half,
an answer was a 5xx, or a file is left.
"""

import argparse
import asyncio
import html
import io
import math
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

from benchmarks.load import CONTENT_LENGTH
from benchmarks.population import PASSWORD, REDIRECT_URI, came, show_progress
from benchmarks.servers import Server, serve_identity
from benchmarks.workload import Installation
from storage.flat_files.check import check

PLAYERS = 32  # each with a connection and a session
WORKERS = 2
CAPACITY_SECONDS = 10  # as fast as it goes, before the soak
SETTLED = 2  # minutes: from then on memory may not grow
GROWTH = 0.1  # of memory
SLOWDOWN = 1.0  # of p99, from the median minute of the first half to that of the second
KEPT_ALIVE = 4  # seconds; after five gunicorn closes a connection
SLOW_INTERVAL = 2  # seconds
BOUNDARY = "the-end-of-the-picture"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=20, metavar="N", help="default: 20")
    parser.add_argument("--users", type=int, default=1000, metavar="N", help="default: 1000")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        installation = Installation(folder, options.users, show_progress)
        with serve_identity(installation.settings, WORKERS) as server:
            soak = Soak(installation, server)
            asyncio.run(soak.run(options.minutes))
        problems = soak.problems() + problems_on_disk(installation)
    for problem in problems:
        print(f"WRONG: {problem}")
    sys.exit(1 if problems else 0)


def problems_on_disk(installation: Installation) -> list[str]:
    """What the server left behind, once it was stopped."""
    folders = installation.settings["DATA_DIR"], installation.settings["PICTURE_DIR"]
    codes = sum(len(files) for _, _, files in os.walk(f"{folders[0]}/codes"))
    print(f"Codes on the disk after it: {codes:,}, of this quarter of an hour and the one before.")
    temporary = [str(path) for folder in folders for path in Path(folder).rglob(".*")]
    wrong = [f"{each.place} {each.problem}" for each in check(*folders)]
    return [f"{path} was left behind" for path in temporary] + wrong


# -- what happened ------------------------------------------------------------------------------


class Minute:
    """What happened in one minute, and how the server looked at its end."""

    def __init__(self) -> None:
        self.waits: list[float] = []  # seconds, of each request
        self.statuses: Counter[int] = Counter()

    def end(self, server: Server) -> None:
        """Look at the server."""
        self.memory = server.worker_memory()  # MiB
        self.open_files = sum(len(os.listdir(each / "fd")) for each in server.workers())

    @property
    def failures(self) -> int:
        """How many answers were the server's fault."""
        return sum(count for status, count in self.statuses.items() if status >= 500)

    def percentile(self, number: int) -> float:
        """Of the times of the answers, in milliseconds."""
        return statistics.quantiles(self.waits, n=100)[number - 1] * 1000

    def format_value(self) -> str:
        """A line of the table."""
        times = f"{self.percentile(50):9.2f}{self.percentile(99):9.2f}{max(self.waits) * 1000:9.0f}"
        return f"{len(self.waits):9,}{times}{self.failures:6}{self.memory:8.1f}{self.open_files:6}"


@dataclass
class Answer:
    """What came back."""

    status: int
    head: str
    text: str  # latin-1: only ASCII is looked for


# -- a player -----------------------------------------------------------------------------------


class Player:
    """Somebody with a connection and a session, who does one thing after another."""

    def __init__(self, soak: "Soak", user_id: int) -> None:
        self.soak = soak
        self.name = soak.installation.storage.read_user(user_id).name
        self.cookie = ""
        self.due = math.inf  # by time.perf_counter(): when what is done now was to begin
        self.used = -math.inf
        self.writer: asyncio.StreamWriter | None = None

    async def send(self, request: str, *headers: str, body: bytes = b"") -> Answer:
        """One request, "GET /", and its answer."""
        # From when it was due: a server that stalls makes nobody ask less.
        started, self.due = min(self.due, time.perf_counter()), math.inf
        await self._connect()
        lines = [f"{request} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *headers]
        if self.cookie:
            lines.append(f"Cookie: {self.cookie}")
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        content = await self.reader.readexactly(int(CONTENT_LENGTH.search(head)[1]))
        self.used = time.perf_counter()
        status = int(head.split(b" ")[1])
        self.soak.minutes[-1].waits.append(self.used - started)
        self.soak.minutes[-1].statuses[status] += 1
        return Answer(status, head.decode("latin-1"), content.decode("latin-1"))

    async def _connect(self) -> None:
        if time.perf_counter() - self.used < KEPT_ALIVE:
            return
        self.close()
        port = self.soak.server.port
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    def close(self) -> None:
        """Close the connection."""
        if self.writer:
            self.writer.close()

    async def post(self, path: str, **fields: str) -> Answer:
        """Send a form."""
        form = "Content-Type: application/x-www-form-urlencoded"
        return await self.send(f"POST {path}", form, body=urlencode(fields).encode())

    async def look_up(self) -> None:
        """Somebody's public profile."""
        await self.send(f"GET /api/users/info?id={self.soak.anybody()}")

    async def see_picture(self) -> None:
        """A picture that nobody changes here."""
        user_id = self.soak.anybody()
        await self.send(f"GET /pfp/medium/{user_id}-{came(user_id)}.webp")

    async def grant(self) -> None:
        """A program asks who this is; the player allowed that before, or does now."""
        client, secret = self.soak.installation.client, self.soak.installation.secret
        asked = {"response_type": "code", "client_id": client.id, "redirect_uri": REDIRECT_URI}
        answer = await self.send(f"GET /oauth/authorize?{urlencode(asked)}")
        if answer.status == 200:
            signed = re.search(r'name="request" value="([^"]*)"', answer.text)[1]
            shown = {"request": html.unescape(signed), "decision": "allow"}
            answer = await self.post("/oauth/authorize", **shown)
        code = re.search(r"[?&]code=([\w-]+)", answer.head)[1]
        exchange = {"grant_type": "authorization_code", "code": code}
        credentials = {"client_id": client.id, "client_secret": secret}
        answer = await self.post("/api/oauth/token", **exchange, **credentials)
        token = re.search('"access_token": "([^"]*)"', answer.text)[1]
        for _ in range(3):
            await self.send("GET /api/oauth/whois", f"Authorization: Bearer {token}")

    async def withdraw(self) -> None:
        """Take back what the program was allowed."""
        client_id = self.soak.installation.client.id
        await self.post("/account/apps/withdraw", client_id=client_id)

    async def read_pages(self) -> None:
        """The pages that a player sees."""
        for path in ("/", f"/users/{self.soak.anybody()}", "/account", "/account/apps"):
            await self.send(f"GET {path}")

    async def play(self) -> None:
        """What the page of a game sends each minute."""
        await self.post("/api/users/heartbeat")

    async def edit(self) -> None:
        """Another bio."""
        await self.post("/account", bio=f"{random.random()}")

    async def sign_in(self) -> None:
        """Sign out and in again."""
        await self.post("/sign-out")
        answer = await self.post("/sign-in", name=self.name, password=PASSWORD)
        self.cookie = re.search(r"(?im)^set-cookie: ([^;]+)", answer.head)[1]

    async def mistype(self) -> None:
        """A wrong password, for a name that nobody has."""
        await self.post("/sign-in", name=f"{random.random()}", password="wrong")

    async def change_picture(self) -> None:
        """Upload another picture."""
        picture = io.BytesIO()
        Image.effect_noise((400, 300), 60).save(picture, "JPEG")
        head = 'Content-Disposition: form-data; name="picture"; filename="a.jpg"'
        body = f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + picture.getvalue()
        body += f"\r\n--{BOUNDARY}--\r\n".encode()
        form = f"Content-Type: multipart/form-data; boundary={BOUNDARY}"
        await self.send("POST /account/picture", form, body=body)


SHARES = {
    Player.look_up: 600,
    Player.see_picture: 150,
    Player.grant: 100,
    Player.read_pages: 50,
    Player.play: 20,
    Player.edit: 20,
    Player.withdraw: 5,
}
# These cost half a second of a processor each, and are done by one player more.
SLOW_SHARES = {
    Player.sign_in: 10,
    Player.change_picture: 10,
    Player.mistype: 1,  # a hundred in half an hour would be too many
}


# -- the load -----------------------------------------------------------------------------------


class Soak:
    """A load on a running server, and what happened each minute."""

    def __init__(self, installation: Installation, server: Server) -> None:
        self.installation, self.server = installation, server
        self.minutes = [Minute()]  # the first is before the soak
        *self.players, self.slow_player = (Player(self, each + 1) for each in range(PLAYERS + 1))

    def anybody(self) -> int:
        """The id of one of those who do nothing."""
        return random.randint(PLAYERS + 2, self.installation.users)

    async def run(self, minutes: int) -> None:
        """Measure what the server can do, and go on at half of that."""
        everybody = [*self.players, self.slow_player]
        for number, player in enumerate(everybody):
            show_progress(f"{number} of {len(everybody)} are signed in")
            await player.sign_in()
        self.minutes[0] = Minute()
        acts = await self.act(CAPACITY_SECONDS)
        requests = len(self.minutes[0].waits)
        print(f"It can do {requests / CAPACITY_SECONDS:,.0f} requests a second. At half of that:\n")
        print("minute requests  p50, ms  p99, ms max, ms   5xx     MiB files open")
        for minute in range(1, minutes + 1):
            self.minutes.append(Minute())
            await self.act(60, interval=2 * PLAYERS * CAPACITY_SECONDS / acts)
            self.minutes[-1].end(self.server)
            print(f"{minute:6}{self.minutes[-1].format_value()}", flush=True)
        for player in everybody:
            player.close()

    async def act(self, seconds: float, interval: float = 0) -> int:
        """Everybody does something every `interval` seconds on average; returns how often."""
        end = time.perf_counter() + seconds
        acts = [self._act(each, SHARES, end, interval) for each in self.players]
        acts.append(self._act(self.slow_player, SLOW_SHARES, end, SLOW_INTERVAL))
        return sum(await asyncio.gather(*acts))

    async def _act(self, player: Player, shares: dict, end: float, interval: float) -> int:
        done, due = 0, time.perf_counter() + random.uniform(0, interval)
        while (now := time.perf_counter()) < end and due < end:
            await asyncio.sleep(max(0, due - now))
            player.due = due if interval else math.inf
            [what] = random.choices(list(shares), list(shares.values()))
            await what(player)
            done += 1
            due += random.uniform(0, 2 * interval)
        return done

    def problems(self) -> list[str]:
        """What the minutes tell."""
        failures = sum(minute.failures for minute in self.minutes)
        _, *minutes = self.minutes
        settled, last = minutes[:SETTLED][-1], minutes[-1]
        grown = last.memory / settled.memory - 1
        print(f"\nMemory since minute {min(SETTLED, len(minutes))}: {grown:+.1%}.", end=" ")
        p99 = [minute.percentile(99) for minute in minutes]
        half = (len(p99) + 1) // 2
        slowed = statistics.median(p99[-half:]) / statistics.median(p99[:half]) - 1
        print(f"p99 in the second half: {slowed:+.0%}.", end=" ")
        print(f"{sum(len(each.waits) for each in minutes):,} answers, {failures} of them a 5xx.")
        problems = [f"{failures} answers were a 5xx"] if failures else []
        problems += [f"memory grew by {grown:.1%}"] if grown > GROWTH else []
        return problems + ([f"p99 grew by {slowed:.0%}"] if slowed > SLOWDOWN else [])


if __name__ == "__main__":
    main()
