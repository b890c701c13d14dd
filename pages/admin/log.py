"""The administrators' page of the audit log, read from its end."""

import datetime
import itertools
import operator
import re
from typing import NamedTuple

from flask import Blueprint, request
from markupsafe import Markup

from identity.acts.audit_words import GROUPS, SENTENCES
from identity.acts.naming import ADMINISTRATORS, find_player_id
from identity.http.context import get_storage
from identity.site.formatting import DATE, format_time, pluralize
from identity.site.pasted import unwrap
from model.kind import DAY_MS
from model.records import Client, User
from model.rules import TIME_END
from model.site_records import Invite
from pages.admin.desk import render_desk
from pages.kit.actors import require_administrator
from pages.kit.paging import addresses_beside
from pages.kit.rendering import mark_time
from storage.audit_lines import decode_line
from storage.repositories import Records, unchanged

LINES_SHOWN = 100  # on one page
BYTES_READ = 900_000  # bytes for one page, of which many lines may be about others
LINK = Markup('<a href="/{}/{}"><bdi>{}</bdi></a>')
QUOTED = Markup("“<bdi>{}</bdi>”")
REPORT = Markup('<a href="/admin/reports/{}">a report</a>')
LEVELS = {"0": "player", "1": "moderator", "2": "administrator"}

DAY_OF = operator.itemgetter(0)  # of a line that is described

log = Blueprint("log", __name__)


class Wanted(NamedTuple):
    """Which lines a page shows."""

    player: int | None = None
    acts: tuple[str, ...] = ()

    def has(self, line: dict) -> bool:
        """Return True if the page shows this line."""
        is_about = self.player is None or self.player in (line.get("by"), line.get("user"))
        return is_about and (not self.acts or str(line.get("act")).startswith(self.acts))


@log.get("/admin/log")
def show_log() -> str:
    """Show lines about a `player`, of an `act` in GROUPS, until a `day`, `before` a position."""
    viewer, args, problems = require_administrator(), request.args, {}
    name, act, day = unwrap(args.get("player", "")), args.get("act", ""), args.get("day", "")
    player = find_player_id(get_storage(), name) if name else None
    if name and player is None:
        problems["player"] = "Nobody has this name. Type a name, or the number of a player."
    until, before = end_of_day(day), None
    if day and until is None:
        problems["day"] = "Write the day like 2026-11-24."
    if re.fullmatch("-?[0-9]{1,18}", args.get("before", "")):
        before = int(args["before"])
    elif until is not None:
        before = get_storage().audit.seek(until)
    found, older = [], None
    if not problems:
        found, older = lines_before(before, Wanted(player, GROUPS.get(act, ())))
    return render_desk(
        "admin/log.html",
        viewer,
        days=[(day, list(each)) for day, each in itertools.groupby(describe(found), DAY_OF)],
        **addresses_beside(older, "before"),
        groups=list(GROUPS),
        typed={"player": name, "act": act, "day": day},
        problems=problems,
    )


def end_of_day(day: str) -> int | None:
    """Return the last millisecond of a day like "2026-11-24" in UTC, None for other text."""
    try:
        start = datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00")
    except ValueError:
        return None
    return int(start.timestamp() * 1000) + DAY_MS - 1


def lines_before(before: int | None, wanted: Wanted) -> tuple[list[dict], int | None]:
    """Return the lines of a page, newest first, and the position before which older ones are.

    `before` is such a position, None for the end of the log; None is returned if all were read.
    """
    found, size, position = [], 0, None
    for position, line in get_storage().audit.before(before):
        size += len(line)
        values = decode_line(line)
        if values and wanted.has(values):
            found.append(values)
        if len(found) == LINES_SHOWN or size > BYTES_READ:
            return found, position
    return found, None


# -- sentences ----------------------------------------------------------------------------------


class Words(dict):
    """What stands in the places of a sentence; a line that was edited by hand may lack it."""

    def __missing__(self, _: str) -> str:
        return "?"


class Known(NamedTuple):
    """The records that the lines of a page name, by id, as far as they are still there."""

    users: dict[int, User]
    clients: dict[str, Client]
    invites: dict[str, Invite]

    @classmethod
    def of(cls, lines: list[dict]) -> "Known":
        """Read the records that these lines name; ids of a wrong shape or type are left out."""

        def read(records: Records, id_type: type, *names: str) -> dict:
            ids = [line.get(name) for line in lines for name in names]
            is_id = records.kind.may_have
            ids = {each for each in ids if type(each) is id_type and is_id(each)}
            return {each.id: each for each in records.read_from_many([*ids], unchanged)}

        store = get_storage()
        users = read(store.users, int, "by", "user")
        clients, invites = read(store.clients, str, "client"), read(store.invites, str, "invite")
        return cls(users, clients, invites)


def describe(lines: list[dict]) -> list[tuple[str, Markup, Markup]]:
    """Return the day, the time and the sentence of each line."""
    known, described = Known.of(lines), []
    for line in lines:
        time = line.get("time")
        time = time if type(time) is int and 0 <= time < TIME_END else 0
        sentence = Markup(SENTENCES.get(str(line.get("act")), "{by}: {act}."))
        shown = sentence.format_map(words_of(line, known))
        day = f"{format_time(time, '%A')}, {format_time(time, DATE)}"
        described.append((day, mark_time(time, " %H:%M"), shown))
    return described


def text_of(value: object) -> str:
    """Return a value as text; half a surrogate pair, which no page can have, as "?"."""
    return str(value).encode(errors="replace").decode()


def words_of(line: dict, known: Known) -> Words:
    """Return what stands in the places of the sentence for a line."""
    words = Words({name: text_of(value) for name, value in line.items()})
    words["by"] = word_for_player(known.users, line.get("by"), at_start=True)
    words["user"] = word_for_player(known.users, line["user"]) if "user" in line else ADMINISTRATORS
    client = known.clients.get(str(line.get("client")))
    invite = known.invites.get(str(line.get("invite")))
    words["client"] = LINK.format("developer", client.id, client.name) if client else "that is gone"
    words["invite"] = QUOTED.format(invite.note if invite and invite.note else "no note")
    with_invite = Markup(" with the invitation {}").format(words["invite"])
    words["with_invite"] = with_invite if "invite" in line else ""
    words["mod_level"] = LEVELS.get(str(line.get("mod_level")), "?")
    days = line.get("days")
    words["for_days"] = f" for {pluralize(days, 'day')}" if type(days) is int else ""
    words["report"] = REPORT.format(text_of(line.get("report")))
    return words


def word_for_player(users: dict[int, User], player: object, at_start: bool = False) -> Markup | str:
    """Return the words for an id in a line, whose player may have left, or for "command"."""
    if player == "command":
        return "The command" if at_start else "the command"
    if user := users.get(player) if type(player) is int else None:
        return LINK.format("users", user.id, user.name)
    return f"{'Player' if at_start else 'player'} {text_of(player)} (who left)"
