"""/developer: players register and manage apps."""

import hashlib
import html
import json
import re

import pytest
from conftest import Browser, Program, all_clients
from werkzeug.test import TestResponse

from storage.records import ADMINISTRATOR, MODERATOR, Client

CALLBACK = "https://space.example/callback"
FORM = {"kind": "confidential", "name": "Space Game", "redirect_uris": CALLBACK}


@pytest.fixture
def app(make_app):
    """An app whose members may register OAuth clients."""
    return make_app(CLIENT_REGISTRATION="members")


@pytest.fixture
def registered(store, adas_browser) -> Client:
    """Ada's OAuth client."""
    assert adas_browser.post("/developer", data=FORM).status_code == 201
    return all_clients(store)[0]


@pytest.fixture
def bobs_browser(bob, open_browser) -> Browser:
    browser = open_browser()
    browser.sign_in("Bob")
    return browser


def promote(store, user_id: int, mod_level: int) -> None:
    with store.users.edit(user_id) as user:
        user.mod_level = mod_level


def find_secret(page: TestResponse) -> str | None:
    """Return the client secret on a page, or None."""
    found = re.search(r'<code dir="ltr"[^>]*>([A-Za-z0-9_-]{43})</code>', page.text)
    return found[1] if found else None


def code_blocks(page: TestResponse) -> list[str]:
    """Return the text of each code block of a page."""
    found = re.findall("<pre.*?><code>(.*?)</code>", page.text, re.DOTALL)
    return [html.unescape(each) for each in found]


def find_problem(page: TestResponse, field: str) -> str | None:
    """Return the error of a field or None; check that the field refers to it."""
    found = re.search(f'<p class="problem" id="{field}-problem"[^>]*>(.*?)</p>', page.text)
    if found and field != "form":
        assert re.search(f'id="{field}"[^>]* aria-describedby="{field}-problem', page.text)
    return html.unescape(found[1]) if found else None


# -- rights --------------------------------------------------------------------------------------


def test_only_administrators_register_apps_by_default(make_app, store, ada):
    app = make_app()
    browser = Browser(app, app.response_class)
    browser.sign_in()
    for mod_level, status in ((0, 403), (MODERATOR, 403), (ADMINISTRATOR, 200)):
        promote(store, ada.id, mod_level)
        assert browser.get("/developer").status_code == status
        assert browser.post("/developer", data=FORM).status_code == (201 if status == 200 else 403)
        assert ('href="/developer"' in browser.get("/").text) == (status == 200)
    assert len(all_clients(store)) == 1


def test_signed_out_request_redirects_to_sign_in(browser, registered):
    browser.post("/sign-out")
    for page in ("", f"/{registered.id}", f"/{registered.id}/try"):
        answer = browser.get(f"/developer{page}")
        assert (answer.status_code, answer.location.split("?")[0]) == (303, "/sign-in")
    assert browser.post("/developer", data=FORM).status_code == 303


ACTS = ["", "/secret", "/disable", "/enable", "/delete"]


@pytest.mark.parametrize("act", ACTS)
def test_app_of_another_player_is_403(store, bobs_browser, bob, registered, act):
    promote(store, bob.id, MODERATOR)
    assert bobs_browser.post(f"/developer/{registered.id}{act}", data=FORM).status_code == 403
    for page in ("", "/try"):
        answer = bobs_browser.get(f"/developer/{registered.id}{page}")
        assert (answer.status_code, CALLBACK in answer.text) == (403, False)
    assert registered.id not in bobs_browser.get("/developer").text
    assert store.clients.read(registered.id) == registered


def test_administrators_manage_all_apps(store, bobs_browser, bob, registered):
    promote(store, bob.id, ADMINISTRATOR)
    assert registered.id in bobs_browser.get("/developer").text
    bobs_browser.post(f"/developer/{registered.id}", data=FORM | {"name": "Space Club"})
    bobs_browser.post(f"/developer/{registered.id}/disable")
    client = store.clients.read(registered.id)
    assert (client.name, client.disabled, client.owner_id) == (
        "Space Club",
        True,
        registered.owner_id,
    )


@pytest.mark.parametrize("client_id", ["0" * 24, "x", "..%2F..%2Fusers%2F1"])
def test_unknown_app_is_404(adas_browser, client_id):
    for act in ACTS[1:]:
        assert adas_browser.post(f"/developer/{client_id}{act}").status_code == 404
    for page in ("", "/try"):
        assert adas_browser.get(f"/developer/{client_id}{page}").status_code == 404


