"""kill -9 at any moment: what was answered stands, and nothing is in the way of the next start."""

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest
import requests
from waiting import wait_until

import storage
from identity.passwords import hash_password
from identity.sessions import SESSIONS_KEPT

from .conftest import CALLBACK
from .person import Person
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer

pytestmark = [pytest.mark.live, pytest.mark.load]
ROUNDS = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server of this test's own, not yet started."""
    server = RunningServer(tmp_path)
    yield server
    if server.process:
        server.kill()


class Load:
    """What players and clients do until the server is gone, and what it had told them by then."""

    def __init__(self, server: RunningServer, store: storage.Storage, password_hash: str) -> None:
        self.server = server
        self.store = store
        mark = random.randbytes(4).hex()
        names = [f"{name} {mark}" for name in ("ada", "grace", "linus", "edsger")]
        self.players = [
            store.add_user(name, f"{name.replace(' ', '.')}@example.org", password_hash)
            for name in names
        ]
        self.tried_to_sign_in: list[Person] = []  # who has a cookie was told that it worked
        self.consents: list[tuple[Person, storage.Client]] = []
        self.good_codes: list[tuple[str, storage.Client, str]] = []
        self.spent_codes: list[tuple[str, storage.Client, str]] = []
        self.tokens: list[str] = []
        self.tries: Counter[int] = Counter()  # by the player's id
        self._over = threading.Event()

    def run(self, seconds: float) -> None:
        """Load the server, and kill it so long after the first consent and exchange."""
        client, secret = self.store.add_client("Game", [CALLBACK], None)
        with ThreadPoolExecutor(5) as threads:
            consenting, exchanging = threads.map(self.sign_in, self.players[:2])
            exchanging.press(exchanging.open(link(client)), "Allow")
            tasks: list[Callable[[], object]] = [
                lambda: self.sign_in_again(self.players[2]),
                lambda: self.sign_in_again(self.players[3]),
                lambda: self.consent(consenting),
                lambda: self.exchange(exchanging, client, secret),
                self.look_up,
            ]
            running = [threads.submit(self.until_killed, task) for task in tasks]
            try:
                wait_until(lambda: any(each.done() for each in running) or self.has_begun())
                time.sleep(seconds)
            finally:
                self._over.set()
                self.server.kill()
        for each in running:
            each.result()

    def has_begun(self) -> bool:
        return bool(self.consents and self.tokens)

    def until_killed(self, task: Callable[[], object]) -> None:
        try:
            while not self._over.is_set():
                task()
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            # The server is killed only after the event is set.
            assert self._over.is_set()

    def sign_in_again(self, player: storage.User) -> None:
        """Unless the player's first session would have to make room."""
        if self.tries[player.id] < SESSIONS_KEPT:
            self.sign_in(player)
        else:
            self.look_up()

    def sign_in(self, player: storage.User) -> Person:
        self.tries[player.id] += 1
        person = Person(self.server.address)
        self.tried_to_sign_in.append(person)
        assert "Hello, " in person.sign_in(player.name).text
        return person

    def consent(self, person: Person) -> None:
        client, secret = self.store.add_client("Game", [CALLBACK], None)
        page = person.press(person.open(link(client)), "Allow")
        code = page.answer["code"]
        self.consents.append((person, client))
        self.good_codes.append((code, client, secret))

    def exchange(self, person: Person, client: storage.Client, secret: str) -> None:
        code = person.open(link(client)).answer["code"]
        answer = exchange(self.server, code, client, secret)
        assert answer.status_code == 200
        self.spent_codes.append((code, client, secret))
        self.tokens.append(answer.json()["access_token"])

    def look_up(self) -> None:
        player = self.players[0]
        answer = requests.get(
            f"{self.server.address}/api/users/info?id={player.id}", timeout=ANSWER_TIMEOUT
        )
        assert answer.json()["user"]["name"] == player.name

    def signed_in(self) -> list[Person]:
        return [person for person in self.tried_to_sign_in if person.browser.cookies]

    def check_what_was_told(self) -> None:
        """All of it still holds."""
        for person in self.signed_in():
            assert "Hello, " in person.open("/").text
        for person, client in self.consents:
            assert "code" in person.open(link(client)).answer  # not asked again
        for code, client, secret in self.good_codes:
            assert exchange(self.server, code, client, secret).status_code == 200
        for token in self.tokens:
            headers = {"Authorization": f"Bearer {token}"}
            address = f"{self.server.address}/api/oauth/whois"
            assert requests.get(address, headers=headers, timeout=ANSWER_TIMEOUT).status_code == 200
        for code, client, secret in self.spent_codes:
            answer = exchange(self.server, code, client, secret)
            assert answer.status_code == 400
            assert "used before" in answer.json()["message"]


