"""Game servers: each lets in exactly those with a good ticket.

They are those of docs/engines/, and the chat of the demo's game. The programs with which players
join them are in test_joining.py.
"""

import contextlib
import json
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest
import requests
import time_machine
from documents import read_blocks
from programs import free_port, is_open, logging_program
from waiting import PATIENCE, wait_until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from identity.acts import accounts
from identity.acts.actors import COMMAND, Authority
from identity.http.signing import serializer
from identity.oauth.tickets import PURPOSE, TICKET_MAX_AGE
from identity.site.settings import ROOT

from . import npm
from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, RunningServer, paused

pytestmark = pytest.mark.live
PROGRAMS = read_blocks("docs/engines/servers.md") | read_blocks("docs/engines/dedicated.md")
TICKET_TIMEOUT = 2  # seconds, in the tests
CALL_TIMEOUT = 5  # seconds of a call to the identity server
MARGIN = 10  # seconds, for a busy machine
DROPPED = (1008, "this account is suspended or deleted")
CHAT = Path(ROOT) / "examples" / "space_game"


@dataclass
class Player:
    """A player's program, signed in with the scope `join`."""

    site: str
    name: str
    token: str

    def ticket(self, server: str, nonce: str = "") -> str:
        """Return a ticket for a server."""
        return requests.post(
            f"{self.site}/api/tickets",
            {"server": server, "nonce": nonce},
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=ANSWER_TIMEOUT,
        ).json()["ticket"]


@dataclass
class GameServer:
    """A running game server."""

    addresses: list[str]
    knows_apps: bool  # lets in the players of one game alone

    @property
    def address(self) -> str:
        return self.addresses[0]

    @contextlib.contextmanager
    def connection(self) -> Iterator[tuple[ClientConnection, str]]:
        """Connect as a guest; yield the connection and its nonce."""
        with connect(f"ws://{self.address}", close_timeout=1, open_timeout=PATIENCE) as guest:
            yield guest, guest.recv(PATIENCE)

    @contextlib.contextmanager
    def admitted(self, player: Player) -> Iterator[ClientConnection]:
        """Let a player in."""
        with self.connection() as (guest, nonce):
            guest.send(player.ticket(self.address, nonce))
            wait_until_inside(guest)
            yield guest


def wait_until_inside(guest: ClientConnection) -> None:
    """Return when a guest is inside, where everybody hears what they say."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:  # nobody hears it before
        guest.send("I am in")
        with contextlib.suppress(TimeoutError):
            return hear(guest, "I am in", timeout=0.2)
    raise AssertionError("not inside")


def hear(player: ClientConnection, text: str, timeout: float = PATIENCE) -> dict:
    """Wait until a player hears this text; return the whole message."""
    while True:
        message = json.loads(player.recv(timeout))
        if message["text"] == text:
            return message


def chat_until(moment: float, player: ClientConnection) -> None:
    """Let a player hear what they say until this moment of the monotonic clock."""
    while time.monotonic() < moment:
        player.send("Anybody here?")
        hear(player, "Anybody here?", timeout=CALL_TIMEOUT - 1)  # it does not wait for a call
        time.sleep(0.05)


def wait_for_end(guest: ClientConnection, timeout: float = PATIENCE) -> tuple[int, str]:
    """Wait until the server closes a connection; return the code and the reason.

    The code is 1006 without a close frame (RFC 6455 7.1.5): if a server closes a connection before
    it has read all of it, TCP resets it, and the frame may be lost.
    """
    deadline = time.monotonic() + timeout
    with pytest.raises(ConnectionClosed) as ended:
        while True:
            guest.recv(max(0, deadline - time.monotonic()))
    closed = ended.value.rcvd
    return (closed.code, closed.reason.rstrip("\0")) if closed else (1006, "")  # Godot 3 sends \0


def set_values(text: str, values: dict[str, str]) -> str:
    """Replace each of these values, which are once in a program."""
    for value, ours in values.items():
        text, number = re.subn(rf"\b{re.escape(value)}\b", ours, text)
        assert number == 1, value
    return text


def write_python(folder: Path) -> list[str]:
    return [sys.executable, "game_server.py"]


def write_node(folder: Path) -> list[str]:
    npm.install(folder, "ws@8")
    return [shutil.which("node"), "game_server.mjs"]


def write_godot(folder: Path) -> list[str]:
    """Write a project whose main scene is one node with the script."""
    settings = 'config_version=4\n[application]\nrun/main_scene="res://main.tscn"\n'
    (folder / "project.godot").write_text(settings)
    (folder / "main.tscn").write_text(
        "[gd_scene load_steps=2 format=2]\n"
        '[ext_resource path="res://game_server.gd" type="Script" id=1]\n'
        '[node name="Main" type="Node"]\nscript = ExtResource(1)\n'
    )
    return ["godot3-server", "--path", str(folder)]


SERVERS = [
    pytest.param(("game_server.py", write_python), id="python"),
    pytest.param(("game_server.mjs", write_node), id="node", marks=pytest.mark.node),
    pytest.param(("game_server.gd", write_godot), id="godot", marks=pytest.mark.godot),
    pytest.param(("chat.py", None), id="demo"),
]


@pytest.fixture(scope="module", params=SERVERS)
def game_server(
    request: pytest.FixtureRequest,
    server: RunningServer,
    client: dict,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GameServer]:
    """Each game server as it is, with the values at its top set."""
    name, write = request.param
    folder = tmp_path_factory.mktemp("server")
    if write:
        used = running_game_server(server, client["client_id"], name, write(folder), folder)
    else:
        used = running_chat(server, name, folder)
    with used as game_server:
        yield game_server


@contextlib.contextmanager
def running_game_server(
    server: RunningServer, client_id: str, name: str, command: list[str], folder: Path
) -> Iterator[GameServer]:
    """Run a program of docs/engines/, for the players of one game."""
    port = free_port()
    addresses = [f"127.0.0.1:{port}", f"localhost:{port}"]
    values = {"https://id.example.org": server.address, "your client_id": client_id}
    values |= {"play.example.org:30000": addresses[0], "192.0.2.1:30000": addresses[1]}
    values |= {"30000": str(port), "20": str(TICKET_TIMEOUT), "60": "1", "100": "1"}
    (folder / name).write_text(set_values(PROGRAMS[name], values), encoding="utf-8")
    with logging_program(command, folder, HOME=str(folder)) as (process, read_log):
        wait_until(lambda: is_open(port), process, read_log)
        yield GameServer(addresses, knows_apps=True)


@contextlib.contextmanager
def running_chat(server: RunningServer, name: str, folder: Path) -> Iterator[GameServer]:
    """Run the chat of the demo's game."""
    address = f"127.0.0.1:{(port := free_port())}"
    values = {"TICKET_TIMEOUT = 20": f"TICKET_TIMEOUT = {TICKET_TIMEOUT}"}
    values |= {"CHECK_EVERY = 5": "CHECK_EVERY = 1"}
    text = set_values((CHAT / name).read_text(encoding="utf-8"), values)
    (folder / name).write_text(text, encoding="utf-8")
    own = {"SERVER": server.address, "CHAT": address, "PYTHONPATH": str(CHAT), "HOME": str(folder)}
    with logging_program([sys.executable, name], folder, **own) as (process, read_log):
        wait_until(lambda: is_open(port), process, read_log)
        yield GameServer([address], knows_apps=False)


