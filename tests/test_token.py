"""POST /api/oauth/token: the client exchanges its code for an access token (RFC 6749 4.1.3).

The sections follow the order in which errors are checked, which ERRORS lists. A refused request
keeps the code valid. test_api_calls.py has what the API calls have in common.
"""

import base64
import dataclasses
import hashlib
import hmac
import io
import itertools
from unittest.mock import Mock
from urllib.parse import urlencode

import pytest
from forms import edit

from identity.oauth.clients import CLIENT_FAILURES
from identity_server import issue_access_token
from model.grant_records import AuthorizationCode
from model.kinds import FAMILIES
from model.records import Suspension

TOKEN = "/api/oauth/token"
FORM = "application/x-www-form-urlencoded"
BODY_LIMIT = 16 * 1024
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # RFC 7636, appendix B
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
S256 = {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}


@pytest.fixture
def code(adas_browser, program) -> str:
    return adas_browser.allow(program)


def basic(client_id: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()}


def good_form(program, code, /, **changes) -> dict[str, str]:
    form = {"grant_type": "authorization_code", "code": code}
    return form | {"client_id": program.id, "client_secret": program.secret} | changes


# -- success --------------------------------------------------------------------------------------


def test_token_success_response(program, code, adas_browser):
    answer = program.exchange(code)
    assert answer.status_code == 200
    token = answer.json["access_token"]
    assert answer.json == {"access_token": token, "token_type": "Bearer", "expires_in": 600}
    assert (answer.headers["Cache-Control"], answer.headers["Pragma"]) == ("no-store", "no-cache")
    assert program.whois(token).status_code == 200
    for headers in (
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://space.example"},
        {"Sec-Fetch-Site": "same-site", "Cookie": "session=x"},
        {"Origin": "null"},
    ):
        assert program.exchange(adas_browser.allow(program), headers).status_code == 200


# -- the body -------------------------------------------------------------------------------------


def send(program, body: bytes, chunked: bool):
    """Send a token request with this body."""
    if not chunked:
        return program.http.post(TOKEN, data=body, content_type=FORM)
    # As under gunicorn, a chunked body has no length and its end is detected.
    environ = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    stream = io.BytesIO(body)
    return program.http.post(
        TOKEN, input_stream=stream, content_type=FORM, environ_overrides=environ
    )


def padded(program, code, length: int) -> bytes:
    """Return a valid body, extended to this length by an unknown parameter."""
    body = urlencode(good_form(program, code)) + "&padding="
    return body.encode().ljust(length, b"x")


def test_connection_lost_in_the_body_is_400(program):
    """Also one whose client sends nothing any more: gunicorn raises such an error, too."""

    class LostConnection(io.BytesIO):
        def read(self, *_: int) -> bytes:
            raise ConnectionResetError

    options = {"input_stream": LostConnection(), "content_length": 9, "content_type": FORM}
    assert program.http.post(TOKEN, **options).status_code == 400


@pytest.mark.parametrize("chunked", [False, True])
def test_body_over_16_kib_is_413_and_keeps_the_code(program, code, chunked):
    for length in (BODY_LIMIT + 1, BODY_LIMIT + 2, 1024 * 1024):
        assert send(program, padded(program, code, length), chunked).status_code == 413
    assert send(program, padded(program, code, BODY_LIMIT), chunked).status_code == 200


def test_body_is_read_as_a_form_unless_it_is_json_or_multipart(adas_browser, program, code):
    for content_type in (
        *(None, "", "text/plain", "text/plain;charset=UTF-8", "application/octet-stream"),
        *(f"{FORM}; charset=utf-8", FORM.upper(), "no type at all"),
    ):
        body = urlencode(good_form(program, adas_browser.allow(program))).encode()
        answer = program.http.post(TOKEN, data=body, content_type=content_type)
        assert answer.request.headers.get("Content-Type") == content_type
        assert answer.status_code == 200
    json_types = ("application/json", "application/json; charset=utf-8", "Application/JSON")
    for content_type in (*json_types, "multipart/form-data; boundary=x"):
        answer = program.http.post(TOKEN, data=b"{}", content_type=content_type)
        assert (answer.status_code, FORM in answer.json["message"]) == (400, True)
    assert program.exchange(code).status_code == 200


