"""The first page of moderators and administrators, and the numbers."""

import time

import fixtures
import pytest
from conftest import on_each_backend
from forms import parse, text_of

from identity.acts import apps as app_acts
from identity.acts import reports as report_acts
from identity.acts.actors import Actor, Authority
from identity.http.proxies import PlainAddress, check_proxies, note_unreadable
from identity.messages.outbox import MAIL, new_message
from identity.site import statistics
from identity.site.formatting import format_age
from identity.site.statistics import Numbers, count_numbers, note_backup, read_numbers
from model.kind import DAY_MS
from model.kinds import OUTBOX, STATES
from model.records import MODERATOR, Suspension, now_ms
from model.site_records import State

PATH = "/admin"
boss = fixtures.boss


@pytest.fixture
def add_game(store):
    def add_game(name: str, owner_id: int | None = None):
        url = f"https://{name.lower()}.example/"
        return store.clients.register(name, [], owner_id, game_url=url)[0]

    return add_game


def waiting(browser) -> list[str]:
    rows = parse(browser.get(PATH)).select(".rows li p:first-child")
    return [" ".join(each.get_text(" ").split()) for each in rows]


def number_in_header(browser) -> str | None:
    count = parse(browser.get("/")).select_one(".count")
    return count and count.text


def test_queue_has_reports_games_and_suspensions_that_end_soon(store, enter, add_players, add_game):
    warden = enter("Warden", MODERATOR)
    nothing = "Reports, new games and suspensions that end this week appear here."
    assert nothing in text_of(warden.get(PATH))
    assert number_in_header(warden) is None
    emi, bob = add_players("Emi", "Bob")
    report_acts.report(Authority(store, Actor(emi.id)), bob, "spam", "")
    game = add_game("Kart", bob.id)
    now = now_ms()
    for name, days in (("Soon", 2.5), ("Sooner", 0.5), ("Late", 9)):
        suspension = Suspension("command", now, f"Of {name}", now + int(days * DAY_MS))
        add_players(name, suspension=suspension)
    assert waiting(warden) == [
        *("Bob : spam", "Kart waits to be listed", "The suspension of Sooner ends within a day"),
        "The suspension of Soon ends in 2 days",
    ]
    assert number_in_header(warden) == "2 waiting"  # what needs an answer
    assert "Of Sooner" in warden.get(PATH).text
    assert "Leave unlisted" in warden.get(f"/games/{game.id}").text
    form = {"listed": "no", "game_url": game.game_url, "from_game": "yes"}
    assert warden.post(f"/play/{game.id}/listed", data=form).location == f"/games/{game.id}"
    assert "Kart waits to be listed" not in waiting(warden)
    assert "Leave unlisted" not in warden.get(f"/games/{game.id}").text
    assert number_in_header(warden) == "1 waiting"
    assert "List on the home page" not in enter("Guest").get(f"/games/{game.id}").text


def test_numbers_are_for_administrators(store, boss, enter, add_players, add_game):
    now = now_ms()
    add_players("Now", last_heartbeat=now)
    add_players("Week", last_heartbeat=now - 3 * DAY_MS)
    add_players("Before", last_heartbeat=now - 30 * DAY_MS)
    app_acts.set_listed(Authority(store, Actor(1)), add_game("Kart").id, True)
    statistics.last_numbers.clear()
    page = parse(boss.get(PATH))
    words = [each.text for each in page.select(".numbers dt")]
    shown = dict(zip(words, [each.text for each in page.select(".numbers dd")], strict=True))
    assert shown.pop("free space").endswith(" GB")
    assert shown == {
        "players": "4",
        "played in the last day": "1",
        "played in the last week": "2",
        "new this week": "1",  # who was imported joined long ago
        "games listed": "1",
    }
    assert "there is no backup yet" in text_of(boss.get(PATH))
    assert "Numbers" not in text_of(enter("Warden", MODERATOR).get(PATH))


def test_numbers_are_a_minute_old_at_most_and_know_what_is_unknown(store, clock, add_players):
    assert read_numbers(store).players == 0
    add_players("Emi")
    assert read_numbers(store).players == 0
    clock.shift(60)
    assert read_numbers(store).players == 1
    clock.shift(-3600)  # the clock was set back
    assert read_numbers(store).time == now_ms()
    numbers = count_numbers(store)
    assert isinstance(numbers, Numbers)
    assert (numbers.backup, numbers.backup_is_old) == (State("backup", 0), True)
    assert numbers.free_space > 0


def test_page_warns_of_backups(store, boss, clock, subtests):
    note_backup(store)
    for shift, problem, words in (
        (0, "", None),
        (2 * 86_400 + 1, "", "more than two days old"),
        (0, "The disk is full.", "the last backup failed. The disk is full."),
    ):
        with subtests.test(words):
            clock.shift(shift)
            if problem:
                note_backup(store, problem)
            statistics.last_numbers.clear()
            boss.sign_in("Boss")
            text = text_of(boss.get(PATH))
            assert (words is None) == ("How to back up" not in text)
            assert words is None or words in text
            assert "last backup" in text
    good = store.records(STATES).read("backup")
    assert (good.problem, good.time < now_ms() - DAY_MS) == ("The disk is full.", True)


def test_page_shows_what_settings_warn_of_and_what_is_no_address(app, boss, store):
    note_unreadable(store, "'unknown'")
    words = f"Warning: X-Forwarded-For had no address but 'unknown' ({format_age(now_ms())})"
    assert words not in text_of(boss.get(PATH))
    app.config["PROXIES"] = 1
    assert words in text_of(boss.get(PATH))
    app.config["BASE_URL"] = "http://games.example.org"
    assert "Warning: passwords and tokens travel unencrypted" in text_of(boss.get(PATH))


def test_page_says_what_stops_letters_behind_those_that_wait_for_their_turn(app, boss, store):
    """That a letter was tried without success, or broke the dialogue once too often, stops none."""
    app.config["SMTP_URL"] = "smtp://localhost:1"
    add, good_until = store.records(OUTBOX).add, now_ms() + DAY_MS
    add(new_message(MAIL, "confirmation", "", to="a@b.example", good_until=good_until))
    tried = {"tries": 1, "pauses": 2, "problem": "421 Closing"}
    add(new_message(MAIL, "recovery", "x", to="a@b.example", good_until=good_until, **tried))
    assert "no emails can be sent" not in text_of(boss.get(PATH))
    time.sleep(0.002)  # ids of one millisecond have no order
    stopped = {"pauses": 1, "problem": "535 Wrong."}
    add(new_message(MAIL, "recovery", "x", to="a@b.example", good_until=good_until, **stopped))
    assert "no emails can be sent. 535 Wrong." in text_of(boss.get(PATH))


@on_each_backend
def test_what_is_no_address_is_logged_once_a_minute_and_named(storage, clock, caplog):
    """By all workers together, whichever meets it."""
    workers = [PlainAddress(lambda *_: [], storage) for _ in range(2)]
    for shift in (0, 59, 2):
        clock.shift(shift)
        for worker in workers:
            for _ in range(3):
                worker({"REMOTE_ADDR": "<\x85script>"}, None)
    found = [each.getMessage() for each in caplog.records]
    assert len(found) == 2 and "no address but '<\\x85script>'" in found[0]
    [advice] = check_proxies(storage, 1)
    age = format_age(now_ms())
    assert f"X-Forwarded-For had no address but '<\\x85script>' ({age})" in advice.problem
    assert list(check_proxies(storage, 0)) == []
    clock.shift(86_400)
    assert list(check_proxies(storage, 1)) == []
