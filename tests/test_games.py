"""Games: the home page, the play page and the authorization code of the game flow."""

import html
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from conftest import Browser, Program, all_clients
from werkzeug.test import TestResponse

from identity.settings import check_game
from identity_server import CODES_A_MINUTE
from storage.errors import InvalidField, OriginTaken, StorageError, TooManyClients
from storage.records import ADMINISTRATOR, MODERATOR, Grant, Suspension
from storage.rules import check_description, check_game_url

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
    signed = re.search('data-request="([^"]*)"', page.text)
    return html.unescape(signed[1]) if signed else None


def request_code(
    browser: Browser, game: Program, signed: str | None, **fields: str
) -> TestResponse:
    """Send a request as the script of the play page does."""
    return browser.post(f"/play/{game.id}/authorize", data={"request": signed, **fields})


def allow(browser: Browser, game: Program) -> TestResponse:
    """Open the play page and allow the game."""
    return request_code(browser, game, open_game(browser, game), decision="allow")


def refusal(answer: TestResponse) -> str:
    """Return the reason of a refusal; check its format."""
    assert answer.json == {"type": "authorized", "error": True, "message": answer.json["message"]}
    return answer.json["message"]


# -- game URLs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "game_url",
    [
        *("https://space.example/", "http://localhost:5000/game?level=1", "http://127.0.0.1:5000"),
        *("https://123.example/", "https://1and1.example/", "https://0xyz.example/", None),
    ],
)
def test_http_game_url_is_valid(game_url):
    assert check_game_url(game_url) is None


@pytest.mark.parametrize(
    "game_url",
    [
        *("", "space.example", "/play", "//space.example/", "ftp://space.example/"),
        *("javascript:alert(1)", "data:text/html,x", "HTTPS://space.example/", "https:///play"),
        *(
            "https://ada@space.example/",
            "https://ada:pw@space.example/",
            "https://space.example/#x",
        ),
        *("https://spaçe.example/", "https://space.example/a b", "https://space.example\\@evil/"),
        *("https://space.example;script-src *", "https://*.example/", "https://space.example:x/"),
        *("https://space.example:99999/", f"https://space.example/{'a' * 2000}", "http://[::1]/"),
        # Browsers read all of these as 127.0.0.1.
        *("http://127.1/", "http://2130706433/", "http://0x7f.0.0.1/", "http://127.0.0.0X1:80/"),
        *("http://0177.0.0.1/", "http://127.0.0.01/", "http://017700000001/"),
    ],
)
def test_other_game_url_is_invalid(store, game_url):
    assert check_game_url(game_url)
    with pytest.raises(InvalidField) as refused:
        store.clients.register("Space Game", [], None, game_url=game_url)
    assert refused.value.field == "game_url"


@pytest.mark.parametrize("description", ["", "Shoot the rocks, für zwei.", "x" * 200])
def test_one_line_description_is_valid(description):
    assert check_description(description) is None


@pytest.mark.parametrize("description", ["x" * 201, "two\nlines", " x", "\x00", "a\u202eb"])
def test_long_or_multiline_description_is_invalid(description):
    assert check_description(description)


@pytest.mark.parametrize(
    ("game_url", "base_url", "accepted"),
    [
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
    ],
)
def test_game_url_on_the_own_host_or_mixed_content_is_refused(game_url, base_url, accepted):
    assert (check_game(game_url, base_url) is None) == accepted


@pytest.mark.parametrize(
    "same_origin",
    ["https://space.example/", "https://SPACE.example:443/other", "https://space.example:/x?y"],
)
def test_second_game_on_one_origin_is_refused(store, add_game, game, same_origin):
    with pytest.raises(OriginTaken):
        add_game("Other", same_origin)
    other = add_game("Other", "https://other.example/")
    with pytest.raises(OriginTaken), store.clients.edit(other.id) as client:
        client.game_url = same_origin
    assert store.clients.read(other.id).game_url == "https://other.example/"
    assert len(store.clients.ids()) == 2


