"""The commands about players: `user`, `flair` and `audit`."""

import collections
import dataclasses
import datetime
import shlex
import sys
from collections.abc import Callable

import click

from commands import open_installation, printing, read_user_named
from commands.address import base_url_of_links
from commands.mail import authority_with_letters
from commands.printing import confirm, echo, json_option, print_lines, print_record, print_records
from identity.acts import accounts
from identity.acts import passkeys as passkey_acts
from identity.acts import sessions as session_acts
from identity.acts.actors import COMMAND, Authority
from identity.acts.families import families_of
from identity.acts.naming import find_player_id
from identity.acts.notes import NOTES_EACH, notes_about
from identity.site.look import read_site_name
from identity.site.pasted import unwrap
from identity.site.settings import read_settings, site_words
from model.addresses import check_email, login_keys, normal_email
from model.errors import (
    DamagedRecord,
    InvalidField,
    NoSuchUser,
    NotFound,
    SaveUnconfirmed,
    StorageFailed,
)
from model.kinds import PASSKEYS, REPORTS, USERS
from model.names import normal_name
from model.records import User
from model.rules import check_password, refuse
from storage import Storage
from storage.whole.player_lines import exported_fields

# -- user ---------------------------------------------------------------------------------------

mod_level_option = click.option(
    "--mod-level", type=click.IntRange(0, 2), help="0 player, 1 moderator, 2 administrator."
)


def user_record(user: User) -> dict:
    """Return a player as the command prints one: the exported fields but `created`."""
    record = exported_fields(user)
    del record["created"]
    return record


def require_allowed_changes(store: Storage, user: User, fields: set[str]) -> None:
    """Raise InvalidField if storage would refuse the new `fields` of `user`; nothing is saved."""
    USERS.require_rules(user, fields)
    for field in ("name", "email"):  # as in a form, the name first
        if field in fields:
            for key in login_keys(getattr(user, field)):
                store.users.require_free(field, key, but=user.id)


def read_password(from_stdin: bool) -> str:
    """Return the password, of a prompt or standard input. Raises UsageError, InvalidField."""
    if not from_stdin and not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask for a password: give --password-stdin.")
    if not from_stdin:
        return click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    try:
        return sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InvalidField("password", "The password is not UTF-8.") from error


@click.group("user")
def user_commands() -> None:
    """Add, list, show and change players."""


@user_commands.command("add")
@click.argument("name", type=normal_name, metavar="NAME")
@click.option("--email", type=normal_email, metavar="EMAIL", default="", help="The email address.")
@mod_level_option
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@json_option
def user_add(name: str, email: str, mod_level: int | None, password_stdin: bool, as_json: bool):
    """Add a player and ask for a password.

    \b
    identity-server user add ada --email ada@example.org --mod-level 2
    """
    from identity.access.passwords import hash_password  # Flask, which no other command here needs

    store, config = open_installation(), read_settings()
    refuse("email", check_email(email, config["EMAIL"] == "required"))
    require_allowed_changes(store, User(0, name, email, password_hash=""), {"name", "email"})
    words = site_words(read_site_name(store, config), config["BASE_URL"])
    password = read_password(password_stdin)
    refuse("password", check_password(password, name, email, *words))
    user = store.users.register(name, email, hash_password(password))
    if mod_level:
        try:
            accounts.set_mod_level(Authority(store, COMMAND), user.id, mod_level)
        except StorageFailed as error:
            finish = f"identity-server user set {shlex.quote(name)} --mod-level {mod_level}"
            unsure = "perhaps " * isinstance(error, SaveUnconfirmed)
            level = f"{unsure}as a player of level 0"
            problem = f"{name} is added, but {level} ({error}): go on with {finish}"
            raise click.ClickException(problem) from error
    print_record(user_record(store.users.read(user.id)), as_json)


@user_commands.command("list")
@json_option
def user_list(as_json: bool) -> None:
    """List all players.

    If a record is damaged, the others are listed, an error names it, and the exit status is 1.
    """
    store = open_installation()
    users, status = printing.readable_records(store.users.ids(), store.users.read)
    records = [user_record(each) for each in users]
    print_records(records, ["id", "name", "email", "modLevel", "suspended"], as_json, status)


@user_commands.command("show")
@click.argument("name", metavar="NAME")
@json_option
def user_show(name: str, as_json: bool) -> None:
    """Show one player, by NAME or email address."""
    store = open_installation()
    user = read_user_named(store, name)
    record, suspension = user_record(user), user.suspension
    if user.suspended:
        record["suspendedBy"] = suspension.by  # a player id or "command"
        record["suspendedUntil"] = suspension.until
        record["suspensionReason"] = suspension.reason
    record["handle"] = store.handles.find_of(user.id)
    record["emailVerified"] = user.email_verified
    record["lastSignIn"] = user.last_sign_in or None
    record["invitedBy"] = user.invited_by  # a player id or "command"
    record["reports"] = len(store.records(REPORTS).page("user", str(user.id)))
    notes = notes_about(store, user, NOTES_EACH)
    record["notes"] = [{"by": n.by, "text": n.text, "created": n.created} for n in notes]
    if not as_json:
        record["notes"] = [each.text for each in notes]
    print_record(record, as_json)


