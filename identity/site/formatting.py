"""Numbers, times and durations as people read them, on pages and in the terminal."""

import time

from model.records import now_ms

MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds
DATE, DATE_AND_TIME = "%d %B %Y", "%d %B %Y, %H:%M UTC"


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: "1 player", "2,000 players"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_time(milliseconds: int, template: str = DATE_AND_TIME) -> str:
    """Return a time in UTC by an strftime template; the bare number if no calendar has it."""
    try:
        return time.strftime(template, time.gmtime(milliseconds / 1000)).lstrip("0")
    except (OverflowError, OSError):
        return str(milliseconds)


def format_duration(seconds: int) -> str:
    """Return a duration, rounded to one unit: "20 minutes", "11 hours"; from two days on, days."""
    if seconds < MINUTE:
        return "less than a minute"
    minutes, hours, days = ((seconds + unit // 2) // unit for unit in (MINUTE, HOUR, DAY))
    if minutes < 60:
        return pluralize(minutes, "minute")
    return pluralize(hours, "hour") if hours < 48 else pluralize(days, "day")


def format_age(milliseconds: int) -> str:
    """Return how long ago a time is, as a duration: "20 minutes ago"."""
    return f"{format_duration((now_ms() - milliseconds) // 1000)} ago"


def format_hours_ago(milliseconds: int) -> str:
    """Return how long ago a time is that is stored to the hour: "in the last hour"; 0 is never."""
    if not milliseconds:
        return "not yet"
    hours = (now_ms() - milliseconds) // (HOUR * 1000)  # whole ones: nobody knows more
    return format_ago(now_ms() - hours * HOUR * 1000) if hours > 0 else "in the last hour"


def format_ago(milliseconds: int) -> str:
    """Return how long ago a time is: "now", "2 hours ago", "yesterday", "in October 2025"."""
    seconds = (now_ms() - milliseconds) // 1000
    if DAY <= seconds < 2 * DAY:
        return "yesterday"
    if seconds > 60 * DAY:
        return format_time(milliseconds, "in %B %Y")
    return format_age(milliseconds) if seconds >= MINUTE else "now"


def add_reason(sentence: str, reason: str) -> str:
    """Return a sentence with the reason that a moderator gave; "" is none."""
    end = "" if reason.endswith((".", "!", "?")) else "."
    return sentence + f" The reason: {reason}{end}" if reason else sentence