@pytest.mark.parametrize("url", ["http://localhost:3000/", "http://127.0.0.1:3000/x"])
def test_several_games_may_be_on_one_loopback_origin(store, add_game, url):
    """It is another place on each developer's device."""
    games = [add_game(name, url).id for name in ("Space", "Chess")]
    assert {each.id for each in store.clients.games(listed=True)} == set(games)


def test_game_can_move_within_its_own_origin(store, game):
    with store.clients.edit(game.id) as client:
        client.game_url = "https://space.example/new"
    assert store.clients.read(game.id).game_url == "https://space.example/new"


def test_client_deletion_frees_its_origin(store, add_game, game):
    store.clients.delete(game.id)
    assert store.clients.read(add_game().id).game_url == GAME


def race(acts: list) -> list:
    """Call the functions at the same time; return their results or StorageErrors."""
    start = Barrier(len(acts))

    def run(act):
        start.wait()
        try:
            return act()
        except StorageError as error:
            return error

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(run, acts))


def test_racing_registrations_on_one_origin_register_one_game(store, add_game):
    other = add_game("Other", "https://other.example/")

    def move() -> None:
        with store.clients.edit(other.id) as client:
            client.game_url = GAME

    for _ in range(5):
        answers = race([add_game] * 3 + [move])
        assert [type(each) for each in answers].count(OriginTaken) == 3
        for client in all_clients(store):
            if client.id != other.id:
                store.clients.delete(client.id)
        with store.clients.edit(other.id) as client:
            client.game_url = "https://other.example/"


def test_racing_registrations_respect_the_client_limit(store, ada, bob):
    def add():
        return store.clients.register("Chess", [], ada.id, at_most=3)

    answers = race([add] * 8)
    assert [type(each) for each in answers].count(TooManyClients) == 5
    assert len(all_clients(store)) == 3
    store.clients.register("Chess", [], bob.id, at_most=3)


def test_client_record_without_game_fields_is_read(store, game, faults):
    faults.remove_client_fields(game.id, "game_url", "description", "listed")
    client = store.clients.read(game.id)
    assert (client.game_url, client.description, client.listed) == (None, "", False)


# -- the play page ------------------------------------------------------------------------------


def test_play_page_frames_only_the_game(adas_browser, game):
    page = adas_browser.get(f"/play/{game.id}")
    frames = re.findall("<iframe[^>]*>", page.text)
    assert len(frames) == 1
    attributes = dict(re.findall('([a-z-]+)="([^"]*)"', frames[0]))
    assert attributes["src"] == GAME
    assert attributes["sandbox"] == SANDBOX
    policy = page.headers["Content-Security-Policy"].split("; ")
    assert "frame-src https://space.example" in policy
    assert "connect-src 'self' https://space.example" in policy  # to see whether the game answers
    assert "frame-ancestors 'none'" in policy
    assert page.headers["Cache-Control"] == "no-store"


def test_other_pages_have_no_frame_src_or_connect_src(adas_browser, game):
    adas_browser.get(f"/play/{game.id}")
    for address in ("/", "/account", "/play/nothing"):
        policy = adas_browser.get(address).headers["Content-Security-Policy"]
        assert "frame-src" not in policy and "connect-src" not in policy


def test_play_page_shows_the_player_and_a_home_link(store, adas_browser, ada, game):
    page = adas_browser.get(f"/play/{game.id}").text
    assert f"/pfp/medium/{ada.id}-{ada.pfp_timestamp}.webp" in page
    assert ">Ada</bdi>" in page and 'href="/"' in page


def test_signed_out_play_page_shows_the_game_and_a_sign_in_link(browser, ada, game):
    assert open_game(browser, game) is None
    page = browser.get(f"/play/{game.id}").text
    address = re.search('href="(/sign-in[^"]*)"', page)[1]
    assert 'id="ask"' not in page
    answer = browser.sign_in(next=re.search("next=([^&]*)", address)[1])
    assert answer.location == f"/play/{game.id}"


