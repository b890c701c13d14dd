"""Who and what the home page and a game's own page show, and to whom: `pages.community.games`."""

import functools

import pytest
from forms import edit, parse, text_of

from identity.acts import accounts
from identity.acts.actors import Actor, Authority
from identity.site.formatting import DAY, MINUTE
from model.records import ADMINISTRATOR, MODERATOR, Client, Suspension, User, now_ms
from pages.community.games import FACES_READ, FACES_SHOWN, GAMES_SHOWN


@pytest.fixture
def add_game(store):
    return functools.partial(register_game, store)


def register_game(store, name: str = "Space Game", **fields) -> Client:
    """Register a game: by default a listed one of the administrators."""
    host = name.lower().replace(" ", "-")
    fields = {"owner_id": None, "listed": True, "game_url": f"https://{host}.example/"} | fields
    return store.clients.register(name, [], **fields)[0]


def play(store, user: User, game: Client | None, **fields) -> None:
    """Let a player play now: send a heartbeat that names the game; older pages name none."""
    # The sign-up counts as a heartbeat.
    edit(store.users, user.id, created=1, last_heartbeat=1, **fields)
    accounts.add_heartbeat(Authority(store, Actor(user.id)), user.id, game and game.id)


def people(page, heading: str) -> dict[str, str]:
    """Return the names in a list of people, each with the line below it."""
    assert page.status_code == 200
    [title] = parse(page).find_all("h2", string=heading) or [None]
    rows = title.parent.select(".people li") if title else []
    return {each.bdi.text: " ".join(each.select_one(".small").text.split()) for each in rows}


def first_card(page) -> str:
    """Return the text of the first card, below its heading."""
    card = parse(page).select_one(".first")
    return " ".join(card.text.replace(card.h1.text, "", 1).split())


def numbers(page) -> dict[str, str]:
    """Return how many play each game that has a number on its card."""
    cards = parse(page).select(".game")
    return {
        each.h3.text.strip(): each.select_one(".now").text for each in cards if each(class_="now")
    }


def test_guest_reads_what_the_site_is_and_how_to_join(app, browser, ada, subtests):
    app.config["WELCOME"] = "We make <small> games."
    for mode, joins in (
        ("open", "Create account"),
        ("invite", "Got an invitation? Create an account"),
        ("closed", ""),
    ):
        with subtests.test(mode):
            app.config["SIGN_UP"] = mode
            page = browser.get("/")
            assert parse(page).h1.text == "Welcome to Identity Server"
            assert first_card(page) == f"We make <small> games. Sign in {joins}".strip()
            assert "New here" not in page.text
            assert "No games here yet. They appear here as soon as" in text_of(page)


def test_guest_sees_numbers_alone(app, store, adas_browser, ada, bob, anyone, add_game):
    app.config["PLAYERS"] = "members"
    game = add_game(owner_id=bob.id)
    for count, sentence in ((1, "One person is playing"), (2, "2 people are playing")):
        play(store, (ada, bob)[count - 1], game)
        for path in ("/", f"/games/{game.id}"):
            page = anyone.get(path)
            assert "Ada" not in page.text and "Bob" not in page.text and "/users/" not in page.text
        assert f"{sentence} right now." in text_of(anyone.get("/"))
        assert numbers(anyone.get("/")) == {"Space Game": f"{count} playing"}
    assert "2 people are playing it now." in text_of(anyone.get(f"/games/{game.id}"))
    for path in ("/", f"/games/{game.id}"):
        page = adas_browser.get(path)
        assert people(page, "Playing now").keys() == {"Ada", "Bob"} and "By Bob" in text_of(page)


