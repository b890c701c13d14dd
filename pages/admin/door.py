"""The administrators' page of who may come in, and on which terms."""

from flask import Blueprint, request
from werkzeug.wrappers import Response

from identity.acts import door as door_acts
from identity.http.context import get_storage
from identity.site.domains import INSTALL, MOST_BYTES, knows_throwaway
from identity.site.door import ALLOWED, PRIVACY, REFUSED, TERMS, read_door, read_text
from model.records import User, now_ms
from model.words import say
from pages.admin.desk import render_desk
from pages.kit.actors import authority_of, require_administrator
from pages.kit.forms import form_view, redirect_with_notice, seen_time
from pages.kit.proof import with_proof

LONGEST_FORM = 2 * MOST_BYTES + 64 * 1024  # bytes: too long a list is refused in words

door = Blueprint("door", __name__)


@door.get("/admin/door")
def show_door() -> str:
    return door_page(require_administrator(), {})


def door_page(player: User, problems: dict[str, dict[str, str]]) -> str:
    """Return the page; `problems` are by form and field.

    `typed` is what the form that was refused had: a template asks which one by `problems`.
    """
    store = get_storage()
    return render_desk(
        "admin/door.html",
        player,
        door=read_door(store),
        lists={each: read_text(store, each).text for each in (ALLOWED, REFUSED)},
        ages=door_acts.AGES,
        install="" if knows_throwaway() else INSTALL,
        terms=read_text(store, TERMS),
        privacy=read_text(store, PRIVACY),
        now=now_ms(),
        typed=request.form,
        problems=problems,
    )


def enter_text() -> tuple[User]:
    """Let a form be long, and return who sends it."""
    player = require_administrator()
    request.max_content_length = request.max_form_memory_size = LONGEST_FORM
    return (player,)


@door.post("/admin/door")
@form_view(lambda: (require_administrator(),), door_page, "rules", stamped=True)
@with_proof
def save_rules(player: User) -> Response:
    """Change which domains of addresses are taken, and the `minimum_age`."""
    form, age = request.form, request.form.get("minimum_age", "")
    flags = {name: name in form for name in ("refuses_throwaway", "only_allowed", "admits_younger")}
    age = int(age) if age in map(str, door_acts.AGES) else -1
    door_acts.change(authority_of(player), seen_time(), **flags, minimum_age=age)
    return redirect_with_notice(say("Saved."), "/admin/door")


@door.post("/admin/door/allowed", defaults={"text_id": ALLOWED})
@door.post("/admin/door/refused", defaults={"text_id": REFUSED})
@form_view(
    lambda text_id: (*enter_text(), text_id),
    lambda player, text_id, problems: door_page(player, {text_id: problems}),
    stamped=True,
)
@with_proof
def save_list(player: User, text_id: str) -> Response:
    """Replace a list of domains by the `list`."""
    door_acts.change_list(authority_of(player), seen_time(), text_id, request.form.get("list", ""))
    return redirect_with_notice(say("Saved."), "/admin/door")


def typed_text() -> str:
    return request.form.get("text", "").replace("\r\n", "\n").strip()


@door.post("/admin/door/terms")
@form_view(enter_text, door_page, "terms", stamped=True)
@with_proof
def publish(player: User) -> Response:
    """Make the `text` the terms from the `day` on; if it `asks`, players agree to it."""
    day, asks = request.form.get("day", ""), "asks" in request.form
    door_acts.publish(authority_of(player), seen_time(), typed_text(), day, asks)
    return redirect_with_notice(say("Terms saved."), "/admin/door")


@door.post("/admin/door/privacy")
@form_view(enter_text, door_page, "privacy", stamped=True)
@with_proof
def save_privacy(player: User) -> Response:
    """Set the `text` about privacy, and link it on each page if `shown` is sent."""
    shown = "shown" in request.form
    door_acts.save_privacy(authority_of(player), seen_time(), typed_text(), shown)
    return redirect_with_notice(say("Privacy page saved."), "/admin/door")
