"""/developer: players register programs, manage them, and build links to try them out."""

import hashlib
import html
import re
import shlex
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import Browser, Program, all_clients
from werkzeug.test import TestResponse

from storage import ADMINISTRATOR, MODERATOR, Client

CALLBACK = "https://space.example/callback"
TYPED = {"name": "Space Game", "redirect_uris": CALLBACK}


@pytest.fixture
def app(make_app):
    """The app of a site where every member may register clients."""
    return make_app(CLIENT_REGISTRATION="members")


@pytest.fixture
def registered(store, adas_browser) -> Client:
    """Ada's client."""
    assert adas_browser.post("/developer", data=TYPED).status_code == 200
    return all_clients(store)[0]


@pytest.fixture
def bobs_browser(bob, open_browser) -> Browser:
    browser = open_browser()
    browser.sign_in("Bob")
    return browser


def promote(store, user_id: int, mod_level: int) -> None:
    with store.edit_user(user_id) as user:
        user.mod_level = mod_level


def secret_on(page: TestResponse) -> str | None:
    """The client secret that a page shows."""
    found = re.search(r'<code dir="ltr">([A-Za-z0-9_-]{43})</code>', page.text)
    return found[1] if found else None


def codes_on(page: TestResponse) -> list[str]:
    """What stands in the page's blocks of code."""
    found = re.findall("<pre.*?><code>(.*?)</code>", page.text, re.DOTALL)
    return [html.unescape(each) for each in found]


def problem_with(page: TestResponse, field: str) -> str | None:
    """What the page says is wrong with a field, to which it is tied."""
    found = re.search(f'<p class="problem" id="{field}-problem"[^>]*>(.*?)</p>', page.text)
    if found and field != "form":
        assert re.search(f'id="{field}"[^>]* aria-describedby="{field}-problem', page.text)
    return html.unescape(found[1]) if found else None


# -- who may ------------------------------------------------------------------------------------


def test_by_default_administrators_alone_register_clients(make_app, store, ada):
    app = make_app()
    browser = Browser(app, app.response_class)
    browser.sign_in()
    for mod_level, status in ((0, 403), (MODERATOR, 403), (ADMINISTRATOR, 200)):
        promote(store, ada.id, mod_level)
        assert browser.get("/developer").status_code == status
        assert browser.post("/developer", data=TYPED).status_code == status
        assert ('href="/developer"' in browser.get("/").text) == (status == 200)
    assert len(all_clients(store)) == 1


def test_members_may_where_the_setting_says_so(store, adas_browser):
    assert adas_browser.get("/developer").status_code == 200
    assert 'href="/developer"' in adas_browser.get("/").text


def test_signed_out_one_is_sent_to_sign_in_and_comes_back(browser, registered):
    browser.post("/sign-out")
    for page in ("", f"/{registered.id}", f"/{registered.id}/link"):
        answer = browser.get(f"/developer{page}")
        assert (answer.status_code, answer.location.split("?")[0]) == (303, "/sign-in")
    assert browser.post("/developer", data=TYPED).status_code == 303


ACTS = ["", "/secret", "/disable", "/enable", "/delete"]


@pytest.mark.parametrize("act", ACTS)
def test_nobody_touches_the_client_of_another_player(store, bobs_browser, bob, registered, act):
    promote(store, bob.id, MODERATOR)
    assert bobs_browser.post(f"/developer/{registered.id}{act}", data=TYPED).status_code == 403
    for page in ("", "/link"):
        answer = bobs_browser.get(f"/developer/{registered.id}{page}")
        assert (answer.status_code, CALLBACK in answer.text) == (403, False)
    assert registered.id not in bobs_browser.get("/developer").text
    assert store.read_client(registered.id) == registered


def test_administrators_manage_all_clients(store, bobs_browser, bob, registered):
    promote(store, bob.id, ADMINISTRATOR)
    assert registered.id in bobs_browser.get("/developer").text
    bobs_browser.post(f"/developer/{registered.id}", data=TYPED | {"name": "Space Club"})
    bobs_browser.post(f"/developer/{registered.id}/disable")
    client = store.read_client(registered.id)
    assert (client.name, client.disabled, client.owner_id) == (
        "Space Club",
        True,
        registered.owner_id,
    )


@pytest.mark.parametrize("client_id", ["0" * 24, "x", "..%2F..%2Fusers%2F1"])
def test_an_unknown_client_is_404(adas_browser, client_id):
    for act in ACTS[1:]:
        assert adas_browser.post(f"/developer/{client_id}{act}").status_code == 404
    for page in ("", "/link"):
        assert adas_browser.get(f"/developer/{client_id}{page}").status_code == 404


