"""The page on which a player or a guest chooses a language; it works without JavaScript."""

from urllib.parse import urlsplit

from flask import Blueprint, abort, current_app, redirect, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from identity.access.sessions import local_address, next_address, signed_in_player
from identity.acts import accounts
from identity.http.context import base_url
from identity.http.languages import language_cookie
from identity.site.catalogues import LANGUAGES
from identity.site.formatting import DAY
from identity.site.languages import language_of
from model.words import say
from pages.kit.actors import authority_of
from pages.kit.forms import tell_language_changed
from pages.kit.rendering import render_page

KEPT = 400 * DAY  # seconds: browsers keep no cookie longer
PATH = "/language"

language = Blueprint("language", __name__)


@language.get(PATH)
def show_languages() -> str:
    """Show each language in its own words; the form leads to `next`, else to the page before."""
    return render_page(
        "entry/language.html",
        signed_in_player(),
        languages=[language_of(code) for code in LANGUAGES],
        next=next_address() if "next" in request.args else page_before(),
    )


def page_before() -> str:
    """Return the address of the page with the link that led here, "/" if that is unknown."""
    # Not in the query of the link: it would be on each page, with the secrets of its address.
    origin, _, path = request.headers.get("Referer", "").partition(base_url())
    address = local_address(path)
    try:  # the answer to a form has an address that takes forms alone
        current_app.create_url_adapter(request).match(urlsplit(address).path, "GET")
    except (HTTPException, ValueError):
        return "/"
    return "/" if origin or urlsplit(address).path == PATH else address


@language.post(PATH)
def choose_language() -> Response:
    """Keep the `language` in this browser, and for a signed-in player; lead to `next`."""
    code, player = request.form.get("language"), signed_in_player()
    if code not in LANGUAGES:
        abort(400, say("This site does not know this language."))
    if player and player.language != code:
        accounts.change_profile(authority_of(player), player.id, language=code)
        tell_language_changed(player, code)
    response = redirect(next_address(), 303)
    is_secure = base_url().startswith("https:")
    options = {"secure": is_secure, "httponly": True, "samesite": "Lax"}
    response.set_cookie(language_cookie(), code, max_age=KEPT, **options)
    return response
