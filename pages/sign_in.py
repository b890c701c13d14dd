"""The sign-in page, and signing out."""

from flask import Blueprint, redirect, request
from werkzeug.wrappers import Response

from identity.passwords import find_by_password
from identity.sessions import end_session, local_address, signed_in_player, start_session
from pages.forms import ACCOUNT_CHANGED, SUSPENDED, FormRefused, as_form_errors, pop_notice
from pages.rendering import render_guest_page

sign_in = Blueprint("sign_in", __name__)


@sign_in.get("/sign-in")
def show_sign_in() -> Response | tuple:
    """Show the sign-in form; `next` is where it leads."""
    leads_to = local_address(request.args.get("next", ""))
    if signed_in_player():
        return redirect(leads_to, 303)
    notice = pop_notice()  # after sign-up, if no session could be started
    return render_guest_page("sign_in.html", leads_to, name="", problem=None, notice=notice)


@sign_in.post("/sign-in")
def check_sign_in() -> Response | tuple:
    """Sign in by `name` (or email) and `password`, then go on to `next`."""
    name = request.form.get("name", "").strip()
    password = request.form.get("password", "")
    leads_to = local_address(request.form.get("next", ""))
    try:
        with as_form_errors():
            sign_in_player(name, password)
    except FormRefused as error:
        problem = error.problems["form"]
        page, headers = render_guest_page("sign_in.html", leads_to, name=name, problem=problem)
        return page, error.status, headers | error.headers
    return redirect(leads_to, 303)


def sign_in_player(name: str, password: str) -> None:
    """Start a session. Raises FormRefused, TooManyAttempts, Busy, StorageFailed."""
    user = find_by_password(name, password)
    if user is None:
        raise FormRefused({"form": "Wrong name or password."}, 403)
    if user.suspended:
        raise FormRefused({"form": SUSPENDED}, 403)
    if not start_session(user, password):
        raise FormRefused({"form": ACCOUNT_CHANGED}, 403)


@sign_in.post("/sign-out")
def sign_out() -> Response:
    """End this session and go on to `next`."""
    end_session()
    return redirect(local_address(request.form.get("next", "")), 303)