def test_six_faces_the_latest_first_and_the_number_of_others(store, add_players, add_game, anyone):
    assert "Nobody is playing right now." in text_of(anyone.get("/"))
    space, chess = add_game(), add_game("Chess")
    users = add_players(*(f"player {letter}" for letter in "abcdefgh"))
    for user in users[:FACES_SHOWN]:
        play(store, user, space)
    page = anyone.get("/")
    latest = reversed(users[:FACES_SHOWN])
    assert list(people(page, "Playing now")) == [each.name for each in latest]
    assert " more" not in text_of(page)
    for user in users[FACES_SHOWN:]:
        play(store, user, chess)
    page = anyone.get("/")
    shown = [("player h", "Chess"), ("player g", "Chess"), ("player f", "Space Game")]
    assert list(people(page, "Playing now").items())[:3] == shown
    assert "and 2 more" in text_of(page)
    assert numbers(page) == {"Space Game": "6 playing", "Chess": "2 playing"}


def test_game_is_named_only_if_it_may_be(store, add_players, add_game, anyone, adas_browser, ada):
    hides, tests, old = add_players("hides", "tests", "old")
    game, hidden = add_game(), add_game("Secret", listed=False)
    play(store, hides, game, hides_game=True)
    play(store, tests, hidden)
    play(store, old, None)  # by a page from before heartbeats named their game
    page = anyone.get("/")
    assert people(page, "Playing now") == dict.fromkeys(("old", "tests", "hides"), "Playing now")
    assert "Secret" not in page.text
    assert numbers(page) == {}  # one player alone would be known by the number
    edit(store.users, hides.id, hides_game=False)
    play(store, hides, game)
    assert people(anyone.get(f"/games/{game.id}"), "Playing now").keys() == {"hides"}
    edit(store.users, hides.id, hides_game=True)  # at once, not with the next heartbeat
    assert people(anyone.get(f"/games/{game.id}"), "Playing now") == {}
    edit(store.users, ada.id, mod_level=MODERATOR)
    assert people(adas_browser.get("/"), "Playing now")["hides"] == "Space Game"
    assert people(adas_browser.get(f"/games/{game.id}"), "Playing now").keys() == {"hides"}


def test_face_of_an_unlisted_suspended_or_damaged_player_is_not_shown(
    store, add_players, add_game, anyone, adas_browser, ada, faults
):
    unlisted, suspended, damaged = add_players("unlisted", "suspended", "damaged")
    game = add_game()
    play(store, unlisted, game, unlisted=True)
    play(store, suspended, game)
    edit(store.users, suspended.id, suspension=Suspension(None))
    play(store, damaged, game)
    play(store, ada, game, unlisted=True)
    faults.damage_user(damaged.id)
    for path in ("/", f"/games/{game.id}"):
        page = anyone.get(path)
        assert people(page, "Playing now") == {}
        assert "4 people are playing" in text_of(page)
        assert people(adas_browser.get(path), "Playing now").keys() == {"Ada"}  # herself
    edit(store.users, ada.id, mod_level=MODERATOR)
    assert people(adas_browser.get("/"), "Playing now").keys() == {"Ada", "unlisted"}


def test_last_of_two_games_is_offered(store, clock, adas_browser, ada, bob, add_game, faults):
    game = add_game()
    play(store, ada, game)
    sentence = "You have just played Space Game."
    assert first_card(adas_browser.get("/")) == sentence  # the only game's card is below
    add_game("Chess")
    assert first_card(adas_browser.get("/")) == f"{sentence} Continue playing"
    clock.shift(20 * MINUTE)
    play(store, bob, game)
    page = adas_browser.get("/")
    assert first_card(page).startswith("You played Space Game 20 minutes ago. One person is")
    assert parse(page).select_one(".first a")["href"] == f"/play/{game.id}"
    for change in ({"listed": False}, {"listed": True, "disabled": True}, None):
        edit(store.clients, game.id, **change) if change else store.clients.delete(game.id)
        page = adas_browser.get("/")
        assert "played" not in first_card(page) and "Continue playing" not in page.text
    play(store, ada, damaged := add_game("Kart"))
    faults.damage_client(damaged.id)
    assert "Continue playing" not in adas_browser.get("/").text


