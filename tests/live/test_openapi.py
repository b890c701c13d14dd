"""The running server conforms to /openapi.json."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest
import requests

from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, RunningServer

pytestmark = pytest.mark.live
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
# `positive_data_acceptance` is left out: the schema cannot tell which codes are valid.
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_headers_conformance", "response_schema_conformance"),
    *("unsupported_method", "allow_header_conformance"),
)


@pytest.fixture
def token(
    form_browser: FormBrowser, server: RunningServer, client: dict, ada: dict
) -> requests.Response:
    """The token response for a valid code."""
    query = {"response_type": "code", "client_id": client["client_id"], "scope": "email"}
    code = form_browser.allow(f"/oauth/authorize?{urlencode(query)}", "ada").answer["code"]
    form = {"grant_type": "authorization_code", "code": code}
    form |= {each: client[each] for each in ("client_id", "client_secret")}
    return form_browser.session.post(
        f"{server.address}/api/oauth/token", form, timeout=ANSWER_TIMEOUT
    )


@pytest.mark.openapi
@pytest.mark.parametrize("signed_in", [False, True])
def test_schemathesis_gets_documented_responses_only(
    server: RunningServer, form_browser: FormBrowser, token, signed_in: bool, tmp_path: Path
):
    """Without credentials, and with a valid access token and session."""
    options = ["--max-examples=40", "--generation-deterministic", f"--checks={','.join(CHECKS)}"]
    options.append(f"--request-timeout={ANSWER_TIMEOUT}")
    if signed_in:
        options.append(f"--header=Authorization: Bearer {token.json()['access_token']}")
        options.append(f"--header=Cookie: session={form_browser.session.cookies['session']}")
    done = subprocess.run(
        [SCHEMATHESIS, "run", *options, f"{server.address}/openapi.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tested: 6" in done.stdout
    assert ("Authentication failed" in done.stdout) != signed_in


@pytest.mark.openapi
def test_successful_responses_match_the_schema(
    server: RunningServer, form_browser: FormBrowser, token, ada: dict
):
    import schemathesis

    def get(path: str, **headers: str) -> requests.Response:
        return form_browser.session.get(f"{server.address}{path}", headers=headers)

    api = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    bearer = f"Bearer {token.json()['access_token']}"
    answers = {
        ("/api/oauth/token", "POST"): token,
        ("/api/oauth/whois", "GET"): get("/api/oauth/whois", Authorization=bearer),
        ("/api/users/info", "GET"): get(f"/api/users/info?id={ada['id']}"),
        ("/api/users/batch", "GET"): get(f"/api/users/batch?ids=99,{ada['id']}"),
        ("/api/users/heartbeat", "POST"): form_browser.session.post(
            f"{server.address}/api/users/heartbeat"
        ),
        ("/pfp/{size}/{file}", "GET"): get(f"/pfp/small/{ada['id']}-{ada['pfpTimestamp']}.webp"),
    }
    assert len(api) == len(answers)
    for (path, method), answer in answers.items():
        assert answer.status_code == 200
        api[path][method].validate_response(answer)
