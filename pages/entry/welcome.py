"""Welcome: what a new player may choose after the sign-up, a page for each step."""

import functools
import re
from collections import Counter

from flask import Blueprint, abort, redirect, request
from werkzeug.wrappers import Response

from identity.access.sessions import next_in_query, query_to, require_player
from identity.acts import accounts
from identity.acts.naming import name_owner
from identity.http.context import get_storage
from identity.oauth.terms import find_pending_authorization
from model.records import Client, User
from pages.community.games import GAMES_SHOWN, find_game, is_playable
from pages.kit.actors import authority_of
from pages.kit.forms import NO_SUCH_FLAIR, FormRefused, form_view, pop_notice
from pages.kit.rendering import render_page
from pages.kit.uploads import read_images

STEPS = ("picture", "flair", "game")
NOWHERE = ("/", "/account")  # where nobody wanted to go before the sign-up
PLAY_PAGE = re.compile(r"/play/([^/?]+)(/signed-in)?(\?.*)?")

welcome = Blueprint("welcome", __name__)


def welcome_address(leads_to: str, step: str = "") -> str:
    """Return the address of a step, of the first page for ""; the last step leads to `leads_to`."""
    query = "" if leads_to in NOWHERE else f"?{query_to(leads_to, plain='')}"
    return f"/welcome{step and '/'}{step}{query}"


def find_visitor() -> tuple[User, str]:
    """Return the signed-in player, and where the last step leads; a guest signs in first."""
    leads_to = next_in_query()
    return require_player(), "/" if leads_to in NOWHERE else leads_to


@welcome.get("/welcome")
def show_welcome() -> str:
    """Show the first step; who came from an app can go back to it at once."""
    player, leads_to = find_visitor()
    if leads_to == "/":
        return step_page("picture", player, leads_to, {})
    client = find_waiting_app(leads_to)
    return render_page(
        "entry/welcome_back.html",
        player,
        client=client,
        owner=client and name_owner(get_storage(), client),
        next=leads_to,
        picture=welcome_address(leads_to, "picture"),
        notice=pop_notice(),
    )


def find_waiting_app(leads_to: str) -> Client | None:
    """Return the app whose authorization request or game is at an address; None for other pages."""
    if pending := find_pending_authorization(leads_to):
        return pending[0]
    played = PLAY_PAGE.fullmatch(leads_to)
    return find_game(played[1]) if played else None


@welcome.get(f"/welcome/<any({', '.join(STEPS)}):step>")
def show_step(step: str) -> Response | str:
    """Show a step, or the next one if the player has nothing to choose there."""
    player, leads_to = find_visitor()
    if step not in steps_of(player, leads_to):
        return redirect(address_after(step, player, leads_to), 303)
    return step_page(step, player, leads_to, {})


def step_page(step: str, player: User, leads_to: str, problems: dict[str, str]) -> str:
    """Return the page of a step, with the problems of its form."""
    return render_page(
        "entry/welcome.html",
        player,
        step=step,
        steps=steps_of(player, leads_to),
        action=welcome_address(leads_to, step),
        skip=address_after(step, player, leads_to),
        suggested=suggest_game() if step == "game" else None,
        worn=player.flairs[-1] if player.equipped_flair == "none" else player.equipped_flair,
        problems=problems,
        notice=pop_notice(),
    )


def steps_of(player: User, leads_to: str) -> list[str]:
    """Return the steps in which the player can choose something."""
    has_flair = len(player.flairs) > 1
    has_game = leads_to == "/" and bool(listed_games())  # who came from an app goes back there
    return ["picture", *["flair"] * has_flair, *["game"] * has_game]


def address_after(step: str, player: User, leads_to: str) -> str:
    """Return the address of the step after this one, or where the last one leads."""
    later = STEPS[STEPS.index(step) + 1 :]
    left = [each for each in steps_of(player, leads_to) if each in later]
    return welcome_address(leads_to, left[0]) if left else leads_to


def listed_games() -> list[Client]:
    """Return listed games that can be played here, at most GAMES_SHOWN."""
    return list(filter(is_playable, get_storage().clients.games(True, at_most=GAMES_SHOWN)))


def popular_games() -> list[tuple[Client, int]]:
    """Return the listed games with how many people play them now, those with most people first."""
    counts = Counter(get_storage().playing.now().values())
    games = sorted(listed_games(), key=lambda each: counts[each.id], reverse=True)
    return [(each, counts[each.id]) for each in games]


def suggest_game() -> dict:
    """Return the listed `game` that most people play now, and their number. Raises NotFound."""
    game, playing = (popular_games() or abort(404))[0]
    return {"game": game, "playing": playing}


@welcome.post("/welcome/picture")
@form_view(find_visitor, functools.partial(step_page, "picture"))
def choose_picture(player: User, leads_to: str) -> Response:
    """Make the upload `picture` the player's picture; without an upload the picture stays."""
    try:
        accounts.save_picture(authority_of(player), player.id, read_images(player, "picture"))
    except FormRefused as error:
        if error.status != 400 or request.files.get("picture"):
            raise
    return redirect(address_after("picture", player, leads_to), 303)


@welcome.post("/welcome/flair")
@form_view(find_visitor, functools.partial(step_page, "flair"))
def wear_flair(player: User, leads_to: str) -> Response:
    """Wear the flair `equippedFlair`; without this field the player's flair stays."""
    flair = request.form.get("equippedFlair", player.equipped_flair)
    if flair not in player.flairs:
        raise FormRefused({"equippedFlair": NO_SUCH_FLAIR})
    accounts.change_profile(authority_of(player), player.id, equipped_flair=flair)
    return redirect(address_after("flair", player, leads_to), 303)
