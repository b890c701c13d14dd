"""The `identity-server` command: arguments, prompts and printing.

Each module of `commands` has some of its commands. The exit status is 0 for success, 1 for a
refusal, with the reason in one line on standard error, and 2 for wrong usage. With `--json`
standard output has a record, or an array of records, and nothing else.
"""

import os
import signal
import sys

import click

from commands import Refusing
from commands.archives import backup, copy_, export, import_, restore
from commands.clients import client_commands
from commands.demo import demo
from commands.invites import invite_commands
from commands.mail import mail_commands
from commands.players import audit, flair_commands, user_commands
from commands.printing import escape
from commands.running import serve, settings
from commands.stats import stats
from commands.upgrade import upgrade_check
from commands.upkeep import check, rotate_key
from storage.files import storage_error_from

COMMANDS = [serve, demo, settings, check, rotate_key, backup, restore, copy_, export, import_]
COMMANDS += [stats, user_commands, client_commands, flair_commands, invite_commands]
COMMANDS += [mail_commands, audit, upgrade_check]
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal was closed


@click.group(cls=Refusing, commands=COMMANDS, context_settings={"show_default": True})
@click.version_option(package_name="identity-server", message="identity-server %(version)s")
def identity_server_command() -> None:
    """Run and administer an identity server for a games community.

    Its settings are environment variables whose names start with IDENTITY_; `settings` prints them.
    """


def stop(number: int, _: object) -> None:
    """Handle a stop signal: raise SystemExit, so that unfinished files are removed."""
    for each in STOP_SIGNALS:  # closing a terminal or a session sends several
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    """Run the `identity-server` command, and exit with its status."""
    if not (sys.stdout and sys.stderr):  # the next file opened would get the output
        sys.exit("Error: standard output or error is closed: redirect it to /dev/null instead")
    # Escape characters that the terminal's encoding lacks, instead of raising UnicodeEncodeError.
    sys.stdout.reconfigure(errors="backslashreplace")
    for each in STOP_SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:  # ignored under nohup
            signal.signal(each, stop)
    try:
        identity_server_command()
    except OSError as error:  # output cannot be written; click handles a closed pipe itself
        # The interpreter flushes standard output again at its end, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(escape(f"Error: {storage_error_from(error)}"))
