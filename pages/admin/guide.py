"""The pages of docs/ for administrators; moderators read there what they can do."""

from pathlib import Path

from flask import Blueprint
from werkzeug.wrappers import Response

from identity.http.context import base_url
from identity.http.responses import NO_STORE
from identity.site.settings import RESOURCES
from pages.admin.desk import render_desk
from pages.kit.actors import require_moderator
from pages.kit.documents import ADMINISTRATORS, EXAMPLE, PICTURES
from pages.kit.rendering import render_page

guide = Blueprint("guide", __name__)


@guide.get(ADMINISTRATORS.address)
def show_index() -> str:
    """Show links to the pages."""
    return render_desk("admin/guide.html", require_moderator(), titles=ADMINISTRATORS.titles)


@guide.get(f"{ADMINISTRATORS.address}/<name>")
def show_page(name: str) -> Response | str:
    """Show the page, or a picture of the pages, with this name, or a 404.

    A site without https has no public name yet: its pages keep the one of the examples.
    """
    player = require_moderator()
    if name in PICTURES:
        content = Path(RESOURCES, "docs", name).read_bytes()
        return Response(content, mimetype="image/svg+xml", headers=NO_STORE)
    site = base_url() if base_url().startswith("https://") else EXAMPLE
    return render_page("admin/guide_page.html", player, page=ADMINISTRATORS.read(name, site))
