"""Passkeys, recovery codes, and accounts without a password."""

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import tracemalloc
from hashlib import sha256
from urllib.parse import unquote

import pytest
from authenticator import (
    BACKED_UP,
    ELIGIBLE,
    USER_PRESENT,
    VERIFIED,
    Authenticator,
    add_passkey,
    ask_creation,
    ask_request,
    encode,
    use_passkey,
)
from backends import FLAT_FILES
from conftest import PASSWORD, Browser, Program, on_each_backend
from fido2 import cbor
from forms import edit, hidden_field, is_signed_in, parse, problems_of, race, set_by_link, text_of

from identity.access import passwords
from identity.access.links import issue_sign_in_link
from identity.access.passwords import hash_password
from identity.acts import passkeys as passkey_acts
from identity.acts import recovery_codes
from identity.acts.actors import Actor, Authority
from identity.acts.passkeys import PASSKEYS_EACH, LastWayIn
from identity.acts.recovery_codes import CODES, count_codes
from identity.http.limits import ATTEMPTS_PER_NAME
from identity.site import hosts
from model.kinds import PASSKEYS, RECOVERY_CODES
from model.records import Passkey, Suspension
from pages.kit.proof import PROOF_AGE
from storage.whole.archive import backup, restore
from storage.whole.copying import copy

DAY = 86_400  # seconds
POLICY = "Content-Security-Policy"


@pytest.fixture
def phone(adas_browser) -> Authenticator:
    """Ada's passkey; she is signed in."""
    return add_passkey(adas_browser)


@pytest.fixture
def guest(open_browser, phone) -> Browser:
    return open_browser()


def passkeys_of(store, user) -> list[Passkey]:
    return store.records(PASSKEYS).page("user", str(user.id))


def post_credential(browser, credential: str, leads_to: str = "/"):
    return browser.post("/sign-in/passkey", data={"credential": credential, "next": leads_to})


# -- adding -------------------------------------------------------------------------------------


def test_passkey_is_added_and_signs_in(store, adas_browser, open_browser, ada, clock):
    phone = add_passkey(adas_browser, name="My phone", flags=VERIFIED | ELIGIBLE | BACKED_UP)
    [passkey] = passkeys_of(store, ada)
    assert (passkey.name, passkey.rp_id, passkey.used) == ("My phone", "localhost", 0)
    assert passkey.synced and passkey.transports == ["hybrid", "internal"]
    clock.shift(DAY)
    browser = open_browser()
    answer = use_passkey(browser, phone, "/account/apps")
    assert (answer.status_code, answer.json) == (200, {"next": "/account/apps"})
    assert is_signed_in(browser)
    [used] = passkeys_of(store, ada)
    assert used.used == passkey.created + DAY * 1000
    assert use_passkey(browser, phone, "//evil.example").json == {"next": "/"}


def test_options_have_the_names_and_demands_of_the_standard(adas_browser, ada, open_browser):
    """W3C Web Authentication Level 3, 5.1.8 and 5.1.9."""
    first = ask_creation(adas_browser)
    assert first["rp"] == {"id": "localhost", "name": "Identity Server"}
    assert first["user"].keys() == {"id", "name", "displayName"}
    assert first["excludeCredentials"] == []
    selection = first["authenticatorSelection"]
    assert (selection["residentKey"], selection["userVerification"]) == ("required", "required")
    assert (first["attestation"], len(first["challenge"])) == ("none", 43)
    phone = add_passkey(adas_browser)
    second = ask_creation(adas_browser)
    assert second["user"]["id"] == phone.handle and len(phone.handle) == 43
    assert second["challenge"] != first["challenge"]
    [excluded] = second["excludeCredentials"]
    assert excluded["id"] == encode(phone.credential_id)
    asked = ask_request(open_browser())
    assert (asked["rpId"], asked["userVerification"]) == ("localhost", "required")
    assert asked["allowCredentials"] == []  # a guest learns nothing of anybody's passkeys
    [own] = ask_request(adas_browser)["allowCredentials"]
    assert own["id"] == encode(phone.credential_id)


def test_passkey_without_a_name_gets_that_of_its_model(store, adas_browser, ada, subtests):
    google = bytes.fromhex("ea9b8d664d011d213ce4b6b48cb575d4")
    for aaguid, name in (
        (google, "Google Password Manager"),
        (bytes(16), "Passkey (Firefox on Linux)"),
    ):
        with subtests.test(name):
            credential = Authenticator(aaguid=aaguid).create(ask_creation(adas_browser))
            headers = {"User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/140.0"}
            data = {"credential": credential, "name": " "}
            adas_browser.post("/account/passkeys", data=data, headers=headers)
            assert any(each.name.startswith(name) for each in passkeys_of(store, ada))


