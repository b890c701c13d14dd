"""GET /api/oauth/whois: the user of an access token (RFC 6750)."""

import pytest

from identity.signing import serializer
from storage.records import Suspension

INVALID_TOKEN = 'Bearer error="invalid_token"'
INVALID_REQUEST = 'Bearer error="invalid_request"'


@pytest.fixture
def token(adas_browser, program) -> str:
    """A valid access token of Ada's without the email scope."""
    return program.token_for(adas_browser.allow(program))


def request_whois(program, header: str, query: str = "", method: str = "GET"):
    """Request whois with this Authorization header."""
    headers = {"Authorization": header}
    return program.http.open(f"/api/oauth/whois{query}", method=method, headers=headers)


def refusal(answer) -> tuple[int, str | None]:
    """Return the status and the challenge; check the headers common to all refusals."""
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.status_code, answer.headers.get("WWW-Authenticate")


# -- success --------------------------------------------------------------------------------------


def test_response_has_id_name_and_pfp_timestamp_only(program, token, ada):
    answer = program.whois(token)
    assert answer.status_code == 200
    assert answer.content_type == "application/json"
    assert answer.json == {"id": ada.id, "name": "Ada", "pfpTimestamp": ada.pfp_timestamp}


def test_email_scope_adds_the_email(program, adas_browser):
    code = adas_browser.allow(program, scope="userinfo email")
    answer = program.whois(program.token_for(code)).json
    assert sorted(answer) == ["email", "id", "name", "pfpTimestamp"]
    assert answer["email"] == "ada@example.org"


def test_token_without_the_email_scope_has_no_email(program, adas_browser):
    """RFC 9700 2.3."""
    adas_browser.allow(program, scope="email")
    code = adas_browser.allow(program)  # the grant has the scope, this code does not
    assert "email" not in program.whois(program.token_for(code)).json


def test_account_without_a_timestamped_picture_has_no_pfp_timestamp(store, program, token, ada):
    with store.users.edit(ada.id) as user:
        user.pfp_timestamp = None
    assert program.whois(token).json == {"id": ada.id, "name": "Ada"}


def test_response_has_the_current_name_and_email(store, program, adas_browser, ada):
    token = program.token_for(adas_browser.allow(program, scope="email"))
    store.users.rename(ada.id, "Lovelace")
    store.users.change_email(ada.id, "lovelace@example.org")
    answer = program.whois(token).json
    assert (answer["name"], answer["email"]) == ("Lovelace", "lovelace@example.org")


def test_response_is_no_store_and_sets_no_cookie(program, token):
    headers = program.whois(token).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert not {"Set-Cookie", "Vary"} & set(headers.keys())


def test_head_has_the_same_headers_and_no_body(program, token):
    head, get = (
        request_whois(program, f"Bearer {token}", method=method) for method in ("HEAD", "GET")
    )
    assert (head.status_code, head.data) == (200, b"")
    assert sorted(head.headers) == sorted(get.headers)


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "bEaReR", "Bearer "])
def test_scheme_is_case_insensitive(program, token, scheme):
    assert request_whois(program, f"{scheme} {token}").status_code == 200


# -- CORS -----------------------------------------------------------------------------------------


def test_response_is_readable_from_any_origin(program, token):
    headers = {"Authorization": f"Bearer {token}", "Origin": "https://game.example"}
    answer = program.http.get("/api/oauth/whois", headers=headers)
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in answer.headers


def test_preflight_allows_the_authorization_header(anyone):
    answer = anyone.preflight("/api/oauth/whois", "GET", "authorization")
    assert answer.status_code == 204
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Access-Control-Allow-Headers"].lower() == "authorization"
    assert "GET" in answer.headers["Access-Control-Allow-Methods"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_other_method_is_405_and_readable_from_any_origin(program, token, method):
    answer = request_whois(program, f"Bearer {token}", method=method)
    assert answer.status_code == 405
    assert {"GET", "HEAD", "OPTIONS"} == set(answer.headers["Allow"].split(", "))
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


# -- no token -------------------------------------------------------------------------------------


def test_missing_header_is_401_without_an_error_code(anyone):
    assert refusal(anyone.get("/api/oauth/whois")) == (401, "Bearer")


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Digest x", "{token}", "Token {token}"])
def test_other_scheme_is_401_without_an_error_code(program, token, header):
    assert refusal(request_whois(program, header.format(token=token))) == (401, "Bearer")


def test_token_in_the_query_only_is_ignored(anyone, token):
    """RFC 9700 4.3.2."""
    answer = anyone.get(f"/api/oauth/whois?access_token={token}")
    assert refusal(answer) == (401, "Bearer")


def test_token_in_a_form_or_cookie_is_ignored(anyone, token):
    answer = anyone.get("/api/oauth/whois", data={"access_token": token})
    assert refusal(answer) == (401, "Bearer")
    answer = anyone.get("/api/oauth/whois", headers={"Cookie": f"access_token={token}"})
    assert refusal(answer) == (401, "Bearer")


# -- malformed requests ---------------------------------------------------------------------------


def test_tokens_in_query_and_header_are_400(program, token):
    for query in (f"?access_token={token}", "?access_token=", "?a=1&access_token=x"):
        assert refusal(request_whois(program, f"Bearer {token}", query)) == (400, INVALID_REQUEST)


@pytest.mark.parametrize(
    "header",
    [
        *(
            "Bearer",
            "Bearer ",
            "Bearer  ",
            "Bearer {token} x",
            "Bearer {token},",
            "Bearer {token}é",
        ),
        *(
            "Bearer é{token}",
            'Bearer "{token}"',
            "Bearer {token}=x",
            "Bearer {token}\t",
            "Bearer =",
        ),
        *("Bearer {token}%", "Bearer {token}\x80", "Bearer {token}, Bearer {token}"),
    ],
)
def test_malformed_header_is_400(program, token, header):
    assert refusal(request_whois(program, header.format(token=token))) == (400, INVALID_REQUEST)


# -- invalid tokens -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forged",
    ["x", "0", "null", "a.b.c", "..", "-._~+/==", "a" * 5000, "eyJ1c2VyIjoxfQ.aaaaaa.AAAA"],
)
def test_forged_token_is_401(program, token, forged):
    assert refusal(program.whois(forged)) == (401, INVALID_TOKEN)


