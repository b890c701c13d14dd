"""The list of players, and their public profiles with the forms that moderators see there."""

import contextlib
import re
from collections.abc import Iterator

from flask import Blueprint, abort, current_app, redirect, request, url_for
from markupsafe import Markup, escape
from werkzeug.wrappers import Response

from identity.access.sessions import require_player, signed_in_player
from identity.acts.network_bans import LOOKED_AT
from identity.acts.presence import game_shown, games_made, games_played, is_playing
from identity.acts.rights import may_see_hidden
from identity.http.context import get_storage, site_name
from identity.http.limits import ATTEMPTS_WINDOW, count_guest
from identity.site.formatting import format_ago, format_date, format_duration
from model.errors import StorageFailed
from model.names import can_be_in_key, can_be_key, unique_key
from model.records import User
from model.rules import HOST, USER_ID
from model.words import Words, say
from pages.community.moderation_card import moderation_card
from pages.kit.files import picture_address
from pages.kit.forms import pop_notice
from pages.kit.rendering import Preview, lists_profiles, render_page

PLAYERS_SHOWN = 50  # on one page
PLAYERS_READ = 200  # at most for one page, of whom some are not in the list
GUEST_PAGES = 300  # for an address in ATTEMPTS_WINDOW
SEARCHES = 600  # of a member in ATTEMPTS_WINDOW: one that finds nobody reads all names
FLAIRS_SHOWN = 40  # the others after a press
RECENT_GAMES = 6  # that a player played recently
ROLES = ("", say("Moderator"), say("Administrator"))  # by mod level
PREVIEWED = 200  # characters of a bio or a description
GAMES_MADE = 24  # on a profile
ADDRESS = re.compile(r"\bhttps?://[^\s<>\"]+", re.IGNORECASE)  # and what stands after it
# In ASCII alone, and without user information: nothing in it looks like another host.
LINKED = re.compile(
    rf"https?://{HOST.pattern}(:[0-9]{{1,5}})?([/?#][!-;=?-\[\]_a-z~]*)?", re.IGNORECASE
)
AFTER_ADDRESS = ".,:;!?'*_~]}”’»…。、"  # and a parenthesis that was opened before the address
LINK = Markup('<a href="{0}" rel="nofollow ugc noopener" dir="ltr">{0}</a>')

players = Blueprint("players", __name__)

# -- the list -----------------------------------------------------------------------------------


@players.get("/players")
def show_players() -> str:
    """Show a page of the players whose names contain `q`, `after` or `before` a name's key."""
    viewer, search = require_viewer(), request.args.get("q", "").strip()
    count_page(viewer, search)
    part = unique_key(search)
    summary = say("Who plays on %(site)s.", site=site_name())
    preview = Preview(say("Players"), summary, address="/players", noindex=not lists_profiles())
    page = {"people": [], "previous": None, "next": None}
    if can_be_in_key(part):  # no look-up for what no name contains
        page = players_shown(viewer, part)
    for way, parameter in (("previous", "before"), ("next", "after")):
        query = {"q": search or None, parameter: page[way]}
        page[way] = page[way] and url_for(".show_players", **query)
    return render_page(
        "community/players.html",
        viewer,
        preview,
        search=search,
        is_first="after" not in request.args and "before" not in request.args,
        **page,
    )


def require_viewer() -> User | None:
    """Return the player, or None for a guest; where the list is for members, a guest signs in."""
    is_open = current_app.config["PLAYERS"] == "everyone"
    return signed_in_player() if is_open else require_player()


def count_page(viewer: User | None, search: str = "") -> None:
    """Count a guest's page of players or search, and a member's search. Raises TooManyAttempts."""
    if viewer is None:
        count_guest("list for", GUEST_PAGES)
    elif search:
        with contextlib.suppress(StorageFailed):  # nothing is saved by a search
            get_storage().attempts.count("search by", str(viewer.id), SEARCHES, ATTEMPTS_WINDOW)


def players_shown(viewer: User | None, part: str) -> dict:
    """Return the `people` of this page, and the name keys at which other pages start.

    The keys of their names contain `part`. If there is no page before the one `before` a key, that
    one is the first page, which is filled from its start.
    """
    after, before = (key_of_page(each) for each in ("after", "before"))
    if before and not after:
        found, more = find_listed(viewer, part, before, backwards=True)
        if more:
            people = [describe_player(each, viewer) for each in reversed(found)]
            last = unique_key(found[0].name) if found else before
            return {"people": people, "previous": more, "next": last}
    found, more = find_listed(viewer, part, after)
    first = unique_key(found[0].name) if found and after else None
    people = [describe_player(each, viewer) for each in found]
    return {"people": people, "previous": first, "next": more}


def key_of_page(parameter: str) -> str:
    """Return the name key in a query parameter, "" if that is missing or no name can have it."""
    key = unique_key(request.args.get(parameter, ""))
    return key if can_be_key("name", key) else ""


