"""A community, a web app and games that run until Ctrl-C: started by `identity-server demo`.

It uses the server as its administrator would: it creates an installation in a temporary folder or
in an empty database, registers the apps of `examples/` there, and runs all as processes.
"""

import contextlib
import errno
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import click
from community import COMMUNITY
from story import GAMES, HEARTBEAT_EVERY, PLOTS, SPACE_GAME, Story

from commands.running import kept_port
from identity.access.passwords import hash_password
from identity.site.settings import RESOURCES, ROOT
from model.records import User
from storage import Storage, mask_url, open_storage

SITE_NAME = "Sunday Friends"
PASSWORD = "sunday friends play"
# Passkeys need the site to have a name. The apps need another one: browsers send a host's cookies
# to all of its ports (RFC 6265 8.5), and the session cookie of the site is not for the apps.
SITE_HOST, LOOPBACK = "localhost", "127.0.0.1"
HOSTS = (SITE_HOST, LOOPBACK, "0.0.0.0")  # of --bind; the demo listens at LOOPBACK alone
TINY_GAMES = [game for game in GAMES if game.script]
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
        at = choose_addresses(host, port, cleanup)
        store = open_empty(folder, url)
        place = folder if url == "files" else mask_url(url)
        click.echo(f"Twelve players move into {place} ...")
        story = Story(store, add_players(store))
        processes = add_programs(folder, url, at, story)
        for process in processes:
            process.start()
            cleanup.callback(process.stop)
        while not signals and not all(process.is_ready() for process in processes):
            time.sleep(0.05)
        if not signals:
            print_addresses(at)
            leaves = "nothing" if url == "files" else "the community in the database"
            click.echo(f"\nCtrl-C ends it, and leaves {leaves}.")
        run_until(signals, processes, story)
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


def add_players(store: Storage) -> list[User]:
    """Add the players of the community, with their pictures, and return them."""
    password_hash = hash_password(PASSWORD)  # once: it takes a third of a second
    users = []
    for member in COMMUNITY:
        email = f"{member.name}@example.org" if member.name.isascii() else ""
        users.append(store.users.register(member.name, email, password_hash, member.mod_level))
        store.pictures.save(users[-1].id, member.pictures())
    return users


def print_addresses(at: dict[str, str]) -> None:
    """Print what to open, and as whom."""
    click.echo(f"""
{SITE_NAME} is ready:

  site      {at["site"]}/
  game      {at["site"]}/play/{SPACE_GAME.id}
  web app   {at["app"]}/
  letters   {at["letters"]}/demo/letters
  sign in   as ada, the administrator; bruno, a moderator; or chidi, a player
  password  {PASSWORD}""")


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


def add_programs(folder: str, url: str, at: dict[str, str], story: Story) -> list[Process]:
    """Register the games and the web app, and add the past. Return all processes to start."""
    secret = story.add_all({game.script: f"{at[game.name]}/" for game in GAMES})
    click.echo("Seven games and a web app join them ...")
    return [
        server_process(folder, url, at),
        app_process(story.store, at),
        chat_process(at),
        game_process(at, secret, folder, story),
        tiny_games_process(at),
        letters_process(at),
    ]


def run_until(signals: list[int], processes: list[Process], story: Story) -> None:
    """Let the players play until `signals` has one. Raises ClickException if a process ends."""
    heartbeat = time.monotonic()
    while not signals:
        time.sleep(0.1)
        for process in processes:
            process.check()
        if time.monotonic() > heartbeat + HEARTBEAT_EVERY:
            heartbeat = time.monotonic()
            story.play()


def choose_addresses(host: str, port: int, cleanup: contextlib.ExitStack) -> dict[str, str]:
    """Return the base URLs of the site, of the apps and games by name, and of the mail server.

    Their ports are reserved until `cleanup` is closed. Raises BadParameter, ClickException.
    """
    if host not in HOSTS:
        raise click.BadParameter("the demo needs 127.0.0.1 or localhost", param_hint="--bind")
    addresses = {}
    for name in ("site", "app", "letters", *(game.name for game in GAMES), "chat", "mail"):
        port = reserve_first_free_port(port, cleanup)
        addresses[name] = f"http://{SITE_HOST if name == 'site' else LOOPBACK}:{port}"
        port += 1
    return addresses


def reserve_first_free_port(port: int, cleanup: contextlib.ExitStack) -> int:
    """Return the first free port from `port` on; any free port for 0. Raises ClickException."""
    for number in range(port, 65536):
        if is_taken_at_ipv6(number):
            continue
        try:
            return cleanup.enter_context(kept_port(LOOPBACK, number))
        except click.ClickException as error:
            if error.__cause__.errno != errno.EADDRINUSE:
                raise
    raise click.ClickException(f"no port is free from {port} on: choose another with --bind")