def test_administrator_list_is_paged_with_own_apps_first(
    store, adas_browser, bobs_browser, ada, bob, monkeypatch, clock
):
    def add(owner_id: int | None) -> Client:
        clock.shift(1)
        return store.clients.register("Chess", [CALLBACK], owner_id)[0]

    def shown(address: str) -> tuple[list[str], str | None]:
        page = adas_browser.get(address)
        more = re.search('href="(/developer[?]after=[^"]*)">More<', page.text)
        return re.findall("<code[^>]*>([0-9a-f]{24})</code>", page.text), more and more[1]

    monkeypatch.setattr("pages.developer.CLIENTS_SHOWN", 3)
    promote(store, ada.id, ADMINISTRATOR)
    owners = (bob.id, None, bob.id, ada.id, bob.id, bob.id, bob.id)
    added = list(map(add, owners[:3]))
    assert shown("/developer") == ([each.id for each in added], None)  # oldest first
    added += list(map(add, owners[3:]))
    by_id, first = store.clients.ids(), [added[3].id, added[1].id]
    page, more = shown("/developer")
    assert page == first + [each for each in by_id[:1] if each not in first]
    page, more = shown(more)
    assert (page, more) == (by_id[1:4], f"/developer?after={by_id[3]}")
    assert shown(more) == (by_id[4:], None)
    assert "More" not in bobs_browser.get("/developer").text
    assert (
        len(re.findall("<code[^>]*>[0-9a-f]{24}</code>", bobs_browser.get("/developer").text)) == 5
    )


def test_damaged_app_is_skipped_in_the_list(store, adas_browser, ada, registered, faults):
    promote(store, ada.id, ADMINISTRATOR)
    damaged, _ = store.clients.register("Chess", [CALLBACK], None)
    faults.damage_client(damaged.id)
    page = adas_browser.get("/developer").text
    assert registered.id in page and damaged.id not in page


# -- registering --------------------------------------------------------------------------------


def test_registration_saves_the_input_and_shows_the_secret_once(store, adas_browser, ada, anyone):
    typed = {
        "kind": "confidential",
        "name": " Space Game ",
        "redirect_uris": f"\r\n{CALLBACK}\r\n http://127.0.0.1:5000/ \r\n{CALLBACK}",
        "game_url": " https://space.example/play ",
        "description": " Shoot the rocks. ",
    }
    page = adas_browser.post("/developer", data=typed)
    [client] = all_clients(store)
    assert (page.status_code, page.location) == (201, f"/developer/{client.id}")
    assert (client.name, client.description) == ("Space Game", "Shoot the rocks.")
    assert client.redirect_uris == [CALLBACK, "http://127.0.0.1:5000/"]
    assert (client.game_url, client.owner_id) == ("https://space.example/play", ada.id)
    assert not client.listed  # only moderators list a member's game
    secret = find_secret(page)
    assert client.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()
    assert page.headers["Cache-Control"] == "no-store"
    assert [(each["act"], each["by"]) for each in store.audit.read()] == [("client add", ada.id)]
    assert secret not in adas_browser.get(page.location).text
    assert len(all_clients(store)) == 1
    program = Program(anyone, client.id, secret, CALLBACK)
    assert program.whois(program.token_for(adas_browser.allow(program))).json["id"] == ada.id


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
def test_field_error_is_400_and_keeps_the_input(
    store, adas_browser, registered, field, typed, changing
):
    address = f"/developer/{registered.id}" if changing else "/developer"
    sent = FORM | {"name": "<Other>", "description": "A & B"} | {field: typed}
    page = adas_browser.post(address, data=sent)
    assert page.status_code == 400
    assert find_problem(page, field).endswith(".")
    for each in sent.values():
        assert html.escape(each, quote=False) in page.text
    assert "<title>Problem: " in page.text
    assert all_clients(store) == [registered]


@pytest.mark.parametrize("changing", [False, True])
def test_game_on_a_taken_origin_is_409(store, adas_browser, registered, changing):
    store.clients.register("Chess", [], None, game_url="https://chess.example/")
    address = f"/developer/{registered.id}" if changing else "/developer"
    page = adas_browser.post(address, data=FORM | {"game_url": "https://chess.example/mine"})
    assert page.status_code == 409
    assert (
        find_problem(page, "game_url")
        == "Another game is on the same origin. Use another host or port."
    )
    assert len(all_clients(store)) == 2


