"""The administrators' list of apps, and handing an app over."""

import contextlib

import fixtures
import pytest
from forms import parse, problems_of, text_of

from identity.acts import apps as app_acts
from identity.acts.actors import Actor, Authority, NotAllowed
from identity.acts.apps import CLIENTS_EACH, note_sign_in
from model.kind import HOUR_MS
from model.records import MODERATOR, now_ms

PATH = "/admin/apps"
boss = fixtures.boss


def add_app(store, name: str, owner_id: int | None = None, used: int = 0):
    client, _ = store.clients.register(name, ["https://app.example/"], owner_id, used=used)
    return client


def listed(browser, query: str = "") -> list[str]:
    """Return the names on the page."""
    return [each.text for each in parse(browser.get(f"{PATH}?{query}")).select("tbody th > a")]


def test_apps_of_one_owner(store, boss, add_players):
    [emi] = add_players("Emi")
    add_app(store, "Ours")
    add_app(store, "Hers", emi.id, used=now_ms())
    assert listed(boss) == ["Hers", "Ours"]  # by their last sign-in
    assert listed(boss, "owner=emi") == ["Hers"]
    assert listed(boss, "whose=administrators") == ["Ours"]
    assert list(problems_of(boss.get(f"{PATH}?owner=nobody"))) == ["owner"]
    assert "This player has no apps." in text_of(boss.get(f"{PATH}?owner=boss"))


def test_sign_in_to_an_app_is_kept_and_told_to_the_hour(store, boss, adas_browser, program, clock):
    """Not "4 minutes ago": the hour alone is stored."""
    adas_browser.allow(program)
    used = store.clients.read(program.id).used
    assert used % HOUR_MS == 0 and 0 <= now_ms() - used < HOUR_MS
    note_sign_in(store, "unknown-unknown-unknown")  # fails nobody
    used = now_ms() - now_ms() % HOUR_MS + HOUR_MS
    app = add_app(store, "Chess", used=used)
    for minutes, words in ((4, "in the last hour"), (59, "in the last hour"), (119, "1 hour ago")):
        clock.shift(used / 1000 + 60 * minutes - now_ms() / 1000)
        assert words in text_of(boss.get(f"/developer/{app.id}"))
    assert "1 hour ago" in text_of(boss.get(PATH))


def test_administrator_hands_an_app_over(store, boss, enter, add_players):
    emi = enter("Emi")
    [bob] = add_players("Bob")
    emis_id = store.users.find_by_login("emi").id
    app = add_app(store, "Chess", bob.id)
    address = f"/developer/{app.id}/owner"
    assert boss.post(address, data={"owner": "Emi", "seen": bob.id}).status_code == 303
    assert store.clients.read(app.id).owner_id == emis_id
    assert [each.id for each in store.clients.of_owner(emis_id)] == [app.id]
    assert "An administrator gave you the app Chess." in text_of(emi.get("/account"))
    assert "to somebody else" in store.users.read(bob.id).notices[0].text
    assert boss.post(address, data={"owner": "", "seen": emis_id}).status_code == 303
    assert store.clients.read(app.id).owner_id is None


def test_new_owner_enables_what_the_old_one_disabled(store, boss, add_players):
    ann, emi = add_players("Ann", "Emi")
    for who, is_allowed in ((ann.id, True), (1, False)):
        app = add_app(store, "Chess", ann.id)
        app_acts.set_disabled(Authority(store, Actor(who)), app.id, True)
        app_acts.hand_over(Authority(store, Actor(1)), app.id, emi.id, ann.id)
        with contextlib.nullcontext() if is_allowed else pytest.raises(NotAllowed):
            app_acts.set_disabled(Authority(store, Actor(emi.id)), app.id, False)


def test_app_is_handed_to_nobody_who_may_not_have_it(store, boss, add_players):
    [emi] = add_players("Emi")
    for number in range(CLIENTS_EACH):
        add_app(store, f"App {number}", emi.id)
    app = add_app(store, "Chess")
    page = boss.post(f"/developer/{app.id}/owner", data={"owner": "Emi", "seen": ""})
    assert page.status_code == 409
    assert store.clients.read(app.id).owner_id is None


def test_game_that_was_declined_waits_no_more(store, add_players):
    [warden] = add_players("Warden", mod_level=MODERATOR)
    [emi] = add_players("Emi")
    acts = Authority(store, Actor(warden.id))
    game, _ = store.clients.register("Game", [], emi.id, game_url="https://game.example/")

    def waits() -> bool:
        return bool(store.clients.count("queue", "waiting", 9))

    assert waits()
    app_acts.set_listed(acts, game.id, False)
    assert not waits()
    app_acts.change_client(
        Authority(store, Actor(emi.id)), game.id, game_url="https://other.example/"
    )
    assert waits()
    app_acts.set_listed(acts, game.id, True)
    assert not waits()


def test_owner_is_told_of_the_decision_on_a_game(store, enter, subtests):
    emis, warden = enter("Emi"), enter("Warden", MODERATOR)
    owners = [store.users.find_by_login(each).id for each in ("Emi", "Warden")]
    for number, (owner, told) in enumerate(zip(owners, (True, False), strict=True)):
        url = f"https://game{number}.example/"
        game, _ = store.clients.register(f"Game <{number}>", [], owner, game_url=url)
        for listed, reason, text in (
            ("no", "It has no sound", "not to put Game <0> on the home page. The reason: It has"),
            ("yes", "", "Game <0> is on the home page now."),
            ("no", "Broken!", "A moderator took Game <0> off the home page. The reason: Broken!"),
            ("no", "x" * 201, None),  # refused
            ("no", "Broken!", None),  # nothing changes
        ):
            with subtests.test(owner=owner, listed=listed, reason=reason):
                form = {"listed": listed, "reason": reason, "game_url": url, "from_game": "yes"}
                was_listed, left = store.clients.read(game.id).listed, "left unlisted"
                answer = warden.post(f"/play/{game.id}/listed", data=form)
                assert answer.status_code == (409 if len(reason) > 200 else 303)
                if answer.status_code == 303:
                    said = "listed" if listed == "yes" else "unlisted" if was_listed else left
                    assert f"Game {said}." in warden.get(f"/games/{game.id}").text
                [*new] = parse(emis.get("/")).select("main > .done")
                assert [text in each.text for each in new] == [True] * bool(told and text)
    assert store.users.read(owners[1]).notices == []
