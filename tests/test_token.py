"""POST /api/oauth/token: the client exchanges its code for an access token (RFC 6749 4.1.3).

The errors have a fixed order, and a refused request keeps the code valid.
"""

import base64
import hashlib
import io
from urllib.parse import urlencode

import pytest

from identity.clients import CLIENT_FAILURES
from identity_server import issue_access_token
from storage.records import AuthorizationCode, Suspension

FORM = "application/x-www-form-urlencoded"
BODY_LIMIT = 16 * 1024
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # RFC 7636, appendix B
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
S256 = {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}


@pytest.fixture
def code(adas_browser, program) -> str:
    """A valid code of Ada's for `program`."""
    return adas_browser.allow(program)


def basic(client_id: str, secret: str) -> dict[str, str]:
    """Return the Authorization header of HTTP Basic."""
    return {"Authorization": "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()}


def good_form(program, code, /, **changes) -> dict[str, str]:
    """Return the parameters of a valid token request."""
    form = {"grant_type": "authorization_code", "code": code}
    return form | {"client_id": program.id, "client_secret": program.secret} | changes


def make_code(store, user, program, **changes) -> str:
    """Issue a code without an authorization request; return it."""
    with store.users.edit(user.id) as edited:
        grant = edited.grants[program.id]
    values = {
        "client_id": program.id,
        "user_id": user.id,
        "grant_id": grant.id,
        "scope": ["userinfo"],
        "redirect_uri": program.redirect_uri,
        "code_challenge": None,
    }
    store.codes.add("a code", AuthorizationCode(**values | changes))
    return "a code"


# -- success --------------------------------------------------------------------------------------


def test_token_success_response(program, code):
    answer = program.exchange(code)
    assert answer.status_code == 200
    token = answer.json["access_token"]
    assert answer.json == {"access_token": token, "token_type": "Bearer", "expires_in": 600}
    assert program.whois(token).status_code == 200


def test_token_response_is_no_store_and_sets_no_cookie(program, code):
    headers = program.exchange(code).headers
    assert headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Pragma"] == "no-cache"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert not {"Set-Cookie", "Vary", "Access-Control-Allow-Origin"} & set(headers.keys())


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://space.example"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
        {"Cookie": "session=x"},
    ],
)
def test_cross_site_post_is_accepted(program, code, headers):
    assert program.exchange(code, headers).status_code == 200


# -- the method -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE"])
def test_other_method_is_405_with_allow(program, code, method):
    form = good_form(program, code)
    answer = program.http.open("/api/oauth/token", method=method, data=form)
    assert answer.status_code == 405
    assert set(answer.headers["Allow"].split(", ")) == {"OPTIONS", "POST"}


# -- the body -------------------------------------------------------------------------------------


def send(program, body: bytes, chunked: bool, content_type: str = FORM):
    """Send a token request with this body."""
    if not chunked:
        return program.http.post("/api/oauth/token", data=body, content_type=content_type)
    return program.http.post(
        "/api/oauth/token",
        input_stream=io.BytesIO(body),
        content_type=content_type,
        # As under gunicorn, a chunked body has no length and its end is detected.
        environ_overrides={"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"},
    )


def padded(program, code, length: int) -> bytes:
    """Return a valid body, extended to this length by an unknown parameter."""
    body = urlencode(good_form(program, code)) + "&padding="
    return body.encode().ljust(length, b"x")


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("length", [BODY_LIMIT + 1, BODY_LIMIT + 2, 1024 * 1024])
def test_body_over_16_kib_is_413_and_keeps_the_code(program, code, length, chunked):
    assert send(program, padded(program, code, length), chunked).status_code == 413
    assert program.exchange(code).status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_body_of_16_kib_is_accepted(program, code, chunked):
    assert send(program, padded(program, code, BODY_LIMIT), chunked).status_code == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded; charset=utf-8",
        "APPLICATION/X-WWW-FORM-URLENCODED",
        "application/octet-stream",
        "no type at all",
    ],
)
def test_body_is_read_as_a_form_with_any_content_type(program, code, content_type):
    assert program.exchange(code, {"Content-Type": content_type}).status_code == 200


