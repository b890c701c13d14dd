"""Numbers, times and durations as people read them, on pages and in the terminal."""

import time

MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds
DATE_AND_TIME = "%d %B %Y, %H:%M UTC"


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: "1 player", "2,000 players"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_time(milliseconds: int, template: str) -> str:
    """Return a time in UTC by an strftime template; the bare number if no calendar has it."""
    try:
        return time.strftime(template, time.gmtime(milliseconds / 1000)).lstrip("0")
    except (OverflowError, OSError):
        return str(milliseconds)


def format_duration(seconds: int) -> str:
    """Return hours and minutes: "3 hours 20 minutes"; from two days on, days alone."""
    if seconds >= 2 * DAY:
        return pluralize(seconds // DAY, "day")
    parts = [(seconds // HOUR, "hour"), (seconds % HOUR // MINUTE, "minute")]
    return " ".join(pluralize(*each) for each in parts if each[0]) or "less than a minute"