def test_adding_needs_a_proof_of_the_last_five_minutes(store, adas_browser, ada, clock):
    options = ask_creation(adas_browser)
    clock.shift(PROOF_AGE)
    for fields, status in (({}, 403), ({"password": "wrong"}, 403), ({"password": PASSWORD}, 200)):
        assert adas_browser.post("/account/passkeys/options", data=fields).status_code == status
    assert adas_browser.post("/account/passkeys/options").status_code == 200
    clock.shift(PROOF_AGE)
    credential = Authenticator().create(options)
    late = adas_browser.post("/account/passkeys", data={"credential": credential, "name": ""})
    assert late.status_code == 403 and passkeys_of(store, ada) == []


def test_registration_that_proves_nothing_is_400(store, adas_browser, ada, subtests):
    def refuse(credential: str) -> None:
        answer = adas_browser.post("/account/passkeys", data={"credential": credential, "name": ""})
        assert answer.status_code == 400
        assert "passkeys-form" in problems_of(answer)
        assert passkeys_of(store, ada) == []

    wrong = {
        "another origin": {"origin": "https://localhost"},
        "an origin that is no text": {"origin": 5},
        "the other type": {"type": "webauthn.get"},
        "another challenge": {"challenge": "x" * 43},
        "inside another site": {"crossOrigin": True},
        "no user verification": {"flags": USER_PRESENT},
        "backed up, not eligible": {"flags": VERIFIED | BACKED_UP},
        "below another site": {"topOrigin": "https://game.example"},
    }
    for name, changes in wrong.items():
        with subtests.test(name):
            refuse(Authenticator().create(ask_creation(adas_browser), **changes))
    with subtests.test("another host"):
        options = ask_creation(adas_browser)
        options["rp"]["id"] = "localhost.example"
        refuse(Authenticator().create(options))
    with subtests.test("an algorithm that was not asked for"):
        refuse(Authenticator(algorithm=-47).create(ask_creation(adas_browser)))
    with subtests.test("another credential id than the signed one"):
        credential = json.loads(Authenticator().create(ask_creation(adas_browser)))
        credential["id"] = credential["rawId"] = encode(b"another")
        refuse(json.dumps(credential))
    with subtests.test("a long credential id"):
        long = Authenticator(credential_id=bytes(1024))
        refuse(long.create(ask_creation(adas_browser)))


def test_challenge_is_for_one_purpose_and_session_and_good_once(store, adas_browser, ada, clock):
    """A replay with an old cookie is refused as well."""
    options = ask_creation(adas_browser)
    cookie = adas_browser.get_cookie("identity_session").value
    data = {"credential": Authenticator().create(options), "name": ""}
    assert adas_browser.post("/account/passkeys", data=data).status_code == 201
    adas_browser.set_cookie("identity_session", cookie)
    again = {"credential": Authenticator().create(options), "name": ""}
    assert adas_browser.post("/account/passkeys", data=again).status_code == 400
    foreign = ask_request(adas_browser)  # its challenge is for a sign-in
    replaced = Authenticator().create(options | {"challenge": foreign["challenge"]})
    answer = adas_browser.post("/account/passkeys", data={"credential": replaced, "name": ""})
    assert answer.status_code == 400
    options = ask_creation(adas_browser)
    adas_browser.sign_in()  # another session
    data = {"credential": Authenticator().create(options), "name": ""}
    assert adas_browser.post("/account/passkeys", data=data).status_code == 400
    assert len(passkeys_of(store, ada)) == 1


def test_passkey_of_another_player_is_not_added_or_removed(store, phone, enter, ada):
    """Nor is the twenty-first one added."""
    [passkey], bobs_browser = passkeys_of(store, ada), enter("Bob")
    credential = phone.create(ask_creation(bobs_browser))
    answer = bobs_browser.post("/account/passkeys", data={"credential": credential, "name": ""})
    assert answer.status_code == 400
    answer = bobs_browser.post("/account/passkeys/remove", data={"id": passkey.id})
    assert answer.status_code == 403 and passkeys_of(store, ada) == [passkey]
    for number in range(PASSKEYS_EACH):
        one = dataclasses.replace(passkey, id=f"{number:064x}", user_id=2)
        store.records(PASSKEYS).add(one)
    credential = Authenticator().create(ask_creation(bobs_browser))
    answer = bobs_browser.post("/account/passkeys", data={"credential": credential, "name": ""})
    assert answer.status_code == 400 and "20 passkeys" in problems_of(answer)["passkeys-form"]


