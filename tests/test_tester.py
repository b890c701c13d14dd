"""/developer/<id>/try: the tester, which runs the grant of an app and shows every message."""

import json
import re
import shlex
from urllib.parse import parse_qsl, urlsplit

import pytest
from conftest import Browser, Program
from forms import edit, hidden_field, led_to, parse, problems_of
from werkzeug.test import TestResponse

import identity.oauth.device
import identity_server
from identity.oauth.clients import CLIENT_FAILURES, DEVICE_GRANT
from identity.oauth.device import REQUESTS
from identity.oauth.terms import code_challenge_of
from model.records import ADMINISTRATOR
from pages.developer.tester import NO_CODE, NOT_OURS, TEST_MAX_AGE
from pages.entry.device import NOT_YOURS

CALLBACK = "https://space.example/callback"
PKCE = {"code_challenge": code_challenge_of("v" * 43), "code_challenge_method": "S256"}
KINDS = ["public", "confidential"]
EXCHANGE = "<button>Exchange the code</button>"


@pytest.fixture
def app(make_app):
    """An app whose members may register OAuth clients."""
    return make_app(CLIENT_REGISTRATION="members")


class TryPage:
    """A developer's browser on the page that tests one app."""

    def __init__(self, browser: Browser, program: Program) -> None:
        self.browser = browser
        self.program = program
        self.path = f"/developer/{program.id}/try"

    def open(self, **query: str) -> TestResponse:
        return self.browser.get(self.path, query_string=query)

    def start(self, **form: str) -> str:
        """Press Start; return the path of the authorization request."""
        answer = self.browser.post(self.path, data=form)
        assert answer.status_code == 303
        return answer.location

    def decide(self, address: str, decision: str = "allow") -> TestResponse:
        """Answer the consent page; return the response of the redirect URI."""
        page = self.browser.get(address)
        assert page.status_code == 200
        return self.browser.get(self.browser.decide(page, decision).location)

    def allow(self, **form: str) -> TestResponse:
        """Start a test and press Allow; return the page with the code."""
        answer = self.decide(self.start(**form))
        assert (answer.status_code, answer.location) == (303, self.path)
        return self.browser.get(answer.location)

    def exchange(self, secret: str | None = None) -> TestResponse:
        form = {"client_secret": secret or self.program.secret} if self.program.secret else {}
        return self.browser.post(f"{self.path}/token", data=form)

    def kept(self) -> dict:
        with self.browser.session_transaction() as session:
            return dict(session.get("trial", {}))


@pytest.fixture
def make_tester(adas_browser, register, ada):
    """A function that returns a tester for an app of Ada."""

    def make_tester(kind: str = "confidential", *uris: str) -> TryPage:
        uris = uris or (CALLBACK,)
        program = register(*uris, owner_id=ada.id, public=kind == "public")
        return TryPage(adas_browser, program)

    return make_tester


@pytest.fixture
def tester(make_tester) -> TryPage:
    return make_tester()


@pytest.fixture(params=KINDS)
def each_tester(request, make_tester) -> TryPage:
    return make_tester(request.param)


def messages_of(page: TestResponse) -> list[tuple[str, dict[str, str]]]:
    """Return the messages that were sent: first line, then names and values."""
    return [
        (message.code.text, {each.text: each.find_next("dd").text for each in message.select("dt")})
        for message in parse(page).select(".message")
    ]


def code_blocks(page: TestResponse) -> dict[str, str]:
    return {each["data-copy"]: each.text for each in parse(page).select("pre[data-copy]")}


def query_of(address: str) -> dict[str, str]:
    """Return the parameters of a query, each of which is there once."""
    pairs = parse_qsl(urlsplit(address).query)
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