@pytest.fixture(scope="module")
def sign_in(server: RunningServer, client: dict) -> Callable[[str], Player]:
    """A function that adds a player, who signs in to a game; they may be there already."""

    def sign_in(name: str, client: dict = client, is_new: bool = True) -> Player:
        if is_new:
            server.add_user(name)
        browser = FormBrowser(server.address)
        query = {"response_type": "code", "client_id": client["client_id"]}
        query |= {"redirect_uri": CALLBACK, "scope": "userinfo join"}
        code = browser.allow(f"/oauth/authorize?{urlencode(query)}", name).answer["code"]
        browser.close()
        token = server.exchange_code(code, **client).json()["access_token"]
        return Player(server.address, name, token)

    return sign_in


@pytest.fixture(scope="module")
def ada(sign_in) -> Player:
    """A player."""
    return sign_in("ada")


@pytest.fixture(scope="module")
def ada_elsewhere(sign_in, server, ada) -> Player:
    """The same player, signed in to another game."""
    return sign_in("ada", server.add_client("Another Game", CALLBACK), is_new=False)


@pytest.fixture(scope="module")
def bob(sign_in) -> Player:
    """Another player."""
    return sign_in("bob")


@pytest.fixture
def eve(sign_in) -> Player:
    """A player whom a test suspends or deletes. Names of the deleted are not free at once."""
    return sign_in(f"eve{secrets.token_hex(4)}")


def refusal(game_server: GameServer, ticket: str | Callable[[str], str]) -> str:
    """Send a ticket in a new connection; return the reason why the server closes it.

    `ticket` may be a function that gets one for the nonce of the connection.
    """
    with game_server.connection() as (guest, nonce):
        guest.send(ticket if isinstance(ticket, str) else ticket(nonce))
        code, reason = wait_for_end(guest)
    assert code == 1008
    return reason


def test_good_ticket_lets_a_player_in(game_server, ada, bob):
    with game_server.admitted(ada) as adas, game_server.admitted(bob) as bobs:
        adas.send("Hello \N{SPARKLES}")
        heard = [hear(each, "Hello \N{SPARKLES}") for each in (adas, bobs)]
        assert heard == [{"id": heard[0]["id"], "name": "ada", "text": "Hello \N{SPARKLES}"}] * 2
        bobs.send("Hi")
        assert hear(adas, "Hi")["name"] == "bob"
    with game_server.admitted(ada) as adas:  # again, with another ticket
        adas.send("Back")
        assert hear(adas, "Back")["id"] == heard[0]["id"]


