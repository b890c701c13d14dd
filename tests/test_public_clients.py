"""Public clients: without a secret, and with PKCE (RFC 6749 2.1, RFC 8252, RFC 9700 2.1.1)."""

import dataclasses
import html
import json
import re

import pytest
from conftest import Program
from forms import edit
from test_token import CHALLENGE, S256, VERIFIER, basic

from identity.oauth.terms import destination_of

CALLBACK = "https://space.example/callback"
LOOPBACK = "http://127.0.0.1/callback"
PRIVATE_USE = "org.example.space:/callback"
ANY_ORIGIN = "Access-Control-Allow-Origin"


@pytest.fixture
def public(register) -> Program:
    return register(CALLBACK, public=True)


@pytest.fixture
def code(adas_browser, public) -> str:
    return adas_browser.allow(public, **S256)


def test_public_client_signs_a_player_in_without_a_secret(adas_browser, public, ada):
    """By HTTP Basic, an empty secret is none (RFC 6749 2.3.1): requests-oauthlib sends it."""
    for headers in ({}, basic(public.id, "")):
        code = adas_browser.allow(public, **S256)
        client_id = None if headers else public.id
        answer = public.exchange(code, headers, code_verifier=VERIFIER, client_id=client_id)
        assert answer.json.keys() == {"access_token", "token_type", "expires_in"}
        assert public.whois(answer.json["access_token"]).json["id"] == ada.id


def test_request_without_s256_challenge_is_invalid(adas_browser, public):
    """RFC 9700 2.1.1: nothing else protects the code of a public client."""
    plain = {"code_challenge": VERIFIER, "code_challenge_method": "plain"}
    links = [public.link(**each) for each in ({}, plain, plain | {"code_challenge_method": None})]
    answers = [public.read_error_link(adas_browser.get(each)) for each in links]
    adas_browser.allow(public, **S256)  # from now on errors are redirected
    answers += [public.read_callback(adas_browser.get(each)) for each in links]
    for answer in answers:
        assert (answer["error"], "code" in answer) == ("invalid_request", False)


@pytest.mark.parametrize("mode", [None, "web_message"])
def test_every_response_names_its_issuer(adas_browser, public, mode):
    """RFC 9700 4.4: a client that signed in at another site knows that this one answers."""

    def read(answer) -> dict[str, str]:
        if mode is None:
            return public.read_callback(answer)
        return json.loads(html.unescape(re.search('data-response="([^"]*)"', answer.text)[1]))

    asked = {"response_mode": mode, **S256}
    page = adas_browser.get(public.link(**asked))
    decided = [adas_browser.decide(page, each) for each in ("deny", "allow")]
    later = [adas_browser.get(public.link(**asked, **more)) for more in ({}, {"prompt": ["", ""]})]
    responses = [read(answer) for answer in decided + later]
    errors = [each.get("error") for each in responses]
    assert errors == ["access_denied", None, None, "invalid_request"]
    assert [each["iss"] for each in responses] == ["http://localhost"] * 4


def test_public_code_needs_its_verifier_and_its_reuse_revokes_the_token(public, code):
    """RFC 8252 8.1: a program that intercepts the code does not have the verifier.

    Nor can such a program revoke the token: the id is public.
    """
    wrong = (None, "", "another" * 7, CHALLENGE)
    assert {public.exchange(code, code_verifier=each).status_code for each in wrong} == {400}
    token = public.exchange(code, code_verifier=VERIFIER).json["access_token"]
    assert {public.exchange(code, code_verifier=each).status_code for each in wrong} == {400}
    assert public.whois(token).status_code == 200
    assert public.exchange(code, code_verifier=VERIFIER).status_code == 400
    assert public.whois(token).status_code == 401


def test_code_without_a_challenge_is_refused(public, code, store):
    """RFC 9700 2.1.1: also if a record was changed, a public client cannot do without PKCE."""
    record = dataclasses.replace(store.codes.read(code), code_challenge=None)
    store.codes.add("a changed code", record)
    answer = public.exchange("a changed code")
    assert (answer.status_code, "code_challenge" in answer.json["message"]) == (400, True)


def test_secret_is_for_confidential_clients(public, code, adas_browser, program):
    """A verifier does not replace the secret."""
    for secret in ("x", "0" * 43):
        by_form = public.exchange(code, code_verifier=VERIFIER, client_secret=secret)
        by_basic = public.exchange(code, basic(public.id, secret), code_verifier=VERIFIER)
        assert by_form.status_code == by_basic.status_code == 401
    assert public.exchange(code, code_verifier=VERIFIER).status_code == 200
    code = adas_browser.allow(program, **S256)
    for status, headers, secret in (
        (400, {}, None),
        (400, {}, ""),
        (401, basic(program.id, ""), None),
        (401, {}, "x"),
    ):
        sent = {"code_verifier": VERIFIER, "client_secret": secret}
        assert program.exchange(code, headers, **sent).status_code == status
    assert program.exchange(code, code_verifier=VERIFIER).status_code == 200


