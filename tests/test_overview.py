"""The first page of moderators and administrators, and the numbers."""

import functools
import re
import time
from pathlib import Path

import fixtures
import pytest
from conftest import on_each_backend
from forms import parse, race, text_of

from identity.acts import apps as app_acts
from identity.acts import reports as report_acts
from identity.acts.actors import Actor, Authority
from identity.http.limits import letter_limit
from identity.http.proxies import PlainAddress
from identity.messages.outbox import MAIL, new_message
from identity.site import statistics
from identity.site.advice import explain_loopback
from identity.site.clock import check_clock, note_clock
from identity.site.formatting import format_age
from identity.site.networks import check_networks, check_proxies, note_sign_in, note_unreadable
from identity.site.statistics import Numbers, count_numbers, note_backup, read_numbers
from model.errors import StorageFailed
from model.kind import DAY_MS
from model.kinds import OUTBOX, STATES
from model.records import ADMINISTRATOR, MODERATOR, Suspension, now_ms
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
    nothing = "Reports, requests to join, new games and suspensions that soon end appear here."
    assert nothing in text_of(warden.get(PATH))
    assert number_in_header(warden) is None
    emi, bob = add_players("Emi", "Bob")
    report_acts.report(Authority(store, Actor(emi.id)), bob, "spam", "")
    game = add_game("Kart", bob.id)
    now = now_ms()
    for name, past, days in (("Soon", 3, 2.5), ("Sooner", 7, 0.5), ("Late", 30, 9), ("New", 2, 5)):
        since, until = (now + int(each * DAY_MS) for each in (-past, days))
        suspension = Suspension("command", since, f"Of {name}", until)
        add_players(name, suspension=suspension)
    assert waiting(warden) == [
        *("Bob : Spam", "Kart waits to be listed", "The suspension of Sooner ends within a day"),
        "The suspension of Soon ends in 2 days",
    ]
    assert number_in_header(warden) == "2"  # what needs an answer
    assert "Of Sooner" in warden.get(PATH).text
    assert "Leave unlisted" in warden.get(f"/games/{game.id}").text
    form = {"listed": "no", "game_url": game.game_url, "from_game": "yes"}
    assert warden.post(f"/play/{game.id}/listed", data=form).location == f"/games/{game.id}"
    assert "Kart waits to be listed" not in waiting(warden)
    assert "Leave unlisted" not in warden.get(f"/games/{game.id}").text
    assert number_in_header(warden) == "1"
    assert "List on the home page" not in enter("Guest").get(f"/games/{game.id}").text


def test_decided_game_offers_the_next_and_unlisting_asks(enter, add_players, add_game):
    warden, [bob] = enter("Warden", MODERATOR), add_players("Bob")
    kart, chess = (add_game(name, bob.id) for name in ("Kart", "Chess"))

    def links_after(game, listed: str) -> list[str]:
        form = {"listed": listed, "game_url": game.game_url, "from_game": "yes"}
        page = warden.post(f"/play/{game.id}/listed", data=form, follow_redirects=True)
        links = parse(page).select("a.button:-soup-contains('next game that waits')")
        return [each["href"] for each in links]

    assert links_after(kart, "yes") == [f"/games/{chess.id}"]
    assert links_after(chess, "no") == []
    home, page = (parse(warden.get(path)) for path in ("/", f"/games/{kart.id}"))
    assert home.select_one('[aria-label="Unlist Kart"]')["href"] == f"/games/{kart.id}"
    assert not home.select('form [value="no"]')
    assert page.select_one('details form [value="no"]').text == "Unlist"


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


# -- a new site -----------------------------------------------------------------------------------


