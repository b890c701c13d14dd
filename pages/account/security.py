"""Security: where a player is signed in, the password, the email address, a warning."""

import functools
from collections.abc import Sequence

from flask import Blueprint, current_app, redirect, request, session
from werkzeug.wrappers import Response

from identity.access.letters import ask_confirmation, notify, tell_old_address
from identity.access.passwords import hash_password
from identity.access.sessions import next_address, require_player
from identity.access.signing_in import PASSWORD_AMR, start_session
from identity.acts import accounts, notes
from identity.acts import sessions as session_acts
from identity.acts.emails import muted_by
from identity.acts.families import families_of
from identity.http.context import base_url, get_storage, mail_is_on, site_name
from identity.http.limits import client_address, password_place
from identity.http.responses import security_policy
from identity.http.stamps import check_stamp
from identity.oauth.reauthentication import session_amr
from identity.site.formatting import format_hours_ago, show_browser
from identity.site.pasted import unwrap
from identity.site.settings import site_words
from model.addresses import ascii_email, login_key, normal_email
from model.grant_records import Family
from model.records import Session, User
from model.rules import check_password, normal_password
from model.words import Words, say
from pages.kit import forms
from pages.kit.actors import authority_of
from pages.kit.passkeys import own_rp_id, passkey_card
from pages.kit.proof import confirmation_of, require_confirmation
from pages.kit.rendering import mark_time, render_page

security = Blueprint("security", __name__)


@security.get("/account/security")
def show_security() -> tuple:
    return security_page(require_player(), {})


def security_page(
    player: User,
    problems: dict[str, dict[str, str]],
    codes: list[str] | None = None,
    done: str = "",
) -> tuple[str, dict[str, str]]:
    """Return the page, with `problems` by form, then by field, and its headers.

    The page has the typed email address, and new recovery `codes`, None if none were made, with
    what was `done` before.
    """
    card = passkey_card(player, codes)
    page = render_page(
        "account/security.html",
        player,
        browsers=[
            {
                "id": each.id,
                "browser": show_browser(each.browser),
                "use": describe_use(each),
                "current": each.id == session["id"],
            }
            for each in reversed(player.sessions)
        ],
        apps=[
            {"id": family.id, "name": client.name, "use": describe_use_by_app(family)}
            for family, client in families_of(get_storage(), player)
        ],
        email=request.form.get("email", player.email),
        mail=mail_is_on(),
        muted=muted_by(player),
        problems=problems,
        notice=forms.pop_notice(),
        card=card,
        done=done,
        **confirmation_of(player),
    )
    return page, security_policy(connects=True) if card else {}


def describe_use(entry: Session) -> Words:
    """Return when and from where a session was last used, as the page says it."""
    if entry.id == session["id"]:
        return say("Now, from %(address)s", address=client_address(request.remote_addr))
    if not (entry.used and entry.address):
        return say("Signed in on %(time)s", time=mark_time(entry.since))
    ago = format_hours_ago(entry.used)
    return say("Last used %(ago)s, from %(address)s", ago=ago, address=entry.address)


def describe_use_by_app(family: Family) -> Words:
    """Return where the player allowed an app to stay signed in, and when it last did."""
    ago, values = format_hours_ago(family.used), {"address": family.address}
    if not family.device:
        return say("Another device. Last used %(ago)s, from %(address)s", ago=ago, **values)
    values |= {"browser": show_browser(family.device), "ago": ago}
    return say("Allowed in %(browser)s. Last used %(ago)s, from %(address)s", **values)


security_form = functools.partial(forms.form_view, lambda: (require_player(),), security_page)

# -- where the player is signed in --------------------------------------------------------------


@security.post("/account/sessions/end")
def end_one_session() -> Response:
    """Sign out the browser or the app with the id `session`."""
    player = require_player()
    session_acts.end_sign_in(authority_of(player), player.id, request.form.get("session", ""))
    return forms.redirect_with_notice(say("Signed out there."), "/account/security")


@security.post("/account/sign-out-others")
def sign_out_others() -> Response:
    """Sign out all of the player's browsers but this one, and all apps."""
    player = require_player()
    session_acts.sign_out(authority_of(player), player.id, kept=session["id"])
    return forms.redirect_with_notice(say("The others are signed out."), "/account/security")


# -- password and email -------------------------------------------------------------------------


@security.post("/account/password")
@security_form("password")
def change_password(player: User) -> Response:
    """Set a `new_password`, with the `current_password`; every other browser is signed out."""
    password = read_new_password(player)
    require_confirmation(player, "current_password")
    # Without a password so far, the player is here as before: nobody has typed one to sign in.
    set_new_password(player, password, PASSWORD_AMR if player.password_hash else session_amr())
    notify(player, "password")
    return forms.redirect_with_notice(say("Password changed."), "/account/security")


def read_new_password(user: User) -> str:
    """Return the `new_password` in the normal form that is hashed. Raises FormRefused."""
    password = request.form.get("new_password", "")
    words = site_words(site_name(), base_url())
    problem = check_password(password, user.name, user.email, *words)
    forms.refuse_problems(new_password=problem)
    return normal_password(password)


def set_new_password(user: User, password: str, amr: Sequence[str]) -> None:
    """Set the password of a user who proved who they are, end all sessions and start one here.

    Raises FormRefused, Busy, StorageFailed.
    """
    with password_place(user.id):
        password_hash = hash_password(password)
    if not start_session(user, password, password_hash, amr=amr):
        raise forms.FormRefused({"form": forms.ACCOUNT_CHANGED}, 409)


@security.post("/account/email")
@security_form("email")
def change_email(player: User) -> Response:
    """Change the `email`, or remove it, with the `current_password`."""
    email = normal_email(unwrap(request.form.get("email", "")))
    unchanged = say("This is your email already.")
    unchanged = unchanged if email else say("You have no email. Enter one.")
    needs_email = current_app.config["EMAIL"] == "required"
    problem = forms.check_new_email(email) if email or needs_email else None
    is_same = email == (ascii_email(player.email) or player.email)
    forms.refuse_problems(email=unchanged if is_same else problem)
    require_confirmation(player, "current_password")
    if email and login_key(email) != login_key(player.email):
        forms.require_unused_email(email, player.id)
    accounts.change_email(authority_of(player), player.id, email, own_rp_id())
    tell_old_address(player)
    is_asked = ask_confirmation(get_storage().users.read(player.id))
    done = say("Email saved.") if email else say("Email removed.")
    if is_asked:
        done = say("Email saved. We sent a message there: open its link to confirm it.")
    return forms.redirect_with_notice(done, "/account/security")


@security.post("/account/warning")
def confirm_warning() -> Response:
    """Note that the player has read the `warning`, but not in the first second of the page."""
    player = require_player()
    if check_stamp(request.form.get("stamp", "")) is None:
        notes.confirm_warning(authority_of(player), player.id, request.form.get("warning", ""))
    return redirect(next_address(), 303)  # another page has the warning again
