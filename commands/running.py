"""`identity-server serve` and `settings`."""

import contextlib
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Iterator

import click

from commands import open_installation
from commands.advice import Advice, look_for_problems
from identity.links import issue_first_account_link
from identity.settings import ROOT, SETTINGS, read_settings

ADDRESS = re.compile(
    r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*):([0-9]{1,5})"
)
LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # what a browser here types for all addresses


def usable_cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_address(ctx: click.Context, param: click.Parameter, text: str) -> tuple[str, int]:
    """The host and the port of a HOST:PORT. Raises BadParameter."""
    match = ADDRESS.fullmatch(text)
    if not match or int(match[2]) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, like 127.0.0.1:8000 or [::1]:8000")
    return match[1], int(match[2])


@contextlib.contextmanager
def kept_port(host: str, port: int) -> Iterator[int]:
    """The port, or any free one for 0. Raises ClickException where another program listens there.

    On Linux it is kept until the block ends: a server that sets SO_REUSEADDR, as ours do, may
    listen there, and no other program is given it as a free one (socket(7)).
    """
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host.strip("[]"), port))
        except OSError as error:
            # Gunicorn would tell of it in ten lines.
            why = error.strerror.partition(" (")[0]
            refusal = f"cannot listen at {host}:{port} ({why}): choose another with --bind"
            raise click.ClickException(refusal) from error
        number = bound.getsockname()[1]
        if sys.platform != "linux":
            bound.close()  # else no server could listen there
        yield number


def this_command() -> str:
    """What to type in another terminal to call this command again, on the same folders."""
    called = sys.argv[0]
    if shutil.which(os.path.basename(called)) == called:
        called = os.path.basename(called)
    folders = [each for each in ("IDENTITY_DATA_DIR", "IDENTITY_PICTURE_DIR") if each in os.environ]
    folders = [f"{each}={shlex.quote(os.environ[each])}" for each in folders]
    return " ".join([*folders, shlex.quote(called)])


def default_base_url(host: str, port: int) -> str:
    """Where the server is for a browser on this machine: nothing else is known of it."""
    return f"http://{LOOPBACK.get(host, host)}:{port}"


def bind_option(help: str) -> Callable:
    """A decorator: the option --bind, which gives the command a host and a port."""
    default = "127.0.0.1:8000"
    return click.option(
        "--bind", metavar="HOST:PORT", callback=read_address, default=default, help=help
    )


@click.command()
@bind_option("Where the server listens.")
@click.option(
    "--workers", metavar="N", type=click.IntRange(1), help="Processes; one for each core."
)
@click.option("--threads", metavar="N", type=click.IntRange(1), default=12, help="In each process.")
def serve(bind: tuple[str, int], workers: int | None, threads: int) -> None:
    """Run the server until it is stopped.

    Each request is one line on standard output. Where IDENTITY_BASE_URL is not set, the server
    answers at the address of --bind and no other; at 127.0.0.1 or [::1] where that is 0.0.0.0 or
    [::], which listen on all of this machine's addresses.
    """
    store = open_installation()
    host = bind[0]
    with kept_port(*bind) as port:
        pass  # gunicorn takes it in a moment
    command = this_command()
    os.environ.setdefault("IDENTITY_BASE_URL", default_base_url(host, port))
    values = read_settings()
    click.echo(f"{values['SITE_NAME']} is at {values['BASE_URL']}/")
    warn(look_for_problems(values, (host, port)))
    if store.is_new():
        link = issue_first_account_link(store, values["BASE_URL"])
        click.echo("Nobody has an account yet. Make the first one, the administrator's, here:")
        click.echo(f"  {link}")
        click.echo("or in another terminal:")
        click.echo(f"  {command} user add YOUR_NAME --email YOUR_EMAIL --mod-level 2")
    # Gunicorn imports from the folder that it runs in. Ours: a wsgi.py, or a folder named storage,
    # that lies where the administrator happens to stand is not what they meant.
    os.environ.update({f"IDENTITY_{each}": values[each] for each in ("DATA_DIR", "PICTURE_DIR")})
    # What an upload took goes back to the system, whichever thread it was in: mallopt(3).
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(128 * 2**10))
    os.chdir(ROOT)
    options = [f"--config={ROOT}/identity/gunicorn_config.py", f"--bind={host}:{port}"]
    options += [f"--workers={workers or usable_cores()}", f"--threads={threads}"]
    os.execv(sys.executable, [sys.executable, "-m", "gunicorn", *options, "wsgi:application"])


def warn(problems: list[Advice]) -> None:
    """Say what looks wrong, a line each, on standard error."""
    for each in problems:
        click.echo(f"Warning: {each.problem}.", err=True)
    if problems:
        click.echo("What to do about it: identity-server settings", err=True)


@click.command()
@bind_option("Where the server listens.")
def settings(bind: tuple[str, int]) -> None:
    """Print each setting, its origin, and what looks wrong.

    With the --bind that `serve` has, that is held against the base URL.
    """
    origins = {each: "environment" for each in SETTINGS if f"IDENTITY_{each}" in os.environ}
    os.environ.setdefault("IDENTITY_BASE_URL", default_base_url(*bind))
    values = read_settings()
    for name, setting in SETTINGS.items():
        origin = origins.get(name, "default")
        click.echo(f"IDENTITY_{name}={values[name]}  ({origin})\n    {setting.help}")
    for each in look_for_problems(values, bind):
        click.echo(f"\nWarning: {each.problem}.\n    Fix: {each.fix}.")
