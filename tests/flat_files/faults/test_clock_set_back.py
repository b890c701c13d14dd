"""A server whose clock is set back by five seconds or by an hour.

That happens if the clock was ahead and is corrected. In all processes of the server `time.time`
and `time.time_ns` return the test's time; the monotonic clock never steps. (libfaketime 0.9.10
would change it for C code as well, but then Python's `time.sleep` fails.)
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from customized import CHEAP_HASH, CHEAP_PASSWORDS, customize
from live.form_browser import FormBrowser
from live.running import ANSWER_TIMEOUT, RunningServer
from live.test_kill import CALLBACK, link
from test_long_races import plain_picture

from identity.limits import ATTEMPTS_PER_NAME
from storage.contract import ATTEMPTS_WINDOW
from storage.records import CLOCK_TOLERANCE, User

pytestmark = pytest.mark.faults

SECONDS, HOUR = 5, 3600
CLOCK = """
import os, time

def time_ns():
    with open(os.environ["CLOCK"]) as file:
        return int(file.read()) * 10**9

time.time, time.time_ns = lambda: time_ns() / 10**9, time_ns

import identity.stamps
identity.stamps.MINIMUM_AGE = 0  # no page would ever be a second old
"""
STEPS = pytest.mark.parametrize("step", [SECONDS, HOUR], ids=["5 seconds", "1 hour"])


class Clock:
    """The server's clock, in whole seconds: stopped except for its steps."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "now"
        # The middle of a time window of counted attempts.
        window = ATTEMPTS_WINDOW
        self._start = self.now = int(time.time()) // window * window + window // 2
        self.step(0)

    def step(self, seconds: int) -> None:
        self.now += seconds
        new = self.file.with_name("new")
        new.write_text(str(self.now))
        new.replace(self.file)

    def reset(self) -> None:
        self.step(self._start - self.now)

    def now_ms(self) -> int:
        return self.now * 1000


