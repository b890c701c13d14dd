"""The announcement to all players: its text, for how long they read it, and its end."""

from flask import Blueprint, request
from werkzeug.wrappers import Response

from identity.acts import announcement as announcement_acts
from identity.acts.chat import find_webhook
from identity.http.context import get_storage, site_look
from model.records import User, now_ms
from model.words import say, say_number
from pages.admin.desk import render_desk
from pages.community.players import link_addresses
from pages.kit.actors import authority_of, require_administrator
from pages.kit.forms import FormRefused, form_view, redirect_with_notice, seen_time
from pages.kit.proof import with_proof

PATH = "/admin/announcement"
LENGTHS = {  # by days
    str(days): say_number("%(number)s day", "%(number)s days", days) for days in (1, 3, 7, 30)
}

announcement = Blueprint("announcement", __name__)


@announcement.get(PATH)
def show_announcement() -> str:
    return announcement_page(require_administrator(), {})


def announcement_page(player: User, problems: dict[str, str]) -> str:
    """Return the page, with what was typed and the announcement that players see now."""
    look, webhook, form = site_look(), find_webhook(get_storage()), request.form
    is_shown = now_ms() < look.announced_until
    return render_desk(
        "admin/announcement.html",
        player,
        shown=link_addresses(look.announcement) if is_shown else None,
        until=look.announced_until,
        seen=form.get("seen", look.changed),
        typed=form,
        lengths=LENGTHS,
        has_chat=webhook is not None,
        is_told=webhook is not None and "announcement" in webhook.events,
        problems=problems,
    )


announcement_form = form_view(lambda: (require_administrator(),), announcement_page, stamped=True)


@announcement.post(PATH)
@announcement_form
@with_proof
def announce(player: User) -> Response:
    """Show the `text` to all players for a number of `days`."""
    text = request.form.get("text", "").replace("\r\n", "\n").strip()
    days = request.form.get("days", "")
    if days not in LENGTHS:
        raise FormRefused({"days": say("Choose how long.")})
    announcement_acts.announce(authority_of(player), seen_time(), text, int(days))
    return redirect_with_notice(say("Announced. All players see it on the home page."), PATH)


@announcement.post(f"{PATH}/end")
@announcement_form
def end_announcement(player: User) -> Response:
    announcement_acts.end(authority_of(player), seen_time())
    return redirect_with_notice(say("Announcement ended."), PATH)