# -- a whole test --------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["userinfo", "userinfo email"])
def test_tester_signs_in_and_shows_every_message(each_tester, scope):
    """Of each secret it shows the first four characters."""
    program = each_tester.program
    waiting = each_tester.allow(scope=scope)
    assert len(messages_of(waiting)) == 2
    kept = each_tester.kept()
    page = each_tester.exchange()
    assert (page.status_code, "It works." in page.text) == (200, True)
    [asked, returned, exchange, token, look_up, player] = messages_of(page)
    assert asked[1]["redirect_uri"] == f"http://localhost{each_tester.path}/callback"
    assert (asked[1]["scope"], asked[1]["client_id"]) == (scope, program.id)
    assert returned[1]["state"] == asked[1]["state"]
    assert exchange[0] == "POST http://localhost/api/oauth/token"
    assert token[0] == player[0] == "200 OK"
    assert look_up[0] == f"GET http://localhost/api/oauth/whois?client_id={program.id}"
    assert player[1]["name"] == "Ada"
    assert ("email" in player[1]) == ("email" in scope)

    secrets = {"code": kept["response"]["code"], "code_verifier": kept["verifier"]}
    secrets |= {"client_secret": program.secret} if program.secret else {}
    for name, secret in secrets.items():
        assert exchange[1][name] == f"{secret[:4]}…"
        assert secret not in waiting.text + page.text
    assert exchange[1].keys() == secrets.keys() | {"grant_type", "client_id", "redirect_uri"}
    assert re.fullmatch("Bearer .{4}…", look_up[1]["Authorization"])
    assert re.fullmatch(".{4}…", token[1]["access_token"])


def test_unverified_emails_are_told_where_no_mail_is_sent(app, tester):
    words = {"": "emails are not verified", "smtp://127.0.0.1": "emails do too"}
    for url, told in words.items():
        tester.allow()
        app.config["SMTP_URL"] = url
        assert told in tester.exchange().text
    app.config["SMTP_URL"] = ""


def test_client_secret_is_in_no_response_and_in_no_cookie(tester):
    """A wrong one is perhaps another password: of a short one not even the start is shown."""
    tester.allow()
    right = tester.program.secret
    for secret in ("hunter2", "secret: 0123456789abcdef", right[:-1], f" {right} "):
        page = tester.exchange(secret)
        typed = secret.strip()
        assert typed not in page.text + str(page.headers) + json.dumps(tester.kept())
        assert typed[-6:] not in page.text
        assert len(typed) > 20 or typed[:4] not in page.text
        if typed != right:
            assert page.status_code == 401
            assert problems_of(page)["client_secret"].startswith("Wrong client secret.")
            assert messages_of(page)[-1][0] == "401 Unauthorized"
    assert "It works." in page.text


def test_pkce_is_a_choice_for_confidential_apps_alone(make_tester):
    for kind, choice in (("confidential", "no"), ("public", "no"), ("confidential", "yes")):
        tester = make_tester(kind)
        assert ('name="pkce"' in tester.open().text) == (kind == "confidential")
        address = tester.start(pkce=choice, scope="openid")
        assert ("code_challenge" in query_of(address)) == ((kind, choice) != ("confidential", "no"))
        assert query_of(address)["scope"] == "userinfo"  # the first for an unknown one
        tester.decide(address)
        assert tester.exchange().status_code == 200


# -- its codes and tokens end with the page -----------------------------------------------------


def test_token_of_a_test_ends_before_the_page_is_sent(each_tester, store, ada, monkeypatch):
    issued, issue = [], identity_server.issue_access_token

    def record(*given) -> str:
        issued.append(issue(*given))
        return issued[-1]

    monkeypatch.setattr(identity_server, "issue_access_token", record)
    each_tester.allow()
    page = each_tester.exchange()
    [token] = issued
    assert each_tester.program.whois(token).status_code == 401
    assert "All tokens that this app had for you have ended." in page.text
    assert token not in page.text
    assert store.users.read(ada.id).grants == {}
    assert each_tester.kept() == {}


@pytest.mark.parametrize("stopped_at", ["code", "failure", "end"])
@pytest.mark.parametrize("consented", [False, True])
def test_consent_is_afterwards_as_before(each_tester, store, ada, clock, consented, stopped_at):
    """Whoever tries the app of a member allows it nothing: no email address at its next request."""
    browser, program = each_tester.browser, each_tester.program
    program.redirect_uri = CALLBACK
    if consented:
        browser.decide(browser.get(program.link(**PKCE)))
    before, grants = remembered(store, ada), store.users.read(ada.id).grants
    clock.shift(60)
    each_tester.allow(scope="userinfo email")
    if stopped_at == "failure":
        clock.shift(61)
    if stopped_at != "code":
        each_tester.exchange()
    assert remembered(store, ada) == before
    kept = store.users.read(ada.id).grants
    if consented:  # its tokens end only with that of the test
        assert (kept == grants) == (stopped_at != "end")
    else:
        assert (kept == {}) == (stopped_at != "code")
    assert ("Remove access" in browser.get("/account/apps").text) == consented
    assert ">Allow<" in browser.get(program.link(scope="email", **PKCE)).text


