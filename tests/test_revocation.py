"""What a client does with its tokens: POST /oauth/revoke (RFC 7009), /oauth/introspect (RFC 7662).

tests/live/test_clients.py has libraries that do it.
"""

import itertools
import time
from unittest.mock import Mock

import pytest
from conftest import Program
from forms import edit, from_address, race, signed_in
from test_refresh import refresh, start
from test_token import FORM, S256, VERIFIER, basic

from identity.acts import accounts
from identity.acts.actors import COMMAND, Authority
from identity.acts.apps import set_disabled
from identity.oauth.clients import CLIENT_FAILURES, TOKEN_BODY_LIMIT
from identity.oauth.logout_channel import LOGOUT_TOKEN_MAX_AGE, LOGOUT_TOKEN_TYPE
from identity.oauth.openid import issue_jwt
from model.errors import SaveUnconfirmed, StorageFull
from model.records import MODERATOR

REVOKE, INTROSPECT = BOTH = "/oauth/revoke", "/oauth/introspect"
SCOPE = "openid email offline_access"
INACTIVE = {"active": False}
ANY_ORIGIN = "Access-Control-Allow-Origin"
DAY = 86_400  # seconds


@pytest.fixture
def app(request, make_app):
    """An app with OpenID Connect, unless a test says otherwise."""
    return make_app(OPENID=getattr(request, "param", "on"))


@pytest.fixture
def mail(register) -> Program:
    return register("https://mail.example/callback", name="Mail")


@pytest.fixture
def wiki(register) -> Program:
    return register("https://wiki.example/callback", name="Wiki")


@pytest.fixture
def board(register) -> Program:
    return register("https://board.example/callback", name="Board", public=True)


@pytest.fixture
def tokens(mail, adas_browser) -> dict[str, str]:
    """The tokens of a response for Ada; the consent for others is remembered."""
    return start(mail, adas_browser, SCOPE)


@pytest.fixture
def board_tokens(board, adas_browser) -> dict[str, str]:
    code = adas_browser.allow(board, scope=SCOPE, **S256)
    return board.exchange_standard(code, code_verifier=VERIFIER).json


def ask(path: str, program: Program, token: str | list[str] | None, **changes):
    """Send a request about a token; None omits a parameter, a list repeats it."""
    changes = {"grant_type": None, "token": token} | changes
    return program.exchange(None, path=path, **changes)


def introspect(program: Program, token: str) -> dict:
    """Return what a confidential client learns about a token."""
    answer = ask(INTROSPECT, program, token)
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    assert answer.headers["Cache-Control"] == "no-store"
    assert ANY_ORIGIN not in answer.headers
    return answer.json


def revoke(program: Program, token: str, **changes) -> None:
    """End a token, or do nothing about it: the response does not tell."""
    answer = ask(REVOKE, program, token, **changes)
    assert (answer.status_code, answer.json) == (200, {})
    assert answer.headers["Cache-Control"] == "no-store"


def are_good(program: Program, tokens: dict[str, str]) -> tuple[bool, bool]:
    """Return whether the access token and the refresh token are good; neither is used."""
    kinds = "access_token", "refresh_token"
    return tuple(introspect(program, tokens[each])["active"] for each in kinds)


# -- what is good --------------------------------------------------------------------------------


