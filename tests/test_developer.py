"""/developer: players register and manage apps."""

import hashlib
import json

import fixtures
import pytest
from conftest import PASSWORD, Browser, Program, all_clients
from forms import edit, led_to, parse, problems_of, signed_in
from werkzeug.test import TestResponse

from model.client_rules import TAGS
from model.records import ADMINISTRATOR, MODERATOR, Client
from pages.developer.apps import NO_ADDRESS, NOWHERE_PUBLIC
from pages.kit.proof import PROOF_AGE

CALLBACK = "https://space.example/callback"
TAKEN = "https://chess.example/"
FORM = {"kind": "elsewhere", "server": "yes", "name": "Space Game", "redirect_uris": CALLBACK}
app = fixtures.members_app


@pytest.fixture
def registered(store, adas_browser) -> Client:
    assert adas_browser.post("/developer", data=FORM).status_code == 201
    return all_clients(store)[0]


@pytest.fixture
def bobs_browser(bob, open_browser) -> Browser:
    return signed_in(open_browser(), "Bob")


def find_secret(page: TestResponse) -> str | None:
    """Return the client secret on a page, or None."""
    found = parse(page).select_one('[data-copy="Copy client secret"]')
    return found and found.text


def test_only_administrators_register_apps_by_default(make_app, store, ada):
    app = make_app()
    browser = Browser(app, app.response_class)
    assert browser.get("/developer").location.startswith("/sign-in")
    browser.sign_in()
    for mod_level, status in ((0, 403), (MODERATOR, 403), (ADMINISTRATOR, 200)):
        edit(store.users, ada.id, mod_level=mod_level)
        assert browser.get("/developer").status_code == status
        assert browser.post("/developer", data=FORM).status_code == (201 if status == 200 else 403)
        assert ('href="/developer"' in browser.get("/").text) == (status == 200)
    assert len(all_clients(store)) == 1


ACTS = ["", "/secret", "/disable", "/enable", "/delete"]


def test_secret_or_way_in_of_an_app_needs_a_proof(store, adas_browser, registered, clock, subtests):
    """Whoever copies the cookie of a developer would get codes or a secret for good."""
    app = f"/developer/{registered.id}"
    program = {"kind": "program", "program": "synapse", "address": "https://x.org"}
    kept = {"name": "Space Game", "redirect_uris": CALLBACK}
    for path, fields, asks in (
        ("/developer", FORM | {"name": "Another"}, True),
        ("/developer", program, True),
        (app, kept | {"name": "Renamed", "description": "For two."}, False),
        (app, kept | {"redirect_uris": f"{CALLBACK}\r\nhttps://thief.example/"}, True),
        (app, kept | {"post_logout_redirect_uris": "https://thief.example/"}, True),
        (app, kept | {"game_url": "https://thief.example/"}, True),
        (app, kept | {"who": "moderators"}, True),
        (app, kept | {"require_pkce": "yes"}, True),
        (f"{app}/secret", {}, True),
        (f"{app}/disable", {}, False),
        (f"{app}/enable", {}, True),
        (f"{app}/delete", {}, False),
    ):
        with subtests.test(path, fields=fields):
            clock.shift(PROOF_AGE)
            before = all_clients(store)
            page = adas_browser.post(path, data=fields)
            assert page.status_code in ([403] if asks else [303])
            assert (len(parse(page).select("#proof")), all_clients(store) == before) == (asks, asks)
            done = adas_browser.post(path, data=fields | {"password": PASSWORD}) if asks else page
            assert done.status_code in (201, 303) and all_clients(store) != before


def test_unknown_app_is_404(adas_browser):
    for client_id in ("0" * 24, "x", "..%2F..%2Fusers%2F1"):
        answers = [adas_browser.post(f"/developer/{client_id}{act}") for act in ACTS[1:]]
        answers.append(adas_browser.get(f"/developer/{client_id}"))
        assert {each.status_code for each in answers} == {404}


def test_own_apps_are_listed_first(store, adas_browser, ada, bob, monkeypatch, clock, faults):
    def add(owner_id: int | None) -> str:
        clock.shift(1)
        return store.clients.register("Chess", [CALLBACK], owner_id)[0].id

    def shown(address: str) -> tuple[list[str], str | None]:
        page = parse(adas_browser.get(address))
        more = page.find("a", string="More")
        ids = [each.text for each in page.select('[data-copy^="Copy client id"]')]
        return ids, more and more["href"]

    monkeypatch.setattr("pages.developer.apps.CLIENTS_SHOWN", 3)
    edit(store.users, ada.id, mod_level=ADMINISTRATOR)
    added = [add(each) for each in (bob.id, None, bob.id)]
    assert shown("/developer") == (added, None)  # oldest first
    added += [add(each) for each in (ada.id, bob.id, bob.id, bob.id)]
    by_id, own = store.clients.ids(), [added[3], added[1]]
    page, more = shown("/developer")
    assert page == own + [each for each in by_id[:1] if each not in own]
    page, more = shown(more)
    assert (page, more) == (by_id[1:4], f"/developer?after={by_id[3]}")
    assert shown(more) == (by_id[4:], None)
    faults.damage_client(by_id[-1])
    assert shown(more) == (by_id[4:-1], None)


