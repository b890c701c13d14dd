"""The administrators' page of the audit log, read from its end."""

import datetime
import itertools
import operator
import re
from typing import NamedTuple

from flask import Blueprint, request
from markupsafe import Markup

from identity.acts.audit_words import GROUPS, say_line
from identity.acts.naming import find_player_id, say_left
from identity.http.context import get_storage
from identity.site.formatting import format_weekday
from identity.site.pasted import unwrap
from model.kind import DAY_MS
from model.records import Client, User
from model.rules import TIME_END
from model.site_records import Invite
from model.words import Words, plain, say
from pages.admin.desk import render_desk
from pages.kit.actors import require_administrator
from pages.kit.paging import addresses_beside
from pages.kit.rendering import mark_time
from storage.audit_lines import decode_line
from storage.repositories import Records

LINES_SHOWN = 100  # on one page
BYTES_READ = 900_000  # bytes for one page, of which many lines may be about others
LINK = Markup('<a href="/{}/{}"><bdi>{}</bdi></a>')
NAME = Markup("<bdi>{}</bdi>")
REPORT = Markup('<a href="/admin/reports/{}">')

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
        problems["player"] = say("Nobody has this name. Type a name, or the number of a player.")
    until, before = end_of_day(day), None
    if day and until is None:
        problems["day"] = say("Write the day like 2026-11-24.")
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
        groups=[(plain(each), each) for each in GROUPS],
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
            return {each.id: each for each in records.read_from_many([*ids])}

        store = get_storage()
        users = read(store.users, int, "by", "user")
        clients, invites = read(store.clients, str, "client"), read(store.invites, str, "invite")
        return cls(users, clients, invites)


def describe(lines: list[dict]) -> list[tuple[Words, Markup, Words]]:
    """Return the day, the time and the sentence of each line."""
    known, described = Known.of(lines), []
    for line in lines:
        time = line.get("time")
        time = time if type(time) is int and 0 <= time < TIME_END else 0
        sentence = say_line(line, **values_of(line, known))
        described.append((format_weekday(time), mark_time(time, "%H:%M"), sentence))
    return described


def values_of(line: dict, known: Known) -> dict[str, str]:
    """Return what takes the places of the sentence for a line; one edited by hand may lack it."""
    client = known.clients.get(str(line.get("client")))
    invite = known.invites.get(str(line.get("invite")))
    gone = say("%(id)s (gone)", id=NAME.format(text_of(line.get("client", "?"))))
    return {
        **{name: text_of(line.get(name, "?")) for name in ("act", "flair", "mod_level")},
        "by": name_in_line(known.users, line.get("by")),
        "user": name_in_line(known.users, line.get("user", "?")),
        "client": LINK.format("developer", client.id, client.name) if client else gone,
        "invite": NAME.format(invite.note) if invite and invite.note else say("no note"),
        "start": REPORT.format(text_of(line.get("report"))),
        "end": Markup("</a>"),
    }


def text_of(value: object) -> str:
    """Return a value as text; half a surrogate pair, which no page can have, as "?"."""
    return str(value).encode(errors="replace").decode()


def name_in_line(users: dict[int, User], player: object) -> Markup | Words:
    """Return the name for an id in a line, whose player may have left, or for "command"."""
    if player == "command":
        return say("The command")
    if user := users.get(player) if type(player) is int else None:
        return LINK.format("users", user.id, user.name)
    return say_left(text_of(player))
