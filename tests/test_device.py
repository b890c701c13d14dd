"""Signing in on another device (RFC 8628): the program's requests and the player's page."""

import functools
import io
import json
import re
from types import SimpleNamespace

import fixtures
import pytest
import segno
from authenticator import add_passkey, use_passkey
from conftest import FOREIGN_LINK, Program, on_each_backend
from documents import read_blocks
from forms import edit, from_address, hidden_field, problems_of, race, text_of, value_of
from PIL import Image

import identity.oauth.device
import pages.entry.device
from identity.acts import accounts
from identity.acts.actors import COMMAND, Authority
from identity.http.signing import decode_base64, serializer
from identity.http.stamps import TOO_QUICK
from identity.oauth.clients import DEVICE_GRANT
from identity.oauth.device import ANSWER_PREFIX, LETTERS, USER_CODE_PREFIX, parse_user_code
from model.records import Suspension
from pages.entry.device import (
    EXPIRED,
    LOST,
    NOT_A_CODE,
    OUT_OF_DATE,
    QR_CODES,
    UNKNOWN,
    USED,
    WRONG_CODES,
)

API, STANDARD = "/api/oauth/token", "/oauth/token"
ANY_ORIGIN = "Access-Control-Allow-Origin"
is_early_poll = identity.oauth.device.is_early_poll
bobs_browser = fixtures.bobs_browser


class Device(Program):
    """A program without a browser: a public client that starts the flow, and polls."""

    def start(self, **changes: str | list[str] | None):
        """Send a device authorization request (RFC 8628 3.1)."""
        form = {"client_id": self.id} | changes
        form = {name: value for name, value in form.items() if value is not None}
        return self.http.post("/oauth/device", data=form)

    def poll(self, started: dict, path: str = STANDARD, **changes: str | None):
        sent = {"grant_type": DEVICE_GRANT, "device_code": started["device_code"]}
        return self.exchange(None, path=path, **sent | changes)

    def error_of(self, started: dict, **changes: str | None) -> str:
        """Poll and return the error, which is the message of the other endpoint."""
        answer = self.poll(started, **changes)
        assert answer.status_code == 400 and " " in answer.json["error_description"]
        assert answer.headers["Cache-Control"] == "no-store"
        error = answer.json["error"]
        other = self.poll(started, API, **changes)
        assert (other.status_code, other.json) == (400, {"message": error})
        return error


@pytest.fixture(autouse=True)
def no_early_polls(monkeypatch) -> None:
    """Let no poll come too early, but where a test puts `is_early_poll` back."""
    monkeypatch.setattr(identity.oauth.device, "is_early_poll", lambda device_id: False)


@pytest.fixture
def app(request, make_app):
    """An app; a test may parametrize its settings."""
    return make_app(**getattr(request, "param", {}))


with_openid = pytest.mark.parametrize("app", [{"OPENID": "on"}], indirect=True)


@pytest.fixture
def add_device(store, anyone):
    """A function that registers a client for devices."""

    def add_device(name: str = "Space Console", **fields) -> Device:
        fields = {"public": True, "device": True} | fields
        client, secret = store.clients.register(name, [], None, **fields)
        return Device(anyone, client.id, secret, "")

    return add_device


@pytest.fixture
def device(add_device) -> Device:
    return add_device()


@pytest.fixture
def started(device) -> dict:
    return device.start().json


def look_up(browser, user_code: str):
    return browser.post("/device", data={"user_code": user_code})


def decide(browser, page, decision: str = "allow"):
    form = {"request": hidden_field(page, "request"), "decision": decision}
    return browser.post("/device/decision", data=form)


def answer(browser, started: dict, decision: str = "allow") -> str:
    """Type the code and decide; return the text of the page afterwards."""
    done = decide(browser, look_up(browser, started["user_code"]), decision)
    assert done.location == "/device"
    return text_of(browser.get("/device"))


# -- the whole flow -----------------------------------------------------------------------------


def test_documented_requests_are_those_of_a_device(adas_browser, device, anyone):
    documented = read_blocks("docs/games/devices.md")
    request = r"POST https://[^/]+(.*)\nContent-Type: (.*)\n\n(.*)\n"

    def send(name: str, **values: str) -> dict:
        path, content_type, form = re.fullmatch(request, documented[name]).groups()
        for placeholder, value in values.items():
            form = form.replace(f"={placeholder}", f"={value}")
        return anyone.post(path, data=form, content_type=content_type).json

    started = send("start", CLIENT_ID=device.id)
    answer(adas_browser, started)
    values = {"DEVICE_CODE": started["device_code"], "CLIENT_ID": device.id}
    assert send("poll", **values)["token_type"] == "Bearer"


