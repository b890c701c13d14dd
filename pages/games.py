"""Games: the home page that lists them, and the heartbeats of those who play them."""

import contextlib

from flask import Blueprint, abort, current_app, request
from werkzeug.wrappers import Response

from identity.context import base_url, get_storage
from identity.naming import name_owner
from identity.rights import may_list
from identity.sessions import signed_in_player
from identity.settings import check_game
from pages.forms import FormRefused, form_view, pop_notice, redirect_with_notice
from pages.moderation import acts_of, app_acts_of, require_moderator
from pages.rendering import Preview, render_page
from storage.errors import DamagedRecord, InvalidField, NoSuchClient
from storage.records import Client, User
from storage.rules import CLIENT_ID

GAMES_SHOWN = 100  # on one page

games = Blueprint("games", __name__)

# -- which games there are ----------------------------------------------------------------------


def find_game(client_id: str) -> Client | None:
    """Return the client whose game can be played here, or None."""
    try:
        client = get_storage().clients.read(client_id)
    except NoSuchClient:
        return None
    return client if is_playable(client) else None


def is_playable(client: Client) -> bool:
    """Return True if a client has a game that this site can show."""
    if client.game_url is None or client.disabled:
        return False
    # Checked again: the base URL may have changed, and people edit records.
    return check_game(client.game_url, base_url()) is None


def preview_of_game(client: Client) -> Preview:
    """Return what a link to the play page of a game shows."""
    description = client.description or f"A game on {current_app.config['SITE_NAME']}."
    return Preview(client.name, description, address=f"/play/{client.id}")


# -- the home page ------------------------------------------------------------------------------


@games.get("/")
def home() -> str:
    """Show the games; to a guest also what this site is."""
    return home_page({})


def home_page(problems: dict[str, str]) -> str:
    """Return the home page, with a problem of the form that lists a game."""
    player = signed_in_player()
    moderates = player is not None and may_list(player)
    return render_page(
        "home.html",
        player,
        Preview(current_app.config["SITE_NAME"], address="/"),
        moderates=moderates,
        listed=games_shown(listed=True),
        unlisted=games_shown(listed=False) if moderates else {},
        problems=problems,
        notice=pop_notice(),
    )


def games_shown(listed: bool) -> dict:
    """Return `games` that can be played here, listed or not, by name, each with its owner.

    More than GAMES_SHOWN are paged by id; then `more` is the address of the next page.
    """
    parameter = "after" if listed else "unlisted_after"
    after = start_of_page(parameter)
    found = get_storage().clients.games(listed, after, GAMES_SHOWN + 1)
    page = found[:GAMES_SHOWN]
    by_name = sorted(filter(is_playable, page), key=lambda client: client.name.casefold())
    more = f"/?{parameter}={page[-1].id}" if len(found) > GAMES_SHOWN else None
    return {"games": [(each, name_owner(get_storage(), each)) for each in by_name], "more": more}


def start_of_page(parameter: str) -> str:
    """Return the client id in a query parameter after which a page starts; "" for the first page.

    Other text counts as none: PostgreSQL raises an error for a NUL character.
    """
    text = request.args.get(parameter, "")
    return text if CLIENT_ID.fullmatch(text) else ""


@games.post("/play/<client_id>/listed")
@form_view(
    lambda client_id: (require_moderator(), client_id),
    lambda player, client_id, problems: home_page(problems),
    stamped=True,
)
def change_listed(player: User, client_id: str) -> Response:
    """Put the game on the home page if `listed` is "yes", or take it off if it is "no".

    The game is listed only at the `game_url` that the moderator has seen.
    """
    listed = request.form.get("listed")
    if listed not in ("yes", "no"):
        abort(400, "Choose yes or no.")
    seen_url = request.form.get("game_url", "")
    try:
        client = app_acts_of(player).set_listed(client_id, listed == "yes", seen_url)
    except InvalidField as error:
        raise FormRefused({"form": error.problem}, 409) from error
    return redirect_with_notice("Game listed." if client.listed else "Game unlisted.", "/")


# -- heartbeats ---------------------------------------------------------------------------------


@games.post("/api/users/heartbeat")
def heartbeat() -> dict[str, str]:
    """Add the time since the last heartbeat of this sitting to the player's play time.

    The play page of a game sends its `client_id`.
    """
    player = signed_in_player()
    if player is None:
        abort(401, "nobody is signed in")
    game = None
    with contextlib.suppress(DamagedRecord):
        game = find_game(request.form.get("client_id", ""))
    acts_of(player).add_heartbeat(player.id, game and game.id)
    return {"message": "ok"}
