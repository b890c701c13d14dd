"""OpenID Connect as an installation has it; tests/conformance/ has what the standard demands."""

import functools
import hashlib
import json
import subprocess
import sys

import pytest
from authenticator import add_passkey, use_passkey
from conformance.relying_party import decode, read_key
from conftest import PASSWORD, on_each_backend
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from forms import edit, hidden_field, parse, signed_in

from identity.access import links
from identity.oauth.claims import GROUPS_IN_TOKEN
from identity.oauth.openid import (
    add_key,
    published_keys,
    read_hint,
    rotate_openid_keys,
    signing_key,
)
from identity.site.settings import ROOT, SettingError, read_settings
from model.records import now_ms

CALLBACK = "https://forum.example/callback"
DAY = 86_400  # seconds
WORDS = "three random words"
SITE = "http://localhost"


@pytest.fixture
def app(make_app):
    return make_app(OPENID="on")


@pytest.fixture
def forum(register):
    return register(CALLBACK, name="The Forum")


def id_token_of(forum, browser, **parameters: str) -> str:
    return tokens_of(forum, browser, **parameters)["id_token"]


def tokens_of(forum, browser, **parameters: str) -> dict[str, str]:
    code = browser.allow(forum, **{"scope": "openid"} | parameters)
    return forum.exchange_standard(code).json


def verifying_key(id_token: str, http) -> dict:
    """Return the published key that verifies this ID token. Raises StopIteration."""
    signed, _, signature = id_token.rpartition(".")
    kid = json.loads(decode(signed.partition(".")[0]))["kid"]
    jwk = next(each for each in http.get("/oauth/keys").json["keys"] if each["kid"] == kid)
    read_key(jwk).verify(decode(signature), signed.encode(), PKCS1v15(), SHA256())
    return jwk


def test_without_the_setting_nothing_is_there(make_app, open_browser, register, adas_browser):
    app = make_app(DATA_DIR=adas_browser.application.instance_path, OPENID="off")
    off = app.test_client()
    for path in ("/.well-known/openid-configuration", "/oauth/keys", "/oauth/logout"):
        assert (off.get(path).status_code, adas_browser.get(path).status_code) == (404, 200)
    assert (
        off.get("/.well-known/oauth-authorization-server").json["scopes_supported"][-1] != "openid"
    )
    posted = off.post(
        "/oauth/authorize", data={"client_id": "x"}, headers={"Origin": "https://x.y"}
    )
    assert posted.status_code == 403


def test_setting_needs_https(environment):
    for base_url in ("https://id.example.org", "http://127.0.0.1:8000", "http://localhost"):
        assert read_settings({"OPENID": "on", "BASE_URL": base_url})["OPENID"] == "on"
    with pytest.raises(SettingError, match="IDENTITY_OPENID .* needs https"):
        read_settings({"OPENID": "on", "BASE_URL": "http://id.example.org"})
    with pytest.raises(SettingError, match="expected one of on, off"):
        read_settings({"OPENID": "yes"})


