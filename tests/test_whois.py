"""GET /api/oauth/whois: the user of an access token (RFC 6750)."""

import pytest
from forms import edit

from identity.http.signing import serializer
from model.records import Suspension

INVALID_TOKEN = 'Bearer error="invalid_token"'
INVALID_REQUEST = 'Bearer error="invalid_request"'


@pytest.fixture
def token(adas_browser, program) -> str:
    """A valid access token of Ada's without the email scope."""
    return program.token_for(adas_browser.allow(program))


def request_whois(program, header: str, query: str = ""):
    return program.http.get(f"/api/oauth/whois{query}", headers={"Authorization": header})


def refusal(answer) -> tuple[int, str | None]:
    """Return the status and the challenge; check the header common to all refusals."""
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.status_code, answer.headers.get("WWW-Authenticate")


def test_response_has_id_name_and_pfp_timestamp_only(store, program, token, ada):
    for scheme in ("Bearer", "bearer", "BEARER", "bEaReR", "Bearer "):
        answer = request_whois(program, f"{scheme} {token}")
        assert answer.status_code == 200
        assert answer.json == {"id": ada.id, "name": "Ada", "pfpTimestamp": ada.pfp_timestamp}
    edit(store.users, ada.id, pfp_timestamp=None)  # an imported account
    assert program.whois(token).json == {"id": ada.id, "name": "Ada"}


def test_email_scope_adds_the_current_email(store, program, adas_browser, ada):
    """RFC 9700 2.3: the scope of the code counts, not that of the grant."""
    token = program.token_for(adas_browser.allow(program, scope="userinfo email"))
    answer = program.whois(token).json
    assert sorted(answer) == ["email", "id", "name", "pfpTimestamp"]
    assert answer["email"] == "ada@example.org"
    assert "email" not in program.whois(program.token_for(adas_browser.allow(program))).json
    store.users.rename(ada.id, "Lovelace")
    store.users.change_email(ada.id, "lovelace@example.org")
    answer = program.whois(token).json
    assert (answer["name"], answer["email"]) == ("Lovelace", "lovelace@example.org")


def test_player_without_email_gives_none_and_is_told(store, program, adas_browser, ada):
    store.users.change_email(ada.id, "")
    told = "You have no email here, so it gets none"
    assert told in adas_browser.get(program.link(scope="email")).text
    assert told not in adas_browser.get(program.link()).text
    token = program.token_for(adas_browser.allow(program, scope="email"))
    assert sorted(program.whois(token).json) == ["id", "name", "pfpTimestamp"]
    header = {"Authorization": f"Bearer {token}"}
    claims = program.http.get("/oauth/userinfo", headers=header).json
    assert claims["id"] == ada.id
    assert not {"email", "email_verified"} & claims.keys()


def test_missing_header_is_401_and_a_malformed_400(program, token, subtests):
    assert refusal(program.http.get("/api/oauth/whois")) == (401, "Bearer")
    for header in ("", "Basic YTpi", "Digest x", token, f"Token {token}"):
        with subtests.test(header):
            assert refusal(request_whois(program, header)) == (401, "Bearer")
    for header in (
        *("Bearer", "Bearer ", "Bearer  ", "Bearer =", 'Bearer "{token}"', "Bearer é{token}"),
        *("Bearer {token}é", "Bearer {token} x", "Bearer {token},", "Bearer {token}=x"),
        *("Bearer {token}\t", "Bearer {token}%", "Bearer {token}\x80"),
        "Bearer {token}, Bearer {token}",
    ):
        with subtests.test(header):
            answer = request_whois(program, header.format(token=token))
            assert refusal(answer) == (400, INVALID_REQUEST)


def test_token_in_the_query_is_ignored_or_400_beside_a_header(program, anyone, token):
    """RFC 9700 4.3.2. The same in a form or a cookie."""
    for request in (
        {"query_string": {"access_token": token}},
        {"data": {"access_token": token}},
        {"headers": {"Cookie": f"access_token={token}"}},
    ):
        assert refusal(anyone.get("/api/oauth/whois", **request)) == (401, "Bearer")
    for query in (f"?access_token={token}", "?access_token=", "?a=1&access_token=x"):
        assert refusal(request_whois(program, f"Bearer {token}", query)) == (400, INVALID_REQUEST)


def test_token_older_than_600_seconds_is_401(clock, program, token):
    """RFC 9700 4.10."""
    clock.shift(600)
    assert program.whois(token).status_code == 200
    clock.shift(1)
    assert refusal(program.whois(token)) == (401, INVALID_TOKEN)


def test_token_stays_revoked_after_new_consent(store, program, token, ada, adas_browser):
    edit(store.users, ada.id, grants={})
    assert refusal(program.whois(token)) == (401, INVALID_TOKEN)
    new_token = program.token_for(adas_browser.allow(program))
    assert refusal(program.whois(token)) == (401, INVALID_TOKEN)
    assert program.whois(new_token).status_code == 200


def test_token_stays_valid_after_other_consents(store, program, token, ada, adas_browser, register):
    """The player consents to more scopes, and withdraws the consent to another client."""
    adas_browser.allow(program, scope="email")
    adas_browser.allow(other := register("https://other.example/"))
    with store.users.edit(ada.id) as user:
        del user.grants[other.id]
    answer = program.whois(token)
    assert (answer.status_code, "email" in answer.json) == (200, False)
    edit(store.clients, program.id, disabled=True)
    assert program.whois(token).status_code == 200
    store.clients.delete(program.id)
    assert program.whois(token).status_code == 200


def test_token_of_a_suspended_or_deleted_user_is_401(store, program, token, ada):
    edit(store.users, ada.id, suspension=Suspension("command"))
    suspended = program.whois(token)
    store.users.delete(ada.id)
    deleted = program.whois(token)
    assert refusal(suspended) == refusal(deleted) == (401, INVALID_TOKEN)
    assert deleted.data == suspended.data


def test_older_key_verifies_and_the_newest_signs(app, store, faults, program, token, adas_browser):
    """Sessions and consent pages stay valid after a rotation, too."""
    page = adas_browser.get(program.link(prompt="consent"))
    with app.app_context():
        signed_before = serializer("access token").loads(token)
    faults.replace_keys(*store.keys.current(), b"a-new-key-of-some-length")
    assert program.whois(token).status_code == 200
    assert "code" in program.read_callback(adas_browser.decide(page))
    with app.app_context():
        signed_now = serializer("access token").dumps(signed_before)
    faults.replace_keys(store.keys.current()[-1])
    assert program.whois(signed_now).status_code == 200
    assert refusal(program.whois(token)) == (401, INVALID_TOKEN)
    assert adas_browser.get(program.link()).location.startswith("/sign-in")
