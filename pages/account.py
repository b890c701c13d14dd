"""Accounts: sign-up, the profile and its picture, apps and browsers, a lost password."""

import json
import time

from flask import Blueprint, current_app, redirect, render_template, request, session
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wrappers import Response

import storage
from identity_sessions import (
    PASSWORD_REFUSED,
    Busy,
    client_address,
    count_guess,
    drop_session,
    find_linked_user,
    get_storage,
    hash_password,
    is_first_account_invite,
    local_address,
    password_gate,
    picture_gate,
    refusal_in_words,
    require_player,
    start_session,
)
from pages.forms import (
    FormRefused,
    refuse_problems,
    refuse_wrong_password,
    say_done,
    sentence,
    what_was_done,
)

FORM_AROUND_PICTURE = 64 * 1024  # bytes
SIGN_UPS_A_DAY = 10  # from an address
DAY = 86_400  # seconds
SCOPES_IN_WORDS = {"userinfo": "your public profile", "email": "your email address"}
PICTURE_STATUS = {
    storage.TooManyBytes: 413,
    storage.NotAPicture: 415,
    storage.TooManyPixels: 422,
    storage.BrokenPicture: 400,
}

account = Blueprint("account", __name__)

# -- sign-up ------------------------------------------------------------------------------------


@account.get("/sign-up")
def sign_up() -> str:
    """The form that makes an account; `invite` comes from a link, `next` is where it leads."""
    return sign_up_page(request.args, {})


@account.post("/sign-up")
def make_account() -> Response | tuple:
    """Make an account by `name`, `email`, `password` and, from a link, `invite`; sign it in."""
    form = request.form
    if refusal_of_sign_up(form.get("invite", "")):
        return sign_up_page(form, {}), 403
    try:
        user = add_account(form)
    except FormRefused as error:
        return sign_up_page(form, error.problems), error.status, error.headers
    start_session(user, form["password"])
    return redirect(local_address(form.get("next", "") or "/account"), 303)


def sign_up_page(fields, problems: dict[str, str]) -> str:
    """The sign-up page, with what was typed; never the password."""
    invite = fields.get("invite", "")
    return render_template(
        "sign_up.html",
        refusal=refusal_of_sign_up(invite),
        first=get_storage().is_new(),
        name=fields.get("name", ""),
        email=fields.get("email", ""),
        invite=invite,
        next=local_address(fields.get("next", "") or "/account"),
        problems=problems,
    )


def refusal_of_sign_up(invite: str) -> str | None:
    """Why nobody can make an account with this invite, or None."""
    if get_storage().is_new():
        if is_first_account_invite(invite):
            return None
        return (
            "This site is new. Whoever runs it makes the first account, with the link that the "
            "server printed when it started."
        )
    if current_app.config["SIGN_UP"] == "open":
        return None
    if current_app.config["SIGN_UP"] == "closed":
        return "Nobody can make an account here at the moment. Ask the people who run this site."
    if not invite:
        return "You need an invitation to make an account here. Ask the people who run this site."
    if not get_storage().is_good_invite(invite):
        return "This invitation was used, or is too old. Ask for another one."
    return None


def add_account(form) -> storage.User:
    """The account that a sign-up form asks for. Raises FormRefused, StorageFailed."""
    name = storage.normal_name(form.get("name", ""))
    email = form.get("email", "").strip()
    password = form.get("password", "")
    refuse_problems(
        name=storage.check_name(name),
        email=storage.check_email(email),
        password=storage.check_password(password, name, email),
    )
    refuse_taken_email(email)
    is_new = get_storage().is_new()
    try:
        with password_gate:  # before the count: a sign-up refused as Busy is none
            counted = count_sign_up()
            password_hash = hash_password(password)
    except Busy as error:
        problem, status, headers = refusal_in_words(error)
        raise FormRefused({"form": problem}, status, headers) from error
    try:
        return get_storage().add_user(
            name,
            email,
            password_hash,
            mod_level=storage.ADMINISTRATOR if is_new else storage.PLAYER,
            # Where sign-up is open, a link that was used stops nobody.
            invite=None if is_new or current_app.config["SIGN_UP"] == "open" else form["invite"],
            first=is_new,
        )
    except storage.StorageFailed:
        get_storage().give_back_attempt(counted)
        raise
    except storage.InvalidField as error:
        get_storage().give_back_attempt(counted)
        field = error.field if error.field in ("name", "email") else "form"
        raise FormRefused({field: sentence(error.field, error.problem)}, 409) from error


