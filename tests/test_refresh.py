"""Refresh tokens (RFC 6749 6, RFC 9700 4.14): what a use gives, and what is refused.

tests/test_families.py has what ends them, and what a player sees of them.
"""

import json
import re
import time
from dataclasses import replace

import pytest
import test_device
from archives import Site, read_archive
from authenticator import add_passkey, use_passkey
from conformance.conftest import make_key
from conformance.relying_party import decode
from conftest import Program, on_each_backend
from cryptography.hazmat.primitives.asymmetric import rsa
from forms import edit, race
from test_device import Device, answer
from test_games import open_game, request_code
from test_token import S256, VERIFIER

from identity.oauth.clients import DEVICE_GRANT
from identity.oauth.device import TESTER
from identity.oauth.refresh import FAMILIES_KEPT
from model.kinds import FAMILIES
from model.records import ADMINISTRATOR
from storage.maintenance import ignore
from storage.whole.transfer import export_users

CALLBACK = "https://mail.example/callback"
SCOPE = "openid email offline_access"
DAY = 86_400  # seconds
ERRORS = ("invalid_grant", "invalid_request", "invalid_scope", "unsupported_grant_type")
add_device = test_device.add_device


@pytest.fixture
def app(request, make_app, monkeypatch):
    """An app with OpenID Connect; a test may parametrize its settings."""
    monkeypatch.setattr(rsa, "generate_private_key", make_key)
    return make_app(**{"OPENID": "on"} | getattr(request, "param", {}))


@pytest.fixture
def mail(register) -> Program:
    return register(CALLBACK, name="Mail")


@pytest.fixture
def other(register) -> Program:
    return register("https://wiki.example/callback", name="Wiki")


def refresh(program: Program, token: str | None, **changes):
    """Send a refresh request (RFC 6749 6); None omits a parameter, a list repeats it."""
    sent = {"grant_type": "refresh_token", "refresh_token": token} | changes
    return program.exchange_standard(None, **sent)


def start(program: Program, browser, scope: str = SCOPE, **parameters: str) -> dict:
    """Sign a player in, and return the response with the first refresh token."""
    done = program.exchange_standard(browser.allow(program, scope=scope, **parameters))
    assert done.status_code == 200, done.text
    return done.json


def start_on_device(device: Device, browser, scope: str = SCOPE):
    """Sign a player in on a device, and return the response to its poll."""
    started = device.start(scope=scope).json
    answer(browser, started)
    return device.poll(started)


def renew(program: Program, tokens: dict, **changes) -> dict:
    """Use a good refresh token, and return the response."""
    done = refresh(program, tokens["refresh_token"], **changes)
    assert done.status_code == 200, done.text
    return done.json


def error_of(done) -> str:
    """Return the error of a refused token request; check its status and headers."""
    assert (done.status_code, done.json["error"] in ERRORS) == (400, True), done.text
    assert done.headers["Cache-Control"] == "no-store"
    assert done.json.keys() == {"error", "error_description"}
    return done.json["error"]


def is_good(program: Program, tokens: dict) -> bool:
    """Use a refresh token, and return whether it was good."""
    done = refresh(program, tokens["refresh_token"])
    assert done.status_code == 200 or done.json["error"] in ("invalid_grant", "invalid_client")
    return done.status_code == 200


def has_access(program: Program, tokens: dict) -> bool:
    return program.whois(tokens["access_token"]).status_code == 200


def claims_of(tokens: dict) -> dict:
    return json.loads(decode(tokens["id_token"].split(".")[1]))


def userinfo(program: Program, tokens: dict) -> dict:
    headers = {"Authorization": f"Bearer {tokens['access_token']}"}
    return program.http.get("/oauth/userinfo", headers=headers).json


# -- who gets them ------------------------------------------------------------------------------


