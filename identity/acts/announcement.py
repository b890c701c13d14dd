"""The announcement that administrators write to all players, which the look of the site has."""

from identity.acts.actors import Authority
from identity.acts.look import save_fields
from identity.acts.rights import is_oneself
from identity.messages.outbox import announce as tell_chat
from model.errors import InvalidField
from model.kind import DAY_MS
from model.records import User, now_ms
from model.rules import check_report_text, refuse
from model.site_records import Look
from model.words import say

MOST_DAYS = 30


def find_announcement(look: Look, player: User) -> str | None:
    """Return what a player still has to read, None if there is nothing, or the player hid it."""
    is_current = now_ms() < look.announced_until and look.announced != player.dismissed
    return look.announcement if is_current else None


def announce(by: Authority, seen: int, text: str, days: int) -> None:
    """Show a text to all players for some days, in place of the one before, and tell the chat.

    Raises as the acts of `identity.acts.look` do.
    """
    if not text:
        raise InvalidField("text", say("Write what players should know."))
    refuse("text", check_report_text(text))
    if not 1 <= days <= MOST_DAYS:
        raise InvalidField("days", say("Choose 1 to %(most)s days.", most=MOST_DAYS))
    now = now_ms()
    until = now + days * DAY_MS
    fields = {"announcement": text, "announced": now, "announced_until": until}
    save_fields(by, seen, "announcement", **fields)
    tell_chat(by.store, "announcement", text, "/")


def end(by: Authority, seen: int) -> None:
    """Show the announcement to nobody any more. Raises as `announce` does."""
    save_fields(by, seen, "announcement end", announcement="", announced_until=0)


def dismiss(by: Authority, user_id: int, announced: int) -> None:
    """Hide an announcement from a player who read it; `announced` is its time."""
    with by.edit(is_oneself, by.store.users, user_id) as user:
        user.dismissed = announced
