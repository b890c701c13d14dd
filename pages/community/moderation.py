"""The forms of moderators and administrators on profiles."""

import re

from flask import Blueprint, abort, request
from werkzeug.wrappers import Response

from identity.access.letters import mail_administrators
from identity.access.links import give_sign_in_link
from identity.access.sessions import require_player
from identity.acts import accounts, notes
from identity.acts.actors import Authority
from identity.acts.network_bans import accounts_beside
from identity.http.context import base_url
from model.records import User
from model.words import say
from pages.community.moderation_card import KEEP_END, SUSPENSION_DAYS
from pages.community.players import profile_page, read_shown_user
from pages.kit.actors import authority_of, require_moderator
from pages.kit.forms import FormRefused, as_form_errors, form_view, redirect_with_notice
from pages.kit.proof import ask_proof, with_proof

RESET_NOTICES = {
    "bio": say("Text reset."),
    "name": say("Name reset."),
    "picture": say("Picture reset."),
}

moderation = Blueprint("moderation", __name__)


def read_moderated_user(user_id: str) -> tuple[Authority, User]:
    """Return what the signed-in moderator may do, and a user. Raises Forbidden, NotFound."""
    return authority_of(require_moderator()), read_shown_user(user_id)


# The acts check who may do them; the page is shown again with the reason.
moderation_form = form_view(
    read_moderated_user, lambda _, user, problems: profile_page(user, problems), stamped=True
)


@moderation.post("/users/<user_id>/suspend")
@moderation_form
def suspend_player(by: Authority, user: User) -> Response:
    accounts.suspend(by, user.id, **read_suspension(user))
    return redirect_with_notice(say("Player suspended."), f"/users/{user.id}")


def read_suspension(user: User) -> dict[str, str | int | bool | None]:
    """Return the arguments of `accounts.suspend` in the form: a `length` and a `reason`.

    The length is one of SUSPENSION_DAYS or KEEP_END. Raises FormRefused, ProofMissing.
    """
    length, reason = request.form.get("length", "No end"), request.form.get("reason", "").strip()
    if length != KEEP_END and length not in SUSPENSION_DAYS:
        raise FormRefused({"length": say("Choose how long.")})
    if user.suspended:  # a shorter one lets the player in again
        ask_proof(require_player())
    days, is_new = SUSPENSION_DAYS.get(length), not user.suspended
    return {"reason": reason, "days": days, "keep_end": length == KEEP_END, "is_new": is_new}


@moderation.post("/users/<user_id>/unsuspend")
@moderation_form
@with_proof
def unsuspend_player(by: Authority, user: User) -> Response:
    accounts.unsuspend(by, user.id)
    return redirect_with_notice(say("Player unsuspended."), f"/users/{user.id}")


@moderation.post("/users/<user_id>/underage")
@moderation_form
def mark_underage(by: Authority, user: User) -> Response:
    """Mark the player as a younger one, or with `underage=no` take the mark away."""
    underage = request.form.get("underage") != "no"
    if not underage:  # apps learn of the player again
        ask_proof(require_player())
    accounts.set_underage(by, user.id, underage)
    notice = say("Player marked as younger.") if underage else say("Mark removed.")
    return redirect_with_notice(notice, f"/users/{user.id}")


@moderation.post("/users/<user_id>/networks")
@form_view(read_moderated_user, lambda _, user, problems: profile_page(user, problems))
def show_accounts_beside(by: Authority, user: User) -> str:
    """Show the accounts that used the networks of the player lately, and these networks."""
    return profile_page(user, {}, neighbours=accounts_beside(by, user.id))


@moderation.post("/users/<user_id>/reset")
@moderation_form
def reset_player(by: Authority, user: User) -> Response:
    """Reset `what` a moderator chose: the bio, the name or the picture."""
    what = request.form.get("what", "")
    if what not in RESET_NOTICES:
        abort(400, say("Choose the bio, the name or the picture."))
    accounts.reset(by, user.id, what)
    return redirect_with_notice(RESET_NOTICES[what], f"/users/{user.id}")


@moderation.post("/users/<user_id>/mod-level")
@moderation_form
@with_proof
def change_mod_level(by: Authority, user: User) -> Response:
    """Give the player the `mod_level` 0, 1 or 2."""
    typed = request.form.get("mod_level", "")
    with as_form_errors("mod_level"):
        rises = accounts.set_mod_level(
            by, user.id, int(typed) if re.fullmatch("[0-9]", typed) else None
        )
    if rises:
        mail_administrators("rise", but=user.id)
    return redirect_with_notice(say("Level changed."), f"/users/{user.id}")


@moderation.post("/users/<user_id>/flairs/grant")
@moderation.post("/users/<user_id>/flairs/revoke")
@moderation_form
def change_flairs(by: Authority, user: User) -> Response:
    """Grant the player a `flair`, or take a flair from the player."""
    is_grant = request.path.endswith("/grant")
    if is_grant:  # some apps admit the players with a flair
        ask_proof(require_player())
    change = accounts.grant_flair if is_grant else accounts.revoke_flair
    change(by, user.id, request.form.get("flair", "").strip())
    notice = say("Flair granted.") if is_grant else say("Flair revoked.")
    return redirect_with_notice(notice, f"/users/{user.id}")


@moderation.post("/users/<user_id>/notes")
@moderation_form
def add_note(by: Authority, user: User) -> Response:
    """Write a note about the player for other moderators: its `text`."""
    notes.add(by, user.id, request.form.get("text", "").strip())
    return redirect_with_notice(say("Note added."), f"/users/{user.id}")


@moderation.post("/users/<user_id>/warn")
@moderation_form
def warn_player(by: Authority, user: User) -> Response:
    """Warn the player with a text, the `warning`."""
    notes.warn(by, user.id, request.form.get("warning", "").strip())
    return redirect_with_notice(say("Player warned."), f"/users/{user.id}")


@moderation.post("/users/<user_id>/notes/delete")
@moderation_form
def delete_note(by: Authority, user: User) -> Response:
    """Delete the note with the id `note`."""
    notes.delete(by, request.form.get("note", ""))
    return redirect_with_notice(say("Note deleted."), f"/users/{user.id}")


@moderation.post("/users/<user_id>/sign-in-link")
@moderation_form
@with_proof
def create_sign_in_link(by: Authority, user: User) -> tuple:
    """Show a new link with which the player sets a new password. No other response has the link."""
    link = give_sign_in_link(by, user.id, base_url())
    return profile_page(user, {}, link), 201, {"Location": f"/users/{user.id}"}


@moderation.post("/users/<user_id>/delete")
@moderation_form
@with_proof
def delete_player(by: Authority, user: User) -> Response:
    accounts.delete_user(by, user.id)
    return redirect_with_notice(say("Player deleted."), "/admin/players")
