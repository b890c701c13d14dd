"""The steps after the sign-up: `pages.entry.welcome`."""

import urllib.parse

import forms
import pytest
from forms import edit, led_to, parse, sign_up, text_of, upload
from test_home import play, register_game

from identity.access.sessions import local_address
from model.records import User

LOCAL = "/users/1?a=b&c=%22#d"


@pytest.fixture
def winner(store, ada) -> User:
    """Ada, who owns a flair."""
    edit(store.users, ada.id, flairs=["none", "first ten"])
    return store.users.read(ada.id)


def address_of(step: str, leads_to: str) -> str:
    return f"/welcome/{step}?{urllib.parse.urlencode({'next': leads_to})}"


def skip(page) -> str:
    return parse(page).select_one("main a.second")["href"]


def steps(page) -> list[str]:
    """Return the steps that a page names, and check which is marked as the one of now."""
    assert page.status_code == 200
    found = parse(page).select(".steps li")
    assert [each.get("aria-current") for each in found].count("step") == (len(found) > 0)
    return [each.text for each in found]


def walk(browser, address: str) -> list[str]:
    """Skip each step from an address on; return the addresses, the last one outside the steps."""
    found = [address]
    while found[-1].startswith("/welcome"):
        found.append(skip(browser.get(found[-1])))
    return found


def test_step_without_a_choice_is_left_out(store, adas_browser, ada):
    first, game, flair = "/welcome", "/welcome/game", "/welcome/flair"
    assert steps(adas_browser.get("/welcome")) == []  # one alone is no list
    assert walk(adas_browser, first) == [first, "/"]
    for step in ("flair", "game"):
        assert led_to(adas_browser.get(f"/welcome/{step}")) == "/"
    register_game(store, "Hidden", listed=False)
    assert walk(adas_browser, first) == [first, "/"]
    register_game(store)
    assert steps(adas_browser.get("/welcome")) == ["Picture", "Game"]
    assert walk(adas_browser, first) == [first, game, "/"]
    assert adas_browser.get(flair).location == game
    edit(store.users, ada.id, flairs=["none", "first ten"])
    assert steps(adas_browser.get("/welcome/game")) == ["Picture", "Flair", "Game"]
    assert walk(adas_browser, first) == [first, flair, game, "/"]
    assert adas_browser.get("/welcome/other").status_code == 404


def test_sign_up_leads_to_the_first_step(app, browser, ada):
    app.config["SIGN_UP"] = "open"
    assert parse(browser.get(sign_up(browser).location)).h1.text == "Welcome, Grace!"
    assert forms.is_signed_in(browser)
    for leads_to in ("/", "/account"):  # nobody was on the way to another place
        browser.post("/sign-out")
        name = f"Eve {leads_to.strip('/') or 'home'}"
        answer = sign_up(browser, name=name, email=f"{len(name)}@example.org", next=leads_to)
        assert answer.location == "/welcome"


@pytest.mark.live
def test_chosen_picture_is_saved_and_no_picture_goes_on(store, adas_browser, ada):
    register_game(store)
    for name, content in (("", b""), ("", None)):  # browsers send an empty field
        assert led_to(upload(adas_browser, content, name, "/welcome/picture")) == "/welcome/game"
    assert store.users.read(ada.id).pfp_timestamp == ada.pfp_timestamp
    assert led_to(upload(adas_browser, forms.RED, path="/welcome/picture")) == "/welcome/game"
    user = store.users.read(ada.id)
    assert user.pfp_timestamp > ada.pfp_timestamp
    assert f"/pfp/large/{user.picture_file}" in adas_browser.get("/welcome").text


