"""`identity-server backup`, `restore`, `copy`, `export` and `import`."""

import contextlib

import click

from commands import installation_place, open_installation, read_url
from commands.nightly import copy_away, nightly_path, remove_old, remove_unfinished
from commands.printing import clear_progress, echo, show_progress
from identity.acts.actors import COMMAND
from identity.site.formatting import pluralize
from identity.site.statistics import note_backup
from model.errors import StorageError
from storage import Storage, mask_url
from storage.files import input_file, replace_durably, translate_os_errors
from storage.whole import archive, copying
from storage.whole.transfer import export_users, import_users

new_file = click.argument("file", type=click.Path(dir_okay=False), metavar="FILE")
given_file = click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="FILE"
)
folder = click.Path(exists=True, file_okay=False)
LEFT_OUT = "something is left out: `identity-server check --repair` may help"


class Report:
    """Prints the lines that long work reports: what it leaves out. `end` exits by their number.

    A report prints on standard error if the work writes its `file`, "-", to standard output.
    """

    def __init__(self, file: str | None = None) -> None:
        self.lines = 0
        self._to_stderr = file == "-"

    def tell(self, line: str) -> None:
        """Print a line, and count it."""
        self.lines += 1
        clear_progress()
        echo(line, err=self._to_stderr)

    def end(self, done: str, left_out: str | None = None) -> None:
        """Print what was done. Raises ClickException with `left_out` if a line was printed."""
        clear_progress()
        echo(done, err=self._to_stderr)
        if self.lines and left_out:
            raise click.ClickException(left_out)


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False), metavar="[FILE]")
@click.option("--nightly", metavar="FOLDER", type=folder, help="Make one of a row there.")
@click.option("--then", metavar="COMMAND", help="A shell command that copies $1 away.")
def backup(file: str | None, nightly: str | None, then: str | None) -> None:
    """Pack the installation into FILE, a new .tar.gz archive.

    The server may run meanwhile. The archive has the players with their password hashes and
    pictures, the clients, the invitations, and the audit log; no signing key, and not where players
    are signed in. Only you can read it: keep it so. With - as FILE it goes to standard output, and
    everything that is said to standard error.

    With --nightly the file is FOLDER/identity-<date>.tar.gz, and of older ones seven daily and four
    weekly ones stay. The page /admin says when one was made and copied last, and what went wrong.

    Records that cannot be read are named and left out, and the exit status is 1.

    \b
    identity-server backup /var/backups/identity-$(date +%F).tar.gz
    identity-server backup --nightly /var/backups --then 'rsync "$1" backup@example.org:'
    """
    if bool(file) == bool(nightly) or (then and not nightly):
        raise click.UsageError("Give a FILE, or --nightly FOLDER, then also --then COMMAND.")
    store = open_installation()
    try:
        if nightly:
            pack_nightly(store, nightly, then)
        else:
            pack(store, file)
    except (StorageError, click.ClickException) as error:
        with contextlib.suppress(StorageError):
            note_backup(store, problem=str(getattr(error, "message", error)))
        raise
    note_backup(store)


def pack_nightly(store: Storage, nightly: str, then: str | None) -> None:
    """Make today's archive in place of an earlier one of today, and copy it away.

    An incomplete archive gets another name, and no older one is removed, which may have what is
    left out; then ClickException is raised.
    """
    path = nightly_path(nightly)
    remove_unfinished(nightly)
    try:
        pack(store, f"{path}.new", path)
    except click.ClickException:
        with translate_os_errors():
            replace_durably(f"{path}.new", nightly_path(nightly, "incomplete"))
        raise
    with translate_os_errors():
        replace_durably(f"{path}.new", path)
        remove_old(nightly)
    copy_away(then, path)


def pack(store: Storage, file: str, name: str | None = None) -> None:
    """Make an archive, printed as `name`. Raises ClickException if something is left out."""
    report = Report(file)
    players = archive.backup(store, file, COMMAND.id, show_progress, report.tell)
    report.end(f"{pluralize(players, 'player')} in {name or file}", LEFT_OUT)


