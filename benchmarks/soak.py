"""Run a mixed load at half of the capacity for twenty minutes: `python -m benchmarks.soak`.

Two workers, and one connection for each player; players act at random as players and clients do.
Each minute prints latency, memory and open files. The exit status is 1 if memory grew by more than
a tenth since minute two, p99 doubled in the second half, a response was a 5xx, or a temporary file
is left.
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
from benchmarks.population import PASSWORD, REDIRECT_URI, joined, populate, show_progress
from benchmarks.servers import Server, serve_identity
from benchmarks.workload import Installation
from identity.http.stamps import MINIMUM_AGE
from storage.flat_files.check import check

PLAYERS = 128  # each with a connection and a session
WORKERS = 2
CAPACITY_SECONDS = 10  # of unlimited load, before the soak
WARM_UP = 2  # minutes: memory is compared with that at their end
MAX_GROWTH = 0.1  # of memory
MAX_SLOWDOWN = 1.0  # of p99, from the median minute of the first half to that of the second
KEEP_ALIVE = 4  # seconds; after five gunicorn closes a connection
SLOW_INTERVAL = 2  # seconds
BOUNDARY = "the-end-of-the-picture"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=20, metavar="N", help="default: 20")
    parser.add_argument("--users", type=int, default=1000, metavar="N", help="default: 1000")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        installation = Installation(folder, options.users, populate, show_progress)
        with serve_identity(installation.settings, WORKERS) as server:
            soak = Soak(installation, server)
            asyncio.run(soak.run(options.minutes))
        problems = soak.problems() + problems_on_disk(installation)
    for problem in problems:
        print(f"WRONG: {problem}")
    sys.exit(1 if problems else 0)


def problems_on_disk(installation: Installation) -> list[str]:
    """Return what is wrong with the files of a stopped server."""
    folders = installation.settings["DATA_DIR"], installation.settings["PICTURE_DIR"]
    codes = sum(len(files) for _, _, files in os.walk(f"{folders[0]}/codes"))
    print(f"Codes on the disk: {codes:,}, of this quarter of an hour and the one before.")
    temporary = [str(path) for folder in folders for path in Path(folder).rglob(".*")]
    wrong = [f"{each.place} {each.problem}" for each in check(*folders)]
    return [f"{path} was left behind" for path in temporary] + wrong


# -- results ------------------------------------------------------------------------------------


class Minute:
    """The requests of one minute, and the memory and open files of the server at its end."""

    def __init__(self) -> None:
        self.latencies: list[float] = []  # seconds, of each request
        self.statuses: Counter[int] = Counter()

    def end(self, server: Server) -> None:
        """Measure the server."""
        self.memory = server.worker_memory()  # MiB
        self.open_files = sum(len(os.listdir(each / "fd")) for each in server.workers())

    @property
    def failures(self) -> int:
        """The number of 5xx responses."""
        return sum(count for status, count in self.statuses.items() if status >= 500)

    def percentile(self, number: int) -> float:
        """Return a percentile of the latencies, in milliseconds."""
        return statistics.quantiles(self.latencies, n=100)[number - 1] * 1000

    def format_value(self) -> str:
        """Return a row of the table."""
        times = (
            f"{self.percentile(50):9.2f}{self.percentile(99):9.2f}{max(self.latencies) * 1000:9.0f}"
        )
        return (
            f"{len(self.latencies):9,}{times}{self.failures:6}{self.memory:8.1f}{self.open_files:6}"
        )


@dataclass
class Response:
    """A response, as text."""

    status: int
    head: str
    text: str  # latin-1: only ASCII is searched


# -- a player -----------------------------------------------------------------------------------


class Player:
    """A player with a connection and a session, who makes one request at a time."""

    def __init__(self, soak: "Soak", user_id: int) -> None:
        self.soak = soak
        self.name = soak.installation.storage.users.read(user_id).name
        self.cookie = ""
        self.due = math.inf  # when the current act should start, by time.perf_counter()
        self.last_used = -math.inf  # the connection, by time.perf_counter()
        self.writer: asyncio.StreamWriter | None = None

    async def send(self, request: str, *headers: str, body: bytes = b"") -> Response:
        """Send a request, such as "GET /". Return its response."""
        # Latency counts from when the request was due, so a stalled server is not measured less.
        started, self.due = min(self.due, time.perf_counter()), math.inf
        await self._connect()
        lines = [f"{request} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *headers]
        if self.cookie:
            lines.append(f"Cookie: {self.cookie}")
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        content = await self.reader.readexactly(int(CONTENT_LENGTH.search(head)[1]))
        self.last_used = time.perf_counter()
        status = int(head.split(b" ")[1])
        self.soak.minutes[-1].latencies.append(self.last_used - started)
        self.soak.minutes[-1].statuses[status] += 1
        return Response(status, head.decode("latin-1"), content.decode("latin-1"))

    async def _connect(self) -> None:
        if time.perf_counter() - self.last_used < KEEP_ALIVE:
            return
        self.close()
        port = self.soak.server.port
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    def close(self) -> None:
        """Close the connection."""
        if self.writer:
            self.writer.close()

    async def post(self, path: str, **fields: str) -> Response:
        """Send a form. Return the response."""
        form = "Content-Type: application/x-www-form-urlencoded"
        return await self.send(f"POST {path}", form, body=urlencode(fields).encode())

    async def look_up(self) -> None:
        """Request a public profile."""
        await self.send(f"GET /api/users/info?id={self.soak.idle_user_id()}")

    async def see_picture(self) -> None:
        """Request a picture that does not change."""
        user_id = self.soak.idle_user_id()
        await self.send(f"GET /pfp/medium/{user_id}-{joined(user_id)}.webp")

    async def grant(self) -> None:
        """Go through the grant; the player allowed the client before, or does now."""
        client, secret = self.soak.installation.client, self.soak.installation.secret
        query = {"response_type": "code", "client_id": client.id, "redirect_uri": REDIRECT_URI}
        response = await self.send(f"GET /oauth/authorize?{urlencode(query)}")
        if response.status == 200:
            signed = re.search(r'name="request" value="([^"]*)"', response.text)[1]
            form = {"request": html.unescape(signed), "decision": "allow"}
            await asyncio.sleep(MINIMUM_AGE / 1000)
            response = await self.post("/oauth/authorize", **form)
        code = re.search(r"[?&]code=([\w-]+)", response.head)[1]
        exchange = {"grant_type": "authorization_code", "code": code}
        credentials = {"client_id": client.id, "client_secret": secret}
        response = await self.post("/api/oauth/token", **exchange, **credentials)
        token = re.search('"access_token": "([^"]*)"', response.text)[1]
        for _ in range(20):
            await self.send("GET /api/oauth/whois", f"Authorization: Bearer {token}")

    async def withdraw(self) -> None:
        """Withdraw the consent."""
        client_id = self.soak.installation.client.id
        await self.post("/account/apps/withdraw", client_id=client_id)

    async def read_pages(self) -> None:
        """Open four pages."""
        for path in ("/", f"/users/{self.soak.idle_user_id()}", "/account", "/account/apps"):
            await self.send(f"GET {path}")

    async def play(self) -> None:
        """Send the heartbeat of the play page."""
        await self.post("/api/users/heartbeat")

    async def edit(self) -> None:
        """Change the bio."""
        await self.post("/account", bio=f"{random.random()}")

    async def sign_in(self) -> None:
        """Sign out and in again."""
        await self.post("/sign-out")
        response = await self.post("/sign-in", name=self.name, password=PASSWORD)
        self.cookie = re.search(r"(?im)^set-cookie: ([^;]+)", response.head)[1]

    async def mistype(self) -> None:
        """Try to sign in with an unknown name."""
        await self.post("/sign-in", name=f"{random.random()}", password="wrong")

    async def change_picture(self) -> None:
        """Upload another picture for one of the players: each may upload 30 in a while."""
        picture = io.BytesIO()
        Image.effect_noise((400, 300), 60).save(picture, "JPEG")
        head = 'Content-Disposition: form-data; name="picture"; filename="a.jpg"'
        body = f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + picture.getvalue()
        body += f"\r\n--{BOUNDARY}--\r\n".encode()
        form = f"Content-Type: multipart/form-data; boundary={BOUNDARY}"
        own, self.cookie = self.cookie, random.choice(self.soak.players).cookie
        await self.send("POST /account/picture", form, body=body)
        self.cookie = own


SHARES = {
    Player.look_up: 600,
    Player.see_picture: 150,
    Player.grant: 15,  # below the limit on the codes of a player
    Player.read_pages: 50,
    Player.play: 20,
    Player.edit: 20,
    Player.withdraw: 5,
}
# Half a second of processor time each: done by one additional player.
SLOW_SHARES = {
    Player.sign_in: 10,
    Player.change_picture: 10,
    Player.mistype: 1,  # below the rate limit of the address
}


# -- the load -----------------------------------------------------------------------------------


class Soak:
    """A load on a running server, and its results by minute."""

    def __init__(self, installation: Installation, server: Server) -> None:
        self.installation, self.server = installation, server
        self.minutes = [Minute()]  # the first is the measurement of capacity
        *self.players, self.slow_player = (Player(self, each + 1) for each in range(PLAYERS + 1))

    def idle_user_id(self) -> int:
        """Return the id of a random user who is not one of the players."""
        return random.randint(PLAYERS + 2, self.installation.users)

    async def run(self, minutes: int) -> None:
        """Measure the capacity of the server, then load it with half of that."""
        players = [*self.players, self.slow_player]
        for number, player in enumerate(players):
            show_progress(f"{number} of {len(players)} are signed in")
            await player.sign_in()
        self.minutes[0] = Minute()
        acts = await self.act(CAPACITY_SECONDS)
        requests = len(self.minutes[0].latencies)
        print(f"Capacity: {requests / CAPACITY_SECONDS:,.0f} requests/s. With half of that:\n")
        print("minute requests  p50, ms  p99, ms max, ms   5xx     MiB files open")
        for minute in range(1, minutes + 1):
            self.minutes.append(Minute())
            await self.act(60, interval=2 * PLAYERS * CAPACITY_SECONDS / acts)
            self.minutes[-1].end(self.server)
            print(f"{minute:6}{self.minutes[-1].format_value()}", flush=True)
        for player in players:
            player.close()

    async def act(self, seconds: float, interval: float = 0) -> int:
        """Let each player act every `interval` seconds on average. Return the number of acts."""
        end = time.perf_counter() + seconds
        acts = [self._act(each, SHARES, end, interval) for each in self.players]
        acts.append(self._act(self.slow_player, SLOW_SHARES, end, SLOW_INTERVAL))
        return sum(await asyncio.gather(*acts))

    async def _act(self, player: Player, shares: dict, end: float, interval: float) -> int:
        done, due = 0, time.perf_counter() + random.uniform(0, interval)
        while (now := time.perf_counter()) < end and due < end:
            await asyncio.sleep(max(0, due - now))
            player.due = due if interval else math.inf
            [act] = random.choices(list(shares), list(shares.values()))
            await act(player)
            done += 1
            due += random.uniform(0, 2 * interval)
        return done

    def problems(self) -> list[str]:
        """Return which limits the results exceed, and print a summary."""
        failures = sum(minute.failures for minute in self.minutes)
        _, *minutes = self.minutes
        warm, last = minutes[:WARM_UP][-1], minutes[-1]
        growth = last.memory / warm.memory - 1
        print(f"\nMemory since minute {min(WARM_UP, len(minutes))}: {growth:+.1%}.", end=" ")
        p99 = [minute.percentile(99) for minute in minutes]
        half = (len(p99) + 1) // 2
        slowdown = statistics.median(p99[-half:]) / statistics.median(p99[:half]) - 1
        print(f"p99 in the second half: {slowdown:+.0%}.", end=" ")
        print(
            f"{sum(len(each.latencies) for each in minutes):,} responses, {failures} of them 5xx."
        )
        problems = [f"{failures} responses were a 5xx"] if failures else []
        problems += [f"memory grew by {growth:.1%}"] if growth > MAX_GROWTH else []
        return problems + ([f"p99 grew by {slowdown:.0%}"] if slowdown > MAX_SLOWDOWN else [])


if __name__ == "__main__":
    main()
