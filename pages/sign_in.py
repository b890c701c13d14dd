"""The sign-in page, and signing out."""

from flask import Blueprint, redirect, request, session
from werkzeug.wrappers import Response

from identity.passwords import (
    PASSWORD_REFUSED,
    Busy,
    describe_refusal,
    describe_unavailability,
    find_by_password,
)
from identity.sessions import end_session, local_address, signed_in_player, start_session
from pages.rendering import render_guest_page
from storage import StorageFailed

sign_in = Blueprint("sign_in", __name__)


@sign_in.get("/sign-in")
def show_sign_in() -> Response | tuple:
    """Show the sign-in form; `next` is where it leads."""
    leads_to = local_address(request.args.get("next", ""))
    if signed_in_player():
        return redirect(leads_to, 303)
    done = session.pop("done", None)  # an account, which could not be signed in
    return render_guest_page("sign_in.html", leads_to, name="", problem=None, done=done)


@sign_in.post("/sign-in")
def check_sign_in() -> Response | tuple:
    """Sign in by `name` (or email) and `password`, then go on to `next`."""
    name = request.form.get("name", "").strip()
    password = request.form.get("password", "")
    try:
        user = find_by_password(name, password)
    except PASSWORD_REFUSED as error:
        return _sign_in_again(name, *describe_refusal(error))
    if user is None:
        return _sign_in_again(name, "That name and password do not fit together.")
    if user.suspended:
        return _sign_in_again(name, "This account is suspended. Ask the people who run this site.")
    try:
        unchanged = start_session(user, password)
    except (Busy, StorageFailed) as error:
        return _sign_in_again(name, *describe_unavailability(error))
    if not unchanged:
        return _sign_in_again(name, "This account was changed just now. Try again.")
    return redirect(local_address(request.form.get("next", "")), 303)


def _sign_in_again(
    name: str, problem: str, status: int = 403, headers: dict[str, str] | None = None
) -> tuple:
    leads_to = local_address(request.form.get("next", ""))
    page, page_headers = render_guest_page("sign_in.html", leads_to, name=name, problem=problem)
    return page, status, page_headers | (headers or {})


@sign_in.post("/sign-out")
def sign_out() -> Response:
    """End this session and go on to `next`."""
    end_session()
    return redirect(local_address(request.form.get("next", "")), 303)
