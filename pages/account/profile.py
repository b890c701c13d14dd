"""The account pages but `pages.account.security`: profile and picture, apps, the player's data."""

import functools

from flask import Blueprint, abort, current_app, request, session
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response

from identity.access.sessions import require_player
from identity.acts import accounts
from identity.acts.actors import HALF_AN_HOUR
from identity.http.context import get_storage
from identity.http.responses import NO_STORE, security_policy
from identity.http.signing import digest_of
from identity.oauth.terms import JOIN, SCOPES
from identity.site.catalogues import LANGUAGES
from identity.site.formatting import format_age, format_date, join_words
from model.errors import DamagedRecord, NoSuchClient
from model.names import normal_name
from model.records import OFFLINE, Grant, User
from model.rules import check_bio
from model.words import say
from pages.account import export
from pages.kit import forms
from pages.kit.actors import authority_of
from pages.kit.proof import confirmation_of, require_confirmation
from pages.kit.rendering import render_page
from pages.kit.uploads import read_images

CHANGED_SINCE = say(
    "Your profile was changed since you opened this page, perhaps in another tab. The form has "
    "what you typed. Below it is what is saved now."
)

account = Blueprint("account", __name__)

# -- profile and picture ------------------------------------------------------------------------


@account.get("/account")
def show_account() -> str:
    return account_page(require_player(), {})


def account_page(player: User, problems: dict[str, dict[str, str]]) -> str:
    """Return the page of profile and picture, with `problems` by form, then by field."""
    # The form of a picture has no values to keep, and cannot be read if it is too large.
    typed = MultiDict() if "picture" in problems else request.form
    return render_page(
        "account/profile.html",
        player,
        name=typed.get("name", player.name),
        bio=typed.get("bio", player.bio),
        equipped_flair=typed.get("equippedFlair", player.equipped_flair),
        listed=read_tick(typed, "listed", not player.unlisted),
        playing=read_tick(typed, "playing", not player.hides_game),
        chosen=typed.get("language", player.language),
        languages=LANGUAGES,
        seen=digest_of_profile(player),
        changed_since=problems.get("profile") == {"form": CHANGED_SINCE},
        problems=problems,
        notice=forms.pop_notice(),
    )


def read_tick(form: MultiDict, name: str, default: bool | None = None) -> bool | None:
    """Return whether a checkbox is ticked; a form without it has the `default`.

    Browsers send no box that is not ticked, so a hidden field of the same name sends "no" first.
    """
    return form.getlist(name)[-1] == "yes" if name in form else default


def digest_of_profile(player: User) -> str:
    """Return what a form sends as `seen`: it differs once another tab has changed the profile."""
    ticks = player.unlisted, player.hides_game
    shown = (player.name, player.bio, player.equipped_flair, *ticks, player.language)
    return digest_of(repr(shown), 12)


account_form = functools.partial(forms.form_view, lambda: (require_player(),), account_page)


@account.post("/account")
@account_form("profile")
def save_profile(player: User) -> Response:
    """Change `name`, `bio`, `equippedFlair`, `language`, and what is shown: `listed`, `playing`.

    A missing field stays as it is. If the profile has changed since the form showed it (`seen`),
    the form is shown again with what was typed and what is saved.
    """
    name = normal_name(request.form.get("name", player.name))
    bio = request.form.get("bio", player.bio).replace("\r\n", "\n")
    flair = request.form.get("equippedFlair", player.equipped_flair)
    listed, playing = (read_tick(request.form, each) for each in ("listed", "playing"))
    language = request.form.get("language", player.language)
    saved = player.name, player.bio, player.equipped_flair, player.language
    is_same = (name, bio, flair, language) == saved
    if not is_same and request.form.get("seen", "") not in ("", digest_of_profile(player)):
        raise forms.FormRefused({"form": CHANGED_SINCE}, 409)
    renamed, lacks_flair = name != player.name, flair not in player.flairs
    forms.refuse_problems(
        name=forms.check_player_name(name) if renamed else None,
        bio=check_bio(bio) if bio != player.bio else None,  # a newer rule locks nobody out
        equippedFlair=forms.NO_SUCH_FLAIR if lacks_flair else None,
        language=accounts.check_language(language) if language != player.language else None,
    )
    accounts.change_profile(
        authority_of(player),
        player.id,
        name if renamed else None,
        # A missing field stays as it is now, not as it was before the checks.
        bio if "bio" in request.form else None,
        flair if "equippedFlair" in request.form else None,
        unlisted=None if listed is None else not listed,
        hides_game=None if playing is None else not playing,
        language=language if language != player.language else None,
    )
    forms.tell_language_changed(player, language)
    player.language = language  # of the notice, too
    return forms.redirect_with_notice(say("Profile saved."), "/account")


