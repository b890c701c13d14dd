"""The account pages: profile, picture, email, password, export, apps, browsers."""

import base64
import functools
import json
from itertools import filterfalse

from flask import Blueprint, current_app, request, session
from werkzeug.datastructures import FileStorage
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wrappers import Response

import storage
from identity.context import get_storage
from identity.formatting import format_time
from identity.limits import password_limit, picture_limit
from identity.links import find_linked_user
from identity.oauth import SCOPES
from identity.passwords import hash_password
from identity.sessions import drop_session, require_player, start_session
from pages.forms import (
    ACCOUNT_CHANGED,
    SUSPENDED,
    FormRefused,
    as_form_errors,
    form_view,
    pop_notice,
    redirect_with_notice,
    refuse_problems,
    refuse_taken_email,
    refuse_wrong_password,
)
from pages.moderation import acts_of
from pages.rendering import render_page
from storage.flat_files.disk import storage_error_from

FORM_AROUND_PICTURE = 64 * 1024  # bytes
DATE, DATE_AND_TIME = "%d %B %Y", "%d %B %Y, %H:%M UTC"
PICTURE_STATUS = {
    storage.TooManyBytes: 413,
    storage.NotAPicture: 415,
    storage.TooManyPixels: 422,
    storage.BrokenPicture: 400,
}

account = Blueprint("account", __name__)

# -- the account page ---------------------------------------------------------------------------


@account.get("/account")
def show_account() -> str:
    """Show the signed-in player's account."""
    return account_page(require_player(), {})


def account_page(player: storage.User, problems: dict[str, dict[str, str]]) -> str:
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
        notice=pop_notice(),
    )


account_form = functools.partial(form_view, find=lambda: (require_player(),), show=account_page)


@account.post("/account")
@account_form("profile")
def save_profile(player: storage.User) -> Response:
    """Change `name`, `bio` and `equippedFlair`; a missing field stays as it is."""
    name = storage.normal_name(request.form.get("name", player.name))
    bio = request.form.get("bio", player.bio).replace("\r\n", "\n")
    flair = request.form.get("equippedFlair", player.equipped_flair)
    refuse_problems(
        name=storage.check_name(name) if name != player.name else None,
        bio=storage.check_bio(bio),
        equippedFlair=None
        if flair in player.flairs
        else "You do not have this flair. Choose another one.",
    )
    if name != player.name:
        get_storage().rename_user(player.id, name)
    try:
        with as_form_errors(), get_storage().edit_user(player.id) as user:
            # A missing field stays as it is now, not as it was before the checks.
            user.bio = bio if "bio" in request.form else user.bio
            if "equippedFlair" in request.form and flair in user.flairs:
                user.equipped_flair = flair
    except FormRefused as error:
        if name != player.name:
            player.name = name  # for the page
            error.problems["form"] = "Only your new name was saved. Try the rest again later."
        raise
    return redirect_with_notice("Profile saved.", "/account")


@account.post("/account/picture")
@account_form("picture")
def change_picture(player: storage.User) -> Response:
    """Make the upload `picture` the player's picture."""
    # Imported here: Pillow takes memory that a worker rarely needs.
    from storage.pictures import MAX_BYTES, make_picture

    request.max_content_length = MAX_BYTES + FORM_AROUND_PICTURE
    try:
        upload = read_upload()
        with picture_limit:  # around `read`: a waiting upload takes no memory
            images = make_picture(upload.read() if upload else b"")
    except RequestEntityTooLarge as error:
        raise FormRefused(
            {"picture": "This file is larger than 8 MB. Choose a smaller one."}, 413
        ) from error
    except storage.PictureRefused as error:
        raise FormRefused({"picture": str(error)}, PICTURE_STATUS[type(error)]) from error
    get_storage().save_picture(player.id, images)
    return redirect_with_notice("Picture saved.", "/account")


def read_upload() -> FileStorage | None:
    """Return the uploaded file, if any. Raises RequestEntityTooLarge, StorageFailed."""
    try:
        return request.files.get("picture")
    except OSError as error:  # Werkzeug puts more than 500 kB into a temporary file
        # If Python finds no folder for it, the error does not say why; the storage does.
        get_storage().check_health()
        raise storage_error_from(error) from error


@account.post("/account/picture/remove")
@account_form("picture")
def remove_picture(player: storage.User) -> Response:
    """Replace the picture by the generated one."""
    acts_of(player).remove_picture(player.id)
    return redirect_with_notice("Picture removed.", "/account")


@account.post("/account/email")
@account_form("email")
def change_email(player: storage.User) -> Response:
    """Change the `email`, with the `current_password`."""
    email = request.form.get("email", "").strip()
    refuse_problems(email=storage.check_email(email))
    refuse_wrong_password(player, "current_password", request.form.get("current_password", ""))
    if storage.unique_key(email) != storage.unique_key(player.email):
        refuse_taken_email(email)
    get_storage().change_email(player.id, email)
    return redirect_with_notice("Email changed.", "/account")


@account.post("/account/password")
@account_form("password")
def change_password(player: storage.User) -> Response:
    """Set a `new_password`, with the `current_password`; every other browser is signed out."""
    refuse_wrong_password(player, "current_password", request.form.get("current_password", ""))
    set_password(player, request.form.get("new_password", ""))
    return redirect_with_notice("Password changed.", "/account")


def set_password(user: storage.User, password: str) -> None:
    """Set a password, end all sessions and start one here.

    Raises FormRefused, Busy, StorageFailed.
    """
    problem = storage.check_password(password, user.name, user.email)
    refuse_problems(new_password=problem)
    with password_limit:
        password_hash = hash_password(password)
    if not start_session(user, password, password_hash):
        raise FormRefused({"form": ACCOUNT_CHANGED}, 409)


