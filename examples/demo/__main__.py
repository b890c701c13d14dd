"""A community, a web app and a game that run until Ctrl-C: started by `identity-server demo`.

It uses the server as its administrator would: it creates an installation in a temporary folder or
in an empty database, registers the two apps of `examples/` there, and runs all three as processes.
"""

import contextlib
import errno
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import click
from community import COMMUNITY, GAME_OWNER

from commands.running import LOOPBACK, kept_port
from identity.access.passwords import hash_password
from identity.site.settings import RESOURCES, ROOT
from images.pictures import make_picture
from model.records import Client, now_ms
from storage import Storage, mask_url, open_storage

SITE_NAME = "Five Friends"
PASSWORD = "five friends play"
MINUTE = 60_000  # milliseconds
OTHER_NAME = {"127.0.0.1": "localhost", "localhost": "127.0.0.1"}
SERVE = ["-c", "from identity_admin import main; main()", "serve", "--workers=2"]
STOP_TIMEOUT = 10  # seconds between SIGTERM and SIGKILL
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal was closed


def run_demo(host: str, port: int, url: str = "files") -> None:
    """Run the demo until a signal arrives or one of its processes ends.

    The server and the apps listen on the first free ports from `port` on. `url` is a value of
    IDENTITY_STORAGE. Raises ClickException.
    """
    # Signals are only recorded: an exception between two steps could leave a process running.
    signals: list[int] = []
    for each in STOP_SIGNALS:
        signal.signal(each, lambda number, _: signals.append(number))
    with (
        tempfile.TemporaryDirectory(prefix="identity-server-demo-") as folder,
        contextlib.ExitStack() as cleanup,
    ):
        site, app, game, chat = choose_addresses(host, port, cleanup)
        store = open_empty(folder, url)
        place = folder if url == "files" else mask_url(url)
        click.echo(f"Five players move into {place} ...")
        scores = add_players(store)
        click.echo("A web app and a game join them ...")
        processes = [
            server_process(folder, url, site, host),
            app_process(store, site, app),
            chat_process(site, chat),
            game_process(store, site, game, chat, folder, scores),
        ]
        for process in processes:
            process.start()
            cleanup.callback(process.stop)
        while not signals and not all(process.is_ready() for process in processes):
            time.sleep(0.05)
        if not signals:
            print_addresses(site, app, f"{site}/play/{processes[-1].environment['CLIENT_ID']}")
            leaves = "nothing" if url == "files" else "the community in the database"
            click.echo(f"\nCtrl-C ends it, and leaves {leaves}.")
        while not signals:
            time.sleep(0.1)
            for process in processes:
                process.check()
        stays = "" if url == "files" else " The community stays in the database."
        click.echo(f"\nThe programs end, and the folder goes.{stays}")


# -- the community ------------------------------------------------------------------------------


def open_empty(folder: str, url: str) -> Storage:
    """Return the storage for the community. Raises ClickException if it is in use."""
    store = open_storage(f"{folder}/data", f"{folder}/pictures", url)
    if not store.users.is_new() or store.clients.ids():
        raise click.ClickException(
            "the database has players or clients: the demo needs one without"
        )
    return store


def add_players(store: Storage) -> dict[int, int]:
    """Add the players of the community. Return their best scores in the game, by user id."""
    password_hash = hash_password(PASSWORD)  # once: it takes a third of a second
    with ThreadPoolExecutor() as pool:  # each picture is decoded in a process of its own
        pictures = pool.map(make_picture, [member.picture() for member in COMMUNITY])
    scores = {}
    for member, picture in zip(COMMUNITY, pictures, strict=True):
        email = f"{member.name}@example.org"
        user = store.users.register(member.name, email, password_hash, member.mod_level)
        store.pictures.save(user.id, picture)
        with store.users.edit(user.id) as edited:
            edited.bio = member.bio
            edited.flairs = list(dict.fromkeys(("none", member.flair)))
            edited.equipped_flair = member.flair
            edited.play_ms = member.play_minutes * MINUTE
            edited.last_heartbeat = now_ms() - member.last_played * MINUTE
        scores[user.id] = member.score
    return scores


def print_addresses(site: str, app: str, game: str) -> None:
    """Print the addresses, the names and the password to try."""
    *names, last = (member.name for member in COMMUNITY)
    click.echo(f"""
{SITE_NAME} is ready:

  the community     {site}/
  the Space Game    {game}
  a web app         {app}/  (it shows each message of a sign-in)

Sign in as {", ".join(names)} or {last}; ada is the administrator, bruno a moderator.
The password of all five is: {PASSWORD}""")


# -- the processes ------------------------------------------------------------------------------


