"""Reports: the form with which players report a profile or a game, and the page of one report."""

from flask import Blueprint, abort, request
from werkzeug.wrappers import Response

from identity.access.sessions import redirect_to_sign_in, signed_in_player
from identity.acts.reports import REPORTS_A_DAY, ReportActs, check_subject, find_report, shown_to
from identity.http.context import get_storage
from identity.site.formatting import HOUR, pluralize
from model.errors import TooManyAttempts
from model.kinds import REPORTS, about
from model.records import Client, User
from model.texts import drop_hidden
from pages.admin.desk import render_desk
from pages.community.games import find_game
from pages.community.moderation import actor_of, require_moderator
from pages.community.players import read_shown_user
from pages.kit.forms import FormRefused, form_view, redirect_with_notice
from pages.kit.rendering import render_page

OTHERS_SHOWN = 10  # newest reports about the same player or app

reports = Blueprint("reports", __name__)


def acts_of(player: User) -> ReportActs:
    """Return what the signed-in player may do to reports, from the address of this request."""
    return ReportActs(get_storage(), actor_of(player))


def address_of(subject: str) -> str:
    """Return the path of the profile or the game that `about` names."""
    return subject.replace("user:", "/users/").replace("client:", "/games/")


# -- the form -----------------------------------------------------------------------------------


def find_subject(user_id: str = "", client_id: str = "") -> tuple[User, User | Client]:
    """Return the signed-in player, and the player or the game of this address.

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
    return render_page("report.html", player, **shown, typed=request.form)


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
        acts_of(player).report(subject, request.form.get("reason", ""), text)
    except TooManyAttempts as error:
        wait = pluralize(-(-error.retry_after // HOUR), "hour")
        problem = f"You can send {REPORTS_A_DAY} reports a day. Try again in {wait}."
        raise FormRefused({"form": problem}, 429, error.retry_after) from error
    notice = "Report sent. A moderator will read it."
    return redirect_with_notice(notice, address_of(about(subject)))


# -- for moderators -----------------------------------------------------------------------------


def report_page(player: User, report_id: str, problems: dict[str, str]) -> str:
    """Return the page of one report, with the newest others about the same subject."""
    store, kept = get_storage(), get_storage().records(REPORTS)
    [shown] = shown_to(store, player, [kept.read(report_id)]) or abort(404)
    subject_id = shown.report.about.partition(":")[2]
    index = "client" if isinstance(shown.subject, Client) else "user"
    newest = kept.page(index, subject_id, at_most=OTHERS_SHOWN + 1, newest_first=True)
    others = [each for each in newest if each.id != report_id][:OTHERS_SHOWN]
    values = {"shown": shown, "others": shown_to(store, player, others), "problems": problems}
    values["address"] = address_of(shown.report.about) if shown.subject else ""
    return render_desk("admin_report.html", player, **values, typed=request.form.get("answer", ""))


@reports.get("/admin/reports/<report_id>")
def show_report(report_id: str) -> str:
    return report_page(require_moderator(), report_id, {})


@reports.post("/admin/reports/<report_id>")
@form_view(lambda report_id: (require_moderator(), report_id), report_page, stamped=True)
def answer_report(player: User, report_id: str) -> Response:
    """Close the report, with an `answer` for other moderators."""
    acts_of(player).answer(report_id, request.form.get("answer", "").strip())
    return redirect_with_notice("Report closed.", "/admin")
