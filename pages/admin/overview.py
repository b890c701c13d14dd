"""The first page of moderators and administrators: what waits for them, and the numbers."""

import functools

from flask import Blueprint, current_app, redirect
from markupsafe import Markup
from werkzeug.wrappers import Response

from identity.acts import applications
from identity.acts import checklist as checklist_acts
from identity.acts.actors import HALF_AN_HOUR
from identity.acts.reports import shown_to
from identity.acts.rights import may_administer
from identity.http.context import base_url, get_storage, mail_is_on
from identity.http.limits import letter_limit
from identity.messages.outbox import NotSent
from identity.site.advice import explain_loopback
from identity.site.statistics import read_numbers
from model.kind import DAY_MS, day_of
from model.kinds import REPORTS
from model.records import Client, User, now_ms
from model.words import Words, say
from pages.admin.checklist import first_steps
from pages.admin.desk import render_desk
from pages.admin.numbers import OTHERS_SHOWN, READ_AT_MOST, describe_numbers
from pages.kit.actors import authority_of, require_administrator, require_moderator
from pages.kit.forms import FormRefused, form_view, redirect_with_notice, refuse_problems
from pages.kit.paging import page_beside, place_in
from pages.kit.rendering import IN_ENGLISH

REPORTS_SHOWN = 50  # on one page
TESTS_AN_HOUR = 5  # test letters of an administrator
TEST_TIMEOUT = 8  # seconds: nginx waits 20 for the page, and a host may have two addresses
NO_EMAIL = say("Your account has no email. Add one on your account page, then come back.")

overview = Blueprint("overview", __name__)


@overview.get("/admin")
def show_overview() -> Response | str:
    """Show what waits: reports, oldest first, a page at a time, `after` or `before` one's id."""
    return overview_page(require_moderator(), {})


def overview_page(player: User, problems: dict[str, str]) -> Response | str:
    """Return the page; `problems` are those of its forms."""
    kept, is_administrator = get_storage().records(REPORTS), may_administer(player)
    places = [place_in(REPORTS, each) for each in ("before", "after")]
    page = page_beside(functools.partial(kept.page, "state", "open"), REPORTS_SHOWN, *places)
    is_first = not any(places)
    if not page.shown and not is_first:  # the last one there has been answered
        return redirect("/admin", 303)
    games = waiting_games() if is_first else []
    numbers = read_numbers(get_storage()) if is_first and is_administrator else None
    return render_desk(
        "admin/overview.html",
        player,
        rows=shown_to(get_storage(), player, page.shown),
        previous=page.previous,
        next=page.next,
        applications=applications.count_waiting(get_storage()) if is_first else 0,
        games=games[:OTHERS_SHOWN],
        more_games=len(games) > OTHERS_SHOWN,
        suspensions=ending_suspensions() if is_first else [],
        only_here=explain_loopback(base_url()) if is_administrator else [],
        steps=first_steps(get_storage(), current_app.config, numbers) if numbers else [],
        numbers=describe_numbers(numbers) if numbers else None,
        problems=problems,
    )


desk_form = form_view(lambda: (require_administrator(),), overview_page, stamped=True)


@overview.post("/admin/checklist/hide")
@desk_form
def hide_checklist(player: User) -> Response:
    checklist_acts.hide(authority_of(player))
    return redirect_with_notice(say("First steps hidden."), "/admin")


@overview.post("/admin/mail/test")
@desk_form
def send_test_letter(player: User) -> Response:
    """Send a letter to the administrator's own address, and say what the mail server responded."""
    if not mail_is_on():
        return redirect_with_notice(say("Nothing was sent: email is not set up."), "/admin")
    from identity.messages.mail import send_test  # not without mail

    refuse_problems(form=None if player.email else NO_EMAIL)
    attempts = get_storage().attempts
    try:
        with letter_limit.place({}):
            attempts.count("test letters", str(player.id), TESTS_AN_HOUR, HALF_AN_HOUR)
            send_test(get_storage(), current_app.config, player.email, timeout=TEST_TIMEOUT)
    except NotSent as error:
        raise FormRefused({"form": say_not_sent(error)}) from error
    notice = say(
        "The mail server accepted an email to %(email)s. Look in the spam folder, too.",
        email=player.email,
    )
    return redirect_with_notice(notice, "/admin")


def say_not_sent(error: NotSent) -> Words:
    """Return what the mail server responded, in English, and a link to what can be done."""
    return say(
        "The email was not sent. %(problem)s %(start)sWhat to check%(end)s",
        problem=IN_ENGLISH.format(error),
        start=Markup('<a href="/admin/docs/mail">'),
        end=Markup("</a>"),
    )


def waiting_games() -> list[Client]:
    """Return games that nobody has listed or declined, oldest first, one more than are shown."""
    found = get_storage().clients.page("queue", "waiting", at_most=READ_AT_MOST)
    return sorted(found, key=lambda client: client.created)[: OTHERS_SHOWN + 1]


def ending_suspensions() -> list[tuple[User, int]]:
    """Return the players whose suspensions end this week, the soonest first, and in how many days.

    Half of a suspension has to be over: a new one is no work that waits.
    """
    now, users = now_ms(), get_storage().users
    days = day_of(now), day_of(now + 7 * DAY_MS)
    found = users.between("suspended", *days, None, READ_AT_MOST, newest_first=False)
    ending = [
        u for u in found if u.suspended and now - u.suspension.since > u.suspension.until - now
    ]
    return [(u, (u.suspension.until - now) // DAY_MS) for u in ending[:OTHERS_SHOWN]]
