"""The command `client`: registering and changing the apps that ask who a player is."""

import textwrap

import click

from commands import open_installation, printing, read_user_named
from commands.address import base_url_of_links, find_base_url
from commands.mail import authority_with_letters
from commands.printing import confirm, echo, json_option, print_record, print_records
from identity.acts import apps
from identity.acts.actors import COMMAND, Authority
from identity.oauth.programs import (
    Program,
    find_program_pages,
    find_warnings,
    program_of,
    read_named_program,
)
from identity.site.look import read_site_name
from identity.site.pasted import unwrap
from identity.site.settings import check_game, read_settings
from model.client_rules import TAGS, TAGS_LENGTH
from model.encoding import record_as_dict
from model.errors import StorageError
from model.records import Client
from model.rules import refuse
from storage import Storage

client_argument = click.argument("client_id", type=unwrap, metavar="CLIENT_ID")
description_option = click.option(
    "--description", type=str.strip, metavar="TEXT", help="What players read about its game."
)
TAG_HELP = f"What its game is, up to {TAGS_LENGTH} of {', '.join(TAGS)}. Repeatable."
tag_option = click.option("--tag", "tags", metavar="TAG", multiple=True, help=TAG_HELP)
post_logout_option = click.option(
    "--post-logout-redirect-uri",
    "post_logout_redirect_uris",
    metavar="URI",
    multiple=True,
    help="Where players go who sign out there. Repeatable.",
)
backchannel_option = click.option(
    "--backchannel-logout-uri",
    type=unwrap,
    metavar="URI",
    help="What is told when a player signs out here; '' for none.",
)
only_group_option = click.option(
    "--only-group",
    "only_groups",
    metavar="GROUP",
    multiple=True,
    help="Who may sign in: moderators, administrators, or flair: and a flair. Repeatable.",
)


def given_fields(options: dict) -> dict:
    """Return the client's fields of the options that were given; a repeatable one as a list."""
    given = {field: value for field, value in options.items() if value not in (None, ())}
    lists = (field for field, value in given.items() if isinstance(value, tuple))
    return given | {field: [*filter(None, dict.fromkeys(given[field]))] for field in lists}


def client_record(store: Storage, client: Client) -> dict:
    """Return a client as the command prints it, with the owner as `--owner` takes it."""
    fields, names = record_as_dict(client), {"id": "client_id", "owner_id": "owner"}
    record = {names.get(field, field): value for field, value in fields.items()}
    del record["secret_sha256"], record["epoch"]
    try:
        record["owner"] = client.owner_id and store.users.read(client.owner_id).name
    except StorageError:
        record["owner"] = f"#{client.owner_id}"  # deleted or damaged; no player has such a name
    return record


def print_new(
    store: Storage, client: Client, secret: str | None, as_json: bool, program: Program | None
) -> None:
    """Print a client with its new secret, None for a public client.

    For a client of a `program` its settings follow.
    """
    shown = {"client_secret": secret} if secret else {}
    settings = ""
    if program:
        site_name = read_site_name(store, read_settings())
        settings = program.fill_in_for(store, client, secret, base_url_of_links(), site_name)
    if settings and as_json:
        shown |= {"program": program.name, "settings": settings}
    print_record(client_record(store, client) | shown, as_json)
    if secret and not as_json:
        echo("The secret is not shown again. Keep it where only the app's server can read it.")
    if settings and not as_json:
        echo(f"\nSettings for {program.title}:\n\n{settings}")


def require_showable_game(game_url: str | None) -> None:
    """Raise InvalidField for a game that this site cannot show; None and '' are no game."""
    if game_url:
        base_url = find_base_url() or read_settings()["BASE_URL"]
        refuse("game_url", check_game(game_url, base_url))


def print_warnings(client: Client, program: Program | None = None) -> None:
    """Print on standard error what may be wrong with a client, which may be of a `program`."""
    for warning in find_warnings(client, program, mail_is_set()):
        echo(f"Warning: {warning}", err=True)


def mail_is_set() -> bool:
    """Return True if the settings name a server for letters."""
    return bool(read_settings()["SMTP_URL"])


@click.group("client")
def client_commands() -> None:
    """Register and change clients: apps that ask who a player is."""