def is_taken_at_ipv6(port: int) -> bool:
    """Return True if another program listens at ::1, where browsers look for localhost first."""
    try:
        socket.create_server(("::1", port), family=socket.AF_INET6).close()
    except OSError as error:  # another one says that this machine has no IPv6
        return error.errno == errno.EADDRINUSE
    return False


def server_process(folder: str, url: str, at: dict[str, str]) -> Process:
    """Return the identity server's process, with its data in this folder or at the URL."""
    settings = {
        "IDENTITY_STORAGE": url,  # not an argument, which other users of the machine can see
        "IDENTITY_DATA_DIR": f"{folder}/data",
        "IDENTITY_PICTURE_DIR": f"{folder}/pictures",
        "IDENTITY_BASE_URL": at["site"],
        "IDENTITY_SITE_NAME": SITE_NAME,
        "IDENTITY_SIGN_UP": "open",
        "IDENTITY_CLIENT_REGISTRATION": "members",
        "IDENTITY_SMTP_URL": f"smtp+cleartext://{urlsplit(at['mail']).netloc}",
        "IDENTITY_MAIL_FROM": "friends@example.org",
        # At the end it waits five seconds for open requests, not half a minute.
        "GUNICORN_CMD_ARGS": "--log-level=warning --graceful-timeout=5",
    }
    bind = f"--bind={LOOPBACK}:{urlsplit(at['site']).port}"
    return Process("the server", at["site"], [*SERVE, bind], settings)


def app_process(store: Storage, at: dict[str, str]) -> Process:
    """Register the web app. Return its process."""
    client, secret = store.clients.register("Web App", [f"{at['app']}/callback"], owner_id=None)
    environment = app_environment(at["site"], at["app"], client.id, secret)
    return example_process("the web app", at["app"], "web_app.py", environment)


def chat_process(at: dict[str, str]) -> Process:
    """Return the process of the Space Game's chat, which needs no client: it checks tickets."""
    environment = {"SERVER": at["site"], "CHAT": urlsplit(at["chat"]).netloc}
    return example_process("the chat", at["chat"], "space_game/chat.py", environment)


def game_process(at: dict[str, str], secret: str, folder: str, story: Story) -> Process:
    """Save the best scores of the Space Game. Return its process."""
    address = at[SPACE_GAME.name]
    environment = app_environment(at["site"], address, SPACE_GAME.id, secret)
    environment |= {"ORIGIN": address, "CHAT": urlsplit(at["chat"]).netloc}
    environment["SCORES"] = f"{folder}/scores.json"
    with open(environment["SCORES"], "w") as file:
        flown = (member for member in COMMUNITY if member.score)
        json.dump({story.ids[member.name]: member.score for member in flown}, file)
    return example_process("the game", address, "space_game/backend.py", environment)


def tiny_games_process(at: dict[str, str]) -> Process:
    """Return the process of all tiny games."""
    ports = {each.name: urlsplit(at[each.name]).port for each in TINY_GAMES}
    games = [f"{each.script}:{ports[each.name]}:{each.id}:{each.name}" for each in TINY_GAMES]
    environment = {"SERVER": at["site"], "PLOTS": json.dumps(PLOTS)}
    name = "tiny_games/tiny_games.py"
    return example_process("the tiny games", at[TINY_GAMES[-1].name], name, environment, *games)


def letters_process(at: dict[str, str]) -> Process:
    """Return the process that takes the letters, and shows them."""
    environment = {"PAGE": urlsplit(at["letters"]).netloc, "SMTP": urlsplit(at["mail"]).netloc}
    return example_process("the mailbox", at["letters"], "demo/letters.py", environment)


def example_process(
    name: str, address: str, program: str, environment: dict[str, str], *arguments: str
) -> Process:
    """Return the process of a program in `examples/`."""
    return Process(name, address, [f"{RESOURCES}/examples/{program}", *arguments], environment)


def app_environment(site: str, address: str, client_id: str, secret: str) -> dict[str, str]:
    """Return the environment variables that the web app and the Space Game read."""
    parts = urlsplit(address)
    environment = {"SERVER": site, "HOST": parts.hostname, "PORT": str(parts.port)}
    return environment | {"CLIENT_ID": client_id, "CLIENT_SECRET": secret}


if __name__ == "__main__":
    sys.exit("Start it with: identity-server demo")