# -- signing in ---------------------------------------------------------------------------------


def test_assertion_that_proves_nothing_is_400_or_403(guest, phone, subtests):
    wrong = {
        "another rp id": {"rp_id": "localhost.example"},
        "another origin": {"origin": "http://localhost.example"},
        "another port": {"origin": "http://localhost:8000"},
        "the other type": {"type": "webauthn.create"},
        "another challenge": {"challenge": "x" * 43},
        "inside another site": {"crossOrigin": True},
        "below another site": {"topOrigin": "https://game.example"},
        "below this site": {"topOrigin": "http://localhost", "crossOrigin": False},
        "below nothing": {"topOrigin": ""},
        "backed up, not eligible": {"flags": VERIFIED | BACKED_UP},
        "no user verification": {"flags": USER_PRESENT},
        "nobody present": {"flags": 4},
        "the handle of another player": {"handle": "x" * 43},
        "no handle": {"handle": ""},
    }
    for name, changes in wrong.items():
        with subtests.test(name):
            assert use_passkey(guest, phone, **changes).status_code in (400, 403)
            assert not is_signed_in(guest)
    with subtests.test("the key of another authenticator"):
        forged = Authenticator(phone.credential_id, handle=phone.handle)
        assert use_passkey(guest, forged).status_code in (400, 403)
    with subtests.test("a signature that was changed"):
        credential = json.loads(phone.get(ask_request(guest)))
        signature = credential["response"]["signature"]
        credential["response"]["signature"] = signature[:-8] + "AAAAAAAA"
        assert post_credential(guest, json.dumps(credential)).status_code in (400, 403)
    assert not is_signed_in(guest)


def without_handle(credential: str, handle: str | None) -> list[str]:
    """Return an answer with this in place of its user handle, and one without it."""
    answer = json.loads(credential)
    answer["response"]["userHandle"] = handle
    replaced = json.dumps(answer)
    del answer["response"]["userHandle"]
    return [replaced, json.dumps(answer)]


def test_own_passkeys_need_no_user_handle(adas_browser, phone, guest, enter, clock, subtests):
    """W3C Web Authentication Level 3, 7.2 step 6: security keys need not keep it."""
    bobs_browser = enter("Bob")
    add_passkey(bobs_browser)
    for handle, which in itertools.product((None, ""), (0, 1)):
        with subtests.test(handle=handle, which=which):
            clock.shift(PROOF_AGE)
            assert adas_browser.post("/account/recovery-codes").status_code == 403
            for other in (guest, bobs_browser):  # who were asked for any, and for Bob's
                credential = without_handle(phone.get(ask_request(other)), handle)[which]
                assert post_credential(other, credential).status_code in (400, 403)
            credential = without_handle(phone.get(ask_request(adas_browser)), handle)[which]
            assert post_credential(adas_browser, credential).status_code == 200
            assert adas_browser.post("/account/recovery-codes").status_code == 201
    wrong = phone.get(ask_request(adas_browser), handle="x" * 43)
    assert post_credential(adas_browser, wrong).status_code in (400, 403)
    assert not is_signed_in(guest)


def test_assertion_is_good_once_and_for_five_minutes(guest, phone, open_browser, clock):
    options = ask_request(guest)
    cookie, credential = guest.get_cookie("identity_session").value, phone.get(options)
    assert post_credential(guest, credential).status_code == 200
    thief = open_browser()
    thief.set_cookie("identity_session", cookie)
    assert post_credential(thief, credential).status_code == 400
    assert not is_signed_in(thief)
    assert post_credential(open_browser(), credential).status_code == 400  # without any cookie
    options = ask_request(guest)
    clock.shift(299)
    assert post_credential(guest, phone.get(options)).status_code == 200
    options = ask_request(guest)
    clock.shift(300)
    assert post_credential(guest, phone.get(options)).status_code == 400


def test_racing_assertions_of_one_challenge_start_one_session(app, store, guest, phone, ada):
    options = ask_request(guest)
    cookie, credential = guest.get_cookie("identity_session").value, phone.get(options)

    def send() -> int:
        browser = Browser(app, app.response_class)
        browser.set_cookie("identity_session", cookie)
        return post_credential(browser, credential).status_code

    before = len(store.users.read(ada.id).sessions)
    assert sorted(race(*[send] * 16)) == [200] + [400] * 15
    assert len(store.users.read(ada.id).sessions) == before + 1


