"""The storage and settings of the app that handles the current request, and its cookies."""

import re

from flask import Request, current_app, g

from identity.site.look import read_look, site_name_of
from model.site_records import Look
from storage import Storage


def get_storage() -> Storage:
    """Return the storage of the app that handles this request."""
    return current_app.extensions["storage"]


def mail_is_on() -> bool:
    """Return True if this server can send letters."""
    return bool(current_app.config["SMTP_URL"])


def base_url() -> str:
    """Return the origin at which people reach this server, such as "https://id.example.org"."""
    return current_app.config["BASE_URL"]


def site_look() -> Look:
    """Return the look of the site, which is read once for this request."""
    if "look" not in g:
        g.look = read_look(get_storage())
    return g.look


def site_name() -> str:
    return site_name_of(site_look(), current_app.config)


def find_cookies(request: Request, name: str) -> list[str]:
    """Return the values of all cookies with this name."""
    # Not request.cookies: Werkzeug reads `x="` of a sibling site, and all cookies up to another
    # quote, as one quoted value. Browsers send cookies without quoting (RFC 6265 5.4).
    cookies = re.split("; *", request.environ.get("HTTP_COOKIE", ""))
    return [each.removeprefix(f"{name}=") for each in cookies if each.startswith(f"{name}=")]