def refuse_taken_email(email: str) -> None:
    """Raise FormRefused where the address has an account.

    That tells who has one, so it counts like a wrong password: nobody can ask for many.
    """
    try:
        counted = count_guess(email)
    except PASSWORD_REFUSED as error:
        problem, status, headers = refusal_in_words(error)
        raise FormRefused({"form": problem}, status, headers) from error
    if get_storage().find_user(email):
        raise FormRefused({"email": "Email belongs to another account. Sign in with it?"}, 409)
    for attempt in counted:
        get_storage().give_back_attempt(attempt)


def count_sign_up() -> storage.Attempt:
    """Count one new account of this address. Raises FormRefused."""
    try:
        return get_storage().count_attempt(
            "sign-up", client_address(request.environ), SIGN_UPS_A_DAY, DAY
        )
    except storage.TooManyAttempts as error:
        problem = "Many accounts were made from where you are. Try again tomorrow."
        headers = {"Retry-After": str(error.retry_after)}
        raise FormRefused({"form": problem}, 429, headers) from error


# -- the account page ---------------------------------------------------------------------------


@account.get("/account")
def show_account() -> str:
    """The signed-in player's own page."""
    return account_page(require_player(), {})


def account_page(player: storage.User, problems: dict[str, dict[str, str]]) -> str:
    """The account page; `problems` are by form, then by field, and what was typed is kept."""
    # The form of a picture keeps nothing, and one that is too large cannot be read.
    typed = {} if "picture" in problems else request.form
    return render_template(
        "account.html",
        player=player,
        name=typed.get("name", player.name) if "profile" in problems else player.name,
        bio=typed.get("bio", player.bio) if "profile" in problems else player.bio,
        equipped_flair=typed.get("equippedFlair", player.equipped_flair),
        email=typed.get("email", player.email) if "email" in problems else player.email,
        problems=problems,
        done=what_was_done(),
    )


def account_form(form_name: str):
    """A decorator: a view that changes the signed-in player, and may raise FormRefused."""

    def decorate(change):
        def view() -> Response | tuple:
            player = require_player()
            try:
                return change(player)
            except FormRefused as error:
                page = account_page(player, {form_name: error.problems})
                return page, error.status, error.headers

        view.__name__, view.__doc__ = change.__name__, change.__doc__
        return view

    return decorate


@account.post("/account")
@account_form("profile")
def save_profile(player: storage.User) -> Response:
    """Change `name`, `bio` and `equippedFlair`; one that is not sent stays."""
    name = storage.normal_name(request.form.get("name", player.name))
    bio = request.form.get("bio", player.bio).replace("\r\n", "\n")
    flair = request.form.get("equippedFlair", player.equipped_flair)
    refuse_problems(
        name=storage.check_name(name) if name != player.name else None,
        bio=storage.check_bio(bio),
        equippedFlair=None if flair in player.flairs else "is not one of yours",
    )
    if name != player.name:
        try:
            get_storage().rename_user(player.id, name)
        except storage.NameTaken as error:
            raise FormRefused({"name": sentence("name", error.problem)}, 409) from error
    with get_storage().edit_user(player.id) as user:
        # What is not sent stays as it is now, not as it was before the checks.
        user.bio = bio if "bio" in request.form else user.bio
        if "equippedFlair" in request.form and flair in user.flairs:
            user.equipped_flair = flair
    return say_done("Your profile is saved.", "/account")