def test_body_is_read_as_a_form_without_content_type(program, code):
    body = urlencode(good_form(program, code)).encode()
    answer = program.http.post("/api/oauth/token", data=body)
    assert "Content-Type" not in answer.request.headers
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        {"content_type": "application/json"},
        {"content_type": "application/json; charset=utf-8"},
        {"content_type": "Application/JSON"},
        {"content_type": "multipart/form-data; boundary=x"},
    ],
)
def test_json_and_multipart_are_400_and_keep_the_code(program, code, sent):
    answer = program.http.post("/api/oauth/token", data=b"{}", **sent)
    assert answer.status_code == 400
    assert FORM in answer.json["message"]
    assert program.exchange(code).status_code == 200


def test_query_string_is_ignored(program, code):
    query = urlencode(good_form(program, code))
    assert program.http.post(f"/api/oauth/token?{query}").status_code == 400
    body = urlencode(good_form(program, "")).encode()
    assert program.http.post(f"/api/oauth/token?{query}", data=body).status_code == 400
    body = urlencode(good_form(program, code)).encode()
    query = "client_secret=wrong&code=wrong&grant_type=x&redirect_uri=x&code_verifier=x"
    assert program.http.post(f"/api/oauth/token?{query}", data=body).status_code == 200


@pytest.mark.parametrize("body", [b"code=%FF", b"\xff=1", b"code=%ED%A0%80", b"", b"&&=&=x;"])
def test_body_that_is_not_a_utf_8_form_is_400(program, body):
    assert send(program, body, chunked=False).status_code == 400


# -- the parameters -------------------------------------------------------------------------------

REQUIRED = ["grant_type", "code", "client_id", "client_secret"]
OPTIONAL = ["redirect_uri", "code_verifier"]


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize("name", REQUIRED)
def test_missing_or_blank_parameter_is_400_and_keeps_the_code(program, code, name, value):
    answer = program.exchange(code, **{name: value})
    assert answer.status_code == 400
    assert name in answer.json["message"]
    assert program.exchange(code).status_code == 200


@pytest.mark.parametrize("second", ["the same", "another", ""])
@pytest.mark.parametrize("name", REQUIRED + OPTIONAL)
def test_repeated_parameter_is_400_and_keeps_the_code(program, code, name, second):
    first = good_form(program, code, redirect_uri=program.redirect_uri).get(name, VERIFIER)
    answer = program.exchange(code, **{name: [first, first if second == "the same" else second]})
    assert answer.status_code == 400
    assert name in answer.json["message"]
    assert program.exchange(code).status_code == 200


@pytest.mark.parametrize("name", OPTIONAL)
def test_blank_optional_parameter_is_ignored(program, code, name):
    assert program.exchange(code, **{name: ""}).status_code == 200


def test_unknown_and_repeated_parameters_are_ignored(program, code):
    assert program.exchange(code, scope="email", audience=["a", "b", ""]).status_code == 200


@pytest.mark.parametrize(
    "grant_type", ["refresh_token", "client_credentials", "Authorization_Code", "password"]
)
def test_other_grant_type_is_400(program, code, grant_type):
    """RFC 9700 2.4."""
    assert program.exchange(code, grant_type=grant_type).status_code == 400
    assert program.exchange(code).status_code == 200


# -- the client -----------------------------------------------------------------------------------

NO_BODY_CREDENTIALS = {"client_id": None, "client_secret": None}


def test_http_basic_replaces_both_client_parameters(program, code):
    headers = basic(program.id, program.secret)
    assert program.exchange(code, headers, **NO_BODY_CREDENTIALS).status_code == 200


@pytest.mark.parametrize("scheme", ["basic", "BASIC", "bAsIc", "Basic  "])
def test_scheme_is_case_insensitive(program, code, scheme):
    credentials = basic(program.id, program.secret)["Authorization"].removeprefix("Basic")
    headers = {"Authorization": scheme + credentials}
    assert program.exchange(code, headers, **NO_BODY_CREDENTIALS).status_code == 200


def test_basic_credentials_may_be_percent_encoded(program, code):
    encoded = ["".join(f"%{ord(c):02X}" for c in text) for text in (program.id, program.secret)]
    assert program.exchange(code, basic(*encoded), **NO_BODY_CREDENTIALS).status_code == 200


def test_basic_and_another_body_secret_are_400(program, code):
    headers = basic(program.id, program.secret)
    for sent in ("another", program.secret + "x", "é"):
        assert program.exchange(code, headers, client_secret=sent).status_code == 400
    wrong = program.exchange(code, basic(program.id, "wrong"), client_secret="wrong")
    assert wrong.status_code == 401
    # Discourse sends the right one by both.
    assert program.exchange(code, headers).status_code == 200


