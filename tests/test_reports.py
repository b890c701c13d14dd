"""Reports of players and games: `identity.acts.reports` and `pages.community.reports`."""

import contextlib
import dataclasses
import functools
import json

import pytest
from conftest import PASSWORD, on_each_backend
from forms import edit, parse, problems_of, race

from identity.access.passwords import hash_password
from identity.acts import accounts, reports
from identity.acts.actors import Actor, Authority, NotAllowed
from identity.acts.reports import REPORTS_A_DAY, AnsweredBefore, count_waiting, shown_to
from model.errors import InvalidField, NotFound, ReportedBefore, StorageFailed, TooManyAttempts
from model.kind import DAY_MS
from model.kinds import REPORTS, about
from model.records import ADMINISTRATOR, MODERATOR, Client, Suspension, User, now_ms
from model.rules import REPORT_REASONS
from model.site_records import Report
from pages.admin.overview import REPORTS_SHOWN
from pages.admin.reports import OTHERS_SHOWN
from pages.kit.proof import PROOF_AGE

GAME = "https://game.example/"
LONG_NAME = "Donaudampfschifffahrtskapitaen"
FORGED_IDS = (
    *("0", "x", "%00", "..", "9" * 24, "0" * 15 + "-0000000g", "0" * 15 + "-00000000"),
    *("٣" * 15 + "-00000000", "0" * 15 + "-00000000%0A", "a" * 5000),
)


@pytest.fixture
def add(storage, new_process):
    """A function that adds a player to a storage, who can sign in."""

    def add(name: str, mod_level: int = 0, store=storage) -> User:
        email = f"{name.lower().replace(' ', '')}@example.org"
        return store.users.register(name, email, hash_password(PASSWORD), mod_level)

    return add


@pytest.fixture
def join(store, add):
    return functools.partial(add, store=store)


@pytest.fixture
def game(store) -> Client:
    return store.clients.register("Space Game", [], None, game_url=GAME, declined=True)[0]


def by(player: User, store) -> Authority:
    return Authority(store, Actor(player.id))


def report(
    store, reporter: User, subject: User | Client, reason: str = "spam", text: str = ""
) -> Report:
    """Report a subject as this player; return the record."""
    reports.report(by(reporter, store), subject, reason, text)
    return reports.find_report(store, reporter, subject)


def all_reports(store) -> list[Report]:
    return [store.records(REPORTS).read(each) for each in store.records(REPORTS).ids()]


def send(browser, subject: User | Client, **fields: str):
    folder = "users" if isinstance(subject, User) else "games"
    form = {"reason": "spam", "text": "Everywhere."} | fields
    return browser.post(f"/{folder}/{subject.id}/report", data=form)


def text_of(page) -> str:
    return " ".join(parse(page).find("main").get_text(" ").split())


def rows_of(page) -> list[str]:
    return [" ".join(each.get_text(" ").split()) for each in parse(page).select(".rows li")]


def waiting_of(page) -> str | None:
    count = parse(page).select_one("header .count")
    return count and count.get_text()


# -- reporting, on each backend -------------------------------------------------------------------


@on_each_backend
def test_report_is_kept_for_moderators(storage, add):
    ada, bob = add("Ada"), add("Bob")
    game, _ = storage.clients.register("Game", [], bob.id, game_url=GAME)
    for subject in (bob, game):
        kept = report(storage, ada, subject, "insults", "Yesterday,\nin the lobby.")
        assert (kept.by, kept.about, kept.reason) == (ada.id, about(subject), "insults")
        assert kept.text == "Yesterday,\nin the lobby."
        assert (kept.answer, kept.answered_by, kept.answered) == (None, None, None)
        assert int(kept.id[:15]) == kept.created <= now_ms()
    assert storage.records(REPORTS).count("state", "open", 9) == 2
    assert list(storage.audit.read()) == []  # the report itself says who sent it
    assert list(storage.verify()) == []


@on_each_backend
def test_sixteen_racing_reports_of_one_thing_are_one(storage, add):
    """None of those that were too late counts against the limit of a day."""
    ada, bob = add("Ada"), add("Bob")

    def send_one():
        with contextlib.suppress(ReportedBefore):
            report(storage, ada, bob)
            return True

    assert race(*[send_one] * 16).count(True) == 1
    assert len(all_reports(storage)) == 1
    for number in range(REPORTS_A_DAY - 1):
        report(storage, ada, add(f"Player no {number}"))


