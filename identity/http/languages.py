"""Which language a page has."""

import re
from urllib.parse import unquote_plus

from flask import current_app, g, request

from identity.http.context import base_url, find_cookies
from identity.site.catalogues import LANGUAGES
from identity.site.languages import find_language, find_preferred, first_known, speaking
from model.words import speaker

# Pages in English alone, for developers and administrators.
ENGLISH_PAGES = ("/developer", "/admin/docs")
# OpenID Connect Core 3.1.2.1; in a query, or in an address inside of one, encoded once or twice.
UI_LOCALES = re.compile(
    r"(?:[?&]|%(?:25)?(?:3F|26))ui_locales(?:=|%(?:25)?3D)([^&]{1,300})", re.IGNORECASE
)


def page_language() -> str:
    """Return the language of the page of this request.

    That is the player's choice, else what this browser chose, else what the app that sent the
    player asks for, else what the browser prefers, else that of the site.
    """
    if request.path.startswith(ENGLISH_PAGES):
        return "en"
    # Not signed_in_player: an error page must not fail at the record as well.
    player = g.get("player")
    if player and player.language in LANGUAGES:  # an older program knew others
        return player.language
    chosen = find_cookies(request, language_cookie())
    preferred = find_preferred(request.headers.get("Accept-Language", ""))
    return first_known(*chosen, _ui_locales(), preferred, current_app.config["LANGUAGE"])


def language_cookie() -> str:
    """Return the name of the cookie of the chosen language."""
    return "__Host-language" if base_url().startswith("https:") else "language"


def _ui_locales() -> str | None:
    # Of a form only what was read already: reading it may be what failed.
    form = request.__dict__.get("form") or {}
    sent = f"?{request.query_string.decode('latin-1')}&{form.get('next', '')}"
    # Nobody encodes these characters (RFC 3986 2.3).
    match = UI_LOCALES.search(sent) if "ui_locales" in sent else None
    if match is None:
        return None
    # Decoding all of it would take as long as a page, for each time on that.
    values = unquote_plus(unquote_plus(match[1]))
    return find_language(re.split(r"[^\w -]", values)[0].split())


def shown(text: str) -> str:
    """Return words as text in the language of this page; another text as it is."""
    if spoken := speaker.get():  # the page is being written
        return spoken.shown(text)
    with speaking(page_language()) as language:
        return language.shown(text)