def test_query_string_is_ignored(program, code):
    query = urlencode(good_form(program, code))
    for body in ({}, good_form(program, "")):
        assert program.http.post(f"{TOKEN}?{query}", data=body).status_code == 400
    query = "client_secret=wrong&code=wrong&grant_type=x&redirect_uri=x&code_verifier=x"
    answer = program.http.post(f"{TOKEN}?{query}", data=good_form(program, code))
    assert answer.status_code == 200


# -- the parameters -------------------------------------------------------------------------------


def test_missing_repeated_or_other_parameter_keeps_the_code(program, code):
    """RFC 9700 2.4: other grant types, too."""
    optional = {"redirect_uri": program.redirect_uri, "code_verifier": VERIFIER}
    for name, value in good_form(program, code, **optional).items():
        invalid = [[value, value], [value, "another"], [value, ""]]
        invalid += [] if name in optional else [None, ""]
        for sent in invalid:
            answer = program.exchange(code, **{name: sent})
            assert (answer.status_code, name in answer.json["message"]) == (400, True)
    for grant_type in ("refresh_token", "client_credentials", "Authorization_Code", "password"):
        assert program.exchange(code, grant_type=grant_type).status_code == 400
    assert program.exchange(code).status_code == 200


def test_blank_optional_and_unknown_parameters_are_ignored(program, code):
    blank = {"redirect_uri": "", "code_verifier": ""}
    answer = program.exchange(code, scope="email", audience=["a", "b", ""], **blank)
    assert answer.status_code == 200


# -- the client -----------------------------------------------------------------------------------

NO_BODY_CREDENTIALS = {"client_id": None, "client_secret": None}


def test_http_basic_replaces_both_client_parameters(program, code, register, adas_browser):
    headers = basic(program.id, program.secret)
    other = register("https://other.example/")
    for in_body in (
        {"client_secret": "another"},
        {"client_secret": program.secret + "x"},
        {"client_secret": "é"},
        {"client_id": other.id, "client_secret": None},
    ):
        assert program.exchange(code, headers, **in_body).status_code == 400
    assert program.exchange(code).status_code == 200
    right = basic(program.id, program.secret)["Authorization"]
    encoded = ["".join(f"%{ord(c):02X}" for c in text) for text in (program.id, program.secret)]
    for header, in_body in (
        (right, {}),
        (right.replace("Basic", "bAsIc"), {}),
        (right.replace("Basic", "Basic  "), {}),
        (basic(*encoded)["Authorization"], {}),
        (right, {"client_id": program.id, "client_secret": ""}),
        (right, {"client_id": program.id, "client_secret": program.secret}),  # as Discourse does
    ):
        code, sent = adas_browser.allow(program), NO_BODY_CREDENTIALS | in_body
        assert program.exchange(code, {"Authorization": header}, **sent).status_code == 200


def test_malformed_or_wrong_basic_alone_is_401_with_a_challenge(program, code):
    right = basic(program.id, program.secret)["Authorization"]
    for header in (
        *("Basic", "Basic ", "Basic ?", "Basic YQ", "Basic Og==", "Basic YTpiOmM="),
        *("Basic /////w==", right[:20] + "!" + right[20:], right + "é", right + ", Basic x"),
        basic(program.id, "wrong")["Authorization"],
    ):
        answer = program.exchange(code, {"Authorization": header}, **NO_BODY_CREDENTIALS)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == 'Basic realm="OAuth clients"'
    for headers in ({}, {"Authorization": "Bearer x"}):
        answer = program.exchange(code, headers, client_secret="wrong")
        assert (answer.status_code, "WWW-Authenticate" in answer.headers) == (401, False)
    assert program.exchange(code).status_code == 200


