"""What changes counts at the next request in every worker: records and keys."""

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlencode

import pytest
import requests
from waiting import wait_until

from identity.oauth.claims import public_profile
from identity.oauth.grants import issue_access_token
from images.pictures import generate_picture
from model.grant_records import AuthorizationCode
from model.records import Grant, Suspension, now_ms
from storage import Storage
from storage.flat_files.disk import YOUNGEST_CACHED

from .conftest import CALLBACK
from .form_browser import FormBrowser
from .running import ANSWER_TIMEOUT, RunningServer, ask_each_worker

pytestmark = pytest.mark.live


class Player:
    """A player with a token, and what the workers tell of both."""

    def __init__(self, server: RunningServer, client_id: str) -> None:
        self.server, self.store = server, server.open_storage()
        self.id = server.add_user(f"pat-{secrets.token_hex(4)}")["id"]
        grant = Grant(secrets.token_urlsafe(12), ["userinfo", "email"], now_ms())
        with self.store.users.edit(self.id) as user:
            user.grants[client_id] = grant
        self.code = AuthorizationCode(client_id, self.id, grant.id, grant.scope, None, None)
        self.token = issue_access_token(self.code, self.store)

    def warm_up(self) -> None:
        """Make every worker keep its answers, if workers keep any."""
        time.sleep(2 * YOUNGEST_CACHED / 10**9)
        before = self.answers()
        assert self.answers() == before and before[0] == before[1]
        assert [status for status, _ in before[0]] == [200, 200]

    def answers(self) -> list[list[tuple[int, dict]]]:
        """Return status and body of the profile and of whois, from each worker."""
        address = f"{self.server.address}/api/users/info?id={self.id}"

        def ask() -> list[tuple[int, dict]]:
            profile = requests.get(address, timeout=ANSWER_TIMEOUT)
            whois = self.server.whois(self.token)
            user = profile.json().get("user", {})
            return [(profile.status_code, user), (whois.status_code, whois.json())]

        return ask_each_worker(self.server, ask)


Change = Callable[[Storage, int], None]  # of the player with this id


def edit(**values: object) -> Change:
    """Return a function that sets these fields of a player."""

    def change(store: Storage, user_id: int) -> None:
        with store.users.edit(user_id) as user:
            for name, value in values.items():
                setattr(user, name, value)

    return change


def end_tokens(store: Storage, user_id: int) -> None:
    with store.users.edit(user_id) as user:
        for grant in user.grants.values():
            grant.end_tokens()


CHANGES: list[Change] = [
    lambda store, user_id: store.users.rename(user_id, "Another Name"),
    lambda store, user_id: store.users.change_email(user_id, "another@example.org"),
    lambda store, user_id: store.pictures.save(user_id, generate_picture(user_id + 1)),
    edit(bio="another bio"),
    edit(mod_level=1),
    edit(last_heartbeat=1),
]
ENDS: dict[str, tuple[Change, int, int]] = {  # the statuses of the profile and of whois afterwards
    "suspension": (edit(suspension=Suspension(by="command")), 200, 401),
    "withdrawn consent": (edit(grants={}), 200, 401),
    "replayed code": (end_tokens, 200, 401),
    "deletion": (lambda store, user_id: store.users.delete(user_id), 404, 401),
}


def test_change_shows_at_the_next_request_in_every_worker(server, client, subtests):
    player = Player(server, client["client_id"])
    for change in CHANGES:
        player.warm_up()
        change(player.store, player.id)
        user = player.store.users.read(player.id)
        identity = {"id": user.id, "name": user.name, "email": user.email}
        identity["pfpTimestamp"] = user.pfp_timestamp
        expected = [(200, public_profile(user)), (200, identity)]
        assert player.answers() == [expected] * 2
    for name, (end, *statuses) in ENDS.items():
        with subtests.test(name):
            player = Player(server, client["client_id"])
            player.warm_up()
            end(player.store, player.id)
            for answers in player.answers():
                assert [status for status, _ in answers] == statuses


def test_end_of_a_suspension_shows_when_its_time_comes(server, client):
    """Nobody saves the record then."""
    player = Player(server, client["client_id"])
    player.warm_up()
    end = now_ms() + 2000
    edit(suspension=Suspension(by="command", until=end))(player.store, player.id)
    found = [whois[0] for _, whois in player.answers()]
    assert found == [401, 401] or now_ms() > end  # on a slow machine
    wait_until(lambda: now_ms() > end)
    assert [whois[0] for _, whois in player.answers()] == [200, 200]


# -- refresh tokens --------------------------------------------------------------------------------


def test_racing_refreshes_in_both_workers_get_the_same_token(server, client):
    player, text = Player(server, client["client_id"]), secrets.token_urlsafe(32)
    credentials = {each: client[each] for each in ("client_id", "client_secret")}
    player.code.family = secrets.token_urlsafe(12)
    player.store.codes.add(text, player.code)
    form = {"grant_type": "authorization_code", "code": text}
    answers = [server.refresh("", **credentials, **form)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            token = answers[0].json()["refresh_token"]
            sent = [threads.submit(server.refresh, token, **credentials) for _ in range(16)]
            answers = [each.result() for each in sent]
            assert len({each.json()["refresh_token"] for each in answers} - {token}) == 1
    use = partial(server.refresh, answers[0].json()["refresh_token"], **credentials)
    assert len({each.json()["refresh_token"] for each in ask_each_worker(server, use)}) == 1


# -- rotated keys ----------------------------------------------------------------------------------


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