@on_each_backend
@pytest.mark.parametrize("app", [{}, {"OPENID": "off"}], indirect=True, ids=["openid", "plain"])
@pytest.mark.parametrize("kind", ["confidential", "public", "device"])
def test_app_of_each_kind_stays_signed_in(app, kind, adas_browser, register, add_device):
    openid = app.config["OPENID"] == "on"
    asked = SCOPE if openid else "email offline_access"
    if kind == "device":
        program = add_device()
        first = start_on_device(program, adas_browser, asked)
    else:
        program = register(CALLBACK, public=kind == "public")
        code = adas_browser.allow(program, scope=asked, **S256)
        first = program.exchange_standard(code, code_verifier=VERIFIER)
    keys = {"access_token", "token_type", "expires_in", "scope", "refresh_token"}
    for given in (first, refresh(program, first.json["refresh_token"])):
        assert given.json.keys() == keys | ({"id_token"} if openid else set())
        assert given.json["scope"] == asked
        assert (given.json["token_type"], given.json["expires_in"]) == ("Bearer", 600)
        assert (given.headers["Cache-Control"], given.headers["Pragma"]) == ("no-store", "no-cache")
        readable = given.headers.get("Access-Control-Allow-Origin")  # by pages of any site
        assert readable == (None if kind == "confidential" else "*")
        assert userinfo(program, given.json)["email"] == "ada@example.org"


def test_other_token_endpoint_gives_and_takes_none(mail, adas_browser):
    answered = mail.exchange(adas_browser.allow(mail, scope=SCOPE))
    assert answered.json.keys() == {"access_token", "token_type", "expires_in"}
    tokens = start(mail, adas_browser)
    token = tokens["refresh_token"]
    refused = mail.exchange("x", grant_type="refresh_token", refresh_token=token)
    expected = f"grant_type must be authorization_code or {DEVICE_GRANT}"
    assert (refused.status_code, refused.json) == (400, {"message": expected})
    assert is_good(mail, tokens)


def test_consent_without_the_scope_does_not_cover_it(mail, adas_browser):
    """OpenID Connect Core 11. Generic programs ask for it unasked, so it has its own sentence."""
    for scope, is_asked in (("openid email", False), (SCOPE, True)):
        page = adas_browser.get(mail.link(scope=scope))
        assert ("stay signed in as you" in page.text) == is_asked
        adas_browser.decide(page)
        shown = adas_browser.get("/account/apps").text
        assert ("Can stay signed in as you" in shown) == is_asked
    assert adas_browser.get(mail.link(scope=SCOPE)).status_code == 303
    assert adas_browser.get(mail.link(scope=SCOPE, prompt="consent")).status_code == 200
    without = mail.exchange_standard(adas_browser.allow(mail, scope="openid email")).json
    assert "refresh_token" not in without and "scope" not in without


def test_request_without_a_page_gets_none(mail, adas_browser, ada, register):
    """prompt=none, and a game on its page, also if the player allowed the scope before."""
    start(mail, adas_browser)
    silent = adas_browser.get(mail.link(scope=SCOPE, prompt="none"))
    codes = [(mail, mail.read_callback(silent)["code"])]
    game = register("https://a.example/cb", game_url="https://a.example/", owner_id=ada.id)
    start(game, adas_browser)
    signed = open_game(adas_browser, game)
    for decision in ({}, {"decision": "allow"}):
        done = request_code(adas_browser, game, signed, scope="offline_access", **decision)
        codes.append((game, done.json["code"]))
    for program, code in codes:
        assert "refresh_token" not in (given := program.exchange_standard(code).json)
        assert "offline_access" not in given.get("scope", "")


def test_test_of_an_app_gets_none(register, add_device, adas_browser, ada, anyone, store):
    """The forms of the tester do not ask for it; whoever writes the request by hand gets none."""
    program = register(CALLBACK, owner_id=ada.id)
    start(program, adas_browser)
    uri = f"http://localhost/developer/{program.id}/try/callback"
    edit(store.users, ada.id, mod_level=ADMINISTRATOR)
    page = adas_browser.get(program.link(scope=SCOPE, redirect_uri=uri))
    assert "stay signed in as you</strong>" not in page.text
    code = replace(program, redirect_uri=uri).read_callback(adas_browser.decide(page))["code"]
    device = add_device()
    form = {"client_id": device.id, "scope": SCOPE}
    started = anyone.post("/oauth/device", data=form, environ_overrides={TESTER: ada.id}).json
    answer(adas_browser, started)
    for given in (program.exchange_standard(code).json, device.poll(started).json):
        assert given["scope"] == "openid email" and "refresh_token" not in given


