"""Public profiles, and the forms on them for moderators and administrators."""

import re
from collections.abc import Callable

from flask import Blueprint, abort, redirect, render_template, request
from werkzeug.exceptions import Forbidden
from werkzeug.wrappers import Response

import storage
from identity.accounts import RESETS, Actor, Acts, NotAllowed, may_administer, may_moderate
from identity.context import get_storage
from identity.formatting import MINUTE, format_duration
from identity.passwords import client_address
from identity.sessions import require_player, signed_in_player
from pages.errors import answer_http_error
from pages.forms import (
    FormRefused,
    pop_notice,
    redirect_with_notice,
    sentence,
    trouble_told,
)

moderation = Blueprint("moderation", __name__)


def acts_of(player: storage.User) -> Acts:
    """Return what the signed-in player may do from the address of this request."""
    return Acts(get_storage(), Actor(player.id, client_address(request.remote_addr)))


@moderation.app_errorhandler(NotAllowed)
def answer_not_allowed(error: NotAllowed) -> Response:
    """Answer 403 if an act is refused after the view has allowed it, or without a view's check."""
    return answer_http_error(Forbidden())


# -- the public profile -------------------------------------------------------------------------


@moderation.get("/users/<user_id>")
def show_profile(user_id: str) -> str:
    """The page that anyone sees of a player; moderators can act on it."""
    return profile_page(read_shown_user(user_id), {})


def read_shown_user(user_id: str) -> storage.User:
    """The player whose id an address has. Raises NotFound."""
    if not storage.USER_ID.fullmatch(user_id):
        abort(404)
    return get_storage().read_user(int(user_id))


def profile_page(user: storage.User, problems: dict[str, str]) -> str:
    """A player's public page."""
    player = signed_in_player()
    return render_template(
        "profile.html",
        player=player,
        user=user,
        play_time=format_duration(user.play_ms // 1000),
        last_seen=format_last_played(user.last_heartbeat),
        moderation=what_may_be_done(player, user, problems),
    )


def what_may_be_done(
    player: storage.User | None, user: storage.User, problems: dict[str, str]
) -> dict | None:
    """What the signed-in player may do about another, for the page; None for nothing at all."""
    if player is None or player.mod_level < storage.MODERATOR:
        return None
    return {
        "may_suspend": may_moderate(player, user),
        "may_administer": may_administer(player),
        "known_flairs": [each for each in player.flairs if each not in user.flairs],
        "typed_flair": request.form.get("flair", "") if "flair" in problems else "",
        "problems": problems,
        "done": pop_notice(),
    }


def format_last_played(last_heartbeat: int) -> str:
    """How long ago a time in milliseconds was: "2 days ago"; 0 is never."""
    seconds = (storage.now_ms() - last_heartbeat) // 1000
    if not last_heartbeat:
        return "never"
    return f"{format_duration(seconds)} ago" if seconds >= MINUTE else "now"


# -- moderators' pages --------------------------------------------------------------------------


@moderation.get("/players")
def find_player() -> Response | str:
    """Find a player by exact `name`."""
    player = require_level(storage.MODERATOR)
    name = request.args.get("name", "").strip()
    # By name alone: who has an email address is not a moderator's business.
    found = get_storage().find_user(name) if name and "@" not in storage.unique_key(name) else None
    if found:
        return redirect(f"/users/{found.id}", 303)
    problem = "No player has this name." if name else None
    return render_template("players.html", player=player, name=name, problem=problem)


def require_level(mod_level: int) -> storage.User:
    """The signed-in player, who has at least this mod level. Raises Forbidden."""
    player = require_player()
    if player.mod_level < mod_level:
        who = "moderators" if mod_level == storage.MODERATOR else "administrators"
        abort(403, f"This is for the {who} of this site.")
    return player


def act(
    user_id: str,
    mod_level: int,
    change: Callable[[Acts, storage.User], None],
    message: str,
    field: str = "form",
) -> Response | tuple:
    """Let the signed-in player change a user, and say `message` on the user's profile page.

    LastAdministrator is shown at `field`. Raises Forbidden, whatever else is wrong.
    """
    player = require_level(mod_level)
    user = read_shown_user(user_id)
    if mod_level == storage.MODERATOR and not may_moderate(player, user):
        abort(403)
    try:
        with trouble_told():
            change(acts_of(player), user)
    except FormRefused as error:
        return profile_page(user, error.problems), error.status, error.headers
    except storage.InvalidField as error:
        return profile_page(user, {error.field: sentence(error.field, error.problem)}), 400
    except storage.LastAdministrator:
        return profile_page(user, {field: "This is the last administrator."}), 409
    return redirect_with_notice(message, f"/users/{user.id}")


@moderation.post("/users/<user_id>/suspend")
def suspend_player(user_id: str) -> Response | tuple:
    """Suspend the player."""

    def change(acts: Acts, user: storage.User) -> None:
        acts.suspend(user.id)

    return act(user_id, storage.MODERATOR, change, "The account is suspended.")


@moderation.post("/users/<user_id>/unsuspend")
def unsuspend_player(user_id: str) -> Response | tuple:
    """Let the suspended player sign in again."""

    def change(acts: Acts, user: storage.User) -> None:
        acts.unsuspend(user.id)

    return act(user_id, storage.MODERATOR, change, "The account is no longer suspended.")


@moderation.post("/users/<user_id>/reset")
def reset_player(user_id: str) -> Response | tuple:
    """Reset `what` of the player."""
    what = request.form.get("what", "")

    def change(acts: Acts, user: storage.User) -> None:
        if what not in RESETS:
            abort(400, "What is to be reset is the bio, the name or the picture.")
        acts.reset(user.id, what)

    return act(user_id, storage.MODERATOR, change, f"The {what} is reset.")


@moderation.post("/users/<user_id>/mod-level")
def change_mod_level(user_id: str) -> Response | tuple:
    """Give the player the `mod_level` 0, 1 or 2."""
    typed = request.form.get("mod_level", "")
    mod_level = int(typed) if re.fullmatch("[0-9]", typed) else None

    def change(acts: Acts, user: storage.User) -> None:
        acts.set_mod_level(user.id, mod_level)

    return act(user_id, storage.ADMINISTRATOR, change, "The level is changed.", "mod_level")


@moderation.post("/users/<user_id>/flairs/grant")
def grant_player_flair(user_id: str) -> Response | tuple:
    """Grant the player a `flair`."""

    def change(acts: Acts, user: storage.User) -> None:
        acts.grant_flair(user.id, request.form.get("flair", "").strip())

    return act(user_id, storage.ADMINISTRATOR, change, "The flair is granted.")


@moderation.post("/users/<user_id>/flairs/revoke")
def revoke_player_flair(user_id: str) -> Response | tuple:
    """Take a `flair` from the player."""

    def change(acts: Acts, user: storage.User) -> None:
        acts.revoke_flair(user.id, request.form.get("flair", ""))

    return act(user_id, storage.ADMINISTRATOR, change, "The flair is revoked.")
