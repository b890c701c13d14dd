"""The first page of moderators and administrators: what waits for them, and the numbers."""

import functools
import itertools

from flask import Blueprint, current_app, redirect
from markupsafe import Markup
from werkzeug.wrappers import Response

from identity.acts.actors import HALF_AN_HOUR
from identity.acts.reports import shown_to
from identity.acts.rights import may_administer
from identity.http.context import base_url, get_storage, mail_is_on
from identity.http.proxies import check_networks, check_proxies
from identity.messages.outbox import CHAT, MAIL, NotSent, count_messages
from identity.site.advice import Advice, check_installation, explain_loopback
from identity.site.clock import check_clock
from identity.site.formatting import format_age
from identity.site.statistics import Numbers, read_numbers
from model.kind import DAY_MS, day_of
from model.kinds import OUTBOX, REPORTS, given_up_of, waiting_queues
from model.records import Client, User, now_ms
from pages.admin.checklist import hide_steps, open_steps
from pages.admin.desk import render_desk
from pages.kit.actors import require_administrator, require_moderator
from pages.kit.forms import FormRefused, form_view, redirect_with_notice, refuse_problems
from pages.kit.paging import page_beside, place_in

REPORTS_SHOWN = 50  # on one page
OTHERS_SHOWN = 20  # games, and suspensions
READ_AT_MOST = 200  # of each: some have ended, and ids of games have no order
TESTS_AN_HOUR = 5  # test letters of an administrator
TEST_TIMEOUT = 8  # seconds: nginx waits 20 for the page, and a host may have two addresses
NOT_SENT = Markup('The letter was not sent. {} <a href="/admin/docs/mail">What to check</a>')
NO_EMAIL = "Your account has no email. Add one on your account page, then come back."

overview = Blueprint("overview", __name__)


@overview.get("/admin")
def show_overview() -> Response | str:
    """Show what waits: reports, oldest first, a page at a time, `after` or `before` one's id."""
    return overview_page(require_moderator(), {})


def overview_page(player: User, problems: dict[str, str]) -> Response | str:
    """Return the page; `problems` are those of its forms."""
    kept, is_boss = get_storage().records(REPORTS), may_administer(player)
    places = [place_in(REPORTS, each) for each in ("before", "after")]
    page = page_beside(functools.partial(kept.page, "state", "open"), REPORTS_SHOWN, *places)
    is_first = not any(places)
    if not page.shown and not is_first:  # the last one there has been answered
        return redirect("/admin", 303)
    games = waiting_games() if is_first else []
    numbers = read_numbers(get_storage()) if is_first and is_boss else None
    return render_desk(
        "admin/overview.html",
        player,
        rows=shown_to(get_storage(), player, page.shown),
        previous=page.previous,
        next=page.next,
        games=games[:OTHERS_SHOWN],
        more_games=len(games) > OTHERS_SHOWN,
        suspensions=ending_suspensions() if is_first else [],
        only_here=explain_loopback(base_url()) if is_boss else [],
        steps=open_steps(get_storage(), current_app.config, numbers) if numbers else [],
        numbers=describe_numbers(numbers) if numbers else None,
        problems=problems,
    )


desk_form = form_view(lambda: (require_administrator(),), overview_page, stamped=True)


@overview.post("/admin/checklist/hide")
@desk_form
def hide_checklist(player: User) -> Response:
    hide_steps(get_storage())
    return redirect_with_notice("First steps hidden.", "/admin")


@overview.post("/admin/mail/test")
@desk_form
def send_test_letter(player: User) -> Response:
    """Send a letter to the administrator's own address, and say what the mail server responded."""
    if not mail_is_on():
        return redirect_with_notice("Nothing was sent: email is not set up.", "/admin")
    from identity.messages.mail import send_test  # not without mail

    refuse_problems(form=None if player.email else NO_EMAIL)
    get_storage().attempts.count("test letters", str(player.id), TESTS_AN_HOUR, HALF_AN_HOUR)
    try:
        send_test(current_app.config, player.email, timeout=TEST_TIMEOUT)
    except (NotSent, ValueError) as error:
        raise FormRefused({"form": NOT_SENT.format(error)}, 502) from error
    notice = f"The mail server took a letter to {player.email}. Not there? Look for it as spam."
    return redirect_with_notice(notice, "/admin")


