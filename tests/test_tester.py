"""/developer/<id>/try: the tester, which runs the grant of an app and shows every message."""

import html
import json
import re
import shlex
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from conftest import Browser, Program
from werkzeug.test import TestResponse

import identity_server
from identity.clients import CLIENT_FAILURES
from identity.oauth import code_challenge_of
from pages.tester import (
    AUTHORIZATION_ADVICE,
    DISABLED,
    NO_CODE,
    NOT_OURS,
    TEST_MAX_AGE,
    WHOIS_REFUSED,
)
from storage.errors import NoSuchCode, StorageFailed
from storage.records import ADMINISTRATOR

CALLBACK = "https://space.example/callback"
PKCE = {"code_challenge": code_challenge_of("v" * 43), "code_challenge_method": "S256"}
KINDS = ["public", "confidential"]
EXCHANGE = "<button>Exchange the code</button>"
REFUSED = "The site refused the request:"


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
        """Press the button that exchanges the code, by default with the right secret."""
        form = {"client_secret": secret or self.program.secret} if self.program.secret else {}
        return self.browser.post(f"{self.path}/token", data=form)

    def kept(self) -> dict:
        """Return the test in the session."""
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
    """A tester for a confidential app."""
    return make_tester()


@pytest.fixture(params=KINDS)
def each_tester(request, make_tester) -> TryPage:
    """A tester for an app of each kind."""
    return make_tester(request.param)


def messages_of(page: TestResponse) -> list[tuple[str, dict[str, str]]]:
    """Return the messages that were sent: first line, then names and values."""
    found = re.findall(
        r'<div class="message">\s*<p><code dir="ltr">([^<]*)</code></p>\s*<dl>(.*?)</dl>',
        page.text,
        re.DOTALL,
    )
    return [
        (line, dict(re.findall('<dt>([^<]*)</dt><dd dir="auto">([^<]*)</dd>', fields)))
        for line, fields in found
    ]


def problem_of(page: TestResponse, name: str = "form") -> str | None:
    """Return the problem of a form or field, None if there is none; check that it has the focus."""
    found = re.search(rf'<p class="problem" id="{name}-problem" ([^>]*)>(.*?)</p>', page.text)
    assert ("<title>Problem: " in page.text) == ('class="problem"' in page.text)
    if found:
        assert "autofocus" in found[1]
    return html.unescape(found[2]) if found else None


def code_blocks(page: TestResponse) -> dict[str, str]:
    """Return the text of each code block by the name of its copy button."""
    found = re.findall(
        r'<pre[^>]*data-copy="([^"]*)"[^>]*><code>(.*?)</code>', page.text, re.DOTALL
    )
    return {name: html.unescape(text) for name, text in found}


# -- a whole test --------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["userinfo", "userinfo email"])
def test_tester_signs_in_and_shows_every_message(each_tester, ada, scope):
    waiting = each_tester.allow(scope=scope)
    assert [line for line, _ in messages_of(waiting)] == [
        "GET http://localhost/oauth/authorize",
        f"GET http://localhost{each_tester.path}/callback",
    ]
    page = each_tester.exchange()
    assert page.status_code == 200
    assert "Hello, <bdi" in page.text and problem_of(page) is None
    [asked, returned, exchange, token, look_up, player] = messages_of(page)
    assert asked[1]["redirect_uri"] == f"http://localhost{each_tester.path}/callback"
    assert (asked[1]["scope"], asked[1]["client_id"]) == (scope, each_tester.program.id)
    assert returned[1]["state"] == asked[1]["state"]
    assert exchange[0] == "POST http://localhost/api/oauth/token"
    assert exchange[1]["code"] == returned[1]["code"]
    assert token[0] == player[0] == "200 OK"
    assert look_up[0] == "GET http://localhost/api/oauth/whois"
    assert player[1]["name"] == "Ada"
    assert ("email" in player[1]) == ("email" in scope)
    assert ("client_secret" in exchange[1]) == (each_tester.program.secret is not None)
    assert "code_verifier" in exchange[1]