@pytest.fixture(scope="module")
def module_clock(tmp_path_factory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def clock(module_clock) -> Clock:
    module_clock.reset()
    return module_clock


@pytest.fixture(scope="module")
def server(tmp_path_factory, module_clock) -> Iterator[RunningServer]:
    """A server with this clock."""
    folder = tmp_path_factory.mktemp("server")
    server = RunningServer(folder)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NO_PROXY", "127.0.0.1")
        environment.setenv("CLOCK", str(module_clock.file))
        customize(environment, folder, CLOCK + CHEAP_PASSWORDS)
        server.start()
        yield server
        server.stop()


class Player(FormBrowser):
    """A new player in a form browser."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__(server.address)
        self.store = server.open_storage()
        name = f"ada-{os.urandom(4).hex()}"
        self.user = self.store.users.register(name, f"{name}@example.org", CHEAP_HASH)

    def read(self) -> User:
        return self.store.users.read(self.user.id)

    def is_signed_in(self) -> bool:
        return "Hello, " in self.open("/").text

    def post(self, path: str, **sent) -> requests.Response:
        address = f"{self.server_address}{path}"
        return self.session.post(address, timeout=ANSWER_TIMEOUT, allow_redirects=False, **sent)


@pytest.fixture
def ada(server, clock) -> Iterator[Player]:
    ada = Player(server)
    yield ada
    ada.close()


class Game:
    """A registered client and its requests."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.client, self.secret = server.open_storage().clients.register("Chess", [CALLBACK], None)

    def code(self, player: Player) -> str:
        return player.allow(link(self.client), player.user.name).answer["code"]

    def exchange(self, code: str) -> requests.Response:
        return self.server.exchange_code(code, self.client.id, self.secret)

    def token(self, player: Player) -> str:
        return self.exchange(self.code(player)).json()["access_token"]

    def whois(self, token: str) -> int:
        """Return the status of whois."""
        return self.server.whois(token).status_code


@pytest.fixture
def game(server) -> Game:
    return Game(server)


@STEPS
def test_token_from_the_future_is_refused_until_its_time(clock, ada, game, step):
    """Else it would be valid for an hour longer. Some seconds are those of another machine."""
    token = game.token(ada)
    clock.step(-step)
    assert game.whois(token) == (200 if step <= CLOCK_TOLERANCE else 401)
    if not ada.is_signed_in():
        ada.sign_in(ada.user.name)
    assert game.whois(game.token(ada)) == 200
    clock.step(step)
    assert game.whois(token) == 200


@STEPS
def test_session_from_the_future_is_signed_out_until_its_time(clock, ada, step):
    """A cookie from before the step back stays valid."""
    ada.sign_in(ada.user.name)
    clock.step(step)
    assert ada.is_signed_in()
    clock.step(-step)
    assert ada.is_signed_in()
    clock.step(-step)
    assert ada.is_signed_in() == (2 * step <= CLOCK_TOLERANCE)
    clock.step(step)
    assert ada.is_signed_in()


def test_code_survives_a_step_of_seconds_but_not_of_an_hour(clock, ada, game):
    """A code is valid within a minute of its issue in both directions, not for an hour."""
    codes = [game.code(ada) for _ in range(2)]
    clock.step(-SECONDS)
    assert game.exchange(codes[0]).status_code == 200
    clock.step(SECONDS - HOUR)
    assert game.exchange(codes[1]).status_code == 400


@STEPS
def test_used_code_stays_used(clock, ada, game, step):
    code = game.code(ada)
    assert game.exchange(code).status_code == 200
    clock.step(-step)
    answer = game.exchange(code)
    assert (answer.status_code, "used before" in answer.text) == (400, True)


@STEPS
def test_new_picture_has_a_later_timestamp(clock, ada, step):
    def change_picture(number: int) -> int:
        if not ada.is_signed_in():
            ada.sign_in(ada.user.name)
        files = {"picture": ("me.png", plain_picture(number), "image/png")}
        assert ada.post("/account/picture", files=files).headers["Location"] == "/account"
        return ada.read().pfp_timestamp

    before = change_picture(1)
    clock.step(-step)
    assert change_picture(2) > before


def test_attempt_counts_survive_a_step_of_seconds_but_not_of_an_hour(clock, ada):
    """Nobody is locked out for longer; an attacker gets at most one more window."""

    def attempt() -> int:
        form = {"name": ada.user.name, "password": "a wrong password"}
        return ada.post("/sign-in", data=form).status_code

    assert {attempt() for _ in range(ATTEMPTS_PER_NAME)} == {403}
    assert attempt() == 429
    clock.step(-SECONDS)
    assert attempt() == 429
    clock.step(SECONDS - HOUR)
    assert attempt() == 403


@STEPS
def test_play_time_never_decreases_and_continues_to_be_counted(clock, ada, step):
    """The heartbeat after a long step starts a new interval, one after a short step waits."""
    clock.step(-step)
    ada.sign_in(ada.user.name)
    clock.step(step)

    def send_heartbeat() -> User:
        assert ada.post("/api/users/heartbeat").status_code == 200
        return ada.read()

    send_heartbeat()
    clock.step(60)
    before = send_heartbeat()
    clock.step(-step)
    after = send_heartbeat()
    assert after.play_ms == before.play_ms
    is_short = step <= CLOCK_TOLERANCE
    assert after.last_heartbeat == (before.last_heartbeat if is_short else clock.now_ms())
    clock.step(60)
    counted = clock.now_ms() - after.last_heartbeat
    assert send_heartbeat().play_ms == before.play_ms + counted


@STEPS
def test_sign_in_link_from_the_future_is_refused_until_its_time(clock, server, ada, step):
    def refused(link: str) -> bool:
        page = requests.get(link, timeout=ANSWER_TIMEOUT)
        assert page.status_code == 200
        return "recognise this link" in page.text

    links = [server.command_output("user", "sign-in-link", ada.user.name)]
    clock.step(-step)
    links.append(server.command_output("user", "sign-in-link", ada.user.name))
    assert [refused(link) for link in links] == [step > CLOCK_TOLERANCE, False]
    clock.step(step)
    assert not refused(links[0])


def test_audit_log_is_in_the_order_of_the_acts(clock, server, ada):
    """The times of the lines show that the clock was set back."""
    for act in ("suspend", "unsuspend"):
        server.command_output("user", act, ada.user.name)
        clock.step(-HOUR)
    suspended, unsuspended = (
        line for line in ada.store.audit.read() if line.get("user") == ada.user.id
    )
    assert (suspended["act"], unsuspended["act"]) == ("user suspend", "user unsuspend")
    assert unsuspended["time"] < suspended["time"]


def test_workers_are_not_restarted(clock, server):
    workers = server.workers()
    for step in (SECONDS, HOUR):
        clock.step(-step)
        assert requests.get(f"{server.address}/healthz", timeout=ANSWER_TIMEOUT).ok
    assert server.workers() == workers
