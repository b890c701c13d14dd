"""Sixteen concurrent requests, against two workers."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import pytest
import requests
from waiting import PATIENCE, wait_until

from identity.clients import CLIENT_FAILURES
from identity.limits import ATTEMPTS_PER_NAME
from storage import Storage

from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer

pytestmark = pytest.mark.live
RACERS = 16
WRONG_PASSWORD = "correct horse battery stable"


def link_of(client: dict) -> str:
    """Return the client's authorization request."""
    query = {"response_type": "code", "client_id": client["client_id"], "redirect_uri": CALLBACK}
    return f"/oauth/authorize?{urlencode(query)}"


def post_at_once(address: str, path: str, fields: dict, times: int) -> list[tuple[int, bytes]]:
    """Send one form over several connections so that all requests complete at the same moment.

    The last byte of each request is held back, so that a worker thread waits for each of them.
    """
    body = urlencode(fields).encode()
    connections = [
        http.client.HTTPConnection(urlsplit(address).netloc, timeout=ANSWER_TIMEOUT)
        for _ in range(times)
    ]
    for connection in connections:
        connection.putrequest("POST", path)
        connection.putheader("Content-Type", "application/x-www-form-urlencoded")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:-1])
    for connection in connections:
        connection.send(body[-1:])
    answers = [connection.getresponse() for connection in connections]
    answers = [(answer.status, answer.read()) for answer in answers]
    for connection in connections:
        connection.close()
    return answers


def race(act, times: int = RACERS) -> list:
    """Call `act(number)` in `times` threads that start together; return the results."""
    start = threading.Barrier(times)

    def racer(number: int):
        start.wait(ANSWER_TIMEOUT)
        return act(number)

    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(racer, range(times)))


def until_not_busy(
    send: Callable[[], requests.Response], busy: tuple[int, ...] = (503,)
) -> requests.Response:
    """Repeat the request until its status is not one of `busy`; return the response.

    503 means that too many passwords or pictures are being processed.
    """
    deadline = time.monotonic() + PATIENCE
    while (answer := send()).status_code in busy:
        assert int(answer.headers["Retry-After"]) > 0
        assert time.monotonic() < deadline, "still busy"
        time.sleep(0.2)  # seconds: requests slow down the hashes and pictures in progress
    return answer


def exchange_at_once(
    server: RunningServer, form_browser: FormBrowser, client: dict, name: str
) -> list[tuple[int, bytes]]:
    """Exchange a new code of a player in sixteen requests; return status and body of each."""
    code = form_browser.allow(link_of(client), name).answer["code"]
    credentials = {each: client[each] for each in ("client_id", "client_secret")}
    exchange = {"grant_type": "authorization_code", "code": code, **credentials}
    return post_at_once(server.address, "/api/oauth/token", exchange, RACERS)


