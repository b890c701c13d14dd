"""The look of the site: the administrators' form, the style sheet of the accent, and the logo."""

import base64
import hashlib
from collections.abc import Mapping

from flask import Blueprint, abort, current_app, request
from werkzeug.wrappers import Response

from identity.acts import look as look_acts
from identity.acts.look import parse_accent
from identity.http.context import get_storage, site_look, site_name
from identity.http.languages import shown
from identity.site.look import colours_of, contrast_on, logo_png
from model.errors import InvalidField
from model.kinds import LOGOS
from model.records import User
from model.words import say
from pages.admin.desk import render_desk
from pages.kit.actors import authority_of, require_administrator
from pages.kit.files import LASTING, send_image
from pages.kit.forms import form_view, redirect_with_notice, seen_time
from pages.kit.proof import ask_proof, with_proof
from pages.kit.rendering import contact_of, welcome_of
from pages.kit.uploads import read_images

SHEET = ":root {{ {} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {} }} }}\n"
PREVIEW_SHEET = ".in-light {{ color-scheme: light; {} }}\n.in-dark {{ color-scheme: dark; {} }}\n"

look = Blueprint("look", __name__)


@look.get("/admin/look")
def show_look() -> str:
    return look_page(require_administrator(), {})


def look_page(player: User, problems: dict[str, str]) -> str:
    """Return the page, with what was typed, and the accent in the light and the dark theme."""
    kept = site_look()
    form = {} if "logo" in problems else request.form  # which may be too large to be read again
    typed = {"name": site_name(), "welcome": welcome_of(kept), "contact": contact_of(kept)}
    typed |= {name: form[name] for name in typed if name in form}
    typed["accent"] = chosen_accent(form) if "accent" in form else kept.accent
    try:
        accent = parse_accent(typed["accent"])
    except InvalidField:
        accent = kept.accent
    return render_desk(
        "admin/look.html",
        player,
        kept=kept,
        seen=form.get("seen", kept.changed),
        typed=typed,
        shown=accent,
        leaves=[(each["leaf"], contrast_on(each, each["leaf"])) for each in colours_of(accent)],
        is_preview="preview" in form,
        problems=problems,
    )


def chosen_accent(form: Mapping[str, str]) -> str:
    """Return the colour `picked` if it is another than `unpicked`, the page's, else the text."""
    is_same = form.get("picked", "") == form.get("unpicked", "")
    return form.get("accent", "") if is_same else form.get("picked", "")


@look.post("/admin/look")
@form_view(lambda: (require_administrator(),), look_page, stamped=True)
def save_look(player: User) -> Response | str:
    """Change `name`, `welcome`, `contact` and the accent; with `preview`, only show the accent."""
    texts = {name: request.form.get(name, "").strip() for name in ("name", "welcome", "contact")}
    accent = chosen_accent(request.form)
    if "preview" in request.form:
        parse_accent(accent)
        return look_page(player, {})
    ask_proof(player)
    if texts["name"] == current_app.config["SITE_NAME"]:
        texts["name"] = ""  # the setting can still change it
    if texts["welcome"] == shown(current_app.config["WELCOME"]):
        texts["welcome"] = None  # not in this language alone
    look_acts.change(authority_of(player), seen_time(), **texts, accent=accent)
    return redirect_with_notice(say("Appearance saved."), "/admin/look")


@look.post("/admin/look/logo")
@form_view(lambda: (require_administrator(),), look_page)
def save_logo(player: User) -> Response:
    """Make the upload `logo` the logo."""
    images = read_images(player, "logo")  # first: it sets how long the form may be
    ask_proof(player)
    look_acts.save_logo(authority_of(player), seen_time(), images["logo"])
    return redirect_with_notice(say("Logo saved."), "/admin/look")


@look.post("/admin/look/logo/remove")
@form_view(lambda: (require_administrator(),), look_page, stamped=True)
@with_proof
def remove_logo(player: User) -> Response:
    """Remove the logo: the built-in picture of a door takes its place again."""
    look_acts.remove_logo(authority_of(player), seen_time())
    return redirect_with_notice(say("Logo removed."), "/admin/look")


@look.get("/look.css")
def sheet() -> Response:
    """Return the style sheet of the saved accent, or of the preview of another `accent`."""
    kept, typed = site_look(), request.args.get("accent")
    try:
        accent = kept.accent if typed is None else parse_accent(typed)
    except InvalidField:
        abort(404)
    blocks = (
        " ".join(f"--{name}: {theme[name]};" for name in theme) for theme in colours_of(accent)
    )
    text = (SHEET if typed is None else PREVIEW_SHEET).format(*blocks)
    is_current = typed is None and request.args.get("v") == str(kept.changed)
    headers = {"Cache-Control": LASTING if is_current else "no-cache"}
    return Response(text, headers=headers, content_type="text/css; charset=utf-8")


@look.get("/look/logo-<logo_id>.<any(webp, png):ending>")
def logo(logo_id: str, ending: str) -> Response:
    """Return the current logo. Raises NotFound for the id of an earlier one.

    Home screens and chat programs get a PNG file on white: some know no webp.
    """
    kept, store = site_look(), get_storage()
    if not kept.logo or logo_id != str(kept.logo):
        abort(404)
    content = base64.b64decode(store.records(LOGOS).read(kept.logo).image)
    if ending == "png":  # never the door, which would stay in caches
        content = logo_png(store, kept, side=256)
    response = send_image(content, hashlib.sha256(content).hexdigest(), LASTING)
    response.content_type = f"image/{ending}"
    return response