@user_commands.command("set")
@click.argument("player", metavar="NAME")
@click.option("--name", type=normal_name, metavar="NAME", help="A new name.")
@click.option(
    "--email", type=normal_email, metavar="EMAIL", help='A new email address; "" for none.'
)
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
    user, by = read_user_named(store, player), Authority(store, COMMAND)
    require_allowed_changes(store, dataclasses.replace(user, **wanted), set(wanted))
    if profile := {field: wanted[field] for field in ("name", "bio") if field in wanted}:
        accounts.change_profile(by, user.id, **profile)
    if "email" in wanted:
        accounts.change_email(by, user.id, wanted["email"])
    if "mod_level" in wanted:
        accounts.set_mod_level(by, user.id, wanted["mod_level"])
    print_record(user_record(store.users.read(user.id)), as_json)


@user_commands.command("sign-in-link")
@click.argument("name", metavar="NAME")
@json_option
def user_sign_in_link(name: str, as_json: bool) -> None:
    """Print a link for a player who lost the password.

    It works once, for an hour, and leads to a page that sets a new one. Give it to nobody but the
    player: whoever has the link has the account.
    """
    store = open_installation()
    user = read_user_named(store, name)
    from identity.access.links import give_sign_in_link  # Flask, which few commands need

    path = give_sign_in_link(Authority(store, COMMAND), user.id, base_url="")
    link = f"{base_url_of_links()}{path}"
    print_lines({"id": user.id, "link": link}, [link], as_json)
    if user.suspended:
        echo(f"{user.name} is suspended: the link works after `user unsuspend`.", err=True)


@user_commands.command("passkeys")
@click.argument("name", metavar="NAME")
@click.option("--remove", type=unwrap, metavar="ID", help="Remove this passkey.")
@json_option
def user_passkeys(name: str, remove: str | None, as_json: bool) -> None:
    """Print the passkeys of a player, or remove one.

    The last one is removed as well: this command decides.
    """
    store = open_installation()
    user, passkeys = read_user_named(store, name), store.records(PASSKEYS)
    if remove is not None:
        if remove not in (each.id for each in passkeys.page("user", str(user.id))):
            raise passkeys.kind.not_found(remove)
        passkey_acts.remove(Authority(store, COMMAND), remove, rp_id=None)
    left = passkeys.page("user", str(user.id))
    if remove is not None and not left and not user.password_hash:
        link = f"identity-server user sign-in-link {shlex.quote(user.name)}"
        echo(f"{user.name} has no password and no passkey left: {link}", err=True)
    records = [
        {"id": each.id, "name": each.name, "created": each.created}
        # Of a passkey that was never used 0, which is no time to people.
        | {"used": each.used if as_json else printing.format_value("created", each.used or None)}
        | {"synced": each.synced}
        for each in left
    ]
    print_records(records, ["id", "name", "created", "used", "synced"], as_json, 0)


@user_commands.command("sessions")
@click.argument("name", metavar="NAME")
@click.option("--end", type=unwrap, metavar="ID", help="Sign this one out.")
@json_option
def user_sessions(name: str, end: str | None, as_json: bool) -> None:
    """Print where a player is signed in: browsers and apps.

    \b
    identity-server user sessions ada --end 7Qc2sFhxQYk2VfX1
    """
    store = open_installation()
    user = read_user_named(store, name)
    if end is not None:
        if end not in user.sign_ins:
            raise NotFound(f"{user.name} is not signed in with this id")
        session_acts.end_sign_in(Authority(store, COMMAND), user.id, end)
        user = store.users.read(user.id)
    columns = ["id", "app", "browser", "address", "since", "lastUse"]
    rows = [
        (each.id, "", each.browser, each.address or "", each.since, each.used)
        for each in reversed(user.sessions)
    ]
    rows += [
        (each.id, client.name, each.device, each.address, each.created, each.used)
        for each, client in families_of(store, user)
    ]
    print_records([dict(zip(columns, row, strict=True)) for row in rows], columns, as_json, 0)