def test_unknown_client_is_answered_like_a_wrong_secret(store, program, code, register):
    """RFC 9700 2.5."""
    wrong = program.exchange(code, client_secret="wrong")
    assert wrong.status_code == 401
    disabled = register("https://off.example/")
    edit(store.clients, disabled.id, disabled=True)
    unknown = [
        *("0" * 24, "../users/1", "..%2fusers%2f1", "/etc/passwd", ".", "..", "a" * 15, "a" * 65),
        *("A" * 24, "é" * 24, "a" * 24 + "\n", "a" * 24 + "\0", "a" * 24 + "/", "٣" * 24),
    ]
    for client_id in (disabled.id, *unknown):
        for secret in (disabled.secret, program.secret):
            answer = program.exchange(code, client_id=client_id, client_secret=secret)
            assert (answer.status_code, answer.data) == (401, wrong.data)
            assert sorted(answer.headers) == sorted(wrong.headers)
    assert program.exchange(code).status_code == 200


def test_similar_secret_is_401(program, code, faults):
    right = program.secret
    last = "A" if right[-1] != "A" else "B"
    stored = hashlib.sha256(right.encode()).hexdigest()
    for similar in (right.swapcase(), right[:-1], right[:-1] + last, right + " ", stored):
        assert program.exchange(code, client_secret=similar).status_code == 401
    # After an edit by hand no secret is right, and that is no error of the server.
    faults.change_client(program.id, secret_sha256="é" * 64)
    assert program.exchange(code).status_code == 401


def test_secrets_are_compared_in_constant_time(adas_browser, program, monkeypatch):
    """Otherwise the response time would tell how many characters are right."""
    compare = Mock(side_effect=hmac.compare_digest)
    monkeypatch.setattr(hmac, "compare_digest", compare)
    code = adas_browser.allow(program, **S256)
    token = program.exchange(code, code_verifier=VERIFIER).json["access_token"]
    assert program.whois(token).status_code == 200
    secret_hash = hashlib.sha256(program.secret.encode()).hexdigest()
    expected = {secret_hash.encode(), CHALLENGE, token.rpartition(".")[2].encode()}
    assert expected <= {call.args[1] for call in compare.call_args_list}


# -- the rate limit -------------------------------------------------------------------------------


def test_only_failed_client_authentication_is_rate_limited(program, code, faults):
    """Valid credentials are never answered 429. A failure that cannot be counted is 401."""
    for _ in range(CLIENT_FAILURES + 1):
        assert program.exchange("x", grant_type="x", client_secret="wrong").status_code == 400
    for _ in range(CLIENT_FAILURES):
        assert program.exchange("x", client_secret="wrong").status_code == 401
    answer = program.exchange("x", client_secret="wrong")
    assert (answer.status_code, 0 < int(answer.headers["Retry-After"]) <= 1800) == (429, True)
    assert [program.exchange(code).status_code for _ in range(2)] == [200, 400]
    faults.refuse_saves("attempts")
    assert program.exchange("x", client_secret="wrong").status_code == 401


# -- the code -------------------------------------------------------------------------------------


def test_code_of_another_client_is_400_like_an_unknown_one(program, code, register):
    """RFC 9700 4.5.3."""
    other_client = register("https://thief.example/")
    refused = other_client.exchange(code)
    assert refused.status_code == 400
    for unknown in ("x", "../spent/x", "\0", "/", "é", "x" * 10_000):
        answer = other_client.exchange(unknown)
        assert (answer.status_code, answer.data) == (400, refused.data)
    assert program.exchange(code).status_code == 200


def test_code_is_valid_for_sixty_seconds(clock, program, code):
    """It is refused if it is older, or if the clock was set back by more than a minute."""
    clock.shift(61)
    assert program.exchange(code).status_code == 400
    clock.shift(-61 - 61)
    assert program.exchange(code).status_code == 400
    clock.shift(61 + 60)
    assert program.exchange(code).status_code == 200


