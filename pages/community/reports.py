"""The form with which players report a profile or a game."""

from flask import Blueprint, abort, request
from werkzeug.wrappers import Response

from identity.access.sessions import redirect_to_sign_in, signed_in_player
from identity.acts import reports as report_acts
from identity.acts.reports import REPORTS_A_DAY, check_subject, find_report
from identity.http.context import get_storage
from identity.site.formatting import HOUR
from model.errors import TooManyAttempts
from model.kinds import about
from model.records import Client, User
from model.texts import drop_hidden
from model.words import say, say_number
from pages.community.games import find_game
from pages.community.players import read_shown_user
from pages.kit.actors import authority_of
from pages.kit.forms import FormRefused, form_view, redirect_with_notice
from pages.kit.rendering import render_page

reports = Blueprint("reports", __name__)


def address_of(subject: str) -> str:
    """Return the path of the profile or game of a report: "user:7" is at "/users/7"."""
    return subject.replace("user:", "/users/").replace("client:", "/games/")


def find_subject(user_id: str = "", client_id: str = "") -> tuple[User, User | Client]:
    """Return the signed-in player, and the player or the game whose id is in the address.

    A guest is redirected to sign in, and comes back to the form. Raises NotFound.
    """
    player = signed_in_player() or abort(redirect_to_sign_in(request.path))
    return player, read_shown_user(user_id) if user_id else find_game(client_id) or abort(404)


def form_page(player: User, subject: User | Client, problems: dict[str, str]) -> str:
    """Return the form, or when the player reported this before, or that nobody reports this."""
    earlier = find_report(get_storage(), player, subject)
    shown = {"subject": subject, "address": address_of(about(subject)), "earlier": earlier}
    shown["refusal"] = check_subject(player.id, subject)
    shown["problems"] = {} if earlier else problems
    return render_page("community/report.html", player, **shown, typed=request.form)


@reports.get("/users/<user_id>/report")
@reports.get("/games/<client_id>/report")
def show_form(**parts: str) -> str:
    return form_page(*find_subject(**parts), {})


@reports.post("/users/<user_id>/report")
@reports.post("/games/<client_id>/report")
@form_view(find_subject, form_page, stamped=True)
def send_report(player: User, subject: User | Client) -> Response:
    """Report the player or the game, for a `reason` of REPORT_REASONS, with a `text`."""
    # A pasted invisible character is dropped: the report counts.
    text = drop_hidden(request.form.get("text", "").replace("\r\n", "\n").strip())
    try:
        report_acts.report(authority_of(player), subject, request.form.get("reason", ""), text)
    except TooManyAttempts as error:
        problem = say_number(
            "You can send %(most)s reports a day. Try again in %(number)s hour.",
            "You can send %(most)s reports a day. Try again in %(number)s hours.",
            -(-error.retry_after // HOUR),
            most=REPORTS_A_DAY,
        )
        raise FormRefused({"form": problem}, 429, error.retry_after) from error
    notice = say("Report sent. A moderator will read it.")
    return redirect_with_notice(notice, address_of(about(subject)))