def test_page_shows_four_characters_of_secrets(each_tester):
    waiting = each_tester.allow()
    kept = each_tester.kept()
    page = each_tester.exchange()
    shown = dict(pair for _, fields in messages_of(page) for pair in fields.items())
    secrets = {"code": kept["response"]["code"], "code_verifier": kept["verifier"]}
    if each_tester.program.secret:
        secrets["client_secret"] = each_tester.program.secret
    for name, secret in secrets.items():
        assert shown[name] == f"{secret[:4]}…"
        assert secret not in waiting.text + page.text
    assert re.fullmatch("Bearer .{4}…", shown["Authorization"])
    assert re.fullmatch(".{4}…", shown["access_token"])


def test_client_secret_is_in_no_response_and_in_no_cookie(tester):
    tester.allow()
    for secret in (tester.program.secret[::-1], tester.program.secret):
        page = tester.exchange(secret)
        assert secret not in page.text
        assert secret not in str(page.headers)
        assert secret not in json.dumps(tester.kept())


def test_pkce_is_a_choice_for_confidential_apps_alone(make_tester):
    for kind, name in (("confidential", "no"), ("public", "no"), ("confidential", "yes")):
        tester = make_tester(kind)
        assert ('name="pkce"' in tester.open().text) == (kind == "confidential")
        query = dict(parse_qsl(urlsplit(tester.start(pkce=name)).query))
        assert ("code_challenge" in query) == ((kind, name) != ("confidential", "no"))
        tester.decide(f"/oauth/authorize?{urlsplit(tester.start(pkce=name)).query}")
        assert tester.exchange().status_code == 200


@pytest.mark.parametrize("scope", ["", "x", "email", "userinfo email openid"])
def test_unknown_scope_is_the_first_one(tester, scope):
    assert parse_qs(urlsplit(tester.start(scope=scope)).query)["scope"] == ["userinfo"]


def test_app_without_a_redirect_uri_can_be_tested(adas_browser, store, ada, anyone):
    client, secret = store.clients.register(
        "Chess", [], ada.id, public=False, game_url="https://chess.example/"
    )
    tester = TryPage(adas_browser, Program(anyone, client.id, secret, ""))
    assert "has no redirect URI" in tester.open().text
    tester.allow()
    assert "It works." in tester.exchange().text


# -- its codes and tokens end with the page -----------------------------------------------------


@pytest.fixture
def issued(monkeypatch) -> list[str]:
    """The access tokens that the server issues."""
    issued, issue = [], identity_server.issue_access_token

    def record(*given) -> str:
        issued.append(issue(*given))
        return issued[-1]

    monkeypatch.setattr(identity_server, "issue_access_token", record)
    return issued


def test_token_of_a_test_ends_before_the_page_is_sent(each_tester, store, ada, issued):
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
    if consented:  # its tokens end only with that of the test
        assert (store.users.read(ada.id).grants == grants) == (stopped_at != "end")
    assert ("Remove access" in browser.get("/account/apps").text) == consented
    assert ">Allow<" in browser.get(program.link(scope="email", **PKCE)).text


def remembered(store, user) -> dict[str, tuple]:
    """Return the scope and the time of each consent."""
    consents = store.users.read(user.id).consents
    return {name: (each.scope, each.since) for name, each in consents.items()}


def test_token_of_another_player_stands(tester, bob, open_browser):
    bobs_browser = open_browser()
    bobs_browser.sign_in("Bob")
    token = tester.program.token_for(bobs_browser.allow(tester.program))
    tester.allow()
    tester.exchange()
    assert tester.program.whois(token).status_code == 200


def test_test_ends_after_ten_minutes(tester, clock):
    tester.allow()
    clock.shift(TEST_MAX_AGE / 1000)
    assert EXCHANGE in tester.open().text
    clock.shift(1)
    assert EXCHANGE not in tester.open().text
    assert problem_of(tester.exchange()) == NO_CODE


# -- the response of the browser -----------------------------------------------------------------


@pytest.mark.parametrize("state", [None, "", "x", "é"])
@pytest.mark.parametrize("started", [True, False])
def test_response_with_another_state_is_ignored(tester, store, state, started):
    """RFC 9700 4.7.1: another site could bring a code of its own account."""
    if started:
        tester.start()
    kept = tester.kept()
    sent = {"code": "a-foreign-code"} | ({} if state is None else {"state": state})
    page = tester.browser.get(f"{tester.path}/callback", query_string=sent)
    assert (page.status_code, problem_of(page)) == (400, NOT_OURS)
    assert "a-foreign" not in page.text
    assert tester.kept() == kept
    assert problem_of(tester.exchange()) == NO_CODE