def test_pages_with_links_say_that_a_loopback_address_is_for_this_machine_alone(app, boss, enter):
    """With the way from there to friends, for administrators."""
    for path in (PATH, "/admin/invitations"):
        app.config["BASE_URL"] = "http://127.0.0.1:8000"
        [notice] = parse(boss.get(path)).select(".head .warning")
        assert list(notice.stripped_strings) == [
            *explain_loopback("http://127.0.0.1:8000"),
            "How to do this",
        ]
        assert notice.a["href"] == "/admin/docs/administrator"
        assert "IDENTITY_BASE_URL=https://id.example.org" in notice.text
        app.config["BASE_URL"] = "http://localhost.example"
        assert not parse(boss.get(path)).select(".head .warning")
    app.config["BASE_URL"] = "http://localhost"
    assert "Nobody else" not in enter("Warden", MODERATOR).get(PATH).text


def steps(browser) -> dict[str, str | None]:
    """Return the first steps on the page, by their words: where each leads, None if it is done."""
    items = parse(browser.get(PATH)).select(".checklist li")
    links = [each.a and each.a["href"] for each in items]
    assert [bool(each.select(".unseen")) for each in items] == [each is None for each in links]
    return dict(zip((each.text.split(": ")[-1].strip() for each in items), links, strict=True))


def test_first_steps_are_ticked_by_what_is_so_and_go_when_all_are_done(app, store, boss, enter):
    expected = {
        "Name your site": "/admin/look",
        "Let friends reach it": "/admin/docs/administrator",
        "Set up email": "/admin/docs/mail",
        "Back up every night": "/admin/docs/backups",
        "Register your first game": "/developer",
        "Invite your first player": "/admin/invitations",
    }
    assert steps(boss) == expected
    for words, do in {
        "Name your site": lambda: app.config.update(SITE_NAME="Ada's Games"),
        "Register your first game": lambda: store.clients.register("Game", [], None),
        "Invite your first player": lambda: store.invites.issue(7),
        "Back up every night": lambda: note_backup(store),
        "Set up email": lambda: app.config.update(SMTP_URL="smtp://localhost:1"),
    }.items():
        do()
        expected[words] = None
        assert steps(boss) == expected
    assert steps(enter("Warden", MODERATOR)) == {}
    app.config["BASE_URL"] = "http://games.example"
    assert steps(boss) == {}


def test_first_steps_are_hidden_for_all_administrators(store, boss, enter):
    other = enter("Other", ADMINISTRATOR)
    statistics.last_numbers.clear()
    assert steps(other)["Invite your first player"] is None  # there are two players
    assert boss.post(f"{PATH}/checklist/hide").location == PATH
    assert steps(boss) == steps(other) == {}
    assert boss.post(f"{PATH}/checklist/hide").location == PATH
    assert [line["act"] for line in store.audit.read()].count("checklist hide") == 1


def test_damaged_state_costs_nobody_the_page(store, app, boss):
    app.config["BASE_URL"] = "http://games.example"
    for name in ("backup", "address", "network", "clockmail", "clockchat", "checklist"):
        path = store.layout.path(f"states/{name}.json")
        Path(path).write_text("{")
    assert boss.get(PATH).status_code == 200


# -- email ----------------------------------------------------------------------------------------


def test_letter_goes_to_the_own_address_alone(app, store, boss, mail_server, monkeypatch):
    """The page says what became of it."""

    def press(**form: str) -> str:
        answer = boss.post(f"{PATH}/mail/test", data=form)
        assert answer.status_code in (303, 400, 429, 503)  # for 502 a CDN shows its own page
        return text_of(boss.get(PATH) if answer.status_code == 303 else answer)

    assert "Nothing was sent: email is not set up." in press()
    assert "Send a test email" not in boss.get(PATH).text
    url = mail_server.url()
    app.config.update(SMTP_URL=url, MAIL_FROM="players@games.example")
    assert "Send a test email" in boss.get(PATH).text
    assert "The mail server accepted an email to boss@example.org." in press(to="eve@example.org")
    assert mail_server.recipients == ["boss@example.org"]
    mail_server.replies["boss@example.org"] = "550 No such user"
    refused = "The email was not sent. The server refused the letter: 550 No such user"
    assert refused in press()
    app.config["SMTP_URL"] = "smtp://localhost:1"
    assert "The email was not sent. The server cannot be reached" in press()
    own_id = store.users.find_by_login("Boss").id
    store.users.change_email(own_id, "")
    assert "Your account has no email. Add one" in press()
    store.users.change_email(own_id, "boss@example.org")
    app.config["SMTP_URL"] = url
    assert refused in press()
    with letter_limit.place({}):  # another one waits for a silent server
        assert "Too many people are doing this right now." in press()
    mail_server.pauses["EHLO"] = 1
    monkeypatch.setattr("pages.admin.overview.TEST_TIMEOUT", 0.2)
    # By the time for the letter, or by that for each reply, which end together.
    late = "The server (took longer than 0.2 seconds|ended the connection, or did not respond)"
    assert re.search(late, press())
    assert "Too many tries." in press()  # five were counted