@on_each_backend
def test_one_of_racing_answers_counts(storage, add):
    ada, bob, moderators = add("Ada"), add("Bob"), [add(f"Warden {n}", MODERATOR) for n in "abcd"]
    kept = report(storage, ada, bob)

    def answer(moderator: User):
        with contextlib.suppress(AnsweredBefore):
            reports.answer(by(moderator, storage), kept.id, f"By {moderator.id}.")
            return moderator.id

    [winner] = filter(None, race(*(functools.partial(answer, each) for each in moderators)))
    kept = storage.records(REPORTS).read(kept.id)
    assert (kept.answer, kept.answered_by) == (f"By {winner}.", winner)
    assert kept.created <= kept.answered <= now_ms()
    assert len(list(storage.audit.read())) == 1
    assert storage.records(REPORTS).page("state", "open") == []


@on_each_backend
def test_reported_again_after_a_year(storage, add, clock, open_installation):
    """The record ends with a day, so that the one that removes expired reports comes in time."""
    ada, bob = add("Ada"), add("Bob")
    first = report(storage, ada, bob)
    clock.shift(365 * DAY_MS / 1000)
    with pytest.raises(ReportedBefore):
        report(storage, ada, bob)
    clock.move_to((first.expires + 1) / 1000)
    assert reports.find_report(storage, ada, bob) is None
    another = open_installation()  # a process that has not removed any in this minute
    again = report(another, ada, bob)
    assert [each.id for each in all_reports(storage)] == [again.id] != [first.id]


@on_each_backend
def test_reports_go_with_who_sent_them_and_what_they_are_about(storage, add):
    ada, bob, carol = add("Ada"), add("Bob"), add("Carol")
    game, _ = storage.clients.register("Game", [], None, game_url=GAME)
    for by, subject in ((ada, bob), (bob, carol), (carol, game), (carol, ada)):
        report(storage, by, subject)
    storage.users.delete(bob.id)
    assert {each.about for each in all_reports(storage)} == {about(game), about(ada)}
    storage.clients.delete(game.id)
    assert [each.about for each in all_reports(storage)] == [about(ada)]
    accounts.delete_user(Authority(storage, Actor(ada.id)), ada.id)
    assert all_reports(storage) == list(storage.verify()) == []


def test_ten_reports_a_day(storage, add, clock):
    """Those that were refused, and second ones, do not count."""
    ada = add("Ada")
    others = [add(f"Player no {number}") for number in range(REPORTS_A_DAY + 1)]
    for each in others[:-1]:
        for reason, text in (("", ""), ("spam", "x" * 501), ("spam", "\x07"), ("spam", "\u202e")):
            with pytest.raises(InvalidField):
                report(storage, ada, each, reason, text)
        report(storage, ada, each)
        with pytest.raises(ReportedBefore):
            report(storage, ada, each)
    with pytest.raises(TooManyAttempts) as refused:
        report(storage, ada, others[-1])
    assert len(all_reports(storage)) == REPORTS_A_DAY
    clock.shift(refused.value.retry_after)
    report(storage, ada, others[-1])


def test_suspended_or_deleted_player_reports_nothing(storage, add):
    ada, bob, carol = add("Ada"), add("Bob"), add("Carol")
    edit(storage.users, ada.id, suspension=Suspension(bob.id))
    storage.users.delete(carol.id)
    for by in (ada, carol):
        with pytest.raises(NotAllowed):
            report(storage, by, bob)
    with pytest.raises(NotFound):  # deleted since the form was shown
        report(storage, bob, carol)
    assert all_reports(storage) == []


# -- who may answer -------------------------------------------------------------------------------