def test_unknown_passkey_is_404(store, guest, phone, ada, subtests):
    """Only then the page tells the browser to forget it."""
    [passkey] = passkeys_of(store, ada)

    def change_host() -> None:  # the base URL was another one when it was added
        store.records(PASSKEYS).delete(passkey.id)
        store.records(PASSKEYS).add(dataclasses.replace(passkey, rp_id="old.example"))

    assert use_passkey(guest, Authenticator(handle=phone.handle)).status_code == 404
    for name, end in {
        "another host": change_host,
        "removed": lambda: store.records(PASSKEYS).delete(passkey.id),
        "its player was deleted": lambda: store.users.delete(ada.id),
    }.items():
        with subtests.test(name):
            end()
            for changes in ({}, {"rp_id": "old.example"}):
                answer = use_passkey(guest, phone, **changes)
                assert answer.status_code == 404
                assert answer.json["message"].startswith("This site doesn't know")
            if name == "removed":
                store.records(PASSKEYS).add(passkey)
    assert store.records(PASSKEYS).ids() == [] and store.records(RECOVERY_CODES).ids() == []


DEEP = "[" * 20_000


def test_garbage_is_400(guest, phone, adas_browser, subtests):
    """JSON nested 20,000 deep, too: an empty or partial post skips no step."""
    good = json.loads(phone.get(ask_request(guest)))
    parts = [{**good, name: None} for name in good]
    for name in good["response"]:
        rest = {each: good["response"][each] for each in good["response"] if each != name}
        parts += [{**good, "response": rest}, {**good, "response": rest | {name: 5}}]
    parts += [{**good, "response": rest | {"clientDataJSON": encode(DEEP.encode())}}]
    texts = ["", "{}", "[]", "null", "5", '"x"', DEEP, "é" * 99]
    for text in texts + list(map(json.dumps, parts)):
        with subtests.test(text[:60]):
            ask_request(guest)
            assert post_credential(guest, text).status_code in (400, 403, 404)
            ask_creation(adas_browser)
            data = {"credential": text, "name": ""}
            assert adas_browser.post("/account/passkeys", data=data).status_code == 400
    assert guest.post("/sign-in/passkey").status_code == 400
    assert not is_signed_in(guest)


def test_number_in_place_of_bytes_takes_no_memory(guest, phone, adas_browser):
    """fido2 would make as many bytes as the number says, and a guest could end a worker."""
    number = 10**8
    texts = []
    for name in ("authenticatorData", "signature", "userHandle", "clientDataJSON"):
        answer = json.loads(phone.get(ask_request(guest)))
        answer["response"][name] = number
        texts.append(json.dumps(answer))
    texts.append(phone.get(ask_request(guest), challenge=number))
    answer = json.loads(phone.create(ask_creation(adas_browser)))
    attestation = {"fmt": "none", "attStmt": {}, "authData": number}
    answer["response"]["attestationObject"] = encode(cbor.encode(attestation))
    use_passkey(guest, phone)  # which imports fido2
    tracemalloc.start()
    for text in texts:
        ask_request(guest)
        assert post_credential(guest, text).status_code == 400
    ask_creation(adas_browser)
    data = {"credential": json.dumps(answer), "name": ""}
    assert adas_browser.post("/account/passkeys", data=data).status_code == 400
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < number / 10


def test_suspended_player_gets_no_session_by_passkey_or_code(store, guest, phone, ada):
    [code, *_] = recovery_codes.issue(Authority(store, Actor(ada.id)), ada.id)
    edit(store.users, ada.id, suspension=Suspension("command", reason="Spam"), sessions=[])
    answer = use_passkey(guest, phone)
    assert answer.status_code == 403 and "Spam" in answer.json["message"]
    assert guest.sign_in(password=code).status_code == 403
    assert store.users.read(ada.id).sessions == []
    assert count_codes(store, ada.id) == CODES  # no code is used up for nothing


def test_counter_that_goes_back_is_logged_and_told_but_not_refused(store, guest, phone, ada):
    """W3C Web Authentication Level 3, 7.2 step 22. Synced passkeys always send 0."""
    told = []
    for counter in (0, 0, 7, 8, 8, 3, 5, 0, 9):
        before = store.users.read(ada.id).notices
        assert use_passkey(guest, phone, counter=counter).status_code == 200
        told.append(store.users.read(ada.id).notices != before)
    assert told == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert passkeys_of(store, ada)[0].counter == 9


