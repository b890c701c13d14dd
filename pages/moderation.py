"""Public profiles, and the forms on them for moderators and administrators."""

import re

from flask import Blueprint, abort, current_app, redirect, request
from werkzeug.wrappers import Response

from identity.accounts import Acts
from identity.actors import Actor
from identity.apps import AppActs
from identity.context import get_storage
from identity.formatting import DATE_AND_TIME, MINUTE, format_duration, format_time
from identity.limits import client_address
from identity.naming import name_actor
from identity.rights import may_administer, may_moderate, may_unsuspend
from identity.sessions import require_player, signed_in_player
from pages.files import picture_address
from pages.forms import FormRefused, as_form_errors, form_view, pop_notice, redirect_with_notice
from pages.rendering import Preview, render_page
from storage.names import unique_key
from storage.records import MODERATOR, Suspension, User, now_ms
from storage.rules import USER_ID

SUSPENSION_DAYS = {"1 day": 1, "1 week": 7, "1 month": 30, "No end": None}
KEEP_END = "Keep the end"  # in place of one of SUSPENSION_DAYS
PREVIEWED_BIO = 200  # characters
RESET_NOTICES = {"bio": "Bio reset.", "name": "Name reset.", "picture": "Picture reset."}

moderation = Blueprint("moderation", __name__)

# -- the public profile -------------------------------------------------------------------------


@moderation.get("/users/<user_id>")
def show_profile(user_id: str) -> str:
    """Show the page that anyone sees of a player; moderators can act on it."""
    return profile_page(read_shown_user(user_id), {})


def read_shown_user(user_id: str) -> User:
    """Return the player whose id is part of an address. Raises NotFound."""
    if not USER_ID.fullmatch(user_id):
        abort(404)
    return get_storage().users.read(int(user_id))


def profile_page(user: User, problems: dict[str, str]) -> str:
    """Return a player's public page; `problems` are by field."""
    player = signed_in_player()
    bio = " ".join(user.bio.split())[:PREVIEWED_BIO]
    description = bio or f"A player of {current_app.config['SITE_NAME']}."
    picture = picture_address(user, "large")
    preview = Preview(user.name, description, picture, f"/users/{user.id}")
    return render_page(
        "profile.html",
        player,
        preview,
        user=user,
        play_time=format_play_time(user),
        last_played=format_last_played(user),
        moderation=moderation_forms(player, user, problems),
    )


def moderation_forms(player: User | None, user: User, problems: dict[str, str]) -> dict | None:
    """Return what the page shows to the signed-in player if that is a moderator."""
    if player is None or player.mod_level < MODERATOR:
        return None
    suspended = user.suspended
    return {
        "may_suspend": may_moderate(player, user),
        "may_unsuspend": may_unsuspend(get_storage(), player, user),
        "suspension": describe_suspension(user.suspension) if suspended else None,
        "lengths": lengths_offered(user.suspension if suspended else None),
        "typed_length": request.form.get("length"),
        "typed_reason": request.form.get("reason", user.suspension.reason if suspended else ""),
        "may_administer": may_administer(player),
        "known_flairs": [each for each in player.flairs if each not in user.flairs],
        "typed_flair": request.form.get("flair", "") if request.path.endswith("/grant") else "",
        "problems": problems,
        "notice": pop_notice(),
    }


def lengths_offered(suspension: Suspension | None) -> dict[str, str]:
    """Return the lengths of a suspension with their labels. The first one is the proposed one."""
    if suspension is None:
        first = {"1 week": "1 week"}
    elif suspension.until is None:
        first = {"No end": "No end"}
    else:
        first = {KEEP_END: f"{KEEP_END} ({format_time(suspension.until, DATE_AND_TIME)})"}
    return first | {each: each for each in SUSPENSION_DAYS}


def describe_suspension(suspension: Suspension) -> dict[str, str]:
    """Return who suspended a player, why and until when, as moderators read it."""
    until = suspension.until
    return {
        "by": name_actor(get_storage(), suspension.by).title,
        "since": format_time(suspension.since, DATE_AND_TIME) if suspension.since else "Unknown",
        "until": format_time(until, DATE_AND_TIME) if until is not None else "No end",
        "reason": suspension.reason or "None given",
    }


