"""Games: the home page, the play page and the authorization code of the game flow."""

import contextlib

import pytest
from conftest import Browser, Program, all_clients, on_each_backend
from forms import edit, led_to, parse, race, signed_in
from werkzeug.test import TestResponse

from identity.site.settings import check_game
from identity_server import CODES_A_MINUTE
from model.errors import InvalidField, OriginTaken
from model.records import MODERATOR, Client, Grant
from model.rules import check_game_url
from storage import Storage

GAME = "https://space.example/play"
SANDBOX = "allow-scripts allow-same-origin allow-forms allow-popups allow-pointer-lock"


@pytest.fixture
def add_game(store, anyone):
    """A function that registers a game: by default a listed one of the administrators."""

    def add_game(name: str = "Space Game", game_url: str = GAME, **options) -> Program:
        options = {"owner_id": None, "listed": True, "description": "Shoot the rocks."} | options
        client, secret = store.clients.register(name, [], game_url=game_url, **options)
        return Program(anyone, client.id, secret, game_url)

    return add_game


@pytest.fixture
def game(add_game) -> Program:
    return add_game()


def open_game(browser: Browser, game: Program) -> str | None:
    """Load the play page; return the signed request for its script, or None."""
    page = browser.get(f"/play/{game.id}")
    assert page.status_code == 200
    element = parse(page).select_one("[data-request]")
    return element and element["data-request"]


def request_code(
    browser: Browser, game: Program, signed: str | None, **fields: str
) -> TestResponse:
    """Send a request as the script of the play page does."""
    return browser.post(f"/play/{game.id}/authorize", data={"request": signed, **fields})


def allow(browser: Browser, game: Program) -> TestResponse:
    return request_code(browser, game, open_game(browser, game), decision="allow")


def refusal(answer: TestResponse) -> str:
    """Return the reason of a refusal; check its format."""
    assert answer.json == {"type": "authorized", "error": True, "message": answer.json["message"]}
    return answer.json["message"]


# -- game URLs -----------------------------------------------------------------------------------


def test_game_url_can_be_framed(store):
    for game_url in (
        *("https://space.example/", "http://localhost:5000/game?level=1", "http://127.0.0.1:5000"),
        *("https://123.example/", "https://1and1.example/", "https://0xyz.example/", None),
    ):
        assert check_game_url(game_url) is None, game_url
    for game_url in (
        *("", "/play", "javascript:alert(1)", "https://ada@space.example/", "http://[::1]/"),
        *("https://space.example/#x", "https://space.example;script-src *", "https://*.example/"),
        # Browsers read all of these as 127.0.0.1.
        *("http://127.1/", "http://2130706433/", "http://127.0.0.0X1:80/", "http://0177.0.0.1/"),
    ):
        assert check_game_url(game_url), game_url
    with pytest.raises(InvalidField, match="game_url"):
        store.clients.register("Space Game", [], None, game_url="")


def test_game_url_on_own_host_or_mixed_content_is_refused():
    for game_url, base_url, accepted in (
        ("https://id.example.org/game", "https://id.example.org", False),
        ("https://ID.example.org:443/game", "https://id.example.org", False),
        ("http://id.example.org/", "https://id.example.org", False),
        ("https://game.example.org/", "https://id.example.org", True),
        ("https://id.example.org:8443/", "https://id.example.org", False),  # ports share cookies
        ("https://id.example.org/", "https://id.example.org:8443", False),
        ("http://127.0.0.1:5000/", "http://127.0.0.1:8000", True),  # the developer's own machine
        ("http://game.example.org/", "https://id.example.org", False),  # mixed content
        ("http://localhost:5000/", "https://id.example.org", True),
        ("http://127.0.0.1:5000/", "https://id.example.org", True),
        ("http://127.0.0.1.example/", "https://id.example.org", False),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000", False),
        ("http://localhost:8000/", "http://127.0.0.1:8000", False),  # the same server
        ("http://localhost:5000/", "http://127.0.0.1:8000", True),
        ("http://127.1:8000/", "http://127.0.0.1:8000", False),
    ):
        assert (check_game(game_url, base_url) is None) == accepted, (game_url, base_url)


def register_game(storage: Storage, name: str, game_url: str) -> Client:
    return storage.clients.register(name, [], None, game_url=game_url, listed=True)[0]


@on_each_backend
def test_origin_has_one_game_until_it_moves_or_is_deleted(storage):
    game = register_game(storage, "Space", GAME)
    other = register_game(storage, "Other", "https://other.example/")
    for same_origin in ("https://SPACE.example:443/other", "https://space.example:/x?y"):
        with pytest.raises(OriginTaken):
            register_game(storage, "Third", same_origin)
        with pytest.raises(OriginTaken), storage.clients.edit(other.id) as client:
            client.game_url = same_origin
    assert storage.clients.read(other.id) == other
    edit(storage.clients, game.id, game_url="https://space.example/new")  # within its own origin
    storage.clients.delete(game.id)
    assert register_game(storage, "Space", GAME).game_url == GAME
    for name in ("Space", "Chess"):  # a loopback origin is another place on each device
        register_game(storage, name, "http://localhost:3000/")


