"""The list of players for moderators, and what they see and do on a profile."""

import functools

import pytest
from conftest import PASSWORD, on_each_backend
from forms import ANOTHER, edit, parse, problems_of, set_by_link, text_of

from identity.access.passwords import hash_password
from identity.acts import notes as note_acts
from identity.acts import reports as report_acts
from identity.acts.actors import Actor, Authority, NotAllowed
from identity.acts.notes import NOTES_EACH, notes_about
from model.errors import InvalidField
from model.kind import DAY_MS
from model.kinds import NOTES
from model.records import ADMINISTRATOR, MODERATOR, Suspension, now_ms
from model.site_records import Note

PATH = "/admin/players"
LONG = "Donaudampfschifffahrtskapitaen"


@pytest.fixture
def warden(enter):
    return enter("Warden", MODERATOR)


def listed(browser, **query: str) -> list[str]:
    page = browser.get(PATH, query_string=query)
    assert page.status_code == 200
    return [each.text for each in parse(page).select("tbody th bdi")]


def test_search_by_a_part_of_the_name(warden, add_players):
    add_players("Anna", "Hanna Mond", "Bob", LONG, "Ян", "مريم")
    assert listed(warden, name="ANN") == ["Anna", "Hanna Mond"]
    assert listed(warden, name="dampf") == [LONG]
    assert listed(warden, name="Я") == ["Ян"]
    assert listed(warden, name="nn", list="newest") == ["Hanna Mond", "Anna"]
    for nobody in ("zz", "x" * 5000, "%", "_", "a\u202eb"):
        assert listed(warden, name=nobody) == []
    assert "Nobody's name has “ zz ” in it here." in text_of(warden.get(f"{PATH}?name=zz"))


def test_whole_former_name_finds_its_player(store, warden, add_players):
    anna, *_ = add_players("Anna", "Otto", "Annabel")
    store.users.rename(anna.id, "Olga")
    assert listed(warden, name="ＡNNA") == ["Olga", "Annabel"]
    assert [each.text for each in parse(warden.get(f"{PATH}?name=anna")).select(".badge")] == [
        "Former name"
    ]
    for query in (
        {"name": "ann"},
        {"name": "anna", "after": "a"},
        {"name": "anna", "list": "newest"},
    ):
        assert "Olga" not in listed(warden, **query)
    store.users.rename(anna.id, "Anna")  # taken back
    assert listed(warden, name="anna") == ["Anna", "Annabel"]
    assert "Olga" not in text_of(warden.get("/players?q=anna"))


def test_newest_players_are_those_who_joined_last(store, warden, add_players):
    """An import gives new ids to players who joined years ago."""
    now = now_ms()
    for name, days in (("New", 1), ("Old", 900), ("Middle", 30), ("Older", 901)):
        add_players(name, created=now - days * DAY_MS)
    assert listed(warden, list="newest")[-4:] == ["New", "Middle", "Old", "Older"]
    assert listed(warden, list="newest", name="old") == ["Old", "Older"]
    add_players(*(f"Player {number:03}" for number in range(201)))
    page = warden.get(f"{PATH}?list=newest&name=player")
    assert list(problems_of(page)) == ["name"] and "More than 200" in text_of(page)
    assert len(listed(warden, list="newest", name="player 1")) == 50


def test_list_of_who_played_in_the_last_day(warden, add_players):
    now = now_ms()
    for name, ago in (("Now", 0), ("Yesterday", DAY_MS - 60_000), ("Before", 3 * DAY_MS)):
        add_players(name, last_heartbeat=now - ago)
    assert listed(warden, list="played") == ["Now", "Yesterday"]


def test_suspensions_in_force_say_by_whom_why_and_until_when(store, warden, add_players):
    now = now_ms()
    for name, until in (("Long", now + 30 * DAY_MS), ("Ever", None), ("Soon", now + 2 * DAY_MS)):
        add_players(name, suspension=Suspension("command", now, f"Reason of {name}", until))
    add_players("Over", suspension=Suspension("command", now - DAY_MS, "", now - 1))
    assert listed(warden, list="suspended") == ["Soon", "Long", "Ever"]
    assert listed(warden, list="ending") == ["Soon"]
    text = text_of(warden.get(f"{PATH}?list=suspended"))
    assert "Reason of Ever" in text and "No end" in text
    assert "The administrators (with the command)" in text