@pytest.mark.parametrize("change", ["disabled", "deleted", "no game", "unknown", "moved here"])
def test_unavailable_game_is_404_and_invalid_app(store, adas_browser, game, faults, change):
    signed = open_game(adas_browser, game)
    if change == "deleted":
        store.clients.delete(game.id)
    elif change == "unknown":
        game.id = "0" * 24
    else:
        with store.clients.edit(game.id) as client:
            client.disabled = change == "disabled"
            moved = {"no game": None, "moved here": "http://127.0.0.1/game"}
            client.game_url = moved.get(change, GAME)
    page = adas_browser.get(f"/play/{game.id}")
    assert (page.status_code, "This game was deleted or disabled." in page.text) == (404, True)
    for fields in ({}, {"decision": "allow"}):
        assert refusal(request_code(adas_browser, game, signed, **fields)) == "invalid_app"
    assert faults.stored("codes") == {}


# -- the code -----------------------------------------------------------------------------------


def test_allow_returns_a_code_exchanged_without_redirect_uri(adas_browser, ada, game):
    answer = allow(adas_browser, game)
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    code = answer.json["code"]
    assert answer.json == {"type": "authorized", "error": False, "code": code}
    for wrong in ({"redirect_uri": GAME}, {"redirect_uri": "/"}, {"code_verifier": "v" * 43}):
        assert game.exchange(code, **wrong).status_code == 400
    assert game.whois(game.token_for(code)).json["id"] == ada.id


def test_game_flow_code_never_has_the_email_scope(store, adas_browser, ada, game):
    with store.users.edit(ada.id) as user:
        user.grants[game.id] = Grant("a grant", ["userinfo", "email"], 1)
    signed = open_game(adas_browser, game)
    for fields in ({}, {"decision": "allow"}):
        code = request_code(adas_browser, game, signed, **fields).json["code"]
        assert "email" not in game.whois(game.token_for(code)).json
    assert store.users.read(ada.id).grants[game.id] == Grant("a grant", ["userinfo", "email"], 1)


def test_game_over_the_limit_of_codes_is_server_error(clock, adas_browser, game):
    allow(adas_browser, game)
    signed = open_game(adas_browser, game)
    for _ in range(CODES_A_MINUTE - 1):
        request_code(adas_browser, game, signed)
    answer = request_code(adas_browser, game, signed)
    assert (answer.status_code, refusal(answer)) == (429, "server_error")


@pytest.mark.parametrize("decision", [{}, {"decision": "deny"}, {"decision": ""}])
def test_request_without_allow_is_consent_required(
    store, adas_browser, ada, game, faults, decision
):
    answer = request_code(adas_browser, game, open_game(adas_browser, game), **decision)
    assert refusal(answer) == "consent_required"
    assert store.users.read(ada.id).grants == {}
    assert faults.stored("codes") == {}


def test_consent_is_remembered_until_withdrawn(adas_browser, ada, game):
    allow(adas_browser, game)
    signed = open_game(adas_browser, game)
    code = request_code(adas_browser, game, signed).json["code"]
    assert game.whois(game.token_for(code)).json["id"] == ada.id
    adas_browser.post("/account/apps/withdraw", data={"client_id": game.id})
    assert refusal(request_code(adas_browser, game, signed)) == "consent_required"


def test_request_after_sign_out_or_suspension_is_no_account(store, adas_browser, ada, game, faults):
    signed = open_game(adas_browser, game)
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command")
    assert refusal(request_code(adas_browser, game, signed, decision="allow")) == "no_account"
    with store.users.edit(ada.id) as user:
        user.suspension = None
    adas_browser.post("/sign-out")
    answer = request_code(adas_browser, game, signed, decision="allow")
    assert (answer.status_code, refusal(answer)) == (403, "no_account")
    assert faults.stored("codes") == {}


@pytest.fixture(params=["none", "empty", "other session", "other game", "moved"])
def wrong_request(request, store, adas_browser, ada, bob, game, add_game, open_browser):
    """A signed request that is not valid for this session and this game."""
    signed = open_game(adas_browser, game)
    if request.param == "other session":
        bobs_browser = open_browser()
        bobs_browser.sign_in("Bob")
        return open_game(bobs_browser, game)
    if request.param == "other game":
        return open_game(adas_browser, add_game("Other", "https://other.example/"))
    if request.param == "moved":
        with store.clients.edit(game.id) as client:
            client.game_url = "https://space.example/elsewhere"
        return signed
    return {"none": None, "empty": ""}[request.param]


