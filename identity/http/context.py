"""The storage and settings of the app that handles the current request."""

from flask import current_app, g

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