@on_each_backend
def test_racing_registrations_at_an_origin_add_one_game(storage):
    def add() -> None:
        with contextlib.suppress(OriginTaken):
            register_game(storage, "Space", GAME)

    def move() -> None:
        with contextlib.suppress(OriginTaken), storage.clients.edit(other.id) as client:
            client.game_url = GAME

    for _ in range(5):
        other = register_game(storage, "Other", "https://other.example/")
        race(add, add, add, move)
        assert [each.game_url for each in all_clients(storage)].count(GAME) == 1
        for client in all_clients(storage):
            storage.clients.delete(client.id)


# -- the play page ------------------------------------------------------------------------------


def test_play_page_frames_only_the_game(adas_browser, game):
    page = adas_browser.get(f"/play/{game.id}")
    [frame] = parse(page).select("iframe")
    assert frame["src"] == GAME
    assert " ".join(frame.get_attribute_list("sandbox")) == SANDBOX
    policy = page.headers["Content-Security-Policy"].split("; ")
    assert "frame-src https://space.example" in policy
    assert "connect-src 'self' https://space.example" in policy  # to see whether the game answers
    for address in ("/", "/account", "/play/nothing"):
        policy = adas_browser.get(address).headers["Content-Security-Policy"]
        assert "frame-src" not in policy and "connect-src" not in policy


def test_unavailable_game_is_404_and_invalid_app(store, adas_browser, game, faults, subtests):
    signed = open_game(adas_browser, game)
    for change in (
        {"disabled": True},
        {"disabled": False, "game_url": None},
        {"game_url": "http://127.0.0.1/game"},  # on the host of this site
        None,  # deleted
    ):
        with subtests.test(change=change):
            edit(store.clients, game.id, **change) if change else store.clients.delete(game.id)
            page = adas_browser.get(f"/play/{game.id}")
            assert page.status_code == 404
            assert "This game was deleted or disabled." in page.text
            for fields in ({}, {"decision": "allow"}):
                assert refusal(request_code(adas_browser, game, signed, **fields)) == "invalid_app"
    assert faults.stored("codes") == {}


# -- the code -----------------------------------------------------------------------------------


def test_code_of_a_game_has_no_redirect_uri_and_no_email(adas_browser, ada, game, store):
    answer = allow(adas_browser, game)
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    code = answer.json["code"]
    assert answer.json == {"type": "authorized", "error": False, "code": code}
    for wrong in ({"redirect_uri": GAME}, {"redirect_uri": "/"}, {"code_verifier": "v" * 43}):
        assert game.exchange(code, **wrong).status_code == 400
    assert game.whois(game.token_for(code)).json["id"] == ada.id
    edit(store.users, ada.id, grants={game.id: Grant("a grant", ["userinfo", "email"], 1)})
    signed = open_game(adas_browser, game)
    for fields in ({}, {"decision": "allow"}):
        code = request_code(adas_browser, game, signed, **fields).json["code"]
        assert "email" not in game.whois(game.token_for(code)).json
    assert store.users.read(ada.id).grants[game.id] == Grant("a grant", ["userinfo", "email"], 1)


def test_game_is_asked_about_again_for_the_scope_join(store, adas_browser, ada, game):
    allow(adas_browser, game)
    signed = open_game(adas_browser, game)
    joins = {"scope": "userinfo email join"}
    assert refusal(request_code(adas_browser, game, signed, **joins)) == "consent_required"
    code = request_code(adas_browser, game, signed, **joins, decision="allow").json["code"]
    assert store.users.read(ada.id).grants[game.id].scope == ["userinfo", "join"]
    bearer = {"Authorization": f"Bearer {game.token_for(code)}"}
    answer = game.http.post("/api/tickets", data={"server": "a:1"}, headers=bearer)
    assert answer.status_code == 200
    assert request_code(adas_browser, game, signed, **joins).status_code == 200


def test_game_over_the_limit_of_codes_is_server_error(clock, adas_browser, game):
    allow(adas_browser, game)
    signed = open_game(adas_browser, game)
    for _ in range(CODES_A_MINUTE - 1):
        request_code(adas_browser, game, signed)
    answer = request_code(adas_browser, game, signed)
    assert (answer.status_code, refusal(answer)) == (429, "server_error")


def test_consent_is_required_until_given_and_if_withdrawn(store, adas_browser, ada, game, faults):
    for decision in ({}, {"decision": "deny"}, {"decision": ""}):
        answer = request_code(adas_browser, game, open_game(adas_browser, game), **decision)
        assert refusal(answer) == "consent_required"
    assert store.users.read(ada.id).grants == {}
    assert faults.stored("codes") == {}
    allow(adas_browser, game)
    signed = open_game(adas_browser, game)
    code = request_code(adas_browser, game, signed).json["code"]
    assert game.whois(game.token_for(code)).json["id"] == ada.id
    adas_browser.post("/account/apps/withdraw", data={"client_id": game.id})
    assert refusal(request_code(adas_browser, game, signed)) == "consent_required"