@pytest.mark.parametrize("allowed_before", [True, False])
def test_request_not_signed_for_this_session_and_game_is_no_account(
    store, adas_browser, ada, game, wrong_request, allowed_before, faults
):
    if allowed_before:
        with store.users.edit(ada.id) as user:
            user.grants[game.id] = Grant("a grant", ["userinfo"], 1)
    before = store.users.read(ada.id)
    sent = {} if wrong_request is None else {"request": wrong_request}
    for fields in ({}, {"decision": "allow"}):
        answer = adas_browser.post(f"/play/{game.id}/authorize", data=sent | fields)
        assert answer.status_code == 403
        assert refusal(answer) == "no_account"
    assert store.users.read(ada.id) == before
    assert faults.stored("codes") == {}


def test_authorize_request_in_the_query_gets_no_code(adas_browser, game):
    signed = open_game(adas_browser, game)
    query = {"request": signed, "decision": "allow"}
    assert adas_browser.get(f"/play/{game.id}/authorize", query_string=query).status_code == 405
    answer = adas_browser.post(f"/play/{game.id}/authorize", query_string=query)
    assert refusal(answer) == "no_account"


@pytest.mark.parametrize("kind", ["users", "codes"])
def test_failed_write_is_server_error(adas_browser, game, faults, kind):
    signed = open_game(adas_browser, game)
    faults.refuse_saves(kind)
    answer = request_code(adas_browser, game, signed, decision="allow")
    assert (answer.status_code, refusal(answer)) == (503, "server_error")


# -- the home page ------------------------------------------------------------------------------


def cards(page: TestResponse) -> list[str]:
    """Return the names of the games on a page, from top to bottom."""
    return re.findall(r"<h3><bdi>(.*?)</bdi></h3>", page.text)


def test_home_page_shows_listed_games_sorted_by_name(browser, ada, add_game, store):
    add_game("zebra", "https://z.example/", owner_id=ada.id, description="Black <and> white.")
    add_game("Ant", "https://a.example/")
    add_game("Bee", "https://b.example/", listed=False)
    disabled = add_game("Cat", "https://c.example/")
    with store.clients.edit(disabled.id) as client:
        client.disabled = True
    store.clients.register("No game", ["https://n.example/"], None, listed=True)
    for visit in (lambda: None, browser.sign_in):
        visit()
        page = browser.get("/")
        assert cards(page) == ["Ant", "zebra"]
        assert "Black &lt;and&gt; white." in page.text
        assert f'<a href="/users/{ada.id}"><bdi class="name">Ada</bdi></a>' in page.text
        assert "/listed" not in page.text
    page = page.text
    assert page.index("administrators") < page.index("zebra")


def test_games_are_paged_by_id_if_there_are_many(
    store, adas_browser, ada, add_game, monkeypatch, subtests
):
    monkeypatch.setattr("pages.games.GAMES_SHOWN", 3)
    with store.users.edit(ada.id) as user:
        user.mod_level = MODERATOR
    for listed in (True, False):
        for number in range(7):
            add_game(f"{listed} {number}", f"https://{listed}{number}.example/", listed=listed)
    for listed, words in ((True, "More games"), (False, "More games that are not listed")):
        with subtests.test(listed=listed):
            address, found = "/", []
            while address:
                page = adas_browser.get(address)
                found.append([name for name in cards(page) if name.startswith(str(listed))])
                more = re.search(f'<a href="([^"]+)">{words}</a>', page.text)
                address = more and more[1]
            by_id = [each.name for each in store.clients.games(listed)]
            assert found == [sorted(by_id[at : at + 3]) for at in (0, 3, 6)]


