"""The programs of docs/engines/joining.md: each signs a player in and joins a game server."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from documents import read_blocks
from playwright.sync_api import expect
from programs import logging_program

from .form_browser import FormBrowser
from .running import RunningServer
from .test_browser import Game, decide, sign_in
from .test_engines import GodotGame, NativeGame, follow, running_game, write_browser, write_godot
from .test_game_servers import DROPPED, GameServer, running_game_server, set_values

pytestmark = pytest.mark.live
PROGRAMS = read_blocks("docs/engines/joining.md")
_, SUSPENDED = DROPPED


@pytest.fixture(scope="module")
def joining(server: RunningServer) -> str:
    """The client id of the programs."""
    addresses = "http://127.0.0.1/callback", "http://127.0.0.1/"
    return server.add_client("Space Game", *addresses, public=True)["client_id"]


@pytest.fixture(scope="module")
def chat(server: RunningServer, joining: str, tmp_path_factory) -> Iterator[GameServer]:
    """A game server that admits the players of these programs."""
    command, folder = [sys.executable, "game_server.py"], tmp_path_factory.mktemp("chat")
    with running_game_server(server, joining, command[1], command, folder) as chat:
        yield chat


def joining_program(name: str, chat: GameServer, values: dict[str, str]) -> str:
    """Return a program with its values set, for a game server without TLS."""
    return set_values(
        PROGRAMS[name], {"play.example.org:30000": chat.address, "wss": "ws"} | values
    )


def test_python_program_chats_until_the_player_is_suspended(
    server: RunningServer, joining: str, chat: GameServer, form_browser: FormBrowser, tmp_path
):
    values = {"https://id.example.org": server.address, "your client_id": joining}
    (tmp_path / "join.py").write_text(joining_program("join.py", chat, values), encoding="utf-8")
    write_browser(tmp_path)
    server.add_user("grace")
    command, shown = [sys.executable, "join.py"], tmp_path / "shown"
    running = logging_program(command, tmp_path, subprocess.PIPE, BROWSER="./browser")
    with running as (program, _), program.stdin:
        game = NativeGame(tmp_path, program)
        follow(form_browser.allow(game.wait_for_address(), "grace"))
        program.stdin.write(b"Hello\n")
        program.stdin.flush()
        said = "grace: Hello\n"
        game.wait_for(lambda: shown.read_text() == said)
        server.command_output("user", "suspend", "grace")
        said += f"The connection has ended: {SUSPENDED}\n"
        game.wait_for(lambda: shown.read_text() == said)


@pytest.mark.godot
def test_godot_program_chats_until_the_player_is_suspended(
    server: RunningServer, joining: str, chat: GameServer, form_browser: FormBrowser, tmp_path
):
    command = write_godot(tmp_path, server, joining)
    signs_in = set_values((tmp_path / "game.gd").read_text(), {"userinfo": "userinfo join"})
    (tmp_path / "sign_in.gd").write_text(signs_in)
    (tmp_path / "game.gd").write_text(joining_program("join.gd", chat, {}))
    server.add_user("linus")
    with running_game(GodotGame, command, tmp_path) as game:
        follow(form_browser.allow(game.wait_for_address(), "linus"))
        game.wait_for(lambda: game.shows("Press to say hello."))
        game.press()
        game.wait_for(lambda: game.shows("linus: Hello!"))
        server.command_output("user", "suspend", "linus")
        game.wait_for(lambda: game.shows(SUSPENDED))


@pytest.mark.browser
def test_page_chats_until_the_player_is_suspended(
    server: RunningServer, joining: str, chat: GameServer, game: Game, browse
):
    values = {"https://id.example.org": server.address, "your client_id": joining}
    game.pages["/"] = joining_program("join.html", chat, values)
    server.add_user("margaret")
    page = browse()
    page.goto(f"{game.origin()}/")
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Join").click()
    sign_in(opened.value, "margaret")
    decide(opened.value)
    page.get_by_label("Message").fill("<b>Hello</b>")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("log")).to_have_text("margaret: <b>Hello</b>")
    server.command_output("user", "suspend", "margaret")
    expect(page.get_by_role("status")).to_have_text(SUSPENDED)
    expect(page.get_by_role("button", name="Join")).to_be_visible()