def test_list_shows_the_reports_that_a_moderator_may_read(store, warden, enter, add_players):
    [emi, bob] = add_players("Emi", "Bob")
    [other] = add_players("Colleague", mod_level=MODERATOR)
    for subject in (bob, other):
        report_acts.report(Authority(store, Actor(emi.id)), subject, "spam", "")
    assert "1 report" in text_of(warden.get(f"{PATH}?name=bob"))
    assert "report" not in text_of(warden.get(f"{PATH}?name=colleague")).partition("Player")[2]
    assert "1 report" in text_of(enter("Boss", ADMINISTRATOR).get(f"{PATH}?name=colleague"))


def test_profile_says_where_a_player_came_from(store, warden, enter):
    secret = store.invites.issue(7, note="Winter cup", by=1)
    emi = store.users.register("Emi", "", hash_password(PASSWORD), invite=secret)
    text = text_of(warden.get(f"/users/{emi.id}"))
    assert "Invited by Warden" in text and "Winter cup" not in text
    assert "Last sign-in not known" in text and "Reports none" in text
    assert "Handle" not in text and store.handles.of(emi) == "emi"
    assert "Handle emi" in text_of(warden.get(f"/users/{emi.id}"))
    assert "Handle" not in text_of(enter("Gil").get(f"/users/{emi.id}"))
    assert enter("Boss", ADMINISTRATOR).sign_in("Emi").status_code == 303
    assert "Last sign-in less than a minute ago" in text_of(warden.get(f"/users/{emi.id}"))
    assert "Invitation Winter cup" in text_of(enter("Chief", ADMINISTRATOR).get(f"/users/{emi.id}"))
    assert "Winter cup" not in text_of(enter("Finn").get(f"/users/{emi.id}"))


def test_notes_are_for_moderators(store, warden, enter, add_players):
    [emi] = add_players("Emi")
    add = functools.partial(warden.post, f"/users/{emi.id}/notes")
    assert add(data={"text": "Said <b>sorry."}).status_code == 303
    assert "Said <b>sorry. Warden" in text_of(warden.get(f"/users/{emi.id}"))
    for other in (enter("Friend"), enter("Guest")):
        assert "sorry" not in other.get(f"/users/{emi.id}").text


def test_moderator_reads_no_note_about_a_moderator(store, warden, enter, add_players):
    [other] = add_players("Colleague", mod_level=MODERATOR)
    boss = enter("Boss", ADMINISTRATOR)
    assert boss.post(f"/users/{other.id}/notes", data={"text": "Absent."}).status_code == 303
    assert "Absent." in boss.get(f"/users/{other.id}").text
    for browser, user_id in ((warden, other.id), (warden, 1)):
        assert "New note" not in browser.get(f"/users/{user_id}").text


def test_notes_about_one_player_are_bounded_and_go_with_them(store, add_players):
    warden, emi = add_players("Warden", mod_level=MODERATOR) + add_players("Emi")
    for number in range(NOTES_EACH):
        store.records(NOTES).add(Note(f"{number:015}-00000000", emi.id, warden.id, "x", 1))
    acts = Authority(store, Actor(warden.id))
    with pytest.raises(InvalidField):
        note_acts.add(acts, emi.id, "One more.")
    store.users.delete(emi.id)
    assert store.records(NOTES).ids() == []


def test_warning_is_on_each_page_until_it_is_confirmed(store, warden, enter, clock):
    emis, boss = enter("Emi"), enter("Boss", ADMINISTRATOR)
    emi = store.users.find_by_login("Emi")
    warn = functools.partial(warden.post, f"/users/{emi.id}/warn")
    assert warn(data={"warning": "No <b>shouting."}).status_code == 303
    again = warn(data={"warning": "Another one."})
    assert again.status_code == 400 and "has not confirmed the last warning yet" in again.text
    assert "No <b>shouting. Warden" in text_of(page := warden.get(f"/users/{emi.id}"))
    assert "Not confirmed yet." in page.text
    for path in ("/", "/account", "/games/none", "/players?q=a%26b"):
        form = parse(emis.get(path)).select_one("form.warning")
        assert "No <b>shouting." in form.get_text() and "Warden" not in form.get_text()
        sent = {each["name"]: each["value"] for each in form.select("input")}
        assert sent["next"].rstrip("?") == path
    confirm = functools.partial(emis.post, "/account/warning")
    for fields in ({"warning": "x"}, sent | {"stamp": ""}):  # of another one, and without a page
        assert confirm(data=fields).status_code == 303 and "shouting" in emis.get("/").text
    boss.post("/account/warning", data=sent)
    assert "shouting" in emis.get("/").text
    assert confirm(data=sent | {"next": "//evil.example"}).location == "/"
    assert "shouting" not in emis.get("/").text and "shouting" not in emis.get("/account").text
    assert "Confirmed on" in warden.get(f"/users/{emi.id}").text
    clock.shift(1)
    assert warn(data={"warning": "Another one."}).status_code == 303
    newest = notes_about(store, emi)[0]
    assert boss.post(f"/users/{emi.id}/notes/delete", data={"note": newest.id}).status_code == 303
    assert parse(emis.get("/")).select("form.warning") == []  # taken back
    assert warn(data={"warning": "The last one."}).status_code == 303