def test_code_reuse_revokes_tokens_but_not_consent(store, program, code, adas_browser, ada):
    """RFC 9700 4.2.4."""
    other_code = adas_browser.allow(program)
    token = program.token_for(code)
    grant_before = store.users.read(ada.id).grants[program.id]
    assert program.exchange(code).status_code == 400
    assert program.whois(token).status_code == 401
    assert program.exchange(other_code).status_code == 400
    grant = store.users.read(ada.id).grants[program.id]
    assert (grant.scope, grant.since) == (grant_before.scope, grant_before.since)
    # The player is not asked again, and a third use does not revoke the next token.
    next_code = program.read_callback(adas_browser.get(program.link()))["code"]
    next_token = program.token_for(next_code)
    assert program.exchange(code).status_code == 400
    assert program.whois(next_token).status_code == 200


def test_token_has_the_grant_id_of_its_code(store, program, code, ada):
    # A reuse between the check and issue_access_token() revokes the token of the first use.
    grant_id = store.users.read(ada.id).grants[program.id].id
    program.exchange(code)
    program.exchange(code)
    first = AuthorizationCode(program.id, ada.id, grant_id, ["userinfo"], None, None)
    assert program.whois(issue_access_token(first, store)).status_code == 401


def test_code_reuse_with_other_errors_revokes_tokens(adas_browser, program, clock):
    """Also when the code itself would have expired."""
    for seconds, changes in (
        (0, {"redirect_uri": "x"}),
        (0, {"code_verifier": VERIFIER}),
        (590, {}),
    ):
        code = adas_browser.allow(program)
        token = program.token_for(code)
        clock.shift(seconds)
        assert program.exchange(code, **changes).status_code == 400
        assert program.whois(token).status_code == 401


def test_code_reuse_by_others_keeps_tokens(program, code, register):
    token = program.token_for(code)
    assert register("https://thief.example/").exchange(code).status_code == 400
    assert program.exchange(code, client_secret="wrong").status_code == 401
    assert program.whois(token).status_code == 200


def test_code_reuse_is_400_if_tokens_cannot_be_revoked(program, code, faults):
    token = program.token_for(code)
    faults.refuse_saves("users")
    assert program.exchange(code).status_code == 400
    assert program.whois(token).status_code == 200


# -- the player -----------------------------------------------------------------------------------


def test_code_stays_revoked_after_consent_is_granted_again(store, program, code, ada, adas_browser):
    edit(store.users, ada.id, grants={})
    assert program.exchange(code).status_code == 400
    code_of_nobody = adas_browser.allow(program)
    assert program.exchange(code).status_code == 400
    store.users.delete(ada.id)
    assert program.exchange(code_of_nobody).status_code == 400


# -- redirect_uri ---------------------------------------------------------------------------------


def test_other_redirect_uri_is_400_and_keeps_the_code(adas_browser, register):
    """It is the only registered one if the request had none, and has its port on loopback."""
    first, second = "https://space.example/callback", "https://space.example/second"
    other_spellings = (f"{first}/", f"{first}?", "x", first.replace("https", "HTTPS"), f"{first}#")
    loopback, with_port = "http://127.0.0.1/callback", "http://127.0.0.1:50123/callback"
    foreign = ("https://other.example/", "http://127.0.0.1:9/callback")
    for registered, asked, right, wrong in (
        ((first, second), first, first, (*other_spellings, second)),
        ((loopback,), None, loopback, foreign),
        ((loopback,), with_port, with_port, foreign),
    ):
        program = register(*registered)
        program.redirect_uri = right
        code = adas_browser.allow(program, redirect_uri=asked)
        for other in wrong:
            assert program.exchange(code, redirect_uri=other).status_code == 400
        assert program.exchange(code, redirect_uri=right).status_code == 200


def test_game_flow_code_with_redirect_uri_is_400(store, program, code):
    record = dataclasses.replace(store.codes.read(code), redirect_uri=None)
    store.codes.add("a game's code", record)
    for redirect_uri, status in ((program.redirect_uri, 400), (None, 200)):
        answer = program.exchange("a game's code", redirect_uri=redirect_uri)
        assert answer.status_code == status