def test_who_may_answer(storage, add, subtests):
    """Nobody buries a report about themselves, and no moderator one about a colleague."""
    player, reporter = add("Bob"), add("Emi")
    moderator, colleague = add("Warden", MODERATOR), add("Colleague", MODERATOR)
    chief, second = add("Chief", ADMINISTRATOR), add("Second", ADMINISTRATOR)

    def register(owner: User | None) -> Client:
        owner_id = owner and owner.id
        return storage.clients.register("App", [], owner_id, game_url=None)[0]

    gone = add("Gone")
    storage.users.delete(gone.id)
    everybody = {moderator.name, colleague.name, chief.name, second.name}
    rows = (
        (player, everybody),
        (register(player), everybody),
        (register(None), everybody),
        (register(gone), everybody),
        *((each, {"Chief", "Second"}) for each in (moderator, register(moderator), colleague)),
        *((each, {"Second"}) for each in (chief, register(chief))),
    )
    for subject, expected in rows:
        kept = report(storage, reporter, subject)
        people = (player, reporter, moderator, colleague, chief, second)
        seen = {each.name for each in people if shown_to(storage, each, [kept])}
        with subtests.test(kept.about):
            assert seen == expected
            for each in people:
                if each.name not in expected:
                    with pytest.raises(NotAllowed):
                        reports.answer(by(each, storage), kept.id, "Nothing to see.")
            assert storage.records(REPORTS).read(kept.id).answer is None
        storage.records(REPORTS).delete(kept.id)


def test_only_administrator_answers_about_themselves(storage, add):
    """Nobody else can. Not while another one is suspended for a time."""
    chief, ada, warden = add("Chief", ADMINISTRATOR), add("Ada"), add("Warden", MODERATOR)
    kept = report(storage, ada, chief)
    assert count_waiting(storage, warden) == 0
    reports.answer(by(chief, storage), kept.id, "")
    assert storage.records(REPORTS).read(kept.id).answer == ""


def test_demoted_or_suspended_moderator_answers_nothing(storage, add):
    ada, bob, warden = add("Ada"), add("Bob"), add("Warden", MODERATOR)
    kept = report(storage, ada, bob)
    for field, value in (("mod_level", 0), ("suspension", Suspension("command"))):
        with storage.users.edit(warden.id) as user:
            user.mod_level, user.suspension = MODERATOR, None
            setattr(user, field, value)
        with pytest.raises(NotAllowed):
            reports.answer(by(warden, storage), kept.id, "Done.")
    assert storage.records(REPORTS).read(kept.id).answer is None
    assert list(storage.audit.read()) == []


def test_answer_is_a_short_line(storage, add):
    ada, bob, warden = add("Ada"), add("Bob"), add("Warden", MODERATOR)
    kept = report(storage, ada, bob)
    for text in ("x" * 201, "a\nb", "\x00", " x"):
        with pytest.raises(InvalidField) as refused:
            reports.answer(by(warden, storage), kept.id, text)
        assert refused.value.field == "answer"
    assert list(storage.audit.read()) == []
    reports.answer(by(warden, storage), kept.id, "x" * 200)


# -- the form -------------------------------------------------------------------------------------


def test_report_of_a_player_and_of_a_game(store, enter, bob, game, subtests):
    browser = enter("Emi")
    for subject, path in ((bob, f"/users/{bob.id}"), (game, f"/games/{game.id}")):
        with subtests.test(path):
            form = browser.get(f"{path}/report")
            [action] = [each["action"] for each in parse(form).select("main form")]
            offered = [each["value"] for each in parse(form).select("input[type=radio]")]
            assert (action, offered) == (f"{path}/report", list(REPORT_REASONS))
            assert f"Report {subject.name}" in text_of(form) and "not told who sent it" in form.text
            answer = send(browser, subject, reason="cheating", text=" Yes.\r\nTwi\u202ece. ")
            assert (answer.status_code, answer.location) == (303, path)
            with browser.session_transaction() as session:
                assert session["notice"] == "Report sent. A moderator will read it."
            [kept] = store.records(REPORTS).page(
                path.split("/")[1][:-1].replace("game", "client"), str(subject.id)
            )
            assert (kept.reason, kept.text) == ("cheating", "Yes.\nTwice.")