def test_altered_token_is_401(program, token):
    payload, stamp, signature = token.split(".")[-3:]
    first = "A" if signature[0] != "A" else "B"
    last = "AB"[signature[-1] == "A"]
    other = "A" if payload[3] != "A" else "B"
    later = "A" if stamp[-1] != "A" else "B"
    for altered in (
        f"{payload}.{stamp}.{first}{signature[1:]}",
        f"{payload}.{stamp}.{signature[:-1]}{last}",
        f"{payload[:3]}{other}{payload[4:]}.{stamp}.{signature}",
        f"{payload}.{stamp[:-1]}{later}.{signature}",
        f"{payload}.{signature}",
        f"{payload}.{stamp}.",
    ):
        assert refusal(program.whois(altered)) == (401, INVALID_TOKEN)


def test_token_is_valid_for_600_seconds(clock, program, token):
    clock.shift(600)
    assert program.whois(token).status_code == 200


def test_token_older_than_600_seconds_is_401(clock, program, token):
    """RFC 9700 4.10."""
    clock.shift(601)
    assert refusal(program.whois(token)) == (401, INVALID_TOKEN)


def test_token_stays_revoked_after_consent_is_granted_again(
    store, program, token, ada, adas_browser
):
    with store.users.edit(ada.id) as user:
        del user.grants[program.id]
    assert refusal(program.whois(token)) == (401, INVALID_TOKEN)
    new_token = program.token_for(adas_browser.allow(program))
    assert refusal(program.whois(token)) == (401, INVALID_TOKEN)
    assert program.whois(new_token).status_code == 200


def test_token_stays_valid_after_consent_to_more_scopes(program, token, adas_browser):
    adas_browser.allow(program, scope="email")
    answer = program.whois(token)
    assert (answer.status_code, "email" in answer.json) == (200, False)


def test_withdrawing_consent_keeps_tokens_of_other_clients(
    store, program, token, ada, adas_browser, register
):
    adas_browser.allow(other := register("https://other.example/"))
    with store.users.edit(ada.id) as user:
        del user.grants[other.id]
    assert program.whois(token).status_code == 200


def test_token_of_a_suspended_user_is_401(store, program, token, ada):
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command")
    assert refusal(program.whois(token)) == (401, INVALID_TOKEN)


def test_token_of_a_deleted_user_is_401_like_a_revoked_one(store, program, token, ada):
    with store.users.edit(ada.id) as user:
        user.suspension = Suspension("command")
    suspended = program.whois(token)
    store.users.delete(ada.id)
    deleted = program.whois(token)
    assert refusal(deleted) == (401, INVALID_TOKEN)
    assert deleted.data == suspended.data


def test_token_stays_valid_after_its_client_is_disabled_or_deleted(store, program, token):
    with store.clients.edit(program.id) as client:
        client.disabled = True
    assert program.whois(token).status_code == 200
    store.clients.delete(program.id)
    assert program.whois(token).status_code == 200


def test_damaged_user_is_503_for_that_user_only(program, token, ada, bob, open_browser, faults):
    bobs_browser = open_browser()
    bobs_browser.sign_in("Bob")
    bobs_token = program.token_for(bobs_browser.allow(program))
    faults.damage_user(ada.id, "only an id")
    answer = program.whois(token)
    assert answer.status_code == 503
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert int(answer.headers["Retry-After"]) > 0
    assert program.whois(bobs_token).json["name"] == "Bob"


# -- keys -----------------------------------------------------------------------------------------


def test_older_key_verifies_and_the_newest_signs(app, store, faults, program, token, ada):
    with app.app_context():
        signed_before = serializer("access token").loads(token)
    faults.replace_keys(*store.keys.current(), b"a-new-key-of-some-length")
    assert program.whois(token).status_code == 200
    with app.app_context():
        signed_now = serializer("access token").dumps(signed_before)
    faults.replace_keys(store.keys.current()[-1])
    assert program.whois(signed_now).status_code == 200
    assert refusal(program.whois(token)) == (401, INVALID_TOKEN)


def test_sessions_and_consent_pages_stay_valid_after_a_rotation(
    store, faults, adas_browser, program
):
    page = adas_browser.get(program.link())
    faults.replace_keys(*store.keys.current(), b"a-new-key-of-some-length")
    assert "code" in program.read_callback(adas_browser.decide(page))
    faults.replace_keys(store.keys.current()[-1])
    assert adas_browser.get(program.link()).location.startswith("/sign-in")
