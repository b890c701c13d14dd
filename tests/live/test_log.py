"""The running server's logs."""

import re
import secrets
import socket
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from waiting import wait_until

from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, PASSWORD, RunningServer

pytestmark = pytest.mark.live
OWN_ADDRESS = "127.0.0.2"  # for this module alone: late log lines of other tests do not count
# Address, time, request, status, bytes, seconds.
ACCESS_LINE = re.compile(r'127\.0\.0\.2 - - \[[^]]+\] "[A-Z]+ \S+ HTTP/1\.1" \d{3} \d+ \d+\.\d{6}')


@pytest.fixture(scope="module")
def server(each_server: RunningServer) -> RunningServer:
    """A server of each kind."""
    return each_server


@pytest.fixture
def form_browser(server: RunningServer) -> Iterator[FormBrowser]:
    """A form browser that is signed out, at an address of its own."""
    form_browser = FormBrowser(server.address, OWN_ADDRESS)
    yield form_browser
    form_browser.close()


def test_grant_logs_one_line_per_request_and_no_secret(
    server: RunningServer, form_browser: FormBrowser, ada: dict
):
    client = server.add_client("Logged Game", CALLBACK)
    credentials = {each: client[each] for each in ("client_id", "client_secret")}
    state = secrets.token_urlsafe(16)
    query = {"response_type": "code", "client_id": client["client_id"], "state": state}
    sign_in = form_browser.open(f"/oauth/authorize?{urlencode(query)}")
    form_browser.press(sign_in, "Sign in", name="ada", password=f"{PASSWORD}, mistyped")
    consent = form_browser.press(sign_in, "Sign in", name="ada", password=PASSWORD)
    signed_request = consent.form_with("Allow").fields["request"]
    arrived = form_browser.press(consent, "Allow")
    form = {"grant_type": "authorization_code", "code": arrived.answer["code"], **credentials}
    token_url = f"{server.address}/api/oauth/token"
    # A faulty client may send the parameters in the query string.
    form_browser.session.post(f"{token_url}?{urlencode(form)}", timeout=ANSWER_TIMEOUT)
    got = form_browser.session.post(token_url, form, timeout=ANSWER_TIMEOUT).json()
    whois_url = f"{server.address}/api/oauth/whois"
    bearer = {"Authorization": f"Bearer {got['access_token']}"}
    for address, headers in ((whois_url, bearer), (f"{whois_url}?{urlencode(got)}", {})):
        form_browser.session.get(address, headers=headers, timeout=ANSWER_TIMEOUT)
    # Another may send the token in the path.
    form_browser.session.get(f"{whois_url}/{got['access_token']}", timeout=ANSWER_TIMEOUT)
    form_browser.session.get(f"{server.address}/the-last", timeout=ANSWER_TIMEOUT)

    def own_lines() -> list[str]:
        lines = server.access_log.read_text().splitlines()
        return [each for each in lines if each.startswith(f"{OWN_ADDRESS} - - ")]

    # A line is written after its response. A surplus line would come before the last one.
    wait_until(lambda: len(own_lines()) >= 12 and "/the-last" in "".join(own_lines()))
    lines = own_lines()
    assert len(lines) == 12
    assert [line for line in lines if not ACCESS_LINE.fullmatch(line)] == []
    written = server.access_log.read_text() + server.error_log.read_text()
    secrets_used = [
        *(state, signed_request, PASSWORD, f"{PASSWORD}, mistyped", client["client_secret"]),
        *(form["code"], got["access_token"], form_browser.session.cookies["identity_session"]),
    ]
    for secret in secrets_used:
        assert secret not in written
        assert quote(secret) not in written
        assert secret[:12] not in written


def test_invalid_http_is_not_quoted_in_the_log(server: RunningServer):
    """The parser's error message must not repeat a code or a token.

    granian logs nothing of what its parser refuses; the last request is not malformed to it.
    """
    secret = secrets.token_urlsafe(32)
    log, line, count = {
        "gunicorn": (server.error_log, "Invalid request", 3),
        "granian": (server.access_log, '"GET /... HTTP/1.1" 414 ', 1),
    }[server.kind]
    before = log.read_text().count(line)
    for start in (f"GET /callback?code={secret}", f"Authorization: Bearer {secret}"):
        send_raw(server.address, f"{start}\r\n\r\n")
    send_raw(server.address, f"GET /{secret}{'a' * 9000} HTTP/1.1\r\n\r\n")
    wait_until(lambda: log.read_text().count(line) == before + count)
    assert secret not in server.access_log.read_text() + server.error_log.read_text()


def send_raw(address: str, text: str) -> str:
    """Send this text, and return the response after which the server closes the connection."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT) as connection:
        connection.sendall(text.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode("latin-1")
