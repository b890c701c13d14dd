"""How the `identity-server` command prints records: in columns for people, or as JSON."""

import json
import re
import sys
from collections.abc import Callable, Iterable

import click

from identity.site.formatting import format_stamp
from model.errors import NotFound, StorageError
from model.texts import CONTROL, HIDDEN

# Milliseconds since 1970, printed as dates.
TIMES = ("created", "lastHeartbeat", "lastSignIn", "suspendedUntil", "goodUntil", "lastBackup")
TIMES += ("next", "since", "lastUse")
TIMESTAMP = "%Y-%m-%d %H:%M:%S UTC"

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


def echo(text: str, err: bool = False) -> None:
    """Print text, escaped for a terminal; `err` is True for standard error."""
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


def print_lines(value: object, lines: Iterable[str], as_json: bool) -> None:
    """Print a value as JSON, or lines for people."""
    if as_json:
        print_json(value)
    else:
        for line in lines:
            echo(line)


def confirm(question: str, yes: bool) -> None:
    """Ask a question on standard error, unless `yes` is given; another answer ends the command."""
    if not yes:
        click.confirm(escape(question), abort=True, err=True)


def print_record(record: dict, as_json: bool) -> None:
    """Print one record, a line for each field."""
    if as_json:
        return print_json(record)
    width = max(map(len, record)) + 2
    for field, value in record.items():
        echo(f"{field:{width}}{format_value(field, value)}".replace("\n", "\n" + " " * width))


def print_records(records: list[dict], columns: list[str], as_json: bool, status: int) -> None:
    """Print records, a line for each, with some of their fields in columns; exit with a status."""
    if as_json:
        print_json(records)
        sys.exit(status)
    rows = [
        [escape(format_value(each, record[each]), "") for each in columns] for record in records
    ]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        echo("  ".join(map(str.ljust, row, widths)).rstrip())
    sys.exit(status)


def readable_records(ids: list, read: Callable) -> tuple[list, int]:
    """Return what `read` returns for each id, and the exit status: 1 if an error was printed."""
    records, status = [], 0
    for each in ids:
        try:
            records.append(read(each))
        except NotFound:
            continue  # deleted since
        except StorageError as error:
            echo(f"Error: {error}", err=True)
            status = 1
    return records, status


def show_progress(done: int, total: int) -> None:
    """Show the progress of long work on a terminal; each call replaces what the last one wrote."""
    if sys.stderr.isatty():
        finishing = ", finishing" if done == total else ""
        click.echo(f"\r{done:,} of {total:,}{finishing}\x1b[K", nl=False, err=True)


def clear_progress() -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def format_value(field: str, value: object) -> str:
    """Return a field's value as text for people."""
    if isinstance(value, bool | None):
        return {None: "-", True: "yes", False: "no"}[value]
    if field in TIMES:
        return format_stamp(value, TIMESTAMP)
    return ("\n".join(value) if isinstance(value, list) else str(value)) or "-"


def describe_audit_line(line: dict) -> str:
    """Return a line of the audit log as text: when, who, which act, and its other fields.

    A line of another shape, which was edited by hand, is returned unchanged.
    """
    try:
        who = "the command" if line["by"] == "command" else f"player {line['by']}"
        others = [f", {each} {line[each]}" for each in line if each not in ("time", "by", "act")]
        return f"{format_stamp(line['time'], TIMESTAMP)}  {who}: {line['act']}{''.join(others)}"
    except (KeyError, TypeError, ValueError):
        return json.dumps(line)