def test_each_address_of_a_server_is_good(game_server, ada):
    for address in game_server.addresses:
        with game_server.connection() as (guest, nonce):
            guest.send(ada.ticket(address.upper(), nonce))
            wait_until_inside(guest)


def test_every_other_ticket_is_refused(game_server, store, ada, subtests):
    here = game_server.address

    def get_old(nonce: str) -> str:
        values = serializer(PURPOSE, store).loads(ada.ticket(here, nonce))
        with time_machine.travel(time.time() - TICKET_MAX_AGE - 1):
            return serializer(PURPOSE, store).dumps(values)

    with game_server.connection() as (guest, nonce):
        used = ada.ticket(here, nonce)
        guest.send(used)
        wait_until_inside(guest)
        for case, ticket, reason in (
            (
                "another server",
                lambda nonce: ada.ticket("play.example:30000", nonce),
                "another server",
            ),
            ("another port", lambda nonce: ada.ticket("127.0.0.1:1", nonce), "another server"),
            ("another nonce", ada.ticket(here, "another"), "another nonce"),
            ("without a nonce", ada.ticket(here), "no nonce"),
            ("used in another connection", used, "another nonce"),
            ("yesterday's", get_old, "older than 60 seconds"),
            ("an access token", ada.token, "not a ticket of this site"),
            ("nothing", "", "not a ticket of this site"),
            ("no text of a ticket", "\0 &server=é" * 9, "not a ticket of this site"),
        ):
            with subtests.test(case):
                assert reason in refusal(game_server, ticket)


def test_nobody_is_heard_before_the_ticket_is_checked(game_server, ada):
    with game_server.admitted(ada) as adas, game_server.connection() as (guest, _):
        guest.send("no ticket")
        for text in ("heard", "by nobody"):
            with contextlib.suppress(ConnectionClosed):  # it may be dropped already
                guest.send(text)
        wait_for_end(guest)
        adas.send("the next message")
        assert json.loads(adas.recv(PATIENCE))["text"] == "the next message"


def test_ticket_of_another_game_is_refused(game_server, ada_elsewhere):
    """Of the demo's chat, each app of the community is an app for it."""
    with game_server.connection() as (guest, nonce):
        guest.send(ada_elsewhere.ticket(game_server.address, nonce))
        if game_server.knows_apps:
            assert wait_for_end(guest) == (1008, "ticket of another game")
        else:
            wait_until_inside(guest)


def test_guest_without_a_ticket_is_dropped(game_server):
    with game_server.connection() as (guest, _):
        began = time.monotonic()
        assert wait_for_end(guest) == (1008, "no ticket came")
        assert time.monotonic() - began > TICKET_TIMEOUT - 0.5


def test_message_that_is_too_long_reaches_nobody(game_server, ada, bob):
    with game_server.admitted(ada) as adas, game_server.admitted(bob) as bobs:
        adas.send("x" * 5000)
        texts = []
        bobs.send("the next message")
        while "the next message" not in texts:
            texts.append(json.loads(bobs.recv(PATIENCE))["text"])
        assert max(map(len, texts)) < 100


def test_suspended_player_is_refused_and_dropped(game_server, store, ada, bob, eve):
    """The others stay. The tests let the server ask for one player at a time."""
    with (
        game_server.admitted(ada) as adas,
        game_server.admitted(bob),
        game_server.admitted(eve) as eves,
    ):
        with game_server.connection() as (guest, nonce):
            ticket = eve.ticket(game_server.address, nonce)
            eve_id = store.users.find_by_login(eve.name).id
            accounts.suspend(Authority(store, COMMAND), eve_id, "Spam")
            guest.send(ticket)
            assert "this player is suspended" in wait_for_end(guest)[1]
        assert wait_for_end(eves) == DROPPED
        adas.send("Where is eve?")
        hear(adas, "Where is eve?")


def test_player_whose_account_was_deleted_is_dropped(game_server, store, ada, eve):
    with game_server.admitted(ada) as adas, game_server.admitted(eve) as eves:
        store.users.delete(store.users.find_by_login(eve.name).id)
        assert wait_for_end(eves) == DROPPED
        adas.send("Where is eve?")
        hear(adas, "Where is eve?")


@pytest.mark.load
def test_without_the_identity_server_nobody_new_gets_in_and_players_stay(
    game_server, server, ada, bob
):
    with game_server.admitted(ada) as adas, contextlib.ExitStack() as workers:
        with game_server.connection() as (guest, nonce):
            ticket = bob.ticket(game_server.address, nonce)
            for each in server.workers():
                workers.enter_context(paused(each))
            guest.send(ticket)
            began = time.monotonic()
            chat_until(began + 4, adas)
            assert re.search("identity server does not (answer|respond)", wait_for_end(guest)[1])
            assert 4 < time.monotonic() - began < CALL_TIMEOUT + MARGIN
            chat_until(began + 8, adas)  # a question about suspended players had no answer, either
        workers.close()
        with game_server.admitted(bob) as bobs:
            bobs.send("I am here")
            hear(adas, "I am here")