def test_moderator_warns_few_players_an_hour(store, warden, add_players, monkeypatch):
    """Each page shows a warning: with a moderator's cookie a thief could write on all of them."""
    monkeypatch.setattr(note_acts, "WARNINGS_AN_HOUR", 2)
    players = add_players("Emi", "Gil", "Ida")
    form = {"warning": "Sign in at evil.example."}
    pages = [warden.post(f"/users/{each.id}/warn", data=form) for each in players]
    assert [each.status_code for each in pages] == [303, 303, 429]
    assert store.users.read(players[-1].id).warning is None


@on_each_backend
def test_warning_is_confirmed_once_and_by_its_player(storage):
    warden = storage.users.register("Warden", "", "", MODERATOR)
    emi = storage.users.register("Emi", "", "")
    note_acts.warn(Authority(storage, Actor(warden.id)), emi.id, "Be kind.")
    [note] = notes_about(storage, emi)
    with pytest.raises(NotAllowed):
        note_acts.confirm_warning(Authority(storage, Actor(warden.id)), emi.id, note.id)
    confirm = functools.partial(note_acts.confirm_warning, Authority(storage, Actor(emi.id)))
    confirm(emi.id, note.id)
    [kept] = notes_about(storage, emi)
    assert kept.warns and kept.confirmed >= note.created
    assert storage.users.read(emi.id).warning is None and list(storage.verify()) == []
    confirm(emi.id, note.id)
    assert notes_about(storage, emi) == [kept]


def link_in(page) -> str:
    [link] = [each.text for each in parse(page).select(".done code")]
    return link


def test_moderator_helps_with_a_lost_password(store, warden, open_browser):
    emi = store.users.register("Emi", "", hash_password(PASSWORD))
    page = warden.post(f"/users/{emi.id}/sign-in-link")
    assert page.status_code == 201
    link = link_in(page)
    assert link not in warden.get(f"/users/{emi.id}").text
    assert set_by_link(open_browser(), link).status_code == 303
    assert open_browser().sign_in("Emi", ANOTHER).status_code == 303


def test_sign_in_link_ends_with_the_right_to_make_it(store, warden, open_browser, subtests):
    """Otherwise a moderator who kept it could become an administrator, or act once suspended."""
    emi = store.users.register("Emi", "", hash_password(PASSWORD))
    maker = store.users.find_by_login("Warden")
    link = link_in(warden.post(f"/users/{emi.id}/sign-in-link"))
    for who, fields in (
        (emi, {"mod_level": ADMINISTRATOR}),
        (emi, {"mod_level": MODERATOR}),
        (maker, {"mod_level": 0}),
        (maker, {"suspension": Suspension("command")}),
    ):
        with subtests.test(who=who.name, fields=fields):
            before = {name: getattr(who, name) for name in fields}
            edit(store.users, who.id, **fields)
            assert set_by_link(open_browser(), link).status_code == 403
            edit(store.users, who.id, **before)
    assert set_by_link(open_browser(), link).status_code == 303


def test_of_two_sign_in_links_the_first_one_used_ends_both(store, warden, open_browser):
    emi = store.users.register("Emi", "", hash_password(PASSWORD))
    links = [link_in(warden.post(f"/users/{emi.id}/sign-in-link")) for _ in range(2)]
    assert [set_by_link(open_browser(), each).status_code for each in links] == [303, 403]


def test_proof_is_of_one_session(store, enter, open_browser, add_players, clock):
    """The proof of a session, put into the cookie of another one, proves nothing."""
    boss, other = enter("Boss", ADMINISTRATOR), open_browser()
    emi, bob = add_players("Emi", "Bob")
    other.sign_in("Boss")
    clock.shift(301)
    assert boss.post(f"/users/{emi.id}/delete", data={"password": PASSWORD}).status_code == 303
    with boss.session_transaction() as session:
        proven = session["proven"]
    with other.session_transaction() as session:
        session["proven"] = proven
    assert other.post(f"/users/{bob.id}/delete").status_code == 403
    assert store.users.find(bob.id)
    assert boss.post(f"/users/{bob.id}/delete").status_code == 303