def test_basic_with_a_blank_body_secret_and_the_same_client_id_is_accepted(program, code):
    headers = basic(program.id, program.secret)
    assert program.exchange(code, headers, client_secret="").status_code == 200


def test_basic_with_another_client_id_in_the_body_is_400(program, code, register):
    other = register("https://other.example/")
    headers = basic(program.id, program.secret)
    answer = program.exchange(code, headers, client_id=other.id, client_secret=None)
    assert answer.status_code == 400
    assert program.exchange(code).status_code == 200


@pytest.mark.parametrize(
    "header",
    ["Basic", "Basic ", "Basic ?", "Basic YQ", "Basic Og==", "Basic YTpiOmM=", "Basic /////w=="],
)
def test_malformed_basic_is_401_with_a_challenge(program, code, header):
    answer = program.exchange(code, {"Authorization": header}, **NO_BODY_CREDENTIALS)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="OAuth clients"'
    assert program.exchange(code).status_code == 200


def test_basic_with_characters_that_are_not_base64_is_malformed(program, code):
    right = basic(program.id, program.secret)["Authorization"]
    for header in (right[:20] + "!" + right[20:], right + "é", right + ", Basic x"):
        answer = program.exchange(code, {"Authorization": header}, **NO_BODY_CREDENTIALS)
        assert answer.status_code == 401


def test_challenge_is_sent_only_for_basic(program, code):
    wrong = program.exchange(code, client_secret="wrong")
    assert (wrong.status_code, "WWW-Authenticate" in wrong.headers) == (401, False)
    headers = {"Authorization": "Bearer x"}
    wrong = program.exchange(code, headers, client_secret="wrong")
    assert (wrong.status_code, "WWW-Authenticate" in wrong.headers) == (401, False)
    wrong = program.exchange(code, basic(program.id, "wrong"), **NO_BODY_CREDENTIALS)
    assert wrong.headers["WWW-Authenticate"] == 'Basic realm="OAuth clients"'


def test_unknown_or_disabled_client_has_the_same_response_as_a_wrong_secret(
    store, program, code, register
):
    """RFC 9700 2.5."""
    disabled = register("https://off.example/")
    with store.clients.edit(disabled.id) as client:
        client.disabled = True
    others = [
        {"client_id": "0" * 24},
        {"client_id": disabled.id, "client_secret": disabled.secret},
        {"client_id": disabled.id},
    ]
    wrong = program.exchange(code, client_secret="wrong")
    assert wrong.status_code == 401
    for changes in others:
        answer = program.exchange(code, **changes)
        assert (answer.status_code, answer.data) == (401, wrong.data)
        assert sorted(answer.headers) == sorted(wrong.headers)
    assert program.exchange(code).status_code == 200


@pytest.mark.parametrize(
    "client_id",
    [
        *("../users/1", "..%2fusers%2f1", "/etc/passwd", ".", "..", "a" * 15, "a" * 65),
        *("A" * 24, "é" * 24, "a" * 24 + "\n", "a" * 24 + "\0", "a" * 24 + "/", "٣" * 24),
    ],
)
def test_malformed_client_id_is_401_like_an_unknown_one(program, code, client_id):
    wrong = program.exchange(code, client_secret="wrong")
    answer = program.exchange(code, client_id=client_id)
    assert (answer.status_code, answer.data) == (401, wrong.data)


def test_hash_that_is_not_ascii_is_401(program, code, faults):
    """After an edit by hand no secret is right, and that is no error of the server."""
    faults.change_client(program.id, secret_sha256="é" * 64)
    assert program.exchange(code).status_code == 401


@pytest.mark.parametrize("changed", ["the case", "one character", "a space", "cut", "the hash"])
def test_similar_secret_is_401(program, code, changed):
    secret = program.secret
    nearly = {
        "the case": secret.swapcase(),
        "one character": secret[:-1] + ("A" if secret[-1] != "A" else "B"),
        "a space": secret + " ",
        "cut": secret[:-1],
        "the hash": hashlib.sha256(secret.encode()).hexdigest(),
    }
    assert program.exchange(code, client_secret=nearly[changed]).status_code == 401