def remembered(store, user) -> dict[str, tuple]:
    consents = store.users.read(user.id).consents
    return {name: (each.scope, each.since) for name, each in consents.items()}


def test_refused_start_ends_the_test_before(tester, store):
    tester.allow()
    for disabled in (True, False):
        edit(store.clients, tester.program.id, disabled=disabled)
        if disabled:
            assert tester.browser.post(tester.path).status_code == 409
    assert EXCHANGE not in tester.open().text


# -- the response of the browser -----------------------------------------------------------------


@pytest.mark.parametrize("started", [True, False])
def test_response_with_another_state_is_ignored(make_tester, started):
    """RFC 9700 4.7.1: another site could bring a code of its own account."""
    tester, other = make_tester(), make_tester()
    foreign = query_of(other.start())["state"]
    if started:
        tester.start()
    kept = tester.kept()
    for state in ({}, {"state": ""}, {"state": "é"}, {"state": foreign}):
        sent = {"code": "a-foreign-code"} | state
        page = tester.browser.get(f"{tester.path}/callback", query_string=sent)
        assert (page.status_code, problems_of(page)) == (400, {"form": NOT_OURS})
        assert "a-foreign" not in page.text
        assert tester.kept() == kept
    assert problems_of(tester.exchange()) == {"form": NO_CODE}


def test_state_is_valid_once_and_a_sign_in_ends_the_test(tester):
    """A code of the account that was signed in before is not mixed with the new one."""
    answer = tester.browser.decide(tester.browser.get(tester.start()))
    assert tester.browser.get(answer.location).status_code == 303
    page = tester.browser.get(answer.location)
    assert (page.status_code, problems_of(page)) == (400, {"form": NOT_OURS})
    assert tester.exchange().status_code == 200  # the first response stands
    tester.allow()
    tester.browser.sign_in()
    assert tester.kept() == {}
    assert problems_of(tester.exchange()) == {"form": NO_CODE}


def test_refused_authorization_is_explained(tester):
    """Of an unusual error, the page shows a part: the cookie stays small."""
    for error, explanation in (
        ("access_denied", "You pressed Cancel"),
        ("invalid_request", "The site refused the request (invalid_request): <b>x"),
    ):
        state = query_of(tester.start())["state"]
        sent = {"error": error, "error_description": "<b>" + "x" * 999, "state": state}
        answer = tester.browser.get(f"{tester.path}/callback", query_string=sent)
        page = tester.browser.get(answer.location)
        problem = problems_of(page)["form"]
        assert (problem.startswith(explanation), len(problem) < 300) == (True, True)
        assert EXCHANGE not in page.text


# -- the token request ---------------------------------------------------------------------------


def test_code_older_than_a_minute_is_explained_and_the_test_ends_after_ten(tester, clock):
    tester.allow()
    clock.shift(61)
    page = tester.exchange()
    assert page.status_code == 400
    assert problems_of(page)["form"].startswith("The code is older than 60 seconds.")
    assert EXCHANGE not in page.text
    tester.allow()
    clock.shift(TEST_MAX_AGE / 1000)
    assert EXCHANGE in tester.open().text
    clock.shift(1)
    assert EXCHANGE not in tester.open().text
    assert problems_of(tester.exchange()) == {"form": NO_CODE}


def test_wrong_secrets_count_for_the_developers_address(tester):
    tester.allow()
    for _ in range(CLIENT_FAILURES):
        assert tester.program.exchange("x", client_secret="x").status_code == 401
    page = tester.exchange("wrong")
    assert page.status_code == 429
    assert problems_of(page)["form"].startswith("Too many wrong secrets from your network.")
    tester.browser.environ_base["REMOTE_ADDR"] = "192.0.2.1"
    tester.allow()
    assert tester.exchange("wrong").status_code == 401


# -- who may test --------------------------------------------------------------------------------

POSTS = ["/token", "", "/device", "/device/token"]