@on_each_backend
@pytest.mark.parametrize("path", [STANDARD, API])
def test_player_signs_in_on_a_device_without_a_browser(adas_browser, device, ada, store, path):
    """RFC 8628 3: request, polls, the player's decision, and the token."""
    response = device.start(scope="email groups email other")
    started = response.json
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-store")
    assert re.fullmatch(f"[{LETTERS}]{{4}}-[{LETTERS}]{{4}}", started["user_code"])
    assert (started["expires_in"], started["interval"]) == (600, 5)
    assert started["verification_uri"] == "http://localhost/device"
    filled_in = f"http://localhost/device?user_code={started['user_code']}"
    assert started["verification_uri_complete"] == filled_in
    assert device.error_of(started) == "authorization_pending"
    page = text_of(look_up(adas_browser, started["user_code"]))
    for shown in (
        started["user_code"],
        "Does your device show this code?",
        "Space Console wants to know who you are Registered by the administrators",
        "It runs on another device, which asked less than a minute ago from your network .",
        "If somebody sent you this code or link, cancel: they would be signed in as you.",
        "your role and flairs: players your email, ada@example.org",
    ):
        assert shown in page or shown.replace(" .", ".") in page
    assert store.users.read(ada.id).grants == {}
    assert "Done. Go back to your device." in answer(adas_browser, started)
    given = device.poll(started, path).json
    more = {"scope"} if path == STANDARD else set()  # fewer than were asked for (RFC 6749 5.1)
    assert given.keys() == {"access_token", "token_type", "expires_in"} | more
    assert given.get("scope", "email groups") == "email groups"
    seen = device.whois(given["access_token"]).json
    assert (seen["id"], seen["email"]) == (ada.id, "ada@example.org")
    assert store.users.read(ada.id).consents[device.id].scope == ["userinfo", "email", "groups"]
    assert store.clients.read(device.id).used > 0


def test_player_who_cancels_gives_nothing(adas_browser, device, started, ada, store):
    """However often the device asks."""
    assert "Your device is not signed in." in answer(adas_browser, started, "deny")
    assert [device.error_of(started) for _ in range(2)] == ["access_denied"] * 2
    assert store.users.read(ada.id).grants == {}


def test_answer_is_good_for_as_long_as_its_device_code(adas_browser, device, started, clock):
    """A code is good for 60 seconds, because a browser brings it; a device polls."""
    answer(adas_browser, started)
    clock.shift(599)
    assert device.poll(started).status_code == 200


@with_openid
def test_id_token_says_when_and_how_the_player_signed_in(clock, adas_browser, device, ada):
    """OpenID Connect Core 2. There is no nonce in this flow."""
    phone = add_passkey(adas_browser)
    adas_browser.post("/sign-out")
    assert use_passkey(adas_browser, phone).status_code == 200
    clock.shift(60)
    started = device.start(scope="openid").json
    answer(adas_browser, started)
    token = device.poll(started).json["id_token"]
    claims = json.loads(decode_base64(token.split(".")[1].encode()))
    assert (claims["sub"], claims["aud"], "nonce" in claims) == (str(ada.id), device.id, False)
    assert claims["iat"] - claims["auth_time"] == 60
    assert claims["amr"] == ["pop", "user", "mfa"]


@pytest.mark.parametrize("path", [STANDARD, API])
def test_used_device_code_ends_the_tokens(adas_browser, device, started, path):
    """RFC 6749 4.1.2: one of the two requests was a thief's. So other devices' tokens end, too."""
    other = device.start().json
    for each in (other, started):
        answer(adas_browser, each)
    tokens = [device.poll(each, path).json["access_token"] for each in (other, started)]
    assert [device.whois(token).status_code for token in tokens] == [200, 200]
    assert device.error_of(started) == "invalid_grant"
    assert [device.whois(token).status_code for token in tokens] == [401, 401]


# -- requests of programs -----------------------------------------------------------------------


