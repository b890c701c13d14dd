"""The clock of this machine, compared with those of the servers that messages are given to."""

import logging
import re
from collections.abc import Iterator

from identity.site.formatting import format_age, format_duration
from identity.site.states import edit_state, find_state
from model.errors import StorageError
from model.kind import DAY_MS
from model.records import now_ms
from storage import Storage
from storage.maintenance import Advice

LIMIT = 30  # seconds: many programs accept no more in the times of an ID token
# RFC 5322 3.3, RFC 9110 5.6.7: the same form, without the old ones.
DATE = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{1,2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} (?:GMT|[+-][01][0-9][0-5][0-9])"
)
SERVERS = {"clockmail": "the mail server", "clockchat": "the webhook"}  # by the id of the state
LOG = logging.getLogger(__name__)


def find_date(text: str) -> int | None:
    """Return the first date in a text, in seconds since 1970; None without a valid one."""
    from email.utils import parsedate_to_datetime  # 8 ms, which no start of a command has to spare

    found = DATE.search(text)
    try:  # -0000 is UTC, too
        return found and int(parsedate_to_datetime(found[0].replace("-0000", "+0000")).timestamp())
    except (ValueError, OverflowError):  # as of 31 February
        return None


def note_clock(store: Storage, channel: str, text: str) -> None:
    """Compare our clock with the first date in a text from the server of a channel.

    A difference of more than LIMIT is kept in a state, until there is none. No error is raised.
    """
    date = find_date(text)
    if date is None:
        return
    ahead = now_ms() // 1000 - date  # seconds
    state_id, is_off = f"clock{channel}", abs(ahead) > LIMIT
    try:
        kept = find_state(store, state_id)
        if is_off or (kept and kept.problem):
            with edit_state(store, state_id) as state:
                way = "ahead of" if ahead > 0 else "behind"
                state.time = now_ms()
                state.problem = f"{format_duration(abs(ahead))} {way}" if is_off else ""
    except StorageError as error:
        LOG.warning("cannot save how far the clock is off: %s", error)


def check_clock(store: Storage) -> Iterator[Advice]:
    """Yield an advice for each server whose clock was another one in the last day."""
    for state_id, server in SERVERS.items():
        state = find_state(store, state_id)
        if state and state.problem and abs(now_ms() - state.time) < DAY_MS:
            yield Advice(
                f"the clock of this machine is {state.problem} that of {server} "
                f"({format_age(state.time)}): programs may refuse ID tokens, and times are wrong",
                "compare it (date -u) with a clock that you trust, and keep it right by NTP: "
                "timedatectl set-ntp true",
            )