def waiting_games() -> list[Client]:
    """Return games that nobody has listed or declined, oldest first, one more than are shown."""
    found = get_storage().clients.page("queue", "waiting", at_most=READ_AT_MOST)
    return sorted(found, key=lambda client: client.created)[: OTHERS_SHOWN + 1]


def ending_suspensions() -> list[tuple[User, str]]:
    """Return the players whose suspensions end this week, the soonest first, and in how long."""
    now, users = now_ms(), get_storage().users
    days = day_of(now), day_of(now + 7 * DAY_MS)
    found = users.between("suspended", *days, None, READ_AT_MOST, newest_first=False)
    ending = [each for each in found if each.suspended]
    return [(u, format_wait(u.suspension.until - now)) for u in ending[:OTHERS_SHOWN]]


def format_wait(milliseconds: int) -> str:
    """Return when something ends: "within a day", "tomorrow", "in 3 days"."""
    days = milliseconds // DAY_MS
    return ("within a day", "tomorrow")[days] if days < 2 else f"in {days} days"


def describe_numbers(numbers: Numbers) -> dict:
    """Return the numbers that are shown, by their words, and the warnings and failures."""
    shown = {
        "players": f"{numbers.players:,}",
        "played in the last day": f"{numbers.active_day:,}",
        "played in the last week": f"{numbers.active_week:,}",
        "new this week": f"{numbers.new_week:,}",
        "games listed": f"{numbers.games:,}",
    }
    if numbers.free_space is not None:
        shown["free space"] = f"{numbers.free_space / 10**9:.1f} GB"
    letters = describe_letters() if mail_is_on() else None
    if letters:
        shown["emails waiting"] = f"{letters['waiting']:,}"
    if numbers.backup.time:
        shown["last backup"] = format_age(numbers.backup.time)
    return {
        "shown": shown,
        "backup_warning": warning_of_backup(numbers),
        "advice": [(f"{each.problem}.", f"{each.fix}.") for each in advice_of_site()],
        "letters": letters,
        "given_up": get_storage().records(OUTBOX).count("queue", given_up_of(CHAT), OTHERS_SHOWN),
    }


def describe_letters() -> dict:
    """Return how many letters wait, the `problem` that stops all or "", and those given up."""
    outbox = get_storage().records(OUTBOX)
    oldest = (outbox.page("queue", each, None, READ_AT_MOST) for each in waiting_queues(MAIL))
    waiting = itertools.chain(*oldest)  # some only wait for their turn
    return {
        "waiting": count_messages(get_storage(), MAIL),
        # A problem that is no failure of the letter itself.
        "problem": next((each.problem for each in waiting if each.problem and not each.tries), ""),
        "given_up": outbox.page("queue", given_up_of(MAIL), None, OTHERS_SHOWN, newest_first=True),
    }


def warning_of_backup(numbers: Numbers) -> str | None:
    """Return what is wrong with the backups, None if the last one is new and did not fail."""
    if numbers.backup.problem:
        return f"the last backup failed. {numbers.backup.problem}"
    if not numbers.backup.time:
        return "there is no backup yet."
    return "the last backup is more than two days old." if numbers.backup_is_old else None


def advice_of_site() -> list[Advice]:
    """Return the warnings of the command `settings`, except on --bind, passkey hosts and emails."""
    store, config = get_storage(), current_app.config
    return [
        *check_installation(config),
        *check_proxies(store, config["PROXIES"]),
        *check_networks(store, config["BASE_URL"]),
        *check_clock(store),
    ]
