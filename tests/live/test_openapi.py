"""The running server conforms to /openapi.json."""

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import requests

from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, RunningServer, running_server
from .shared import start_once

pytestmark = pytest.mark.live
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
# `positive_data_acceptance` is left out: the schema cannot tell which codes are valid.
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_headers_conformance", "response_schema_conformance"),
    *("unsupported_method", "allow_header_conformance"),
)


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A running server with OpenID Connect."""
    start = functools.partial(running_server, OPENID="on")
    server = start_once(request.config, "OpenID server", start)
    yield server
    server.empty()


@pytest.fixture
def exchange(
    form_browser: FormBrowser, server: RunningServer, client: dict, ada: dict
) -> Callable[[str], requests.Response]:
    """A function that returns the response of a token endpoint for a valid code."""

    def exchange(path: str) -> requests.Response:
        scope = "openid profile email groups phone join offline_access"
        query = {"response_type": "code", "client_id": client["client_id"], "scope": scope}
        code = form_browser.allow(f"/oauth/authorize?{urlencode(query)}", "ada").answer["code"]
        form = {"grant_type": "authorization_code", "code": code}
        form |= {each: client[each] for each in ("client_id", "client_secret")}
        post = form_browser.session.post
        return post(f"{server.address}{path}", form, timeout=ANSWER_TIMEOUT)

    return exchange


@pytest.mark.openapi
@pytest.mark.parametrize("signed_in", [pytest.param(False, marks=pytest.mark.slow), True])
def test_schemathesis_gets_documented_responses_only(
    server: RunningServer, form_browser: FormBrowser, exchange, signed_in: bool, tmp_path: Path
):
    """Without credentials, and with a valid access token and session."""
    options = ["--max-examples=40", "--generation-deterministic", f"--checks={','.join(CHECKS)}"]
    options.append(f"--request-timeout={ANSWER_TIMEOUT}")
    if signed_in:
        token = exchange("/oauth/token").json()["access_token"]
        options.append(f"--header=Authorization: Bearer {token}")
        options.append(
            f"--header=Cookie: identity_session={form_browser.session.cookies['identity_session']}"
        )
    done = subprocess.run(
        [SCHEMATHESIS, "run", *options, f"{server.address}/openapi.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tested: 17" in done.stdout
    assert ("Authentication failed" in done.stdout) != signed_in


@pytest.mark.openapi
def test_successful_responses_match_the_schema(
    server: RunningServer, form_browser: FormBrowser, exchange, client: dict, ada: dict
):
    import schemathesis

    def get(path: str, **headers: str) -> requests.Response:
        options = {"headers": headers, "allow_redirects": False}
        return form_browser.session.get(f"{server.address}{path}", **options)

    api = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    token, standard = (exchange(path) for path in ("/api/oauth/token", "/oauth/token"))
    assert {"scope", "id_token", "refresh_token"} <= standard.json().keys()
    bearer = f"Bearer {token.json()['access_token']}"
    whois = f"/api/oauth/whois?client_id={client['client_id']}"
    post, tickets = form_browser.session.post, f"{server.address}/api/tickets"
    ticket = post(tickets, {"server": "a:1"}, headers={"Authorization": bearer})
    checked = {"ticket": ticket.json()["ticket"], "server": "a:1"}
    device = server.add_client("Console", public=True, device=True)
    form = {"client_id": device["client_id"]}
    asked = {each: client[each] for each in ("client_id", "client_secret")}
    asked["token"] = standard.json()["refresh_token"]
    started = requests.post(f"{server.address}/oauth/device", form, timeout=ANSWER_TIMEOUT)
    answers = {
        ("/api/tickets", "POST"): ticket,
        ("/api/tickets/check", "POST"): post(f"{tickets}/check", checked),
        ("/api/oauth/token", "POST"): token,
        ("/api/oauth/whois", "GET"): get(whois, Authorization=bearer),
        ("/oauth/token", "POST"): standard,
        ("/oauth/introspect", "POST"): post(f"{server.address}/oauth/introspect", asked),
        ("/oauth/device", "POST"): started,
        ("/oauth/device/qr", "GET"): get(
            f"/oauth/device/qr?user_code={started.json()['user_code']}"
        ),
        ("/oauth/userinfo", "GET"): get("/oauth/userinfo", Authorization=bearer),
        ("/oauth/userinfo", "POST"): form_browser.session.post(
            f"{server.address}/oauth/userinfo", {"access_token": token.json()["access_token"]}
        ),
        ("/oauth/keys", "GET"): get("/oauth/keys"),
        ("/users/{id}/picture", "GET"): get(f"/users/{ada['id']}/picture"),
        ("/api/users/info", "GET"): get(f"/api/users/info?id={ada['id']}"),
        ("/api/users/batch", "GET"): get(f"/api/users/batch?ids=99,{ada['id']}"),
        ("/api/users/heartbeat", "POST"): form_browser.session.post(
            f"{server.address}/api/users/heartbeat"
        ),
        ("/pfp/{size}/{file}", "GET"): get(f"/pfp/small/{ada['id']}-{ada['pfpTimestamp']}.webp"),
        # The last, because it ends the access tokens.
        ("/oauth/revoke", "POST"): post(f"{server.address}/oauth/revoke", asked),
    }
    assert len(api) == len(answers)
    for (path, method), answer in answers.items():
        assert answer.status_code == 200, path
        api[path][method].validate_response(answer)