@click.command()
@given_file
def restore(file: str) -> None:
    """Put a backup into an installation without players and clients.

    All of FILE, or with - of standard input, is verified before anything is put in place. If this
    is interrupted, repeat it. Everyone signs in again. The next new player gets an id well above
    the last one in FILE, because games may know players who came after the backup.
    """
    store, report = open_installation(fills=True), Report()
    players = archive.restore(store, file, COMMAND.id, show_progress, report.tell)
    report.end(f"{pluralize(players, 'player')} restored from {file}")


@click.command("copy")
@click.option(
    "--to", required=True, metavar="URL", callback=read_url, help="A database's URL, or files."
)
def copy_(to: str) -> None:
    """Copy the installation of IDENTITY_STORAGE into an empty one.

    URL is an empty PostgreSQL database; with `--to files` the copy is in IDENTITY_DATA_DIR and
    IDENTITY_PICTURE_DIR. Stop the server first: what it saves meanwhile is not copied.

    The copy has everything, also the signing keys, invitations, and where players are signed in:
    sessions, tokens and client secrets stay good. If something cannot be read it is named, and
    nothing is copied. If this is interrupted, repeat it.

    \b
    identity-server copy --to postgresql://identity@db.example.org/identity
    """
    if to == installation_place()[2]:
        raise click.ClickException("--to names the installation of IDENTITY_STORAGE itself")
    target, report = open_installation(to, fills=True), Report()
    players = copying.copy(open_installation(), target, show_progress, report.tell)
    report.end(f"{pluralize(players, 'player')} copied to {mask_url(to)}")
    echo(f"To use the copy, set IDENTITY_STORAGE to {'files' if to == 'files' else 'its URL'}.")


@click.command()
@new_file
@click.option("--with-passwords", is_flag=True, help="Add the password hashes.")
def export(file: str, with_passwords: bool) -> None:
    """Write the players to FILE, a new file, one a line as JSON.

    A line has the fields of /api/users/info, and email, suspended and created, and underage if that
    is true; with --with-passwords it has passwordHash as well. Play time is in whole minutes. The
    pictures are the files in IDENTITY_PICTURE_DIR. Only you can read FILE: keep it so. With - as
    FILE the lines go to standard output.
    """
    store, report = open_installation(), Report(file)
    players = export_users(store, file, COMMAND.id, with_passwords, show_progress, report.tell)
    report.end(f"{pluralize(players, 'player')} in {file}", LEFT_OUT)


@click.command("import")
@given_file
@click.option("--pictures", metavar="FOLDER", type=folder, help="Where the players' pictures are.")
@click.option("--check", is_flag=True, help="Name every line that would be refused; add nobody.")
def import_(file: str, pictures: str | None, check: bool) -> None:
    """Add the players that the lines of FILE describe, each in JSON.

    A line has id and name, and may have email, bio, flairs, equippedFlair, playMinutes,
    lastHeartbeat, modLevel, pfpTimestamp, suspended, underage, created and passwordHash, as
    `export` writes them. Without created, a player joined before the other times of the line. With
    - as FILE the lines come from standard input. Ids are kept. A line that is refused is named,
    with each field and the reason; the others are imported, and the exit status is 1. If this is
    interrupted, repeat it: nobody is added twice. It is many times as fast before anybody has an
    account: then all are added at once, or nobody.

    FOLDER has uploads: the file that the line names as its picture, or <id>.webp, .png, .jpg, .jpeg
    or .gif. Or it is the picture folder of another server, with large/<id>-<pfpTimestamp>.webp or
    large/<id>.webp. They are checked and encoded again as all uploads are. A player without a
    picture gets a generated one.

    A passwordHash by another method than ours is hashed again, in a third of a second each.

    Players without passwordHash need a link to sign in: `identity-server user sign-in-link`.
    """
    from identity.access.passwords import wrap_hash  # Flask, which no other command here needs

    store, report = open_installation(fills=True), Report()

    def refused(number: int, reason: str) -> None:
        report.tell(f"line {number}: {reason}")

    with translate_os_errors(), input_file(file) as lines:
        options = {"progress": show_progress, "wrap_hash": wrap_hash, "check": check}
        tally = import_users(store, lines, pictures, COMMAND.id, refused=refused, **options)
    done, there = ("can be added", "are") if check else ("added", "were")
    done = f"{pluralize(tally.added, 'player')} {done}, {tally.there:,} {there} there already"
    report.end(done, f"{pluralize(tally.refused, 'line')} refused")
