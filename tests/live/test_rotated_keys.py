"""`identity-server rotate-key` during a run of a server with two workers."""

from urllib.parse import urlencode

import pytest
import requests

from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, RunningServer, ask_each_worker

pytestmark = pytest.mark.live


def test_rotated_keys_count_in_every_worker_at_once(
    server: RunningServer, adas_form_browser: FormBrowser, client: dict
):
    """The previous signatures are valid until the old key is dropped."""
    query = {"response_type": "code", "client_id": client["client_id"], "redirect_uri": CALLBACK}
    authorize = f"/oauth/authorize?{urlencode(query)}"

    def sign() -> tuple[str, dict]:
        """Return an access token and session cookies, signed with the newest key."""
        code = adas_form_browser.allow(authorize, "ada").answer["code"]
        answer = server.exchange_code(code, client["client_id"], client["client_secret"])
        return answer.json()["access_token"], adas_form_browser.session.cookies.get_dict()

    def statuses(token: str, cookies: dict) -> tuple[list[int], list[int]]:
        """Return the status of whois and of the account page in each worker."""
        account = f"{server.address}/account"
        options = {"cookies": cookies, "allow_redirects": False, "timeout": ANSWER_TIMEOUT}
        return (
            ask_each_worker(server, lambda: server.whois(token).status_code),
            ask_each_worker(server, lambda: requests.get(account, **options).status_code),
        )

    signed = sign()
    assert statuses(*signed) == ([200] * 2, [200] * 2)
    server.command_output("rotate-key")
    assert statuses(*signed) == ([200] * 2, [200] * 2)
    server.command_output("rotate-key", "--drop-old")
    assert statuses(*signed) == ([401] * 2, [303] * 2)
    assert statuses(*sign()) == ([200] * 2, [200] * 2)