def link(client: storage.Client) -> str:
    return f"/oauth/authorize?{urlencode({'response_type': 'code', 'client_id': client.id})}"


def exchange(
    server: RunningServer, code: str, client: storage.Client, secret: str
) -> requests.Response:
    form = {"grant_type": "authorization_code", "code": code}
    return requests.post(
        f"{server.address}/api/oauth/token",
        {**form, "client_id": client.id, "client_secret": secret},
        timeout=ANSWER_TIMEOUT,
    )


def check_records(store: storage.Storage) -> None:
    """Every record can be read, and every name leads to its player."""
    for user_id in store.user_ids():
        user = store.read_user(user_id)
        assert store.find_user(user.name) == store.find_user(user.email) == user
        assert store.read_picture("small", f"{user_id}-{user.pfp_timestamp}.webp")
    assert len(list(map(store.read_client, store.client_ids()))) == len(
        list(Path(store.layout.data_dir, "clients").glob("*.json"))
    )


def test_nothing_that_was_answered_is_lost_when_the_server_is_killed(server: RunningServer):
    """Sign-ins, consents, exchanges and look-ups, killed at five random moments."""
    password_hash = hash_password(PASSWORD)
    told: Counter[str] = Counter()
    for _ in range(ROUNDS):
        server.start()
        store = server.open_storage()
        load = Load(server, store, password_hash)
        load.run(random.uniform(0.3, 1))
        server.start()
        load.check_what_was_told()
        check_records(store)
        told.update(
            sign_ins=len(load.signed_in()), consents=len(load.consents), tokens=len(load.tokens)
        )
        server.kill()
    assert min(told.values()) >= ROUNDS, told


def test_a_first_start_that_is_killed_can_be_repeated(tmp_path: Path):
    """Killed while the folders, the key and the layout's version are made."""
    for number in range(4):
        server = RunningServer(tmp_path / str(number))
        server.data_dir.parent.mkdir()
        before = changed(server.data_dir)
        server.launch()
        wait_for_change(server.data_dir, before, server.process)
        time.sleep(random.uniform(0, 0.004))
        server.kill()
        server.start()
        server.kill()
        assert server.open_storage().user_ids() == []


@pytest.mark.parametrize("step", ["next_user_id", "names", "emails", "users"])
def test_a_name_can_be_made_again_after_user_add_was_killed(server: RunningServer, step: str):
    """Killed around a step of it: the account is there whole, or its name and address are free."""
    store = server.open_storage()
    store.add_user("first", "first@example.org", "")
    place = server.data_dir / step
    arguments = ["user", "add", "Second", "--email", "second@example.org", "--password-stdin"]
    before = changed(place)
    command = server.start_command(*arguments)
    command.stdin.write(f"{PASSWORD}\n")
    command.stdin.flush()
    wait_for_change(place, before, command)
    time.sleep(random.uniform(0, 0.002))
    command.kill()
    command.communicate()
    check_records(store)
    made = store.find_user("second")
    again = server.start_command(*arguments)
    _, problem = again.communicate(f"{PASSWORD}\n", timeout=ANSWER_TIMEOUT)
    assert "Another player has this name" in problem if made else again.returncode == 0
    assert store.find_user("second") == store.find_user("second@example.org") is not None
    check_records(store)


def wait_for_change(place: Path, before: int, process: subprocess.Popen) -> None:
    """Return once this file or folder was made or changed since `before`, or the process ended."""
    while changed(place) == before and process.poll() is None:
        pass


def changed(place: Path) -> int:
    """When it was changed, in nanoseconds; 0 where there is none."""
    try:
        return place.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