def test_many_clients_are_paged_by_id_after_those_of_administrators(
    store, adas_browser, bobs_browser, ada, bob, monkeypatch, clock
):
    def add(owner_id: int | None) -> Client:
        clock.ahead += 1
        return store.add_client("Chess", [CALLBACK], owner_id)[0]

    def shown(address: str) -> tuple[list[str], str | None]:
        page = adas_browser.get(address)
        more = re.search('href="(/developer[?]after=[^"]*)">More<', page.text)
        return re.findall("<code>([0-9a-f]{24})</code>", page.text), more and more[1]

    monkeypatch.setattr("pages.developer.CLIENTS_SHOWN", 3)
    promote(store, ada.id, ADMINISTRATOR)
    owners = (bob.id, None, bob.id, ada.id, bob.id, bob.id, bob.id)
    added = list(map(add, owners[:3]))
    assert shown("/developer") == ([each.id for each in added], None)  # oldest first
    added += list(map(add, owners[3:]))
    by_id, first = store.client_ids(), [added[3].id, added[1].id]
    page, more = shown("/developer")
    assert page == first + [each for each in by_id[:3] if each not in first]
    page, more = shown(more)
    assert (page, more) == (by_id[3:6], f"/developer?after={by_id[5]}")
    assert shown(more) == (by_id[6:], None)
    assert "More" not in bobs_browser.get("/developer").text
    assert len(re.findall("<code>[0-9a-f]{24}</code>", bobs_browser.get("/developer").text)) == 5


def test_damaged_client_hides_no_other(store, adas_browser, ada, registered, faults):
    promote(store, ada.id, ADMINISTRATOR)
    damaged, _ = store.add_client("Chess", [CALLBACK], None)
    faults.damage_client(damaged.id)
    page = adas_browser.get("/developer").text
    assert registered.id in page and damaged.id not in page


# -- registering --------------------------------------------------------------------------------


def test_a_client_is_registered_as_typed_and_its_secret_shown_this_once(
    store, adas_browser, ada, anyone
):
    typed = {
        "name": " Space Game ",
        "redirect_uris": f"\r\n{CALLBACK}\r\n http://127.0.0.1:5000/ \r\n{CALLBACK}",
        "game_url": " https://space.example/play ",
        "description": " Shoot the rocks. ",
    }
    page = adas_browser.post("/developer", data=typed)
    [client] = all_clients(store)
    assert (client.name, client.description) == ("Space Game", "Shoot the rocks.")
    assert client.redirect_uris == [CALLBACK, "http://127.0.0.1:5000/"]
    assert (client.game_url, client.owner_id) == ("https://space.example/play", ada.id)
    assert not client.listed  # a moderator does that
    secret = secret_on(page)
    assert client.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()
    assert page.headers["Cache-Control"] == "no-store"
    assert [(each["act"], each["by"]) for each in store.read_audit()] == [("client add", ada.id)]
    assert secret not in adas_browser.get(f"/developer/{client.id}").text
    program = Program(anyone, client.id, secret, CALLBACK)
    assert program.whois(program.token_for(adas_browser.allow(program))).json["id"] == ada.id


def test_an_administrators_own_game_is_listed_at_once(store, adas_browser, ada):
    promote(store, ada.id, ADMINISTRATOR)
    adas_browser.post("/developer", data={"name": "Chess", "game_url": "https://chess.example/"})
    assert all_clients(store)[0].listed


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        *(("name", ""), ("name", "x" * 61), ("name", "two\nlines")),
        *(("redirect_uris", ""), ("redirect_uris", f"{CALLBACK}\nftp://space.example/")),
        *(("redirect_uris", "https://space.example/#x"), ("game_url", "space.example")),
        *(("game_url", "http://localhost/game"), ("game_url", "http://127.1/")),
        *(("description", "x" * 201), ("description", "two\nlines")),
    ],
)
@pytest.mark.parametrize("changing", [False, True])
def test_an_error_stands_by_its_field_and_what_was_typed_is_kept(
    store, adas_browser, registered, field, typed, changing
):
    address = f"/developer/{registered.id}" if changing else "/developer"
    sent = TYPED | {"name": "<Other>", "description": "A & B"} | {field: typed}
    page = adas_browser.post(address, data=sent)
    assert page.status_code == 400
    assert problem_with(page, field).endswith(".")
    for each in sent.values():
        assert html.escape(each, quote=False) in page.text
    assert "<title>Problem: " in page.text
    assert all_clients(store) == [registered]


@pytest.mark.parametrize("changing", [False, True])
def test_a_game_on_the_origin_of_another_is_refused_by_its_field(
    store, adas_browser, registered, changing
):
    store.add_client("Chess", [], None, game_url="https://chess.example/")
    address = f"/developer/{registered.id}" if changing else "/developer"
    page = adas_browser.post(address, data=TYPED | {"game_url": "https://chess.example/mine"})
    assert page.status_code == 409
    assert (
        problem_with(page, "game_url")
        == "Another game is on the same origin. Use another host or port."
    )
    assert len(all_clients(store)) == 2