def test_request_signed_for_another_session_is_no_account(
    store, adas_browser, ada, bob, game, add_game, open_browser, faults, subtests
):
    bobs_browser = signed_in(open_browser(), "Bob")
    other = add_game("Other", "https://other.example/")
    old = open_game(adas_browser, game)
    edit(store.clients, game.id, game_url="https://space.example/elsewhere")
    wrong_requests = {
        "none": {},
        "other session": {"request": open_game(bobs_browser, game)},
        "other game": {"request": open_game(adas_browser, other)},
        "other address": {"request": old},
    }
    query = {"request": open_game(adas_browser, game), "decision": "allow"}  # is ignored
    path = f"/play/{game.id}/authorize"
    for grants in ({}, {game.id: Grant("a grant", ["userinfo"], 1)}):
        edit(store.users, ada.id, grants=grants)
        before = store.users.read(ada.id)
        for kind, sent in wrong_requests.items():
            with subtests.test(kind, allowed_before=bool(grants)):
                for form in (sent, sent | {"decision": "allow"}):
                    answer = adas_browser.post(path, data=form, query_string=query)
                    assert (answer.status_code, refusal(answer)) == (403, "no_account")
                assert store.users.read(ada.id) == before
    signed = open_game(adas_browser, game)
    adas_browser.post("/sign-out")
    answer = request_code(adas_browser, game, signed, decision="allow")
    assert (answer.status_code, refusal(answer)) == (403, "no_account")
    assert faults.stored("codes") == {}
    signed = open_game(adas_browser, game)
    adas_browser.post("/sign-out")
    answer = request_code(adas_browser, game, signed, decision="allow")
    assert (answer.status_code, refusal(answer)) == (403, "no_account")
    assert faults.stored("codes") == {}


def test_failed_write_is_server_error(adas_browser, game, faults):
    signed = open_game(adas_browser, game)
    for kind in ("codes", "users"):
        faults.refuse_saves(kind)
        answer = request_code(adas_browser, game, signed, decision="allow")
        assert (answer.status_code, refusal(answer)) == (503, "server_error")


# -- the home page ------------------------------------------------------------------------------


def cards(page: TestResponse) -> list[str]:
    return [each.text for each in parse(page).select("h3 bdi")]


def test_home_page_shows_listed_games_newest_first(browser, ada, add_game, store):
    described = {"owner_id": ada.id, "description": "Black <and> white."}
    add_game("zebra", "https://z.example/", created=1, **described)
    add_game("Ant", "https://a.example/", created=2)
    add_game("Bee", "https://b.example/", listed=False)
    disabled = add_game("Cat", "https://c.example/")
    edit(store.clients, disabled.id, disabled=True)
    store.clients.register("No game", ["https://n.example/"], None, listed=True)
    for visit in (lambda: None, browser.sign_in):
        visit()
        page = browser.get("/")
        assert cards(page) == ["Ant", "zebra"]
        assert "Black &lt;and&gt; white." in page.text
        assert f'href="/users/{ada.id}"' in page.text
        assert "/listed" not in page.text


@pytest.fixture
def moderators_browser(store, bob, open_browser) -> Browser:
    edit(store.users, bob.id, mod_level=MODERATOR)
    return signed_in(open_browser(), "Bob")


def test_moderator_lists_games(app, store, adas_browser, moderators_browser, ada, bob, add_game):
    game = add_game(owner_id=ada.id, listed=False)
    path, seen = f"/play/{game.id}/listed", {"game_url": GAME}
    assert adas_browser.post(path, data=seen | {"listed": "yes"}).status_code == 403
    for setting, offered in (("administrators", False), ("members", True)):
        app.config["CLIENT_REGISTRATION"] = setting
        page = adas_browser.get("/").text
        assert ("No games here yet." in page, "Add a game" in page) == (True, offered)
    assert cards(moderators_browser.get("/")) == ["Space Game"]
    page = parse(moderators_browser.get("/"))
    assert page.find(attrs={"name": "game_url"})["value"] == GAME
    assert GAME in [each.text for each in page.select("code")]
    for bad, status in (({"listed": "Yes"}, 400), ({"game_url": "https://old.example/"}, 409)):
        form = seen | {"listed": "yes"} | bad
        assert moderators_browser.post(path, data=form).status_code == status
        assert not store.clients.read(game.id).listed
    for listed, shown in (("yes", ["Space Game"]), ("no", [])):
        assert led_to(moderators_browser.post(path, data=seen | {"listed": listed})) == "/"
        assert cards(adas_browser.get("/")) == shown
    adas_browser.post("/sign-out")
    assert adas_browser.post(path).location.startswith("/sign-in")
