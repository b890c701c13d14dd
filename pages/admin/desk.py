"""What the pages of moderators and administrators share."""

from identity.acts.rights import may_administer
from model.records import User
from model.words import say
from pages.kit.forms import pop_notice
from pages.kit.rendering import render_page

TABS = {
    "/admin": say("Overview"),
    "/admin/applications": say("Requests to join"),
    "/admin/invitations": say("Invitations"),
    "/admin/players": say("Players"),
    "/admin/apps": say("Apps"),
    "/admin/networks": say("Networks"),
    "/admin/door": say("Door"),
    "/admin/log": say("Log"),
    "/admin/look": say("Appearance"),
    "/admin/chat": say("Chat"),
}
FOR_MODERATORS = ("/admin", "/admin/applications", "/admin/players", "/admin/networks")


def render_desk(template: str, player: User, **values) -> str:
    """Return a page with its notice and the tabs that this moderator or administrator has."""
    shown = TABS if may_administer(player) else FOR_MODERATORS
    tabs = [(address, TABS[address]) for address in shown]
    return render_page(template, player, tabs=tabs, notice=pop_notice(), **values)