# -- one network, and the clock -------------------------------------------------------------------


SITE, PROXY = "https://id.example.org", "172.18.0.1"


def sign_ins(store, *addresses: str, last: int = 0) -> bool:
    """Note a sign-in from each address; return whether the networks are warned of."""
    for each in addresses:
        note_sign_in(store, SITE, each, last)
    return bool([*check_networks(store, SITE)])


@on_each_backend
def test_sign_ins_of_five_players_from_one_network_are_warned_of(storage, clock, monkeypatch):
    assert not sign_ins(storage, *[PROXY] * 4)
    assert not sign_ins(storage, *[PROXY] * 4, last=now_ms())  # the same players again
    assert sign_ins(storage, "172.18.0.77")  # one /24
    state = storage.records(STATES).read("network")
    assert PROXY[:6] not in str(state) and len(state.times) == 5
    with monkeypatch.context() as patched:
        patched.setattr("identity.site.networks.edit_state", None)  # nothing more is written
        assert sign_ins(storage, PROXY)
    assert not [*check_networks(storage, "http://192.168.1.2")]
    storage.keys.rotate(drop_old=False)
    assert sign_ins(storage, PROXY)
    clock.shift(86_400)
    assert not sign_ins(storage)  # the warning is of the last day
    assert sign_ins(storage, *[PROXY] * 5)
    assert not sign_ins(storage, "2001:db8::")
    assert not sign_ins(storage, *[PROXY] * 9)  # a second network was seen today
    clock.shift(86_400)
    race(*[functools.partial(sign_ins, storage, PROXY)] * 8)
    assert sign_ins(storage) and len(storage.records(STATES).read("network").times) == 5


def test_sign_in_notes_its_network_and_does_not_depend_on_it(app, store, boss, enter, monkeypatch):
    assert store.records(STATES).find("network") is None  # of a loopback address
    app.config["BASE_URL"] = "http://games.example"

    def fail(*_: object) -> None:
        raise StorageFailed("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("identity.site.networks.edit_state", fail)
        enter("First")
    for number in range(5):
        enter(f"Guest {number}")
    assert "all sign-ins of the last day came from one network" in text_of(boss.get(PATH))


@on_each_backend
def test_clock_that_differs_is_named_for_a_day_or_until_it_does_not(storage, clock):
    def told(ahead: float, template: str = "%a, %d %b %Y %H:%M:%S GMT") -> list[str]:
        date = time.strftime(template, time.gmtime(time.time() - ahead))
        note_clock(storage, "mail", f"220 mail.example ESMTP; {date}")
        return [each.problem.partition(" (")[0] for each in check_clock(storage)]

    assert told(30) == told(-30) == []
    assert storage.records(STATES).find("clockmail") is None
    for ahead, words in ((31, "less than a minute ahead of"), (-7200, "2 hours behind")):
        assert told(ahead) == [f"the clock of this machine is {words} that of the mail server"]
    for template in ("%Y", "Xyz, 31 Feb 2026 10:00:00 GMT", "Mon, 01 Jan 9999 99:99:99 GMT"):
        assert len(told(0, template)) == 1  # nothing can be read
    assert told(0, "%a, %d %b %Y %H:%M:%S -0000") == []
    assert len(told(31)) == 1
    clock.shift(86_400)
    assert [*check_clock(storage)] == []


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