@account.post("/account/picture")
@account_form("picture")
def change_picture(player: storage.User) -> Response:
    """Make the upload `picture` the player's picture."""
    # Imported here: Pillow takes memory that a worker rarely needs.
    from storage.pictures import MAX_BYTES, make_picture

    request.max_content_length = MAX_BYTES + FORM_AROUND_PICTURE
    try:
        upload = request.files.get("picture")
        content = upload.read() if upload else b""
        with picture_gate:
            images = make_picture(content)
    except RequestEntityTooLarge as error:
        raise FormRefused({"picture": "This file is larger than 8 MB."}, 413) from error
    except storage.PictureRefused as error:
        problem = f"{str(error)[0].upper()}{str(error)[1:]}."
        raise FormRefused({"picture": problem}, PICTURE_STATUS[type(error)]) from error
    get_storage().save_picture(player.id, images)
    return say_done("Your new picture is saved.", "/account")


@account.post("/account/picture/remove")
@account_form("picture")
def remove_picture(player: storage.User) -> Response:
    """Go back to the generated picture."""
    reset_picture(get_storage(), player.id)
    return say_done("You have the generated picture again.", "/account")


def reset_picture(store: storage.Storage, user_id: int) -> None:
    """Give a player the generated picture. Raises StorageFailed."""
    from storage.pictures import generate_picture

    store.save_picture(user_id, generate_picture(user_id))


@account.post("/account/email")
@account_form("email")
def change_email(player: storage.User) -> Response:
    """Change the `email`, with the `current_password`."""
    email = request.form.get("email", "").strip()
    refuse_problems(email=storage.check_email(email))
    refuse_wrong_password(player, "current_password", request.form.get("current_password", ""))
    if storage.claim_key(email) != storage.claim_key(player.email):
        refuse_taken_email(email)
    try:
        get_storage().change_email(player.id, email)
    except storage.EmailTaken as error:
        raise FormRefused({"email": sentence("email", error.problem)}, 409) from error
    return say_done("Your email address is changed.", "/account")


@account.post("/account/password")
@account_form("password")
def change_password(player: storage.User) -> Response:
    """Set a `new_password`, with the `current_password`; every other browser is signed out."""
    refuse_wrong_password(player, "current_password", request.form.get("current_password", ""))
    set_password(player, request.form.get("new_password", ""))
    return say_done("Your password is changed.", "/account")


def set_password(user: storage.User, password: str) -> None:
    """Set a password, end all sessions and start one here. Raises FormRefused, StorageFailed."""
    problem = storage.check_password(password, user.name, user.email)
    refuse_problems(new_password=problem)
    with password_gate:
        password_hash = hash_password(password)
    with get_storage().edit_user(user.id) as edited:
        if edited.password_hash != user.password_hash:
            raise FormRefused({"form": "The password was changed just now, by somebody else."}, 409)
        edited.password_hash = password_hash
        edited.sessions = []
    start_session(edited, password)


@account.get("/account/export")
def export_account() -> Response:
    """Everything the server knows about the player, as JSON; no secret that opens a door."""
    player = require_player()
    record = storage.record_as_dict(player)
    del record["password_hash"]
    for each in (*record["sessions"], *record["grants"].values()):
        del each["id"]
    answer = Response(json.dumps(record, indent=2), content_type="application/json")
    answer.headers["Content-Disposition"] = 'attachment; filename="account.json"'
    answer.headers["Cache-Control"] = "no-store"
    return answer


@account.post("/account/delete")
@account_form("delete")
def delete_account(player: storage.User) -> Response:
    """Delete the account, with the `password`."""
    refuse_wrong_password(player, "password", request.form.get("password", ""))
    if is_last_administrator(player):
        problem = "You are the last administrator. Make another player one first."
        raise FormRefused({"form": problem}, 409)
    get_storage().delete_user(player.id)
    session.clear()
    return redirect("/", 303)