def test_second_visit_says_when_and_whether_it_was_read(store, enter, join, bob, game, clock):
    clock.move_to(1_795_132_800)  # 20 November 2026
    browser, warden = enter("Emi"), join("Warden", MODERATOR)
    for subject, word, back in ((bob, "player", "users"), (game, "game", "games")):
        send(browser, subject)
        address = f"/{back}/{subject.id}"
        page = browser.get(f"{address}/report")
        said = f"You reported this {word} on 20 November 2026. A moderator will read it."
        assert said in text_of(page) and "<form" not in page.text.partition("<main")[2]
        assert [each["href"] for each in parse(page).select("main a")] == [address]
        again = send(browser, subject, text="Once more.")  # of a form that was open before
        assert again.status_code == 409 and said in text_of(again)
        assert "Problem" not in parse(again).title.text
        kept = reports.find_report(store, store.users.find_by_login("Emi"), subject)
        assert kept.text == "Everywhere."
        reports.answer(by(warden, store), kept.id, "A secret of moderators.")
        page = browser.get(f"{address}/report")
        assert f"You reported this {word} on 20 November 2026. A moderator has read it." in text_of(
            page
        )
        assert "secret" not in page.text and "Warden" not in page.text


def test_eleventh_report_of_a_day_is_shown_again(store, enter, join, clock):
    browser = enter("Emi")
    others = [join(f"Player no {number}") for number in range(REPORTS_A_DAY + 1)]
    for each in others[:-1]:
        assert send(browser, each).status_code == 303
    page = send(browser, others[-1], text="What I typed.")
    assert page.status_code == 429 and int(page.headers["Retry-After"]) > 0
    [problem] = problems_of(page).values()
    assert problem.startswith("You can send 10 reports a day. Try again in ")
    assert "What I typed." in page.text


def test_own_profile_and_own_app_have_no_form(store, adas_browser, ada):
    own, _ = store.clients.register("Own", [], ada.id, game_url=GAME)
    for subject in (ada, own):
        folder = "users" if isinstance(subject, User) else "games"
        page, posted = (
            adas_browser.get(f"/{folder}/{subject.id}/report"),
            send(adas_browser, subject),
        )
        assert (page.status_code, posted.status_code) == (200, 400)
        for each in (page, posted):
            assert "You can't report yourself or your own app." in text_of(each)
            assert "<form" not in each.text.partition("<main")[2]
    assert all_reports(store) == []


def test_report_of_what_is_not_there_is_404(store, enter, bob):
    browser = enter("Emi")
    app, _ = store.clients.register("No game", [], None)
    disabled, _ = store.clients.register("Game", [], None, game_url=GAME, disabled=True)
    store.users.delete(bob.id)
    paths = [f"/users/{each}/report" for each in (bob.id, 77, "0", "01", "x", "%00")]
    paths += [f"/games/{each}/report" for each in (app.id, disabled.id, "x" * 24, "%00", "1")]
    for path in paths:
        assert browser.get(path).status_code == 404
        assert browser.post(path, data={"reason": "spam"}).status_code == 404
    assert all_reports(store) == []


# -- the queue ------------------------------------------------------------------------------------


def test_row_says_what_about_whom_by_whom_and_when(store, enter, join, game, clock):
    warden, emi, named = enter("Warden", MODERATOR), join("Emi"), join(LONG_NAME)
    kept = report(store, emi, named, "insults")
    clock.shift(1)
    report(store, emi, game, "other")
    clock.shift(2 * 3600)
    page = warden.get("/admin")
    assert rows_of(page) == [
        f"{LONG_NAME} : Insults or threats Reported by Emi , 2 hours ago Answer",
        "Space Game : Something else Reported by Emi , 2 hours ago Answer",
    ]
    link = parse(page).select_one(".rows a")
    assert link["href"] == f"/admin/reports/{kept.id}"
    assert link["aria-label"] == f"Answer: {LONG_NAME}: Insults or threats"


def test_queue_hides_reports_of_oneself_and_of_colleagues(store, enter, join):
    """Neither the rows nor the number tell that there is one, or who sent it."""
    browser, emi = enter("Warden", MODERATOR), join("Emi")
    warden, chief = store.users.find_by_login("Warden"), join("Chief", ADMINISTRATOR)
    for subject in (warden, chief):
        kept = report(store, emi, subject)
        pages = [browser.get("/admin"), browser.get(f"/users/{warden.id}")]
        assert [waiting_of(each) for each in pages] == [None, None]
        assert "Nothing is waiting." in text_of(pages[0]) and "Emi" not in pages[0].text
        assert browser.get(f"/admin/reports/{kept.id}").status_code == 404
        refused = browser.post(f"/admin/reports/{kept.id}", data={"answer": "Fine."})
        assert refused.status_code == 404 and "Emi" not in refused.text
    assert [each.answer for each in all_reports(store)] == [None, None]
    assert len(rows_of(enter("Second", ADMINISTRATOR).get("/admin"))) == 2