def test_first_line_fits_what_there_is(app, store, adas_browser, ada, add_game, add_players):
    app.config["CLIENT_REGISTRATION"] = "admins"
    assert first_card(adas_browser.get("/")).startswith("You are early")
    assert "Add a game" not in adas_browser.get("/").text
    edit(store.users, ada.id, mod_level=ADMINISTRATOR)
    page = adas_browser.get("/")
    assert first_card(page) == "Your site is up. Two things make it a place: a friend and a game."
    assert parse(page).find("a", string="Add a game")["href"] == "/developer"
    add_players("bob")
    assert first_card(adas_browser.get("/")).startswith("Your site has players.")
    add_game()
    assert first_card(adas_browser.get("/")).startswith("There is one game here so far.")
    add_game("Chess")
    assert first_card(adas_browser.get("/")).startswith("Choose a game.")


def test_newest_players_have_joined_lately(store, clock, adas_browser, ada, add_players):
    add_players("long ago", created=1)
    for days, name in ((61, "months"), (3, "three"), (1, "yesterday"), (0, "today")):
        add_players(name, created=now_ms() - days * DAY * 1000)
    add_players("imported", created=now_ms() - 2 * DAY * 1000)
    add_players("unlisted", unlisted=True)
    add_players("suspended", suspension=Suspension(None))
    found = people(adas_browser.get("/"), "New here")
    assert list(found) == ["today", "yesterday", "imported", "three", "months", "long ago"]
    lines = ["Joined today", "Joined yesterday", "Joined 3 days ago", "Joined in January 1970"]
    assert [found[each] for each in ("today", "yesterday", "three", "long ago")] == lines
    add_players(*(f"new {letter}" for letter in "abcdefg"))
    assert len(people(adas_browser.get("/"), "New here")) == FACES_SHOWN
    edit(store.users, ada.id, mod_level=MODERATOR)
    add_players("hermit", unlisted=True)
    assert "hermit" in people(adas_browser.get("/"), "New here")


def test_only_player_reads_how_to_invite_others(app, store, adas_browser, ada, add_players):
    alone, invite = "You are the only player so far.", "Invite a friend"
    assert alone in text_of(adas_browser.get("/"))
    assert invite not in adas_browser.get("/").text  # only administrators can
    edit(store.users, ada.id, mod_level=ADMINISTRATOR)
    for mode, words in (("invite", invite), ("open", "Anyone can join"), ("closed", None)):
        app.config["SIGN_UP"] = mode
        text = text_of(adas_browser.get("/"))
        shown = [each for each in (invite, "Anyone can join") if each in text]
        assert (alone in text, shown) == (True, [words] if words else [])
    add_players("unlisted", unlisted=True)
    assert alone not in text_of(adas_browser.get("/"))


def test_page_reads_few_records(store, adas_browser, add_players, add_game, monkeypatch):
    """It costs the same with any number of players: each owner is read once, and few faces."""
    [owner] = add_players("owner")
    for number in range(GAMES_SHOWN + 1):
        add_game(f"Game {number}", owner_id=owner.id)
    most = FACES_READ * FACES_SHOWN
    for user in add_players(*(f"player {i}" for i in range(3 * most)), unlisted=True):
        play(store, user, None)
    asked = []
    read, read_from_many = store.users.read, store.users.read_from_many
    monkeypatch.setattr(store.users, "read", lambda each: asked.append(each) or read(each))
    monkeypatch.setattr(
        store.users,
        "read_from_many",
        lambda ids, *make: asked.extend(ids) or read_from_many(ids, *make),
    )
    page = adas_browser.get("/")
    assert len(parse(page).select(".game")) == GAMES_SHOWN
    assert f"{3 * most} people are playing" in text_of(page)
    assert asked.count(owner.id) == 2  # by the one call, and by what it calls
    few = 1 + 1 + most + 2 * FACES_SHOWN  # the player, the owner, the faces, the newest
    assert len(set(asked)) <= few


def shown(page) -> list[str]:
    """Return the names of the games on a page."""
    assert page.status_code == 200
    return [each.text.strip() for each in parse(page).select(".game h3")]