def test_a_member_has_ten_clients_at_most_and_an_administrator_any_number(
    store, adas_browser, ada, bobs_browser
):
    for _ in range(10):
        assert adas_browser.post("/developer", data=TYPED).status_code == 200
    page = adas_browser.post("/developer", data=TYPED)
    assert page.status_code == 409
    assert "up to 10 apps" in page.text
    assert problem_with(page, "form").startswith("One player may have 10 apps.")
    assert bobs_browser.post("/developer", data=TYPED).status_code == 200
    promote(store, ada.id, ADMINISTRATOR)
    assert "up to 10 apps" not in adas_browser.get("/developer").text
    assert adas_browser.post("/developer", data=TYPED).status_code == 200
    assert len(all_clients(store)) == 12


# -- changing -----------------------------------------------------------------------------------


def test_a_client_is_changed_as_typed(store, adas_browser, registered):
    typed = {"name": "Chess", "redirect_uris": "", "game_url": "https://chess.example/"}
    answer = adas_browser.post(f"/developer/{registered.id}", data=typed)
    assert (answer.status_code, answer.location) == (303, f"/developer/{registered.id}")
    client = store.read_client(registered.id)
    assert (client.name, client.redirect_uris) == ("Chess", [])
    assert client.game_url == "https://chess.example/"
    assert "App saved." in adas_browser.get(answer.location).text
    adas_browser.post(f"/developer/{registered.id}", data=TYPED)
    assert store.read_client(registered.id).game_url is None


@pytest.mark.parametrize(
    ("mod_level", "game_url", "listed"),
    [
        (0, "https://space.example/new", False),
        (0, "https://space.example/play", True),
        (MODERATOR, "https://space.example/new", True),
    ],
)
def test_a_listed_game_that_moves_has_to_be_listed_anew(
    store, adas_browser, ada, registered, mod_level, game_url, listed
):
    promote(store, ada.id, mod_level)
    with store.edit_client(registered.id) as client:
        client.game_url, client.listed = "https://space.example/play", True
    adas_browser.post(f"/developer/{registered.id}", data=TYPED | {"game_url": game_url})
    client = store.read_client(registered.id)
    assert (client.game_url, client.listed) == (game_url, listed)


def test_a_new_secret_is_shown_this_once_and_the_old_one_ends(
    store, adas_browser, ada, registered, anyone
):
    page = adas_browser.post(f"/developer/{registered.id}/secret")
    secret = secret_on(page)
    kept = store.read_client(registered.id).secret_sha256
    assert kept == hashlib.sha256(secret.encode()).hexdigest() != registered.secret_sha256
    assert page.headers["Cache-Control"] == "no-store"
    assert secret_on(adas_browser.get(f"/developer/{registered.id}")) is None
    line = list(store.read_audit())[-1]
    assert (line["act"], line["by"]) == ("client new-secret", ada.id)


def test_a_client_is_switched_off_and_on_with_lines_in_the_audit_log(
    store, adas_browser, ada, registered
):
    for act, disabled in (("disable", True), ("disable", True), ("enable", False)):
        answer = adas_browser.post(f"/developer/{registered.id}/{act}")
        assert answer.status_code == 303
        assert store.read_client(registered.id).disabled == disabled
    lines = [(each["act"], each["by"], each.get("address")) for each in store.read_audit()][1:]
    assert lines == [(f"client {act}", ada.id, "127.0.0.1") for act in ("disable", "enable")]


def test_what_an_administrator_switched_off_its_owner_cannot_switch_on(
    store, adas_browser, bobs_browser, bob, registered
):
    promote(store, bob.id, ADMINISTRATOR)
    bobs_browser.post(f"/developer/{registered.id}/disable")
    page = adas_browser.post(f"/developer/{registered.id}/enable")
    assert (page.status_code, "An administrator disabled this app." in page.text) == (403, True)
    assert store.read_client(registered.id).disabled
    bobs_browser.post(f"/developer/{registered.id}/enable")
    assert not store.read_client(registered.id).disabled


def test_what_its_owner_switched_off_an_administrator_keeps_off(
    store, adas_browser, bobs_browser, bob, registered
):
    promote(store, bob.id, ADMINISTRATOR)
    path = f"/developer/{registered.id}"
    adas_browser.post(f"{path}/disable")
    assert "Keep disabled" not in adas_browser.get(path).text
    assert "Keep disabled" in bobs_browser.get(path).text
    for _ in range(2):
        bobs_browser.post(f"{path}/disable")
    assert [line["by"] for line in store.read_audit()][1:] == [registered.owner_id, bob.id]
    assert "Keep disabled" not in bobs_browser.get(path).text
    assert adas_browser.post(f"{path}/enable").status_code == 403
    assert store.read_client(registered.id).disabled


