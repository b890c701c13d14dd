"""Players, sign-ups and games that use two servers at once, and remember what they were told."""

import base64
import contextlib
import itertools
import json
import secrets
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlencode, urlsplit

import requests
from live.running import ANSWER_TIMEOUT, PASSWORD, RunningServer

from model.grant_records import AuthorizationCode
from model.records import Grant
from storage import Storage

SAVERS, PLAYERS = 4, 5  # threads that save, and the players of each
ISSUERS = 6  # players
CALLBACK = "https://game.example/callback"
OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}
PAUSE = 0.02  # seconds between two requests of one thread: the machine has other work


def id_in(cookie: str) -> int | None:
    """Return the user id in a session cookie, which is signed but not encrypted.

    None: the account was saved, and the session was not.
    """
    payload = cookie.removeprefix(".").partition(".")[0]
    content = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    return json.loads(zlib.decompress(content) if cookie.startswith(".") else content).get("user")


class Load:
    """Requests to two servers of one database, in threads, as long as a block runs."""

    def __init__(self, servers: list[RunningServer], store: Storage) -> None:
        """Add the players, who are there for every block."""
        self.servers, self.store = servers, store
        for each in servers:
            each.open_storage = lambda: store  # instead of a further connection at each call
        game, secret = store.clients.register("Game", [CALLBACK], None)
        self._client = {"client_id": game.id, "client_secret": secret}
        self._savers = [self._add_player(f"saver{number}") for number in range(SAVERS * PLAYERS)]
        self._issuers = [self._add_player(f"issuer{number}") for number in range(ISSUERS)]
        for user_id, _ in self._issuers:
            with store.users.edit(user_id) as user:
                user.grants[game.id] = Grant(f"grant-{user.id}", ["userinfo"], user.created)
        self._refresh_tokens = [self._start_family(user_id) for user_id, _ in self._issuers[:2]]
        self._numbers = itertools.count(1)

    def _add_player(self, name: str) -> tuple[int, str]:
        server = self.servers[0]
        return server.add_user(name)["id"], server.start_session(name)

    def _start_family(self, user_id: int) -> str:
        """Return the first refresh token of a player."""
        client, text = self._client["client_id"], secrets.token_urlsafe(32)
        code = AuthorizationCode(client, user_id, f"grant-{user_id}", ["userinfo"], None, None)
        code.family = secrets.token_urlsafe(12)
        self.store.codes.add(text, code)
        form = {"grant_type": "authorization_code", "code": text}
        return self.servers[0].refresh("", **self._client, **form).json()["refresh_token"]

    def __enter__(self) -> "Load":
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.slowest: Counter[str] = Counter()  # seconds
        self._measured_since = 0.0  # requests that were sent earlier are left out
        self.succeeded: dict[str, float] = {}  # when each kind of request last succeeded
        self.saved: dict[int, int] = {}  # the last number that was told to be saved, by user id
        self.signed_up: list[tuple[int | None, str]] = []  # ids and names
        self.accepted: Counter[str] = Counter()  # how often each code
        self._over = threading.Event()
        cookies = [cookie for _, cookie in self._issuers]
        work = [self._saver(self._savers[number::SAVERS]) for number in range(SAVERS)]
        work += [self._signer_up(), self._signer_up(), self._looker()]
        work += [self._issuer(cookies[::2]), self._issuer(cookies[1::2])]
        work += [self._refresher(number) for number in range(len(self._refresh_tokens))]
        self._racers, self._workers = ThreadPoolExecutor(8), ThreadPoolExecutor(len(work))
        self._work = [self._workers.submit(self._repeat, each) for each in work]
        return self

    def __exit__(self, *_: object) -> None:
        """End the requests. Raises what a thread raised."""
        self._over.set()
        for each in self._work:
            each.result(ANSWER_TIMEOUT)
        self._racers.shutdown()
        self._workers.shutdown()

    def _repeat(self, steps: Iterator[None]) -> None:
        while not self._over.is_set():
            next(steps)
            time.sleep(PAUSE)

    def send(self, kind: str, server: RunningServer, method: str, path: str, **more: object):
        """Send a request and note its status and its time; return the response."""
        headers = OWN_PAGE | more.pop("headers", {})
        started = time.monotonic()
        answer = requests.request(
            *(method, f"{server.address}{path}"),
            headers=headers,
            allow_redirects=False,
            timeout=ANSWER_TIMEOUT,
            **more,
        )
        if started >= self._measured_since:
            self.slowest[kind] = max(self.slowest[kind], time.monotonic() - started)
        self.statuses[kind, answer.status_code] += 1
        if answer.status_code < 400:
            self.succeeded[kind] = time.monotonic()
        return answer

    def measure_again(self) -> None:
        """Begin with `slowest` anew, without the requests that still run."""
        self._measured_since = time.monotonic()
        self.slowest.clear()

    # -- kinds of work: each step is one request, or one race ----------------------------------

    def _saver(self, players: list[tuple[int, str]]) -> Iterator[None]:
        """Save a profile with the next number, at both servers in turn.

        After a failure another player saves: a later save must not hide that an earlier was lost.
        """
        user_id, cookie = players.pop()
        for number in self._numbers:
            server = self.servers[number % 2]
            form, cookies = {"bio": str(number)}, {"identity_session": cookie}
            answer = self.send("save", server, "POST", "/account", data=form, cookies=cookies)
            if answer.status_code == 303:
                self.saved[user_id] = number
            elif user_id in self.saved and players:
                user_id, cookie = players.pop()
            yield

    def _signer_up(self) -> Iterator[None]:
        while True:
            number = next(self._numbers)
            name = f"new {number}x"
            form = {"name": name, "email": f"{number}@example.org", "password": PASSWORD}
            # Each address may sign up ten players.
            headers = {"X-Forwarded-For": f"10.1.{number // 250}.{number % 250}"}
            server = self.servers[number % 2]
            answer = self.send("sign-up", server, "POST", "/sign-up", data=form, headers=headers)
            if answer.status_code == 303 and "identity_session" in answer.cookies:
                self.signed_up.append((id_in(answer.cookies["identity_session"]), name))
            yield

    def _issuer(self, cookies: list[str]) -> Iterator[None]:
        """Get a code and let both servers exchange it at once; a player gets 60 a minute."""
        asked = {"response_type": "code", "client_id": self._client["client_id"]}
        for number, cookie in enumerate(itertools.cycle(cookies)):
            path = f"/oauth/authorize?{urlencode(asked)}"
            answer = self.send(
                "code", self.servers[number % 2], "GET", path, cookies={"identity_session": cookie}
            )
            answered = parse_qs(urlsplit(answer.headers.get("Location", "")).query)
            if "code" in answered:
                [code] = answered["code"]
                form = {"grant_type": "authorization_code", "code": code, **self._client}
                racing = [
                    self._racers.submit(
                        self.send, "token", each, "POST", "/api/oauth/token", data=form
                    )
                    for each in self.servers
                ]
                self.accepted[code] += sum(each.result().status_code == 200 for each in racing)
            time.sleep(0.5)  # 6 players, 2 threads: well below the limit
            yield

    def _refresher(self, number: int) -> Iterator[None]:
        """Use a refresh token, at both servers in turn; after a failure the same one again."""
        for server in itertools.cycle(self.servers):
            form = {"grant_type": "refresh_token", "refresh_token": self._refresh_tokens[number]}
            answer = self.send("refresh", server, "POST", "/oauth/token", data=self._client | form)
            if answer.status_code == 200:
                self._refresh_tokens[number] = answer.json()["refresh_token"]
            yield

    def _looker(self) -> Iterator[None]:
        for number in itertools.count():
            self.send("look-up", self.servers[number % 2], "GET", "/api/users/info?id=1")
            yield

    # -- what must hold afterwards -------------------------------------------------------------

    def lost(self) -> list[str]:
        """Return what was told to be saved and is not there."""
        lost = []
        for user_id, number in self.saved.items():
            if int(self.store.users.read(user_id).bio) < number:
                lost.append(f"save {number} of player {user_id}")
        for user_id, name in self.signed_up:
            user = self.store.users.find_by_login(name)
            if user is None or user_id not in (user.id, None):
                lost.append(f"sign-up of {name} as {user_id}")
        return lost

    def wait_for_success(self, *kinds: str) -> float:
        """Return in how many seconds all these kinds of requests have succeeded from now on."""
        started = time.monotonic()
        for kind in kinds:
            while self.succeeded.get(kind, 0) < started:
                assert time.monotonic() < started + ANSWER_TIMEOUT, (kind, self.statuses)
                time.sleep(0.02)
        return time.monotonic() - started


@contextlib.contextmanager
def two_servers(url: str, start: Callable) -> Iterator[list[RunningServer]]:
    """Run two servers, each with folders of its own, on the database at a URL."""
    settings = {"STORAGE": url, "SIGN_UP": "open", "SIGN_UPS_AN_HOUR": "100", "PROXIES": "1"}
    with start(**settings) as one, start(**settings) as other:
        yield [one, other]