def test_app_of_another_player_cannot_be_tested(tester, bob, open_browser, store):
    """Nor by a guest; an administrator may."""
    browser = open_browser()
    bobs = TryPage(browser, tester.program)
    for status in (303, 403):
        answers = [browser.post(tester.path + each) for each in POSTS]
        answers += [browser.get(f"{tester.path}{each}") for each in ("", "/callback?code=c")]
        assert {each.status_code for each in answers} == {status}
        browser.sign_in("Bob")
    edit(store.users, bob.id, mod_level=ADMINISTRATOR)
    bobs.allow()
    assert messages_of(bobs.exchange())[-1][1]["name"] == "Bob"


# -- code for one's own app ----------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["userinfo", "userinfo email"])
@pytest.mark.parametrize("kind", KINDS)
def test_link_and_commands_complete_a_grant(make_tester, anyone, kind, scope):
    uri = "http://127.0.0.1:5000/?a=$HOME&b=(2);c"
    tester = make_tester(kind, CALLBACK, uri)
    program, browser = tester.program, tester.browser
    program.redirect_uri = uri
    blocks = code_blocks(tester.open(redirect_uri=uri, scope=scope))
    code = program.read_callback(browser.decide(browser.get(blocks["Copy link"])))["code"]
    exchange = shlex.split(blocks["Copy exchange command"].replace("\\\n", ""))
    assert exchange[:2] == ["curl", "http://localhost/api/oauth/token"]
    form = dict(each.split("=", 1) for each in exchange[3::2])
    assert ("client_secret" in form) == (kind == "confidential")
    form |= {"code": code} | ({"client_secret": program.secret} if program.secret else {})
    token = anyone.post("/api/oauth/token", data=form).json["access_token"]
    assert ("email" in program.whois(token).json) == ("email" in scope)
    whois = shlex.split(blocks["Copy whois command"].replace("\\\n", ""))
    header = ["-H", "Authorization: Bearer ACCESS_TOKEN"]
    address = f"http://localhost/api/oauth/whois?client_id={program.id}"
    assert whois == ["curl", address, *header]


def test_link_has_a_registered_redirect_uri_and_new_state(tester):
    queries = []
    for uri in ("https://evil.example/", "http://[", '"><script>', ""):
        page = tester.open(redirect_uri=uri)
        assert uri == "" or uri not in page.text
        queries.append(query_of(code_blocks(page)["Copy link"]))
    assert {each["redirect_uri"] for each in queries} == {CALLBACK}
    for name in ("state", "code_challenge"):
        assert len({each[name] for each in queries}) == len(queries)


def test_samples_are_complete_for_each_kind(make_tester, subtests):
    """The one for Godot needs a path at a loopback address, where any port is accepted."""
    for kind, uri, path in (
        ("confidential", CALLBACK, None),
        ("public", CALLBACK, None),
        ("public", "http://127.0.0.1/back", "/back"),
        ("public", "http://127.0.0.1:5000/", "/"),
        ("public", "http://127.0.0.1/?a=1", None),
    ):
        with subtests.test(kind, uri=uri):
            tester = make_tester(kind, uri)
            page = tester.open(scope="userinfo email")
            blocks = code_blocks(page)
            for language in ("JavaScript", "Python", "Godot"):
                code = blocks[f"Copy code: {language}"]
                assert tester.program.id in code and "http://localhost" in code
                assert ("CLIENT_SECRET" in code) == (kind == "confidential")
                assert ("/api/oauth/whois?client_id=" in code) == ("identity.js" not in code)
            assert uri in blocks["Copy code: Python"]
            if kind == "public":
                assert f'const PATH := "{path or "/callback"}"' in blocks["Copy code: Godot"]
                asked = "It needs the redirect URI http://127.0.0.1/callback." in page.text
                assert asked == (path is None)


def test_app_without_a_redirect_uri_can_be_tested(adas_browser, store, ada, anyone):
    client, secret = store.clients.register("Chess", [], ada.id, game_url="https://chess.example/")
    tester = TryPage(adas_browser, Program(anyone, client.id, secret, ""))
    assert "has no redirect URI" in tester.open().text
    tester.allow()
    assert "It works." in tester.exchange().text


# -- an app that signs in on another device ------------------------------------------------------


COMMANDS = ("device", "poll", "whois")