def test_a_deleted_client_is_gone_with_a_line_in_the_audit_log(
    store, adas_browser, ada, registered
):
    answer = adas_browser.post(f"/developer/{registered.id}/delete")
    assert (answer.status_code, answer.location) == (303, "/developer")
    assert all_clients(store) == []
    line = list(store.read_audit())[-1]
    assert (line["act"], line["by"], line["client"]) == ("client delete", ada.id, registered.id)


@pytest.mark.parametrize("act", ACTS)
def test_client_save_failure_is_503_page(adas_browser, registered, faults, act):
    faults.refuse_saves("clients")
    page = adas_browser.post(f"/developer/{registered.id}{act}", data=TYPED)
    assert page.status_code == 503
    assert "Nothing was saved." in page.text


# -- links to try out ---------------------------------------------------------------------------


def build(browser: Browser, client: Client, **query: str) -> tuple[str, list[str], list[str]]:
    """The address, and the words of the commands that exchange the code and ask who it is."""
    page = browser.get(f"/developer/{client.id}/link", query_string=query)
    address, *commands = codes_on(page)
    assert f'href="{html.escape(address)}"' in page.text
    exchange, whois = (shlex.split(each.replace("\\\n", "")) for each in commands)
    return address, exchange, whois


@pytest.mark.parametrize("pkce", ["yes", "no"])
@pytest.mark.parametrize("scope", ["userinfo", "userinfo email"])
def test_the_link_and_the_command_work_together(
    store, adas_browser, ada, anyone, registered, pkce, scope
):
    with store.edit_client(registered.id) as client:
        client.redirect_uris.append("http://127.0.0.1:5000/?a=$HOME&b=(2);c")
    secret = store.issue_client_secret(registered.id)
    redirect_uri = client.redirect_uris[-1]
    query = {"scope": scope, "redirect_uri": redirect_uri, "state": "a b&c", "pkce": pkce}
    address, exchange, whois = build(adas_browser, registered, **query)
    assert address.startswith("http://localhost/oauth/authorize?")
    assert ("code_challenge" in address) == (pkce == "yes")
    program = Program(anyone, registered.id, secret, redirect_uri)
    told = program.read_callback(adas_browser.decide(adas_browser.get(address)))
    assert told["state"] == "a b&c"
    assert exchange[:2] == ["curl", "http://localhost/api/oauth/token"]
    form = dict(each.split("=", 1) for each in exchange[3::2])
    assert set(exchange[2::2]) == {"--data-urlencode"}
    assert ("code_verifier" in form) == (pkce == "yes")
    form |= {"code": told["code"], "client_secret": secret}
    token = anyone.post("/api/oauth/token", data=form).json["access_token"]
    assert ("email" in program.whois(token).json) == ("email" in scope)
    assert whois == [
        *("curl", "http://localhost/api/oauth/whois"),
        *("-H", "Authorization: Bearer ACCESS_TOKEN"),
    ]


def test_without_a_choice_the_link_has_a_state_and_pkce_of_its_own(adas_browser, registered):
    addresses = [build(adas_browser, registered)[0] for _ in range(2)]
    for address in addresses:
        query = parse_qs(urlsplit(address).query)
        assert query["redirect_uri"] == [CALLBACK]
        assert query["code_challenge_method"] == ["S256"]
    states, challenges = (
        {parse_qs(urlsplit(each).query)[name][0] for each in addresses}
        for name in ("state", "code_challenge")
    )
    assert (len(states), len(challenges)) == (2, 2)


def test_a_link_may_have_no_state(adas_browser, registered):
    assert "state=" not in build(adas_browser, registered, state="")[0]


def test_what_is_typed_into_the_link_stays_text(adas_browser, registered):
    typed = "\"><script>alert('x')</script>"
    page = adas_browser.get(f"/developer/{registered.id}/link", query_string={"state": typed})
    assert "<script>" not in page.text
    assert "%3Cscript%3E" in codes_on(page)[0]


def test_a_client_without_redirect_uri_has_no_link_but_a_games_question(
    store, adas_browser, registered
):
    typed = {"name": "Chess", "game_url": "https://chess.example/"}
    adas_browser.post(f"/developer/{registered.id}", data=typed)
    assert adas_browser.get(f"/developer/{registered.id}/link").status_code == 404
    page = adas_browser.get(f"/developer/{registered.id}")
    question, exchange = codes_on(page)
    assert f'client_id: "{registered.id}"' in question
    assert '"http://localhost"' in question
    assert "redirect_uri" not in exchange