def test_sign_in_without_a_password_stores_no_hash_of_the_empty_one(store, guest, phone, ada):
    """Nor one of a recovery code."""
    legacy = "pbkdf2:sha256:1000$salt$" + "0" * 64  # which a sign-in with the password replaces
    codes = recovery_codes.issue(Authority(store, Actor(ada.id)), ada.id)
    for kept in (legacy, ""):
        edit(store.users, ada.id, password_hash=kept)
        assert use_passkey(guest, phone).status_code == 200
        assert guest.sign_in(password=codes.pop()).status_code == 303
        assert store.users.read(ada.id).password_hash == kept
    assert guest.sign_in(password="").status_code == 403


def test_passkey_answers_an_app_that_asks_for_the_sign_in_again(make_app):
    """The player whom it asks for, and nobody else: OpenID Connect Core 3.1.2.1."""
    app = make_app(OPENID="on")
    store = app.extensions["storage"]
    browsers = {}
    for name in ("Ada", "Bob"):
        store.users.register(name, "", hash_password(PASSWORD))
        browsers[name] = Browser(app, app.response_class)
        assert browsers[name].sign_in(name).status_code == 303
    adas, bobs = add_passkey(browsers["Ada"]), add_passkey(browsers["Bob"])
    client, secret = store.clients.register("Forum", ["https://forum.example/callback"], None)
    forum = Program(browsers["Ada"], client.id, secret, client.redirect_uris[0])
    browsers["Ada"].allow(forum, scope="openid")
    asked = browsers["Ada"].get(forum.link(scope="openid", prompt="login"))
    leads_to = hidden_field(browsers["Ada"].get(asked.location), "next")
    assert ask_request(browsers["Ada"], leads_to)["allowCredentials"] == []
    refused = use_passkey(browsers["Ada"], bobs, leads_to)
    assert refused.status_code == 403 and "asks for Ada" in refused.json["message"]
    credential, _ = without_handle(adas.get(ask_request(browsers["Ada"], leads_to)), None)
    assert post_credential(browsers["Ada"], credential, leads_to).status_code == 400
    before = store.users.find_by_login("Ada").sessions
    assert use_passkey(browsers["Ada"], adas, leads_to).json == {"next": leads_to}
    assert "code" in forum.read_callback(browsers["Ada"].get(leads_to))
    [after] = store.users.find_by_login("Ada").sessions
    assert [after.id] != [each.id for each in before]


# -- proofs, and the last way in ------------------------------------------------------------------


def test_passkey_proves_who_presses_and_keeps_the_session(store, adas_browser, phone, ada, clock):
    clock.shift(PROOF_AGE)
    assert adas_browser.post("/account/recovery-codes").status_code == 403
    sessions = store.users.read(ada.id).sessions
    assert use_passkey(adas_browser, phone, "/account/security").status_code == 200
    assert [each.id for each in store.users.read(ada.id).sessions] == [sessions[0].id]
    assert adas_browser.post("/account/recovery-codes").status_code == 201
    clock.shift(PROOF_AGE)
    assert adas_browser.post("/account/recovery-codes").status_code == 403


def test_last_way_in_is_never_removed(store, adas_browser, phone, ada):
    """A password is one, or two passkeys, or one and a confirmed address."""

    def remove(passkey: Passkey) -> int:
        return adas_browser.post("/account/passkeys/remove", data={"id": passkey.id}).status_code

    def change_email(email: str) -> int:
        return adas_browser.post("/account/email", data={"email": email}).status_code

    assert adas_browser.post("/account/password/remove").status_code == 409
    assert store.users.read(ada.id).password_hash
    edit(store.users, ada.id, email_verified=True)
    assert adas_browser.post("/account/password/remove").status_code == 303
    assert store.users.read(ada.id).password_hash == ""
    assert change_email("") == 409 and change_email("new@example.org") == 409
    [first] = passkeys_of(store, ada)
    assert remove(first) == 409
    add_passkey(adas_browser)
    assert change_email("") == 303
    for passkey in passkeys_of(store, ada):
        assert remove(passkey) == 409
    foreign = Passkey("0" * 64, ada.id, "h", "c", "k", "old.example", "Old", 1)
    store.records(PASSKEYS).add(foreign)  # of another host, where it cannot be used
    assert remove(passkeys_of(store, ada)[1]) == 409
    assert adas_browser.post("/account/password", data={"new_password": "three random words x"})
    assert [remove(each) for each in passkeys_of(store, ada)] == [303] * 3