class DeviceTryPage(TryPage):
    """The page that tests signing in on another device."""

    def start(self, **form: str) -> str:
        """Press Start; return the user code."""
        assert led_to(self.browser.post(f"{self.path}/device", data=form)) == self.path
        return parse(self.open()).select_one(".user-code").text

    def poll(self) -> TestResponse:
        return self.browser.post(f"{self.path}/device/token")

    def answer(self, user_code: str, decision: str = "allow", browser: Browser | None = None):
        """Type the code at /device and decide; return the response to the last press."""
        browser = browser or self.browser
        page = browser.post("/device", data={"user_code": user_code})
        if page.status_code != 200:
            return page
        form = {"request": hidden_field(page, "request"), "decision": decision}
        return browser.post("/device/decision", data=form)


@pytest.fixture
def device_tester(store, adas_browser, ada, anyone, monkeypatch) -> DeviceTryPage:
    """A tester for an app for devices alone. No poll comes too early."""
    monkeypatch.setattr(identity.oauth.device, "is_early_poll", lambda device_id: False)
    fields = {"public": True, "device": True}
    client, _ = store.clients.register("Console", [], ada.id, **fields)
    return DeviceTryPage(adas_browser, Program(anyone, client.id, None, CALLBACK))


@pytest.mark.parametrize("scope", ["userinfo", "userinfo email"])
def test_device_tester_signs_in_and_shows_every_message(device_tester, scope):
    """RFC 8628 3.1 to 3.5. The page is the device, and the same browser that of the player."""
    user_code = device_tester.start(scope=scope)
    kept = device_tester.kept()["response"]
    assert (kept["user_code"], kept["expires_in"] * 1000) == (user_code, TEST_MAX_AGE)
    page = parse(device_tester.open())
    link = page.select_one(f'a[href="{kept["verification_uri_complete"]}"]')
    assert (link["target"], link["rel"]) == ("_blank", ["noopener"])
    assert link.text == kept["verification_uri"]
    assert page.select_one("main section img")["src"] == kept["verification_qr_uri"]
    waiting = device_tester.poll()
    assert (waiting.status_code, problems_of(waiting)) == (200, {})
    assert "The player has not decided yet." in waiting.text
    assert messages_of(waiting)[-1] == ("400 Bad Request", {"message": "authorization_pending"})
    device_tester.answer(user_code)
    done = device_tester.poll()
    assert (done.status_code, "It works." in done.text) == (200, True)
    [asked, started, poll, token, look_up, player] = messages_of(done)
    assert asked[0] == "POST http://localhost/oauth/device"
    assert asked[1] == {"client_id": device_tester.program.id, "scope": scope}
    assert started[1]["user_code"] == user_code
    assert poll[0] == "POST http://localhost/api/oauth/token"
    assert poll[1]["grant_type"] == DEVICE_GRANT
    assert (player[1]["name"], "email" in player[1]) == ("Ada", "email" in scope)
    for shown in (started[1], poll[1]):
        assert shown["device_code"] == f"{kept['device_code'][:4]}…"
    assert kept["device_code"] not in waiting.text + done.text + str(page)
    assert re.fullmatch("Bearer .{4}…", look_up[1]["Authorization"])
    assert device_tester.kept() == {}


def test_early_poll_and_cancelled_device_test_are_explained(device_tester, monkeypatch):
    with monkeypatch.context() as early:
        early.setattr(identity.oauth.device, "is_early_poll", lambda device_id: True)
        user_code = device_tester.start()
        page = device_tester.poll()
    assert (page.status_code, "You asked again within the interval." in page.text) == (200, True)
    assert messages_of(page)[-1][1] == {"message": "slow_down"}
    device_tester.answer(user_code, "deny")
    page = device_tester.poll()
    assert page.status_code == 400
    assert problems_of(page)["form"].startswith("You pressed Cancel. When a player does that")
    assert problems_of(device_tester.poll()) == {"form": NO_CODE}


@pytest.mark.parametrize("polled", [False, True])
@pytest.mark.parametrize("consented", [False, True])
def test_consent_to_a_device_stays_as_before(device_tester, store, ada, clock, consented, polled):
    if consented:
        started = device_tester.program.http.post(
            "/oauth/device", data={"client_id": device_tester.program.id}
        )
        device_tester.answer(started.json["user_code"])
    before, grants = remembered(store, ada), store.users.read(ada.id).grants
    assert bool(before) == consented
    clock.shift(60)
    device_tester.answer(device_tester.start(scope="userinfo email"))
    if polled:
        assert device_tester.poll().status_code == 200
        kept = store.users.read(ada.id).grants
        assert kept.keys() == grants.keys()
        assert not consented or kept != grants  # its tokens have ended
    assert remembered(store, ada) == before


