"""The `identity-server` command: arguments, prompts and printing.

What it does is done elsewhere: settings are checked by `identity_settings`, records kept by
`storage`, requests answered by gunicorn. Exit status 0: done; 1: refused, and one line on standard
error says why; 2: wrong usage. With `--json` standard output has the record, or an array of them,
and nothing else.
"""

import collections
import dataclasses
import functools
import json
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Callable

import click

import storage
from identity_printing import (
    audit_in_words,
    json_option,
    print_record,
    print_records,
    readable_records,
)
from identity_server import create_app, public_profile
from identity_sessions import hash_password, issue_first_account_link, issue_sign_in_link
from identity_settings import ROOT, SETTINGS, SettingError, read_settings
from pages.moderation import grant_flair, restore, revoke_flair, set_mod_level, suspend

BY = "command"  # who did it, in the audit log
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
            raise click.ClickException(f"{words} {error.problem}") from error
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
    if store.is_new():
        with create_app().app_context():
            link = issue_first_account_link()
        click.echo("Nobody has an account yet. Make the first one, the administrator's, here:")
        click.echo(f"  {link}")
        click.echo("or in another terminal:")
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
            raise taken


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
    storage.refuse("password", storage.check_password(password, name, email))
    user = store.add_user(name, email, hash_password(password))
    if mod_level:
        set_mod_level(store, user, mod_level, BY)
    print_record(user_record(store.read_user(user.id)), as_json)


@user_commands.command("list")
@json_option
def user_list(as_json: bool) -> None:
    """List all players.

    A damaged record is named on standard error, the others are listed, and the exit status is 1.
    """
    store = open_installation()
    records, status = readable_records(
        store.user_ids(), lambda user_id: user_record(store.read_user(user_id))
    )
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
        set_mod_level(store, user, wanted["mod_level"], BY)
    print_record(user_record(store.read_user(user.id)), as_json)


@user_commands.command("sign-in-link")
@click.argument("name", metavar="NAME")
@json_option
def user_sign_in_link(name: str, as_json: bool) -> None:
    """Print a link for a player who lost the password.

    It is good once, for an hour, and leads to a page that sets a new one. Give it to the player
    alone: whoever has it has the account.
    """
    store = open_installation()
    user = read_user_named(store, name)
    store.write_audit("user sign-in-link", by=BY, user=user.id)
    with create_app().app_context():
        link = issue_sign_in_link(user)
    click.echo(json.dumps({"id": user.id, "link": link}, indent=2) if as_json else link)
    if user.suspended:
        click.echo(f"{user.name} is suspended: the link works once they are restored.", err=True)


@user_commands.command("suspend")
@click.argument("name", metavar="NAME")
def user_suspend(name: str) -> None:
    """Stop a player from signing in.

    Their sessions and tokens end at once.
    """
    moderate(name, suspend, "is suspended")


@user_commands.command("restore")
@click.argument("name", metavar="NAME")
def user_restore(name: str) -> None:
    """Let a suspended player sign in again."""
    moderate(name, restore, "is restored")


def moderate(name: str, act: Callable, done: str) -> None:
    """Carry out an act of moderation, and say so."""
    store = open_installation()
    user = read_user_named(store, name)
    act(store, user, by=BY)
    click.echo(f"{user.name} {done}.")


@user_commands.command("delete")
@click.argument("name", metavar="NAME")
@click.option("--yes", is_flag=True, help="Do not ask.")
def user_delete(name: str, yes: bool) -> None:
    """Delete a player: the record, the name, the pictures. There is no way back."""
    store = open_installation()
    user = read_user_named(store, name)
    if not yes:
        click.confirm(f"Delete {user.name} (id {user.id})?", abort=True, err=True)
    store.write_audit("user delete", by=BY, user=user.id)
    store.delete_user(user.id)
    click.echo(f"{user.name} is deleted.")


# -- invite, flair, audit -----------------------------------------------------------------------


@commands.command()
@click.option("--days", metavar="N", type=click.IntRange(1, 365), default=7, help="Good so long.")
@click.option("--count", metavar="N", type=click.IntRange(1, 1000), default=1, help="How many.")
@json_option
def invite(days: int, count: int, as_json: bool) -> None:
    """Print links that make an account, each good once."""
    address = f"{read_settings()['BASE_URL']}/sign-up?invite="
    store = open_installation()
    links = [address + store.issue_invite(days, by=BY) for _ in range(count)]
    click.echo(json.dumps(links, indent=2) if as_json else "\n".join(links))


@commands.group("flair")
def flair_commands() -> None:
    """Grant and revoke flairs: words that players wear beside their names."""


@flair_commands.command("grant")
@click.argument("name", metavar="NAME")
@click.argument("flair", metavar="FLAIR")
def flair_grant(name: str, flair: str) -> None:
    """Give the player NAME a FLAIR, which they may then equip."""
    moderate(name, functools.partial(grant_flair, flair=flair), f"owns the flair {flair}")


@flair_commands.command("revoke")
@click.argument("name", metavar="NAME")
@click.argument("flair", metavar="FLAIR")
def flair_revoke(name: str, flair: str) -> None:
    """Take a FLAIR from the player NAME."""
    moderate(name, functools.partial(revoke_flair, flair=flair), f"lost the flair {flair}")


@flair_commands.command("list")
@json_option
def flair_list(as_json: bool) -> None:
    """List the flairs there are, and how many players own each."""
    store = open_installation()
    users, status = readable_records(store.user_ids(), store.read_user)
    owners = collections.Counter(flair for user in users for flair in user.flairs)
    records = [{"flair": flair, "players": owners[flair]} for flair in sorted(owners)]
    print_records(records, ["flair", "players"], as_json)
    sys.exit(status)


@commands.command()
@json_option
def audit(as_json: bool) -> None:
    """Print who did what about whom, when and from where, oldest first."""
    lines = list(open_installation().read_audit())
    if as_json:
        return click.echo(json.dumps(lines, indent=2))
    for line in lines:
        click.echo(audit_in_words(line))


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
    client, secret = store.add_client(name, unique(redirect_uri), owner_id, by=BY)
    print_secret(store, client, secret, as_json)


@client_commands.command("list")
@json_option
def client_list(as_json: bool) -> None:
    """List all clients.

    Where a record is damaged it lists the others, and the exit status is 1.
    """
    store = open_installation()
    records, status = readable_records(
        store.client_ids(), lambda client_id: client_record(store, store.read_client(client_id))
    )
    print_records(records, ["client_id", "name", "owner", "disabled"], as_json)
    sys.exit(status)


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
        client.redirect_uris = unique(redirect_uri) or client.redirect_uris
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
