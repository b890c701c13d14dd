"""`identity-server demo`: a community, a web app and a game, which last until Ctrl-C."""

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

import storage
from commands.community import COMMUNITY, MAKER
from commands.running import LOOPBACK, bind_option, kept_port
from identity.passwords import hash_password
from identity.settings import RESOURCES, ROOT
from storage.pictures import make_picture

SITE_NAME = "Five Friends"
PASSWORD = "five friends play"
MINUTE = 60_000  # milliseconds
OTHER_NAME = {"127.0.0.1": "localhost", "localhost": "127.0.0.1"}
SERVE = ["-c", "from identity_admin import main; main()", "serve", "--workers=2"]
STOP_TIMEOUT = 10  # seconds between SIGTERM and SIGKILL
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: its terminal was closed


@click.command()
@bind_option("Where to listen: each program takes the first free port from this one on.")
def demo(bind: tuple[str, int]) -> None:
    """Show a small community with a web app and a game, until Ctrl-C.

    All is kept in a temporary folder, which goes at the end. No setting of yours is read.
    """
    # Looked at between two steps: an exception in the middle of one could leave a process behind.
    signals: list[int] = []
    for each in STOP_SIGNALS:
        signal.signal(each, lambda number, _: signals.append(number))
    with (
        tempfile.TemporaryDirectory(prefix="identity-server-demo-") as folder,
        contextlib.ExitStack() as running,
    ):
        site, app, game = choose_addresses(*bind, running)
        click.echo(f"Five players move into {folder} ...")
        store = storage.open_storage(f"{folder}/data", f"{folder}/pictures")
        scores = move_in(store)
        click.echo("A web app and a game join them ...")
        programs = [
            server_program(folder, site, bind[0]),
            app_program(store, site, app),
            game_program(store, site, game, folder, scores),
        ]
        for program in programs:
            program.start()
            running.callback(program.stop)
        while not signals and not all(program.answers() for program in programs):
            time.sleep(0.05)
        if not signals:
            tell(store, site, app)
        while not signals:
            time.sleep(0.1)
            for program in programs:
                program.check()
        click.echo("\nThe programs end, and the folder goes.")


# -- the community ------------------------------------------------------------------------------


def move_in(store: storage.Storage) -> dict[int, int]:
    """Make the accounts of the community; the best score in the game of each, by id."""
    password_hash = hash_password(PASSWORD)  # once: it takes a third of a second
    with ThreadPoolExecutor() as pool:  # each picture is made in a process of its own
        pictures = pool.map(make_picture, [member.picture() for member in COMMUNITY])
    scores = {}
    for member, picture in zip(COMMUNITY, pictures, strict=True):
        email = f"{member.name}@example.org"
        user = store.add_user(member.name, email, password_hash, member.mod_level)
        store.save_picture(user.id, picture)
        with store.edit_user(user.id) as edited:
            edited.bio = member.bio
            edited.flairs = list(dict.fromkeys(("none", member.flair)))
            edited.equipped_flair = member.flair
            edited.play_ms = member.play_minutes * MINUTE
            edited.last_heartbeat = storage.now_ms() - member.seen * MINUTE
        scores[user.id] = member.score
    return scores


def tell(store: storage.Storage, site: str, app: str) -> None:
    """Print where everything is."""
    game = store.games(listed=True)[0]
    *names, last = (member.name for member in COMMUNITY)
    click.echo(f"""
{SITE_NAME} is ready:

  the community     {site}/
  the Space Game    {site}/play/{game.id}
  a web app         {app}/  (it shows each message of a sign-in)

Sign in as {", ".join(names)} or {last}; ada is the administrator, bruno a moderator.
The password of all five is: {PASSWORD}

Ctrl-C ends it, and leaves nothing.""")


# -- the programs -------------------------------------------------------------------------------