def test_page_without_reports_for_this_moderator_leads_to_the_next(store, enter, join, clock):
    browser, chief, bob = enter("Warden", MODERATOR), join("Chief", ADMINISTRATOR), join("Bob")
    for number in range(REPORTS_SHOWN + 1):
        clock.shift(1)
        subject = chief if number < REPORTS_SHOWN else bob
        report(store, join(f"Player no {number}"), subject)
    page = browser.get("/admin")
    assert "Nothing on this page is for you." in text_of(page)
    [following] = [each["href"] for each in parse(page).select(".pages a")]
    assert len(rows_of(browser.get(following))) == 1


# -- one report -----------------------------------------------------------------------------------


def test_answered_report_leaves_the_queue(store, enter, join):
    browser, emi, bob = enter("Warden", MODERATOR), join("Emi"), join("Bob")
    edit(store.users, bob.id, bio="Chess, mostly.")
    kept = report(store, emi, bob, "insults", "She called </p><script> names.")
    page = browser.get(f"/admin/reports/{kept.id}")
    for each in ("Report about Bob", "What Insults or threats", "Where Profile", "From Emi , less"):
        assert each in text_of(page)
    assert parse(page).select_one(".quote").text == kept.text
    links = [each["href"] for each in parse(page).select("section:not(.head) a")]
    assert links == [f"/users/{bob.id}", f"/users/{emi.id}", f"/users/{bob.id}"]
    assert "The profile Bob Chess, mostly." in text_of(page) and "Others about" not in page.text
    answer = browser.post(f"/admin/reports/{kept.id}", data={"answer": " Suspended for a week. "})
    assert (answer.status_code, answer.location) == (303, "/admin")
    page = browser.get("/admin")
    assert "Report closed." in text_of(page) and "Nothing is waiting." in text_of(page)
    assert store.records(REPORTS).read(kept.id).answer == "Suspended for a week."


def test_report_about_a_damaged_record_waits_for_administrators(store, enter, ada, bob, faults):
    """Nor does a record that somebody edited break the pages of all moderators."""
    warden, chief = enter("Warden", MODERATOR), enter("Chief", ADMINISTRATOR)
    kept = report(store, ada, bob)
    odd = ("edited by hand", "user:x", "client:", "user:" + "9" * 30, "", "user:77")
    for number, edited in enumerate(odd):
        record = dataclasses.replace(kept, id=f"{number:015d}-00000000", about=edited)
        store.records(REPORTS).add(record)
    assert [waiting_of(each.get("/admin")) for each in (warden, chief)] == ["1", "7"]
    faults.damage_user(bob.id)
    rows = rows_of(chief.get("/admin"))
    assert (len(rows), len({row.partition(" Reported")[2] for row in rows})) == (7, 1)
    row = "A damaged record: Spam Reported by Ada , less than a minute ago Answer"
    assert rows.count(row) >= 2
    for each in (kept.id, f"{0:015d}-00000000"):
        assert "Report about a damaged record" in text_of(chief.get(f"/admin/reports/{each}"))
        assert chief.post(f"/admin/reports/{each}", data={"answer": ""}).status_code == 303


def test_page_of_a_report_of_a_game(store, enter, join, game):
    kept = report(store, join("Emi"), game)
    page = enter("Warden", MODERATOR).get(f"/admin/reports/{kept.id}")
    assert "Where Game" in text_of(page) and parse(page).select_one(".quote") is None
    assert [each["href"] for each in parse(page).select("section .button")] == [f"/games/{game.id}"]
    assert f"/covers/large/{game.id}.webp" in parse(page).select_one(".cover")["srcset"]
    assert "The game Space Game By Identity Server Open game" in text_of(page)