def test_registration_saves_the_form_and_shows_the_secret(store, adas_browser, ada, anyone):
    typed = {
        **{"kind": "game", "server": "yes", "name": " Space Game "},
        "redirect_uris": f"\r\n{CALLBACK}\r\n http://127.0.0.1:5000/ \r\n{CALLBACK}",
        "address": " https://space.example/play ",
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
    assert secret not in adas_browser.get(page.location).text
    assert len(all_clients(store)) == 1
    program = Program(anyone, client.id, secret, CALLBACK)
    assert program.whois(program.token_for(adas_browser.allow(program))).json["id"] == ada.id


def test_app_with_an_address_of_before_can_be_changed(store, adas_browser, ada, monkeypatch):
    """The app is from before that rule."""
    old = {"game_url": "https://space.example:0/", "redirect_uris": f"{CALLBACK}/*"}
    with monkeypatch.context() as before:
        before.setattr("model.client_rules.check_opens", lambda uri: None)
        url, uris = old["game_url"], [old["redirect_uris"]]
        client, _ = store.clients.register("Old", uris, ada.id, game_url=url)
    form, path = FORM | old, f"/developer/{client.id}"
    assert adas_browser.post(path, data=form | {"description": "Rocks."}).status_code == 303
    assert store.clients.read(client.id).description == "Rocks."
    assert "Rocks." in adas_browser.get(path).text  # and the notice
    for changed in ({"game_url": "https://a..b/"}, {"redirect_uris": "http://127.0.0.1:0/"}):
        page = adas_browser.post(path, data=form | changed)
        assert (page.status_code, list(problems_of(page))) == (400, list(changed))


def test_origin_of_another_app_is_freed_by_administrator(store, adas_browser, ada, bob):
    """Any member could have registered it. A member does not learn which app it is."""
    form = FORM | {"kind": "game", "address": TAKEN, "redirect_uris": ""}
    squatter, _ = store.clients.register("Squat", [CALLBACK], bob.id, game_url=TAKEN)
    page = adas_browser.post("/developer", data=form)
    assert (list(problems_of(page)), "Squat" in page.text) == (["address"], False)
    edit(store.users, ada.id, mod_level=ADMINISTRATOR)
    problem = problems_of(adas_browser.post("/developer", data=form))["address"]
    assert problem.startswith("Squat, registered by Bob, is at this origin.")
    assert store.clients.read(squatter.id) == squatter
    freed = {"name": "Squat", "redirect_uris": CALLBACK}
    assert adas_browser.post(f"/developer/{squatter.id}", data=freed).status_code == 303
    assert adas_browser.post("/developer", data=form).status_code == 201
    assert {each.game_url for each in all_clients(store)} == {TAKEN, None}


def test_pkce_and_email_can_be_changed(store, adas_browser):
    def boxes(address: str) -> dict[str, bool]:
        found = parse(adas_browser.get(address)).select("[value=yes]:not([name^=tag-])")
        return {each["name"]: "checked" in each.attrs for each in found}

    new = {"server": False, "require_pkce": True, "device": False, "no_email": False}
    assert boxes("/developer") == new
    path = adas_browser.post("/developer", data=FORM | {"require_pkce": "yes"}).location
    [client] = all_clients(store)
    assert (client.require_pkce, client.no_email) == (True, False)
    adas_browser.post(path, data=FORM | {"no_email": "yes"})
    client = store.clients.read(client.id)
    assert (client.require_pkce, client.no_email) == (False, True)
    assert boxes(path) == {"require_pkce": False, "no_email": True}


def test_game_has_up_to_three_tags_and_a_long_description(store, adas_browser, registered):
    path, text = f"/developer/{registered.id}", "Rocks.\r\n" * 142
    chosen = {"tag-racing": "yes", "tag-board": "yes", "tag-chess": "yes", "description": text}
    adas_browser.post(path, data=FORM | chosen)
    kept = store.clients.read(registered.id)
    assert (kept.tags, kept.description) == (["board", "racing"], text.replace("\r", "").strip())
    soup = parse(adas_browser.get(path))
    assert [each["name"] for each in soup.select("[name^=tag-]")] == [f"tag-{tag}" for tag in TAGS]
    ticked = [each["name"] for each in soup.select("[name^=tag-][checked]")]
    assert ticked == ["tag-board", "tag-racing"]
    assert soup.find(id="description").text.strip() == kept.description
    page = adas_browser.post(path, data=FORM | chosen | {"tag-quiz": "yes", "tag-puzzle": "yes"})
    assert problems_of(page) == {"tags": "Choose up to 3 different tags."}
    assert len(parse(page).select("[name^=tag-][checked]")) == 4
    assert store.clients.read(registered.id) == kept
    adas_browser.post(path, data=FORM)
    assert store.clients.read(registered.id).tags == []


def test_who_may_sign_in_and_return_uris_can_be_changed(store, adas_browser, registered, subtests):
    path, field = f"/developer/{registered.id}", "post_logout_redirect_uris"
    adas_browser.post(path, data=FORM | {field: f"{CALLBACK}\n{TAKEN}\n{CALLBACK}"})
    assert getattr(store.clients.read(registered.id), field) == [CALLBACK, TAKEN]
    assert parse(adas_browser.get(path)).find(id=field).text.strip() == f"{CALLBACK}\n{TAKEN}"
    several = ["administrators", "flair:Beta"]
    choices = {"everybody": [], "moderators": ["moderators"], "flair": ["flair:Beta"]}
    for who, groups in {**choices, "other": several}.items():
        with subtests.test(who):
            edit(store.clients, registered.id, only_groups=several)
            adas_browser.post(path, data=FORM | {"who": who, "flair": " Beta "})
            assert store.clients.read(registered.id).only_groups == groups
            page = parse(adas_browser.get(path))
            offered = [each["value"] for each in page.select("[name=who]")]
            assert offered == [*choices, "other"][: 3 + (who == "other")]
            assert [each["value"] for each in page.select("[name=who][checked]")] == [who]
            assert page.find(id="flair")["value"] == ("Beta" if who == "flair" else "")


def test_answers_fill_in_the_rest_and_lead_to_code(store, adas_browser, subtests):
    """Three of them are enough. Without a server an app is public: it could keep no secret."""
    site, loopback, scheme = "https://go.example/", "http://127.0.0.1/callback", "org.example.go:/"
    server, both, local = {"server": "yes"}, [site, CALLBACK], "http://127.0.0.1:8000/"
    for kind, address, more, expected, code in (
        ("game", site, {}, (True, site, []), "Copy page code"),
        ("game", site, server, (False, site, []), "Copy exchange command"),
        ("elsewhere", site, {}, (True, None, [site]), "Copy code: JavaScript"),
        ("elsewhere", site, server, (False, None, [site]), "Copy code: Python"),
        ("elsewhere", local, {}, (True, None, [local]), "Copy code: JavaScript"),
        ("elsewhere", site, {"redirect_uris": CALLBACK}, (True, None, both), "Copy code: Godot"),
        ("device", "", {}, (True, None, [loopback]), "Copy code: Godot"),
        ("device", scheme, server, (True, None, [scheme]), "Copy code: Python"),
        ("device", "", {"device": "yes"}, (True, None, []), None),
    ):
        with subtests.test(kind, address=address, **more):
            form = {"kind": kind, "name": "Go", "address": f" {address} "}
            page = adas_browser.post("/developer", data=form | more)
            [client] = all_clients(store)
            assert (client.public, client.game_url, client.redirect_uris) == expected
            shown = parse(adas_browser.get(page.location))
            pasted = [each["data-copy"] for each in shown.select("pre")]
            assert code in pasted if code else pasted == []
            assert ("Copy code: JavaScript" in pasted) == (kind == "elsewhere")
            folded = shown.select("section:has([data-copy^='Copy code']) details")
            assert [each.has_attr("open") for each in folded][:2] == [True, False][: len(folded)]
            assert shown.select_one(".top .button")["href"] == f"{page.location}/try"
            store.clients.delete(client.id)


def test_page_of_a_game_says_that_a_moderator_decided_against_it(store, adas_browser, ada):
    game, _ = store.clients.register("Go", [], ada.id, game_url="https://go.example/")
    for declined, words in ((False, "can list it"), (True, "decided against it")):
        edit(store.clients, game.id, declined=declined)
        page = adas_browser.get(f"/developer/{game.id}")
        assert f"Not listed. A moderator {words}." in page.text


def test_administrators_app_may_have_a_name_like_the_sites(store, adas_browser, ada, registered):
    named = FORM | {"name": "ldentity Server!"}
    edit(store.users, ada.id, mod_level=ADMINISTRATOR)
    adas_browser.post("/developer", data=named)
    assert {each.name for each in all_clients(store)} == {FORM["name"], named["name"]}


def test_public_app_gets_no_secret_later(store, adas_browser):
    public = {"kind": "device", "redirect_uris": "org.example.game:/callback"}
    answer = adas_browser.post("/developer", data=FORM | public | {"require_pkce": "yes"})
    [client] = all_clients(store)
    assert (client.public, client.secret_sha256, client.require_pkce) == (True, "", False)
    page = adas_browser.get(answer.location)
    assert find_secret(page) is None and "Create new secret" not in page.text
    assert adas_browser.post(f"{answer.location}/secret").status_code == 400
    assert all_clients(store) == [client]


def test_public_app_signs_in_on_another_device(store, adas_browser):
    """It needs no address then; the box of a confidential app does nothing."""
    ticked = FORM | {"redirect_uris": "", "device": "yes"}
    refused = adas_browser.post("/developer", data=ticked)
    assert problems_of(refused) == {"address": NO_ADDRESS}
    path = adas_browser.post("/developer", data=ticked | {"kind": "device"}).location
    [client] = all_clients(store)
    assert (client.device, client.redirect_uris) == (True, [])
    assert parse(adas_browser.get(path)).select("[name=device][checked]")
    refused = adas_browser.post(path, data=FORM | {"redirect_uris": ""})
    assert problems_of(refused) == {"redirect_uris": NOWHERE_PUBLIC}
    adas_browser.post(path, data=FORM | {"redirect_uris": "org.example.game:/callback"})
    assert store.clients.read(client.id).device is False


def test_app_changes_are_saved_and_shown_in_its_code(store, adas_browser, ada):
    game = {"name": "Chess", "redirect_uris": "", "game_url": TAKEN}
    for public in (False, True):
        client, _ = store.clients.register("Go", ["http://127.0.0.1/cb"], ada.id, public=public)
        answer = adas_browser.post(f"/developer/{client.id}", data=game)
        assert (answer.status_code, answer.location) == (303, f"/developer/{client.id}")
        saved = store.clients.read(client.id)
        assert (saved.name, saved.redirect_uris, saved.game_url) == ("Chess", [], TAKEN)
        page = adas_browser.get(answer.location)
        web_page, *exchange = [each.text for each in parse(page).select("pre code")]
        assert f'clientId: "{client.id}"' in web_page
        assert "http://localhost/static/v1/identity.js" in web_page
        assert ("exchange: " in web_page, len(exchange)) == (not public, not public)
        adas_browser.post(answer.location, data=FORM)
        assert store.clients.read(client.id).game_url is None


def test_new_secret_is_shown_once_and_replaces_the_old_one(store, adas_browser, ada, registered):
    other, _ = store.clients.register("Chess", [CALLBACK], ada.id)
    page = adas_browser.post(f"/developer/{registered.id}/secret")
    assert (page.status_code, page.location) == (201, f"/developer/{registered.id}")
    secret = find_secret(page)
    kept = store.clients.read(registered.id).secret_sha256
    assert kept == hashlib.sha256(secret.encode()).hexdigest() != registered.secret_sha256
    assert page.headers["Cache-Control"] == "no-store"
    assert secret not in str(page.headers)
    with adas_browser.session_transaction() as session:
        assert secret not in json.dumps(dict(session))
    for client in (registered, other):
        assert secret not in adas_browser.get(f"/developer/{client.id}").text


def test_owner_cannot_enable_app_disabled_by_administrator(
    store, adas_browser, bobs_browser, bob, registered
):
    edit(store.users, bob.id, mod_level=ADMINISTRATOR)
    path = f"/developer/{registered.id}"
    adas_browser.post(f"{path}/disable")
    assert "Keep disabled" in bobs_browser.get(path).text
    bobs_browser.post(f"{path}/disable")
    page = adas_browser.post(f"{path}/enable")
    assert (page.status_code, "An administrator disabled this app." in page.text) == (403, True)
    assert store.clients.read(registered.id).disabled


def test_app_is_disabled_enabled_and_deleted(store, adas_browser, registered):
    path = f"/developer/{registered.id}"
    for act, disabled in (("disable", True), ("enable", False)):
        assert adas_browser.post(f"{path}/{act}").status_code == 303
        assert store.clients.read(registered.id).disabled == disabled
    assert led_to(adas_browser.post(f"{path}/delete")) == "/developer"
    assert all_clients(store) == []


def test_plain_http_over_a_network_gets_a_warning(adas_browser, subtests):
    for kind, uri, warns in (
        ("elsewhere", "http://127.0.0.1.example/", True),
        ("elsewhere", "http://[::1]:5000/cb", False),
        ("game", "http://game.example/", True),
    ):
        with subtests.test(uri):
            path = adas_browser.post(
                "/developer", data=FORM | {"kind": kind, "address": uri}
            ).location
            tester = [f"{path}/try"] if kind == "elsewhere" else []
            for address in (path, *tester):
                page = adas_browser.get(address).text
                assert (f"Warning: {uri} is not encrypted" in page) == warns
