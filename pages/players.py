"""The public profiles of players, with the forms that moderators see there."""

from flask import Blueprint, abort, current_app, request

from identity.context import get_storage
from identity.formatting import DATE_AND_TIME, MINUTE, format_duration, format_time
from identity.naming import name_actor
from identity.rights import may_administer, may_moderate, may_unsuspend
from identity.sessions import signed_in_player
from pages.files import picture_address
from pages.forms import pop_notice
from pages.rendering import Preview, render_page
from storage.records import MODERATOR, Suspension, User, now_ms
from storage.rules import USER_ID

SUSPENSION_DAYS = {"1 day": 1, "1 week": 7, "1 month": 30, "No end": None}
KEEP_END = "Keep the end"  # in place of one of SUSPENSION_DAYS
PREVIEWED_BIO = 200  # characters

players = Blueprint("players", __name__)

# -- the public profile -------------------------------------------------------------------------


@players.get("/users/<user_id>")
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


# -- what moderators see there ------------------------------------------------------------------


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
