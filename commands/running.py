"""`identity-server serve` and `settings`."""

import contextlib
import glob
import math
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import click

from commands import open_installation
from commands.address import kept_address
from commands.printing import escape
from identity.site.advice import (
    check_emails,
    check_environment,
    check_passkey_hosts,
    check_states,
    explain_loopback,
    passkey_note,
)
from identity.site.look import read_site_name
from identity.site.settings import ROOT, SETTINGS, read_settings
from model.errors import StorageError
from storage import Storage, mask_url
from storage.maintenance import Advice

BIND = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*):([0-9]{1,5})")
# How Python runs each server that serves this application.
SERVER_MODULES = {
    "gunicorn": ["gunicorn", f"--config={ROOT}/serving/gunicorn_config.py"],
    "granian": ["serving.granian_server"],
}
# The address for a browser on this machine, if the server listens on all addresses.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def read_address(ctx: click.Context, param: click.Parameter, text: str) -> tuple[str, int]:
    """Return the host and the port of a HOST:PORT. Raises BadParameter."""
    match = BIND.fullmatch(text)
    if not match or int(match[2]) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT, like 127.0.0.1:8000 or [::1]:8000")
    return match[1], int(match[2])


def read_workers(ctx: click.Context, param: click.Parameter, text: str) -> int:
    """Return the number of workers; "auto" is one for each usable core. Raises BadParameter."""
    return usable_cores() if text == "auto" else click.IntRange(1).convert(text, param, ctx)