# -- code_verifier (RFC 7636) ---------------------------------------------------------------------


def test_missing_or_wrong_verifier_is_400_and_keeps_the_code(adas_browser, program):
    """RFC 9700 4.5.3."""
    code = adas_browser.allow(program, **S256)
    for verifier in (
        *(None, "", VERIFIER[:-1] + "l", VERIFIER.swapcase(), VERIFIER + " "),
        CHALLENGE,  # accepted by the method `plain`
    ):
        assert program.exchange(code, code_verifier=verifier).status_code == 400
    assert "missing" in program.exchange(code).json["message"]
    assert program.exchange(code, code_verifier=VERIFIER).status_code == 200
    right = ["v" * 43, "v" * 128]
    for verifier in (*right, "v" * 42, "v" * 129, "v" * 43 + "+", "é" * 43):
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        code = adas_browser.allow(program, **S256 | {"code_challenge": challenge})
        answer = program.exchange(code, code_verifier=verifier)
        assert answer.status_code == (200 if verifier in right else 400)
        assert verifier in right or "not 43 to 128 of the characters" in answer.json["message"]


# -- the order ------------------------------------------------------------------------------------

ERRORS = {  # the status and the fault, in the order in which the faults are checked
    "other method": (405, {"method": "GET"}),
    "body too long": (413, {"padding": "x" * BODY_LIMIT}),
    "not a form": (400, {"content_type": "application/json"}),
    "missing parameter": (400, {"grant_type": ""}),
    "wrong secret": (401, {"client_secret": "wrong"}),
    "unknown code": (400, {"code": "x"}),
    "suspended user": (400, {"suspension": Suspension("command")}),
    "other redirect_uri": (400, {"redirect_uri": "x"}),
    "unexpected verifier": (400, {"code_verifier": VERIFIER}),
    "failing disk": (503, {"unspendable": True}),
}


def test_first_of_two_errors_is_returned(store, ada, program, code, faults, subtests):
    """RFC 9700 4.8.2: a verifier without a challenge is one. None of them uses up the code."""

    def send_with_faults(
        method="POST", content_type=FORM, suspension=None, unspendable=False, **changes: str
    ) -> tuple[int, bytes]:
        """Send a valid request with these faults; return status and body."""
        edit(store.users, ada.id, suspension=suspension)
        if unspendable:
            faults.refuse_saves("used codes")
        body = urlencode(good_form(program, code, **changes))
        answer = program.http.open(TOKEN, method=method, data=body, content_type=content_type)
        faults.allow_saves()
        assert answer.status_code != 503 or int(answer.headers["Retry-After"]) > 0
        return answer.status_code, answer.data

    alone = {name: send_with_faults(**fault) for name, (_, fault) in ERRORS.items()}
    assert [status for status, _ in alone.values()] == [status for status, _ in ERRORS.values()]
    assert len(set(alone.values())) == len(ERRORS)
    for first, second in itertools.combinations(ERRORS, 2):
        with subtests.test(f"{first} before {second}"):
            assert send_with_faults(**ERRORS[first][1] | ERRORS[second][1]) == alone[first]
    assert send_with_faults()[0] == 200


# -- the scope offline_access, without which nothing is done for it -------------------------------


def test_grant_without_offline_access_touches_no_family(
    store, faults, adas_browser, program, monkeypatch
):
    families = store.records(FAMILIES)
    for name in ("read", "read_from_many", "adding", "locked", "save", "put", "delete"):
        monkeypatch.setattr(families, name, None)
    for exchange in (program.exchange, program.exchange_standard):
        answer = exchange(adas_browser.allow(program, scope="userinfo email"))
        assert "refresh_token" not in answer.json
        assert program.whois(answer.json["access_token"]).status_code == 200
    assert adas_browser.post("/account/sign-out-others").status_code == 303
    assert "families" not in faults.stored_text()
