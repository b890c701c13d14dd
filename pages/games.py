"""Games: the home page that lists them, and the heartbeats of those who play them."""

from collections.abc import Callable

from flask import Blueprint, abort, request
from werkzeug.wrappers import Response

import storage
from identity.context import base_url, get_storage
from identity.passwords import client_address
from identity.sessions import signed_in_player
from identity.settings import check_game
from pages.forms import pop_notice, redirect_with_notice
from pages.moderation import require_level
from pages.rendering import render_page

SITTING_GAP = 150_000  # milliseconds between two heartbeats of one sitting
COUNTED_ALREADY = 30_000  # milliseconds: a heartbeat this soon after another is a second tab's
SWITCHES = {  # what `switch_client` does, in the audit log
    ("disabled", True): "client disable",
    ("disabled", False): "client enable",
    ("listed", True): "client listed",
    ("listed", False): "client unlisted",
}

games = Blueprint("games", __name__)

# -- which games there are ----------------------------------------------------------------------


def find_game(client_id: str) -> storage.Client | None:
    """The client whose game can be played here, or None."""
    try:
        client = get_storage().read_client(client_id)
    except storage.NoSuchClient:
        return None
    return client if is_playable(client) else None


def is_playable(client: storage.Client) -> bool:
    """True where a client has a game, and nothing speaks against showing it in a page of ours."""
    if client.game_url is None or client.disabled:
        return False
    # Again: this site may have moved, and people edit records.
    return check_game(client.game_url, base_url()) is None


def find_owner(client: storage.Client) -> storage.User | None:
    """The player who registered a client; None for one who left, or for the administrators."""
    if client.owner_id is None:
        return None
    try:
        return get_storage().read_user(client.owner_id)
    except (storage.NoSuchUser, storage.DamagedRecord):
        return None


def may_manage(client: storage.Client) -> bool:
    """True where the signed-in player may see all of a client and change it."""
    player = signed_in_player()
    return player is not None and (
        player.id == client.owner_id or player.mod_level == storage.ADMINISTRATOR
    )


def switch_client(
    store: storage.Storage,
    client_id: str,
    field: str,
    on: bool,
    by: int | str,
    check: Callable[[storage.Client], None] = lambda client: None,
    **origin: str,
) -> storage.Client:
    """Change whether a client is `disabled` or its game `listed`; what is so already is no act.

    What its owner switched off an administrator may switch off as well: then it stays off.

    `check` gets the client while nobody else can change it, and may raise. Raises NoSuchClient.
    """
    with store.edit_client(client_id) as client:
        overrules = field == "disabled" and on and client.disabled_by == client.owner_id != by
        if getattr(client, field) != on or overrules:
            check(client)
            store.write_audit(SWITCHES[field, on], by, client=client_id, **origin)
            setattr(client, field, on)
            if field == "disabled":
                client.disabled_by = by if on else None
    return client


# -- the home page ------------------------------------------------------------------------------


@games.get("/")
def home() -> str:
    """The community's games; for a guest also what this site is."""
    player = signed_in_player()
    moderates = player is not None and player.mod_level >= storage.MODERATOR
    playable = sorted(
        filter(is_playable, get_storage().clients()), key=lambda client: client.name.casefold()
    )
    return render_page(
        "home.html",
        player,
        moderates=moderates,
        listed=[(each, find_owner(each)) for each in playable if each.listed],
        unlisted=[(each, find_owner(each)) for each in playable if moderates and not each.listed],
        notice=pop_notice(),
    )


@games.post("/play/<client_id>/listed")
def change_listed(client_id: str) -> Response:
    """Put the game on the home page where `listed` is "yes", and take it off where it is "no".

    It is listed at the `game_url` that the moderator has seen, and at no other.
    """
    player = require_level(storage.MODERATOR)
    listed = request.form.get("listed")
    if listed not in ("yes", "no"):
        abort(400, "Choose yes or no.")

    def check(client: storage.Client) -> None:
        if listed == "yes" and client.game_url != request.form.get("game_url"):
            abort(409, "The game URL has just changed. Play the game, then list it again.")

    who = {"by": player.id, "address": client_address(request.remote_addr)}
    client = switch_client(get_storage(), client_id, "listed", listed == "yes", check=check, **who)
    return redirect_with_notice("Game listed." if client.listed else "Game unlisted.", "/")


# -- heartbeats ---------------------------------------------------------------------------------


@games.post("/api/users/heartbeat")
def heartbeat() -> dict[str, str]:
    """The player is here, and plays: adds the time since the last heartbeat of this sitting."""
    player = signed_in_player()
    if player is None:
        abort(401, "nobody is signed in")
    with get_storage().edit_user(player.id) as user:
        count_heartbeat(user, storage.now_ms())
    return {"message": "ok"}


def count_heartbeat(user: storage.User, now: int) -> None:
    """Change the play time and the last heartbeat; nothing where another tab just did."""
    since = now - user.last_heartbeat  # milliseconds; below 0 after the clock was set back
    if 0 <= since <= COUNTED_ALREADY:
        return
    if 0 <= since <= SITTING_GAP:
        user.play_ms += since
    user.last_heartbeat = now
