"""Rendering: the values and headers that pages get besides their own."""

from typing import NamedTuple

from flask import current_app, render_template

from identity import rights
from identity.context import base_url
from identity.oauth import find_pending_authorization, redirect_targets
from identity.responses import security_policy
from identity.stamps import issue_stamp
from storage import User


def is_open_to_members() -> bool:
    """Return True if every member may register clients."""
    return current_app.config["CLIENT_REGISTRATION"] == "members"


def may_register(player: User) -> bool:
    """Return True if this player may register clients."""
    return rights.may_register(player, is_open_to_members())


class Preview(NamedTuple):
    """What chat programs and search engines show of a page: public values only.

    `image` and `address` are paths on this server. A page with a secret in its query has no
    `address`.
    """

    title: str
    description: str = "One account for all our games, with your name, picture and play time."
    image: str = "/static/touch-icon.png"
    address: str | None = None


def render_page(
    template: str, player: User | None, preview: Preview | None = None, **values
) -> str:
    """Return a page for the signed-in player, or None; its navigation depends on the player.

    The template gets the `stamp` of the forms on it, and a general `preview` unless one is given.
    """
    shared = {
        "preview": preview or Preview(current_app.config["SITE_NAME"]),
        "site": base_url(),
        "may_register": player is not None and may_register(player),
        "stamp": issue_stamp() if player else None,
    }
    return render_template(template, player=player, **shared, **values)


def render_guest_page(template: str, leads_to: str, **values) -> tuple[str, dict[str, str]]:
    """Return a page whose form signs in and leads to an address of this server, and its headers.

    If that is an authorization request, the page gets `client_name`, and the form may lead to the
    client.
    """
    client, redirect_uri = find_pending_authorization(leads_to) or (None, None)
    client_name = client and client.name
    page = render_page(template, None, next=leads_to, client_name=client_name, **values)
    return page, security_policy(form_targets=redirect_targets(redirect_uri)) if client else {}