def test_many_games_are_sorted_and_searched(store, anyone, add_game, add_players, monkeypatch):
    names = ["Zoë's Garden", "épée", "Eagles", "<b>", "Старт", "Pong", "pong 2", "Chess"]
    for number, name in enumerate(names):
        add_game(name, game_url=f"https://g{number}.example/", created=number)
    assert not parse(anyone.get("/")).select("[role=search], [aria-current]")
    tags = ["board", "multiplayer"]
    game = add_game("Fifteen", tags=tags, created=4, disabled=True)
    assert not parse(anyone.get("/?order=name")).select("[role=search]")  # eight can be played
    edit(store.clients, game.id, disabled=False)
    newest = names[:3:-1] + ["Fifteen", *names[3::-1]]
    if shown(anyone.get("/"))[3] == "Fifteen":  # of one time, the order is by id
        newest[3:5] = newest[4:2:-1]
    for query in ("", "?order=newest", "?order=x", "?after=%00", f"?before={game.id[::-1]}"):
        assert shown(anyone.get(f"/{query}")) == newest, query
    by_name = ["<b>", "Chess", "Eagles", "épée", "Fifteen", "Pong", "pong 2", names[0], "Старт"]
    page = anyone.get("/?order=name")
    assert shown(page) == by_name
    links = {a.text: (a["href"], a.get("aria-current")) for a in parse(page).select(".line a")}
    assert links == {
        "Newest": ("/?order=newest#games", None),
        "Most played now": ("/?order=played#games", None),
        "By name": ("/?order=name#games", "true"),
    }
    listed = {each.name: each for each in store.clients.games(True)}
    secret = add_game("Secret", listed=False)
    played = [listed["épée"], secret, listed["Eagles"], listed["Eagles"], secret]
    for user, game in zip(
        add_players(*("one", "two", "three", "four", "five")), played, strict=True
    ):
        play(store, user, game)
    most = ["Eagles", "épée", *(each for each in newest if each not in ("épée", "Eagles"))]
    assert shown(anyone.get("/?order=played")) == most
    with monkeypatch.context() as short:
        short.setattr("pages.community.games.GAMES_SHOWN", 4)
        page = anyone.get("/?order=played")
        pages = [shown(page)]
        while links := parse(page).select("nav.pages a[rel=next]"):
            page = anyone.get(links[0]["href"])
            pages.append(shown(page))
        assert sum(pages, []) == most and len(pages[0]) == 4
    for search, found in {
        "PONG": ["pong 2", "Pong"],
        " ｇard": ["Zoë's Garden"],
        "стар": ["Старт"],
        "Board": ["Fifteen"],
        "boar": [],
        "<b>": ["<b>"],
        "\0": [],
        "x" * 5000: [],
    }.items():
        page = anyone.get("/", query_string={"q": search})
        assert shown(page) == found, search
        assert ("No game has" in page.text) == (not found)
        assert parse(page).find(id="q")["value"] == search.strip()
    monkeypatch.setattr("pages.community.games.GAMES_SHOWN", 1)
    page = anyone.get("/?q=pong&order=name")
    [link] = parse(page).select("nav.pages a")
    assert shown(page) + shown(anyone.get(link["href"])) == ["Pong", "pong 2"]


def test_description_is_whole_on_the_page_and_cut_on_the_card(anyone, add_game):
    text = "Rocks & stars.\n" * 60
    game = add_game(description=text, tags=["action", "role-playing"])
    page = parse(anyone.get(f"/games/{game.id}"))
    assert page.select_one(".about .text").text == text
    links = {each.text: each["href"] for each in page.select(".tags a")}
    assert links == {"Action": "/?q=action", "Role-playing": "/?q=role-playing"}
    card = parse(anyone.get("/")).select_one(".game .text").text
    assert len(card) <= 200 and card.endswith("…") and text.startswith(card[:-1])
    preview = page.find("meta", attrs={"name": "description"})["content"]
    assert preview == " ".join(text.split())[:200]