def test_any_origin_reads_responses_to_a_public_client(public, code, faults):
    right = {"code_verifier": VERIFIER}
    for status, changes in (
        (401, {"client_secret": "x"}),
        (400, {"code": None}),
        (400, {"code": [code, code]}),
        (400, {"code": "x"}),
        (400, {"grant_type": "password"}),
        (400, {}),  # no verifier
        (503, right),  # from a failing disk
        (200, right),
        (400, right),  # the code was used
    ):
        if status == 503:
            faults.refuse_saves("used codes")
        answer = public.exchange(code, {"Origin": "https://game.example"}, **changes)
        faults.allow_saves()
        assert (answer.status_code, answer.headers[ANY_ORIGIN]) == (status, "*")
        assert "Access-Control-Allow-Credentials" not in answer.headers


def test_no_page_reads_a_response_to_a_confidential_client(adas_browser, program):
    """A secret has no place in a page, whose source everyone can read."""
    code = adas_browser.allow(program)
    origin = {"Origin": "https://game.example"}
    for headers, changes in (
        *((origin, {"client_secret": secret}) for secret in (None, "x")),
        *((origin, {"client_id": client_id}) for client_id in (None, "0" * 24)),
        (origin | basic(program.id, program.secret), {"client_secret": None}),
        (origin, {}),  # the code was used
    ):
        assert ANY_ORIGIN not in program.exchange(code, headers, **changes).headers


def test_consent_is_asked_each_time_where_others_can_listen(adas_browser, register):
    """RFC 8252 8.6: another program may listen there, and use the same client id.

    A confidential client is not asked for again: its code is useless without the secret.
    """
    for uri in (LOOPBACK, "http://[::1]:8000/cb", "http://localhost:5173/"):
        public = register(uri, public=True)
        for scope in ("userinfo", "userinfo", "email", "email"):
            page = adas_browser.get(public.link(scope=scope, **S256))
            assert page.status_code == 200 and ">Allow</button>" in page.text
            assert "code" in public.read_callback(adas_browser.decide(page))
    adas_browser.allow(confidential := register(LOOPBACK))
    assert "code" in confidential.read_callback(adas_browser.get(confidential.link()))
    public = register(PRIVATE_USE, public=True)
    for _ in range(2):
        page = adas_browser.get(public.link(**S256))
        assert "An app on this device gets the answer" in page.text
        assert "access lasts until" not in page.text
        assert '<code dir="ltr">org.example.space:</code>' in page.text
        policy = page.headers["Content-Security-Policy"]
        assert re.search("form-action ([^;]*)", policy)[1] == "'self' org.example.space:"
        assert adas_browser.decide(page).location.startswith(f"{PRIVATE_USE}?code=")
    assert destination_of("org.example.space://discord.com/cb") == "org.example.space:"


@pytest.fixture
def ask(adas_browser, store):
    """A function that sends the request of a public client's play page."""
    client, _ = store.clients.register(
        "Space Game", [], None, game_url="https://space.example/", public=True
    )

    def ask(game_url: str = client.game_url, **fields: str):
        edit(store.clients, client.id, game_url=game_url)
        page = adas_browser.get(f"/play/{client.id}").text
        signed = re.search('data-request="([^"]*)"', page)[1]
        form = {"request": signed, "decision": "allow"} | fields
        return client.id, adas_browser.post(f"/play/{client.id}/authorize", data=form).json

    return ask


def test_public_game_on_a_loopback_address_asks_each_time(ask, anyone, ada):
    """RFC 8252 8.6: another program may listen there. Elsewhere the consent is remembered."""
    ask(**S256)
    client_id, message = ask(decision="", **S256)
    assert message == {"type": "authorized", "error": False, "code": message["code"]}
    public = Program(anyone, client_id, None, "")
    assert public.exchange(message["code"]).status_code == 400
    token = public.exchange(message["code"], code_verifier=VERIFIER).json["access_token"]
    assert public.whois(token).json["id"] == ada.id
    message = ask("http://localhost:3000/", decision="", **S256)[1]
    assert message["message"] == "consent_required"
    assert ask("http://localhost:3000/", **S256)[1]["error"] is False


def test_public_game_without_a_challenge_gets_no_code(ask):
    for fields in ({}, S256 | {"code_challenge": "x"}):
        _, message = ask(**fields)
        assert message == {"type": "authorized", "error": True, "message": "invalid_request"}