@pytest.mark.parametrize("app", ["on", "off"], indirect=True)
def test_introspection_says_what_a_token_is_good_for(app, mail, clock, adas_browser, ada, store):
    """RFC 7662 2.2. A refresh token that was replaced, and is still good, has no known `iat`."""
    is_on, began = app.config["OPENID"] == "on", int(time.time())
    first = start(mail, adas_browser, SCOPE)
    scope = {"userinfo", "email", "offline_access"} | ({"openid"} if is_on else set())
    shared = {"active": True, "client_id": mail.id, "sub": str(ada.id)}
    shared |= {"username": "ada"} if is_on else {}
    for kind, token_type, age in (
        ("access_token", "Bearer", first["expires_in"]),
        ("refresh_token", "refresh_token", 30 * DAY),
    ):
        body = introspect(mail, first[kind])
        assert set(body.pop("scope").split()) == scope
        times = {"iat": began, "exp": began + age}
        assert body == shared | times | {"token_type": token_type}
    clock.shift(60)
    second = refresh(mail, first["refresh_token"], scope="email").json
    assert introspect(mail, second["access_token"])["scope"] == "userinfo email"
    newest = introspect(mail, second["refresh_token"])
    assert (newest["iat"], newest["exp"]) == (began + 60, began + 60 + 30 * DAY)
    assert set(newest["scope"].split()) == scope
    assert introspect(mail, first["refresh_token"]).keys() == newest.keys() - {"iat"}
    edit(store.clients, mail.id, no_email=True)
    assert "email" not in introspect(mail, second["refresh_token"])["scope"].split()


# -- what is not good ----------------------------------------------------------------------------


def test_text_that_is_no_token_is_inactive_and_ends_nothing(
    store, mail, adas_browser, tokens, faults, subtests
):
    """RFC 7009 2.2, RFC 7662 2.2. Other kinds of tokens are none, and no player is looked up."""
    access, refresh_token = tokens["access_token"], tokens["refresh_token"]
    family, _, secret = refresh_token.partition(".")
    claims = {"aud": mail.id, "sub": "1"}
    logout = store, "http://localhost", claims, LOGOUT_TOKEN_TYPE, LOGOUT_TOKEN_MAX_AGE
    jwts = [tokens["id_token"], issue_jwt(*logout)]
    texts = [adas_browser.allow(mail, scope=SCOPE), *jwts, "x" * 4096, ".", "..", "\0", "é", "a.b"]
    texts += [f"{'A' * 16}.{secret}", f"A{access[1:]}", access[:-1], family, secret]
    for good in (access, refresh_token):
        texts += [f"{good}{end}" for end in ("\0", "é", "x", "\n", "." + "x" * 4096, f" {good}")]
    for text in texts:
        with subtests.test(text[:60]):
            assert introspect(mail, text) == INACTIVE
            revoke(mail, text)
    assert are_good(mail, tokens) == (True, True)
    faults.take_away("users")
    for text in texts:
        assert introspect(mail, text) == INACTIVE


@pytest.mark.parametrize("name", ["access_token", "refresh_token"])
def test_token_of_another_client_is_as_unknown(name, mail, wiki, board, tokens, board_tokens):
    """RFC 7009 2.1, RFC 7662 4; with the wrong secret nobody learns that either."""
    for sender, owned in ((wiki, tokens), (wiki, board_tokens), (mail, board_tokens)):
        assert introspect(sender, owned[name]) == INACTIVE
        revoke(sender, owned[name])
    revoke(board, tokens[name])
    for sender, endpoint in itertools.product((mail, wiki), BOTH):
        refused = ask(endpoint, sender, tokens[name], client_secret="wrong")
        assert (refused.status_code, refused.json["error"]) == (401, "invalid_client")
    assert are_good(mail, tokens) == (True, True)
    assert refresh(board, board_tokens["refresh_token"]).status_code == 200


def test_expired_tokens_are_inactive(mail, clock, adas_browser):
    tokens = start(mail, adas_browser, SCOPE)
    clock.shift(tokens["expires_in"] + 1)
    assert are_good(mail, tokens) == (False, True)
    revoke(mail, tokens["access_token"])  # ends nothing any more
    assert refresh(mail, tokens["refresh_token"]).status_code == 200
    clock.shift(30 * DAY)
    assert are_good(mail, tokens) == (False, False)
    revoke(mail, tokens["refresh_token"])