def test_new_secret_replaces_the_old_one(store, program, code):
    new_secret = store.clients.issue_secret(program.id)
    assert program.exchange(code).status_code == 401
    assert program.exchange(code, client_secret=new_secret).status_code == 200


# -- the rate limit -------------------------------------------------------------------------------


def fail(program, address: str, times: int = 1, **changes) -> list[int]:
    """Fail client authentications from an address; return the status codes."""
    program.http.environ_base["REMOTE_ADDR"] = address
    wrong = {"client_secret": "wrong"} | changes
    return [program.exchange("x", **wrong).status_code for _ in range(times)]


def test_client_rate_limit_per_address(program, register):
    assert fail(program, "192.0.2.1", 100) == [401] * 100
    answer = program.exchange("x", client_secret="wrong")
    assert answer.status_code == 429
    assert 0 < int(answer.headers["Retry-After"]) <= 1800
    assert fail(register("https://other.example/"), "192.0.2.1") == [429]
    assert fail(program, "192.0.2.2") == [401]


def test_valid_credentials_are_never_429(program, code):
    fail(program, "192.0.2.1", 100)
    assert program.exchange(code).status_code == 200
    assert program.exchange(code).status_code == 400  # already used
    assert fail(program, "192.0.2.1") == [429]


def test_other_refusals_are_not_rate_limited(program):
    assert fail(program, "192.0.2.1", 101, grant_type="x") == [400] * 101
    assert fail(program, "192.0.2.1") == [401]


def test_failure_that_cannot_be_counted_is_401(program, faults):
    faults.refuse_saves("attempts")
    assert fail(program, "192.0.2.1") == [401]


# -- the code -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["x", "../spent/x", "\0", "/", "é", "x" * 10_000])
def test_unknown_code_is_400(program, code):
    assert program.exchange(code).status_code == 400


def test_code_is_valid_for_sixty_seconds(clock, program, code):
    clock.shift(60)
    assert program.exchange(code).status_code == 200


def test_code_older_than_sixty_seconds_is_400(clock, program, code):
    clock.shift(61)
    assert program.exchange(code).status_code == 400


def test_code_from_the_future_is_400(clock, program, code):
    clock.shift(-61)  # the clock was set back
    assert program.exchange(code).status_code == 400


def test_code_of_another_client_is_400_like_an_unknown_one(program, code, register):
    """RFC 9700 4.5.3."""
    other_client = register("https://thief.example/")
    unknown = other_client.exchange("x")
    answer = other_client.exchange(code)
    assert (answer.status_code, answer.data) == (400, unknown.data)
    assert program.exchange(code).status_code == 200


def test_code_reuse_revokes_tokens_but_not_consent(store, program, code, adas_browser, ada):
    """RFC 9700 4.2.4."""
    token = program.token_for(code)
    grant_before = store.users.read(ada.id).grants[program.id]
    assert program.exchange(code).status_code == 400
    assert program.whois(token).status_code == 401
    grant = store.users.read(ada.id).grants[program.id]
    assert (grant.scope, grant.since) == (grant_before.scope, grant_before.since)
    # The player is not asked again, and the next code is valid.
    next_code = program.read_callback(adas_browser.get(program.link()))["code"]
    assert program.whois(program.token_for(next_code)).status_code == 200


def test_token_has_the_grant_id_of_its_code(store, program, code, ada):
    # A reuse between the check and issue_access_token() revokes the token of the first use.
    grant_id = store.users.read(ada.id).grants[program.id].id
    program.exchange(code)
    program.exchange(code)
    first = AuthorizationCode(program.id, ada.id, grant_id, ["userinfo"], None, None)
    assert program.whois(issue_access_token(first, store)).status_code == 401


def test_code_reuse_invalidates_other_codes(program, code, adas_browser):
    second_code = adas_browser.allow(program)
    program.exchange(code)
    program.exchange(code)
    assert program.exchange(second_code).status_code == 400


def test_third_use_of_a_code_keeps_later_tokens(program, code, adas_browser):
    program.exchange(code)
    program.exchange(code)
    token = program.token_for(adas_browser.allow(program))
    assert program.exchange(code).status_code == 400
    assert program.whois(token).status_code == 200