def test_response_to_the_test_of_another_app_is_ignored(make_tester):
    first, second = make_tester(), make_tester()
    state = parse_qs(urlsplit(first.start()).query)["state"][0]
    second.start()
    for tester in (first, second):
        page = tester.browser.get(f"{tester.path}/callback?code=c&state={state}")
        assert (page.status_code, problem_of(page)) == (400, NOT_OURS)


def test_state_is_valid_once(each_tester):
    answer = each_tester.browser.decide(each_tester.browser.get(each_tester.start()))
    assert each_tester.browser.get(answer.location).status_code == 303
    page = each_tester.browser.get(answer.location)
    assert (page.status_code, problem_of(page)) == (400, NOT_OURS)
    assert each_tester.exchange().status_code == 200  # the first response stands


def test_cancel_is_explained_and_the_test_can_start_again(each_tester):
    page = each_tester.browser.get(each_tester.decide(each_tester.start(), "deny").location)
    assert problem_of(page).startswith("You pressed Cancel, so there is no code.")
    _, (_, returned) = messages_of(page)
    assert returned["error"] == "access_denied"
    assert EXCHANGE not in page.text
    each_tester.allow()
    assert "It works." in each_tester.exchange().text


def test_server_error_is_explained(tester, faults):
    page = tester.browser.get(tester.start())
    faults.refuse_saves("codes")
    answer = tester.browser.get(tester.browser.decide(page).location)
    page = tester.browser.get(answer.location)
    assert problem_of(page) == AUTHORIZATION_ADVICE["server_error"]


def test_unusual_error_is_shown_as_it_came(tester):
    state = parse_qs(urlsplit(tester.start()).query)["state"][0]
    sent = {"error": "invalid_request", "error_description": "<b>" + "x" * 999, "state": state}
    answer = tester.browser.get(f"{tester.path}/callback", query_string=sent)
    page = tester.browser.get(answer.location)
    assert "<b>x" not in page.text
    assert problem_of(page).startswith("The site refused the request (invalid_request): <b>x")
    assert len(problem_of(page)) < 300  # the cookie stays small


# -- the token request ---------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["hunter2", "two zebras", "secret: 0123456789abcdef", "z" * 43])
def test_wrong_secret_is_not_shown_either(tester, typed):
    """It is a mistake, perhaps another password; of a short one not even the start is shown."""
    tester.allow()
    page = tester.exchange(typed)
    assert page.status_code == 401
    assert typed[-6:] not in page.text
    assert len(typed) > 20 or typed[:4] not in page.text


def test_wrong_secret_is_explained_and_can_be_corrected(tester):
    tester.allow()
    for secret in (tester.program.secret[:-1], "x"):
        page = tester.exchange(secret)
        assert page.status_code == 401
        assert problem_of(page, "client_secret").startswith("Wrong client secret.")
        *_, (status, refused) = messages_of(page)
        assert status == "401 Unauthorized" and "client_secret is wrong" in refused["message"]
    assert "It works." in tester.exchange(f" {tester.program.secret} ").text


def test_code_older_than_a_minute_is_explained(each_tester, clock):
    each_tester.allow()
    clock.shift(61)
    page = each_tester.exchange()
    assert page.status_code == 400
    assert problem_of(page).startswith("The code is older than 60 seconds.")
    assert EXCHANGE not in page.text and ">Start again</button>" in page.text
    each_tester.allow()
    assert "It works." in each_tester.exchange().text


def test_second_use_of_a_code_is_explained(each_tester):
    """With the cookie of before: the page itself drops the code."""
    each_tester.allow()
    kept = each_tester.kept()
    assert each_tester.exchange().status_code == 200
    page = each_tester.exchange()
    assert (page.status_code, problem_of(page)) == (409, NO_CODE)
    with each_tester.browser.session_transaction() as session:
        session["trial"] = kept
    page = each_tester.exchange()
    assert page.status_code == 400
    assert problem_of(page).startswith("This code was used before.")