@pytest.mark.live
def test_start_imports_no_library_that_is_for_one_feature(environment, tmp_path):
    environment.setenv("IDENTITY_OPENID", "on")
    environment.setenv("IDENTITY_BASE_URL", "https://id.example.org")
    for name in ("DATA_DIR", "PICTURE_DIR"):
        environment.setenv(f"IDENTITY_{name}", str(tmp_path / name))
    program = (
        "import sys, wsgi; sys.exit(bool({'cryptography', 'fido2', 'segno'} & {*sys.modules}))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_many_groups_are_in_userinfo_alone(store, forum, adas_browser, anyone, ada):
    """Programs keep the ID token in a cookie, which has at most 4 kB."""
    for count in (GROUPS_IN_TOKEN, GROUPS_IN_TOKEN + 1):
        edit(store.users, ada.id, flairs=["none", *(f"no. {number}" for number in range(1, count))])
        tokens = tokens_of(forum, adas_browser, scope="openid groups")
        headers = {"Authorization": f"Bearer {tokens['access_token']}"}
        groups = anyone.get("/oauth/userinfo", headers=headers).json["groups"]
        in_token = json.loads(decode(tokens["id_token"].split(".")[1])).get("groups")
        assert (len(groups), in_token) == (count, groups if count == GROUPS_IN_TOKEN else None)


def test_id_token_says_how_the_player_signed_in(store, forum, adas_browser, open_browser, ada):
    """RFC 8176 2. A passkey is a key, and by user verification a second factor."""
    browser, phone = open_browser(), add_passkey(adas_browser)
    [code, *_] = parse(adas_browser.post("/account/recovery-codes")).select("code")
    link = {"link": links.issue_sign_in_link(store, "", ada), "new_password": WORDS}
    for expected, sign_in in (
        (["pwd"], functools.partial(browser.sign_in)),
        (["otp"], functools.partial(browser.sign_in, password=code.text)),
        (["pop", "user", "mfa"], functools.partial(use_passkey, browser, phone)),
        (None, functools.partial(browser.post, "/recover/password", data=link)),
    ):
        browser.post("/sign-out")
        assert sign_in().status_code in (200, 303)
        assert claims_of(forum, browser).get("amr") == expected
    assert use_passkey(browser, phone).status_code == 200  # proves who presses
    assert "amr" not in claims_of(forum, browser)
    browser.post("/sign-out")
    use_passkey(browser, phone)
    edit(store.users, ada.id, password_hash="")
    for current, expected in ({}, ["pop", "user", "mfa"]), ({"current_password": WORDS}, ["pwd"]):
        done = browser.post("/account/password", data={"new_password": WORDS} | current)
        assert (done.status_code, claims_of(forum, browser)["amr"]) == (303, expected)


def claims_of(forum, browser) -> dict:
    return json.loads(decode(id_token_of(forum, browser).split(".")[1]))


@on_each_backend
def test_next_key_is_published_a_day_before_it_signs(clock, store, forum, adas_browser, anyone):
    """The public half of the old one stays for 14 days, and no private half of it."""
    first = id_token_of(forum, adas_browser)
    jwk = verifying_key(first, anyone)
    assert jwk.keys() == {"kty", "use", "alg", "kid", "n", "e"}
    members = json.dumps({name: jwk[name] for name in ("e", "kty", "n")}, separators=(",", ":"))
    assert decode(jwk["kid"]) == hashlib.sha256(members.encode()).digest()  # RFC 7638
    rotate_openid_keys(store, now=False)
    rotate_openid_keys(store, now=False)  # one is waiting already
    published = anyone.get("/oauth/keys").json["keys"]
    assert [jwk] == published[:-1]
    clock.shift(DAY - 1)
    assert verifying_key(id_token_of(forum, adas_browser), anyone) == jwk
    clock.shift(1)
    assert verifying_key(id_token_of(forum, adas_browser), anyone) == published[1]
    assert verifying_key(first, anyone) == jwk
    assert [bool(store.openid_keys.read(each["kid"]).private_key) for each in published] == [0, 1]
    clock.shift(14 * DAY - 1)
    assert read_hint(first, store, SITE)["sub"] == "1"
    clock.shift(1)
    assert read_hint(first, store, SITE) is None
    assert anyone.get("/oauth/keys").json["keys"] == published[1:]


@on_each_backend
def test_key_that_got_out_or_was_lost_is_replaced(store, forum, adas_browser, anyone):
    rotate_openid_keys(store, now=True)
    assert store.openid_keys.ids() == []  # there was none
    first = id_token_of(forum, adas_browser)
    rotate_openid_keys(store, now=False)  # the one that waits goes as well
    rotate_openid_keys(store, now=True)
    [jwk] = anyone.get("/oauth/keys").json["keys"]
    assert verifying_key(id_token_of(forum, adas_browser), anyone) == jwk
    assert read_hint(first, store, SITE) is None
    edit(store.openid_keys, signing_key(store).id, private_key="")
    assert verifying_key(id_token_of(forum, adas_browser), anyone) != jwk


def test_first_keys_of_racing_processes_are_published_and_one_signs(store):
    made = {add_key(store, signs_from=0).id for _ in range(3)}
    signing = signing_key(store)
    assert {each.id for each in published_keys(store)} == made
    assert [each for each in published_keys(store) if each.private_key] == [signing]


def test_old_private_half_that_cannot_be_removed_stops_nothing(clock, store, faults, caplog):
    first = signing_key(store)
    rotate_openid_keys(store, now=False)
    clock.shift(DAY)
    faults.refuse_saves("openid_keys")
    assert signing_key(store).id != first.id
    faults.allow_saves()
    assert "the private half of an old key was not removed" in caplog.text
    assert store.openid_keys.read(first.id).private_key
    signing_key(store)
    assert not store.openid_keys.read(first.id).private_key


def test_machine_whose_clock_is_behind_signs_with_the_next_key(clock, store):
    first = signing_key(store)
    rotate_openid_keys(store, now=False)
    clock.shift(DAY)
    new = signing_key(store)
    clock.shift(-30)  # as at another machine, after this one removed the private half of the first
    assert signing_key(store) == new != first


def test_silent_request_after_sixty_codes_redirects(forum, adas_browser, clock):
    adas_browser.allow(forum, scope="openid")
    silent = forum.link(scope="openid", prompt="none")
    errors = [forum.read_callback(adas_browser.get(silent)).get("error") for _ in range(60)]
    assert errors == [None] * 59 + ["temporarily_unavailable"]


def test_player_is_asked_for_the_password_once(clock, store, forum, adas_browser, ada):
    """OpenID Connect Core 3.1.2.1. The new session takes the place of the old one."""
    adas_browser.allow(forum, scope="openid")
    clock.shift(100)
    for parameters in ({"prompt": "login"}, {"max_age": "99"}, {"max_age": "0"}):
        clock.shift(100)
        [old] = store.users.read(ada.id).sessions
        asked = adas_browser.get(forum.link(scope="openid", nonce="n", **parameters))
        page = adas_browser.get(asked.location)
        assert "The Forum</bdi> wants to be sure that you are <bdi" in page.text
        assert 'name="name" value="Ada"' in page.text and " readonly" in page.text
        leads_to = hidden_field(page, "next")
        assert adas_browser.get(leads_to).location.startswith("/sign-in?")  # not without it
        answer = adas_browser.get(adas_browser.sign_in(next=leads_to).location)
        assert "code" in forum.read_callback(answer)
        [new] = store.users.read(ada.id).sessions
        assert new.id != old.id and new.since == now_ms()
    assert "code" in forum.read_callback(adas_browser.get(forum.link(scope="openid", max_age="9")))


def test_guest_is_asked_for_the_password_once(forum, adas_browser, open_browser):
    adas_browser.allow(forum, scope="openid")
    guest = open_browser()
    asked = guest.get(forum.link(scope="openid", prompt="login", login_hint="ada@example.org"))
    page = guest.get(asked.location)
    assert 'value="ada@example.org"' in page.text and " readonly" not in page.text
    answer = guest.get(guest.sign_in(next=hidden_field(page, "next")).location)
    assert "code" in forum.read_callback(answer)


def test_only_the_player_of_the_hint_may_sign_in(store, forum, adas_browser, open_browser, bob):
    hint = id_token_of(forum, adas_browser)
    bobs = signed_in(open_browser(), "Bob")
    bobs.allow(forum, scope="openid")
    page = bobs.get(bobs.get(forum.link(scope="openid", id_token_hint=hint)).location)
    leads_to = hidden_field(page, "next")
    refused = bobs.sign_in("Bob", next=leads_to)
    assert (refused.status_code, "Sign in as Ada." in refused.text) == (403, True)
    answer = bobs.get(bobs.sign_in("Ada", PASSWORD, next=leads_to).location)
    assert "code" in forum.read_callback(answer)
    assert store.users.read(bob.id).sessions == []  # signed out in this browser
    store.users.delete(1)
    answer = open_browser().get(forum.link(scope="openid", id_token_hint=hint, prompt="none"))
    assert answer.status_code == 303


def test_code_stays_good_if_the_handle_cannot_be_saved(forum, adas_browser, faults, anyone):
    """Whatever can fail comes before the code is used up."""
    code = adas_browser.allow(forum, scope="openid profile")
    faults.refuse_saves("handles")
    refused = forum.exchange_standard(code)
    assert (refused.status_code, refused.json["error"]) == (503, "temporarily_unavailable")
    faults.allow_saves()
    token = forum.exchange_standard(code).json["access_token"]
    faults.refuse_saves("handles")  # which is made once
    answer = anyone.get("/oauth/userinfo", headers={"Authorization": f"Bearer {token}"})
    assert answer.json["preferred_username"] == "ada"
