"""The list of players for moderators: a search by a part of the name, and who played lately."""

import re

from flask import Blueprint, request

from identity.acts.naming import name_actor
from identity.acts.reports import shown_to
from identity.http.context import get_storage
from identity.site.formatting import format_date
from model.kind import DAY_MS, day_of, hour_of
from model.kinds import NO_END, REPORTS, USERS
from model.names import can_be_in_key, unique_key
from model.records import User, now_ms
from model.words import say, say_in
from pages.admin.desk import render_desk
from pages.community.moderation_card import name_inviter
from pages.community.players import ROLES, format_last_played
from pages.kit.actors import require_moderator
from pages.kit.paging import addresses_beside

PLAYERS_SHOWN = 50  # on one page
PLAYERS_READ = 400  # at most for one page, of whom some have other names
SORTED = 200  # players whose names contain a text, if they are sorted by the day of joining
REPORTS_LISTED = 5  # about one player
LISTS = {
    "name": say("By name"),
    "newest": say("Newest first"),
    "played": say("Played in the last day"),
    "suspended": say_in("players", "Suspended"),
    "ending": say("Suspension ends this week"),
}
# By list.
INDEXES = {"newest": "joined", "played": "played", "suspended": "suspended", "ending": "suspended"}
TOO_MANY = say(
    "More than %(number)s names have this. Type more of it, or list them by name.", number=SORTED
)
PLACE = re.compile(r"([0-9]{6,7})-([1-9][0-9]{0,14})")  # a key of an index and an id

admin_players = Blueprint("admin_players", __name__)


@admin_players.get("/admin/players")
def show_players() -> str:
    """Show a page of one of LISTS, of players whose names contain `name`, after a place."""
    viewer, args = require_moderator(), request.args
    chosen = args.get("list", "")
    chosen = chosen if chosen in LISTS else "name"
    search, after = args.get("name", "").strip(), args.get("after", "")
    part, found, next_place = unique_key(search), [], None
    refusal = TOO_MANY if chosen == "newest" and part and has_too_many(part) else None
    if not refusal and can_be_in_key(part):
        found, next_place = players_after(chosen, part, after)
    former = find_former(search) if chosen == "name" and not after else None
    return render_desk(
        "admin/players.html",
        viewer,
        rows=describe(viewer, [former, *found] if former else found),
        former=former,
        lists=LISTS,
        chosen=chosen,
        is_suspended=INDEXES.get(chosen) == "suspended",
        search=search,
        **addresses_beside(next_place),
        problems={"name": refusal} if refusal else {},
    )


# -- the lists: a place in one is part of an address, and may be any text -----------------------


def players_after(chosen: str, part: str, after: str) -> tuple[list[User], str | None]:
    """Return a page of the `chosen` list after a place, and the place where the page ends.

    That place is None at the end of the list. Names contain the key `part`; a page is short if many
    players that were read have other names.
    """
    found, read = [], 0
    while users := read_after(chosen, part, after):
        for user in users:
            if len(found) == PLAYERS_SHOWN or read == PLAYERS_READ:
                return found, after
            read, after = read + 1, place_of(chosen, user)
            is_ended = INDEXES.get(chosen) == "suspended" and not user.suspended
            found += [user] if part in unique_key(user.name) and not is_ended else []
    return found, None


def read_after(chosen: str, part: str, after: str) -> list[User]:
    """Return the next players; of INDEXES, only "newest" leaves out names without `part`."""
    users, now = get_storage().users, now_ms()
    if chosen == "name":
        return users.by_name(part, after, PLAYERS_SHOWN + 1)
    found = PLACE.fullmatch(after)
    place = (found[1], int(found[2])) if found else None
    if chosen == "newest":
        if not part:
            return users.newest(PLAYERS_SHOWN + 1, place)
        named = users.by_name(part, "", SORTED)
        places = {(day_of(each.created), each.id): each for each in named}
        return [places[each] for each in sorted(places, reverse=True) if not place or each < place]
    if chosen == "played":
        hours = hour_of(now - DAY_MS), hour_of(now)
        return users.between("played", *hours, place, PLAYERS_SHOWN + 1)
    last = NO_END if chosen == "suspended" else day_of(now + 7 * DAY_MS)
    return users.between("suspended", day_of(now), last, place, PLAYERS_SHOWN + 1, False)


def place_of(chosen: str, user: User) -> str:
    """Return the place of a player in a list: an index key and the id, or the key of the name."""
    if index := INDEXES.get(chosen):
        return f"{USERS.key(index).of(user)}-{user.id}"
    return unique_key(user.name)


def has_too_many(part: str) -> bool:
    """Return True if more than SORTED name keys contain this one."""
    return len(get_storage().users.by_name(part, "", SORTED + 1)) > SORTED


def find_former(name: str) -> User | None:
    """Return the player for whom a whole name is kept that they gave up."""
    user = get_storage().users.find_by_former_name(name)
    return user if user and unique_key(name) not in unique_key(user.name) else None


# -- what is shown of them ----------------------------------------------------------------------


def describe(viewer: User, users: list[User]) -> list[dict]:
    """Return players with what moderators see of them, and the reports that the viewer may read."""
    store = get_storage()
    kept = store.records(REPORTS)
    pages = (kept.page("user", str(user.id), None, REPORTS_LISTED, True) for user in users)
    reports = shown_to(store, viewer, [report for page in pages for report in page])
    counts: dict[str, list] = {}
    for each in reports:
        counts.setdefault(each.report.about, []).append(each.report)
    return [
        {
            "user": user,
            "role": ROLES[user.mod_level],
            "last_played": format_last_played(user),
            "invited_by": name_inviter(user.invited_by),
            "reports": counts.get(f"user:{user.id}", []),
            "by": name_actor(store, user.suspension.by) if user.suspended else None,
            "until": format_end(user),
        }
        for user in users
    ]


def format_end(user: User) -> str:
    """Return the date when a player's suspension ends, "No end", or "" without a suspension."""
    if not user.suspended:
        return ""
    until = user.suspension.until
    return say("No end") if until is None else format_date(until)