@user_commands.command("suspend")
@click.argument("name", metavar="NAME")
@click.option("--reason", metavar="TEXT", default="", help="What the player reads at sign-in.")
@click.option(
    "--days", metavar="N", type=click.IntRange(1, 3650), help="How long; without, there is no end."
)
def user_suspend(name: str, reason: str, days: int | None) -> None:
    """Stop a player from signing in. Their sessions and tokens end at once.

    Repeated, it changes the reason, and with --days the end. Moderators cannot lift it.

    \b
    identity-server user suspend bob --reason "Insults in the chat." --days 7
    """

    def suspend(by: Authority, user: User) -> None:
        keep_end = days is None and user.suspended
        accounts.suspend(by, user.id, reason.strip(), days, keep_end)

    moderate(name, suspend, "is suspended")


@user_commands.command("unsuspend")
@click.argument("name", metavar="NAME")
def user_unsuspend(name: str) -> None:
    """Let a suspended player sign in again."""
    moderate(name, lambda by, user: accounts.unsuspend(by, user.id), "is no longer suspended")


def moderate(name: str, act: Callable[[Authority, User], None], done: str) -> None:
    """Call `act` with the player of this name; print the name and `done`, like "is suspended"."""
    store = open_installation()
    user = read_user_named(store, name)
    act(authority_with_letters(store), user)
    echo(f"{user.name} {done}.")


@user_commands.command("sign-out")
@click.argument("name", metavar="NAME")
def user_sign_out(name: str) -> None:
    """Sign a player out of every browser and app.

    Apps keep their access: they may ask the player to sign in again.
    """
    moderate(name, lambda by, user: session_acts.sign_out(by, user.id), "is signed out everywhere")


@user_commands.command("delete")
@click.argument("name", metavar="NAME")
@click.option("--yes", is_flag=True, help="Do not ask.")
def user_delete(name: str, yes: bool) -> None:
    """Delete a player with name and pictures. This cannot be undone.

    Where mail is set up, a letter tells a player with a confirmed address.
    """
    store = open_installation()
    user = read_user_named(store, name)
    confirm(f"Delete {user.name} (id {user.id})?", yes)
    accounts.delete_user(authority_with_letters(store), user.id)
    echo(f"{user.name} is deleted.")


# -- flair, audit -------------------------------------------------------------------------------


@click.group("flair")
def flair_commands() -> None:
    """Grant and revoke flairs: words that players show beside their names."""


@flair_commands.command("grant")
@click.argument("name", metavar="NAME")
@click.argument("flair", metavar="FLAIR")
def flair_grant(name: str, flair: str) -> None:
    """Give the player NAME a FLAIR, which they may then equip."""
    moderate(
        name, lambda by, user: accounts.grant_flair(by, user.id, flair), f"has the flair {flair}"
    )


@flair_commands.command("revoke")
@click.argument("name", metavar="NAME")
@click.argument("flair", metavar="FLAIR")
def flair_revoke(name: str, flair: str) -> None:
    """Take a FLAIR from the player NAME."""
    done = f"no longer has the flair {flair}"
    moderate(name, lambda by, user: accounts.revoke_flair(by, user.id, flair), done)


@flair_commands.command("list")
@json_option
def flair_list(as_json: bool) -> None:
    """List all flairs, and how many players have each."""
    store = open_installation()
    users, status = printing.readable_records(store.users.ids(), store.users.read)
    owners = collections.Counter(flair for user in users for flair in user.flairs)
    records = [{"flair": flair, "players": owners[flair]} for flair in sorted(owners)]
    print_records(records, ["flair", "players"], as_json, status)


DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.option("--player", metavar="NAME", help="Lines by or about this player; also an id.")
@click.option("--act", metavar="ACT", default="", help='Lines of acts that begin so: "invite".')
@click.option("--since", metavar="DATE", type=DAY, help="From this day on, in UTC.")
@json_option
def audit(player: str | None, act: str, since: datetime.datetime | None, as_json: bool) -> None:
    """Print who did what about whom, when and from where, oldest first.

    Players are named by their ids: the page of player 7 is /users/7.

    If a line is damaged, the others are printed, an error names it, and the exit status is 1.
    """
    store, shown, status = open_installation(), [], 0
    player_id = player and find_player_id(store, player)
    if player and player_id is None:
        raise NoSuchUser(f"there is no player {player!r}")
    first = int(since.replace(tzinfo=datetime.UTC).timestamp() * 1000) if since else 0
    try:
        for line in store.audit.read():
            is_about = player is None or player_id in (line.get("by"), line.get("user"))
            is_late = not first or (type(line.get("time")) is int and line["time"] >= first)
            if is_about and is_late and str(line.get("act")).startswith(act):
                if as_json:
                    shown.append(line)
                else:
                    echo(printing.describe_audit_line(line))
    except DamagedRecord as error:
        echo(f"Error: {error}", err=True)
        status = 1
    if as_json:
        printing.print_json(shown)
    sys.exit(status)
