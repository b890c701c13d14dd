"""Sixteen concurrent requests or commands, against two workers."""

import http.client
import json
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import pytest
import requests
from waiting import PATIENCE, wait_until

from identity.clients import CLIENT_FAILURES
from identity.limits import ATTEMPTS_PER_NAME
from storage import Storage
from storage.records import PICTURE_SIZES

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


# A sitecustomize.py in which spending a code is a check and then a copy, instead of one rename.
NON_ATOMIC_RENAME = """
import os, shutil, time

def rename(source, target, real=os.rename):
    if not target.endswith(".spent"):
        return real(source, target)
    if os.path.exists(target):
        raise FileNotFoundError(target)
    time.sleep(0.01)
    shutil.copy(source, target)

os.rename = rename
"""


@pytest.fixture
def non_atomic_server(tmp_path, monkeypatch) -> Iterator[RunningServer]:
    """A server that checks whether a code is used and marks it in two separate steps."""
    (tmp_path / "sitecustomize.py").write_text(NON_ATOMIC_RENAME)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = RunningServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.mark.load
def test_non_atomic_code_use_is_detected(non_atomic_server: RunningServer):
    """Negative control."""
    client = non_atomic_server.add_client("Space Game", CALLBACK)
    form_browser = FormBrowser(non_atomic_server.address)
    with pytest.raises(AssertionError, match="200: "):
        test_a_code_is_spent_once_by_sixteen_racing_exchanges_and_its_token_ends(
            non_atomic_server, form_browser, client, players=4
        )
    form_browser.close()


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


@pytest.mark.load
def test_one_name_in_sixteen_spellings_makes_one_account(server: RunningServer):
    """`user add` with names that differ in case, width and Unicode composition."""
    name = "Ångström-2"
    wide = name.translate({code: code + 0xFEE0 for code in range(ord("0"), ord("z") + 1)})
    decomposed = unicodedata.normalize("NFD", name)
    spellings = [
        name,
        name.upper(),
        name.lower(),
        wide,
        wide.upper(),
        wide.lower(),
        decomposed,
        f" {name} ",
    ]
    commands = [
        server.start_command(
            *("user", "add", spellings[number % len(spellings)]),
            *("--email", f"racer-{number}@example.org", "--password-stdin"),
        )
        for number in range(RACERS)
    ]
    for command in commands:  # all of them wait for the password
        command.stdin.write(f"{PASSWORD}\n")
        command.stdin.flush()
    errors = [command.communicate(timeout=ANSWER_TIMEOUT)[1] for command in commands]
    assert Counter(command.returncode for command in commands) == {0: 1, 1: RACERS - 1}, errors
    assert sum("Another player has this name" in problem for problem in errors) == RACERS - 1
    created = [user for user in server.command("user", "list") if "racer-" in user["email"]]
    assert created == [server.command("user", "show", decomposed)]


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


@pytest.mark.load
def test_a_picture_is_read_whole_or_not_at_all_while_it_is_replaced(
    server: RunningServer, store: Storage, form_browser: FormBrowser
):
    """Temporary files are never served."""
    user = server.add_user("pictured")
    seen: Counter[int] = Counter()
    folder = server.picture_dir / "large"
    own_prefixes = f"{user['id']}-", f".{user['id']}-"

    def look() -> None:
        for name in [each.name for each in folder.iterdir() if each.name.startswith(own_prefixes)]:
            answer = form_browser.session.get(f"{server.address}/pfp/large/{name}")
            seen[answer.status_code] += 1
            if answer.status_code == 200:
                assert not name.startswith(".")
                assert is_whole(answer.content)

    def seen_enough() -> bool:
        return seen.total() >= 100 and seen.keys() == {200, 404} and replaced.count > 10

    with Background(lambda number: replace_picture(store, user["id"], number)) as replaced:
        wait_until(lambda: seen_enough() or replaced.has_failed(), meanwhile=look)


LARGE = 4 * 1024 * 1024  # bytes: large enough that a write takes time


def replace_picture(store: Storage, user_id: int, number: int) -> None:
    """Save a picture with an end marker."""
    images = dict.fromkeys(PICTURE_SIZES, b"small")
    images["large"] = bytes([number % 255]) * LARGE + b"end"
    store.pictures.save(user_id, images)


def is_whole(image: bytes) -> bool:
    generated = image.startswith(b"RIFF") and int.from_bytes(image[4:8], "little") + 8 == len(image)
    return generated or image == image[:1] * LARGE + b"end"


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