@account.post("/account/picture")
@account_form("picture")
def change_picture(player: User) -> Response:
    """Make the upload `picture` the player's picture."""
    images = read_images(player, "picture")
    accounts.save_picture(authority_of(player), player.id, images)
    return forms.redirect_with_notice(say("Picture saved."), "/account")


@account.post("/account/picture/remove")
@account_form("picture", stamped=True)
def remove_picture(player: User) -> Response:
    """Replace the picture by the generated one."""
    accounts.remove_picture(authority_of(player), player.id)
    return forms.redirect_with_notice(say("Picture removed."), "/account")


# -- apps ---------------------------------------------------------------------------------------


@account.get("/account/apps")
def show_apps() -> str:
    """Show the apps that the player allowed."""
    player = require_player()
    return render_page(
        "account/apps.html",
        player,
        apps=[describe_app(client_id, grant) for client_id, grant in player.consents.items()],
        notice=forms.pop_notice(),
    )


def describe_app(client_id: str, grant: Grant) -> dict:
    """Return an app that the player allowed, as the page shows it."""
    try:
        client = get_storage().clients.read(client_id)
        name, is_game = client.name, client.is_game
    except (NoSuchClient, DamagedRecord):
        name, is_game = say("An app that was deleted"), False
    # The others have lines of their own.
    seen = [SCOPES.get(each, each) for each in grant.scope if each not in (JOIN, OFFLINE)]
    return {
        "client_id": client_id,
        "name": name,
        "is_game": is_game,
        "hidden": grant.hidden,
        "played": format_age(grant.played) if grant.played else None,
        "sees": join_words(seen),
        "joins": JOIN in grant.scope,
        "stays": OFFLINE in grant.scope,
        "since": format_date(grant.since),
    }


@account.post("/account/apps/shown")
def change_shown() -> Response:
    """Show an app's game on the player's profile if `shown` is "yes", or hide the game if "no"."""
    player, shown = require_player(), request.form.get("shown")
    if shown not in ("yes", "no"):
        abort(400, say("Choose yes or no."))
    accounts.show_game(
        authority_of(player), player.id, request.form.get("client_id", ""), shown == "yes"
    )
    hidden = say("Your profile does not show it.")
    done = hidden if shown == "no" else say("Your profile shows it.")
    return forms.redirect_with_notice(done, "/account/apps")


@account.post("/account/apps/withdraw")
def withdraw() -> Response:
    """Withdraw the player's consent to a client, which ends its tokens."""
    player = require_player()
    accounts.withdraw(authority_of(player), player.id, request.form.get("client_id", ""))
    return forms.redirect_with_notice(say("Access removed."), "/account/apps")


# -- data ----------------------------------------------------------------------------------------


@account.get("/account/data")
def show_data() -> tuple:
    return data_page(require_player(), {})


def data_page(player: User, problems: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the page of the player's data, with problems of its form, and its headers."""
    shown = {"problems": problems, "notice": forms.pop_notice(), **confirmation_of(player)}
    handle = get_storage().handles.find_of(player.id)
    page = render_page("account/data.html", player, handle=handle, **shown)
    return page, security_policy(connects=True) if shown["confirms"] else {}


@account.get("/account/export")
def export_account() -> Response:
    """Return everything that the server keeps about the player as JSON, without credentials."""
    player, store = require_player(), get_storage()
    store.attempts.count("export of", str(player.id), export.EXPORTS_AN_HOUR, HALF_AN_HOUR)
    parts = export.export_account(store, player, current_app.logger)
    headers = {**NO_STORE, "Content-Disposition": 'attachment; filename="account.json"'}
    return Response(parts, headers=headers, content_type="application/json")


@account.post("/account/delete")
# Stamped, because browsers fill in the password, and links open <details>.
@forms.form_view(lambda: (require_player(),), data_page, stamped=True)
def delete_account(player: User) -> Response:
    """Delete the account; takes the `password`, or without one a proof of the last minutes."""
    require_confirmation(player, "password")
    accounts.delete_user(authority_of(player), player.id)
    session.clear()
    return forms.redirect_with_notice(say("Account deleted."), "/")