@pytest.mark.parametrize("changes", [{"redirect_uri": "x"}, {"code_verifier": VERIFIER}])
def test_code_reuse_with_other_errors_revokes_tokens(program, code, changes):
    token = program.token_for(code)
    assert program.exchange(code, **changes).status_code == 400
    assert program.whois(token).status_code == 401


def test_code_reuse_after_ten_minutes_revokes_tokens(program, code, clock):
    token = program.token_for(code)
    clock.shift(590)
    assert program.exchange(code).status_code == 400
    assert program.whois(token).status_code == 401


def test_code_reuse_by_another_client_keeps_tokens(program, code, register):
    token = program.token_for(code)
    other_client = register("https://thief.example/")
    assert other_client.exchange(code).status_code == 400
    assert program.whois(token).status_code == 200


def test_code_reuse_with_a_wrong_secret_keeps_tokens(program, code):
    token = program.token_for(code)
    assert program.exchange(code, client_secret="wrong").status_code == 401
    assert program.whois(token).status_code == 200


def test_code_reuse_is_400_if_tokens_cannot_be_revoked(program, code, faults):
    token = program.token_for(code)
    faults.refuse_saves("users")
    assert program.exchange(code).status_code == 400
    assert program.whois(token).status_code == 200


# -- the player -----------------------------------------------------------------------------------


def test_code_of_a_suspended_user_is_400_until_unsuspended(store, program, code, ada):
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command")
    assert program.exchange(code).status_code == 400
    with store.users.edit(ada.id) as user:
        user.suspension = None
    assert program.exchange(code).status_code == 200


def test_code_of_a_deleted_user_is_400(store, program, code, ada):
    store.users.delete(ada.id)
    assert program.exchange(code).status_code == 400


def test_code_stays_revoked_after_consent_is_granted_again(store, program, code, ada, adas_browser):
    with store.users.edit(ada.id) as user:
        del user.grants[program.id]
    assert program.exchange(code).status_code == 400
    adas_browser.allow(program)
    assert program.exchange(code).status_code == 400


# -- redirect_uri ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        *("https://space.example/callback/", "https://space.example/callback?", "x"),
        *("HTTPS://space.example/callback", "https://space.example/callback#"),
        "https://space.example/second",  # registered, but not in the request
    ],
)
def test_other_redirect_uri_is_400_and_keeps_the_code(adas_browser, register, other):
    program = register("https://space.example/callback", "https://space.example/second")
    code = adas_browser.allow(program)
    assert program.exchange(code, redirect_uri=other).status_code == 400
    assert program.exchange(code).status_code == 200


def test_redirect_uri_omitted_in_the_request_may_be_sent(adas_browser, program):
    code = adas_browser.allow(program, redirect_uri=None)
    assert program.exchange(code, redirect_uri="https://other.example/").status_code == 400
    assert program.exchange(code, redirect_uri=program.redirect_uri).status_code == 200


def test_loopback_redirect_uri_must_have_the_port_of_the_request(adas_browser, register):
    program = register("http://127.0.0.1/callback")
    program.redirect_uri = "http://127.0.0.1:50123/callback"
    code = adas_browser.allow(program)
    answer = program.exchange(code, redirect_uri="http://127.0.0.1/callback")
    assert answer.status_code == 400
    assert program.exchange(code, redirect_uri=program.redirect_uri).status_code == 200


def test_game_flow_code_with_redirect_uri_is_400(store, program, code, ada):
    games_code = make_code(store, ada, program, redirect_uri=None)
    answer = program.exchange(games_code, redirect_uri=program.redirect_uri)
    assert answer.status_code == 400
    assert program.exchange(games_code).status_code == 200


# -- code_verifier (RFC 7636) ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "verifier",
    [
        *(None, "", VERIFIER[:-1] + "l", VERIFIER.swapcase(), VERIFIER + " "),
        CHALLENGE,  # accepted by the method `plain`
    ],
)
def test_missing_or_wrong_verifier_is_400_and_keeps_the_code(adas_browser, program, verifier):
    """RFC 9700 4.5.3."""
    code = adas_browser.allow(program, **S256)
    assert program.exchange(code, code_verifier=verifier).status_code == 400
    assert program.exchange(code, code_verifier=VERIFIER).status_code == 200


