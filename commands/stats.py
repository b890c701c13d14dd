"""`identity-server stats`: the numbers of the site."""

import click

from commands import open_installation
from commands.printing import json_option, print_record
from identity.site.statistics import COUNTED, count_numbers
from model.kinds import REPORTS


@click.command()
@json_option
def stats(as_json: bool) -> None:
    """Print the numbers of the site.

    activeToday has who played in the last day, and activeThisWeek in the last week.
    """
    store = open_installation()
    numbers = count_numbers(store)
    record = {
        "players": numbers.players,
        "activeToday": numbers.active_day,
        "activeThisWeek": numbers.active_week,
        "newThisWeek": numbers.new_week,
        "gamesListed": numbers.games,
        "gamesWaiting": store.clients.count("queue", "waiting", COUNTED),
        "reportsWaiting": store.records(REPORTS).count("state", "open", COUNTED),
        "freeSpace": numbers.free_space,  # bytes
        "lastBackup": numbers.backup.time or None,
    }
    print_record(record, as_json)