def test_games_of_a_player_stand_on_the_profile_and_beside_each_other(
    app, anyone, adas_browser, ada, bob, add_game
):
    games = [add_game(f"Game {n}", owner_id=bob.id, created=n) for n in range(9)]
    add_game("Hidden", owner_id=bob.id, listed=False)
    add_game("Off", owner_id=bob.id, disabled=True)
    add_game("Hers", owner_id=ada.id)
    site = add_game("Of the site")

    def others(browser, path: str) -> list[str]:
        found = parse(browser.get(path)).select("section:has(> h2) .played li")
        return [each.text.strip() for each in found]

    names = [each.name for each in games[::-1]]
    assert others(anyone, f"/users/{bob.id}") == names
    assert others(anyone, f"/games/{games[8].id}") == names[1:7]
    assert "Games by Bob" in text_of(anyone.get(f"/games/{games[8].id}"))
    assert others(anyone, f"/games/{site.id}") == []
    app.config["PLAYERS"] = "members"
    assert others(anyone, f"/games/{games[8].id}") == []  # they would tell whose it is
    assert others(adas_browser, f"/games/{games[8].id}") == names[1:7]


def test_all_who_play_now_have_a_page(app, store, anyone, adas_browser, add_players, add_game):
    assert "Nobody is playing right now." in text_of(anyone.get("/playing"))
    game = add_game()
    users = add_players(*(f"player {letter}" for letter in "abcdefgh"))
    for user in users:
        play(store, user, game, unlisted=user is users[0])
    [link] = parse(anyone.get("/")).select(".side a[href='/playing']")
    assert link.text == "and 2 more"
    page = anyone.get("/playing")
    faces = {
        each.bdi.text: each.select_one(".now").text for each in parse(page).select(".people li")
    }
    assert faces == {each.name: "Space Game" for each in users[1:]}
    assert "One person who plays now is not shown here." in text_of(page)
    app.config["PLAYERS"] = "members"
    assert anyone.get("/playing").location.startswith("/sign-in")
    assert adas_browser.get("/playing").status_code == 200


def test_page_of_a_game(store, anyone, ada, bob, add_game):
    fields = {"game_url": "https://space.example/", "description": "Rocks & stars."}
    game = add_game("<b>Space</b>", owner_id=ada.id, **fields)
    edit(store.users, bob.id, flairs=["none", "first ten"], equipped_flair="first ten")
    play(store, bob, game)
    page = anyone.get(f"/games/{game.id}")
    soup = parse(page)
    assert soup.h1.text == "<b>Space</b>"
    assert f"/covers/large/{game.id}.webp" in soup.select_one("main img")["srcset"]
    small, large = soup.select_one(".people img")["srcset"].split(", ")
    assert "/medium/" in small and "/large/" in large
    assert "By Ada Rocks & stars. Play" in text_of(page)
    assert "One person is playing it now." in text_of(page)
    assert people(page, "Playing now") == {"Bob": "first ten"}
    links = {each["href"] for each in soup.select("main a")}
    assert links == {
        *(f"/users/{ada.id}", f"/users/{bob.id}", "/"),
        *(f"/play/{game.id}", f"/games/{game.id}/report"),
    }
    assert soup.find("meta", attrs={"name": "robots"}) is None
    [card] = parse(anyone.get("/")).select(".game")
    links = [f"/games/{game.id}", f"/users/{ada.id}", f"/play/{game.id}"]
    assert [each["href"] for each in card.select("a")] == links


def test_page_of_an_unlisted_game_is_not_indexed(store, anyone, program, add_game):
    game = add_game(listed=False)
    page = anyone.get(f"/games/{game.id}")
    assert parse(page).find("meta", attrs={"name": "robots"})["content"] == "noindex"
    assert "Anyone with the link can play it." in text_of(page)
    edit(store.clients, game.id, disabled=True)
    for client_id in (program.id, game.id, "x", "%00", "z" * 24, "é"):
        page = anyone.get(f"/games/{client_id}")
        assert (page.status_code, "deleted or disabled" in page.text) == (404, True), client_id
