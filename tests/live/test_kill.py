"""SIGKILL at any moment: confirmed changes persist, and the next start succeeds."""

import random
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

from identity.accounts import SESSIONS_KEPT
from identity.passwords import hash_password
from identity_server import CODES_A_MINUTE
from storage import Storage
from storage.records import Client, User

from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer

pytestmark = [pytest.mark.live, pytest.mark.load]
ROUNDS = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server for this test alone, not yet started."""
    server = RunningServer(tmp_path)
    yield server
    if server.process:
        server.kill()


class Load:
    """Requests by users and clients until the server is killed, and every confirmed result."""

    def __init__(self, server: RunningServer, store: Storage, password_hash: str) -> None:
        self.server = server
        self.store = store
        mark = random.randbytes(4).hex()
        names = [f"{name} {mark}" for name in ("ada", "grace", "linus", "edsger")]
        self.players = [
            store.users.register(name, f"{name.replace(' ', '.')}@example.org", password_hash)
            for name in names
        ]
        self.sign_in_attempts: list[FormBrowser] = []  # those with a cookie were confirmed
        self.consents: list[tuple[FormBrowser, Client]] = []
        self.good_codes: list[tuple[str, Client, str]] = []
        self.used_codes: list[tuple[str, Client, str]] = []
        self.tokens: list[str] = []
        self.sign_in_counts: Counter[int] = Counter()  # by user id
        self._over = threading.Event()

    def run(self, seconds: float) -> None:
        """Load the server, and kill it this many seconds after the first consent and exchange."""
        client, secret = self.store.clients.register("Game", [CALLBACK], None)
        with ThreadPoolExecutor(5) as threads:
            consenting, exchanging = threads.map(self.sign_in, self.players[:2])
            exchanging.press(exchanging.open(link(client)), "Allow")
            tasks: list[Callable[[], object]] = [
                lambda: self.sign_in_again(self.players[2]),
                lambda: self.sign_in_again(self.players[3]),
                lambda: self.consent(consenting),
                lambda: self.exchange_again(exchanging, client, secret),
                self.look_up,
            ]
            running = [threads.submit(self.until_killed, task) for task in tasks]
            try:
                wait_until(lambda: any(each.done() for each in running) or self.has_started())
                time.sleep(seconds)
            finally:
                self._over.set()
                self.server.kill()
        for each in running:
            each.result()

    def has_started(self) -> bool:
        return bool(self.consents and self.tokens)

    def until_killed(self, task: Callable[[], object]) -> None:
        try:
            while not self._over.is_set():
                task()
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            # The server is killed only after the event is set.
            assert self._over.is_set()

    def sign_in_again(self, player: User) -> None:
        """Sign in, unless that would evict the user's oldest session."""
        if self.sign_in_counts[player.id] < SESSIONS_KEPT:
            self.sign_in(player)
        else:
            self.look_up()

    def sign_in(self, player: User) -> FormBrowser:
        self.sign_in_counts[player.id] += 1
        # An address for each: one holds one place of a worker at a time.
        form_browser = FormBrowser(self.server.address, f"127.0.0.{10 + player.id % 200}")
        self.sign_in_attempts.append(form_browser)
        assert "Hello, " in form_browser.sign_in(player.name).text
        return form_browser

    def consent(self, form_browser: FormBrowser) -> None:
        client, secret = self.store.clients.register("Game", [CALLBACK], None)
        page = form_browser.press(form_browser.open(link(client)), "Allow")
        code = page.answer["code"]
        self.consents.append((form_browser, client))
        self.good_codes.append((code, client, secret))

    def exchange_again(self, form_browser: FormBrowser, client: Client, secret: str) -> None:
        """Exchange another code, unless the player would get too many in a minute."""
        if len(self.used_codes) < CODES_A_MINUTE - 1:  # one was for the consent
            self.exchange(form_browser, client, secret)
        else:
            self.look_up()

    def exchange(self, form_browser: FormBrowser, client: Client, secret: str) -> None:
        code = form_browser.open(link(client)).answer["code"]
        answer = self.server.exchange_code(code, client.id, secret)
        assert answer.status_code == 200
        self.used_codes.append((code, client, secret))
        self.tokens.append(answer.json()["access_token"])

    def look_up(self) -> None:
        player = self.players[0]
        answer = requests.get(
            f"{self.server.address}/api/users/info?id={player.id}", timeout=ANSWER_TIMEOUT
        )
        assert answer.json()["user"]["name"] == player.name

    def signed_in(self) -> list[FormBrowser]:
        return [
            form_browser for form_browser in self.sign_in_attempts if form_browser.session.cookies
        ]

    def check_confirmed_changes(self) -> None:
        """Check that every confirmed change is still there."""
        for form_browser in self.signed_in():
            assert "Hello, " in form_browser.open("/").text
        for form_browser, client in self.consents:
            assert "code" in form_browser.open(link(client)).answer  # no new consent
        for code, client, secret in self.good_codes:
            assert self.server.exchange_code(code, client.id, secret).status_code == 200
        for token in self.tokens:
            assert self.server.whois(token).status_code == 200
        for code, client, secret in self.used_codes:
            answer = self.server.exchange_code(code, client.id, secret)
            assert answer.status_code == 400
            assert "used before" in answer.json()["message"]


def link(client: Client) -> str:
    return f"/oauth/authorize?{urlencode({'response_type': 'code', 'client_id': client.id})}"


def check_records(store: Storage) -> None:
    """Check that every record can be read, and every name finds its user."""
    for user_id in store.users.ids():
        user = store.users.read(user_id)
        assert store.users.find_by_login(user.name) == store.users.find_by_login(user.email) == user
        assert store.pictures.read("small", f"{user_id}-{user.pfp_timestamp}.webp")
    assert len(list(map(store.clients.read, store.clients.ids()))) == len(
        list(Path(store.layout.data_dir, "clients").glob("*.json"))
    )


def test_kill_loses_no_confirmed_change(server: RunningServer):
    """Under load of sign-ins, consents, exchanges and look-ups, at five random moments."""
    password_hash = hash_password(PASSWORD)
    confirmed: Counter[str] = Counter()
    for _ in range(ROUNDS):
        server.start()
        store = server.open_storage()
        load = Load(server, store, password_hash)
        load.run(random.uniform(0.3, 1))
        server.start()
        load.check_confirmed_changes()
        check_records(store)
        confirmed.update(
            sign_ins=len(load.signed_in()), consents=len(load.consents), tokens=len(load.tokens)
        )
        server.kill()
    assert min(confirmed.values()) >= ROUNDS, confirmed
