"""What the four API calls have in common: headers, methods, CORS, damaged records and odd bytes."""

from collections.abc import Callable

import pytest
from forms import signed_in

TOKEN, WHOIS = "/api/oauth/token", "/api/oauth/whois"
INFO, BATCH = "/api/users/info", "/api/users/batch"
LOOK_UPS = (WHOIS, INFO, BATCH)  # pages of any origin may call them, and read the errors
METHODS = {TOKEN: {"POST", "OPTIONS"}} | dict.fromkeys(LOOK_UPS, {"GET", "HEAD", "OPTIONS"})
ANY_ORIGIN = "Access-Control-Allow-Origin"


@pytest.fixture
def issue_requests(program, open_browser) -> Callable:
    """A function that returns a valid request to each API call about a player, by its path."""

    def issue_requests(user) -> dict[str, dict]:
        browser = signed_in(open_browser(), user.name)
        token = program.token_for(browser.allow(program))
        form = {"grant_type": "authorization_code", "code": browser.allow(program)}
        form |= {"client_id": program.id, "client_secret": program.secret}
        return {
            TOKEN: {"method": "POST", "data": form},
            WHOIS: {"headers": {"Authorization": f"Bearer {token}"}},
            INFO: {"query_string": f"id={user.id}"},
            BATCH: {"query_string": f"ids={user.id}"},
        }

    return issue_requests


@pytest.fixture
def requests(issue_requests, ada) -> dict[str, dict]:
    """A valid request to each API call about Ada, by its path."""
    return issue_requests(ada)


def test_response_is_json_and_ignores_the_session(anyone, adas_browser, requests):
    for path, request in requests.items():
        answer = anyone.open(path, **request)
        assert (answer.status_code, answer.content_type) == (200, "application/json")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert not {"Set-Cookie", "Vary"} & set(answer.headers.keys())
        is_private = path in (TOKEN, WHOIS)
        assert (answer.headers.get("Cache-Control") == "no-store") == is_private
        if path in LOOK_UPS:
            signed_in, head = adas_browser.open(path, **request), anyone.head(path, **request)
            assert (signed_in.data, head.data) == (answer.data, b"")
            assert sorted(signed_in.headers) == sorted(head.headers) == sorted(answer.headers)


def test_other_method_is_405_with_allow(anyone, requests, subtests):
    for path, allowed in METHODS.items():
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - allowed:
            with subtests.test(f"{method} {path}"):
                answer = anyone.open(path, **requests[path] | {"method": method})
                assert answer.status_code == 405
                assert set(answer.headers["Allow"].split(", ")) == allowed
                assert (ANY_ORIGIN in answer.headers) == (path in LOOK_UPS)


def test_look_ups_are_readable_from_any_origin(anyone, requests):
    """Errors too. test_public_clients.py has the token endpoint."""
    game = {"Origin": "https://game.example", "Sec-Fetch-Site": "cross-site"}
    for path in LOOK_UPS:
        for request, is_valid in ((requests[path], True), ({}, False)):
            headers = request.get("headers", {}) | game
            answer = anyone.get(path, **request | {"headers": headers})
            assert (answer.status_code == 200, answer.headers[ANY_ORIGIN]) == (is_valid, "*")
            assert "Access-Control-Allow-Credentials" not in answer.headers


def test_preflight_allows_the_method_and_one_header(anyone):
    """A page cannot send credentials to the token endpoint by HTTP Basic."""
    allowed = {TOKEN: ("POST", "Content-Type")}
    allowed |= dict.fromkeys(LOOK_UPS, ("GET, HEAD", "Authorization"))
    for path, (methods, header) in allowed.items():
        method = methods.partition(",")[0]
        answer = anyone.preflight(path, method, "authorization, content-type")
        assert (answer.status_code, answer.headers[ANY_ORIGIN]) == (204, "*")
        assert answer.headers["Access-Control-Allow-Methods"] == methods
        assert answer.headers["Access-Control-Allow-Headers"] == header
        assert "Access-Control-Allow-Credentials" not in answer.headers


def test_damaged_user_is_503_for_that_user_only(
    anyone, issue_requests, program, ada, bob, faults, tmp_path, subtests
):
    """A batch leaves the player out. A client that is damaged gets no token."""
    adas_requests, bobs_requests = issue_requests(ada), issue_requests(bob)
    adas_requests[BATCH] = {"query_string": f"ids={ada.id},{bob.id}"}
    for damage in faults.DAMAGES:
        faults.damage_user(ada.id, damage)
        for path in (TOKEN, WHOIS, INFO):
            with subtests.test(path, damage=damage):
                answer = anyone.open(path, **adas_requests[path])
                assert (answer.status_code, int(answer.headers["Retry-After"]) > 0) == (503, True)
                assert (ANY_ORIGIN in answer.headers) == (path in LOOK_UPS)
                assert str(tmp_path) not in answer.text
        with subtests.test(BATCH, damage=damage):
            users = anyone.open(BATCH, **adas_requests[BATCH]).json["users"]
            assert [each["id"] for each in users] == [bob.id]
    for path, request in bobs_requests.items():
        assert anyone.open(path, **request).status_code == 200
    faults.repair_user(ada.id)
    faults.damage_client(program.id, "incomplete")
    assert anyone.open(TOKEN, **adas_requests[TOKEN]).status_code == 503


def test_odd_bytes_are_no_error_of_the_server(anyone, requests, subtests):
    """test_fuzz.py sends random bytes."""
    for path, request in requests.items():
        for odd in ("%FF", "%ED%A0%80", "%00", "\xff", "é", "&&=&=x;", "%", "+", "x" * 20_000):
            with subtests.test(path, odd=odd[:9]):
                query, header = {"query_string": odd}, {"headers": {"Authorization": odd}}
                body = {"data": odd.encode("latin-1")}
                for change in (query, header, body):
                    answer = anyone.open(path, **request | change)
                    assert answer.status_code in (200, 400, 401, 413)
                if path == TOKEN:
                    assert answer.status_code == (413 if len(odd) > 16_384 else 400)