# -- each use gives the next one ------------------------------------------------------------------


@on_each_backend
def test_each_use_gives_the_next_token_and_an_older_one_ends_all(mail, adas_browser):
    """RFC 9700 4.14.2. The one before stays good until its successor is used: answers get lost."""
    first = start(mail, adas_browser)
    second, again = renew(mail, first), renew(mail, first)
    assert second["refresh_token"] == again["refresh_token"] != first["refresh_token"]
    third = renew(mail, second)
    assert renew(mail, second)["refresh_token"] == third["refresh_token"]
    assert has_access(mail, third)
    assert error_of(refresh(mail, first["refresh_token"])) == "invalid_grant"
    assert not any(is_good(mail, each) for each in (third, second, first))
    assert not any(has_access(mail, each) for each in (first, again, third))


@on_each_backend
def test_sixteen_at_once_get_the_same_successor(mail, adas_browser):
    """Tabs of one app do not know of each other."""
    first = start(mail, adas_browser)
    answers = race(*[lambda: refresh(mail, first["refresh_token"])] * 16)
    assert {each.status_code for each in answers} == {200}
    [successor] = {each.json["refresh_token"] for each in answers}
    assert is_good(mail, {"refresh_token": successor})


@on_each_backend
def test_at_most_20_for_a_player_and_an_app(mail, other, adas_browser, ada, enter, store, clock):
    """The oldest goes, of those that have not expired."""
    wiki, boss = start(other, adas_browser), start(mail, enter("Boss"))
    clock.shift(DAY)
    oldest, second, *others = [start(mail, adas_browser) for _ in range(FAMILIES_KEPT)]
    assert is_good(mail, oldest) and FAMILIES_KEPT == 20
    clock.shift(61)
    newest = start(mail, adas_browser)
    assert len(store.records(FAMILIES).ids()) == FAMILIES_KEPT + 2
    assert len(store.users.read(ada.id).grants[mail.id].families) == FAMILIES_KEPT
    assert not is_good(mail, oldest)
    for program, tokens in ((mail, second), (mail, newest), (mail, boss), (other, wiki)):
        assert is_good(program, tokens)
    clock.shift(29 * DAY)
    second = renew(mail, renew(mail, second))
    clock.shift(2 * DAY)  # all but one of Ada's have expired
    adas_browser.sign_in()
    start(mail, adas_browser)
    assert is_good(mail, second)


