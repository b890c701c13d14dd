"""`identity-server rotate-key` during a run of a server with two workers."""

from urllib.parse import urlencode

import pytest
import requests

from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, RunningServer, ask_each_worker

pytestmark = pytest.mark.live


class SignedInUser:
    """A browser of Ada's, and an access token that a client got for her."""

    def __init__(self, server: RunningServer, form_browser: FormBrowser, client: dict) -> None:
        self.server, self.form_browser = server, form_browser
        query = {
            "response_type": "code",
            "client_id": client["client_id"],
            "redirect_uri": CALLBACK,
        }
        code = form_browser.allow(f"/oauth/authorize?{urlencode(query)}", "ada").answer["code"]
        answer = server.exchange_code(code, client["client_id"], client["client_secret"])
        self.token = answer.json()["access_token"]

    def whois(self) -> int:
        """Return the status of whois, requested over a new connection."""
        return self.server.whois(self.token).status_code

    def account(self) -> int:
        """Return the status of the account page over a new connection: 303 if signed out."""
        answer = requests.get(
            f"{self.server.address}/account",
            cookies=self.form_browser.session.cookies.get_dict(),
            allow_redirects=False,
            timeout=ANSWER_TIMEOUT,
        )
        return answer.status_code


def test_rotated_keys_count_in_every_worker_at_once(
    server: RunningServer, adas_form_browser: FormBrowser, client: dict
):
    """The previous signatures are valid until the old key is dropped."""
    user = SignedInUser(server, adas_form_browser, client)
    for option, whois, account in (([], 200, 200), (["--drop-old"], 401, 303)):
        assert ask_each_worker(server, user.whois) == [200, 200]
        assert ask_each_worker(server, user.account) == [200, 200]
        server.command_output("rotate-key", *option)
        assert ask_each_worker(server, user.whois) == [whois] * 2
        assert ask_each_worker(server, user.account) == [account] * 2
    again = SignedInUser(server, FormBrowser(server.address), client)
    assert ask_each_worker(server, again.whois) == [200, 200]
    assert ask_each_worker(server, again.account) == [200, 200]
    again.form_browser.close()