def test_device_request_errors(device, register, add_device, store, faults, subtests):
    """RFC 8628 3.2: as those of the token endpoint (RFC 6749 5.2). Nothing is stored."""
    elsewhere = register("https://space.example/callback", public=True)
    confidential = register("https://forum.example/callback")
    disabled = add_device(disabled=True)
    before = faults.stored("codes")
    with_secret = {"client_id": confidential.id, "client_secret": confidential.secret}
    for status, error, changes in (
        (400, "invalid_client", {"client_id": None}),
        (400, "invalid_client", {"client_id": ""}),
        (400, "invalid_client", {"client_id": "0" * 24}),
        (401, "invalid_client", {"client_id": disabled.id}),
        (401, "invalid_client", {"client_secret": "x"}),
        (401, "invalid_client", with_secret | {"client_secret": "x"}),
        (400, "unauthorized_client", with_secret),
        (400, "unauthorized_client", {"client_id": elsewhere.id}),
        (400, "invalid_request", {"client_id": [device.id] * 2}),
        (400, "invalid_request", {"scope": ["email", "groups"]}),
    ):
        with subtests.test(error=error, changes=changes):
            answer = device.start(**changes)
            assert (answer.status_code, answer.json["error"]) == (status, error)
            assert answer.json["error_description"]
    as_json = device.http.post("/oauth/device", json={"client_id": device.id})
    too_large = device.start(scope="x" * 17_000)
    assert (as_json.status_code, as_json.json["error"]) == (400, "invalid_request")
    assert (too_large.status_code, too_large.json["error"]) == (413, "invalid_request")
    assert faults.stored("codes") == before


def test_device_code_errors(device, add_device, started, app, clock):
    """RFC 8628 3.5. A code that is signed for something else is none."""
    with app.app_context():
        other_purpose = serializer("access token").dumps([device.id, "x"])
    other = started["device_code"][:-8] + "AAAAAAAA"
    for wrong in ("x", "a.b.c", "\x00", other, other_purpose, started["user_code"]):
        assert device.error_of({"device_code": wrong}) == "invalid_grant"
    both = f"grant_type must be authorization_code or {DEVICE_GRANT}"
    for changes, error, words in (
        ({"device_code": ""}, "invalid_request", "device_code is"),
        ({"device_code": [started["device_code"]] * 2}, "invalid_request", "device_code is"),
        ({"grant_type": "password", "code": "x"}, "unsupported_grant_type", both),
    ):
        answer = device.poll(started, **changes)
        assert (answer.status_code, answer.json["error"]) == (400, error)
        message = device.poll(started, API, **changes).json["message"]
        standard = answer.json["error_description"]
        assert message.startswith(words) and standard.removesuffix(" or refresh_token") == message
    assert device.error_of(started) == "authorization_pending"
    clock.shift(601)
    assert device.error_of(started) == "expired_token"


def test_device_code_is_for_its_own_client(adas_browser, device, add_device, started):
    """And another client can neither use it up nor end its tokens."""
    other = add_device("Other")
    answer(adas_browser, started)
    assert other.error_of(started) == "invalid_grant"
    token = device.poll(started).json["access_token"]
    assert other.error_of(started) == "invalid_grant"
    assert device.whois(token).status_code == 200


def test_client_that_is_no_more_for_devices_gets_no_token(adas_browser, device, started, store):
    answer(adas_browser, started)
    for field, error, status in (
        ("device", "unauthorized_client", 400),
        ("disabled", "invalid_client", 401),
    ):
        edit(store.clients, device.id, **{field: field == "disabled"})
        refused = device.poll(started)
        assert (refused.status_code, refused.json["error"]) == (status, error)
        edit(store.clients, device.id, **{field: field == "device"})
    assert device.poll(started).status_code == 200


def test_codes_of_devices_are_no_authorization_codes(adas_browser, device, started, app, faults):
    """Their names in the store are no secrets: the device code shows the id in its answer's."""
    answer(adas_browser, started)
    waiting = device.start().json
    before = faults.stored("codes")
    signed = decode_base64(started["device_code"].split(".")[0].encode())
    names = [ANSWER_PREFIX + json.loads(signed)[1]]
    names.append(USER_CODE_PREFIX + waiting["user_code"].replace("-", ""))
    for name in names:
        for path in (STANDARD, API):
            refused = device.exchange(name, path=path)
            text = "unknown or expired authorization code"
            assert text in refused.json.values() and refused.status_code == 400
    assert faults.stored("codes") == before
    assert device.poll(started).status_code == 200


def test_player_who_may_not_sign_in_gives_no_token(adas_browser, device, ada, store):
    """Whatever happened since the player allowed it, as for codes."""
    acts = Authority(store, COMMAND)

    def suspend(user) -> None:
        user.suspension = Suspension(None)

    def withdraw(user) -> None:
        del user.grants[device.id]

    for change in (withdraw, suspend):
        started = device.start().json
        answer(adas_browser, started)
        with store.users.edit(ada.id) as user:
            change(user)
        assert device.error_of(started) == "invalid_grant"
    assert look_up(adas_browser, started["user_code"]).location.startswith("/sign-in")
    accounts.delete_user(acts, ada.id)
    assert device.error_of(started) == "invalid_grant"


