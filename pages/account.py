"""The account pages: profile, picture, email, password, export, apps, browsers."""

import functools

from flask import Blueprint, current_app, request, session
from werkzeug.wrappers import Response

from identity.actors import HALF_AN_HOUR
from identity.context import get_storage
from identity.formatting import DATE_AND_TIME, format_time
from identity.limits import password_place
from identity.links import find_linked_user
from identity.oauth import SCOPES
from identity.passwords import clear_wrong_passwords, hash_password
from identity.responses import NO_STORE
from identity.sessions import require_player, start_session
from identity.settings import site_words
from pages import export, forms
from pages.moderation import acts_of
from pages.rendering import render_page
from pages.uploads import read_images
from storage.errors import DamagedRecord, NoSuchClient
from storage.names import check_name, normal_name, unique_key
from storage.records import Grant, User
from storage.rules import check_bio, check_email, check_password

DATE = "%d %B %Y"

account = Blueprint("account", __name__)

# -- the account page ---------------------------------------------------------------------------


@account.get("/account")
def show_account() -> str:
    return account_page(require_player(), {})


def account_page(player: User, problems: dict[str, dict[str, str]]) -> str:
    """Return the account page with `problems` by form, then by field, and the typed values."""
    # The form of a picture has no values to keep, and cannot be read if it is too large.
    typed = {} if "picture" in problems else request.form
    return render_page(
        "account.html",
        player,
        name=typed.get("name", player.name),
        bio=typed.get("bio", player.bio),
        equipped_flair=typed.get("equippedFlair", player.equipped_flair),
        email=typed.get("email", player.email),
        problems=problems,
        notice=forms.pop_notice(),
    )


account_form = functools.partial(forms.form_view, lambda: (require_player(),), account_page)


@account.post("/account")
@account_form("profile")
def save_profile(player: User) -> Response:
    """Change `name`, `bio` and `equippedFlair`; a missing field stays as it is."""
    name = normal_name(request.form.get("name", player.name))
    bio = request.form.get("bio", player.bio).replace("\r\n", "\n")
    flair = request.form.get("equippedFlair", player.equipped_flair)
    renamed, lacks_flair = name != player.name, flair not in player.flairs
    forms.refuse_problems(
        name=check_name(name, current_app.config["SITE_NAME"]) if renamed else None,
        bio=check_bio(bio) if bio != player.bio else None,  # a newer rule locks nobody out
        equippedFlair="You do not have this flair. Choose another one." if lacks_flair else None,
    )
    acts_of(player).change_profile(
        player.id,
        name if renamed else None,
        # A missing field stays as it is now, not as it was before the checks.
        bio if "bio" in request.form else None,
        flair if "equippedFlair" in request.form else None,
    )
    return forms.redirect_with_notice("Profile saved.", "/account")


@account.post("/account/picture")
@account_form("picture")
def change_picture(player: User) -> Response:
    """Make the upload `picture` the player's picture."""
    images = read_images(player, "picture")
    acts_of(player).save_picture(player.id, images)
    return forms.redirect_with_notice("Picture saved.", "/account")


@account.post("/account/picture/remove")
@account_form("picture", stamped=True)
def remove_picture(player: User) -> Response:
    """Replace the picture by the generated one."""
    acts_of(player).remove_picture(player.id)
    return forms.redirect_with_notice("Picture removed.", "/account")


@account.post("/account/email")
@account_form("email")
def change_email(player: User) -> Response:
    """Change the `email`, with the `current_password`."""
    email = request.form.get("email", "").strip()
    unchanged = "This is your email already." if email == player.email else None
    forms.refuse_problems(email=unchanged or check_email(email))
    forms.refuse_wrong_password(player, "current_password")
    if unique_key(email) != unique_key(player.email):
        forms.refuse_taken_email(email, player.id)
    acts_of(player).change_email(player.id, email)
    return forms.redirect_with_notice("Email changed.", "/account")


@account.post("/account/password")
@account_form("password")
def change_password(player: User) -> Response:
    """Set a `new_password`, with the `current_password`; every other browser is signed out."""
    password = read_new_password(player)
    forms.refuse_wrong_password(player, "current_password")
    set_new_password(player, password)
    return forms.redirect_with_notice("Password changed.", "/account")


def read_new_password(user: User) -> str:
    """Return the `new_password` of the form. Raises FormRefused if it breaks the rules."""
    password = request.form.get("new_password", "")
    words = site_words(current_app.config)
    problem = check_password(password, user.name, user.email, *words)
    forms.refuse_problems(new_password=problem)
    return password


