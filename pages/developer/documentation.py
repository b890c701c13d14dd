"""The pages of docs/ for developers of games and of other apps, for everybody."""

from flask import Blueprint

from identity.access.sessions import signed_in_player
from identity.http.context import base_url
from pages.kit.documents import DEVELOPERS
from pages.kit.rendering import Preview, render_page

documentation = Blueprint("documentation", __name__)


@documentation.get(DEVELOPERS.address)
def show_index() -> str:
    """Show links to the pages."""
    summary = "How a game, a forum or a wiki asks this site who a player is."
    preview = Preview("For developers", summary, address=DEVELOPERS.address)
    return render_page("developer/documentation.html", signed_in_player(), preview)


@documentation.get(f"{DEVELOPERS.address}/<name>")
def show_page(name: str) -> str:
    """Show the page with this name, or a 404."""
    page = DEVELOPERS.read(name, base_url())
    preview = Preview(page["title"], page["summary"], address=page["address"])
    return render_page("developer/documentation_page.html", signed_in_player(), preview, page=page)