def test_early_poll_is_told_to_slow_down(adas_browser, device, monkeypatch):
    """RFC 8628 3.5. An answer that is there is given at once, also then."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(identity.oauth.device, "is_early_poll", is_early_poll)
    monkeypatch.setattr(
        identity.oauth.device, "time", SimpleNamespace(monotonic=lambda: now.seconds)
    )
    started, other = device.start().json, device.start().json

    def poll(which: dict = started) -> str:
        return device.poll(which).json.get("error", "a token")

    assert (poll(), poll()) == ("authorization_pending", "slow_down")
    assert poll(other) == "authorization_pending"
    now.seconds = 3.9
    assert poll() == "slow_down"
    now.seconds = 8.8  # five seconds, with a request that took longer than the next
    assert poll() == "authorization_pending"
    answer(adas_browser, started)
    assert poll() == "a token"
    monkeypatch.setattr(identity.oauth.device, "POLLS_KEPT", 3)
    assert [is_early_poll(each) for each in "aabcda"] == [False, True, False, False, False, False]


def test_qr_codes_use_up_no_guesses_and_no_requests(adas_browser, device, started):
    """They are counted by themselves: see test_limits.py."""
    path = f"/oauth/device/qr?user_code={started['user_code']}"
    assert {device.http.get(path).status_code for _ in range(QR_CODES)} == {200}
    assert device.http.get(path).status_code == 429
    assert device.start().status_code == 200
    assert look_up(adas_browser, started["user_code"]).status_code == 200


@with_openid
def test_programs_and_pages_of_any_origin_start_a_flow(device, register):
    """By the fast path and by Flask's way, for which `Host` has a port here."""
    confidential = register("https://forum.example/callback")
    for host in ("localhost", "localhost:8080"):
        for headers in ({}, FOREIGN_LINK | {"Origin": "https://game.example"}):
            sent = {"data": {"client_id": device.id}, "headers": headers | {"Host": host}}
            started = device.http.post("/oauth/device", **sent)
            assert (started.status_code, started.headers[ANY_ORIGIN]) == (200, "*")
            assert started.json["verification_uri"] == "http://localhost/device"
            sent["data"] = {"client_id": confidential.id}
            refused = device.http.post("/oauth/device", **sent)
            assert (refused.status_code, ANY_ORIGIN in refused.headers) == (400, False)
    assert device.http.preflight("/oauth/device", "POST", "Content-Type").status_code == 204


# -- the player's page --------------------------------------------------------------------------


def test_guest_signs_in_and_comes_back_with_the_code(browser, ada, started):
    shown = started["user_code"]
    redirected = browser.get(f"/device?user_code={shown}")
    assert redirected.status_code == 303
    assert redirected.location == f"/sign-in?next=/device?user_code%3D{shown}"
    for path in ("/device", "/device/decision"):
        assert browser.post(path).location.startswith("/sign-in")
    back = browser.sign_in(next=f"/device?user_code={shown}")
    assert value_of(browser.get(back.location), "user_code") == shown


def test_code_is_read_in_any_case_and_a_link_looks_nothing_up(
    adas_browser, started, device, faults
):
    shown = started["user_code"]
    plain = shown.replace("-", "")
    for typed in (shown.lower(), plain, " ".join(plain), f"  {plain[:2]}–{plain[2:]}\t"):
        assert parse_user_code(typed) == plain
        assert "Does your device show this code?" in look_up(adas_browser, typed).text
    for typed in ("", plain[:7], f"{plain}B", "AAAA-AAAA", "BCDF-GHJ1", "BCDFGHJ\x00", "B" * 9999):
        refused = look_up(adas_browser, typed)
        assert (refused.status_code, problems_of(refused)) == (400, {"user_code": NOT_A_CODE})
    page = adas_browser.get(f"/device?user_code={started['user_code'].lower()}")
    assert value_of(page, "user_code") == started["user_code"]
    assert "Space Console" not in page.text
    page = adas_browser.get('/device?user_code="><script>')
    assert value_of(page, "user_code") == '"><script>' and "<script>" not in text_of(page)
    before = faults.stored()
    for _ in range(20):
        device.poll(started)
        adas_browser.get(f"/device?user_code={started['user_code']}")
        adas_browser.get("/device?user_code=BBBB-BBBB")
    assert faults.stored() == before


