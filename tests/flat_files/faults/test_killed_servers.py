"""A server under load is killed, or its machine loses power: every confirmed change stays."""

import contextlib
import random
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest
import requests
from disks import MOUNTS
from live import running
from live.form_browser import FormBrowser
from live.running import CHEAP_METHOD, PASSWORD, RunningServer
from power import FILE_SYSTEMS, Disk, mounted_disk
from waiting import wait_until
from werkzeug.security import generate_password_hash

from identity.acts.sessions import SESSIONS_KEPT
from identity_server import CODES_A_MINUTE
from model.errors import StorageFailed
from model.records import Client, User
from storage.flat_files.disk import BOOT_ID_FILE

pytestmark = pytest.mark.faults
ALL_ROUNDS, ROUNDS = 5, 2  # with --all-faults, and in the default run
CALLBACK = "https://client.example/callback"  # never requested, only parsed
HASH = generate_password_hash(PASSWORD, CHEAP_METHOD)


class Machine(RunningServer):
    """A server on a disk; `kill` cuts the power, and the next start mounts the disk again."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        super().__init__(folder)
        self.data_dir = disk.folder / "data"
        self.picture_dir = disk.folder / "pictures"
        self.disk = disk
        self.boot_id = folder / "boot_id"
        self.boots = 0

    def launch(self) -> None:
        if self.boots:
            self.disk.restart()
        self.boots += 1
        self.boot_id.write_text(f"boot {self.boots}\n")
        super().launch()

    def kill(self) -> None:
        # The disk first: a change that is confirmed after this point must survive too.
        self.disk.cut_power()
        super().kill()


@contextlib.contextmanager
def machine(folder: Path, file_system: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with mounted_disk(folder, file_system) as disk:
        machine = Machine(folder, disk)
        # In a new mount namespace the server reads our boot id instead of the kernel's.
        mount = f"mount --bind {shlex.quote(str(machine.boot_id))} {BOOT_ID_FILE}"
        own_namespace = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
        monkeypatch.setattr(running, "COMMAND", [*own_namespace, *running.COMMAND])
        yield machine


@pytest.fixture(params=["kill", *(pytest.param(each, marks=MOUNTS) for each in FILE_SYSTEMS)])
def server(request, tmp_path, monkeypatch) -> Iterator[RunningServer]:
    """A server for this test alone, and on a machine that loses power when it is killed."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    if request.param == "kill":
        server = contextlib.nullcontext(RunningServer(tmp_path))
    else:
        server = machine(tmp_path, request.param, monkeypatch)
    with server as server:
        server.start()
        yield server
        server.stop()


def link(client: Client) -> str:
    return f"/oauth/authorize?{urlencode({'response_type': 'code', 'client_id': client.id})}"


