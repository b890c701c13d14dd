"""Concurrent requests against two workers: no change is lost, made twice or seen half done."""

import http.client
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import pytest
import requests
from PIL import Image
from waiting import PATIENCE, wait_until

from identity.http.limits import ATTEMPTS_PER_NAME
from model.records import PICTURE_SIZES, User

from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, RunningServer

pytestmark = pytest.mark.live
RACERS = 16
WRONG_PASSWORD = "correct horse battery stable"
ALL_ROUNDS, ROUNDS = 50, 5  # with --all-faults, and in the default run
ALL_SECONDS, SECONDS = 30, 3
READERS = 4
FLAIRS = ("first", "second")


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


def post(browser: FormBrowser, path: str, **sent) -> requests.Response:
    return browser.session.post(f"{browser.server_address}{path}", timeout=ANSWER_TIMEOUT, **sent)


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


def test_code_is_spent_once_by_racing_exchanges(
    server: RunningServer, form_browser: FormBrowser, client: dict
):
    """RFC 6749 4.1.2, RFC 9700 4.3.1: the fifteen replays revoke the token of the first request."""
    server.add_user("exchanger")
    credentials = {each: client[each] for each in ("client_id", "client_secret")}
    for _ in range(30):  # a player gets CODES_A_MINUTE
        code = form_browser.allow(link_of(client), "exchanger").answer["code"]
        exchange = {"grant_type": "authorization_code", "code": code, **credentials}
        answers = post_at_once(server.address, "/api/oauth/token", exchange, RACERS)
        assert Counter(status for status, _ in answers) == {200: 1, 400: RACERS - 1}
        [won] = [json.loads(body) for status, body in answers if status == 200]
        assert server.whois(won["access_token"]).status_code == 401


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
def test_racing_renames_to_one_name_give_it_once(server: RunningServer, pytestconfig):
    browsers = signed_in(server, *(f"racer-{number}" for number in range(RACERS)))
    for number in range(ALL_ROUNDS if pytestconfig.option.all_faults else ROUNDS):
        form = {"name": f"Winner {number}"}
        answers = race(lambda racer, form=form: post(browsers[racer], "/account", data=form))
        assert Counter(each.status_code for each in answers) == {200: 1, 409: RACERS - 1}
    assert server.command("check") == []


def signed_in(server: RunningServer, *names: str) -> list[FormBrowser]:
    """Add the players with these names; return a signed-in browser for each name."""
    browsers = []
    for name in {*names}:
        server.add_user(name)
    for name in names:
        browsers.append(FormBrowser(server.address))
        browsers[-1].set_session_cookie(server.start_session(name))
    return browsers


def plain_picture(number: int) -> bytes:
    """Return a small picture: black, or white for an odd number."""
    output = io.BytesIO()
    Image.new("L", (80, 60), number % 2 * 255).save(output, "PNG")
    return output.getvalue()


def shade_of(content: bytes) -> int:
    """Return 0 for a black picture, and 1 for a white one."""
    return round(Image.open(io.BytesIO(content)).convert("L").resize((1, 1)).getpixel((0, 0)) / 255)


def long_bio(number: int) -> str:
    """Return a bio that starts with a number, which determines its length."""
    return "-".join([f"{number:06}"] * (1 + number % 100))


class BusyPlayer:
    """A player who sends heartbeats, edits the profile and changes the picture concurrently.

    Each writer must read its last value until it writes again.
    """

    def __init__(self, server: RunningServer) -> None:
        self.server, self.store = server, server.open_storage()
        self.browsers = signed_in(server, "busy", *["busy"] * 3)
        self.id = self.store.users.find_by_login("busy").id
        with self.store.users.edit(self.id) as user:
            user.flairs += FLAIRS

    def read(self) -> User:
        return self.store.users.read(self.id)

    def save(self, browser: int, path: str, **sent) -> User:
        """Send a form; check that the page confirms it, and return the record."""
        page = post(self.browsers[browser], path, **sent)
        assert (page.status_code, " saved." in page.text) == (200, True)
        return self.read()

    def send_heartbeat(self, number: int) -> None:
        """Send a heartbeat a minute after the last one, which is moved back."""
        with self.store.users.edit(self.id) as before:
            before.last_heartbeat -= 60_000
        assert post(self.browsers[0], "/api/users/heartbeat").status_code == 200
        after = self.read()
        passed = after.last_heartbeat - before.last_heartbeat
        assert after.play_ms == before.play_ms + passed > before.play_ms

    def write_bio(self, number: int) -> None:
        bio = long_bio(number)
        assert self.save(1, "/account", data={"bio": bio}).bio == bio

    def equip(self, number: int) -> None:
        flair = FLAIRS[number % 2]
        saved = self.save(2, "/account", data={"equippedFlair": flair})
        assert saved.equipped_flair == flair

    def change_picture(self, number: int) -> None:
        self.server.forget_attempts()  # more than a player may upload
        files = {"picture": ("me.png", plain_picture(number), "image/png")}
        saved = self.save(3, "/account/picture", files=files)
        small = self.server.picture_dir / "small" / saved.picture_file
        assert shade_of(small.read_bytes()) == number % 2

    def check_public_view(self, number: int) -> None:
        """Check that public data is complete, and a missing picture has a newer version."""
        user = self.fetch(f"/api/users/info?id={self.id}").json()["user"]
        assert user["bio"] in ("", long_bio(int(user["bio"][:6] or 0)))
        assert user["equippedFlair"] in ("none", *FLAIRS)
        large = self.fetch(f"/pfp/large/{self.id}-{user['pfpTimestamp']}.webp")
        if large.status_code == 404:
            assert self.read().pfp_timestamp > user["pfpTimestamp"]
        else:
            shade_of(large.content)  # Pillow raises if it is truncated

    def fetch(self, path: str) -> requests.Response:
        answer = requests.get(f"{self.server.address}{path}", timeout=ANSWER_TIMEOUT)
        assert answer.status_code in (200, 404)
        return answer

    def run_for(self, seconds: int) -> None:
        """Run all writers and readers for this time, and until each ran a few times."""
        writers = [self.send_heartbeat, self.write_bio, self.equip, self.change_picture]
        acts = [*writers, *[self.check_public_view] * READERS]
        counts, over, end = [0] * len(acts), threading.Event(), time.monotonic() + seconds

        def run(number: int) -> None:
            while not over.is_set():
                acts[number](counts[number])
                counts[number] += 1

        def is_enough() -> bool:
            is_over = time.monotonic() > end and min(counts) > SECONDS
            return is_over or any(each.done() for each in running)

        with ThreadPoolExecutor(len(acts)) as threads:
            running = [threads.submit(run, number) for number in range(len(acts))]
            try:
                wait_until(is_enough)
            finally:
                over.set()
        for each in running:
            each.result()


@pytest.mark.load
def test_concurrent_edits_uploads_and_heartbeats_lose_nothing(server: RunningServer, pytestconfig):
    """It runs for half a minute with --all-faults, and for a few seconds by default."""
    busy = BusyPlayer(server)
    busy.run_for(ALL_SECONDS if pytestconfig.option.all_faults else SECONDS)
    pictures = {*server.picture_dir.glob(f"*/*{busy.id}-*"), *server.picture_dir.glob("*/.*")}
    assert len(pictures) == len(PICTURE_SIZES)
    assert server.command("check") == []