def test_right_codes_count_for_nothing_before_ten_wrong_ones(adas_browser, started):
    for _ in range(2 * WRONG_CODES):
        assert look_up(adas_browser, started["user_code"]).status_code == 200
    for number in range(WRONG_CODES):
        wrong = f"BBBBBBB{LETTERS[number]}"  # nobody's, but for an accident in ten million
        assert problems_of(look_up(adas_browser, wrong)) == {"user_code": UNKNOWN}
    refused = look_up(adas_browser, started["user_code"])
    assert refused.status_code == 429
    assert "Too many tries" in problems_of(refused)["user_code"]


def test_network_of_the_device_is_compared(adas_browser, device):
    """RFC 8628 5.4. A page of another site can ask in the player's browser, and read the code."""
    for address, players, origin, expected in (
        ("127.0.0.1", "127.0.0.1", "https://evil.example", "ago from a web page"),
        ("127.0.0.1", "127.0.0.1", "null", "ago from a web page"),
        ("127.0.0.1", "127.0.0.1", "http://localhost", "ago from your network"),
        ("192.0.2.77", "127.0.0.1", None, "another network than yours"),
        ("2001:db8:1:1::1", "2001:db8:1:1::2", None, "ago from your network"),  # the same /64
    ):
        from_address(device.http, address)
        headers = {"Origin": origin} if origin else {}
        asked = device.http.post("/oauth/device", data={"client_id": device.id}, headers=headers)
        page = look_up(from_address(adas_browser, players), asked.json["user_code"])
        assert expected in text_of(page)


def test_expired_and_used_codes_are_told_apart(adas_browser, bobs_browser, device, started, clock):
    late = device.start().json
    page = look_up(adas_browser, started["user_code"])
    bobs_page = look_up(bobs_browser, started["user_code"])
    late_page = look_up(bobs_browser, late["user_code"])
    assert decide(adas_browser, page).status_code == 303
    for refused in (
        decide(adas_browser, page, "deny"),
        decide(bobs_browser, bobs_page),
        look_up(bobs_browser, started["user_code"]),
    ):
        assert (refused.status_code, problems_of(refused)) == (403, {"user_code": USED})
    clock.shift(601)
    for refused in (decide(bobs_browser, late_page), look_up(bobs_browser, late["user_code"])):
        assert (refused.status_code, problems_of(refused)) == (403, {"user_code": EXPIRED})


def test_decision_is_bound_to_the_session(adas_browser, bobs_browser, device, started):
    """A page elsewhere or another player cannot have the request approved."""
    page = look_up(bobs_browser, started["user_code"])
    signed = hidden_field(page, "request")
    for wrong in (signed, f"x{signed}", "", adas_browser.issue_stamp()):
        form = {"request": wrong, "decision": "allow"}
        refused = adas_browser.post("/device/decision", data=form)
        assert (refused.status_code, problems_of(refused)) == (400, {"user_code": OUT_OF_DATE})
    form = {"request": signed, "decision": "allow"}
    foreign = bobs_browser.post("/device/decision", data=form, headers=FOREIGN_LINK)
    assert foreign.status_code == 403
    assert bobs_browser.post("/device/decision", data=form | {"decision": "x"}).status_code == 400
    bobs_browser.sign_in("Bob")
    assert bobs_browser.post("/device/decision", data=form).status_code == 400
    assert device.error_of(started) == "authorization_pending"


def test_early_decision_does_not_count(adas_browser, device, started, real_minimum_age, clock):
    """RFC 9700 4.16: the press may be the second click of a double click."""
    page = look_up(adas_browser, started["user_code"])
    assert "data-hold" in page.text and "hold.js" in page.text
    clock.shift(0.999)
    page = decide(adas_browser, page)
    assert (page.status_code, problems_of(page)) == (400, {"form": TOO_QUICK})
    clock.shift(0.999)
    assert decide(adas_browser, page).status_code == 400
    assert device.error_of(started) == "authorization_pending"
    clock.shift(0.001)
    assert decide(adas_browser, page).status_code == 303