def test_reported_player_is_suspended_and_the_report_closed(store, enter, join, clock):
    browser, emi, bob = enter("Warden", MODERATOR), join("Emi"), join("Bob")
    kept = report(store, emi, bob)
    path, form = f"/admin/reports/{kept.id}", {"answer": "Suspended.", "length": "1 day"}
    fields = {each["name"] for each in parse(browser.get(path)).select("details form [name]")}
    assert fields == {"stamp", "answer", "reason", "length"}
    page = browser.post(path, data=form | {"reason": "Spam.", "length": "2 days"})
    assert problems_of(page) == {"suspend-length": "Choose how long."}
    assert 'value="Spam."' in page.text and store.users.read(bob.id).suspension is None
    assert browser.post(path, data=form | {"reason": "Spam."}).location == "/admin"
    suspension, kept = store.users.read(bob.id).suspension, store.records(REPORTS).read(kept.id)
    assert (suspension.reason, suspension.until - suspension.since) == ("Spam.", DAY_MS)
    assert (kept.answer, kept.answered_by) == ("Suspended.", suspension.by)
    clock.shift(2 * DAY_MS // 1000)
    page = browser.post(path, data=form)  # from a page that was opened before
    assert (page.status_code, "has just closed" in text_of(page)) == (409, True)
    assert not store.users.read(bob.id).suspended


def test_suspension_of_this_moment_is_not_replaced(store, enter, join, monkeypatch):
    """The view saw no suspension, so it asked for no proof."""
    browser, emi, bob = enter("Warden", MODERATOR), join("Emi"), join("Bob")
    kept, seen = report(store, emi, bob), store.users.read(bob.id)
    edit(store.users, bob.id, suspension=Suspension(store.users.find_by_login("Warden").id))
    forms = {
        f"/admin/reports/{kept.id}": ("pages.admin.reports", {"answer": "Suspended."}),
        f"/users/{bob.id}/suspend": ("pages.community.moderation", {}),
    }
    for path, (module, fields) in forms.items():
        monkeypatch.setattr(f"{module}.read_shown_user", lambda _: seen)
        page = browser.post(path, data=fields | {"length": "1 day"})
        assert (page.status_code, "has just suspended" in text_of(page)) == (400, True), path
    assert store.users.read(bob.id).suspension.until is None
    assert store.records(REPORTS).read(kept.id) == kept


def test_report_stays_open_if_its_player_cannot_be_suspended(store, enter, join, game, clock):
    """The administrator may answer it, but not suspend another one; what is there needs a proof."""
    browser, emi = enter("Chief", ADMINISTRATOR), join("Emi")
    gone = join("Out")
    edit(store.users, gone.id, suspension=Suspension("command", now_ms(), "Cheats."))
    form = {"answer": "Suspended.", "length": "1 day"}
    clock.shift(PROOF_AGE)
    for subject, status in ((game, 404), (join("Second", ADMINISTRATOR), 403), (gone, 403)):
        kept = report(store, emi, subject)
        assert "Suspend and close" not in browser.get(f"/admin/reports/{kept.id}").text
        assert browser.post(f"/admin/reports/{kept.id}", data=form).status_code == status
        assert store.records(REPORTS).read(kept.id) == kept
    assert store.users.read(gone.id).suspension.reason == "Cheats."


def test_second_moderator_is_told_who_answered(store, enter, join):
    browser, first = enter("Warden", MODERATOR), join("Bruno", MODERATOR)
    kept = report(store, join("Emi"), join("Bob"))
    reports.answer(by(first, store), kept.id, "A warning.")
    page = browser.post(f"/admin/reports/{kept.id}", data={"answer": "Suspended."})
    assert "Closed by Bruno , less than a minute ago: A warning." in text_of(page)
    assert "<form" not in page.text.partition("<main")[2]
    assert store.records(REPORTS).read(kept.id).answer == "A warning."
    store.users.delete(first.id)
    page = browser.get(f"/admin/reports/{kept.id}")
    assert f"Closed by Player {first.id} (left), less than a minute ago: A warning." in text_of(
        page
    )


def test_newest_others_about_the_same_player(store, enter, join, clock):
    browser, bob, game_owner = enter("Warden", MODERATOR), join("Bob"), join("Owner")
    warden = store.users.find_by_login("Warden")
    sent = []
    for number in range(OTHERS_SHOWN + 2):
        clock.shift(60)
        sent.append(report(store, join(f"Player no {number}"), bob))
    report(store, bob, game_owner)
    reports.answer(by(warden, store), sent[9].id, "")
    reports.answer(by(warden, store), sent[8].id, "Suspended.")
    rows = rows_of(browser.get(f"/admin/reports/{sent[10].id}"))
    expected = [11, *range(9, 0, -1)]
    assert [each.partition("Player no ")[2].partition(" ,")[0] for each in rows] == list(
        map(str, expected)
    )
    assert rows[0].endswith("ago. Open.")
    assert rows[1].endswith("Closed by Warden , less than a minute ago.")
    assert rows[2].endswith("Closed by Warden , less than a minute ago: Suspended.")


def test_forged_id_is_404_and_changes_nothing(store, enter, join):
    browser = enter("Warden", MODERATOR)
    words = "Nothing is waiting. Reports, requests to join, new games"
    assert words in text_of(browser.get("/admin"))
    kept = report(store, join("Emi"), join("Bob"))
    for each in FORGED_IDS:
        assert browser.get(f"/admin/reports/{each}").status_code == 404
        assert browser.post(f"/admin/reports/{each}", data={"answer": "x"}).status_code == 404
    assert all_reports(store) == [kept]


# -- the number in the header, and what others learn ----------------------------------------------


def test_number_of_waiting_reports_is_for_moderators(store, enter, join, adas_browser, browser):
    warden = enter("Warden", MODERATOR)
    bob = join("Bob")
    for number in range(reports.WAITING_COUNTED):
        report(store, join(f"Player no {number}"), bob)
        if number == 0:
            assert waiting_of(warden.get("/")) == "1"
        if number == 98:
            assert waiting_of(warden.get("/")) == "99"
    assert waiting_of(warden.get("/")) == "99+"
    assert waiting_of(adas_browser.get("/")) is None


def test_pages_do_without_the_number_if_reports_cannot_be_read(store, enter, join, monkeypatch):
    """Those of a player read no report at all."""
    warden, emi, asked = enter("Warden", MODERATOR), enter("Emi"), []

    def fail(*args: object, **_: object) -> None:
        asked.append(args)
        raise StorageFailed("the disk is gone")

    monkeypatch.setattr(type(store.records(REPORTS)), "page", fail)
    assert emi.get("/account").status_code == 200 and asked == []
    page = warden.get("/account")
    assert page.status_code == 200 and waiting_of(page) is None
    assert len(asked) == 1


def test_who_is_reported_does_not_learn_it(store, enter, join, adas_browser, ada):
    """Nor that a moderator answered, or what. Who sent it has it in their export."""
    game, _ = store.clients.register("Game", [], ada.id, game_url=GAME)
    emis_browser, warden = enter("Emi"), join("Warden", MODERATOR)
    for subject in (ada, game):
        send(emis_browser, subject, text="Everywhere, I say.")
    for each in all_reports(store):
        reports.answer(by(warden, store), each.id, "Warned.")
    export = adas_browser.get("/account/export").text
    for secret in ("Everywhere", "Emi", "Warned", "report answer", *store.records(REPORTS).ids()):
        assert secret not in export
    assert json.loads(export)["reports"] == []
    assert store.users.read(ada.id).notices == []
    [told] = parse(emis_browser.get("/")).select("main > .done")  # one for both of today
    assert told.text.startswith("A moderator has read your report of") and "Ward" not in told.text
    own = emis_browser.get("/account/export").json["reports"]
    assert {each["about"] for each in own} == {about(ada), about(game)}
    assert own[0].keys() == {"about", "reason", "text", "created", "expires"}


def test_racing_posts_of_a_form_make_one_report(store, enter, bob):
    browsers = [enter("Emi")]
    for _ in range(3):
        again = type(browsers[0])(browsers[0].application, browsers[0].response_wrapper)
        again.sign_in("Emi")
        browsers.append(again)
    answers = race(*(functools.partial(send, each, bob) for each in browsers * 4))
    assert sorted({each.status_code for each in answers}) == [303, 409]
    assert [each.status_code for each in answers].count(303) == 1
    assert len(all_reports(store)) == 1
