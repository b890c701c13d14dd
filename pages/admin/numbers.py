"""What the first page of administrators says of the site: numbers, warnings, emails."""

import itertools

from flask import current_app

from identity.http.context import get_storage, mail_is_on
from identity.messages.outbox import CHAT, MAIL, count_messages
from identity.site.advice import Advice, check_installation, check_states
from identity.site.formatting import format_age
from identity.site.statistics import Numbers
from model.kinds import OUTBOX, given_up_of, waiting_queues
from model.words import Words, say
from pages.kit.rendering import IN_ENGLISH

OTHERS_SHOWN = 20  # games, suspensions, emails
READ_AT_MOST = 200  # of each: some have ended, and ids of games have no order


def describe_numbers(numbers: Numbers) -> dict:
    """Return the numbers that are shown, with their words, and the warnings and failures."""
    shown = [
        (say("players"), numbers.players),
        (say("played in the last day"), numbers.active_day),
        (say("played in the last week"), numbers.active_week),
        (say("new this week"), numbers.new_week),
        (say("games listed"), numbers.games),
    ]
    if numbers.free_space is not None:
        size = say("%(size)s GB", size=numbers.free_space / 10**9)
        shown += [(say("free space"), size)]
    letters = describe_letters() if mail_is_on() else None
    if letters:
        shown += [(say("emails waiting"), letters["waiting"])]
    if numbers.backup.time:
        shown += [(say("last backup"), format_age(numbers.backup.time))]
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


def warning_of_backup(numbers: Numbers) -> Words | None:
    """Return what is wrong with the backups, None if the last one is new and did not fail."""
    if numbers.backup.problem:
        problem = IN_ENGLISH.format(numbers.backup.problem)
        return say("Warning: the last backup failed. %(problem)s", problem=problem)
    if not numbers.backup.time:
        return say("Warning: there is no backup yet.")
    if numbers.backup_is_old:
        return say("Warning: the last backup is more than two days old.")
    return None


def advice_of_site() -> list[Advice]:
    """Return the warnings of the command `settings`, except on --bind, passkey hosts and emails."""
    config = current_app.config
    return [*check_installation(config), *check_states(get_storage(), config)]