@on_each_backend
def test_racing_removals_leave_two_passkeys(storage):
    ada = storage.users.register("Ada", "", "")
    by = Authority(storage, Actor(ada.id))
    for number in range(6):
        one = Passkey(f"{number:064x}", ada.id, "h", "c", "k", "localhost", "Key", 1)
        storage.records(PASSKEYS).add(one)

    def remove(number: int) -> bool:
        with contextlib.suppress(LastWayIn):
            passkey_acts.remove(by, f"{number:064x}", "localhost")
            return True
        return False

    removed = race(*[functools.partial(remove, number) for number in range(6)])
    assert sorted(removed) == [False] * 2 + [True] * 4
    assert len(passkeys_of(storage, ada)) == 2


def test_used_link_stays_used_without_a_password(store, adas_browser, phone, ada, open_browser):
    """The password that it set was removed: the player has none again, as when it was made."""
    add_passkey(adas_browser)
    assert adas_browser.post("/account/password/remove").status_code == 303
    link = issue_sign_in_link(store, "", store.users.read(ada.id))
    assert set_by_link(adas_browser, link).status_code == 303
    assert adas_browser.post("/account/password/remove").status_code == 303
    thief = open_browser()
    assert set_by_link(thief, link).status_code == 403
    assert not is_signed_in(thief) and store.users.read(ada.id).password_hash == ""


def test_passkey_confirms_without_a_password(store, adas_browser, phone, ada, clock, subtests):
    add_passkey(adas_browser)
    assert adas_browser.post("/account/password/remove").status_code == 303
    forms = {
        "/account/email": {"email": "new@example.org", "current_password": ""},
        "/account/password": {"new_password": "three random words x"},
        "/account/delete": {},
    }
    for _ in range(3):  # an empty one proves nothing, and keeps no old proof
        clock.shift(PROOF_AGE / 2)
        answer = adas_browser.post("/account/passkeys/options", data={"password": ""})
    assert answer.status_code == 403
    for path, fields in forms.items():
        with subtests.test(path):
            clock.shift(PROOF_AGE)
            page = adas_browser.post(path, data=fields)
            assert page.status_code == 403
            assert parse(page).select(f'form[action="{path}"] button[name=confirm][hidden]')
            assert "connect-src 'self'" in page.headers["Content-Security-Policy"]
            assert use_passkey(adas_browser, phone).status_code == 200
            assert adas_browser.post(path, data=fields).status_code == 303
            if path == "/account/password":  # which she has again
                edit(store.users, ada.id, password_hash="")
    assert store.users.find(ada.id) is None


# -- recovery codes -----------------------------------------------------------------------------


@pytest.fixture
def codes(adas_browser) -> list[str]:
    """Ada's recovery codes, as their page shows them."""
    page = adas_browser.post("/account/recovery-codes")
    assert page.status_code == 201
    return shown_codes(page)


def shown_codes(page) -> list[str]:
    return parse(page).select_one(".codes code").text.split()


def test_codes_come_with_the_first_passkey_and_are_shown_once(store, adas_browser, ada):
    data = {"credential": Authenticator().create(ask_creation(adas_browser)), "name": ""}
    page = adas_browser.post("/account/passkeys", data=data)
    shown = shown_codes(page)
    assert "Passkey added. These are the recovery codes of Ada" in text_of(page)
    file = unquote(parse(page).select_one("a[download]")["href"]).partition(",")[2]
    assert file.split("\r\n") == ["Ada, Identity Server", "", *shown]
    assert len(shown) == len(set(shown)) == CODES == count_codes(store, ada.id)
    assert "You have 10 left." in text_of(page)
    later = adas_browser.get("/account/security")
    assert not any(each in later.text for each in shown)
    stored = store.records(RECOVERY_CODES).read(ada.id)
    assert not any(each.replace("-", "") in str(stored) for each in shown)
    data = {"credential": Authenticator().create(ask_creation(adas_browser)), "name": ""}
    assert adas_browser.post("/account/passkeys", data=data).status_code == 303
    assert count_codes(store, ada.id) == CODES


def test_each_code_signs_in_once_however_it_is_typed(store, open_browser, codes, ada):
    hash_before = store.users.read(ada.id).password_hash
    browser = open_browser()
    typed = [codes[0], codes[1].lower(), codes[2].replace("-", "")]
    typed.append(f" {codes[3]} ".replace("-", " "))
    for number, each in enumerate(typed, 1):
        assert browser.sign_in(password=each).status_code == 303
        assert is_signed_in(browser)
        assert open_browser().sign_in(password=each).status_code == 403
        assert count_codes(store, ada.id) == CODES - number
    user = store.users.read(ada.id)
    assert "6 recovery codes left" in user.notices[-1].text
    assert user.password_hash == hash_before


