"""The archives of `identity-server backup --nightly`: their names, and which of them stay."""

import contextlib
import datetime
import glob
import os
import re
import subprocess
import time

import click

DAILY, WEEKLY = 7, 4
UNFINISHED = re.compile(r"\.?identity-[0-9-]{10}\.tar\.gz\.new(\.[0-9a-f]+)?")
UNFINISHED_AGE = 86_400  # seconds
ARCHIVE = re.compile(r"identity-([0-9]{4}-[0-9]{2}-[0-9]{2})\.tar\.gz")


def nightly_path(folder: str, kind: str = "identity") -> str:
    """Return the path of today's archive, whose name starts with `kind`; a day is one of UTC."""
    return os.path.join(folder, f"{kind}-{datetime.datetime.now(datetime.UTC):%F}.tar.gz")


def days_kept(days: set[datetime.date]) -> set[datetime.date]:
    """Return the days whose archives stay: the newest DAILY, and the newest of WEEKLY weeks."""
    newest = sorted(days, reverse=True)
    of_week: dict[tuple[int, int], datetime.date] = {}
    for day in newest:
        of_week.setdefault(day.isocalendar()[:2], day)
    return {*newest[:DAILY], *list(of_week.values())[:WEEKLY]}


def remove_old(folder: str) -> None:
    """Remove the archives of a folder but those of `days_kept`, and no files with other names."""
    days = {}
    for name in os.listdir(folder):
        if found := ARCHIVE.fullmatch(name):
            with contextlib.suppress(ValueError):
                days[datetime.date.fromisoformat(found[1])] = name
    for day in days.keys() - days_kept(set(days)):
        os.unlink(os.path.join(folder, days[day]))


def remove_unfinished(folder: str) -> None:
    """Remove what killed backups left; a file with more behind ".new" only when it is a day old."""
    for path in glob.glob(f"{glob.escape(folder)}/*.tar.gz.new*", include_hidden=True):
        is_old = path.endswith(".new") or time.time() - os.stat(path).st_mtime > UNFINISHED_AGE
        if UNFINISHED.fullmatch(os.path.basename(path)) and is_old:
            os.unlink(path)


def copy_away(command: str | None, path: str) -> None:
    """Run the administrator's shell command, if any, with the path as $1. Raises ClickException."""
    if command is None:
        return
    done = subprocess.run(["/bin/sh", "-c", command, "sh", path], check=False)
    if done.returncode != 0:
        # Not the command: it may have a password, and administrators read the problem.
        why = f"its copy failed with status {done.returncode}"
        raise click.ClickException(f"{path} is made, but {why}")
