"""The page of an application: what was sent, as long as a moderator has not decided on it."""

from flask import Blueprint, abort, redirect, request, session
from werkzeug.wrappers import Response

from identity.access.sessions import find_application, redirect_to_sign_in, signed_in_player
from identity.acts import applications
from identity.acts.actors import HALF_AN_HOUR
from identity.http.context import get_storage, mail_is_on
from identity.site.pasted import unwrap
from model.addresses import normal_email
from model.door_records import Application
from model.names import normal_name
from model.rules import check_application
from model.words import say
from pages.entry.recovery import ask_again, require_mail
from pages.kit import forms
from pages.kit.rendering import render_page

CHANGES_AN_HOUR = 20  # of an application: an answer tells which names are taken

application = Blueprint("application", __name__)


def read_own() -> tuple[Application | None]:
    """Return the application of this session, None if it is gone. Others are led elsewhere."""
    if signed_in_player():
        abort(redirect("/", 303))
    if "application" not in session:
        abort(redirect_to_sign_in("/application"))
    return (find_application(),)


@application.get("/application")
def show_application() -> str:
    return application_page(*read_own(), {})


def application_page(found: Application | None, problems: dict[str, str]) -> str:
    """Return the page of an application, or what became of it."""
    waits = found is not None and not found.declined
    return render_page(
        "entry/application.html",
        None,
        application=found if waits else None,
        refusal=applications.say_declined(found.reason) if found and not waits else None,
        typed=request.form if "name" in request.form else found,
        mail=mail_is_on(),
        notice=forms.pop_notice(),
        problems=problems,
    )


@application.post("/application")
@forms.form_view(read_own, application_page, stamped=True)
def change_application(found: Application | None) -> Response:
    """Change `name`, `email` and `text`; or `act`: "delete", or "email" the letter once more."""
    act, store, form = request.form.get("act"), get_storage(), request.form
    if found is None or found.declined:
        return redirect("/application", 303)
    if act == "email":
        require_mail()
        return forms.redirect_with_notice(ask_again(found), "/application")
    if act == "delete":
        with applications.editing(store, found.id, deletes=True):
            session.pop("application")
        return forms.redirect_with_notice(say("Your request is deleted."), "/sign-in")
    name = normal_name(form.get("name", ""))
    email, text = normal_email(unwrap(form.get("email", ""))), form.get("text", "").strip()
    forms.refuse_problems(
        name=forms.check_player_name(name),
        email=forms.check_new_email(email),
        text=check_application(text),
    )
    store.attempts.count("application", found.id, CHANGES_AN_HOUR, HALF_AN_HOUR)
    if email and email != found.email:
        forms.require_unused_email(email, None)
    applications.rewrite(store, found.id, name, email, text)
    return forms.redirect_with_notice(say("Saved."), "/application")
