"""Numbers, times and durations as people read them, on pages and in the terminal."""

import time

from model.records import now_ms
from model.words import Words, say, say_in, say_number

MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds
# In the forms that they have inside a date, and alone after "in".
MONTHS = (
    (say_in("date", "January"), say_in("in", "January")),
    (say_in("date", "February"), say_in("in", "February")),
    (say_in("date", "March"), say_in("in", "March")),
    (say_in("date", "April"), say_in("in", "April")),
    (say_in("date", "May"), say_in("in", "May")),
    (say_in("date", "June"), say_in("in", "June")),
    (say_in("date", "July"), say_in("in", "July")),
    (say_in("date", "August"), say_in("in", "August")),
    (say_in("date", "September"), say_in("in", "September")),
    (say_in("date", "October"), say_in("in", "October")),
    (say_in("date", "November"), say_in("in", "November")),
    (say_in("date", "December"), say_in("in", "December")),
)
WEEKDAYS = (say("Monday"), say("Tuesday"), say("Wednesday"), say("Thursday"), say("Friday"))
WEEKDAYS += (say("Saturday"), say("Sunday"))
# The "an iPhone" in "Firefox on an iPhone"; other systems are names.
SYSTEMS = {
    "an iPhone": say_in("browser on", "an iPhone"),
    "an iPad": say_in("browser on", "an iPad"),
    "a Mac": say_in("browser on", "a Mac"),
}


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun in English, for the terminal: "1 player", "2,000 players"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_stamp(milliseconds: int, template: str) -> str:
    """Return a time in UTC by an strftime template; the bare number if no calendar has it."""
    try:
        return time.strftime(template, time.gmtime(milliseconds / 1000))
    except (OverflowError, OSError):
        return str(milliseconds)


def format_date(milliseconds: int) -> str:
    """Return the date of a time in UTC: "1 October 2025"; the bare number if no calendar has it."""
    try:
        there = time.gmtime(milliseconds / 1000)
    except (OverflowError, OSError):
        return str(milliseconds)
    day, month, year = str(there.tm_mday), MONTHS[there.tm_mon - 1][0], str(there.tm_year)
    return say("%(day)s %(month)s %(year)s", day=day, month=month, year=year)


def format_weekday(milliseconds: int) -> Words:
    """Return a date in UTC with its day of the week: "Wednesday, 1 October 2025"."""
    weekday = WEEKDAYS[time.gmtime(milliseconds / 1000).tm_wday]
    return say("%(weekday)s, %(date)s", weekday=weekday, date=format_date(milliseconds))


def format_time(milliseconds: int) -> Words:
    """Return a time in UTC: "1 October 2025, 09:05 UTC"."""
    clock = format_stamp(milliseconds, "%H:%M")
    return say("%(date)s, %(time)s UTC", date=format_date(milliseconds), time=clock)


def format_duration(seconds: int) -> Words:
    """Return a duration, rounded to one unit: "20 minutes", "11 hours"; from two days on, days."""
    if seconds < MINUTE:
        return say("less than a minute")
    minutes, hours, days = _rounded(seconds)
    if minutes < 60:
        return say_number("%(number)s minute", "%(number)s minutes", minutes)
    if hours < 48:
        return say_number("%(number)s hour", "%(number)s hours", hours)
    return say_number("%(number)s day", "%(number)s days", days)


def _rounded(seconds: int) -> list[int]:
    """Return a duration in minutes, hours and days, each rounded."""
    return [(seconds + unit // 2) // unit for unit in (MINUTE, HOUR, DAY)]


def format_age(milliseconds: int) -> Words:
    """Return how long ago a time is, rounded as by `format_duration`: "20 minutes ago"."""
    seconds = (now_ms() - milliseconds) // 1000
    if seconds < MINUTE:
        return say("less than a minute ago")
    minutes, hours, days = _rounded(seconds)
    if minutes < 60:
        return say_number("%(number)s minute ago", "%(number)s minutes ago", minutes)
    if hours < 48:
        return say_number("%(number)s hour ago", "%(number)s hours ago", hours)
    return say_number("%(number)s day ago", "%(number)s days ago", days)


def format_hours_ago(milliseconds: int) -> Words:
    """Return how long ago a time is that is stored to the hour: "in the last hour"; 0 is never."""
    if not milliseconds:
        return say("not yet")
    hours = (now_ms() - milliseconds) // (HOUR * 1000)  # whole ones: nobody knows more
    return format_ago(now_ms() - hours * HOUR * 1000) if hours > 0 else say("in the last hour")


def format_ago(milliseconds: int) -> Words:
    """Return how long ago a time is: "now", "2 hours ago", "yesterday", "in October 2025"."""
    seconds = (now_ms() - milliseconds) // 1000
    if DAY <= seconds < 2 * DAY:
        return say("yesterday")
    if seconds > 60 * DAY:
        there = time.gmtime(max(milliseconds, 0) / 1000)  # some are in no calendar
        month = MONTHS[there.tm_mon - 1][1]
        return say("in %(month)s %(year)s", month=month, year=str(there.tm_year))
    return format_age(milliseconds) if seconds >= MINUTE else say("now")


def _join_with_commas(words: list[str]) -> str:
    if len(words) == 1:
        return words[0]
    half = len(words) // 2  # words in words in words, for each of many, would be too deep to show
    some, others = _join_with_commas(words[:half]), _join_with_commas(words[half:])
    return say("%(some)s, %(next)s", some=some, next=others)


def join_words(words: list[str], last: str = "and") -> str:
    """Return a list inside a sentence: "a, b and c"; `last` is "and" or "or"."""
    if len(words) < 2:
        return words[0] if words else ""
    joined = _join_with_commas(words[:-1])
    if last == "or":
        return say("%(some)s or %(last)s", some=joined, last=words[-1])
    return say("%(some)s and %(last)s", some=joined, last=words[-1])


def show_browser(browser: str) -> Words | str:
    """Return the words for the browser of a stored session: "Firefox on a Mac"."""
    name, on, system = browser.partition(" on ")
    if not on:
        return say("Unknown browser") if browser == "Unknown browser" else browser
    name = say("Browser") if name == "Browser" else name
    return say("%(browser)s on %(system)s", browser=name, system=SYSTEMS.get(system, system))


def add_reason(sentence: str, reason: str) -> str:
    """Return a sentence with the reason that a moderator gave; "" is none."""
    if not reason:
        return sentence
    if reason.endswith((".", "!", "?", "。", "！", "？")):
        return say("%(sentence)s The reason: %(reason)s", sentence=sentence, reason=reason)
    return say("%(sentence)s The reason: %(reason)s.", sentence=sentence, reason=reason)