@pytest.mark.parametrize("reason", ["suspended", "lost group", "withdrawn", "deleted"])
def test_what_the_player_ended_is_inactive(reason, store, register, adas_browser, ada):
    """CVE-2026-43983: elsewhere tokens of suspended players and lost groups went on."""
    edit(store.users, ada.id, mod_level=MODERATOR)
    program = register("https://x.example/", name="Staff", only_groups=["moderators"])
    tokens = start(program, adas_browser, SCOPE)
    assert are_good(program, tokens) == (True, True)
    by = Authority(store, COMMAND)
    if reason == "suspended":
        accounts.suspend(by, ada.id, "")
    elif reason == "lost group":
        edit(store.users, ada.id, mod_level=0)
    elif reason == "withdrawn":
        adas_browser.post("/account/apps/withdraw", data={"client_id": program.id})
    else:
        accounts.delete_user(by, ada.id)
    assert are_good(program, tokens) == (False, False)
    for name in ("access_token", "refresh_token"):
        revoke(program, tokens[name])


def test_disabled_client_asks_nothing_and_its_refresh_token_stays_ended(store, mail, tokens):
    set_disabled(Authority(store, COMMAND), mail.id, True)
    for endpoint in BOTH:
        answer = ask(endpoint, mail, tokens["refresh_token"])
        assert (answer.status_code, answer.json["error"]) == (401, "invalid_client")
    set_disabled(Authority(store, COMMAND), mail.id, False)
    assert introspect(mail, tokens["refresh_token"]) == INACTIVE


# -- what ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("hint", [None, "access_token", "x", ""])
def test_refresh_token_ends_with_its_access_tokens_alone(
    hint, store, mail, wiki, adas_browser, open_browser, ada, bob, tokens
):
    """RFC 7009 2.1, whatever the hint says. Another sign-in of the app loses its access token."""
    others = [(wiki, start(wiki, adas_browser, SCOPE))]
    others.append((mail, start(mail, signed_in(open_browser(), "Bob"), SCOPE)))
    elsewhere = start(mail, adas_browser, SCOPE)
    for _ in range(2):
        revoke(mail, tokens["refresh_token"], token_type_hint=hint)
    assert are_good(mail, tokens) == (False, False)
    assert are_good(mail, elsewhere) == (False, True)
    assert [are_good(*each) for each in others] == [(True, True)] * 2
    assert mail.whois(tokens["access_token"]).status_code == 401
    assert refresh(mail, tokens["refresh_token"]).json["error"] == "invalid_grant"
    renewed = refresh(mail, elsewhere["refresh_token"]).json
    assert are_good(mail, renewed) == (True, True)
    assert mail.id in store.users.read(ada.id).consents


@pytest.mark.parametrize("hint", [None, "refresh_token"])
def test_access_token_ends_and_the_app_stays_signed_in(hint, mail, tokens):
    """RFC 7009 2.1 lets the server choose. The next one is another's: this request is a no-op."""
    for _ in range(2):
        revoke(mail, tokens["access_token"], token_type_hint=hint)
        assert are_good(mail, tokens) == (False, True)
    renewed = refresh(mail, tokens["refresh_token"]).json
    revoke(mail, tokens["access_token"])
    assert are_good(mail, renewed) == (True, True)


@pytest.mark.parametrize("which", ["replaced", "never issued"])
def test_look_at_an_old_refresh_token_ends_nothing_and_its_revocation_the_family(
    which, mail, tokens
):
    """RFC 9700 4.14.2: at the token endpoint it would be a reuse, and end the family as well."""
    second = refresh(mail, tokens["refresh_token"]).json
    third = refresh(mail, second["refresh_token"]).json
    old = tokens["refresh_token"]
    old = old if which == "replaced" else f"{old[:17]}{'A' * 43}"
    assert introspect(mail, old) == INACTIVE
    assert are_good(mail, third) == (True, True)
    revoke(mail, old)
    assert are_good(mail, third) == (False, False)


