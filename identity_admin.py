"""The `identity-server` command: arguments, prompts and printing.

What it does is done elsewhere: settings are checked by `identity_settings`, records kept by
`storage`, requests answered by gunicorn. Exit status 0: done; 1: refused, and one line on standard
error says why; 2: wrong usage. With `--json` standard output has the record, or an array of them,
and nothing else.
"""

import dataclasses
import json
import os
import re
import shlex
import shutil
import socket
import sys
import time

import click

import storage
from identity_server import public_profile
from identity_sessions import hash_password
from identity_settings import ROOT, SETTINGS, SettingError, read_settings

BY = "command"  # who did it, in the audit log
TIMES = ("created", "lastHeartbeat")  # milliseconds since 1970, printed as dates
ADDRESS = re.compile(
    r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*):([0-9]{1,5})"
)
LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # what a browser here types for all addresses

# -- what all commands share --------------------------------------------------------------------


class Refusing(click.Group):
    """A group whose commands tell what was refused in one line, with exit status 1."""

    def invoke(self, ctx: click.Context):
        try:
            return super().invoke(ctx)
        except storage.InvalidField as error:
            words = error.field.replace("_", " ").replace("uri", "URI")
            joint = " " if error.problem[0].isalpha() else ": "
            raise click.ClickException(words + joint + error.problem) from error
        except (storage.StorageError, SettingError) as error:
            raise click.ClickException(" ".join(str(error).split())) from error


@click.group(cls=Refusing, context_settings={"show_default": True})
def commands() -> None:
    """Run and administer an identity server for a games community.

    Its settings are environment variables whose names start with IDENTITY_; `settings` prints them.
    """


def main() -> None:
    """The `identity-server` command."""
    # A character that the terminal's encoding lacks is shown escaped, without a traceback.
    sys.stdout.reconfigure(errors="backslashreplace")
    commands()


def open_installation() -> storage.Storage:
    """The storage that the settings point at."""
    values = read_settings()
    return storage.open_storage(values["DATA_DIR"], values["PICTURE_DIR"])


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


def print_record(record: dict, as_json: bool) -> None:
    """Print one record, a line for each field."""
    if as_json:
        return click.echo(json.dumps(record, indent=2))
    width = max(map(len, record)) + 2
    for field, value in record.items():
        click.echo(f"{field:{width}}{in_words(field, value)}".replace("\n", "\n" + " " * width))