def is_last_administrator(user: storage.User) -> bool:
    """True where without this player nobody could administer the site."""
    if user.mod_level != storage.ADMINISTRATOR:
        return False
    others = (each for each in get_storage().user_ids() if each != user.id)
    return not any(_administers(each) for each in others)


def _administers(user_id: int) -> bool:
    try:
        user = get_storage().read_user(user_id)
    except (storage.NoSuchUser, storage.DamagedRecord):
        return False
    return user.mod_level == storage.ADMINISTRATOR and not user.suspended


# -- apps and browsers --------------------------------------------------------------------------


@account.get("/account/apps")
def show_apps() -> str:
    """What the player allowed, and where they are signed in."""
    player = require_player()
    return render_template(
        "apps.html",
        player=player,
        apps=[app_in_words(client_id, grant) for client_id, grant in player.grants.items()],
        browsers=[
            {
                "id": each.id,
                "browser": each.browser,
                "since": day_in_words(each.since),
                "current": each.id == session["id"],
            }
            for each in reversed(player.sessions)
        ],
        done=what_was_done(),
    )


def app_in_words(client_id: str, grant: storage.Grant) -> dict:
    """A client that a player allowed, as the page shows it."""
    try:
        name = get_storage().read_client(client_id).name
    except (storage.NoSuchClient, storage.DamagedRecord):
        name = "a program that is not registered any more"
    return {
        "client_id": client_id,
        "name": name,
        "sees": [SCOPES_IN_WORDS.get(each, each) for each in grant.scope],
        "since": day_in_words(grant.since),
    }


@account.post("/account/apps/withdraw")
def withdraw() -> Response:
    """Withdraw what a client was allowed; its tokens end at once."""
    player = require_player()
    with get_storage().edit_user(player.id) as user:
        user.grants.pop(request.form.get("client_id", ""), None)
    return say_done("Withdrawn. It learns nothing more from here.", "/account/apps")


@account.post("/account/sessions/end")
def end_one_session() -> Response:
    """Sign out one of the player's browsers."""
    drop_session(require_player().id, request.form.get("session", ""))
    return say_done("That browser is signed out.", "/account/apps")


@account.post("/account/sign-out-everywhere")
def sign_out_everywhere() -> Response:
    """Sign out all of the player's browsers, this one too."""
    with get_storage().edit_user(require_player().id) as user:
        user.sessions = []
    session.clear()
    return redirect("/sign-in", 303)


def day_in_words(milliseconds: int) -> str:
    """A day in UTC: "21 November 2026"."""
    return time.strftime("%d %B %Y", time.gmtime(milliseconds / 1000)).lstrip("0")


# -- a lost password ----------------------------------------------------------------------------


@account.get("/new-password")
def ask_new_password() -> str:
    """Where a sign-in link leads. Opening it spends nothing: chat programs open links too."""
    return new_password_page(request.args.get("link", ""), {})


@account.post("/new-password")
def take_new_password() -> Response | tuple:
    """Set the `new_password` of the player whom the `link` is for, and sign them in."""
    link = request.form.get("link", "")
    user = find_linked_user(link)
    if user is None or user.suspended:
        return new_password_page(link, {}), 403
    try:
        set_password(user, request.form.get("new_password", ""))
    except FormRefused as error:
        return new_password_page(link, error.problems), error.status
    return say_done("Your new password is set, and you are signed in.", "/account")


def new_password_page(link: str, problems: dict[str, str]) -> str:
    """The form for a new password, or why there is none."""
    user = find_linked_user(link)
    refusal = None
    if user is None:
        refusal = "This link was used, or is older than an hour. Ask for another one."
    elif user.suspended:
        refusal = "This account is suspended. Ask the people who run this site."
    return render_template(
        "new_password.html",
        refusal=refusal,
        user_name=user.name if user else "",
        link=link,
        problems=problems,
    )
