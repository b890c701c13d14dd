"""The page of one report, for moderators."""

from flask import Blueprint, abort, request
from werkzeug.wrappers import Response

from identity.acts import reports as report_acts
from identity.acts.naming import name_owner
from identity.acts.reports import shown_to
from identity.acts.rights import may_moderate
from identity.http.context import get_storage
from model.kinds import REPORTS
from model.records import Client, User
from model.words import say
from pages.admin.desk import render_desk
from pages.community.moderation import read_suspension
from pages.community.moderation_card import lengths_offered
from pages.community.players import read_shown_user
from pages.community.reports import address_of
from pages.kit.actors import authority_of, require_moderator
from pages.kit.forms import form_view, redirect_with_notice

OTHERS_SHOWN = 10  # newest reports about the same player or app

admin_reports = Blueprint("admin_reports", __name__)


def report_page(player: User, report_id: str, problems: dict[str, str]) -> str:
    """Return the page of a report, with the newest others about its subject. Raises NotFound."""
    store, kept = get_storage(), get_storage().records(REPORTS)
    [shown] = shown_to(store, player, [kept.read(report_id)]) or abort(404)
    subject_id = shown.report.about.partition(":")[2]
    index = "client" if isinstance(shown.subject, Client) else "user"
    newest = kept.page(index, subject_id, at_most=OTHERS_SHOWN + 1, newest_first=True)
    others = [each for each in newest if each.id != report_id][:OTHERS_SHOWN]
    values = {"shown": shown, "others": shown_to(store, player, others), "problems": problems}
    values["address"] = address_of(shown.report.about) if shown.subject else ""
    if isinstance(shown.subject, Client):
        values["owner"] = name_owner(store, shown.subject)
    elif shown.subject and may_moderate(player, shown.subject) and not shown.subject.suspended:
        values["lengths"] = lengths_offered(None)
    return render_desk("admin/report.html", player, **values, typed=request.form)


@admin_reports.get("/admin/reports/<report_id>")
def show_report(report_id: str) -> str:
    return report_page(require_moderator(), report_id, {})


@admin_reports.post("/admin/reports/<report_id>")
@form_view(lambda report_id: (require_moderator(), report_id), report_page, stamped=True)
def answer_report(player: User, report_id: str) -> Response:
    """Close the report, with an `answer` for other moderators.

    With a `length`, and a `reason`, its player is suspended before.
    """
    by, text = authority_of(player), request.form.get("answer", "").strip()
    if "length" not in request.form:
        report_acts.answer(by, report_id, text)
        return redirect_with_notice(say("Report closed."), "/admin")
    report = get_storage().records(REPORTS).read(report_id)
    user = read_shown_user(report.about.removeprefix("user:"))
    report_acts.suspend_and_close(by, report_id, text, **read_suspension(user))
    return redirect_with_notice(say("Player suspended, report closed."), "/admin")
