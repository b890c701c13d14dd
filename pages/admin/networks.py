"""The bans of networks, for moderators."""

import re

from flask import Blueprint, current_app, request
from werkzeug.wrappers import Response

from identity.acts import network_bans as bans
from identity.acts.actors import Authority
from identity.acts.naming import name_actor
from identity.http.context import get_storage
from identity.http.proxies import plain_address
from model.door_records import NetworkBan
from model.records import User
from model.words import say
from pages.admin.desk import render_desk
from pages.kit.actors import authority_of, require_moderator
from pages.kit.forms import form_view, redirect_with_notice
from pages.kit.paging import addresses_beside
from pages.kit.proof import with_proof

BANS_SHOWN = 50  # on one page

networks = Blueprint("networks", __name__)


@networks.get("/admin/networks")
def show_networks() -> str:
    """Show the bans that last, newest first, `after` so many, and a form for a `network`."""
    return networks_page(require_moderator(), {})


def networks_page(player: User, problems: dict[str, str], **preview: object) -> str:
    """Return the page; a `preview` has a `new` ban, and what `count_hit` returned as `counted`."""
    after = request.args.get("after", "")
    start = int(after) if re.fullmatch("[0-9]{1,4}", after) else 0
    kept, end = bans.current_bans(get_storage()), start + BANS_SHOWN
    rows = [(each, name_actor(get_storage(), each.by).words) for each in kept[start:end]]
    shown = {"rows": rows, "problems": problems, "looked_at": bans.LOOKED_AT, **preview}
    shown["typed"] = request.form or {"network": request.args.get("network", "")}
    beside = addresses_beside(end if end < len(kept) else None)
    return render_desk("admin/networks.html", player, **shown, **beside)


@networks.post("/admin/networks")
@form_view(lambda: (require_moderator(),), networks_page, stamped=True)
def ban_network(player: User) -> Response | str:
    """Ban a `network` for some `days` with a `reason`; with `preview`, show whom that would hit.

    Accounts that are older by up to `reach` days are hit, too; with `waits` sign-ups may wait.
    """
    by, form = authority_of(player), request.form
    new = read_ban(by)
    if "preview" in form:
        return networks_page(player, {}, new=new, counted=bans.count_hit(by, new))
    bans.ban(by, new)
    return redirect_with_notice(say("Network banned."), "/admin/networks")


def read_ban(by: Authority) -> NetworkBan:
    """Return the ban that the form describes. Raises InvalidField, NotAllowed."""
    form = request.form
    days, reach = (
        int(form[name]) if re.fullmatch("[0-9]{1,2}", form.get(name, "")) else -1
        for name in ("days", "reach")
    )
    # What came through our proxies: the client's address, and those of all proxies but the last.
    forwarded = request.headers.get("X-Forwarded-For", "").split(",")
    last = request.environ.get("werkzeug.proxy_fix.orig", {}).get("REMOTE_ADDR", "")
    ours = [last, *forwarded[max(0, len(forwarded) - current_app.config["PROXIES"]) :]]
    proxies = [plain_address(each.strip()) or "" for each in ours]
    reason, waits = form.get("reason", "").strip(), "waits" in form
    return bans.new_ban(by, form.get("network", ""), days, reach, reason, waits, proxies)


@networks.post("/admin/networks/lift")
@form_view(lambda: (require_moderator(),), networks_page, stamped=True)
@with_proof
def lift_ban(player: User) -> Response:
    """Lift the ban of a `network`."""
    bans.lift(authority_of(player), request.form.get("network", ""))
    return redirect_with_notice(say("Ban lifted."), "/admin/networks")
