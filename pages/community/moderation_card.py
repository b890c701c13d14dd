"""The card of a profile that moderators see: what they know of a player, and what they may do."""

from flask import request

from identity.acts.naming import Named, name_actor
from identity.acts.notes import may_delete_note, notes_about
from identity.acts.reports import shown_to
from identity.acts.rights import (
    may_administer,
    may_delete,
    may_moderate,
    may_unsuspend,
    may_write_notes,
)
from identity.http.context import get_storage
from model.kinds import REPORTS
from model.records import MODERATOR, Suspension, User
from model.words import Words, say

SUSPENSION_DAYS = {"1 day": 1, "1 week": 7, "1 month": 30, "No end": None}
KEEP_END = "Keep the end"  # in place of one of SUSPENSION_DAYS
LENGTHS = {  # as pages call them
    "1 day": say("1 day"),
    "1 week": say("1 week"),
    "1 month": say("1 month"),
    "No end": say("No end"),
    KEEP_END: say("Keep the end"),
}
REPORTS_COUNTED = 20  # about one player


def moderation_card(player: User | None, user: User, problems: dict[str, str]) -> dict | None:
    """Return what the profile of `user` shows to the signed-in player, None unless a moderator."""
    if player is None or player.mod_level < MODERATOR:
        return None
    suspended = user.suspended
    return {
        "may_suspend": may_moderate(player, user),
        "may_unsuspend": may_unsuspend(get_storage(), player, user),
        "suspension": describe_suspension(user.suspension) if suspended else None,
        "lengths": lengths_offered(user.suspension if suspended else None),
        "typed_length": request.form.get("length"),
        "typed_reason": request.form.get("reason", user.suspension.reason if suspended else ""),
        "may_administer": may_administer(player),
        "may_delete": may_delete(player, user),
        **describe_history(player, user),
        "known_flairs": [each for each in player.flairs if each not in user.flairs],
        "typed_flair": request.form.get("flair", "") if request.path.endswith("/grant") else "",
        "typed_note": request.form.get("text", ""),
        "typed_warning": request.form.get("warning", ""),
        "problems": problems,
        # The act whose form was sent, and is open.
        "opened": request.path.split("/")[3] if problems else None,
    }


def lengths_offered(suspension: Suspension | None) -> dict[str, Words]:
    """Return the lengths to choose from, each with its words; the first one is proposed.

    `suspension` is the one that lasts now, None for a player who is not suspended.
    """
    if suspension is None:
        first = "1 week"
    elif suspension.until is None:
        first = "No end"
    else:
        first = KEEP_END
    return {each: LENGTHS[each] for each in (first, *SUSPENSION_DAYS)}


def describe_suspension(suspension: Suspension) -> dict[str, str | int | None]:
    """Return who suspended a player, why and from when until when, as moderators read it."""
    return {
        "by": name_actor(get_storage(), suspension.by).words,
        "since": suspension.since,
        "until": suspension.until,
        "reason": suspension.reason or say("None given"),
    }


def describe_history(player: User, user: User) -> dict:
    """Return where `user` came from, and what moderators noted, as far as `player` may know."""
    store = get_storage()
    found = store.records(REPORTS).page("user", str(user.id), None, REPORTS_COUNTED, True)
    reports = [each.report for each in shown_to(store, player, found)]
    notes = notes_about(store, user) if may_write_notes(player, user) else None
    invite = store.invites.find(user.invite) if user.invite and may_administer(player) else None
    return {
        "joined": user.created,
        "handle": store.handles.find_of(user.id),
        "last_sign_in": last_sign_in(user),
        "invited_by": name_inviter(user.invited_by),
        "invitation": invite.note if invite else "",
        "reports": reports,
        "open_reports": sum(each.answer is None for each in reports),
        "notes": notes
        and [
            (each, name_actor(store, each.by), may_delete_note(player, user, each))
            for each in notes
        ],
        "may_note": notes is not None,
    }


def last_sign_in(user: User) -> int:
    """Return when a player signed in last, in milliseconds; 0 if it is not known."""
    return max([user.last_sign_in, *(each.since for each in user.sessions)])


def name_inviter(inviter: int | str | None) -> Named | None:
    """Return the words for who invited a player, None for a player without an invitation."""
    return None if inviter is None else name_actor(get_storage(), inviter)
