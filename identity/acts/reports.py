"""Reports: players send them, and moderators answer.

Who is reported never learns by whom: a report about a moderator, or about a moderator's app, is
shown only to those who may answer it. Otherwise that moderator, or a colleague, could bury it.

The acts raise NotAllowed, NotFound, StorageFailed, InvalidField, TooManyAttempts.
"""

import secrets
from typing import NamedTuple

from identity.acts import accounts, applications
from identity.acts.actors import Authority
from identity.acts.rights import may_answer
from identity.messages.outbox import announce
from identity.site.formatting import DAY, format_date
from model.errors import InvalidField
from model.kind import DAY_MS, Kind
from model.kinds import CLIENTS, REPORTS, USERS, about
from model.records import MODERATOR, Client, User, now_ms
from model.rules import REPORT_REASONS, check_short_text, refuse
from model.site_records import Report
from model.words import say
from storage import Storage
from storage.repositories import Records

REPORTS_A_DAY = 10  # of one player
REPORT_DAYS = 365  # after that many a report is gone, and may come again
WAITING_COUNTED = 100  # reports, and games, at each page of a moderator


class AnsweredBefore(InvalidField):
    """Another moderator has answered this report."""

    field, problem = "form", say("Another moderator has just closed this report.")


class ShownReport(NamedTuple):
    """A report as moderators see it; None for a record that cannot be read."""

    report: Report
    subject: User | Client | None
    reporter: User | None
    moderator: User | None  # who answered it


def report(by: Authority, subject: User | Client, reason: str, text: str) -> None:
    """Report a player or a game to the moderators. Raises ReportedBefore.

    Only what is saved counts against REPORTS_A_DAY.
    """
    reporter_id, now = by.actor.id, now_ms()
    refuse("form", check_subject(reporter_id, subject))
    report_id = f"{now:015d}-{secrets.token_hex(4)}"
    # It ends with a day, because those of past days are removed: it frees its key as it ends.
    expires = (now // DAY_MS + REPORT_DAYS + 1) * DAY_MS - 1
    new = Report(report_id, reporter_id, about(subject), reason, text, now, expires)
    with by.store.records(REPORTS).adding(new):
        by.require(lambda player, _: True)  # one who is not suspended
        records = by.store.users if isinstance(subject, User) else by.store.clients
        records.read(subject.id)  # raises NotFound for one who has just left
        by.store.attempts.count("report by", str(reporter_id), REPORTS_A_DAY, DAY)
    if concerns_a_player(by.store, subject):
        reason = REPORT_REASONS[reason]
        words = say("%(name)s was reported: %(reason)s.", name=subject.name, reason=reason)
        announce(by.store, "report", words, f"/admin/reports/{report_id}")


def answer(by: Authority, report_id: str, text: str) -> None:
    """Close a report with a text for moderators, which may be empty. Raises AnsweredBefore."""
    with by.store.records(REPORTS).edit(report_id) as report:
        _require_open(by, report, text)
        # Without the player: whose export has this line would learn of the report.
        by.audit("report answer", report=report_id)
        report.answer, report.answered_by, report.answered = text, by.actor.id, now_ms()
    if report.by != by.actor.id:  # who reported learns that, but not what was done
        read = say(
            "A moderator has read your report of %(date)s and made a decision. Thank you for "
            "telling us.",
            date=format_date(report.created),
        )
        by.notify(report.by, read, "report")


def suspend_and_close(
    by: Authority, report_id: str, text: str, **suspension: str | int | bool | None
) -> None:
    """Suspend the player whom a report is about, unless it was answered before, then answer it.

    `suspension` has arguments of `accounts.suspend`. The actor needs the rights of both acts.
    """
    report = by.store.records(REPORTS).read(report_id)
    _require_open(by, report, text)
    accounts.suspend(by, int(report.about.removeprefix("user:")), **suspension)
    answer(by, report_id, text)


def _require_open(by: Authority, report: Report, text: str) -> None:
    """Raise unless the actor may close the report with this text."""
    refuse("answer", check_short_text(text))
    by.require(lambda player, _: bool(shown_to(by.store, player, [report])))
    if report.answer is not None:
        raise AnsweredBefore


def check_subject(player_id: int, subject: User | Client) -> str | None:
    """Return what is wrong if players report themselves or their own app, else None."""
    concerned = subject.id if isinstance(subject, User) else subject.owner_id
    return say("You can't report yourself or your own app.") if concerned == player_id else None


def concerns_a_player(store: Storage, subject: User | Client) -> bool:
    """Return True unless the report concerns a moderator: then every moderator may read it."""
    is_user = isinstance(subject, User)
    concerned = subject if is_user else store.users.find(subject.owner_id or 0)
    return concerned is None or concerned.mod_level < MODERATOR


def find_report(store: Storage, player: User, subject: User | Client) -> Report | None:
    """Return the player's report of this subject, None if there is none."""
    return store.records(REPORTS).find_by("thing", f"{player.id} {about(subject)}")


def shown_to(store: Storage, player: User, reports: list[Report]) -> list[ShownReport]:
    """Return those of the reports that the player may read and answer, as a moderator."""

    def read(records: Records, ids: list[int | str | None]) -> dict:
        """Return the records that can be read, by their ids."""
        known = {each for each in ids if each is not None}
        return {each.id: each for each in records.read_from_many(list(known))}

    def subject_ids(kind: Kind, index: str) -> list[int | str | None]:
        """Return what each report is about: the id if that is of this kind, else None."""
        return [kind.parse_id(REPORTS.key(index).of(each) or "") for each in reports]

    clients = read(store.clients, subject_ids(CLIENTS, "client"))
    ids = subject_ids(USERS, "user") + [each.owner_id for each in clients.values()]
    users = read(store.users, ids + [n for each in reports for n in (each.by, each.answered_by)])
    subjects = {about(each): each for each in (*users.values(), *clients.values())}
    shown = []
    for each in reports:
        subject = subjects.get(each.about)
        concerned = users.get(subject.owner_id) if isinstance(subject, Client) else subject
        if may_answer(store, player, subject, concerned):
            people = users.get(each.by), users.get(each.answered_by)
            shown.append(ShownReport(each, subject, *people))
    return shown


def count_waiting(store: Storage, player: User) -> int:
    """Return how many reports the player may answer, and how many games and applications wait.

    Of reports and games, WAITING_COUNTED at most are looked at.
    """
    if player.mod_level < MODERATOR:
        return 0
    reports = store.records(REPORTS).page("state", "open", at_most=WAITING_COUNTED)
    games = store.clients.count("queue", "waiting", WAITING_COUNTED)
    return len(shown_to(store, player, reports)) + games + applications.count_waiting(store)
