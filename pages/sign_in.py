"""The sign-in page, and signing out."""

from flask import Blueprint, redirect, request
from werkzeug.wrappers import Response

from identity.context import get_storage
from identity.passwords import verify_password_with_limits
from identity.sessions import end_session, local_address, signed_in_player, start_session
from pages import forms
from pages.rendering import render_guest_page

sign_in = Blueprint("sign_in", __name__)


@sign_in.get("/sign-in")
def show_sign_in() -> Response | tuple:
    """Show the sign-in form; `next` is where it leads."""
    leads_to = local_address(request.args.get("next", ""))
    return redirect(leads_to, 303) if signed_in_player() else sign_in_page(leads_to, {})


def sign_in_page(leads_to: str, problems: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the sign-in page, with the typed name, and its headers."""
    name, problem = request.form.get("name", "").strip(), problems.get("form")
    notice = forms.pop_notice()  # after sign-up, if no session could be started
    return render_guest_page("sign_in.html", leads_to, name=name, problem=problem, notice=notice)


@sign_in.post("/sign-in")
@forms.form_view(lambda: (local_address(request.form.get("next", "")),), sign_in_page)
def check_sign_in(leads_to: str) -> Response:
    """Sign in by `name` (or email) and `password`, then redirect to `next`."""
    name, password = request.form.get("name", "").strip(), request.form.get("password", "")
    user = get_storage().users.find_by_login(name)
    right = verify_password_with_limits(user.password_hash if user else "", password, name)
    if user is None or not right:
        raise forms.FormRefused({"form": "Wrong name or password."}, 403)
    if user.suspended:
        raise forms.FormRefused({"form": forms.describe_own_suspension(user.suspension)}, 403)
    if not start_session(user, password):
        raise forms.FormRefused({"form": forms.ACCOUNT_CHANGED}, 403)
    return redirect(leads_to, 303)


@sign_in.post("/sign-out")
def sign_out() -> Response:
    """End this session and redirect to `next`."""
    end_session()
    return redirect(local_address(request.form.get("next", "")), 303)