def test_home_page_without_games_offers_registration_if_allowed(
    app, adas_browser, add_game, moderators_browser
):
    add = '<a href="/developer">Add a game</a>'
    page = adas_browser.get("/").text
    assert ("No games here yet." in page, add in page) == (True, False)
    app.config["CLIENT_REGISTRATION"] = "members"
    assert add in adas_browser.get("/").text
    add_game(listed=False)
    assert "No games here yet." in adas_browser.get("/").text
    assert "No games here yet." not in moderators_browser.get("/").text


def test_signed_out_home_page_explains_the_site_and_links_to_sign_in(browser, ada):
    page = browser.get("/").text
    assert "One account for all our games" in page and 'href="/sign-in"' in page


@pytest.fixture
def moderators_browser(store, bob, open_browser) -> Browser:
    with store.users.edit(bob.id) as user:
        user.mod_level = MODERATOR
    browser = open_browser()
    browser.sign_in("Bob")
    return browser


def test_moderator_lists_and_unlists_a_game_with_audit_lines(
    store, browser, moderators_browser, ada, bob, add_game
):
    game = add_game(owner_id=ada.id, listed=False)
    assert cards(browser.get("/")) == []
    assert cards(moderators_browser.get("/")) == ["Space Game"]
    for listed, shown, act in (
        ("yes", ["Space Game"], "client listed"),
        ("yes", ["Space Game"], "client listed"),  # a no-op
        ("no", [], "client unlisted"),
    ):
        sent = {"listed": listed, "game_url": GAME}
        answer = moderators_browser.post(f"/play/{game.id}/listed", data=sent)
        assert (answer.status_code, answer.location) == (303, "/")
        assert cards(browser.get("/")) == shown
        line = list(store.audit.read())[-1]
        assert (line["act"], line["by"], line["client"]) == (act, bob.id, game.id)
        assert line["address"] == "127.0.0.1"
    assert [line["act"] for line in store.audit.read()] == ["client listed", "client unlisted"]


def test_listing_a_game_with_an_outdated_address_is_409(store, moderators_browser, ada, add_game):
    game = add_game(owner_id=ada.id, listed=False)
    seen = {"listed": "yes", "game_url": GAME}
    page = moderators_browser.get("/").text
    assert f'name="game_url" value="{GAME}"' in page
    assert f'<code dir="ltr">{GAME}</code>' in page
    with store.clients.edit(game.id) as client:
        client.game_url = "https://another.example/"
    assert moderators_browser.post(f"/play/{game.id}/listed", data=seen).status_code == 409
    assert not store.clients.read(game.id).listed


def test_only_moderators_list_games(store, browser, adas_browser, game):
    with store.clients.edit(game.id) as client:
        client.listed = False
    answer = adas_browser.post(f"/play/{game.id}/listed", data={"listed": "yes"})
    assert answer.status_code == 403
    adas_browser.post("/sign-out")
    answer = adas_browser.post(f"/play/{game.id}/listed", data={"listed": "yes"})
    assert answer.location.startswith("/sign-in")
    assert not store.clients.read(game.id).listed


@pytest.mark.parametrize("listed", ["", "Yes", "maybe"])
def test_invalid_listed_value_is_400_and_unknown_game_is_404(
    store, moderators_browser, game, listed
):
    answer = moderators_browser.post(f"/play/{game.id}/listed", data={"listed": listed})
    assert answer.status_code == 400
    assert store.clients.read(game.id).listed
    answer = moderators_browser.post(f"/play/{'0' * 24}/listed", data={"listed": "yes"})
    assert answer.status_code == 404


def test_game_of_a_deleted_player_is_not_the_administrators(
    store, adas_browser, ada, bob, add_game
):
    game = add_game(owner_id=bob.id)
    store.users.delete(bob.id)
    for path in (f"/play/{game.id}", "/"):
        assert "Registered by a player who left" in adas_browser.get(path).text
        assert "administrators" not in adas_browser.get(path).text
    assert adas_browser.get(f"/developer/{game.id}").status_code == 403
    with store.users.edit(ada.id) as user:
        user.mod_level = ADMINISTRATOR
    assert adas_browser.get(f"/developer/{game.id}").status_code == 200