def test_code_replaces_a_password_in_forms(store, adas_browser, codes, ada, open_browser, bob):
    """And is no password of another player, nor good after new ones were made."""
    fields = {"email": "new@example.org", "current_password": codes[0]}
    assert adas_browser.post("/account/email", data=fields).status_code == 303
    assert adas_browser.post("/account/email", data=fields | {"email": ""}).status_code == 403
    assert count_codes(store, ada.id) == CODES - 1
    for name in ("Bob", "Nobody"):
        assert open_browser().sign_in(name, codes[1]).status_code == 403
    new = shown_codes(adas_browser.post("/account/recovery-codes"))[0]
    assert open_browser().sign_in(password=codes[1]).status_code == 403
    assert open_browser().sign_in(password=new).status_code == 303


def test_page_of_a_proof_takes_a_passkey_or_a_recovery_code(store, adas_browser, ada, codes, clock):
    """Of a player without a password; the page that confirms sends the form itself."""
    phone, *others = [add_passkey(adas_browser) for _ in range(4)]
    assert adas_browser.post("/account/password/remove").status_code == 303
    ids = [sha256(each.credential_id).hexdigest() for each in others]

    def remove(passkey_id: str, **fields: str):
        return adas_browser.post("/account/passkeys/remove", data={"id": passkey_id} | fields)

    clock.shift(PROOF_AGE)
    page = remove(ids[0])
    assert page.status_code == 403 and "connect-src 'self'" in page.headers[POLICY]
    assert parse(page).select("button[name=confirm][data-send][hidden]")
    assert parse(page).select_one("label[for=proof]").text == "Recovery code"
    for wrong, where in (("", "form"), ("2222-2222-2222-2222", "proof")):
        page = remove(ids[0], password=wrong)
        assert (page.status_code, list(problems_of(page))) == (403, [where])
    assert remove(ids[0], password=codes[0]).status_code == 303
    clock.shift(PROOF_AGE)
    assert remove(ids[1]).status_code == 403 and len(passkeys_of(store, ada)) == 3
    assert use_passkey(adas_browser, phone).status_code == 200
    assert remove(ids[1]).status_code == 303 and len(passkeys_of(store, ada)) == 2


@on_each_backend
def test_first_passkeys_that_race_give_one_set_of_codes(storage):
    """The page of each would show codes, and those of all but the last would be dead."""
    ada = storage.users.register("Ada", "", "")
    by = Authority(storage, Actor(ada.id))
    issued = race(*[functools.partial(recovery_codes.issue, by, ada.id, replace=False)] * 8)
    [shown] = filter(None, issued)
    assert all(recovery_codes.use(by, ada.id, code) for code in shown[:-1])
    assert recovery_codes.issue(by, ada.id, replace=False) == [] and recovery_codes.use(
        by, ada.id, shown[-1]
    )
    issued = race(*[functools.partial(recovery_codes.issue, by, ada.id, replace=False)] * 8)
    [shown] = filter(None, issued)  # when all are used
    assert len(shown) == CODES == count_codes(storage, ada.id) and recovery_codes.use(
        by, ada.id, shown[0]
    )


@on_each_backend
def test_of_racing_uses_of_a_code_one_wins(storage):
    ada = storage.users.register("Ada", "", "")
    by = Authority(storage, Actor(ada.id))
    first, second, *_ = recovery_codes.issue(by, ada.id)
    uses = [lambda: recovery_codes.use(by, ada.id, first)] * 8 + [
        lambda: recovery_codes.use(by, ada.id, second)
    ] * 8
    assert sorted(race(*uses)) == [False] * 14 + [True] * 2
    assert count_codes(storage, ada.id) == CODES - 2


def test_code_that_another_request_uses_meanwhile_does_nothing(
    store, adas_browser, open_browser, codes, ada, monkeypatch
):
    by, verify = Authority(store, Actor(ada.id)), passwords.verify_password

    def use_meanwhile(kept_hash: str, password: str) -> bool:
        assert recovery_codes.use(by, ada.id, password)
        return verify(kept_hash, password)

    monkeypatch.setattr(passwords, "verify_password", use_meanwhile)
    browser = open_browser()
    assert browser.sign_in(password=codes[0]).status_code == 403
    assert not is_signed_in(browser)
    fields = {"email": "new@example.org", "current_password": codes[1]}
    assert adas_browser.post("/account/email", data=fields).status_code == 403
    assert count_codes(store, ada.id) == CODES - 2