@pytest.mark.parametrize("changing", [False, True])
def test_administrator_frees_an_origin_that_another_app_has(
    store, adas_browser, ada, bob, registered, changing
):
    """Any member could have registered the address of somebody else's game."""
    promote(store, ada.id, ADMINISTRATOR)
    address = f"/developer/{registered.id}" if changing else "/developer"
    form = FORM | {"game_url": "https://chess.example/"}
    squatter, _ = store.clients.register("Squat", [CALLBACK], bob.id, game_url=form["game_url"])
    page = adas_browser.post(address, data=form)
    assert find_problem(page, "game_url").startswith("Squat, registered by Bob, is at this origin.")
    assert store.clients.read(squatter.id) == squatter
    freed = {"name": "Squat", "redirect_uris": CALLBACK}
    assert adas_browser.post(f"/developer/{squatter.id}", data=freed).status_code == 303
    answer = adas_browser.post(address, data=form)
    assert answer.status_code == (303 if changing else 201)
    taken = store.clients.read(answer.location.rpartition("/")[2])
    assert (taken.game_url, store.clients.read(squatter.id).game_url) == (form["game_url"], None)


def test_member_does_not_learn_which_app_has_an_origin(store, adas_browser, bob, registered):
    squatter, _ = store.clients.register("Squat", [], bob.id, game_url="https://chess.example/")
    form = FORM | {"game_url": "https://chess.example/"}
    page = adas_browser.post("/developer", data=form)
    assert (page.status_code, "Squat" in page.text) == (409, False)
    assert store.clients.read(squatter.id) == squatter


def test_pkce_and_email_are_chosen_at_the_registration_and_later(store, adas_browser):
    fresh = adas_browser.get("/developer").text
    assert re.findall('name="(\\w+)" value="yes"( checked)?', fresh) == [
        *(("require_pkce", " checked"), ("no_email", ""))
    ]
    path = adas_browser.post("/developer", data=FORM | {"require_pkce": "yes"}).location
    [client] = all_clients(store)
    assert (client.require_pkce, client.no_email) == (True, False)
    adas_browser.post(path, data=FORM | {"no_email": "yes"})
    client = store.clients.read(client.id)
    assert (client.require_pkce, client.no_email) == (False, True)
    assert re.findall('name="(\\w+)" value="yes"( checked)?', adas_browser.get(path).text) == [
        *(("require_pkce", ""), ("no_email", " checked"))
    ]


@pytest.mark.parametrize("name", ["Identity Server", "ldentity Server!", "Admın", "Staff"])
def test_only_administrators_give_an_app_a_name_like_the_sites(
    store, adas_browser, ada, registered, name
):
    for path in ("/developer", f"/developer/{registered.id}"):
        page = adas_browser.post(path, data=FORM | {"name": name})
        assert find_problem(page, "name") == "This name is reserved. Choose another one."
    with store.clients.edit(registered.id) as client:
        client.name = name  # of an older version, or by an administrator
    adas_browser.post(f"/developer/{registered.id}", data=FORM | {"name": name, "description": "x"})
    assert store.clients.read(registered.id).description == "x"
    promote(store, ada.id, ADMINISTRATOR)
    adas_browser.post("/developer", data=FORM | {"name": name})
    assert [each.name for each in all_clients(store)] == [name, name]


def test_app_over_the_limit_of_a_member_is_409(store, adas_browser, ada):
    for _ in range(10):
        store.clients.register("Chess", [CALLBACK], ada.id)
    page = adas_browser.post("/developer", data=FORM)
    assert page.status_code == 409
    assert "up to 10 apps" in page.text
    assert find_problem(page, "form").startswith("One player may have 10 apps.")
    promote(store, ada.id, ADMINISTRATOR)
    assert "up to 10 apps" not in adas_browser.get("/developer").text
    assert len(all_clients(store)) == 10


# -- the two kinds ------------------------------------------------------------------------------

PUBLIC = FORM | {"kind": "public", "redirect_uris": "org.example.game:/callback"}


def test_public_app_is_registered_without_a_secret(store, adas_browser, anyone):
    typed = PUBLIC | {"redirect_uris": f"{CALLBACK}\nhttp://127.0.0.1/callback"}
    answer = adas_browser.post("/developer", data=typed)
    [client] = all_clients(store)
    assert (client.public, client.secret_sha256) == (True, "")
    page = adas_browser.get(answer.location)
    assert "App registered." in page.text
    assert find_secret(page) is None
    assert "Create new secret" not in page.text
    assert "public" in page.text and "confidential" not in page.text


