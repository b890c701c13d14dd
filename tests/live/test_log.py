"""What the running server writes down of a whole grant."""

import re
import secrets
import socket
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from waiting import wait_until

from .conftest import CALLBACK
from .person import Person
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer

pytestmark = pytest.mark.live
OWN_ADDRESS = "127.0.0.2"  # nobody else's: a late line of another test is told from this one's
# Address, time, request, status, bytes, seconds.
ACCESS_LINE = re.compile(r'127\.0\.0\.2 - - \[[^]]+\] "[A-Z]+ \S+ HTTP/1\.1" \d{3} \d+ \d+\.\d{6}')


@pytest.fixture
def person(server: RunningServer) -> Iterator[Person]:
    """Somebody who is not signed in."""
    person = Person(server.address, OWN_ADDRESS)
    yield person
    person.close()


def test_a_whole_grant_logs_one_line_a_request_and_no_secret(
    server: RunningServer, person: Person, ada: dict
):
    client = server.add_client("Logged Game", CALLBACK)
    credentials = {each: client[each] for each in ("client_id", "client_secret")}
    state = secrets.token_urlsafe(16)
    requests_sent = 0

    def count_request(*_: object, **__: object) -> None:
        nonlocal requests_sent
        requests_sent += 1

    person.browser.hooks["response"].append(count_request)
    asked = {"response_type": "code", "client_id": client["client_id"], "state": state}
    sign_in = person.open(f"/oauth/authorize?{urlencode(asked)}")
    person.press(sign_in, "Sign in", name="ada", password=f"{PASSWORD}, mistyped")
    consent = person.press(sign_in, "Sign in", name="ada", password=PASSWORD)
    signed_request = consent.form_with("Allow").fields["request"]
    arrived = person.press(consent, "Allow")
    form = {"grant_type": "authorization_code", "code": arrived.answer["code"], **credentials}
    token_url = f"{server.address}/api/oauth/token"
    # A client that gets it wrong: the query string may hold all that should be in the body.
    person.browser.post(f"{token_url}?{urlencode(form)}", timeout=ANSWER_TIMEOUT)
    got = person.browser.post(token_url, form, timeout=ANSWER_TIMEOUT).json()
    whois_url = f"{server.address}/api/oauth/whois"
    bearer = {"Authorization": f"Bearer {got['access_token']}"}
    for address, headers in ((whois_url, bearer), (f"{whois_url}?{urlencode(got)}", {})):
        person.browser.get(address, headers=headers, timeout=ANSWER_TIMEOUT)
    # And one that gets the address wrong.
    person.browser.get(f"{whois_url}/{got['access_token']}", timeout=ANSWER_TIMEOUT)

    assert requests_sent == 11
    person.browser.get(f"{server.address}/the-last", timeout=ANSWER_TIMEOUT)

    def own_lines() -> list[str]:
        lines = server.access_log.read_text().splitlines()
        return [each for each in lines if each.startswith(f"{OWN_ADDRESS} - - ")]

    # A request's line is written after its answer. One too many comes before that of the last.
    wait_until(lambda: len(own_lines()) >= requests_sent and "/the-last" in "".join(own_lines()))
    lines = own_lines()
    assert len(lines) == requests_sent == 12
    assert [line for line in lines if not ACCESS_LINE.fullmatch(line)] == []
    written = server.access_log.read_text() + server.error_log.read_text()
    kept_secret = [
        *(state, signed_request, PASSWORD, f"{PASSWORD}, mistyped", client["client_secret"]),
        *(form["code"], got["access_token"], person.browser.cookies["session"]),
    ]
    for secret in kept_secret:
        assert secret not in written
        assert quote(secret) not in written
        assert secret[:12] not in written


def test_what_is_no_http_is_not_quoted_in_the_log(server: RunningServer):
    """Where the parser gives up, its complaint must not repeat a code or a token."""
    secret = secrets.token_urlsafe(32)
    complaints = server.error_log.read_text().count("Invalid request")
    for line in (f"GET /callback?code={secret}", f"Authorization: Bearer {secret}"):
        send_raw(server.address, f"{line}\r\n\r\n")
    send_raw(server.address, f"GET /{secret}{'a' * 9000} HTTP/1.1\r\n\r\n")
    wait_until(lambda: server.error_log.read_text().count("Invalid request") == complaints + 3)
    assert secret not in server.access_log.read_text() + server.error_log.read_text()


def send_raw(address: str, text: str) -> str:
    """All that the server says to this text, after which it ends the connection."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT) as connection:
        connection.sendall(text.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode("latin-1")