@account.get("/account/export")
def export_account() -> Response:
    """Return everything that the server keeps about the player as JSON, without credentials."""
    player = require_player()
    record = storage.record_as_dict(player)
    del record["password_hash"]
    for each in (*record["sessions"], *record["grants"].values()):
        del each["id"]
    owned = get_storage().clients_of(player.id)
    record["clients"] = [storage.record_as_dict(each) for each in owned]
    for each in record["clients"]:
        del each["secret_sha256"], each["disabled_by"]
    record["picture"] = picture_data_url(player)
    record["audit"] = audit_lines_of(player, owned)
    answer = Response(json.dumps(record, indent=2), content_type="application/json")
    answer.headers["Content-Disposition"] = 'attachment; filename="account.json"'
    answer.headers["Cache-Control"] = "no-store"
    return answer


def picture_data_url(player: storage.User) -> str | None:
    """Return the large picture as a data URL, or None if it is missing or has just changed."""
    try:
        content, _ = get_storage().read_picture("large", player.picture_file)
    except storage.NoSuchPicture:
        return None
    return f"data:image/webp;base64,{base64.b64encode(content).decode()}"


def audit_lines_of(player: storage.User, owned: list[storage.Client]) -> list[dict] | None:
    """Return the audit lines by or about a player and their clients, oldest first.

    Actor and address are left out of the acts of others. Returns None if a line is damaged.
    """

    def names_player(line: dict) -> bool:
        return player.id in (line.get("by"), line.get("user"))

    store = get_storage()
    try:
        lines = list(store.audit_of(player.id))
        for client in owned:  # their lines about the player are among those above
            lines += filterfalse(names_player, store.audit_of(client.id))
    except storage.DamagedRecord as error:
        current_app.logger.error("%s", error)
        return None
    lines.sort(key=time_of)
    return [line if line.get("by") == player.id else without_actor(line) for line in lines]


def time_of(line: dict) -> int:
    """Return the time of an audit line; 0 if somebody has replaced the number."""
    return line["time"] if type(line.get("time")) is int else 0


def without_actor(line: dict) -> dict:
    """Return an audit line without the actor and the address."""
    return {name: value for name, value in line.items() if name not in ("by", "address")}


@account.post("/account/delete")
@account_form("delete")
def delete_account(player: storage.User) -> Response:
    """Delete the account, with the `password`."""
    refuse_wrong_password(player, "password", request.form.get("password", ""))
    acts_of(player).delete_user(player.id)
    session.clear()
    return redirect_with_notice("Account deleted.", "/")


# -- apps and browsers --------------------------------------------------------------------------


@account.get("/account/apps")
def show_apps() -> str:
    """Show the apps that the player allowed, and the browsers that are signed in."""
    player = require_player()
    return render_page(
        "apps.html",
        player,
        apps=[describe_app(client_id, grant) for client_id, grant in player.grants.items()],
        browsers=[
            {
                "id": each.id,
                "browser": each.browser,
                "since": format_time(each.since, DATE_AND_TIME),
                "current": each.id == session["id"],
            }
            for each in reversed(player.sessions)
        ],
        notice=pop_notice(),
    )


def describe_app(client_id: str, grant: storage.Grant) -> dict:
    """Return an app that the player allowed, as the page shows it."""
    try:
        name = get_storage().read_client(client_id).name
    except (storage.NoSuchClient, storage.DamagedRecord):
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
    with get_storage().edit_user(player.id) as user:
        user.grants.pop(request.form.get("client_id", ""), None)
    return redirect_with_notice("Access removed.", "/account/apps")


@account.post("/account/sessions/end")
def end_one_session() -> Response:
    """Sign out one of the player's browsers."""
    drop_session(require_player().id, request.form.get("session", ""))
    return redirect_with_notice("Browser signed out.", "/account/apps")


@account.post("/account/sign-out-everywhere")
def sign_out_everywhere() -> Response:
    """Sign out all of the player's browsers, including this one."""
    with get_storage().edit_user(require_player().id) as user:
        user.sessions = []
    session.clear()
    return redirect_with_notice("Signed out everywhere.", "/")


# -- a lost password ----------------------------------------------------------------------------


@account.get("/new-password")
def ask_new_password() -> str:
    """Show the form of a sign-in link. Opening it uses nothing up: chat programs open links too."""
    return new_password_page(request.args.get("link", ""), {})


@account.post("/new-password")
def take_new_password() -> Response | tuple:
    """Set the `new_password` of the player of a sign-in `link`, and sign them in."""
    link = request.form.get("link", "")
    user = find_linked_user(get_storage(), link)
    if user is None or user.suspended:
        return new_password_page(link, {}), 403
    try:
        with as_form_errors():
            set_password(user, request.form.get("new_password", ""))
    except FormRefused as error:
        return new_password_page(link, error.problems), error.status, error.headers
    return redirect_with_notice("Password set. You are signed in.", "/account")


def new_password_page(link: str, problems: dict[str, str]) -> str:
    """Return the page for a new password, which has a form or the reason why not."""
    user = find_linked_user(get_storage(), link)
    refusal = None
    if user is None:
        refusal = "We don't recognise this link. It may be used or too old. Ask for a new one."
    elif user.suspended:
        refusal = SUSPENDED
    return render_page(
        "new_password.html",
        None,
        refusal=refusal,
        user_name=user.name if user else "",
        link=link,
        problems=problems,
    )
