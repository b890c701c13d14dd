"""What the first page of administrators says of the site: numbers, warnings, emails."""

import itertools

from flask import current_app

from identity.http.context import get_storage, mail_is_on
from identity.messages.outbox import CHAT, MAIL, count_messages
from identity.site.advice import Advice, check_installation, check_states
from identity.site.formatting import format_age
from identity.site.statistics import Numbers
from model.kinds import OUTBOX, given_up_of, waiting_queues

OTHERS_SHOWN = 20  # games, suspensions, emails
READ_AT_MOST = 200  # of each: some have ended, and ids of games have no order


def describe_numbers(numbers: Numbers) -> dict:
    """Return the numbers that are shown, by their words, and the warnings and failures."""
    shown = {
        "players": f"{numbers.players:,}",
        "played in the last day": f"{numbers.active_day:,}",
        "played in the last week": f"{numbers.active_week:,}",
        "new this week": f"{numbers.new_week:,}",
        "games listed": f"{numbers.games:,}",
    }
    if numbers.free_space is not None:
        shown["free space"] = f"{numbers.free_space / 10**9:.1f} GB"
    letters = describe_letters() if mail_is_on() else None
    if letters:
        shown["emails waiting"] = f"{letters['waiting']:,}"
    if numbers.backup.time:
        shown["last backup"] = format_age(numbers.backup.time)
    return {
        "shown": shown,
        "backup_warning": warning_of_backup(numbers),
        "advice": [(f"{each.problem}.", f"{each.fix}.") for each in advice_of_site()],
        "letters": letters,
        "given_up": get_storage().records(OUTBOX).count("queue", given_up_of(CHAT), OTHERS_SHOWN),
    }


def describe_letters() -> dict:
    """Return how many letters wait, the `problem` that stops all or "", and those given up."""
    outbox = get_storage().records(OUTBOX)
    oldest = (outbox.page("queue", each, None, READ_AT_MOST) for each in waiting_queues(MAIL))
    waiting = itertools.chain(*oldest)  # some only wait for their turn
    return {
        "waiting": count_messages(get_storage(), MAIL),
        # A problem that is no failure of the letter itself.
        "problem": next((each.problem for each in waiting if each.problem and not each.tries), ""),
        "given_up": outbox.page("queue", given_up_of(MAIL), None, OTHERS_SHOWN, newest_first=True),
    }


def warning_of_backup(numbers: Numbers) -> str | None:
    """Return what is wrong with the backups, None if the last one is new and did not fail."""
    if numbers.backup.problem:
        return f"the last backup failed. {numbers.backup.problem}"
    if not numbers.backup.time:
        return "there is no backup yet."
    return "the last backup is more than two days old." if numbers.backup_is_old else None


def advice_of_site() -> list[Advice]:
    """Return the warnings of the command `settings`, except on --bind, passkey hosts and emails."""
    config = current_app.config
    return [*check_installation(config), *check_states(get_storage(), config)]