@pytest.mark.parametrize("players", [1, pytest.param(4, marks=pytest.mark.faults)])
def test_a_code_is_spent_once_by_sixteen_racing_exchanges_and_its_token_ends(
    server: RunningServer, form_browser: FormBrowser, client: dict, players: int
):
    """RFC 6749 4.1.2, RFC 9700 4.3.1: the fifteen replays revoke the token of the first request."""
    names = [f"exchanger-{players}-{number}" for number in range(players)]
    for number in range(30 * players):  # a player gets CODES_A_MINUTE
        name = names[number // 30]
        if number % 30 == 0:
            server.add_user(name)
            form_browser.session.cookies.clear()
        answers = exchange_at_once(server, form_browser, client, name)
        assert Counter(status for status, _ in answers) == {200: 1, 400: RACERS - 1}
        [won] = [json.loads(body) for status, body in answers if status == 200]
        headers = {"Authorization": f"Bearer {won['access_token']}"}
        who = form_browser.session.get(f"{server.address}/api/oauth/whois", headers=headers)
        assert who.status_code == 401


def test_racing_failed_client_authentications_are_counted_exactly(
    server: RunningServer, client: dict
):
    """The limit is a hundred per address, and a right secret is never answered with 429."""
    credentials = {"client_id": client["client_id"], "client_secret": "wrong"}
    exchange = {"grant_type": "authorization_code", "code": "unknown", **credentials}
    answers = post_at_once(server.address, "/api/oauth/token", exchange, CLIENT_FAILURES + 16)
    assert Counter(status for status, _ in answers) == {401: CLIENT_FAILURES, 429: 16}
    exchange["client_secret"] = client["client_secret"]
    [(status, _)] = post_at_once(server.address, "/api/oauth/token", exchange, 1)
    assert status == 400  # unknown code


@pytest.mark.load
def test_racing_wrong_passwords_are_counted_exactly(server: RunningServer):
    """Exactly ten concurrent attempts are checked."""
    server.add_user("grace")
    form = {"name": "grace", "password": WRONG_PASSWORD}

    def guess(_: int) -> int:
        def send() -> requests.Response:
            return requests.post(f"{server.address}/sign-in", form, timeout=ANSWER_TIMEOUT)

        return until_not_busy(send).status_code

    assert Counter(race(guess)) == {403: ATTEMPTS_PER_NAME, 429: RACERS - ATTEMPTS_PER_NAME}


@pytest.mark.load
def test_sixteen_racing_sign_ins_leave_sixteen_sessions_and_no_failure_counted(
    server: RunningServer, store: Storage
):
    user = server.add_user("linus")
    counted = attempts_counted(server)
    browsers = [FormBrowser(server.address) for _ in range(RACERS)]

    def sign_in(number: int) -> None:
        form = {"name": "linus", "password": PASSWORD}
        session = browsers[number].session
        address = f"{server.address}/sign-in"
        # A right attempt counts until it is released: above ten, the next one has to wait.
        until_not_busy(lambda: session.post(address, form, timeout=ANSWER_TIMEOUT), (503, 429))

    race(sign_in)
    assert len(store.users.read(user["id"]).sessions) == RACERS
    assert all("Hello, " in each.open("/").text for each in browsers)
    assert attempts_counted(server) == counted
    race(lambda number: browsers[number].press(browsers[number].open("/"), "Sign out"))
    assert store.users.read(user["id"]).sessions == []
    for each in browsers:
        each.close()


def attempts_counted(server: RunningServer) -> int:
    """Return the size of all attempt counts: wrong passwords, and new accounts per address."""
    files = (each for each in server.data_dir.glob("attempts/**/*") if each.is_file())
    return sum(file.stat().st_size for file in files)


def test_a_record_is_read_whole_while_it_is_edited(
    server: RunningServer, store: Storage, form_browser: FormBrowser, ada: dict
):
    bios = {"", "short", "long " * 200}

    def read() -> None:
        answer = form_browser.session.get(
            f"{server.address}/api/users/info?id={ada['id']}", timeout=ANSWER_TIMEOUT
        )
        assert answer.status_code == 200
        assert answer.json()["user"]["bio"] in bios

    with Background(lambda number: set_bio(store, ada["id"], sorted(bios)[number % 3])) as edits:
        for _ in range(300):
            read()
        wait_until(lambda: edits.count > 50 or edits.has_failed(), meanwhile=read)


def set_bio(store: Storage, user_id: int, bio: str) -> None:
    with store.users.edit(user_id) as user:
        user.bio = bio


class Background:
    """Calls `act(0)`, `act(1)` ... in a thread until the `with` block ends.

    `count` is the number of completed calls. The end of the block raises what `act` raised.
    """

    def __init__(self, act) -> None:
        self.count = 0
        self._act = act
        self._ended = threading.Event()
        self._threads = ThreadPoolExecutor(1)

    def __enter__(self) -> "Background":
        self._running = self._threads.submit(self._run)
        return self

    def _run(self) -> None:
        while not self._ended.is_set():
            self._act(self.count)
            self.count += 1

    def has_failed(self) -> bool:
        return self._running.done()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._threads.shutdown()
        self._running.result()