@pytest.mark.parametrize(
    ("verifier", "status"),
    [
        ("v" * 42, 400),
        ("v" * 43, 200),
        ("v" * 128, 200),
        ("v" * 129, 400),
        ("v" * 43 + "+", 400),
        ("é" * 43, 400),
    ],
)
def test_verifier_is_43_to_128_unreserved_characters(adas_browser, program, verifier, status):
    digest = hashlib.sha256(verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    parameters = {"code_challenge": challenge, "code_challenge_method": "S256"}
    code = adas_browser.allow(program, **parameters)
    assert program.exchange(code, code_verifier=verifier).status_code == status


def test_verifier_without_challenge_is_400_and_keeps_the_code(program, code):
    """RFC 9700 4.8.2."""
    assert program.exchange(code, code_verifier=VERIFIER).status_code == 400
    assert program.exchange(code).status_code == 200


# -- failing saves and damaged records ------------------------------------------------------------


def test_failed_write_is_503_and_keeps_the_code(program, code, faults):
    faults.refuse_saves("used codes")
    answer = program.exchange(code)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    faults.allow_saves()
    assert program.exchange(code).status_code == 200


def test_damaged_user_is_503_for_that_user_only(program, code, ada, bob, open_browser, faults):
    bobs_browser = open_browser()
    bobs_browser.sign_in("Bob")
    bobs_code = bobs_browser.allow(program)
    faults.damage_user(ada.id)
    answer = program.exchange(code)
    assert (answer.status_code, int(answer.headers["Retry-After"]) > 0) == (503, True)
    assert program.exchange(bobs_code).status_code == 200
    faults.repair_user(ada.id)
    assert program.exchange(code).status_code == 200


def test_damaged_client_is_503_for_that_client_only(program, code, register, adas_browser, faults):
    other = register("https://other.example/")
    others_code = adas_browser.allow(other)
    faults.damage_client(program.id, "incomplete")
    assert program.exchange(code).status_code == 503
    assert other.exchange(others_code).status_code == 200


# -- the order ------------------------------------------------------------------------------------

# The faults, in the order in which they are checked
FAULTS = {
    "other method": {"method": "GET"},
    "body too long": {"padding": "x" * BODY_LIMIT},
    "not a form": {"content_type": "application/json"},
    "missing parameter": {"grant_type": ""},
    "wrong secret": {"client_secret": "wrong"},
    "unknown code": {"code": "x"},
    "suspended user": {"suspension": Suspension("command")},
    "other redirect_uri": {"redirect_uri": "x"},
    "unexpected verifier": {"code_verifier": VERIFIER},
    "failing disk": {"unspendable": True},
}


@pytest.mark.parametrize(
    ("first", "second"), [(a, b) for i, a in enumerate(FAULTS) for b in list(FAULTS)[i + 1 :]]
)
def test_first_of_two_errors_is_returned(store, ada, program, code, faults, first, second):
    def send_with_faults(
        method="POST", content_type=FORM, suspension=None, unspendable=False, **changes: str
    ) -> tuple[int, bytes]:
        """Send a valid request with these faults; return status and body."""
        with store.users.edit(ada.id) as user:
            user.suspension = suspension
        if unspendable:
            faults.refuse_saves("used codes")
        answer = program.http.open(
            "/api/oauth/token",
            method=method,
            data=urlencode(good_form(program, code, **changes)),
            content_type=content_type,
        )
        faults.allow_saves()
        return answer.status_code, answer.data

    expected = send_with_faults(**FAULTS[first])
    assert expected[0] >= 400
    assert send_with_faults(**FAULTS[first] | FAULTS[second]) == expected
    assert send_with_faults(**FAULTS[second]) != expected
    assert send_with_faults()[0] == 200


def test_client_failure_rate_limit_per_ipv6_48_bit_network(program, code):
    """Twice the limit of one /64: the 65,536 of a /48 are one customer's."""

    def fail_from(network: str) -> int:
        program.http.environ_base["REMOTE_ADDR"] = f"2001:db8:{network}::1"
        return program.exchange(code, client_secret="wrong").status_code

    statuses = [fail_from(f"0:{number % 4}") for number in range(2 * CLIENT_FAILURES + 1)]
    assert statuses == [401] * 2 * CLIENT_FAILURES + [429]
    assert fail_from("0:ff") == 429
    assert fail_from("1:0") == 401
    program.http.environ_base["REMOTE_ADDR"] = "2001:db8:0:ff::1"
    assert program.exchange(code).status_code == 200  # right credentials are never refused