def test_no_refresh_brings_back_what_was_revoked_meanwhile(mail, tokens):
    sent = tokens["refresh_token"]
    refreshed = [lambda: refresh(mail, sent)] * 7
    *answers, revoked = race(*refreshed, lambda: ask(REVOKE, mail, sent))
    assert revoked.status_code == 200
    assert {answer.status_code for answer in answers} <= {200, 400}
    for answer in answers:
        if answer.status_code == 200:
            assert are_good(mail, answer.json) == (False, False)


# -- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", BOTH)
def test_bad_request_has_an_error_of_the_standards(endpoint, mail, tokens, subtests):
    """RFC 6749 3.2 and 5.2, RFC 7009 2.1 and 2.2.1, RFC 7662 2.1 and 2.3."""
    token = tokens["refresh_token"]
    own = {"client_id": None, "client_secret": None}
    for status, error, changes in (
        *((400, "invalid_request", {"token": each}) for each in (None, "", [token, token])),
        (400, "invalid_request", {"token_type_hint": ["access_token", "refresh_token"]}),
        (400, "invalid_request", {"client_id": [mail.id, mail.id]}),
        (400, "invalid_request", {"headers": basic("x", mail.secret)}),
        (400, "invalid_request", {"headers": {"Content-Type": "application/json"}}),
        (400, "invalid_client", {"client_id": None}),
        (400, "invalid_client", {"client_secret": None}),
        (401, "invalid_client", {"client_id": "unknown"}),
        (401, "invalid_client", {"client_secret": "wrong"}),
        (401, "invalid_client", {"client_secret": token}),
        (401, "invalid_client", own | {"headers": basic(mail.id, "wrong")}),
        (413, "invalid_request", {"more": "x" * TOKEN_BODY_LIMIT}),
    ):
        with subtests.test(str(changes)[:60]):
            answer = ask(endpoint, mail, **{"token": token} | changes)
            assert (answer.status_code, answer.json["error"]) == (status, error)
            assert answer.json.keys() == {"error", "error_description"}
            assert answer.headers["Cache-Control"] == "no-store"
            assert ("WWW-Authenticate" in answer.headers) == (
                status == 401 and "headers" in changes
            )
            assert ANY_ORIGIN not in answer.headers and token not in answer.text
    form = {"client_id": mail.id, "client_secret": mail.secret}
    asked = {"data": form, "query_string": {"token": token}}
    assert mail.http.post(endpoint, **asked).json["error_description"] == "token is missing"
    by_get = mail.http.get(endpoint, query_string=form | {"token": token})
    assert (by_get.status_code, by_get.json["error"]) == (405, "invalid_request")
    odd = mail.http.post(endpoint, data=b"token=%FF", content_type=FORM)
    assert (odd.status_code, odd.json["error"]) == (400, "invalid_request")
    assert are_good(mail, tokens) == (True, True)


def test_client_names_itself_by_http_basic_or_in_the_form(mail, tokens):
    """RFC 6749 2.3.1. What is unknown to the standard is ignored (3.2)."""
    no_form = {"client_id": None, "client_secret": None, "headers": basic(mail.id, mail.secret)}
    more = {"more": ["x", "y"], "token_type_hint": "x"}
    assert ask(INTROSPECT, mail, tokens["refresh_token"], **no_form, **more).json["active"]
    revoke(mail, tokens["refresh_token"], **no_form, **more)
    assert are_good(mail, tokens) == (False, False)