def test_flair_is_worn(store, adas_browser, winner, faults):
    page = adas_browser.get("/welcome/flair")
    choices = parse(page).select("[name=equippedFlair]")
    # The one that the player was given, unless another one is worn.
    assert [each["value"] for each in choices if each.has_attr("checked")] == ["first ten"]
    assert store.users.read(winner.id).equipped_flair == "none"
    faults.refuse_saves("users")
    page = adas_browser.post("/welcome/flair", data={"equippedFlair": "first ten"})
    assert (page.status_code, list(forms.problems_of(page)), skip(page)) == (503, ["form"], "/")
    faults.allow_saves()
    assert led_to(adas_browser.post("/welcome/flair", data={"equippedFlair": "first ten"})) == "/"
    assert store.users.read(winner.id).equipped_flair == "first ten"
    assert adas_browser.post("/welcome/flair").location == "/"
    assert store.users.read(winner.id).equipped_flair == "first ten"


def test_game_that_most_people_play_is_proposed(store, adas_browser, ada, bob):
    games = [register_game(store, name) for name in ("Ant", "Bee", "Cat")]
    for game in games:
        play(store, bob, game)
        page = adas_browser.get("/welcome/game")
        assert "One person is playing it now." in text_of(page)
        assert parse(page).select_one("main a.button")["href"] == f"/play/{game.id}"
        assert skip(page) == "/"


def test_who_came_from_an_app_can_go_back_at_once(app, store, browser, ada, program):
    app.config["SIGN_UP"] = "open"
    game = register_game(store, "Pong", listed=False)
    public_name = {
        program.link(state='a b&c"<'): "Space Game",
        f"/play/{game.id}": "Pong",
        f"/play/{game.id}/signed-in": "Pong",
        f"/play/{game.id}?level=1": "Pong",
    }
    for number, (leads_to, name) in enumerate(public_name.items()):
        player, email = f"Grace {number}", f"{number}@example.org"
        page = browser.get(sign_up(browser, name=player, email=email, next=leads_to).location)
        ready = f"Welcome, {player}! Your account is ready. {name} is waiting for you."
        assert ready in text_of(page).replace(f" {player} !", f" {player}!").replace(" .", ".")
        [go_on] = parse(page).select("main a.button:not(.second)")
        assert (go_on.text, go_on["href"]) == ("Continue", leads_to)
        assert urllib.parse.unquote(skip(page)) == f"/welcome/picture?next={leads_to}"
        assert walk(browser, skip(page))[-1] == leads_to
        browser.post("/sign-out")


def test_who_was_on_another_page_comes_back(adas_browser, program, subtests):
    for leads_to in (
        *("/players", LOCAL, "/play/none", "/play/%00", "/play/", "/oauth/authorize"),
        program.link(client_id="none"),
        program.link(redirect_uri="https://evil.example/"),
    ):
        with subtests.test(leads_to):
            page = adas_browser.get(f"/welcome?{urllib.parse.urlencode({'next': leads_to})}")
            assert "Your account is ready." in text_of(page) and "waiting" not in page.text
            [go_on] = parse(page).select("main a.button:not(.second)")
            assert go_on["href"] == leads_to


def test_next_leads_through_the_steps_but_never_to_another_site(store, adas_browser, winner):
    register_game(store)  # no step: who was on the way to a place is not sent to another one
    picture, flair = (address_of(each, LOCAL) for each in ("picture", "flair"))
    assert walk(adas_browser, picture) == [picture, flair, LOCAL]
    assert adas_browser.get(address_of("game", LOCAL)).location == LOCAL
    assert skip(upload(adas_browser, b"no picture", path=picture)) == flair
    assert upload(adas_browser, b"", "", picture).location == flair
    assert adas_browser.post(flair, data={"equippedFlair": "none"}).location == LOCAL
    for foreign in ("https://evil.example/", "//evil.example", "/\\evil.example", "/\t/evil", "x"):
        assert local_address(foreign) == "/"
        address = address_of("flair", foreign)
        assert "evil" not in adas_browser.get(address).text
        assert "evil" not in adas_browser.get(address.replace("/flair", "")).text
        assert adas_browser.post(address).location == "/welcome/game"