def test_wrong_codes_are_counted_like_wrong_passwords(open_browser, codes, subtests):
    """A right one is refused then as well: guesses of codes had no limit elsewhere."""
    browser = open_browser()
    for _ in range(ATTEMPTS_PER_NAME):
        assert browser.sign_in(password="2222-2222-2222-2222").status_code == 403
    assert browser.sign_in(password=codes[0]).status_code == 429
    for _ in range(ATTEMPTS_PER_NAME):  # right ones are not counted
        browser.environ_base["REMOTE_ADDR"] = "192.0.2.7"
        assert browser.sign_in(password=codes.pop()).status_code == 303


@on_each_backend
def test_copies_carry_passkeys_and_codes(storage, backend, tmp_path, unsynced, drawn_once):
    """They go with their player, and an installation with them alone is empty."""
    ada = storage.users.register("Ada", "", "")
    passkey = Passkey("0" * 64, ada.id, "h", "c", "k", "localhost", "Key", 1, counter=7, used=5)
    storage.records(PASSKEYS).add(passkey)
    recovery_codes.issue(Authority(storage, Actor(ada.id)), ada.id)
    codes = storage.records(RECOVERY_CODES).read(ada.id)
    archive = str(tmp_path / "backup.tar.gz")
    backup(storage, archive, "command")
    files, restored = FLAT_FILES.open(str(tmp_path / "a"), str(tmp_path / "b")), tmp_path / "c"
    copy(storage, files)
    restored = backend.open(str(restored), f"{restored} pictures")
    restore(restored, archive, "command")
    for each in (files, restored):
        assert passkeys_of(each, ada) == [passkey]
        assert each.records(RECOVERY_CODES).page("user", str(ada.id)) == [codes]
        assert list(each.verify()) == []
        each.users.delete(ada.id)
        assert each.records(PASSKEYS).ids() == each.records(RECOVERY_CODES).ids() == []
        assert list(each.verify()) == [] and each.is_empty()


# -- where they are offered -----------------------------------------------------------------------

PATHS = (
    *("/account/passkeys/options", "/account/passkeys", "/account/passkeys/remove"),
    *("/sign-in/passkey/options", "/sign-in/passkey"),
    *("/account/recovery-codes", "/account/password/remove"),
)


def test_rp_id_is_the_domain_of_a_secure_base_url():
    """W3C Web Authentication Level 3, 5.1.2: an IP address is none."""
    offered = {
        "https://id.example.org": "id.example.org",
        "https://id.example.org:8443": "id.example.org",
        "http://localhost": "localhost",
        "http://localhost:8000": "localhost",
    }
    none = ("http://127.0.0.1:8000", "http://[::1]:8000", "http://id.example.org")
    none += ("https://192.0.2.1", "https://[2001:db8::1]:8443")
    assert {each: hosts.find_rp_id(each) for each in offered} == offered
    assert not any(map(hosts.find_rp_id, none))


def test_without_passkeys_pages_and_addresses_have_nothing_of_them(make_app):
    app = make_app(BASE_URL="http://127.0.0.1")
    app.extensions["storage"].users.register("Ada", "", hash_password(PASSWORD))
    browser = Browser(app, app.response_class)
    shown = [browser.get("/sign-in")]
    assert browser.sign_in().status_code == 303
    shown += map(browser.get, ("/account/security", "/account/data"))
    for page in shown:
        assert page.status_code == 200
        words = ("passkey", "webauthn", "recovery")
        assert not [each for each in words if each in page.text.lower()]
        assert "connect-src" not in page.headers["Content-Security-Policy"]
    assert [browser.post(path).status_code for path in PATHS] == [404] * len(PATHS)


def test_script_may_ask_this_server_alone(adas_browser, open_browser):
    policy = open_browser().get("/sign-in").headers["Content-Security-Policy"]
    assert "connect-src 'self';" in policy
    policy = adas_browser.get("/account/security").headers["Content-Security-Policy"]
    assert policy.count("connect-src") == 1 and "connect-src 'self';" in policy
    assert "connect-src" not in adas_browser.get("/account").headers["Content-Security-Policy"]


def test_export_names_passkeys_without_keys(adas_browser, phone):
    exported = adas_browser.get("/account/export")
    [passkey] = exported.json["passkeys"]
    assert passkey.keys() == {"name", "created", "used", "synced"}
    assert exported.json["recovery_codes_left"] == CODES
    assert encode(phone.credential_id) not in exported.text


def test_refusal_is_logged_without_line_ends(guest, phone, caplog):
    with caplog.at_level(logging.WARNING):
        use_passkey(guest, phone, origin="http://x\n127.0.0.1 GET /")
        use_passkey(guest, phone, type="\n" * 500)
    assert caplog.messages and not [each for each in caplog.messages if "\n" in each]
