"""Public profiles, and what moderators and administrators do about players.

Each act is in the audit log before it is done; what is so already is no act. The functions that act
take a storage, so that the command does the same; `by` is a user id or "command", and `origin` says
from where. The pages never leave a site without an administrator; the command may.
"""

import functools
import re

from flask import Blueprint, abort, redirect, request
from werkzeug.wrappers import Response

import storage
from identity.context import get_storage
from identity.passwords import client_address, pluralize
from identity.sessions import require_player, signed_in_player
from pages.account import reset_picture
from pages.forms import (
    FormRefused,
    as_form_errors,
    pop_notice,
    redirect_with_notice,
    refuse_problems,
)
from pages.rendering import render_page

RESET_NOTICES = {"bio": "Bio reset.", "name": "Name reset.", "picture": "Picture reset."}
RESETS = tuple(RESET_NOTICES)
ONLY_FOR = {
    storage.MODERATOR: "Only moderators can do this.",
    storage.ADMINISTRATOR: "Only administrators can do this.",
}
MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds

moderation = Blueprint("moderation", __name__)

# -- acts ---------------------------------------------------------------------------------------


def suspend(store: storage.Storage, user: storage.User, by: int | str, **origin: str) -> None:
    """Stop a player from signing in; their sessions and tokens end at once."""
    if user.suspended:
        return
    store.write_audit("user suspend", by, user=user.id, **origin)
    with store.edit_user(user.id) as edited:
        edited.suspended = True
        edited.sessions = []
        for grant in edited.grants.values():
            grant.end_tokens()


def restore(store: storage.Storage, user: storage.User, by: int | str, **origin: str) -> None:
    """Let a suspended player sign in again."""
    if not user.suspended:
        return
    store.write_audit("user restore", by, user=user.id, **origin)
    with store.edit_user(user.id) as edited:
        edited.suspended = False


def set_mod_level(
    store: storage.Storage, user: storage.User, mod_level: int, by: int | str, **origin: str
) -> None:
    """Make a player an administrator, a moderator, or neither. Raises InvalidField."""
    storage.refuse("mod_level", storage.check_mod_level(mod_level))
    if user.mod_level == mod_level:
        return
    store.write_audit("user mod-level", by, user=user.id, mod_level=mod_level, **origin)
    with store.edit_user(user.id) as edited:
        edited.mod_level = mod_level


def grant_flair(
    store: storage.Storage, user: storage.User, flair: str, by: int | str, **origin: str
) -> None:
    """Give a player a flair, which they may then equip. Raises InvalidField."""
    storage.refuse("flair", storage.check_flair(flair))
    if flair in user.flairs:
        return
    store.write_audit("flair grant", by, user=user.id, flair=flair, **origin)
    with store.edit_user(user.id) as edited:
        if flair not in edited.flairs:  # by now
            edited.flairs.append(flair)


def revoke_flair(
    store: storage.Storage, user: storage.User, flair: str, by: int | str, **origin: str
) -> None:
    """Take a flair from a player. Raises InvalidField where they do not own it, or all do."""
    if flair == "none" or flair not in user.flairs:
        raise storage.InvalidField("flair", "This player does not have this flair.")
    store.write_audit("flair revoke", by, user=user.id, flair=flair, **origin)
    with store.edit_user(user.id) as edited:
        edited.flairs = [each for each in edited.flairs if each != flair]
        if edited.equipped_flair == flair:
            edited.equipped_flair = "none"


