"""The administrators' list of all apps: by their last sign-in, or by their owner.

Above it are those that could not be told of sign-outs.
"""

import contextlib
import re

from flask import Blueprint, request

from identity.acts.naming import find_player_id, name_owner
from identity.http.context import get_storage
from identity.messages.outbox import LOGOUT
from identity.site.formatting import format_hours_ago
from identity.site.pasted import unwrap
from model.errors import DamagedRecord, NotFound
from model.kind import hour_of
from model.kinds import OUTBOX, given_up_of
from model.records import Client
from model.rules import CLIENT_ID
from model.site_records import Message
from model.words import say
from pages.admin.desk import render_desk
from pages.kit.actors import require_administrator
from pages.kit.paging import addresses_beside

APPS_SHOWN = 50  # on one page
APPS_READ = 300  # at most for one page, of those that nobody signed in to
START = "0" * 16  # a place before the ids of all apps
OWNED = 500  # at most of one owner, newest sign-ins first
PLACE = re.compile(rf"(?:([0-9]{{7}})-)?({CLIENT_ID.pattern})")  # an hour, and an id

admin_apps = Blueprint("admin_apps", __name__)


@admin_apps.get("/admin/apps")
def show_apps() -> str:
    """Show a page of the apps, or those of an `owner`: a player's name or "administrators"."""
    viewer, args = require_administrator(), request.args
    whose, owner = args.get("whose", ""), unwrap(args.get("owner", ""))
    found, problems = PLACE.fullmatch(args.get("after", "")), {}
    owner_id = find_player_id(get_storage(), owner) if owner else None
    if owner and owner_id is None:
        problem = say("No player has this name. Type another one.")
        problems, apps, more = {"owner": problem}, [], None
    elif owner or whose == "administrators":
        owned = get_storage().clients.of_owner(owner_id, at_most=OWNED)
        apps, more = sorted(owned, key=lambda app: app.used, reverse=True), None
    else:
        apps, more = apps_after(*found.groups() if found else (None, None))
    return render_desk(
        "admin/apps.html",
        viewer,
        rows=[(app, name_owner(get_storage(), app), format_hours_ago(app.used)) for app in apps],
        **addresses_beside(more),
        owner=owner,
        whose=whose,
        not_told=apps_not_told(),
        problems=problems,
    )


def apps_not_told() -> list[tuple[Client, Message]]:
    """Return apps that could not be told of sign-outs, each with the last message given up."""
    outbox, found = get_storage().records(OUTBOX), {}
    for each in outbox.page("queue", given_up_of(LOGOUT), None, APPS_READ, newest_first=True):
        found.setdefault(each.to, each)
    clients = get_storage().clients.read_from_many([*found][:APPS_SHOWN])
    return [(client, found[client.id]) for client in clients]


def apps_after(hour: str | None, client_id: str | None) -> tuple[list[Client], str | None]:
    """Return the apps of a page, and the place after which the next page starts, None at the end.

    First come the apps that players signed in to, the last sign-in first, behind an hour and an id;
    then, by id, the others, behind an id alone. Without both this is the first page.
    """
    clients, found = get_storage().clients, []
    if hour or not client_id:
        place = (hour, client_id) if hour else None
        found = clients.between("used", "0", "9", place, APPS_SHOWN + 1)
        if len(found) > APPS_SHOWN:
            last = found[APPS_SHOWN - 1]
            return found[:APPS_SHOWN], f"{hour_of(last.used)}-{last.id}"
        client_id = None
    ids = clients.ids(client_id, APPS_READ)
    for each in ids:
        if len(found) == APPS_SHOWN:
            return found, client_id or START
        client_id = each
        with contextlib.suppress(NotFound, DamagedRecord):
            app = clients.read(each)
            found += [] if app.used else [app]
    return found, client_id if len(ids) == APPS_READ else None