# -- how long -------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", [{}, {"REFRESH_DAYS": "3", "SIGN_IN_DAYS": "8"}], indirect=True)
def test_token_expires_after_its_last_use_and_after_the_sign_in(mail, adas_browser, clock, app):
    """Days of two settings: 30, and 365."""
    idle, longest = (app.config[name] for name in ("REFRESH_DAYS", "SIGN_IN_DAYS"))
    assert (idle, longest) in ((30, 365), (3, 8))
    tokens, unused, begun = start(mail, adas_browser), start(mail, adas_browser), time.time()
    clock.shift(idle * DAY - 1)
    tokens = renew(mail, tokens)
    clock.shift(1)
    assert not is_good(mail, unused)
    for _ in range((longest - 1) // idle - 1):
        clock.shift(idle * DAY - 2)
        tokens = renew(mail, tokens)
    clock.move_to(begun + longest * DAY - 1)
    tokens = renew(mail, tokens)
    clock.shift(1)
    assert not is_good(mail, tokens)


def test_use_of_the_token_before_counts_as_one(mail, adas_browser, clock):
    """Some programs keep the first token for ever."""
    tokens = start(mail, adas_browser)
    for _ in range(3):
        clock.shift(20 * DAY)
        assert is_good(mail, tokens)


def test_clock_that_went_back_changes_nothing(mail, adas_browser, clock):
    first = start(mail, adas_browser)
    clock.shift(-60)
    second = renew(mail, first)
    third = renew(mail, second)
    assert third["refresh_token"] != second["refresh_token"] and has_access(mail, third)
    assert not is_good(mail, first) and not is_good(mail, third)


def test_new_signing_key_signs_nobody_out(mail, adas_browser, store, clock):
    tokens = start(mail, adas_browser)
    for _ in range(2):
        store.keys.rotate(drop_old=False)
        clock.shift(1)
    assert not has_access(mail, tokens)
    assert has_access(mail, renew(mail, tokens))


# -- what it gives -------------------------------------------------------------------------------


def test_scope_is_narrowed_and_never_widened(mail, adas_browser):
    """RFC 6749 6: a narrower scope is that of one response, and the family keeps its own."""
    tokens = start(mail, adas_browser)
    for asked, scope in {
        "openid": "openid",
        "email": "email",
        "email openid email": "email openid",
        "userinfo": "userinfo",
        "offline_access": "offline_access",
        "": SCOPE,
    }.items():
        tokens = renew(mail, tokens, scope=asked)
        names = scope.split()
        assert (tokens["scope"], "id_token" in tokens) == (scope, "openid" in names), asked
        assert ("email" in userinfo(mail, tokens)) == ("email" in names)
    for asked in (f"{SCOPE} groups", "profile", "join", "openid x", "admin"):
        assert error_of(refresh(mail, tokens["refresh_token"], scope=asked)) == "invalid_scope"
    repeated = refresh(mail, tokens["refresh_token"], scope=["openid", "email"])
    assert error_of(repeated) == "invalid_request"
    tokens = renew(mail, tokens)
    assert tokens["scope"] == SCOPE and "groups" not in userinfo(mail, tokens)


def test_id_token_of_a_refresh(mail, adas_browser, open_browser, add_device, clock):
    """OpenID Connect Core 12.2: the same sign-in, days later, also after a sign-out there.

    Each browser has a session of its own, and each device, whose code is typed in a browser.
    """
    browser, phone, device = open_browser(), add_passkey(adas_browser), add_device()
    clock.shift(1)
    use_passkey(browser, phone)
    nonce, passkey = {"nonce": "n-0S6_WzA2Mj"}, ["pop", "user", "mfa"]
    given = [
        (mail, ["pwd"], start(mail, adas_browser, **nonce)),
        (mail, passkey, start(mail, browser, **nonce)),
        *((device, passkey, start_on_device(device, browser).json) for _ in range(2)),
    ]
    assert len({claims_of(tokens)["sid"] for *_, tokens in given}) == 4
    assert claims_of(start(mail, browser))["sid"] == claims_of(given[1][2])["sid"]
    assert len({claims_of(tokens)["auth_time"] for *_, tokens in given}) == 2
    clock.shift(3 * DAY)
    browser.post("/sign-out")
    for program, amr, first in given:
        second = renew(program, first)
        before, after = claims_of(first), claims_of(second)
        changed = {"iat": before["iat"] + 3 * DAY, "exp": before["exp"] + 3 * DAY}
        expected = before | changed | {"amr": amr, "at_hash": after["at_hash"]}
        assert after == {name: expected[name] for name in expected.keys() - {"nonce"}}
        assert {"sub", "email", "at_hash"} < after.keys() and after["at_hash"] != before["at_hash"]
        narrowed = claims_of(renew(program, second, scope="openid"))
        assert narrowed.keys() == after.keys() - {"email", "email_verified"}


def test_email_and_openid_are_given_as_they_are_allowed_now(mail, adas_browser, store, ada, app):
    tokens = start(mail, adas_browser)
    app.config["SMTP_URL"] = "smtp://localhost"  # only confirmed addresses count
    tokens = renew(mail, tokens)
    assert "email" not in {*claims_of(tokens), *userinfo(mail, tokens)}
    edit(store.users, ada.id, email_verified=True)
    tokens = renew(mail, tokens)
    assert claims_of(tokens)["email"] == "ada@example.org"
    edit(store.clients, mail.id, no_email=True)
    tokens = renew(mail, tokens)
    assert tokens["scope"] == "openid offline_access"
    assert "email" not in {*claims_of(tokens), *userinfo(mail, tokens)}
    tokens = renew(mail, tokens, scope="email")
    assert tokens["scope"] == "userinfo"
    app.config["OPENID"] = "off"
    tokens = renew(mail, tokens)
    assert tokens["scope"] == "offline_access" and "id_token" not in tokens


# -- what is refused -----------------------------------------------------------------------------


def test_another_client_gets_nothing_and_ends_nothing(mail, other, register, adas_browser):
    """RFC 6749 6 and 10.4: a token is bound to its client, which proves itself."""
    public = register("https://chat.example/callback", public=True)
    old = start(mail, adas_browser)
    tokens = renew(mail, renew(mail, old))
    for program, changes, error in (
        (other, {}, (400, "invalid_grant")),
        (public, {}, (400, "invalid_grant")),
        (other, {"client_secret": mail.secret}, (401, "invalid_client")),
        (mail, {"client_secret": other.secret}, (401, "invalid_client")),
        (mail, {"client_secret": None}, (400, "invalid_client")),
        (mail, {"client_secret": ""}, (400, "invalid_client")),
        (mail, {"client_id": public.id}, (401, "invalid_client")),
        (mail, {"client_id": None}, (400, "invalid_client")),
        (mail, {"client_id": "x"}, (401, "invalid_client")),
    ):
        for sent in (tokens, old):
            done = refresh(program, sent["refresh_token"], **changes)
            assert (done.status_code, done.json["error"]) == error, (program.id, changes)
    assert has_access(mail, tokens) and is_good(mail, tokens)


def test_other_text_is_no_refresh_token_and_ends_nothing(mail, adas_browser, add_device, anyone):
    """RFC 6749 5.2 and 10.10; each in place of a good one, which stays good.

    But another secret of the family ends it (RFC 9700 4.14.2): its sender had a token once.
    """
    tokens = start(mail, adas_browser)
    token, code = tokens["refresh_token"], adas_browser.allow(mail, scope=SCOPE)
    family, _, secret = token.partition(".")
    for wrong in (
        *(tokens["access_token"], tokens["id_token"], code, mail.secret, mail.id, family, secret),
        *(add_device().start().json["device_code"], f"{family}.", f".{secret}", f"{token}é"),
        *(f"{token}\0", f"{token}\n", f" {token}", f"{token}{'A' * 4096}", "A" * 4096, "\0", "é"),
        *(f"{family}.{secret[:-1]}", f"{family}.{secret}A", f"{family}..{secret}", f"{token}.x"),
        *(f"{family}.{secret[:-1]}é", f"{family}.{secret[:-1]}=", f"{'A' * 16}.{secret}"),
        f"../{family[3:]}.{secret}",
    ):
        assert error_of(refresh(mail, wrong)) == "invalid_grant", wrong
    for wrong in (None, "", [token, token], [token, ""], ["", token]):
        assert error_of(refresh(mail, wrong)) == "invalid_request", wrong
    sent = {"grant_type": "refresh_token", "client_id": mail.id, "client_secret": mail.secret}
    url, named = f"/oauth/token?refresh_token={token}", {"refresh_token": token}
    assert error_of(anyone.post(url, data=sent)) == "invalid_request"
    assert error_of(anyone.post("/oauth/token", json=sent | named)) == "invalid_request"
    assert anyone.get(url).status_code == 405
    for grant in ("Refresh_Token", "password"):
        sent["grant_type"] = grant
        assert error_of(anyone.post(url, data=sent | named)) == "unsupported_grant_type"
    assert has_access(mail, tokens) and is_good(mail, tokens)
    assert mail.exchange_standard(code).status_code == 200
    assert error_of(refresh(mail, f"{family}.{secret[1:]}A")) == "invalid_grant"
    assert not has_access(mail, tokens) and not is_good(mail, tokens)


def test_refresh_token_is_good_for_nothing_else(mail, adas_browser, add_device, anyone):
    tokens = start(mail, adas_browser)
    token = tokens["refresh_token"]
    bearer = {"Authorization": f"Bearer {token}"}
    for path in ("/api/oauth/whois", "/oauth/userinfo"):
        assert anyone.get(path, headers=bearer).status_code == 401
    ticket = anyone.post("/api/tickets", data={"server": "play.example:30000"}, headers=bearer)
    assert ticket.status_code == 401
    assert error_of(mail.exchange_standard(token)) == "invalid_grant"
    assert mail.exchange(token).status_code == 400
    device = add_device()
    assert device.error_of({"device_code": token}) == "invalid_grant"
    hinted = adas_browser.get(mail.link(scope="openid", id_token_hint=token))
    assert mail.read_callback(hinted)["error"] == "invalid_request"
    logout = adas_browser.get(f"/oauth/logout?id_token_hint={token}")
    assert (logout.status_code, adas_browser.get("/account").status_code) == (400, 200)
    assert has_access(mail, tokens) and is_good(mail, tokens)


def test_failed_exchange_starts_no_family(mail, other, adas_browser, store):
    code = adas_browser.allow(mail, scope=SCOPE, **S256)
    for program, changes in (
        (other, {}),
        (mail, {}),
        (mail, {"code_verifier": VERIFIER[::-1]}),
        (mail, {"code_verifier": VERIFIER, "redirect_uri": "https://mail.example/"}),
        (mail, {"code_verifier": VERIFIER, "client_secret": "x"}),
    ):
        assert program.exchange_standard(code, **changes).status_code in (400, 401)
    assert store.records(FAMILIES).ids() == []
    assert mail.exchange_standard(code, code_verifier=VERIFIER).json["refresh_token"]


# -- where its text is ---------------------------------------------------------------------------


@on_each_backend
def test_token_is_in_no_file_log_or_export(mail, adas_browser, store, caplog, tmp_path):
    """The storage has hashes, and backup, restore and export have no family at all."""
    caplog.set_level(0)
    first = start(mail, adas_browser)
    second = renew(mail, first)
    refresh(mail, f"{second['refresh_token']}x")
    third = renew(mail, second)
    exported = adas_browser.get("/account/export").text
    pages = [adas_browser.get(f"/account/{each}").text for each in ("security", "apps")]
    lines = json.dumps(list(store.audit.read()))
    export_users(store, str(tmp_path / "dump"), "command", True, ignore, ignore)
    dump = (tmp_path / "dump").read_text()
    with store.snapshot() as snapshot:
        stored = repr([*snapshot.users(), *snapshot.records(FAMILIES)])
    with_id = f"{caplog.text}{exported}{lines}{dump}"
    for each in (first, second, third):
        family, _, secret = each["refresh_token"].partition(".")
        assert secret not in f"{stored}{with_id}{''.join(pages)}"
    assert family in stored and family not in with_id


def test_token_from_before_a_restore_is_refused(mail, adas_browser, tmp_path, make_app, app):
    """Else it would bring back what was ended since the backup."""
    tokens = start(mail, adas_browser)
    family = tokens["refresh_token"].partition(".")[0]
    old = Site(tmp_path)
    old.data, old.pictures = (app.config[name] for name in ("DATA_DIR", "PICTURE_DIR"))
    old.backup(tmp_path / "backup.tar.gz")
    for member, content in read_archive(tmp_path / "backup.tar.gz"):
        assert not re.search("famil", member.name) and family.encode() not in content
    assert is_good(mail, tokens)
    restored = Site(tmp_path / "restored")
    restored.restore(tmp_path / "backup.tar.gz")
    folders = {"DATA_DIR": str(restored.data), "PICTURE_DIR": str(restored.pictures)}
    mail.http = make_app(OPENID="on", **folders).test_client()
    assert not is_good(mail, tokens) and not has_access(mail, tokens)
    assert restored.open().users.read(1).grants[mail.id].families == []