def set_new_password(user: User, password: str) -> None:
    """Set the password of a user who proved to be one, end all sessions and start one here.

    Raises FormRefused, Busy, StorageFailed.
    """
    with password_place(user.id):
        password_hash = hash_password(password)
    if not start_session(user, password, password_hash):
        raise forms.FormRefused({"form": forms.ACCOUNT_CHANGED}, 409)


@account.get("/account/export")
def export_account() -> Response:
    """Return everything that the server keeps about the player as JSON, without credentials."""
    player, store = require_player(), get_storage()
    store.attempts.count("export of", str(player.id), export.EXPORTS_AN_HOUR, HALF_AN_HOUR)
    parts = export.export_account(store, player, current_app.logger)
    headers = {**NO_STORE, "Content-Disposition": 'attachment; filename="account.json"'}
    return Response(parts, headers=headers, content_type="application/json")


@account.post("/account/delete")
@account_form("delete", stamped=True)  # browsers fill in the password, links open <details>
def delete_account(player: User) -> Response:
    """Delete the account, with the `password`."""
    forms.refuse_wrong_password(player, "password")
    acts_of(player).delete_user(player.id)
    session.clear()
    return forms.redirect_with_notice("Account deleted.", "/")


# -- apps and browsers --------------------------------------------------------------------------


@account.get("/account/apps")
def show_apps() -> str:
    """Show the apps that the player allowed, and the browsers that are signed in."""
    player = require_player()
    return render_page(
        "apps.html",
        player,
        apps=[describe_app(client_id, grant) for client_id, grant in player.consents.items()],
        browsers=[
            {
                "id": each.id,
                "browser": each.browser,
                "since": format_time(each.since, DATE_AND_TIME),
                "current": each.id == session["id"],
            }
            for each in reversed(player.sessions)
        ],
        notice=forms.pop_notice(),
    )


def describe_app(client_id: str, grant: Grant) -> dict:
    """Return an app that the player allowed, as the page shows it."""
    try:
        name = get_storage().clients.read(client_id).name
    except (NoSuchClient, DamagedRecord):
        name = "An app that was deleted"
    return {
        "client_id": client_id,
        "name": name,
        "sees": [f"your {SCOPES.get(each, each)}" for each in grant.scope],
        "since": format_time(grant.since, DATE),
    }


@account.post("/account/apps/withdraw")
def withdraw() -> Response:
    """Withdraw the player's consent to a client, which ends its tokens."""
    player = require_player()
    acts_of(player).withdraw(player.id, request.form.get("client_id", ""))
    return forms.redirect_with_notice("Access removed.", "/account/apps")


@account.post("/account/sessions/end")
def end_one_session() -> Response:
    player = require_player()
    acts_of(player).sign_out(player.id, request.form.get("session", ""))
    return forms.redirect_with_notice("Browser signed out.", "/account/apps")


@account.post("/account/sign-out-everywhere")
def sign_out_everywhere() -> Response:
    """Sign out all of the player's browsers, including this one."""
    player = require_player()
    acts_of(player).sign_out(player.id)
    session.clear()
    return forms.redirect_with_notice("Signed out everywhere.", "/")


# -- a lost password ----------------------------------------------------------------------------


@account.get("/new-password")
def ask_new_password() -> str:
    """Show the form of a sign-in link, which stays unused: chat programs open links too."""
    return new_password_page(request.args.get("link", ""), {})


def new_password_page(link: str, problems: dict[str, str]) -> str:
    """Return the page for a new password, which has a form or the reason why not."""
    user = find_linked_user(get_storage(), link)
    refusal = None
    if user is None:
        refusal = "We don't recognise this link. It may be used or too old. Ask for a new one."
    elif user.suspended:
        refusal = forms.describe_own_suspension(user.suspension)
    name = user.name if user else ""
    return render_page(
        "new_password.html", None, refusal=refusal, user_name=name, link=link, problems=problems
    )


@account.post("/new-password")
@forms.form_view(lambda: (request.form.get("link", ""),), new_password_page)
def take_new_password(link: str) -> Response:
    """Set the `new_password` of the player of a sign-in `link`, and sign them in.

    Wrong passwords from this address count no longer: they may be why there is a link.
    """
    user = find_linked_user(get_storage(), link)
    if user is None or user.suspended:
        raise forms.FormRefused({}, 403)  # the page says why
    set_new_password(user, read_new_password(user))
    clear_wrong_passwords(user.name, user.email)
    return forms.redirect_with_notice("Password set. You are signed in.", "/account")