def test_removed_access_is_explained(each_tester):
    each_tester.allow()
    form = {"client_id": each_tester.program.id}
    each_tester.browser.post("/account/apps/withdraw", data=form)
    page = each_tester.exchange()
    assert problem_of(page).startswith(f"{REFUSED} the player has withdrawn consent")


def test_too_many_wrong_secrets_are_explained_and_count_for_the_developers_address(tester):
    tester.allow()
    for _ in range(CLIENT_FAILURES):
        assert tester.program.exchange("x", client_secret="x").status_code == 401
    page = tester.exchange("wrong")
    assert page.status_code == 429
    assert problem_of(page).startswith("Too many wrong secrets from your network.")
    tester.browser.environ_base["REMOTE_ADDR"] = "192.0.2.1"
    tester.allow()
    assert tester.exchange("wrong").status_code == 401


@pytest.mark.parametrize(
    ("error", "problem", "retry"),
    [
        (StorageFailed, "The site can't save right now. Press the button again in a moment.", True),
        (NoSuchCode, f"{REFUSED} unknown or expired authorization code. Start again.", False),
    ],
)
def test_code_that_cannot_be_spent_is_explained(tester, monkeypatch, store, error, problem, retry):
    def spend_code(code: str) -> None:
        raise error("no")

    tester.allow()
    with monkeypatch.context() as patch:
        patch.setattr(store.codes, "spend", spend_code)
        page = tester.exchange()
    assert problem_of(page) == problem
    assert (EXCHANGE in page.text) == retry
    assert ("It works." in tester.exchange().text) == retry


def test_unknown_refusal_is_shown_as_it_came(tester):
    tester.allow()
    with tester.browser.session_transaction() as session:
        session["trial"]["verifier"] = "x" * 43
        session.modified = True
    problem = problem_of(tester.exchange())
    assert problem.startswith(f"{REFUSED} code_verifier does not match")


def test_ended_token_is_explained(tester, monkeypatch):
    tester.allow()
    monkeypatch.setattr(identity_server, "TOKEN_MAX_AGE", -1)
    page = tester.exchange()
    assert problem_of(page) == WHOIS_REFUSED
    assert messages_of(page)[-1][0] == "401 Unauthorized"


# -- who may test --------------------------------------------------------------------------------

POSTS = ["", "/token"]
PAGES = ["", "/callback", "/callback?code=c&state=s"]


def test_app_of_another_player_cannot_be_tested(tester, bob, open_browser):
    bobs_browser = open_browser()
    bobs_browser.sign_in("Bob")
    answers = [bobs_browser.post(tester.path + path) for path in POSTS]
    answers += [bobs_browser.get(tester.path + path) for path in PAGES]
    assert [each.status_code for each in answers] == [403] * 5


def test_signed_out_developer_signs_in_first(browser, register):
    path = f"/developer/{register(CALLBACK).id}/try"
    answers = [browser.post(path + each) for each in POSTS]
    answers += [browser.get(path + each) for each in PAGES]
    for answer in answers:
        assert (answer.status_code, answer.location.partition("?")[0]) == (303, "/sign-in")


def test_administrator_tests_the_app_of_a_member(tester, store, bob, open_browser):
    with store.users.edit(bob.id) as user:
        user.mod_level = ADMINISTRATOR
    browser = open_browser()
    browser.sign_in("Bob")
    administrators = TryPage(browser, tester.program)
    administrators.allow()
    page = administrators.exchange()
    assert dict(messages_of(page))["200 OK"]["name"] == "Bob"


def test_sign_in_in_between_ends_the_test(tester):
    """A code of the account that was signed in before is not mixed with the new one."""
    tester.allow()
    tester.browser.sign_in()
    assert tester.kept() == {}
    assert problem_of(tester.exchange()) == NO_CODE


def test_disabled_app_says_so_at_once(each_tester, store):
    each_tester.allow()
    with store.clients.edit(each_tester.program.id) as client:
        client.disabled = True
    page = each_tester.open()
    assert page.status_code == 200
    assert "This app is disabled" in page.text
    assert ">Start</button>" not in page.text and EXCHANGE not in page.text
    for path in POSTS:
        page = each_tester.browser.post(each_tester.path + path)
        assert (page.status_code, problem_of(page)) == (409, DISABLED)


# -- code for one's own app ----------------------------------------------------------------------