class Load:
    """Requests by users and clients until the server is killed, and every confirmed result."""

    def __init__(self, server: RunningServer) -> None:
        self.server, self.store = server, server.open_storage()
        mark = random.randbytes(4).hex()
        self.players = [self.add_player(f"{name} {mark}") for name in "abcd"]
        self.sign_in_attempts: list[FormBrowser] = []  # those with a cookie were confirmed
        self.consents: list[tuple[FormBrowser, Client]] = []
        self.good_codes: list[tuple[str, str, str]] = []  # with the client's id and secret
        self.used_codes: list[tuple[str, str, str]] = []
        self.tokens: list[str] = []
        self.refreshes, self.refresh_token = 0, ""  # the last that a client got
        self._over = threading.Event()

    def add_player(self, name: str) -> User:
        return self.store.users.register(name, f"{name[0]}@{name[2:]}.example", HASH)

    def run(self, seconds: float) -> None:
        """Load the server, and kill it this many seconds after the first consent and exchange."""
        consenting, exchanging = map(self.sign_in, self.players[:2])
        game = self.store.clients.register("Game", [CALLBACK], None)
        exchanging.press(exchanging.open(link(game[0])), "Allow")
        self.keep_signed_in(exchanging)
        tasks = [
            lambda: self.sign_in_again(self.players[2]),
            lambda: self.sign_in_again(self.players[3]),
            lambda: self.consent(consenting),
            lambda: self.exchange(exchanging, *game),
            self.look_up,
            self.refresh,
        ]
        with ThreadPoolExecutor(len(tasks)) as threads:
            running = [threads.submit(self.until_killed, task) for task in tasks]
            try:
                wait_until(lambda: self.has_confirmed() or any(each.done() for each in running))
                time.sleep(seconds)
            finally:
                self._over.set()
                self.server.kill()
        for each in running:
            each.result()

    def has_confirmed(self) -> bool:
        return bool(self.consents and self.tokens and self.refreshes)

    def until_killed(self, task: Callable[[], object]) -> None:
        errors = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
        if isinstance(self.server, Machine):  # it answers while its disk has stopped
            errors += (AssertionError, LookupError, StorageFailed)
        try:
            while not self._over.is_set():
                task()
        except errors:
            if not self._over.is_set():  # the server is killed only after the event is set
                raise

    def sign_in_again(self, player: User) -> None:
        """Sign in, unless that could evict the user's oldest session."""
        if len(self.sign_in_attempts) < SESSIONS_KEPT:
            self.sign_in(player)
        else:
            self.look_up()

    def sign_in(self, player: User) -> FormBrowser:
        # An address for each: one holds one place of a worker at a time.
        browser = FormBrowser(self.server.address, f"127.0.0.{10 + player.id % 200}")
        self.sign_in_attempts.append(browser)
        assert "Hello, " in browser.sign_in(player.name).text
        return browser

    def consent(self, browser: FormBrowser) -> None:
        client, secret = self.store.clients.register("Game", [CALLBACK], None)
        page = browser.press(browser.open(link(client)), "Allow")
        code = page.answer["code"]
        self.consents.append((browser, client))
        self.good_codes.append((code, client.id, secret))

    def exchange(self, browser: FormBrowser, client: Client, secret: str) -> None:
        """Exchange another code, unless the player would get too many in a minute."""
        if len(self.used_codes) == CODES_A_MINUTE - 2:  # two were for consents
            self.look_up()
            return
        code = browser.open(link(client)).answer["code"]
        answer = self.server.exchange_code(code, client.id, secret)
        assert answer.status_code == 200
        self.used_codes.append((code, client.id, secret))
        self.tokens.append(answer.json()["access_token"])

    def keep_signed_in(self, browser: FormBrowser) -> None:
        self.kept = self.store.clients.register("Mail", [CALLBACK], None)
        page = browser.open(f"{link(self.kept[0])}&scope=offline_access")
        form = {
            "grant_type": "authorization_code",
            "code": browser.press(page, "Allow").answer["code"],
        }
        answer = self.server.refresh("", self.kept[0].id, self.kept[1], **form)
        self.refresh_token = answer.json()["refresh_token"]

    def refresh(self) -> None:
        client, secret = self.kept
        answer = self.server.refresh(self.refresh_token, client.id, secret)
        assert answer.status_code == 200, answer.text
        self.refresh_token = answer.json()["refresh_token"]
        self.refreshes += 1

    def look_up(self) -> None:
        player = self.players[0]
        path = f"/api/users/info?id={player.id}"
        answer = requests.get(self.server.address + path, timeout=running.ANSWER_TIMEOUT)
        assert answer.json()["user"]["name"] == player.name

    def signed_in(self) -> list[FormBrowser]:
        # A guest's cookie ends with the browser.
        attempts = self.sign_in_attempts
        return [each for each in attempts if any(c.expires for c in each.session.cookies)]

    def check_confirmed_changes(self) -> None:
        """Check that every confirmed change is still there, and that used codes are used."""
        for browser in self.signed_in():
            assert "Hello, " in browser.open("/").text
        for browser, client in self.consents:
            assert "code" in browser.open(link(client)).answer  # no new consent
        for token in self.tokens:
            assert self.server.whois(token).status_code == 200
        # Also a request that was cut off may be sent again, and as often as the client wants.
        token, client = self.refresh_token, (self.kept[0].id, self.kept[1])
        following = [self.server.refresh(token, *client).json()["refresh_token"] for _ in "ab"]
        assert following[0] == following[1] != token
        assert self.server.refresh(following[0], *client).status_code == 200
        # All codes are invalid after a power cut.
        good = 400 if isinstance(self.server, Machine) else 200
        for code in self.good_codes:
            assert self.server.exchange_code(*code).status_code == good
        for code in self.used_codes:
            answer = self.server.exchange_code(*code)
            assert answer.status_code == 400
            assert good == 400 or "used before" in answer.json()["message"]


def test_confirmed_http_changes_survive_a_kill(server, pytestconfig):
    """Sign-ins, consents, exchanges and look-ups survive; a power cut ends all codes."""
    rounds = ALL_ROUNDS if pytestconfig.option.all_faults else ROUNDS
    totals: Counter[str] = Counter()
    for number in range(rounds):
        load = Load(server)
        load.run(0.3 + number / 10)
        server.start()
        load.check_confirmed_changes()
        server.command("check", "--repair")
        assert server.command("check") == []
        totals["sign-ins"] += len(load.signed_in())
        totals["consents"] += len(load.consents)
        totals["tokens"] += len(load.tokens)
        totals["refreshes"] += load.refreshes
    print(f"{rounds} rounds, {dict(totals)}")
    assert min(totals.values()) >= rounds, totals