def format_play_time(user: User) -> str:
    """Return how long a player has played: "3 hours"."""
    if user.play_ms or has_heartbeat(user):
        return format_duration(user.play_ms // 1000)
    return "not yet"


def has_heartbeat(user: User) -> bool:
    """Return True if a game was open since the sign-up, which counts as the first heartbeat."""
    return user.last_heartbeat not in (0, user.created)


def format_last_played(user: User) -> str:
    """Return how long ago a player played: "2 days ago"."""
    if not has_heartbeat(user):
        return "unknown" if user.play_ms else "not yet"  # an imported account can lack the time
    seconds = (now_ms() - user.last_heartbeat) // 1000
    return f"{format_duration(seconds)} ago" if seconds >= MINUTE else "now"


# -- rights -------------------------------------------------------------------------------------


def require_moderator() -> User:
    """Return the signed-in player, a moderator or an administrator. Raises Forbidden."""
    player = require_player()
    if player.mod_level < MODERATOR:
        abort(403, "Only moderators can do this.")
    return player


def acts_of(player: User) -> Acts:
    """Return what the signed-in player may do to players, from the address of this request."""
    return Acts(get_storage(), Actor(player.id, client_address(request.remote_addr)))


def app_acts_of(player: User) -> AppActs:
    """Return what the signed-in player may do to apps, from the address of this request."""
    return AppActs(get_storage(), Actor(player.id, client_address(request.remote_addr)))


def find_moderated_user(user_id: str) -> tuple[Acts, User]:
    """Return the signed-in moderator's acts and a user. Raises Forbidden, NotFound."""
    return acts_of(require_moderator()), read_shown_user(user_id)


# The acts check who may do them; the page is shown again with the reason.
moderation_form = form_view(
    find_moderated_user, lambda _, user, problems: profile_page(user, problems), stamped=True
)


# -- moderators' pages --------------------------------------------------------------------------


@moderation.get("/players")
def find_player() -> Response | str:
    """Find a player by exact `name`."""
    player = require_moderator()
    name = request.args.get("name", "").strip()
    # By name alone: moderators do not learn who has an email address.
    found = (
        get_storage().users.find_by_login(name) if name and "@" not in unique_key(name) else None
    )
    if found:
        return redirect(f"/users/{found.id}", 303)
    problem = "No player has this name. Check the spelling." if name else None
    return render_page("players.html", player, name=name, problem=problem)


@moderation.post("/users/<user_id>/suspend")
@moderation_form
def suspend_player(acts: Acts, user: User) -> Response:
    """Suspend the player for a `length` of SUSPENSION_DAYS or to KEEP_END, with a `reason`."""
    length, reason = request.form.get("length", "No end"), request.form.get("reason", "").strip()
    if length != KEEP_END and length not in SUSPENSION_DAYS:
        raise FormRefused({"length": "Choose how long."})
    acts.suspend(user.id, reason, SUSPENSION_DAYS.get(length), keep_end=length == KEEP_END)
    return redirect_with_notice("Player suspended.", f"/users/{user.id}")


@moderation.post("/users/<user_id>/unsuspend")
@moderation_form
def unsuspend_player(acts: Acts, user: User) -> Response:
    acts.unsuspend(user.id)
    return redirect_with_notice("Player unsuspended.", f"/users/{user.id}")


@moderation.post("/users/<user_id>/reset")
@moderation_form
def reset_player(acts: Acts, user: User) -> Response:
    what = request.form.get("what", "")
    if what not in RESET_NOTICES:
        abort(400, "Choose the bio, the name or the picture.")
    acts.reset(user.id, what)
    return redirect_with_notice(RESET_NOTICES[what], f"/users/{user.id}")


@moderation.post("/users/<user_id>/mod-level")
@moderation_form
def change_mod_level(acts: Acts, user: User) -> Response:
    """Give the player the `mod_level` 0, 1 or 2."""
    typed = request.form.get("mod_level", "")
    with as_form_errors("mod_level"):
        acts.set_mod_level(user.id, int(typed) if re.fullmatch("[0-9]", typed) else None)
    return redirect_with_notice("Level changed.", f"/users/{user.id}")


@moderation.post("/users/<user_id>/flairs/grant")
@moderation.post("/users/<user_id>/flairs/revoke")
@moderation_form
def change_flairs(acts: Acts, user: User) -> Response:
    """Grant the player a `flair`, or take it from them."""
    is_grant = request.path.endswith("/grant")
    change = acts.grant_flair if is_grant else acts.revoke_flair
    change(user.id, request.form.get("flair", "").strip())
    notice = "Flair granted." if is_grant else "Flair revoked."
    return redirect_with_notice(notice, f"/users/{user.id}")