def find_listed(
    viewer: User | None, part: str, key: str, backwards: bool = False
) -> tuple[list[User], str | None]:
    """Return a page of players behind a name key, and the key of the last one if more may follow.

    After PLAYERS_READ players a page ends, short, perhaps at one who is unlisted.
    """
    found, last = [], None
    for read, user in enumerate(read_by_name(part, key, backwards)):
        is_listed = not user.unlisted or may_see_hidden(viewer, user)
        is_full = len(found) == PLAYERS_SHOWN
        if read == PLAYERS_READ or (is_full and is_listed):
            return found, last
        if not is_full:
            last = unique_key(user.name)
        if is_listed:
            found.append(user)
    return found, None


def read_by_name(part: str, key: str, backwards: bool) -> Iterator[User]:
    """Yield the players behind a name key in the order of keys, or, backwards, those before it."""
    at_most, chunk = PLAYERS_SHOWN + 1, None
    while chunk is None or len(chunk) == at_most:
        chunk = get_storage().users.by_name(part, key, at_most, backwards)
        yield from chunk
        key = unique_key(chunk[-1].name) if chunk else key


def describe_player(user: User, viewer: User | None) -> dict:
    """Return a player with the words of the line below the name, as far as the viewer may know."""
    return {
        "user": user,
        "role": ROLES[user.mod_level],
        "playing": is_playing(user),
        "game": game_shown(get_storage(), user, viewer),
        "last_played": say_last_played(user),
    }


@players.get("/players/<name>")
def find_profile(name: str) -> Response:
    """Redirect to the profile of the player who has this name now, in any spelling of its key."""
    require_viewer()
    key = unique_key(name)
    user = get_storage().users.find_by("name", key) if can_be_key("name", key) else None
    if user is None:
        abort(404, say("No player has this name."))
    return redirect(f"/users/{user.id}", 303)


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


def profile_page(
    user: User, problems: dict[str, str], link: str | None = None, neighbours: tuple = ()
) -> str:
    """Return a player's public page; `problems` are by field, `link` is a new sign-in link.

    `neighbours` has the accounts of the same networks, and these, if they were asked for.
    """
    player = signed_in_player()
    description = summarize(user.bio) or say("A player of %(site)s.", site=site_name())
    picture = picture_address(user, "large")
    noindex = user.unlisted or not lists_profiles()
    preview = Preview(user.name, description, picture, f"/users/{user.id}", noindex=noindex)
    flairs = [each for each in user.flairs if each != "none"]
    flairs.sort(key=lambda flair: flair != user.equipped_flair)
    shown = describe_player(user, player)
    # The time of the last heartbeat would tell which game a player is in who does not show it.
    unseen = user.last_game if shown["playing"] and shown["game"] is None else None
    played = games_played(get_storage(), user, RECENT_GAMES + 1)
    games = [
        (game, say("now") if game == shown["game"] else format_ago(time))
        for game, time in played
        if game.id != unseen
    ]
    return render_page(
        "community/profile.html",
        player,
        preview,
        **shown,
        play_time=format_play_time(user),
        when_played=format_last_played(user),
        since=format_date(user.created),
        bio=link_addresses(user.bio),
        flairs=flairs[:FLAIRS_SHOWN],
        more_flairs=flairs[FLAIRS_SHOWN:],
        games=games[:RECENT_GAMES],
        made=games_made(get_storage(), user, GAMES_MADE),
        moderation=moderation_card(player, user, problems),
        link=link,
        neighbours=neighbours,
        looked_at=LOOKED_AT,
        notice=pop_notice(),
    )


def summarize(text: str) -> str:
    """Return the beginning of a text of several lines, as a preview shows it."""
    return " ".join(text.split())[:PREVIEWED]


def link_addresses(text: str) -> Markup:
    """Return a player's text as HTML in which http and https addresses are links.

    An address with letters of other alphabets stays text: a host may look like another one.
    """
    parts, end = [], 0
    for found in ADDRESS.finditer(text):
        address = found[0].rstrip(AFTER_ADDRESS + ")" * ("(" not in found[0]))
        if LINKED.fullmatch(address):
            parts += [escape(text[end : found.start()]), LINK.format(address)]
            end = found.start() + len(address)
    return Markup().join([*parts, text[end:]])


def format_play_time(user: User) -> Words:
    """Return how long a player has played: "3 hours", or "not yet"."""
    if user.play_ms or user.has_played:
        return format_duration(user.play_ms // 1000)
    return say("not yet")


def format_last_played(user: User) -> Words:
    """Return how long ago a player played: "2 days ago", "not yet", or "unknown"."""
    if not user.has_played:
        # An imported account can lack the time.
        return say("unknown") if user.play_ms else say("not yet")
    return format_ago(user.last_heartbeat)


def say_last_played(user: User) -> Words:
    """Return what `format_last_played` does as a sentence: "Last played 2 days ago"."""
    if not user.has_played:
        return say("Played before") if user.play_ms else say("Not played yet")
    return say("Last played %(ago)s", ago=format_ago(user.last_heartbeat))