def test_nobody_else_answers_a_test(device_tester, store, ada, bob, open_browser):
    """Whoever is sent the code allows nothing. A request over the network names no tester."""
    user_code, browser = device_tester.start(), open_browser()
    browser.sign_in("Bob")
    page = device_tester.answer(user_code, browser=browser)
    assert (page.status_code, problems_of(page)) == (403, {"form": NOT_YOURS})
    assert device_tester.answer(user_code).status_code == 303
    sent = {
        "headers": {identity.oauth.device.TESTER: str(bob.id)},
        "query_string": "identity.tester=2",
    }
    anyone = device_tester.program.http
    started = anyone.post("/oauth/device", data={"client_id": device_tester.program.id}, **sent)
    assert device_tester.answer(started.json["user_code"]).status_code == 303
    assert device_tester.program.id in remembered(store, ada)


def test_device_code_of_a_test_is_kept_for_ten_minutes(device_tester, clock):
    """As long as it is good; one test at a time, and in one session."""
    device_tester.start()
    clock.shift(TEST_MAX_AGE / 1000)
    assert device_tester.poll().status_code == 200
    clock.shift(1)
    assert problems_of(device_tester.poll()) == {"form": NO_CODE}
    device_tester.start()
    device_tester.browser.sign_in()
    assert device_tester.kept() == {}


def test_refused_device_request_is_explained(device_tester, store):
    """The requests count for the developer's address."""
    form = {"client_id": device_tester.program.id}
    for _ in range(REQUESTS):
        device_tester.program.http.post("/oauth/device", data=form)
    page = device_tester.browser.post(f"{device_tester.path}/device")
    assert (page.status_code, device_tester.kept()) == (429, {})
    assert problems_of(page)["form"].startswith("The site refused the request: ")


def test_each_way_of_signing_in_has_its_test(make_tester, device_tester, store):
    """An app for devices alone has no other; the tests of an app with both replace each other."""

    def buttons(page: TestResponse) -> list[tuple[str, str]]:
        return [
            (each.text, each.get("formaction") or each.find_parent("form")["action"])
            for each in parse(page).select("section button")
        ]

    alone = device_tester.open()
    assert buttons(alone) == [("Start", f"{device_tester.path}/device")]
    assert code_blocks(alone).keys() == {f"Copy {each} command" for each in COMMANDS}
    tester = make_tester("public")
    assert "/try/device" not in tester.open().text
    both = DeviceTryPage(tester.browser, tester.program)
    page = both.browser.post(f"{both.path}/device")
    assert (page.status_code, both.kept()) == (400, {})
    assert "is not registered for signing in on another device" in problems_of(page)["form"]
    edit(store.clients, tester.program.id, device=True)
    without = ("Start without a browser", f"{both.path}/device")
    assert buttons(both.open())[:2] == [("Start", both.path), without]
    both.start()
    assert EXCHANGE not in tester.open().text
    assert problems_of(tester.exchange()) == {"form": NO_CODE}
    both.start()
    tester.allow()
    assert problems_of(both.poll()) == {"form": NO_CODE}
    assert EXCHANGE in tester.open().text


def test_device_commands_complete_a_grant(device_tester, anyone):
    commands = {
        name: shlex.split(each.replace("\\\n", ""))
        for name, each in code_blocks(device_tester.open()).items()
    }

    def send(name: str, **values: str):
        [curl, address, *options] = commands[name]
        form = dict(each.split("=", 1) for each in options[1::2]) | values
        assert (curl, set(options[::2])) == ("curl", {"--data-urlencode"})
        return anyone.post(address, data=form).json

    started = send("Copy device command")
    device_tester.answer(started["user_code"])
    token = send("Copy poll command", device_code=started["device_code"])["access_token"]
    assert device_tester.program.whois(token).json["name"] == "Ada"
    assert commands["Copy whois command"][1].endswith(f"?client_id={device_tester.program.id}")
