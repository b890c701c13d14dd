"""Games: the home page, the page of each one, heartbeats, and signing in beside one."""

import contextlib
import re
from collections import Counter
from collections.abc import Sequence

from flask import Blueprint, abort, current_app, redirect, request, url_for
from werkzeug.wrappers import Response

from identity.access.sessions import redirect_to_sign_in, require_player, signed_in_player
from identity.acts import accounts, apps
from identity.acts.announcement import dismiss, find_announcement
from identity.acts.naming import Named, name_owner
from identity.acts.presence import games_made, games_shown
from identity.acts.rights import may_list, may_see_hidden
from identity.http.context import base_url, get_storage, site_look, site_name
from identity.site.formatting import DAY, MINUTE, format_ago, join_words
from identity.site.settings import check_game
from model.client_rules import TAGS
from model.errors import DamagedRecord, InvalidField, NoSuchClient, StorageError
from model.kinds import CLIENTS
from model.names import unique_key
from model.records import Client, User, now_ms
from model.rules import CLIENT_ID
from model.words import Words, say
from pages.community.players import count_page, link_addresses, require_viewer, summarize
from pages.kit.actors import authority_of, require_moderator
from pages.kit.files import cover_address
from pages.kit.forms import FormRefused, form_view, pop_notice, redirect_with_notice, seen_time
from pages.kit.paging import page_beside
from pages.kit.rendering import Preview, render_page, welcome_of

GAMES_SHOWN = 24  # on one page
LONG = 9  # games from which their list can be searched and sorted
SEARCHED = 1000  # games at most
# By the name of the order: an index of clients, and True if its keys go down.
ORDERS = {"newest": ("time", True), "played": ("time", True), "name": ("title", False)}
TAG_LIST = join_words(list(TAGS.values()), "or")
BESIDE_UNLISTED = ("unlisted_before", "unlisted_after")  # query parameters
FACES_SHOWN = 6  # in one list of people
FACES_READ = 4  # records at most for each that is shown, as some are not
PLAYERS_SHOWN = 60  # of those who play now, on their own page
MORE_GAMES = 6  # by the same player

SIGNED_IN = re.compile(rf"/play/({CLIENT_ID.pattern})/signed-in")

games = Blueprint("games", __name__)

# -- which games there are ----------------------------------------------------------------------


def find_game(client_id: str) -> Client | None:
    """Return the client whose game can be played here, None if it is gone or not `is_playable`."""
    try:
        client = get_storage().clients.read(client_id)
    except NoSuchClient:
        return None
    return client if is_playable(client) else None


def require_game(client_id: str) -> Client:
    """Return the client whose game can be played here. Raises NotFound."""
    client = find_game(client_id)
    if client is None:
        abort(404, say("This game was deleted or disabled. Choose another one."))
    return client


def is_playable(client: Client) -> bool:
    """Return True if a client is enabled and has a game that this site can show."""
    if client.game_url is None or client.disabled:
        return False
    # Checked again: the base URL may have changed, and people edit records.
    return check_game(client.game_url, base_url()) is None


def preview_of_game(client: Client) -> Preview:
    """Return what chat programs and search engines show of a link to a game."""
    description = summarize(client.description) or say("A game on %(site)s.", site=site_name())
    image, address = cover_address(client, "large"), f"/games/{client.id}"
    return Preview(client.name, description, image, address, noindex=not client.listed)


# -- the home page ------------------------------------------------------------------------------


@games.get("/")
def home() -> str:
    """Show the games and the people; to a guest also what this site is."""
    return home_page({})


def home_page(problems: dict[str, str]) -> str:
    """Return the home page; `problems` are of the form with which moderators list a game."""
    player = signed_in_player()
    if search := request.args.get("q"):  # up to SEARCHED games are read
        count_page(player, search)
    moderates = player is not None and may_list(player)
    playing = get_storage().playing.now()
    announcement = find_announcement(site_look(), player) if player else None
    welcome = welcome_of(site_look())
    counts = Counter(playing.values())
    return render_page(
        "community/home.html",
        player,
        Preview(site_name(), welcome or site_name(), address="/"),
        welcome=welcome,
        announcement=announcement and link_addresses(announcement),
        moderates=moderates,
        listed=page_of_listed(counts),
        tag_list=TAG_LIST,
        unlisted=page_of_games("unlisted", {"_anchor": "unlisted"}) if moderates else {},
        last=find_last_game(player, playing) if player else None,
        counts=counts,
        now=playing_now(playing, player),
        newest=find_newest(player) if player else None,
        problems=problems,
        notice=pop_notice(),
    )


