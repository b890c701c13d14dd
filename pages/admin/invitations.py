"""The administrators' page of invitations."""

import re

from flask import Blueprint, request
from markupsafe import Markup
from werkzeug.wrappers import Response

from identity.acts import invitations as invitation_acts
from identity.acts.naming import say_left
from identity.http.context import base_url, get_storage
from identity.site.advice import explain_loopback
from identity.site.formatting import join_words
from model.kinds import INVITES
from model.records import User, now_ms
from model.site_records import Invite
from model.words import say, say_number
from pages.admin.desk import render_desk
from pages.kit.actors import authority_of, require_administrator
from pages.kit.forms import FormRefused, form_view, redirect_with_notice
from pages.kit.paging import page_beside, place_in
from pages.kit.proof import ask_proof, with_proof

INVITES_SHOWN = 50  # on one page
NAMES_SHOWN = 3  # of those who used one
LENGTHS = {  # by days
    str(days): say_number("%(number)s day", "%(number)s days", days) for days in (1, 7, 30)
}
LENGTHS["365"] = say("1 year")
LINK = Markup('<a href="/users/{}"><bdi>{}</bdi></a>')

invitations = Blueprint("invitations", __name__)


@invitations.get("/admin/invitations")
def show_invitations() -> str:
    """Show the invitations, the newest first, a page at a time: `before` or `after` an id."""
    return invitations_page(require_administrator(), {})


def invitations_page(player: User, problems: dict[str, str], secret: str | None = None) -> str:
    """Return the page; `secret` is the secret of an invitation that has just been created."""

    def read(place: str | None, at_most: int, backwards: bool) -> list[Invite]:
        invites = get_storage().invites
        return invites.page("list", "all", place, at_most, newest_first=not backwards)

    places = [place_in(INVITES, each) for each in ("before", "after")]
    page = page_beside(read, INVITES_SHOWN, *places)
    if not page.shown:  # there are no newer ones, or no older ones
        page = page_beside(read, INVITES_SHOWN)
    return render_desk(
        "admin/invitations.html",
        player,
        rows=describe(page.shown),
        previous=page.previous,
        next=page.next,
        lengths=LENGTHS,
        typed=request.form,
        known_flairs=[each for each in player.flairs if each != "none"],
        link=secret and f"{base_url()}/sign-up?invite={secret}",
        only_here=explain_loopback(base_url()),
        problems=problems,
    )


def describe(invites: list[Invite]) -> list[dict]:
    """Return invitations with their state, and the first of the players who used them."""
    store = get_storage()
    accounts = [(invite, store.invites.accounts_with(invite)) for invite in invites]
    ids = [each for _, used_by in accounts for each in used_by[:NAMES_SHOWN]]
    users = store.users.read_from_many(list({*ids}))
    known, now = {user.id: user for user in users}, now_ms()
    return [
        {
            "invite": each,
            "used": len(used_by),
            "is_open": now < each.ends and len(used_by) < each.uses,
            "is_over": each.ends <= now,
            "used_by": join_words(name_some(used_by, known)),
        }
        for each, used_by in accounts
    ]


def name_some(ids: list[int], known: dict[int, User]) -> list[str]:
    """Return the names of the first of these players, and how many others there are."""
    names = [
        LINK.format(each, known[each].name) if each in known else say_left(str(each))
        for each in ids[:NAMES_SHOWN]
    ]
    others = len(ids) - len(names)
    return [*names, say_number("%(number)s more", "%(number)s more", others)] if others else names


@invitations.post("/admin/invitations")
@form_view(lambda: (require_administrator(),), invitations_page, stamped=True)
@with_proof
def create_invitation(player: User) -> tuple:
    """Create an invitation for `uses` accounts and `days`, with a `note` and a `flair`.

    With `names_inviter` its page says who invites.
    """
    form = request.form
    numbers = {"uses": say("Write how many people as a number."), "days": say("Choose how long.")}
    for field, problem in numbers.items():
        if not re.fullmatch("[0-9]{1,6}", form.get(field, "")):
            raise FormRefused({field: problem})
    texts = {field: form.get(field, "").strip() for field in ("note", "flair")}
    secret = invitation_acts.create(
        *(authority_of(player), int(form["days"]), int(form["uses"])),
        **texts,
        names_inviter="names_inviter" in form,
    )
    return show_link(player, secret)


def show_link(player: User, secret: str) -> tuple:
    """Return the page with a new invitation's link, which no other response has, and a 201."""
    return invitations_page(player, {}, secret), 201, {"Location": "/admin/invitations"}


@invitations.post("/admin/invitations/revoke")
@form_view(lambda: (require_administrator(),), invitations_page, stamped=True)
def revoke_invitation(player: User) -> Response | tuple:
    """Revoke the invitation `id`; with `again`, put a new one of the same kind in its place."""
    by, invite_id = authority_of(player), request.form.get("id", "")
    if "again" in request.form:
        ask_proof(player)
        return show_link(player, invitation_acts.renew(by, invite_id))
    invitation_acts.revoke(by, invite_id)
    return redirect_with_notice(say("Invitation revoked."), "/admin/invitations")
