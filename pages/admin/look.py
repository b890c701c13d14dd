"""The look of the site: the administrators' form, the style sheet of the accent, and the logo."""

import base64
import hashlib

from flask import Blueprint, abort, request
from werkzeug.wrappers import Response

from identity.acts import look as look_acts
from identity.acts.look import DARK, LIGHT, Shade, parse_accent, read_look, shade
from identity.http.context import get_storage
from model.errors import InvalidField
from model.kinds import LOGOS
from model.records import User
from pages.admin.desk import render_desk
from pages.kit.actors import authority_of, require_administrator
from pages.kit.files import LASTING, send_image
from pages.kit.forms import form_view, redirect_with_notice, seen_time
from pages.kit.proof import ask_proof, with_proof
from pages.kit.rendering import contact_of, welcome_of
from pages.kit.uploads import read_images

SHEET = (
    ":root {{ --leaf: {light}; --on-leaf: {on_light}; }}\n"
    "@media (prefers-color-scheme: dark) {{ :root {{ --leaf: {dark}; --on-leaf: {on_dark}; }} }}\n"
)
PREVIEW_SHEET = ".in-light {{ --leaf: {light}; }}\n.in-dark {{ --leaf: {dark}; }}\n"

look = Blueprint("look", __name__)


@look.get("/admin/look")
def show_look() -> str:
    return look_page(require_administrator(), {})


def look_page(player: User, problems: dict[str, str]) -> str:
    """Return the page, with what was typed, and the accent in the light and the dark theme."""
    kept = read_look(get_storage())
    form = {} if "logo" in problems else request.form  # which may be too large to be read again
    typed = {"welcome": welcome_of(kept), "contact": contact_of(kept), "accent": kept.accent}
    typed |= {name: form[name] for name in typed if name in form}
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
        light=shade(accent, LIGHT),
        dark=shade(accent, DARK),
        is_preview="preview" in form,
        problems=problems,
    )


@look.post("/admin/look")
@form_view(lambda: (require_administrator(),), look_page, stamped=True)
def save_look(player: User) -> Response | str:
    """Change `welcome`, `contact` and `accent`; with `preview`, only show the accent."""
    texts = {name: request.form.get(name, "").strip() for name in ("welcome", "contact")}
    accent = request.form.get("accent", "")
    if "preview" in request.form:
        parse_accent(accent)
        return look_page(player, {})
    ask_proof(player)
    look_acts.change(authority_of(player), seen_time(), **texts, accent=accent)
    return redirect_with_notice("Look saved.", "/admin/look")


@look.post("/admin/look/logo")
@form_view(lambda: (require_administrator(),), look_page)
def save_logo(player: User) -> Response:
    """Make the upload `logo` the logo."""
    images = read_images(player, "logo")  # first: it sets how long the form may be
    ask_proof(player)
    look_acts.save_logo(authority_of(player), seen_time(), images["logo"])
    return redirect_with_notice("Logo saved.", "/admin/look")


@look.post("/admin/look/logo/remove")
@form_view(lambda: (require_administrator(),), look_page, stamped=True)
@with_proof
def remove_logo(player: User) -> Response:
    """Remove the logo: the built-in picture of a door takes its place again."""
    look_acts.remove_logo(authority_of(player), seen_time())
    return redirect_with_notice("Logo removed.", "/admin/look")


@look.get("/look.css")
def sheet() -> Response:
    """Return the style sheet of the saved accent, or of the preview of another `accent`."""
    kept, typed = read_look(get_storage()), request.args.get("accent")
    try:
        accent = kept.accent if typed is None else parse_accent(typed)
    except InvalidField:
        abort(404)
    text = ""
    if accent:
        light, dark = shade(accent, LIGHT), shade(accent, DARK)
        text = fill(SHEET if typed is None else PREVIEW_SHEET, light, dark)
    is_current = typed is None and request.args.get("v") == str(kept.changed)
    headers = {"Cache-Control": LASTING if is_current else "no-cache"}
    return Response(text, headers=headers, content_type="text/css; charset=utf-8")


def fill(template: str, light: Shade, dark: Shade) -> str:
    """Return SHEET or PREVIEW_SHEET with the shades of both themes filled in."""
    on = {"on_light": LIGHT.on_leaf, "on_dark": DARK.on_leaf}
    return template.format(light=light.colour, dark=dark.colour, **on)


@look.get("/look/logo-<logo_id>.webp")
def logo(logo_id: str) -> Response:
    """Return the current logo. Raises NotFound for the id of an earlier one."""
    if logo_id != str(read_look(get_storage()).logo):
        abort(404)
    content = base64.b64decode(get_storage().records(LOGOS).read(int(logo_id)).image)
    return send_image(content, hashlib.sha256(content).hexdigest(), LASTING)