@on_each_backend
def test_one_of_two_players_decides(adas_browser, bobs_browser, ada, bob, device, store):
    """Both press at once; the device gets the token of the one who was not refused."""
    for _ in range(5):
        started = device.start().json
        browsers = {ada.id: adas_browser, bob.id: bobs_browser}
        presses = [
            functools.partial(decide, each, look_up(each, started["user_code"]))
            for each in browsers.values()
        ]
        answers = dict(zip(browsers, race(*presses), strict=True))
        [winner] = [user_id for user_id, each in answers.items() if each.status_code == 303]
        [loser] = answers.keys() - {winner}
        assert problems_of(answers[loser]) == {"user_code": USED}
        token = device.poll(started).json["access_token"]
        assert device.whois(token).json["id"] == winner


@on_each_backend
def test_one_of_two_polls_gets_the_token(adas_browser, device):
    """And the other one ends it, as a code that is used twice."""
    for _ in range(5):
        started = device.start().json
        answer(adas_browser, started)
        answers = race(*[functools.partial(device.poll, started)] * 2)
        tokens = [each.json["access_token"] for each in answers if each.status_code == 200]
        assert len(tokens) == 1 and device.whois(tokens[0]).status_code == 401


def test_app_that_is_not_for_the_player_is_refused(adas_browser, add_device, ada, store):
    """Also if the player left the group after the page was shown, or before the token."""
    device = add_device(only_groups=["flair:Founder"])
    started = device.start().json
    refused = look_up(adas_browser, started["user_code"])
    assert refused.status_code == 403
    assert "is only for owners of the flair Founder" in text_of(refused)

    def set_flairs(*flairs: str) -> None:
        edit(store.users, ada.id, flairs=["none", *flairs])

    set_flairs("Founder")
    page = look_up(adas_browser, started["user_code"])
    set_flairs()
    assert decide(adas_browser, page).status_code == 403
    set_flairs("Founder")
    assert decide(adas_browser, page).status_code == 303
    set_flairs()
    assert device.error_of(started) == "invalid_grant"


def test_app_that_cannot_sign_in_is_refused(adas_browser, device, started, store):
    page = look_up(adas_browser, started["user_code"])
    no_such_app = {"form": pages.entry.device.NO_SUCH_APP}
    for field in ("disabled", "device"):
        edit(store.clients, device.id, disabled=field == "disabled", device=field != "device")
        for refused in (look_up(adas_browser, started["user_code"]), decide(adas_browser, page)):
            assert (refused.status_code, problems_of(refused)) == (403, no_such_app)
    store.clients.delete(device.id)
    assert problems_of(decide(adas_browser, page)) == no_such_app


@pytest.mark.parametrize("kind", ["used codes", "users", "codes"])
def test_unsaved_decision_says_what_to_do(adas_browser, device, started, faults, monkeypatch, kind):
    """Before the code is used up it can be typed again; later the device has to start again."""
    page = look_up(adas_browser, started["user_code"])
    if kind == "codes":  # once the user code is spent
        claim = identity.oauth.device.claim_request

        def claim_and_fail(*arguments) -> None:
            claim(*arguments)
            faults.refuse_saves("codes")

        monkeypatch.setattr(identity.oauth.device, "claim_request", claim_and_fail)
    else:
        faults.refuse_saves(kind)
    failed = decide(adas_browser, page)
    faults.allow_saves()
    expected = "Nothing was saved. Try again in a moment." if kind == "used codes" else LOST
    assert (failed.status_code, problems_of(failed)) == (503, {"form": expected})
    assert device.error_of(started) == "authorization_pending"
    again = look_up(adas_browser, started["user_code"])
    assert again.status_code == (200 if kind == "used codes" else 403)


def test_qr_code_has_the_address_of_the_page_alone(device, started):
    """Pages of any site may show it; nothing is looked up."""
    path = started["verification_qr_uri"].removeprefix("http://localhost")
    shown = device.http.get(path, headers={"Sec-Fetch-Site": "cross-site"})
    assert (shown.status_code, shown.content_type) == (200, "image/png")
    assert (shown.headers[ANY_ORIGIN], shown.headers["Cache-Control"]) == ("*", "no-store")
    assert shown.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    expected = segno.make_qr(started["verification_uri_complete"])
    with Image.open(io.BytesIO(shown.data)) as image:
        modules = [[bool(each) for each in row] for row in expected.matrix]
        middle = range(4 * 8 + 4, image.width - 4 * 8, 8)  # behind the border, of each module
        pixels = image.convert("L").load()
        assert [[pixels[x, y] == 0 for x in middle] for y in middle] == modules
    for wrong in ("", "?user_code=", "?user_code=AAAA-AAAA", "?user_code=https://evil.example"):
        assert device.http.get(f"/oauth/device/qr{wrong}").status_code == 404