@pytest.mark.parametrize("kind", [None, "", "x", "Public"])
def test_kind_must_be_chosen(store, adas_browser, kind):
    typed = {name: each for name, each in (FORM | {"kind": kind}).items() if each is not None}
    page = adas_browser.post("/developer", data=typed)
    assert page.status_code == 400
    assert find_problem(page, "kind") == "Choose where your app runs."
    assert FORM["name"] in page.text and not re.search(
        "<input type=.radio.[^>]* checked", page.text
    )
    assert all_clients(store) == []


def test_refused_registration_keeps_the_kind(adas_browser):
    for kind in ("public", "confidential"):
        page = adas_browser.post("/developer", data=FORM | {"kind": kind, "name": ""})
        assert re.findall('value="([a-z]*)" required checked', page.text) == [kind]


@pytest.mark.parametrize(
    ("kind", "uri", "works"),
    [
        ("public", "org.example.game:/callback", True),
        ("public", "http://127.0.0.1/callback", True),
        ("public", "http://space.example/callback", False),
        ("confidential", "org.example.game:/callback", False),
        ("confidential", "http://space.example/callback", True),
    ],
)
def test_redirect_uris_depend_on_the_kind(store, adas_browser, kind, uri, works):
    """Also when they are changed later."""
    answer = adas_browser.post("/developer", data=FORM | {"kind": kind, "redirect_uris": uri})
    assert (answer.status_code == 400) != works
    adas_browser.post("/developer", data=FORM | {"kind": kind})
    *_, client = all_clients(store)
    answer = adas_browser.post(f"/developer/{client.id}", data=FORM | {"redirect_uris": uri})
    assert answer.status_code == (303 if works else 400)
    if not works:
        assert find_problem(answer, "redirect_uris").startswith(f"'{uri}': ")


def test_kind_cannot_be_changed_on_the_page(store, adas_browser):
    for kind, other in (("public", "confidential"), ("confidential", "public")):
        path = adas_browser.post("/developer", data=FORM | {"kind": kind}).location
        page = adas_browser.get(path)
        assert 'name="kind"' not in page.text
        assert '<a href="/developer">register a new app</a>' in page.text
        adas_browser.post(path, data=FORM | {"kind": other, "public": "yes"})
        assert store.clients.read(path.rpartition("/")[2]).public == (kind == "public")


def test_public_app_gets_no_secret_later(store, adas_browser):
    path = adas_browser.post("/developer", data=PUBLIC).location
    page = adas_browser.post(f"{path}/secret")
    assert page.status_code == 400
    assert "A public app has no secret." in page.text
    assert all_clients(store)[0].secret_sha256 == ""
    assert [each["act"] for each in store.audit.read()] == ["client add"]


def test_code_for_a_game_depends_on_the_kind(store, adas_browser):
    game = {"name": "Chess", "redirect_uris": "", "game_url": "https://chess.example/"}
    path = adas_browser.post("/developer", data=game | {"kind": "confidential"}).location
    client_id = path.rpartition("/")[2]
    web_page, exchange = code_blocks(adas_browser.get(path))
    assert f'clientId: "{client_id}"' in web_page and "exchange: " in web_page
    assert "http://localhost/static/v1/identity.js" in web_page
    assert "redirect_uri" not in exchange and "CLIENT_SECRET" in exchange
    assert "CODE_VERIFIER" in exchange
    store.clients.delete(client_id)
    path = adas_browser.post("/developer", data=game | {"kind": "public"}).location
    [web_page] = code_blocks(adas_browser.get(path))
    assert f'clientId: "{path.rpartition("/")[2]}"' in web_page
    assert "http://localhost/static/v1/identity.js" in web_page


# -- changing -----------------------------------------------------------------------------------


def test_app_changes_are_saved(store, adas_browser, registered):
    typed = {"name": "Chess", "redirect_uris": "", "game_url": "https://chess.example/"}
    answer = adas_browser.post(f"/developer/{registered.id}", data=typed)
    assert (answer.status_code, answer.location) == (303, f"/developer/{registered.id}")
    client = store.clients.read(registered.id)
    assert (client.name, client.redirect_uris) == ("Chess", [])
    assert client.game_url == "https://chess.example/"
    assert "App saved." in adas_browser.get(answer.location).text
    adas_browser.post(f"/developer/{registered.id}", data=FORM)
    assert store.clients.read(registered.id).game_url is None