def page_of_listed(counts: Counter) -> dict:
    """Return what `page_of_games` does of listed games, in the `order` of the query.

    `q` in the query is a part of a name, or a tag. If "played" is the order, the first page begins
    with the games that are played now, of which there are `counts` by client id.
    """
    order, search = request.args.get("order", ""), request.args.get("q", "").strip()
    order, part = order if order in ORDERS else "newest", unique_key(search)
    played = find_most_played(counts, part) if order == "played" else []
    query = {"q": search or None, "order": order, "_anchor": "games"}
    shown = page_of_games("listed", query, part, played)
    is_long = bool(shown["previous"] or shown["next"]) or len(shown["games"]) >= LONG
    orders = {each: url_for("games.home", q=query["q"], order=each) for each in ORDERS}
    return shown | {"order": order, "orders": orders, "search": search, "is_long": is_long}


def page_of_games(shelf: str, query: dict, part: str = "", first: Sequence[Client] = ()) -> dict:
    """Return the `games` of a page that can be played here, each with its owner.

    They are on the shelf "listed" or "unlisted", and the key `part` is found in them; `first` are
    before all others. `previous` and `next` are the addresses of the pages beside this one, with
    the same `query`, of which `order` is one of ORDERS.
    """
    (index, descending), clients = ORDERS[query.get("order", "newest")], get_storage().clients
    before, after = ("before", "after") if shelf == "listed" else BESIDE_UNLISTED

    def read(place: tuple[str, str] | None, size: int, backwards: bool) -> list[Client]:
        newest_first, most = descending != backwards, SEARCHED if part else size
        found = clients.between(index, shelf, f"{shelf}z", place, most, newest_first)
        return [each for each in found if is_found(each, part)][:size]

    places = [place_of_game(index, each) for each in (before, after)]
    page = page_beside(read, GAMES_SHOWN - (0 if any(places) else len(first)), *places)
    if not page.shown and any(places):  # they are gone
        page = page_beside(read, GAMES_SHOWN - len(first))
    ids = {each.id for each in first}
    others = [each for each in page.shown if each.id not in ids]
    return {
        "games": with_owners(others if page.previous else [*first, *others]),
        "previous": page.previous and url_for("games.home", **query | {before: page.previous}),
        "next": page.next and url_for("games.home", **query | {after: page.next}),
    }


def place_of_game(index: str, parameter: str) -> tuple[str, str] | None:
    """Return the key and the id of the game that a query parameter names, None if it is gone."""
    key_of, ids = CLIENTS.key(index).of, [request.args.get(parameter, "")]
    found = get_storage().clients.read_from_many(ids)
    return next(((key_of(each), each.id) for each in found if each.is_game), None)


def is_found(client: Client, part: str) -> bool:
    """Return True if the key `part` is a tag of a game, or a part of its name."""
    return part in client.tags or part in unique_key(client.name)


def find_most_played(counts: Counter, part: str) -> list[Client]:
    """Return the listed games in which `part` is found and that most people play now."""
    ids = [client_id for client_id, _ in counts.most_common(2 * GAMES_SHOWN) if client_id]
    found = get_storage().clients.read_from_many(ids)
    return [each for each in found if each.listed and is_found(each, part)][: GAMES_SHOWN - 1]


def with_owners(games: list[Client]) -> list[tuple[Client, Named]]:
    """Return the games that can be played here, each with the words for its owner."""
    store, playable = get_storage(), list(filter(is_playable, games))
    ids = list({each.owner_id for each in playable} - {None})
    players = store.users.read_from_many(ids)  # at once
    named = {each.id: Named(each.name, each) for each in players}
    return [(each, named.get(each.owner_id) or name_owner(store, each)) for each in playable]


def find_last_game(player: User, playing: dict[int, str | None]) -> dict | None:
    """Return the `game` that a player played last, how long `ago`, and how many `others` play it.

    None unless the game is listed and can be played; `ago` is None if it was played just now.
    `playing` has client ids by player id.
    """
    for client in get_storage().clients.read_from_many([player.last_game or ""]):
        if client.listed and is_playable(client):
            others = [each for each in playing if playing[each] == client.id and each != player.id]
            is_now = now_ms() - player.last_heartbeat < MINUTE * 1000
            ago = None if is_now else format_ago(player.last_heartbeat)
            return {"game": client, "ago": ago, "others": len(others)}
    return None


def find_newest(player: User) -> dict:
    """Return the other `people` who joined last; `alone` is True if there are none at all."""
    newest = get_storage().users.newest(2 * FACES_SHOWN)
    others = [each for each in newest if each.id != player.id and has_face(each, player)]
    people = [(each, format_joined(each)) for each in others[:FACES_SHOWN]]
    return {"people": people, "alone": [each.id for each in newest] == [player.id]}


def format_joined(user: User) -> Words:
    """Return when a player joined: "Joined today", "Joined 3 days ago"."""
    is_today = now_ms() - user.created < DAY * 1000
    return say("Joined today") if is_today else say("Joined %(ago)s", ago=format_ago(user.created))