def reset(
    store: storage.Storage, user: storage.User, what: str, by: int | str, **origin: str
) -> None:
    """Take away a bio, name or picture that should not be seen; `what` is one of RESETS."""
    store.write_audit(f"user reset {what}", by, user=user.id, **origin)
    if what == "name":
        store.reset_name(user.id)
    elif what == "picture":
        reset_picture(store, user.id)
    else:
        with store.edit_user(user.id) as edited:
            edited.bio = ""


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
    return render_page(
        "profile.html",
        player,
        user=user,
        play_time=format_duration(user.play_ms // 1000),
        last_played=format_last_played(user.last_heartbeat),
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
        "may_administer": player.mod_level == storage.ADMINISTRATOR,
        "known_flairs": [each for each in player.flairs if each not in user.flairs],
        "typed_flair": request.form.get("flair", "") if "flair" in problems else "",
        "problems": problems,
        "notice": pop_notice(),
    }


def may_moderate(player: storage.User, user: storage.User) -> bool:
    """Moderators act on the players below them."""
    return player.mod_level >= storage.MODERATOR and user.mod_level < player.mod_level


def format_last_played(last_heartbeat: int) -> str:
    """How long ago a time in milliseconds was: "2 days ago"; 0 is never."""
    seconds = (storage.now_ms() - last_heartbeat) // 1000
    if not last_heartbeat:
        return "not yet"
    return f"{format_duration(seconds)} ago" if seconds >= MINUTE else "now"


def format_duration(seconds: int) -> str:
    """The two largest units: "3 hours 20 minutes"; days alone from two days on."""
    days, hours, minutes = seconds // DAY, seconds % DAY // HOUR, seconds % HOUR // MINUTE
    if days >= 2:
        return f"{days} days"
    hours += days * 24
    parts = [(hours, "hour"), (minutes, "minute")]
    words = [pluralize(count, unit) for count, unit in parts if count]
    return " ".join(words) or "less than a minute"


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
    problem = "No player has this name. Check the spelling." if name else None
    return render_page("players.html", player, name=name, problem=problem)


def require_level(mod_level: int) -> storage.User:
    """The signed-in player, who has at least this mod level. Raises Forbidden."""
    player = require_player()
    if player.mod_level < mod_level:
        abort(403, ONLY_FOR[mod_level])
    return player


def act(user_id: str, mod_level: int, do, message: str) -> Response | tuple:
    """Carry out `do(store, user, by=, address=)` from a profile page, and say `message` there.

    Raises Forbidden for a player who may not, whatever else is wrong.
    """
    player = require_level(mod_level)
    user = read_shown_user(user_id)
    if mod_level == storage.MODERATOR and not may_moderate(player, user):
        abort(403)
    try:
        with as_form_errors():
            do(get_storage(), user, by=player.id, address=client_address(request.remote_addr))
    except FormRefused as error:
        return profile_page(user, error.problems), error.status, error.headers
    return redirect_with_notice(message, f"/users/{user.id}")


@moderation.post("/users/<user_id>/suspend")
def suspend_player(user_id: str) -> Response | tuple:
    """Suspend the player."""

    def do(store: storage.Storage, user: storage.User, **who) -> None:
        with store.administered_without(user.id):
            suspend(store, user, **who)

    return act(user_id, storage.MODERATOR, do, "Player suspended.")


@moderation.post("/users/<user_id>/restore")
def restore_player(user_id: str) -> Response | tuple:
    """Restore the player."""
    return act(user_id, storage.MODERATOR, restore, "Player unsuspended.")


@moderation.post("/users/<user_id>/reset")
def reset_player(user_id: str) -> Response | tuple:
    """Reset `what` of the player."""
    what = request.form.get("what", "")

    def do(store: storage.Storage, user: storage.User, **who) -> None:
        if what not in RESETS:
            abort(400, "Choose the bio, the name or the picture.")
        reset(store, user, what, **who)

    return act(user_id, storage.MODERATOR, do, RESET_NOTICES.get(what, ""))


@moderation.post("/users/<user_id>/mod-level")
def change_mod_level(user_id: str) -> Response | tuple:
    """Give the player the `mod_level` 0, 1 or 2."""

    def do(store: storage.Storage, user: storage.User, **who) -> None:
        typed = request.form.get("mod_level", "")
        mod_level = int(typed) if re.fullmatch("[0-9]", typed) else None
        refuse_problems(mod_level=storage.check_mod_level(mod_level))
        if mod_level == storage.ADMINISTRATOR:
            return set_mod_level(store, user, mod_level, **who)
        with as_form_errors("mod_level"), store.administered_without(user.id):
            set_mod_level(store, user, mod_level, **who)

    return act(user_id, storage.ADMINISTRATOR, do, "Level changed.")


@moderation.post("/users/<user_id>/flairs/grant")
def grant_player_flair(user_id: str) -> Response | tuple:
    """Grant the player a `flair`."""
    do = functools.partial(grant_flair, flair=request.form.get("flair", "").strip())
    return act(user_id, storage.ADMINISTRATOR, do, "Flair granted.")


@moderation.post("/users/<user_id>/flairs/revoke")
def revoke_player_flair(user_id: str) -> Response | tuple:
    """Take a `flair` from the player."""
    do = functools.partial(revoke_flair, flair=request.form.get("flair", ""))
    return act(user_id, storage.ADMINISTRATOR, do, "Flair revoked.")
