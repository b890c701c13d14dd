"""The queue of applications, for moderators: one by one, or a group of them at once."""

import ipaddress
import re
import time
from collections import Counter
from typing import NamedTuple
from urllib.parse import urlencode

from flask import Blueprint, abort, request
from werkzeug.wrappers import Response

from identity.acts import applications as acts
from identity.http.context import get_storage
from model.door_records import Application
from model.errors import KeyTaken
from model.names import unique_key
from model.records import User, now_ms
from model.words import say, say_number
from pages.admin.desk import render_desk
from pages.kit.actors import authority_of, require_moderator
from pages.kit.forms import FormRefused, form_view, redirect_with_notice, seen_time

SHOWN = 100  # of all, and of a group
GROUPS_SHOWN = 12
DECIDING = 8  # seconds for one press

admin_applications = Blueprint("admin_applications", __name__)


class Group(NamedTuple):
    """What applications share: a "network", a "domain" of emails, or the words of a "text"."""

    kind: str
    value: str


def groups_of(application: Application) -> list[Group]:
    address, network = application.address, ""
    if address and address != "unknown":
        bits = 48 if ":" in address else 24
        network = str(ipaddress.ip_network(f"{address}/{bits}", strict=False))
    words = " ".join(re.findall(r"\w+", unique_key(application.text)))
    shared = {"network": network, "domain": application.email.rpartition("@")[2], "text": words}
    return [Group(kind, value) for kind, value in shared.items() if value]


def chosen_group() -> Group:
    """Return the group that this request names, such as "domain example.org"."""
    kind, _, value = request.values.get("group", "").partition(" ")
    return Group(kind, value)


@admin_applications.get("/admin/applications")
def show_queue() -> str:
    """Show who waits, oldest first, of all or of a `group`."""
    return queue_page(require_moderator(), {})


def queue_page(player: User, problems: dict[str, str]) -> str:
    """Return the page, with the largest groups of those who wait."""
    seen = now_ms()
    waiting = [(each, groups_of(each)) for each in acts.find_waiting(get_storage())]
    sizes = Counter(each for _, groups in waiting for each in groups)
    group = chosen_group()
    rows = [row for row in waiting if group in row[1]] or waiting
    return render_desk(
        "admin/applications.html",
        player,
        rows=rows[:SHOWN],
        number=len(rows),
        group=group if group in sizes else None,
        groups=[each for each in sizes.most_common(GROUPS_SHOWN) if each[1] > 1],
        seen=seen,
        typed=request.form,
        problems=problems,
    )


@admin_applications.post("/admin/applications")
@form_view(lambda: (require_moderator(),), queue_page, stamped=True)
def decide(player: User) -> Response:
    """Approve or decline the chosen applications, or all of a group.

    An `act` is "approve", "decline", or one of these after "all". What came or changed after the
    page was shown, at the time `seen`, is left as it is.
    """
    form, seen = request.form, seen_time()
    act, is_all, chosen = read_decision()
    by, ends, done, taken = authority_of(player), time.monotonic() + DECIDING, 0, None
    for each in chosen:
        if time.monotonic() > ends:
            break
        try:
            if act == "approve":
                acts.approve(by, each.id, seen)
            else:
                acts.decline(by, each, form.get("reason", "").strip(), seen)
            done += 1
        except acts.Decided:
            if len(chosen) == 1:
                raise
        except KeyTaken as error:
            taken = say("%(name)s: %(problem)s", name=each.name, problem=error.problem)
    if taken:
        raise FormRefused({"form": taken}, 409)
    told = say_number("%(number)s request decided.", "%(number)s requests decided.", done)
    query = f"?{urlencode({'group': ' '.join(chosen_group())})}" if is_all else ""
    return redirect_with_notice(told, f"/admin/applications{query}")


def read_decision() -> tuple[str, bool, list[Application]]:
    """Return the act of a form, True if it is about a group, and its applications that wait."""
    _, is_all, act = request.form.get("act", "").rpartition("all ")
    if act not in ("approve", "decline"):
        abort(400)
    ids, group = request.form.getlist("application"), chosen_group()
    waiting = acts.find_waiting(get_storage())
    chosen = [each for each in waiting if (group in groups_of(each) if is_all else each.id in ids)]
    if not chosen:
        raise acts.Decided if ids or is_all else FormRefused({"form": say("Choose somebody.")})
    return act, bool(is_all), chosen
