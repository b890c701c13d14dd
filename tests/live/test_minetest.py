"""The mod of docs/engines/dedicated.md, in a server that Minetest's own client joins."""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from programs import free_port, logging_program
from waiting import PATIENCE, wait_until

from .engines import read_program
from .form_browser import FormBrowser, signed_in_browser
from .running import RunningServer, paused

pytestmark = [pytest.mark.live, pytest.mark.minetest]
WATCH = Path(__file__).parent / "engines" / "watch_minetest.lua"
DATABASES = ("backend", "auth_backend", "player_backend", "mod_storage_backend")


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    """A screen without a monitor, on which the clients draw."""
    reader, writer = os.pipe()
    command = ["Xvfb", "-displayfd", str(writer), "-screen", "0", "320x240x24"]
    process = subprocess.Popen(command, pass_fds=[writer], stderr=subprocess.DEVNULL)
    yield f":{os.read(reader, 10).decode().strip()}"
    process.terminate()
    process.wait(PATIENCE)


@dataclass
class World:
    """A running server of Minetest."""

    folder: Path
    port: int
    display: str

    def state(self, kind: str, name: str) -> list[str]:
        """Return what watch_minetest.lua says of a player."""
        state = json.loads((self.folder / "state").read_text())
        return (state[kind] or {}).get(name, [])  # Lua's empty table is null

    def is_here(self, name: str) -> bool:
        return "here" in self.state("privileges", name)

    def may_play(self, name: str) -> bool:
        """Return whether a player can build and chat; both or neither."""
        privileges = {"interact", "shout"} & {*self.state("privileges", name)}
        assert len(privileges) in (0, 2)
        return bool(privileges)

    def wait_for_text(self, name: str, text: str) -> str:
        """Wait until the last text that a player was shown has this text; return all of it."""
        wait_until(lambda: text in "".join(self.state("texts", name)[-1:]))
        return self.state("texts", name)[-1]

    @contextlib.contextmanager
    def client(self, name: str) -> Iterator[None]:
        """Join with a client, until the block ends."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "client.conf").write_text("fps_max = 5\nfps_max_unfocused = 5\n")
        command = ["/usr/games/minetest", "--go", "--config", "client.conf", "--name", name]
        command += ["--password", "x", "--address", "127.0.0.1", "--port", str(self.port)]
        environment = {"DISPLAY": self.display, "HOME": str(folder)}
        with logging_program(command, folder, **environment) as (process, read_log):
            wait_until(lambda: self.is_here(name), process, read_log)
            yield
        wait_until(lambda: not self.is_here(name))

    @contextlib.contextmanager
    def player(self, name: str, browser: FormBrowser, button: str = "Allow") -> Iterator[None]:
        """Join, and decide on the page that the text names."""
        with self.client(name):
            text = self.wait_for_text(name, "compare the code")
            assert not self.may_play(name)
            page = browser.open(re.search(r"(/device\?user_code=\S+) in", text)[1])
            browser.press(browser.press(page, "Continue"), button)
            yield


@pytest.fixture(scope="module")
def world(
    server: RunningServer, display: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A server with the mod as it is in the page, with its values set."""
    client = server.add_client("Minetest", public=True, device=True)
    text = read_program("dedicated.md", "init.lua", server, client["client_id"])
    assert text.count("60, 5") == 1
    folder, port = tmp_path_factory.mktemp("world"), free_port()
    for name, code in {
        "identity": text.replace("60, 5", "1, 5"),
        "watch": WATCH.read_text(),
    }.items():
        (folder / "worldmods" / name).mkdir(parents=True)
        (folder / "worldmods" / name / "mod.conf").write_text(f"name = {name}\n")
        (folder / "worldmods" / name / "init.lua").write_text(code)
    lines = "".join(f"{each} = sqlite3\n" for each in DATABASES)
    (folder / "world.mt").write_text(f"gameid = devtest\n{lines}")
    (folder / "minetest.conf").write_text("secure.http_mods = identity\nmg_name = singlenode\n")
    command = ["/usr/games/minetestserver", "--world", str(folder), "--port", str(port)]
    command += ["--config", str(folder / "minetest.conf"), "--logfile", ""]
    with logging_program(command, folder, HOME=str(folder)) as (process, read_log):
        wait_until((folder / "state").exists, process, read_log)
        yield World(folder, port, display)


@pytest.fixture(scope="module")
def bob(server: RunningServer) -> dict:
    """Another player."""
    return server.add_user("bob")


@pytest.fixture
def bobs_form_browser(server: RunningServer, bob: dict) -> Iterator[FormBrowser]:
    """A form browser in which Bob is signed in."""
    with signed_in_browser(server, "bob") as form_browser:
        yield form_browser


def test_player_may_build_and_chat_after_the_sign_in(world, adas_form_browser):
    """Also when they come again."""
    for _ in range(2):
        with world.player("Ada", adas_form_browser):
            wait_until(lambda: world.may_play("Ada"))


def test_player_who_cancels_is_dropped(world, adas_form_browser):
    with world.player("Guest", adas_form_browser, "Cancel"):
        world.wait_for_text("Guest", "You are not signed in: access_denied")
        wait_until(lambda: not world.is_here("Guest"))


def test_nobody_else_can_take_a_name(world, adas_form_browser, bobs_form_browser):
    """Not even with its password of Minetest."""
    with world.player("Name", adas_form_browser):
        wait_until(lambda: world.may_play("Name"))
    with world.player("Name", bobs_form_browser):
        world.wait_for_text("Name", "This name belongs to another player.")
        wait_until(lambda: not world.is_here("Name"))


def test_suspended_player_is_dropped(world, server, adas_form_browser, bobs_form_browser):
    with world.player("Ada", adas_form_browser), world.player("Bob", bobs_form_browser):
        wait_until(lambda: world.may_play("Ada") and world.may_play("Bob"))
        server.command_output("user", "suspend", "bob")
        world.wait_for_text("Bob", "This account is suspended.")
        wait_until(lambda: not world.is_here("Bob"))
        assert world.may_play("Ada")


def test_without_the_identity_server_nobody_new_gets_in_and_players_stay(
    world, server, adas_form_browser
):
    with world.player("Ada", adas_form_browser), contextlib.ExitStack() as workers:
        wait_until(lambda: world.may_play("Ada"))
        for each in server.workers():
            workers.enter_context(paused(each))
        with world.client("Late"):
            world.wait_for_text("Late", "Nobody can sign in now.")
            assert not world.may_play("Late")
            wait_until(lambda: not world.is_here("Late"))
        assert world.may_play("Ada")
