"""The page after a sign-in that shows a form which was sent without a session."""

from flask import Blueprint, redirect
from werkzeug.wrappers import Response

from identity.access import unsent as kept
from identity.access.sessions import require_player
from pages.kit.rendering import render_page

unsent = Blueprint("unsent", __name__)


@unsent.get(kept.ADDRESS)
def show_unsent() -> Response | str:
    """Show what the player typed, with a form that sends it again; without it lead to /account."""
    player = require_player()
    form = kept.pop_form(player.id)
    if form is None:
        return redirect("/account", 303)
    texts = [text for name, text in form.fields if name in kept.TEXTS and text]
    return render_page("kit/unsent.html", player, form=form, texts=texts)
