"""How the `identity-server` command prints records: in columns for people, or as JSON."""

import json
import re
import sys
from collections.abc import Callable

import click

import storage
from identity.formatting import format_time
from storage.rules import CONTROL, HIDDEN

TIMES = ("created", "lastHeartbeat", "suspendedUntil")  # milliseconds since 1970, printed as dates
TIMESTAMP = "%Y-%m-%d %H:%M:%S UTC"

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


def echo(text: str, err: bool = False) -> None:
    """Print lines of text. All commands print by this function."""
    click.echo(escape(text), err=err)


def escape(text: str, allowed: str = "\n\t") -> str:
    r"""Return a text that a terminal only shows: ESC as \x1b, a change of direction as \u202e.

    Records, archives and the names of files may have characters that would move the cursor, hide
    lines, or paste commands.
    """

    def escaped(match: re.Match) -> str:
        return match[0].encode("unicode_escape", "surrogatepass").decode()

    text = HIDDEN.sub(lambda match: match[1] or escaped(match), text)
    return CONTROL.sub(lambda match: match[0] if match[0] in allowed else escaped(match), text)


def print_json(value: object) -> None:
    """Print JSON in ASCII."""
    click.echo(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def print_record(record: dict, as_json: bool) -> None:
    """Print one record, a line for each field."""
    if as_json:
        return print_json(record)
    width = max(map(len, record)) + 2
    for field, value in record.items():
        echo(f"{field:{width}}{format_value(field, value)}".replace("\n", "\n" + " " * width))


def print_records(records: list[dict], columns: list[str], as_json: bool) -> None:
    """Print records, a line for each, with some of their fields in columns."""
    if as_json:
        return print_json(records)
    rows = [
        [escape(format_value(each, record[each]), "") for each in columns] for record in records
    ]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        echo("  ".join(map(str.ljust, row, widths)).rstrip())


def readable_records(ids: list, read: Callable) -> tuple[list, int]:
    """Return what `read` returns for each id, and the exit status: 1 if a record is damaged."""
    records, status = [], 0
    for each in ids:
        try:
            records.append(read(each))
        except storage.NotFound:
            continue  # deleted since
        except storage.StorageError as error:
            echo(f"Error: {error}", err=True)
            status = 1
    return records, status


def show_progress(done: int, total: int) -> None:
    """Show the progress of long work on a terminal; each call replaces what the last one wrote."""
    if sys.stderr.isatty():
        click.echo(f"\r{done:,} of {total:,}\x1b[K", nl=False, err=True)


def clear_progress() -> None:
    """Clear the line of `show_progress` for other text."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def format_value(field: str, value: object) -> str:
    """Return a field's value as text for people."""
    if isinstance(value, bool | None):
        return {None: "-", True: "yes", False: "no"}[value]
    if field in TIMES:
        return format_time(value, TIMESTAMP)
    return "\n".join(value) if isinstance(value, list) else str(value) or "-"


def describe_audit_line(line: dict) -> str:
    """Return a line of the audit log in words: when, who, what and from where.

    A line of another shape, which was edited by hand, is returned unchanged.
    """
    try:
        who = "the command" if line["by"] == "command" else f"player {line['by']}"
        what = ACTS[line["act"]].format_map(line) if line["act"] in ACTS else line["act"]
        origin = f", from {line['address']}" if "address" in line else ""
        return f"{format_time(line['time'], TIMESTAMP)}  {who} {what}{origin}"
    except (KeyError, TypeError, ValueError):
        return json.dumps(line)


ACTS = {
    "user suspend": "suspended player {user}",
    "user unsuspend": "unsuspended player {user}",
    "user restore": "unsuspended player {user}",  # an older name
    "user delete": "deleted player {user}",
    "user mod-level": "set the mod level of player {user} to {mod_level}",
    "user set name": "changed the name of player {user}",
    "user set email": "changed the email address of player {user}",
    "user set bio": "changed the bio of player {user}",
    "user reset bio": "reset the bio of player {user}",
    "user reset name": "reset the name of player {user}",
    "user reset picture": "reset the picture of player {user}",
    "user sign-out": "signed out player {user}",
    "user sign-in-link": "issued a sign-in link for player {user}",
    "flair grant": "granted the flair {flair} to player {user}",
    "flair revoke": "revoked the flair {flair} of player {user}",
    "invite": "issued an invitation for {days} days",
    "backup": "made a backup",
    "restore": "restored a backup",
    "export": "exported the players",
    "export passwords": "exported the players with their password hashes",
    "import": "imported players",
    "key rotate": "added a signing key",
    "key drop-old": "replaced the signing keys, which ended all sessions",
    "client add": "registered the client {client}",
    "client new-secret": "replaced the secret of the client {client}",
    "client disable": "disabled the client {client}",
    "client enable": "enabled the client {client}",
    "client listed": "listed the game of the client {client} on the home page",
    "client unlisted": "removed the game of the client {client} from the home page",
    "client take-over": "took the origin of its game from the client {client}",
    "client delete": "deleted the client {client}",
}