class NamingPrograms(click.Command):
    """A command whose help ends with the names of the programs."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        named = f"Programs: {', '.join(find_program_pages())}."
        formatter.write(textwrap.fill(named, formatter.width, break_on_hyphens=False) + "\n")


@client_commands.command("add", cls=NamingPrograms)
@click.argument("name", type=str.strip, metavar="[NAME]", required=False)
@click.option("--for", "program", nargs=2, metavar="PROGRAM ADDRESS", help="One named below.")
@click.option("--redirect-uri", "redirect_uris", metavar="URI", multiple=True, help="Repeatable.")
@click.option("--game-url", metavar="URL", help="Where its game is, to be played on this site.")
@description_option
@tag_option
@click.option("--owner", metavar="USER", help="The player who registers it; else administrators.")
@click.option("--public", is_flag=True, help="Without a secret, for a game without a server.")
@click.option("--device", is_flag=True, help="It signs players in on another device (RFC 8628).")
@click.option("--require-pkce", is_flag=True, help="Refuse requests without PKCE.")
@click.option("--no-email", is_flag=True, help="It never gets an email address.")
@post_logout_option
@backchannel_option
@only_group_option
@json_option
def client_add(name: str | None, program, owner: str | None, as_json: bool, **options) -> None:
    """Register a client and print its secret, which is not shown again.

    The game of a player who is no administrator is on the home page only after `set --listed`. A
    public client runs in a browser or on a player's device, where no secret can be kept: it has to
    send a PKCE challenge instead (RFC 7636). It cannot be made confidential later.

    \b
    identity-server client add Chess --redirect-uri https://chess.example.org/callback
    identity-server client add Pong --game-url https://pong.example.org/ --description "For two."
    identity-server client add Go --public --redirect-uri http://127.0.0.1/callback
    identity-server client add "Go on TV" --public --device
    identity-server client add --for discourse https://forum.example.org
    """
    given = {field: value for field, value in given_fields(options).items() if value}
    given |= {} if name is None else {"name": name}
    if program:
        if {"redirect_uris", "public"} & given.keys():
            raise click.UsageError("--for says the redirect URIs of a client with a secret.")
        program = read_named_program(*program)
        given = program.client_fields(mail_is_set()) | given
    given = {"redirect_uris": []} | given
    if "name" not in given:
        raise click.UsageError("What is it called? Give a NAME.")
    if not given["redirect_uris"] and not {"game_url", "device"} & given.keys():
        raise click.UsageError("Where is it? Give --redirect-uri, --game-url or both, or --device.")
    if {"public", "require_pkce"} <= given.keys():
        raise click.UsageError("A --public client always needs PKCE: leave --require-pkce out.")
    require_showable_game(given.get("game_url"))
    store = open_installation()
    owner_id = read_user_named(store, owner).id if owner else None
    client, secret = apps.register_client(Authority(store, COMMAND), owner_id, **given)
    print_warnings(client, program)
    print_new(store, client, secret, as_json, program)


@client_commands.command("list")
@json_option
def client_list(as_json: bool) -> None:
    """List all clients.

    If a record is damaged, the others are listed, an error names it, and the exit status is 1.
    """
    store = open_installation()
    clients, status = printing.readable_records(store.clients.ids(), store.clients.read)
    records = [client_record(store, each) for each in clients]
    print_records(records, ["client_id", "name", "owner", "disabled"], as_json, status)


@client_commands.command("show")
@client_argument
@json_option
def client_show(client_id: str, as_json: bool) -> None:
    """Show one client, without its secret."""
    store = open_installation()
    print_record(client_record(store, store.clients.read(client_id)), as_json)


@client_commands.command("set")
@client_argument
@click.option("--name", type=str.strip, metavar="NAME", help="A new name.")
@click.option(
    "--redirect-uri",
    "redirect_uris",
    metavar="URI",
    multiple=True,
    help="Repeatable; replaces all.",
)
@click.option("--game-url", metavar="URL", help="Another address of its game; '' for none.")
@description_option
@tag_option
@click.option("--owner", metavar="USER", help="Another owner; '' for the administrators.")
@click.option("--listed/--unlisted", default=None, help="Whether its game is on the home page.")
@click.option("--require-pkce/--allow-no-pkce", default=None, help="Whether PKCE is required.")
@click.option("--device/--no-device", default=None, help="Whether it signs in on another device.")
@click.option("--no-email/--allow-email", default=None, help="Whether it never gets an address.")
@post_logout_option
@backchannel_option
@only_group_option
@click.option("--cover", metavar="FILE", help="A picture of its game; '' for the generated one.")
@json_option
def client_set(client_id: str, as_json: bool, owner, listed, cover, **options) -> None:
    """Change a client. What is repeatable replaces all, and '' leaves none.

    \b
    identity-server client set CLIENT_ID --name "Chess club" --owner ada
    """
    wanted = given_fields(options)
    if not wanted and owner is None and listed is None and cover is None:
        raise click.UsageError("Nothing to change: give one of the options.")
    require_showable_game(wanted.get("game_url"))
    if cover:
        from images.pictures import make_picture_of_file  # Pillow, which other commands do not need

        images = make_picture_of_file(cover, "cover")
    if "game_url" in wanted:
        wanted["game_url"] = wanted["game_url"] or None
    store = open_installation()
    by = authority_with_letters(store)
    if owner is not None:
        wanted["owner_id"] = read_user_named(store, owner).id if owner else None
    apps.change_client(by, client_id, **wanted)
    if listed is not None:
        apps.set_listed(by, client_id, listed)
    if cover:
        apps.save_cover(by, client_id, images)
    elif cover is not None:
        apps.remove_cover(by, client_id)
    client = store.clients.read(client_id)
    print_warnings(client)
    print_record(client_record(store, client), as_json)


@client_commands.command("new-secret")
@client_argument
@json_option
def client_new_secret(client_id: str, as_json: bool) -> None:
    """Replace a client's secret and print the new one."""
    store = open_installation()
    secret = apps.issue_client_secret(Authority(store, COMMAND), client_id)
    client = store.clients.read(client_id)
    print_new(store, client, secret, as_json, program_of(client))


@client_commands.command("disable")
@client_argument
def client_disable(client_id: str) -> None:
    """Stop a client from getting codes and tokens."""
    switch(client_id, True)


@client_commands.command("enable")
@client_argument
def client_enable(client_id: str) -> None:
    """Allow a disabled client to get codes and tokens again."""
    switch(client_id, False)


def switch(client_id: str, disabled: bool) -> None:
    """Disable or enable a client, and print the result."""
    client = apps.set_disabled(Authority(open_installation(), COMMAND), client_id, disabled)
    echo(f"{client.name} ({client_id}) is {'disabled' if disabled else 'enabled'}.")


@client_commands.command("delete")
@client_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
def client_delete(client_id: str, yes: bool) -> None:
    """Delete a client. This cannot be undone."""
    store = open_installation()
    client = store.clients.read(client_id)
    confirm(f"Delete {client.name} ({client_id})?", yes)
    apps.delete_client(Authority(store, COMMAND), client_id)
    echo(f"{client.name} ({client_id}) is deleted.")