@dataclass
class Process:
    """A Python process that serves HTTP at `address`."""

    name: str
    address: str
    arguments: list[str]
    environment: dict[str, str]
    popen: subprocess.Popen | None = None

    def start(self) -> None:
        """Start the process, without waiting for it."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("IDENTITY_", "GUNICORN_"))
        }
        self.popen = subprocess.Popen(
            [sys.executable, *self.arguments],
            cwd=ROOT,
            env=inherited | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # Ctrl-C signals the terminal's own process group alone; `stop` ends this one.
            process_group=0,
        )

    def check(self) -> None:
        """Raise ClickException if the process has ended."""
        if self.popen.poll() is not None:
            raise click.ClickException(f"{self.name} ended with status {self.popen.returncode}")

    def is_ready(self) -> bool:
        """Return True if its page can be opened. Raises ClickException if the process has ended."""
        self.check()
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        return False

    def stop(self) -> None:
        """End the process, and wait for its end."""
        self.popen.terminate()
        try:
            self.popen.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


def choose_addresses(host: str, port: int, cleanup: contextlib.ExitStack) -> list[str]:
    """Return the base URLs of the server, the web app, the game and its chat.

    Their ports are reserved until `cleanup` is closed. Raises BadParameter, ClickException.
    """
    host = LOOPBACK.get(host, host)
    # The two apps need another host name of this machine: browsers send a host's cookies to all of
    # its ports (RFC 6265 8.5), and the session cookie of the server is not for the apps.
    if host not in OTHER_NAME:
        raise click.BadParameter("the demo needs 127.0.0.1 or localhost", param_hint="--bind")
    other_name = OTHER_NAME[host]
    addresses = []
    for each in (host, other_name, other_name, other_name):
        port = reserve_first_free_port(each, port, cleanup)
        addresses.append(f"http://{each}:{port}")
        port += 1
    return addresses


def reserve_first_free_port(host: str, port: int, cleanup: contextlib.ExitStack) -> int:
    """Return the first free port from `port` on; any free port for 0. Raises ClickException."""
    for number in range(port, 65536):
        try:
            return cleanup.enter_context(kept_port(host, number))
        except click.ClickException as error:
            if error.__cause__.errno != errno.EADDRINUSE:
                raise
    raise click.ClickException(f"no port is free from {port} on: choose another with --bind")


def server_process(folder: str, url: str, site: str, host: str) -> Process:
    """Return the identity server's process, with its data in this folder or at the URL."""
    settings = {
        "IDENTITY_STORAGE": url,  # not an argument, which other users of the machine can see
        "IDENTITY_DATA_DIR": f"{folder}/data",
        "IDENTITY_PICTURE_DIR": f"{folder}/pictures",
        "IDENTITY_BASE_URL": site,
        "IDENTITY_SITE_NAME": SITE_NAME,
        "IDENTITY_SIGN_UP": "open",
        "IDENTITY_CLIENT_REGISTRATION": "members",
        # At the end it waits two seconds for open requests, not half a minute.
        "GUNICORN_CMD_ARGS": "--log-level=warning --graceful-timeout=2",
    }
    return Process("the server", site, [*SERVE, f"--bind={host}:{urlsplit(site).port}"], settings)


def app_process(store: Storage, site: str, app: str) -> Process:
    """Register the web app. Return its process."""
    client, secret = store.clients.register("Web App", [f"{app}/callback"], owner_id=None)
    environment = app_environment(site, app, client, secret)
    return Process("the web app", app, [f"{RESOURCES}/examples/web_app.py"], environment)


def chat_process(site: str, chat: str) -> Process:
    """Return the process of the game's chat, which needs no client: it checks tickets."""
    environment = {"SERVER": site, "CHAT": urlsplit(chat).netloc}
    return Process("the chat", chat, [f"{RESOURCES}/examples/space_game/chat.py"], environment)


def game_process(
    store: Storage, site: str, game: str, chat: str, folder: str, scores: dict[int, int]
) -> Process:
    """Register the Space Game, listed on the home page, and save its scores. Return its process."""
    client, secret = store.clients.register(
        "Space Game",
        [f"{game}/"],  # where it can be played as well
        owner_id=store.users.find_by_login(GAME_OWNER).id,
        game_url=f"{game}/",
        description="A minute of falling stars, and of rocks.",
        listed=True,
    )
    environment = app_environment(site, game, client, secret)
    environment |= {"ORIGIN": game, "CHAT": urlsplit(chat).netloc}
    environment["SCORES"] = f"{folder}/scores.json"
    with open(environment["SCORES"], "w") as file:
        json.dump(scores, file)
    return Process("the game", game, [f"{RESOURCES}/examples/space_game/backend.py"], environment)


def app_environment(site: str, address: str, client: Client, secret: str) -> dict[str, str]:
    """Return the environment variables that both apps read."""
    parts = urlsplit(address)
    environment = {"SERVER": site, "HOST": parts.hostname, "PORT": str(parts.port)}
    return environment | {"CLIENT_ID": client.id, "CLIENT_SECRET": secret}


if __name__ == "__main__":
    sys.exit("Start it with: identity-server demo")
