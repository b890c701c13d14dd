"""What the running server writes down of a whole grant."""

import re
import secrets
import socket
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from waiting import wait_until

from .conftest import CALLBACK
from .person import Person
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer

pytestmark = pytest.mark.live
# Address, time, request, status, bytes, seconds.
ACCESS_LINE = re.compile(r'127\.0\.0\.1 - - \[[^]]+\] "[A-Z]+ \S+ HTTP/1\.1" \d{3} \d+ \d+\.\d{6}')


def test_a_whole_grant_logs_one_line_a_request_and_no_secret(
    server: RunningServer, person: Person, ada: dict
):
    client = server.add_client("Logged Game", CALLBACK)
    credentials = {each: client[each] for each in ("client_id", "client_secret")}
    state = secrets.token_urlsafe(16)
    lines_before = len(lines_of(server.access_log))
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
    lines = wait_for_lines(server.access_log, lines_before + requests_sent, "/the-last")[
        lines_before:
    ]
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


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines()


def wait_for_lines(log: Path, number: int, last: str) -> list[str]:
    """A request's line is written after its answer. One too many comes before that of the last."""
    wait_until(lambda: len(lines_of(log)) >= number and any(last in each for each in lines_of(log)))
    return lines_of(log)


def send_raw(address: str, text: str) -> str:
    """All that the server says to this text, after which it ends the connection."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT) as connection:
        connection.sendall(text.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