def usable_cores(groups: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> int:
    """Return how many cores this process may keep busy.

    A container, or a unit of systemd with a CPUQuota, may have less time than all cores have:
    https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max. `groups` is the folder of all
    control groups, and the file `own` names that of this process.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with contextlib.suppress(OSError):  # another system
        lines = Path(own).read_text().splitlines()
        group = Path(groups + next((each[3:] for each in lines if each.startswith("0::")), ""))
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError):  # no limit can be set there
                quota, period = (folder / "cpu.max").read_text().split()
                if quota != "max":
                    cores = min(cores, math.ceil(int(quota) / int(period)))
    return cores


@contextlib.contextmanager
def kept_port(host: str, port: int) -> Iterator[int]:
    """Reserve a port, or any free one for 0, until the block ends. Raises ClickException.

    On Linux a server that sets SO_REUSEADDR, as gunicorn does, can listen on a reserved port, and
    the kernel gives it to no other process as a free one (socket(7)). A program that replaces this
    process by exec inherits the reservation.
    """
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host.strip("[]"), port))
        except OSError as error:
            # gunicorn would retry for five seconds and log each attempt.
            why = error.strerror.partition(" (")[0]
            refusal = f"cannot listen at {host}:{port} ({why}): choose another with --bind"
            raise click.ClickException(refusal) from error
        number = bound.getsockname()[1]
        bound.set_inheritable(True)
        if sys.platform != "linux":
            bound.close()  # elsewhere no server could listen on this port
        yield number


def settings_at(host: str, port: int) -> dict:
    """Return the settings; the default base URL is this address, or loopback for all addresses."""
    if "IDENTITY_BASE_URL" in os.environ:
        return read_settings()
    return read_settings({"BASE_URL": f"http://{LOOPBACK.get(host, host)}:{port}"})


def bind_option(help: str) -> Callable:
    """Return a decorator that adds --bind, which passes a host and a port to the command."""
    default = "127.0.0.1:8000"
    return click.option(
        "--bind", metavar="HOST:PORT", callback=read_address, default=default, help=help
    )


def server_option(help: str) -> Callable:
    """Return a decorator that adds --server, which passes a name in SERVER_MODULES."""
    return click.option(
        "--server", type=click.Choice([*SERVER_MODULES]), default="gunicorn", help=help
    )


@click.command()
@bind_option("Where the server listens.")
@click.option(
    "--workers",
    metavar="N|auto",
    callback=read_workers,
    default="auto",
    help="Processes; by default one for each core that the server may use.",
)
@click.option("--threads", metavar="N", type=click.IntRange(1), default=12, help="In each process.")
@server_option("granian is faster; only for behind nginx.")
def serve(bind: tuple[str, int], workers: int, threads: int, server: str) -> None:
    """Run the server until it is stopped.

    Each request is logged in one line on standard output. If IDENTITY_BASE_URL is not set, the
    server answers at the address of --bind only: at 127.0.0.1 for 0.0.0.0 and at [::1] for [::],
    which listen on all addresses of this machine. While it runs, other commands print links with
    its address.
    """
    if server == "granian":
        import_module("serving.granian_server")  # exits with one line if granian cannot be used
    store = open_installation()
    is_new = store.users.is_new()  # before anything is printed: a database may be away
    host, port = bind[0], click.get_current_context().with_resource(kept_port(*bind))
    values = settings_at(host, port)
    click.echo(f"{read_site_name(store, values)} is at {values['BASE_URL']}/")
    problems = check_environment(values, (host, port), server)
    for each in problems:
        click.echo(f"Warning: {each.problem}.", err=True)
    if problems:
        option = "" if server == "gunicorn" else f" --server {server}"
        click.echo(f"How to fix it: identity-server settings{option}", err=True)
    if is_new:
        offer_first_account(store, values["BASE_URL"])
    for sentence in explain_loopback(values["BASE_URL"]):
        click.echo(sentence)
    store.close()
    try:  # until the server ends
        click.get_current_context().with_resource(kept_address(values))
    except OSError as error:  # on a full disk the server starts nevertheless
        problem = f"other commands cannot find this address ({error.strerror})"
        click.echo(f"Warning: {problem}: set IDENTITY_BASE_URL for them.", err=True)
    # Absolute paths, and our folder: the server imports from the current folder, where the
    # administrator may have another wsgi.py or storage/.
    passed = {f"IDENTITY_{each}": values[each] for each in ("DATA_DIR", "PICTURE_DIR", "BASE_URL")}
    os.chdir(ROOT)
    # Memory that an upload freed returns to the system, whichever thread it was in: mallopt(3).
    variables = {"MALLOC_MMAP_THRESHOLD_": str(128 * 2**10)} | os.environ | passed
    if values["METRICS"] != "off":
        variables["PROMETHEUS_MULTIPROC_DIR"] = make_metrics_folder()
    options = [f"--bind={host}:{port}", f"--workers={workers}", f"--threads={threads}"]
    program = [sys.executable, "-m", *SERVER_MODULES[server]]
    os.execve(sys.executable, [*program, *options, "wsgi:application"], variables)


def make_metrics_folder() -> str:
    """Return a new folder for the metrics of the workers, in memory if the system has a place.

    Folders of servers that have ended are removed. A folder's name has the id of this process,
    which `serve` turns into the server by exec.
    """
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    for path in glob.glob(f"{place}/identity-server-*-*"):
        is_running = os.path.exists(f"/proc/{path.split('-')[-2]}")
        if os.stat(path, follow_symlinks=False).st_uid == os.geteuid() and not is_running:
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"identity-server-{os.getpid()}-", dir=place)


def offer_first_account(store: Storage, base_url: str) -> None:
    """Print how to create the first account, an administrator's."""
    # Imports Flask, which other starts do not need.
    from identity.access.links import issue_first_account_link

    click.echo("Nobody has an account yet. Create the first one, the administrator's, here:")
    click.echo(f"  {issue_first_account_link(store, base_url)}")
    # IDENTITY_STORAGE may hold a password, and is left out of the command.
    same = ", with the same IDENTITY_STORAGE" if "IDENTITY_STORAGE" in os.environ else ""
    click.echo(f"or in another terminal{same}:")
    folders = [each for each in ("IDENTITY_DATA_DIR", "IDENTITY_PICTURE_DIR") if each in os.environ]
    folders = [f"{each}={shlex.quote(os.environ[each])}" for each in folders]
    command = " ".join([*folders, shlex.quote(sys.argv[0])])
    click.echo(f"  {command} user add YOUR_NAME --email YOUR_EMAIL --mod-level 2")


@click.command()
@bind_option("Where the server listens.")
@server_option("The server that `serve` runs.")
def settings(bind: tuple[str, int], server: str) -> None:
    """Print each setting, its origin, and what looks wrong with the fix.

    Give the --bind and --server that you give `serve`: they are compared with the settings.

    Settings are environment variables. These five matter first; docs/settings.md has all:

    \b
    IDENTITY_BASE_URL   where people reach the server, such as https://id.example.org
    IDENTITY_SITE_NAME  what the pages call this site
    IDENTITY_SIGN_UP    who may create an account: open, approval, invite or closed
    IDENTITY_SMTP_URL   the mail server, for lost passwords
    IDENTITY_OPENID     on for a forum, a wiki or a chat
    """
    values = settings_at(*bind)
    for name, setting in SETTINGS.items():
        origin = "environment" if f"IDENTITY_{name}" in os.environ else "default"
        value = mask_url(values[name]) if name in ("STORAGE", "SMTP_URL") else values[name]
        if name == "METRICS" and value not in ("on", "off"):
            value = "***"
        click.echo(f"IDENTITY_{name}={value}  ({origin})\n    {setting.help}")
    for each in [*check_environment(values, bind, server), *check_records(values)]:
        click.echo(escape(f"\nWarning: {each.problem}.\n    Fix: {each.fix}."))
    if note := passkey_note(values["BASE_URL"]):
        click.echo(f"\nNote: {note}.")


def check_records(values: dict) -> list[Advice]:
    """Return what looks wrong with the settings by the records, [] if these cannot be read."""
    if values["STORAGE"] == "files" and not os.path.isdir(values["DATA_DIR"]):
        return []  # opening it would make it
    with contextlib.suppress(StorageError):  # other commands say what is wrong
        store = open_installation()
        hosts = check_passkey_hosts(store, values["BASE_URL"])
        return [*hosts, *check_states(store, values), *check_emails(store, values)]
    return []
