"""Acts on who may come in, and on which terms: domains of addresses, age, terms, privacy.

Those of administrators raise NotAllowed, StorageFailed, InvalidField, TooManyAttempts, and
ChangedBefore if what they change was changed since the time `seen`.
"""

import calendar
from datetime import date

from identity.acts import look as look_acts
from identity.acts.actors import Authority
from identity.acts.rights import is_oneself
from identity.site.domains import INSTALL, hash_domains, knows_throwaway, tidy_list
from identity.site.door import AGREED_TERMS, ALLOWED, PRIVACY, TERMS, read_door, read_text
from model.door_records import Text
from model.errors import InvalidField
from model.kind import DAY_MS
from model.kinds import TEXTS
from model.records import now_ms
from model.rules import check_terms, refuse
from model.words import say

AGES = (0, 13, 14, 15, 16, 17, 18)  # years; 0: nobody is asked
MOST_DAYS = 366  # from today to the day from which the terms count


def change(by: Authority, seen: int, **fields: bool | int) -> None:
    """Change the rules; `fields` are of Look."""
    refuse("minimum_age", None if fields["minimum_age"] in AGES else say("Choose an age."))
    if fields["refuses_throwaway"] and not knows_throwaway():
        problem = say("The list is not installed: %(command)s", command=INSTALL)
        refuse("refuses_throwaway", problem)
    if fields["only_allowed"]:
        _require_domains("only_allowed", read_text(by.store, ALLOWED))
    look_acts.save_fields(by, seen, "door", **fields)


def change_list(by: Authority, seen: int, text_id: str, text: str) -> None:
    """Replace the list "refused" or "allowed", with a domain on each line."""
    new = Text(text_id, tidy_list(text))
    if text_id == ALLOWED and read_door(by.store).only_allowed:
        _require_domains("list", new)
    with look_acts.editing(by, seen, "door") as look:
        look.lists_changed = look.changed
        by.store.records(TEXTS).put(new)  # before the time: what is cached by it has the new list


def _require_domains(field: str, allowed: Text) -> None:
    # Before the lock: whatever changes what this reads changes the time that was `seen`.
    if not hash_domains(allowed.text):
        raise InvalidField(field, say("Nobody could join: write an allowed domain first."))


def parse_day(text: str) -> int:
    """Return when a day such as "2027-01-31" begins in UTC. Raises InvalidField."""
    try:
        begins = calendar.timegm(date.fromisoformat(text).timetuple()) * 1000
    except ValueError:
        begins = 0
    if not 0 <= begins // DAY_MS - now_ms() // DAY_MS <= MOST_DAYS:
        raise InvalidField("day", say("Choose today or a later day, at most a year from now."))
    return begins


def publish(by: Authority, seen: int, text: str, day: str, asks: bool) -> None:
    """Let a text be the terms from a day on, a new version if it changed; "" removes them.

    If it `asks`, players have to agree to it at the first sign-in from that day on. Otherwise those
    who had to agree to an earlier version still have to, but from that day on as well.
    """
    refuse("text", check_terms(text))
    begins = parse_day(day)
    with look_acts.editing(by, seen, "terms") as look:
        kept = read_text(by.store, TERMS)
        if is_new := text != kept.text or kept.version != look.terms:
            # The text first: after a kill in between it is shown under the number of the version
            # before, nobody is asked for more than before, and the next save gives it a number.
            kept = Text(TERMS, text, kept.version + 1)
            by.store.records(TEXTS).put(kept)
        if is_new or max(begins, look.terms_from) > now_ms():
            look.terms_from = begins
        if asks or look.terms_asked == kept.version:
            look.terms_asked = kept.version if asks else 0
        look.terms = kept.version if text else 0


def save_privacy(by: Authority, seen: int, text: str, shows: bool) -> None:
    """Set the text of the page about privacy, "" for the made one, and if each page links it."""
    refuse("text", check_terms(text))
    with look_acts.editing(by, seen, "privacy") as look:
        look.shows_privacy = shows
        by.store.records(TEXTS).put(Text(PRIVACY, text))


def agree(by: Authority, user_id: int, version: int) -> None:
    """Note when a player agreed to a version of the terms, the first time."""
    with by.edit(is_oneself, by.store.users, user_id) as user:
        user.agreed = {AGREED_TERMS.format(version): now_ms()} | user.agreed