def test_public_client_revokes_and_does_not_introspect(store, board, board_tokens, mail, ada):
    """RFC 7009 2.1, RFC 7662 2.1: its id is no secret, so anybody could ask in its name."""
    no_form = {"client_id": None, "headers": basic(board.id, "")}
    for changes in ({}, no_form):
        for token in (*board_tokens.values(), "x"):
            answer = ask(INTROSPECT, board, str(token), **changes)
            assert (answer.status_code, answer.json["error"]) == (400, "unauthorized_client")
    secret = ask(REVOKE, board, board_tokens["refresh_token"], client_secret=mail.secret)
    assert (secret.status_code, secret.json["error"]) == (401, "invalid_client")
    revoke(board, board_tokens["access_token"], **no_form)
    assert board.whois(board_tokens["access_token"]).status_code == 401
    assert len(store.users.read(ada.id).grants[board.id].families) == 1
    revoke(board, board_tokens["refresh_token"])
    assert store.users.read(ada.id).grants[board.id].families == []


def test_pages_of_public_clients_revoke_and_no_page_introspects(anyone, board, mail, tokens):
    """The secret of a confidential client has no place in a page."""
    for endpoint, program, status, changes, allowed in (
        (REVOKE, board, 200, {"token": "x"}, "*"),
        (REVOKE, board, 400, {"token": ["x", "x"]}, "*"),
        (REVOKE, board, 401, {"client_secret": "x"}, "*"),
        (REVOKE, mail, 200, {"token": "x"}, None),
        (REVOKE, mail, 401, {"client_secret": "x"}, None),
        (INTROSPECT, board, 400, {"token": "x"}, None),
        (INTROSPECT, board, 400, {"token": ["x", "x"]}, None),
        (INTROSPECT, board, 401, {"client_secret": "x"}, None),
        (INTROSPECT, mail, 200, {"token": tokens["access_token"]}, None),
    ):
        page = {"Origin": "https://board.example", "Sec-Fetch-Site": "cross-site"}
        answer = ask(endpoint, program, **{"token": "x", "headers": page} | changes)
        assert (answer.status_code, answer.headers.get(ANY_ORIGIN)) == (status, allowed), changes
    asked = anyone.preflight(REVOKE, "POST", "content-type")
    assert (asked.status_code, asked.headers["Access-Control-Allow-Methods"]) == (204, "POST")
    assert asked.headers["Access-Control-Allow-Headers"] == "Content-Type"
    assert anyone.preflight(INTROSPECT, "POST", "content-type").status_code == 405


@pytest.mark.parametrize("name", ["access_token", "refresh_token"])
def test_failed_save_is_503_and_the_token_stays_good(
    name, store, mail, tokens, faults, monkeypatch
):
    """RFC 7009 2.2.1: after a 503 the client sends the request again."""

    def refused() -> None:
        answer = ask(REVOKE, mail, tokens[name])
        assert (answer.status_code, answer.json["error"]) == (503, "temporarily_unavailable")
        assert int(answer.headers["Retry-After"]) > 0

    faults.refuse_saves("users")
    refused()
    faults.allow_saves()
    with monkeypatch.context() as patched:
        for error in (StorageFull("full"), SaveUnconfirmed("lost")):
            patched.setattr(store.users, "edit", Mock(side_effect=error))
            refused()
    assert are_good(mail, tokens) == (True, True)
    revoke(mail, tokens[name])
    assert not introspect(mail, tokens[name])["active"]


def test_failed_client_authentications_count_as_at_the_token_endpoint(mail, clock):
    """RFC 7009 5, RFC 7662 4: nobody guesses secrets here either. Garbage tokens do not count."""
    from_address(mail.http, "192.0.2.1")
    form = {"grant_type": "refresh_token", "refresh_token": "x"}

    def send(path: str, **changes: str) -> int:
        return ask(path, mail, "x", **form | changes).status_code

    paths = [*BOTH, "/oauth/token"] * (CLIENT_FAILURES // 3 + 1)
    assert {send(each) for each in paths} == {200, 400}
    statuses = [send(each, client_secret="wrong") for each in paths]
    assert statuses == [401] * CLIENT_FAILURES + [429] * (len(paths) - CLIENT_FAILURES)
    assert {send(each, client_secret="wrong") for each in BOTH} == {429}
    assert {send(each) for each in BOTH} == {200}  # the right secret is not refused