def follow_link(browser: Browser, program: Program, address: str) -> str:
    """Allow the request of a link; return the code at the redirect URI."""
    answer = browser.get(address)
    if answer.status_code == 200:
        answer = browser.decide(answer)
    return program.read_callback(answer)["code"]


@pytest.mark.parametrize("scope", ["userinfo", "userinfo email"])
@pytest.mark.parametrize("kind", KINDS)
def test_link_and_commands_complete_a_grant(make_tester, anyone, kind, scope):
    tester = make_tester(kind, CALLBACK, "http://127.0.0.1:5000/?a=$HOME&b=(2);c")
    program = tester.program
    program.redirect_uri = "http://127.0.0.1:5000/?a=$HOME&b=(2);c"
    blocks = code_blocks(tester.open(redirect_uri=program.redirect_uri, scope=scope))
    code = follow_link(tester.browser, program, blocks["Copy link"])
    exchange = shlex.split(blocks["Copy exchange command"].replace("\\\n", ""))
    assert exchange[:2] == ["curl", "http://localhost/api/oauth/token"]
    assert set(exchange[2::2]) == {"--data-urlencode"}
    form = dict(each.split("=", 1) for each in exchange[3::2])
    assert ("client_secret" in form) == (kind == "confidential")
    form |= {"code": code} | ({"client_secret": program.secret} if program.secret else {})
    token = anyone.post("/api/oauth/token", data=form).json["access_token"]
    assert ("email" in program.whois(token).json) == ("email" in scope)
    whois = shlex.split(blocks["Copy whois command"].replace("\\\n", ""))
    assert whois == [
        *("curl", "http://localhost/api/oauth/whois"),
        *("-H", "Authorization: Bearer ACCESS_TOKEN"),
    ]


def test_link_has_its_own_state_and_challenge_each_time(tester):
    links = [code_blocks(tester.open())["Copy link"] for _ in range(2)]
    queries = [dict(parse_qsl(urlsplit(each).query)) for each in links]
    assert all(each["redirect_uri"] == CALLBACK for each in queries)
    assert len({each["state"] for each in queries}) == 2
    assert len({each["code_challenge"] for each in queries}) == 2


@pytest.mark.parametrize("uri", ["https://evil.example/", "http://[", '"><script>', ""])
def test_code_uses_registered_redirect_uris_alone(tester, uri):
    page = tester.open(redirect_uri=uri)
    assert page.status_code == 200
    assert uri == "" or uri not in page.text
    link = code_blocks(page)["Copy link"]
    assert parse_qs(urlsplit(link).query)["redirect_uri"] == [CALLBACK]


@pytest.mark.parametrize(
    ("kind", "uris", "languages"),
    [
        ("confidential", [CALLBACK], ["JavaScript", "Python", "Godot"]),
        ("public", [CALLBACK], ["JavaScript", "Python", "Godot"]),
        ("public", ["org.example.game:/callback"], ["JavaScript", "Python", "Godot"]),
    ],
)
def test_samples_are_complete_for_each_kind(make_tester, kind, uris, languages):
    tester = make_tester(kind, *uris)
    blocks = code_blocks(tester.open(scope="userinfo email"))
    for language in languages:
        code = blocks[f"Copy code: {language}"]
        assert tester.program.id in code
        assert "http://localhost" in code
        assert ("CLIENT_SECRET" in code) == (kind == "confidential")
        assert "{{" not in code and "{%" not in code
    assert uris[0] in blocks["Copy code: Python"]
    compile(blocks["Copy code: Python"], "sign_in.py", "exec")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("http://127.0.0.1/back", "/back"),
        ("http://127.0.0.1:5000/", "/"),
        ("http://127.0.0.1", ""),
        ("http://127.0.0.1/?a=1", "/callback"),
        (CALLBACK, "/callback"),
    ],
)
def test_godot_sample_listens_at_a_registered_path(make_tester, uri, path):
    """Any port is accepted there; without such a redirect URI the page asks for one."""
    page = make_tester("public", uri).open()
    assert f'const PATH := "{path}"' in code_blocks(page)["Copy code: Godot"]
    is_registered = uri.startswith("http://127") and "?" not in uri
    assert ("It needs the redirect URI http://127.0.0.1/callback." in page.text) != is_registered