def test_new_secret_is_shown_once_and_replaces_the_old_one(
    store, adas_browser, ada, registered, anyone
):
    page = adas_browser.post(f"/developer/{registered.id}/secret")
    assert (page.status_code, page.location) == (201, f"/developer/{registered.id}")
    secret = find_secret(page)
    kept = store.clients.read(registered.id).secret_sha256
    assert kept == hashlib.sha256(secret.encode()).hexdigest() != registered.secret_sha256
    assert page.headers["Cache-Control"] == "no-store"
    assert find_secret(adas_browser.get(page.location)) is None
    line = list(store.audit.read())[-1]
    assert (line["act"], line["by"]) == ("client new-secret", ada.id)


def test_no_cookie_and_no_other_page_has_the_secret(store, adas_browser, ada, registered):
    other, _ = store.clients.register("Chess", [CALLBACK], ada.id)
    page = adas_browser.post(f"/developer/{registered.id}/secret")
    secret = find_secret(page)
    assert "client secret. Copy it now" in page.text
    assert secret not in str(page.headers)
    with adas_browser.session_transaction() as session:
        assert secret not in json.dumps(dict(session))
    for client in (registered, other):
        assert find_secret(adas_browser.get(f"/developer/{client.id}")) is None


def test_owner_cannot_enable_an_app_that_an_administrator_keeps_disabled(
    store, adas_browser, bobs_browser, bob, registered
):
    promote(store, bob.id, ADMINISTRATOR)
    path = f"/developer/{registered.id}"
    adas_browser.post(f"{path}/disable")
    assert "Keep disabled" not in adas_browser.get(path).text
    assert "Keep disabled" in bobs_browser.get(path).text
    for _ in range(2):
        bobs_browser.post(f"{path}/disable")
    assert [line["by"] for line in store.audit.read()][1:] == [registered.owner_id, bob.id]
    assert "Keep disabled" not in bobs_browser.get(path).text
    page = adas_browser.post(f"{path}/enable")
    assert (page.status_code, "An administrator disabled this app." in page.text) == (403, True)
    assert store.clients.read(registered.id).disabled


def test_app_is_disabled_enabled_and_deleted(store, adas_browser, registered):
    path = f"/developer/{registered.id}"
    for act, disabled in (("disable", True), ("enable", False)):
        assert adas_browser.post(f"{path}/{act}").status_code == 303
        assert store.clients.read(registered.id).disabled == disabled
    answer = adas_browser.post(f"{path}/delete")
    assert (answer.status_code, answer.location) == (303, "/developer")
    assert all_clients(store) == []
    [_, *lines] = store.audit.read()
    acts = [(line["act"], line["by"], line["address"]) for line in lines]
    expected = ("client disable", "client enable", "client delete")
    assert acts == [(act, registered.owner_id, "127.0.0.1") for act in expected]


@pytest.mark.parametrize("act", ACTS)
def test_failed_write_is_503(adas_browser, registered, faults, act):
    if act == "/enable":
        adas_browser.post(f"/developer/{registered.id}/disable")
    faults.refuse_saves("clients")
    form = FORM | {"name": "Another Game"}
    page = adas_browser.post(f"/developer/{registered.id}{act}", data=form)
    assert page.status_code == 503
    assert "Nothing was saved." in page.text


# -- plain http -----------------------------------------------------------------------------------


def warnings_of(page: TestResponse) -> list[str]:
    """Return the warnings on a page."""
    return [html.unescape(each) for each in re.findall('<p class="warning">(.*?)</p>', page.text)]


@pytest.mark.parametrize(
    ("uri", "warns"),
    [
        ("http://space.example/callback", True),
        ("http://192.168.0.7:5000/", True),
        ("http://localhost.example/", True),
        ("http://127.0.0.1.example/", True),
        ("https://space.example/callback", False),
        *((f"http://{host}/cb", False) for host in ("localhost:80", "127.0.0.1", "[::1]:5000")),
    ],
)
def test_plain_http_over_a_network_is_accepted_with_a_warning(store, adas_browser, uri, warns):
    answer = adas_browser.post("/developer", data={**FORM, "redirect_uris": uri})
    for address in (answer.location, f"{answer.location}/try"):
        warnings = warnings_of(adas_browser.get(address))
        assert len(warnings) == warns
        for warning in warnings:
            assert warning.startswith(f"Warning: {uri} is not encrypted: anyone on the network")
            assert "https://" in warning


def test_game_at_plain_http_is_accepted_with_a_warning(store, adas_browser):
    form = {**FORM, "game_url": "http://game.example/"}
    [warning] = warnings_of(adas_browser.get(adas_browser.post("/developer", data=form).location))
    assert warning.startswith("Warning: http://game.example/ is not encrypted")