def print_records(records: list[dict], columns: list[str], as_json: bool) -> None:
    """Print records, a line for each, with some of their fields in columns."""
    if as_json:
        return click.echo(json.dumps(records, indent=2))
    rows = [columns, *([in_words(each, record[each]) for each in columns] for record in records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


def in_words(field: str, value: object) -> str:
    """A field's value for people."""
    if isinstance(value, bool | None):
        return {None: "-", True: "yes", False: "no"}[value]
    if field in TIMES:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(value / 1000))
    return "\n".join(value) if isinstance(value, list) else str(value) or "-"


# -- serve, settings ----------------------------------------------------------------------------


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


def free_port(host: str, port: int) -> int:
    """The port, or any free one for 0. (Gunicorn would tell of a taken one in ten lines.)"""
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        with socket.create_server((host.strip("[]"), port), family=family) as server:
            return server.getsockname()[1]
    except OSError as error:
        why = error.strerror.partition(" (")[0]
        refusal = f"cannot listen at {host}:{port} ({why}): choose another with --bind"
        raise click.ClickException(refusal) from error


def this_command() -> str:
    """What to type in another terminal to call this command again, on the same folders."""
    called = sys.argv[0]
    if shutil.which(os.path.basename(called)) == called:
        called = os.path.basename(called)
    folders = [each for each in ("IDENTITY_DATA_DIR", "IDENTITY_PICTURE_DIR") if each in os.environ]
    folders = [f"{each}={shlex.quote(os.environ[each])}" for each in folders]
    return " ".join([*folders, shlex.quote(called)])


@commands.command()
@click.option(
    "--bind",
    metavar="HOST:PORT",
    callback=read_address,
    default="127.0.0.1:8000",
    help="Where to listen.",
)
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
    host, port = bind[0], free_port(*bind)
    command = this_command()
    os.environ.setdefault("IDENTITY_BASE_URL", f"http://{LOOPBACK.get(host, host)}:{port}")
    values = read_settings()
    click.echo(f"{values['SITE_NAME']} is at {values['BASE_URL']}/")
    if not store.user_ids():
        click.echo("Nobody has an account yet. In another terminal, make the administrator's:")
        click.echo(f"  {command} user add YOUR_NAME --email YOUR_EMAIL --mod-level 2")
    # Gunicorn imports from the folder that it runs in. Ours: a wsgi.py, or a folder named storage,
    # that lies where the administrator happens to stand is not what they meant.
    os.environ.update({f"IDENTITY_{each}": values[each] for each in ("DATA_DIR", "PICTURE_DIR")})
    os.chdir(ROOT)
    options = [f"--config={ROOT}/deploy/gunicorn.conf.py", f"--bind={host}:{port}"]
    options += [f"--workers={workers or usable_cores()}", f"--threads={threads}"]
    os.execv(sys.executable, [sys.executable, "-m", "gunicorn", *options, "wsgi:application"])


@commands.command()
def settings() -> None:
    """Print each setting, where its value comes from, and its use."""
    values = read_settings()
    for name, setting in SETTINGS.items():
        origin = "environment" if f"IDENTITY_{name}" in os.environ else "default"
        click.echo(f"IDENTITY_{name}={values[name]}  ({origin})\n    {setting.help}")


# -- user ---------------------------------------------------------------------------------------

mod_level_option = click.option(
    "--mod-level", type=click.IntRange(0, 2), help="0 player, 1 moderator, 2 administrator."
)


def user_record(user: storage.User) -> dict:
    """A player as the command prints them."""
    return public_profile(user) | {"email": user.email, "suspended": user.suspended}


def read_user_named(store: storage.Storage, name: str) -> storage.User:
    """The player who bears this name or has this email address. Raises NoSuchUser."""
    user = store.find_user(name)
    if user is None:
        raise storage.NoSuchUser(f"there is no player {name!r}")
    return user


def check_wanted(store: storage.Storage, user: storage.User, fields: set[str]) -> None:
    """Raise now what storage would raise later: before a password is asked for, or half is done."""
    storage.check_record(user, fields)
    for field, taken in (("name", storage.NameTaken), ("email", storage.EmailTaken)):
        holder = store.find_user(getattr(user, field)) if field in fields else None
        if holder and holder.id != user.id:
            raise taken(getattr(user, field))


def read_password(from_stdin: bool) -> str:
    """The password that was prompted for, or the first line of standard input."""
    if not from_stdin and not sys.stdin.isatty():
        raise click.UsageError("No terminal to ask for a password at: give --password-stdin.")
    if not from_stdin:
        return click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise storage.InvalidField("password", "is not UTF-8") from error


def set_mod_level(store: storage.Storage, user: storage.User, mod_level: int) -> None:
    """Change it; this is moderation, so it is in the audit log before it is done."""
    store.write_audit("user mod-level", by=BY, user=user.id, mod_level=mod_level)
    with store.edit_user(user.id) as edited:
        edited.mod_level = mod_level


@commands.group("user")
def user_commands() -> None:
    """Add, list, show and change players."""


@user_commands.command("add")
@click.argument("name", type=storage.normal_name, metavar="NAME")
@click.option("--email", type=str.strip, metavar="EMAIL", required=True, help="Their address.")
@mod_level_option
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@json_option
def user_add(name: str, email: str, mod_level: int | None, password_stdin: bool, as_json: bool):
    """Add a player, with a password that is asked for.

    \b
    identity-server user add ada --email ada@example.org --mod-level 2
    """
    store = open_installation()
    check_wanted(store, storage.User(0, name, email, password_hash=""), {"name", "email"})
    password = read_password(password_stdin)
    problem = storage.check_password(password, name, email)
    if problem:
        raise storage.InvalidField("password", problem)
    user = store.add_user(name, email, hash_password(password))
    if mod_level:
        set_mod_level(store, user, mod_level)
    print_record(user_record(store.read_user(user.id)), as_json)


@user_commands.command("list")
@json_option
def user_list(as_json: bool) -> None:
    """List all players.

    A damaged record is named on standard error, the others are listed, and the exit status is 1.
    """
    store = open_installation()
    records, status = [], 0
    for user_id in store.user_ids():
        try:
            records.append(user_record(store.read_user(user_id)))
        except storage.NoSuchUser:
            continue  # deleted since
        except storage.StorageError as error:
            click.echo(f"Error: {error}", err=True)
            status = 1
    print_records(records, ["id", "name", "email", "modLevel", "suspended"], as_json)
    sys.exit(status)


@user_commands.command("show")
@click.argument("name", metavar="NAME")
@json_option
def user_show(name: str, as_json: bool) -> None:
    """Show one player, by NAME or email address."""
    print_record(user_record(read_user_named(open_installation(), name)), as_json)


@user_commands.command("set")
@click.argument("player", metavar="NAME")
@click.option("--name", type=storage.normal_name, metavar="NAME", help="A new name.")
@click.option("--email", type=str.strip, metavar="EMAIL", help="A new email address.")
@click.option("--bio", metavar="TEXT", help="What the profile says, up to 1,000 characters.")
@mod_level_option
@json_option
def user_set(player: str, as_json: bool, **options) -> None:
    """Change a player, by NAME or email address.

    \b
    identity-server user set ada --bio "Chess, mostly." --mod-level 1
    """
    wanted = {field: value for field, value in options.items() if value is not None}
    if not wanted:
        raise click.UsageError("Nothing to change: give --name, --email, --bio or --mod-level.")
    store = open_installation()
    user = read_user_named(store, player)
    check_wanted(store, dataclasses.replace(user, **wanted), set(wanted))
    if "name" in wanted:
        store.rename_user(user.id, wanted["name"])
    if "email" in wanted:
        store.change_email(user.id, wanted["email"])
    if "bio" in wanted:
        with store.edit_user(user.id) as edited:
            edited.bio = wanted["bio"]
    if wanted.get("mod_level", user.mod_level) != user.mod_level:
        set_mod_level(store, user, wanted["mod_level"])
    print_record(user_record(store.read_user(user.id)), as_json)


# -- client -------------------------------------------------------------------------------------

client_argument = click.argument("client_id", metavar="CLIENT_ID")


def client_record(store: storage.Storage, client: storage.Client) -> dict:
    """A client as the command prints it; its owner by the name that `--owner` takes."""
    names = {"id": "client_id", "owner_id": "owner"}
    record = {
        names.get(each, each): value for each, value in storage.record_as_dict(client).items()
    }
    del record["secret_sha256"]
    try:
        record["owner"] = client.owner_id and store.read_user(client.owner_id).name
    except storage.StorageError:
        record["owner"] = f"#{client.owner_id}"  # deleted or damaged; nobody can bear such a name
    return record


def print_secret(
    store: storage.Storage, client: storage.Client, secret: str, as_json: bool
) -> None:
    """Print a client with its secret, which nothing can print again."""
    print_record(client_record(store, client) | {"client_secret": secret}, as_json)
    if not as_json:
        click.echo("The secret is shown this once: keep it where the game's server can read it.")


def unique(redirect_uris: tuple[str, ...]) -> list[str]:
    """Each of them once, in the order in which they were given."""
    return list(dict.fromkeys(redirect_uris))


@commands.group("client")
def client_commands() -> None:
    """Register and change clients: games that ask who a player is."""


@client_commands.command("add")
@click.argument("name", type=str.strip, metavar="NAME")
@click.option("--redirect-uri", metavar="URI", multiple=True, required=True, help="Repeatable.")
@click.option("--owner", metavar="USER", help="The player who registers it; else administrators.")
@json_option
def client_add(name: str, redirect_uri: tuple[str, ...], owner: str | None, as_json: bool) -> None:
    """Register a client; its secret is printed this once.

    \b
    identity-server client add Chess --redirect-uri https://chess.example.org/callback
    """
    store = open_installation()
    owner_id = read_user_named(store, owner).id if owner else None
    client, secret = store.add_client(name, list(dict.fromkeys(redirect_uri)), owner_id, by=BY)
    print_secret(store, client, secret, as_json)


@client_commands.command("list")
@json_option
def client_list(as_json: bool) -> None:
    """List all clients."""
    store = open_installation()
    records = [client_record(store, client) for client in store.clients()]
    print_records(records, ["client_id", "name", "owner", "disabled"], as_json)


@client_commands.command("show")
@client_argument
@json_option
def client_show(client_id: str, as_json: bool) -> None:
    """Show one client, without its secret."""
    store = open_installation()
    print_record(client_record(store, store.read_client(client_id)), as_json)


@client_commands.command("set")
@client_argument
@click.option("--name", type=str.strip, metavar="NAME", help="A new name.")
@click.option("--redirect-uri", metavar="URI", multiple=True, help="Repeatable; replaces all.")
@click.option("--owner", metavar="USER", help="Another owner; '' for the administrators.")
@json_option
def client_set(client_id: str, as_json: bool, name, redirect_uri, owner) -> None:
    """Change a client.

    \b
    identity-server client set CLIENT_ID --name "Chess club" --owner ada
    """
    if name is None and owner is None and not redirect_uri:
        raise click.UsageError("Nothing to change: give --name, --redirect-uri or --owner.")
    store = open_installation()
    owner_id = read_user_named(store, owner).id if owner else None
    with store.edit_client(client_id) as client:
        client.name = client.name if name is None else name
        client.owner_id = client.owner_id if owner is None else owner_id
        client.redirect_uris = list(dict.fromkeys(redirect_uri)) or client.redirect_uris
    print_record(client_record(store, client), as_json)


@client_commands.command("new-secret")
@client_argument
@json_option
def client_new_secret(client_id: str, as_json: bool) -> None:
    """Give a client a new secret, printed this once; the old one ends."""
    store = open_installation()
    secret = store.issue_client_secret(client_id, by=BY)
    print_secret(store, store.read_client(client_id), secret, as_json)


@client_commands.command("disable")
@client_argument
def client_disable(client_id: str) -> None:
    """Give a client no more codes and tokens."""
    set_disabled(client_id, True)


@client_commands.command("enable")
@client_argument
def client_enable(client_id: str) -> None:
    """Let a disabled client go on."""
    set_disabled(client_id, False)


def set_disabled(client_id: str, disabled: bool) -> None:
    """Change it; this is moderation, so it is in the audit log before it is done."""
    store = open_installation()
    act = "disable" if disabled else "enable"
    with store.edit_client(client_id) as client:
        store.write_audit(f"client {act}", by=BY, client=client_id)
        client.disabled = disabled
    click.echo(f"{client.name} ({client_id}) is {act}d.")


@client_commands.command("delete")
@client_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
def client_delete(client_id: str, yes: bool) -> None:
    """Remove a client. There is no way back."""
    store = open_installation()
    client = store.read_client(client_id)
    if not yes:
        click.confirm(f"Delete {client.name} ({client_id})?", abort=True, err=True)
    store.delete_client(client_id, by=BY)
    click.echo(f"{client.name} ({client_id}) is deleted.")
