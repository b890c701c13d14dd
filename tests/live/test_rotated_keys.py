"""`identity-server rotate-key` beside a running server with two workers."""

from collections.abc import Callable
from urllib.parse import urlencode

import pytest
import requests

from .conftest import CALLBACK
from .person import Person
from .running import ANSWER_TIMEOUT, RunningServer, stopped

pytestmark = pytest.mark.live


def in_each_worker(server: RunningServer, ask: Callable[[], int]) -> list[int]:
    """The status that `ask` gets where only the first worker runs, and where only the second."""
    answers = []
    for worker in server.workers():
        with stopped(worker):
            answers.append(ask())
    assert len(answers) == 2
    return answers


class Player:
    """Ada's browser, and a client that she allowed to know who she is."""

    def __init__(self, server: RunningServer, person: Person, client: dict) -> None:
        self.server, self.person = server, person
        asked = {
            "response_type": "code",
            "client_id": client["client_id"],
            "redirect_uri": CALLBACK,
        }
        code = person.allow(f"/oauth/authorize?{urlencode(asked)}", "ada").answer["code"]
        exchange = {"grant_type": "authorization_code", "code": code}
        exchange |= {each: client[each] for each in ("client_id", "client_secret")}
        answer = requests.post(
            f"{server.address}/api/oauth/token", exchange, timeout=ANSWER_TIMEOUT
        )
        self.token = answer.json()["access_token"]

    def whois(self) -> int:
        """The status with which the client is told who she is, on a connection of its own."""
        answer = requests.get(
            f"{self.server.address}/api/oauth/whois",
            headers={"Authorization": f"Bearer {self.token}", "Connection": "close"},
            timeout=ANSWER_TIMEOUT,
        )
        return answer.status_code

    def account(self) -> int:
        """The status of her account page; a redirect leads to where she signs in."""
        answer = requests.get(
            f"{self.server.address}/account",
            headers={"Connection": "close"},
            cookies=self.person.browser.cookies.get_dict(),
            allow_redirects=False,
            timeout=ANSWER_TIMEOUT,
        )
        return answer.status_code


@pytest.fixture
def player(server: RunningServer, adas_person: Person, client: dict) -> Player:
    return Player(server, adas_person, client)


def test_what_the_key_before_signed_goes_on_in_every_worker(server: RunningServer, player: Player):
    server.printed("rotate-key")
    assert in_each_worker(server, player.whois) == [200, 200]
    assert in_each_worker(server, player.account) == [200, 200]


def test_what_was_signed_before_the_old_keys_were_dropped_has_ended_in_every_worker(
    server: RunningServer, player: Player, client: dict
):
    assert in_each_worker(server, player.whois) == [200, 200]
    assert in_each_worker(server, player.account) == [200, 200]
    server.printed("rotate-key", "--drop-old")
    assert in_each_worker(server, player.whois) == [401, 401]
    assert in_each_worker(server, player.account) == [303, 303]
    again = Player(server, Person(server.address), client)
    assert in_each_worker(server, again.whois) == [200, 200]
    assert in_each_worker(server, again.account) == [200, 200]
    again.person.close()