@dataclass
class Program:
    """A Python program that runs beside this one."""

    name: str
    address: str
    arguments: list[str]
    environment: dict[str, str]
    process: subprocess.Popen | None = None

    def start(self) -> None:
        """Start it, and return at once."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("IDENTITY_", "GUNICORN_"))
        }
        self.process = subprocess.Popen(
            [sys.executable, *self.arguments],
            cwd=ROOT,
            env=inherited | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C reaches the terminal's own group alone; `stop` ends this one
        )

    def check(self) -> None:
        """Raise ClickException where it ended."""
        if self.process.poll() is not None:
            raise click.ClickException(f"{self.name} ended with status {self.process.returncode}")

    def answers(self) -> bool:
        """True once its page can be opened. Raises ClickException where it ended."""
        self.check()
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        return False

    def stop(self) -> None:
        """End it, and return when it has ended."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def choose_addresses(host: str, port: int, running: contextlib.ExitStack) -> list[str]:
    """Where the server, the web app and the game will be; their ports are kept while it is running.

    Raises BadParameter, ClickException.
    """
    host = LOOPBACK.get(host, host)
    # The two need another name of this machine: browsers send a host's cookies to all of its ports,
    # and what signs a player in here is not for them.
    if host not in OTHER_NAME:
        raise click.BadParameter("the demo needs 127.0.0.1 or localhost", param_hint="--bind")
    beside = OTHER_NAME[host]
    addresses = []
    for each in (host, beside, beside):
        port = keep_first_free_port(each, port, running)
        addresses.append(f"http://{each}:{port}")
        port += 1
    return addresses


def keep_first_free_port(host: str, port: int, running: contextlib.ExitStack) -> int:
    """The first port from this one on that nobody uses; any for 0. Raises ClickException."""
    for number in range(port, 65536):
        try:
            return running.enter_context(kept_port(host, number))
        except click.ClickException as error:
            if error.__cause__.errno != errno.EADDRINUSE:
                raise
    raise click.ClickException(f"no port is free from {port} on: choose another with --bind")


def server_program(folder: str, site: str, host: str) -> Program:
    """The identity server, on this folder."""
    settings = {
        "IDENTITY_DATA_DIR": f"{folder}/data",
        "IDENTITY_PICTURE_DIR": f"{folder}/pictures",
        "IDENTITY_BASE_URL": site,
        "IDENTITY_SITE_NAME": SITE_NAME,
        "IDENTITY_SIGN_UP": "open",
        "IDENTITY_CLIENT_REGISTRATION": "members",
        # At the end it waits two seconds for who is looking, not half a minute.
        "GUNICORN_CMD_ARGS": "--log-level=warning --graceful-timeout=2",
    }
    return Program("the server", site, [*SERVE, f"--bind={host}:{urlsplit(site).port}"], settings)


def app_program(store: storage.Storage, site: str, app: str) -> Program:
    """The web app, registered."""
    client, secret = store.add_client("Web App", [f"{app}/callback"], owner_id=None)
    environment = example_environment(site, app, client, secret)
    return Program("the web app", app, [f"{RESOURCES}/examples/web_app.py"], environment)


def game_program(
    store: storage.Storage, site: str, game: str, folder: str, scores: dict[int, int]
) -> Program:
    """The Space Game, registered and listed, with the scores it has so far."""
    client, secret = store.add_client(
        "Space Game",
        [],
        owner_id=store.find_user(MAKER).id,
        game_url=f"{game}/",
        description="A minute of falling stars, and of rocks.",
        listed=True,
    )
    environment = example_environment(site, game, client, secret)
    environment["ORIGIN"] = game
    environment["SCORES"] = f"{folder}/scores.json"
    with open(environment["SCORES"], "w") as file:
        json.dump(scores, file)
    return Program("the game", game, [f"{RESOURCES}/examples/space_game/backend.py"], environment)


def example_environment(
    site: str, address: str, client: storage.Client, secret: str
) -> dict[str, str]:
    """What both examples read."""
    parts = urlsplit(address)
    environment = {"SERVER": site, "HOST": parts.hostname, "PORT": str(parts.port)}
    return environment | {"CLIENT_ID": client.id, "CLIENT_SECRET": secret}