def playing_now(
    playing: dict[int, str | None],
    viewer: User | None,
    game: Client | None = None,
    at_most: int = FACES_SHOWN,
) -> dict:
    """Return the `number` of those who play now, and the latest `faces`: players with their games.

    `playing` has client ids by player id. With a `game`, both are of those who play it; the faces
    then are of those whom the viewer may know to play it. Guests see no faces where the list of
    players is for members.
    """
    store = get_storage()
    ids = [each for each, client_id in playing.items() if game is None or client_id == game.id]
    sees_players = viewer or current_app.config["PLAYERS"] == "everyone"
    faces, read = [], ids if sees_players else []
    for some in (read[:at_most], read[at_most : FACES_READ * at_most]):
        if len(faces) < at_most:
            users = store.users.read_from_many(some)
            users = [each for each in users if has_face(each, viewer)]
            named = games_shown(store, users, viewer)
            found = ((each, named.get(each.id)) for each in users)
            faces += (each for each in found if game is None or each[1] == game)
    return {"number": len(ids), "faces": faces[:at_most]}


@games.get("/playing")
def show_playing() -> str:
    """Show who plays now, and which games."""
    viewer = require_viewer()
    count_page(viewer)
    now = playing_now(get_storage().playing.now(), viewer, at_most=PLAYERS_SHOWN)
    return render_page("community/playing.html", viewer, now=now)


def has_face(user: User, viewer: User | None) -> bool:
    """Return True if a player is shown to the viewer without being looked for."""
    return not user.suspended and (not user.unlisted or may_see_hidden(viewer, user))


@games.post("/announcement/dismiss")
@form_view(lambda: (require_player(),), lambda player, problems: home_page(problems))
def dismiss_announcement(player: User) -> Response:
    """Hide the announcement of the time `seen` from this player."""
    dismiss(authority_of(player), player.id, seen_time())
    return redirect("/", 303)


# -- the page of a game -------------------------------------------------------------------------


@games.get("/games/<client_id>")
def show_game(client_id: str) -> str:
    """Show what a game is, by whom, and who plays it now; anyone with the link can play it."""
    player, game = signed_in_player(), require_game(client_id)
    moderates, clients = player is not None and may_list(player), get_storage().clients
    owner = name_owner(get_storage(), game)
    made = games_made(get_storage(), owner.user, MORE_GAMES + 1) if owner.user else []
    shown = {
        "owner": owner,
        "others": [each for each in made if each.id != game.id][:MORE_GAMES],
        "now": playing_now(get_storage().playing.now(), player, game),
        "notice": pop_notice(),
        "moderates": moderates,
        "queue": clients.page("queue", "waiting", at_most=1) if moderates else [],
    }
    return render_page("community/game.html", player, preview_of_game(game), game=game, **shown)


# -- the forms of moderators --------------------------------------------------------------------


@games.post("/play/<client_id>/listed")
@form_view(
    lambda client_id: (require_moderator(), client_id),
    lambda player, client_id, problems: home_page(problems),
    stamped=True,
)
def change_listed(player: User, client_id: str) -> Response:
    """Put the game on the home page if `listed` is "yes", or take it off if it is "no".

    Its owner reads the `reason`. The game is listed only at the `game_url` that the moderator has
    seen. `stamped`: a press in the first second of the page does not count.
    """
    listed = request.form.get("listed")
    if listed not in ("yes", "no"):
        abort(400, say("Choose yes or no."))
    seen_url = request.form.get("game_url", "")
    before = find_game(client_id)
    try:
        by, reason = authority_of(player), request.form.get("reason", "").strip()
        client = apps.set_listed(by, client_id, listed == "yes", seen_url, reason)
    except InvalidField as error:
        raise FormRefused({"form": error.problem}, 409) from error
    leads_to = f"/games/{client_id}" if "from_game" in request.form else "/"
    if client.listed:
        notice = say("Game listed.")
    else:
        was_listed = before and before.listed
        notice = say("Game unlisted.") if was_listed else say("Game left unlisted.")
    return redirect_with_notice(notice, leads_to)


# -- heartbeats ---------------------------------------------------------------------------------


@games.post("/api/users/heartbeat")
def heartbeat() -> dict[str, str]:
    """Add the time since the last heartbeat of this sitting to the player's play time.

    The play page of a game sends its `client_id`. Raises Unauthorized for a guest.
    """
    player = signed_in_player()
    if player is None:
        abort(401, "nobody is signed in")
    game = None
    with contextlib.suppress(DamagedRecord):
        game = find_game(request.form.get("client_id", ""))
    accounts.add_heartbeat(authority_of(player), player.id, game and game.id)
    return {"message": "ok"}


# -- signing in beside a game -------------------------------------------------------------------


@games.get("/play/<client_id>/signed-in")
def show_signed_in(client_id: str) -> str:
    """Show the last page of the window beside a game; its script tells the play page.

    A guest has to sign in first.
    """
    game, player = require_game(client_id), signed_in_player()
    if player is None:
        abort(redirect_to_sign_in(request.path))
    return render_page("community/signed_in.html", player, beside=game)


def find_game_beside(leads_to: str) -> Client | None:
    """Return the game whose play page opened this form's window, None if none did or it is gone."""
    found = SIGNED_IN.fullmatch(leads_to)
    with contextlib.suppress(StorageError):  # only the page's looks
        return find_game(found[1]) if found else None
    return None
