"""The `identity-server` command: arguments, prompts and printing.

What it does is done elsewhere: settings are checked by `identity.settings`, records kept by
`storage`, requests answered by gunicorn. Each module of `commands` has some of its commands. Exit
status 0: done; 1: refused, and one line on standard error says why; 2: wrong usage. With `--json`
standard output has the record, or an array of them, and nothing else.
"""

import os
import signal
import sys

import click

from commands import Refusing
from commands.archives import backup, export, import_, restore
from commands.clients import client_commands
from commands.demo import demo
from commands.players import audit, flair_commands, invite, user_commands
from commands.running import serve, settings
from commands.upkeep import check, rotate_key
from storage.flat_files.disk import storage_error_from

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # the second: the terminal was closed


@click.group(cls=Refusing, context_settings={"show_default": True})
@click.version_option(package_name="identity-server", message="identity-server %(version)s")
def identity_server_command() -> None:
    """Run and administer an identity server for a games community.

    Its settings are environment variables whose names start with IDENTITY_; `settings` prints them.
    """


for command in (
    *(serve, demo, settings, check, rotate_key, backup, restore, export, import_),
    *(user_commands, client_commands, flair_commands, invite, audit),
):
    identity_server_command.add_command(command)


def stop(number: int, _: object) -> None:
    """End as by Ctrl-C: half an archive goes, and what it was made of."""
    for each in STOP_SIGNALS:  # who closes a terminal, or a session, sends more than one
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    """The `identity-server` command."""
    if not (sys.stdout and sys.stderr):  # else what is printed could end in the next file opened
        sys.exit("Error: standard output or error is closed: use >/dev/null to see nothing of it")
    # A character that the terminal's encoding lacks is shown escaped, without a traceback.
    sys.stdout.reconfigure(errors="backslashreplace")
    for each in STOP_SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(each, stop)
    try:
        identity_server_command()
    except OSError as error:  # what it prints cannot be written; of a closed pipe click knows
        # The interpreter flushes standard output once more when it ends, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"Error: {storage_error_from(error)}")
