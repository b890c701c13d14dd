"""The sign-in page, and signing out."""

import functools
from collections.abc import Callable, Sequence

from flask import Blueprint, current_app, g, redirect, request, session
from werkzeug.wrappers import Response

from identity.access.passwords import verify_password_with_limits
from identity.access.sessions import BROWSER, first_to_terms, next_address, signed_in_player
from identity.access.signing_in import (
    CODE_AMR,
    PASSWORD_AMR,
    end_session,
    require_allowed_network,
    start_application_session,
    start_session,
)
from identity.acts.applications import find_by_login, say_declined
from identity.acts.recovery_codes import is_recovery_code
from identity.acts.upkeep import is_unused
from identity.http.context import get_storage, mail_is_on
from identity.oauth.reauthentication import find_login_hint, find_reauthentication
from identity.site.formatting import format_date
from identity.site.pasted import unwrap
from model.door_records import Application
from model.kind import DAY_MS
from model.records import User
from model.words import dump_words, say
from pages.community.games import find_game_beside
from pages.kit import forms
from pages.kit.passkeys import own_rp_id
from pages.kit.rendering import render_guest_page

UNCONFIRMED = say(
    "Confirm your email, on the page Security of your account: with it you get a new password if "
    "you lose yours."
)
ENDS = say(
    "Confirm your email, on the page Security of your account: unless you do or play, the account "
    "ends after %(date)s."
)
WRONG = say("Wrong name or password.")

sign_in = Blueprint("sign_in", __name__)


@sign_in.get("/sign-in")
def show_sign_in() -> Response | tuple:
    """Show the sign-in form; `next` is where it leads."""
    leads_to = next_address()
    if signed_in_player() and is_enough(leads_to):
        return redirect(leads_to, 303)
    if "must_agree" in g:
        return redirect(first_to_terms(leads_to), 303)
    return sign_in_page(leads_to, {})


def is_enough(leads_to: str) -> bool:
    """Return False if the app at this address asks the player of this session to sign in again."""
    asked = find_reauthentication(leads_to)
    return asked is None or asked.session_id != session.get("id")


def sign_in_page(leads_to: str, problems: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the sign-in page, with the typed name, and its headers."""
    name, problem = request.form.get("name", "").strip(), problems.get("form")
    notice = forms.pop_notice()  # after signing out, or a sign-up that could start no session
    only = find_only_player(leads_to)
    shown = {"name": only.name if only else name or find_login_hint(leads_to), "only": only}
    shown["beside"] = find_game_beside(leads_to)
    shown["passkeys"] = own_rp_id() is not None
    return render_guest_page(
        "entry/sign_in.html", leads_to, shown["passkeys"], **shown, problem=problem, notice=notice
    )


def find_only_player(leads_to: str) -> User | None:
    """Return the player whom an app asks to sign in again; None if anyone may, or if deleted."""
    asked = find_reauthentication(leads_to)
    return get_storage().users.find(asked.user_id) if asked and asked.user_id else None


@sign_in.post("/sign-in")
@forms.form_view(lambda: (next_address(),), sign_in_page)
def check_sign_in(leads_to: str) -> Response:
    """Sign in by `name` (or email) and `password`, then redirect to `next`."""
    forms.require_cookie()
    name, password = request.form.get("name", "").strip(), request.form.get("password", "")
    users = get_storage().users
    user = users.find_by_login(name)
    if user is None:  # an email from before today's rule may end like something pasted
        user = users.find_by_login(name := unwrap(name))
    names = [name]
    former = None if user else users.former_names.find_kept(name)
    if former and (user := users.find(former.user_id)):
        names.append(user.name)  # an old name allows no more attempts than the new one
    applied = None if user else find_by_login(get_storage(), name)
    is_code = user is not None and is_recovery_code(get_storage(), user.id, password)
    kept_hash = getattr(user or applied, "password_hash", "")
    right = verify_password_with_limits(kept_hash, password, *names, is_code=is_code)
    if applied and right is not None:
        return show_own_application(applied)
    if user is None or right is None:
        raise forms.FormRefused({"form": WRONG}, 403)
    if is_code:  # of which no hash is stored as a password's
        use_up = functools.partial(forms.use_recovery_code, user, password)
        complete_sign_in(user, leads_to, None, use_up, CODE_AMR)
    else:
        complete_sign_in(user, leads_to, right)
    if former:
        renamed = say(
            "You are called %(name)s now. Sign in with that name. Your old name stays yours until "
            "%(date)s.",
            name=user.name,
            date=format_date(former.expires),
        )
        session["renamed"] = dump_words(renamed)
    return redirect(first_to_terms(leads_to), 303)


def show_own_application(application: Application) -> Response:
    """Lead to the page of an application that waits. Raises FormRefused for a declined one."""
    if application.declined:
        raise forms.FormRefused({"form": say_declined(application.reason)}, 403)
    start_application_session(application)
    return redirect("/application", 303)


def complete_sign_in(
    user: User,
    leads_to: str,
    password: str | None,
    use_up: Callable[[], bool] = lambda: True,
    amr: Sequence[str] = PASSWORD_AMR,
) -> None:
    """Start a session for a user who proved who they are.

    `password` is the right one in the form that is hashed, None if none was typed; `amr` says what
    the proof was (RFC 8176). `use_up` is called after the other checks, and returns False if the
    proof was good once and is used: that is refused. Raises FormRefused also for another player
    than an app asks for, a suspended one, and an account that has just changed; NotAllowed for one
    that a ban of a network hits.
    """
    only = find_only_player(leads_to)
    if only and only.id != user.id:
        problem = say("The app asks for %(name)s. Sign in as %(name)s.", name=only.name)
        raise forms.FormRefused({"form": problem}, 403)
    if user.suspended:
        raise forms.FormRefused({"form": forms.describe_own_suspension(user.suspension)}, 403)
    require_allowed_network(user)
    if not use_up():
        raise forms.FormRefused({"form": WRONG}, 403)
    if only and session.get("user") != user.id:
        browser = session[BROWSER]
        end_session()  # of the other player in this browser
        session[BROWSER] = browser  # which the app has asked
    # An app that always asks for the password must not push out the sessions of other browsers.
    replaced = session.get("id") if only else None
    if not start_session(user, password, replaced=replaced, amr=amr):
        raise forms.FormRefused({"form": forms.ACCOUNT_CHANGED}, 403)
    if mail_is_on() and user.email and not user.email_verified:
        end = user.created + current_app.config["UNCONFIRMED_DAYS"] * DAY_MS
        is_ending = is_unused(get_storage(), user)
        session["unconfirmed"] = dump_words(
            ENDS.fill(date=format_date(end)) if is_ending else UNCONFIRMED
        )


@sign_in.post("/sign-out")
def sign_out() -> Response:
    """End this session and redirect to `next`, where the page says so."""
    end_session()
    return forms.redirect_with_notice(say("You are signed out."), next_address())
