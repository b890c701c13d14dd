"""The command `client`: registering games and sites that ask who a player is."""

import sys

import click

import storage
from commands import BY, open_installation, read_user_named
from commands.printing import json_option, print_record, print_records, readable_records

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


@click.group("client")
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
