"""Two servers on one database are one site: what one does holds at the other's next request."""

import functools
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import requests
from live.running import ANSWER_TIMEOUT, PASSWORD, RunningServer, running_server
from mail_server import MailServer
from waiting import PATIENCE, wait_until

from identity.http.limits import ATTEMPTS_PER_NAME
from identity.messages.letter import Letter
from identity.messages.mail import compose
from identity.messages.outbox import MAIL, new_message
from model.grant_records import AuthorizationCode
from model.kinds import OUTBOX, waiting_queues
from model.records import ADMINISTRATOR, CLOCK_TOLERANCE, Grant
from storage import Storage, open_storage

from .load import CALLBACK, OWN_PAGE, two_servers

pytestmark = [pytest.mark.live, pytest.mark.postgresql]
RACERS = 8
LATE = f"""
import time
now, now_ns, behind = time.time, time.time_ns, {CLOCK_TOLERANCE // 2}
time.time, time.time_ns = lambda: now() - behind, lambda: now_ns() - behind * 10**9
"""


@pytest.fixture(scope="module")
def url(databases) -> Iterator[str]:
    with databases.lend() as backend:
        yield backend.setting("two machines")


@pytest.fixture(scope="module")
def servers(url) -> Iterator[list[RunningServer]]:
    with two_servers(url, running_server) as servers:
        yield servers


@pytest.fixture(scope="module")
def store(url, servers) -> Iterator[Storage]:
    store = open_storage("", "", url)
    for each in servers:
        each.open_storage = lambda: store
    servers[0].add_user("first")  # without any, nobody signs up without a link
    yield store
    store.close()


class LateServer(RunningServer):
    """A server with LATE as its `sitecustomize`, in place of the one that makes it quick."""

    is_quick = False


@pytest.fixture(scope="module")
def late_server(url, store, tmp_path_factory) -> Iterator[RunningServer]:
    """Another server, whose clock is behind that of the others."""
    folder = tmp_path_factory.mktemp("late")
    (folder / "sitecustomize.py").write_text(LATE)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(folder))
        with running_server(LateServer, STORAGE=url, SIGN_UP="open", PROXIES="1") as server:
            server.open_storage = lambda: store
            yield server


def send(server: RunningServer, method: str, path: str, **more: object) -> requests.Response:
    """Send a request as a page of the server does."""
    address, headers = f"{server.address}{path}", OWN_PAGE | more.pop("headers", {})
    options = {"allow_redirects": False, "timeout": ANSWER_TIMEOUT}
    return requests.request(method, address, headers=headers, **options, **more)


def race(servers: list[RunningServer], act: Callable[[RunningServer], object]) -> list:
    """Call `act` for both servers at once, RACERS times in all."""
    with ThreadPoolExecutor(RACERS) as threads:
        return list(threads.map(lambda number: act(servers[number % 2]), range(RACERS)))


class Player:
    """A signed-in player who has allowed a game."""

    def __init__(self, servers: list[RunningServer], store: Storage, name: str) -> None:
        self.name, self.servers, self.store = name, servers, store
        self.id = servers[0].add_user(name)["id"]
        self.cookies = {"identity_session": servers[0].start_session(name)}
        client, secret = store.clients.register(f"Game of {name}", [CALLBACK], None)
        self.client = {"client_id": client.id, "client_secret": secret}
        with store.users.edit(self.id) as user:
            user.grants[client.id] = Grant(f"grant of {name}", ["userinfo"], user.created)

    def new_code(self, server: RunningServer) -> str:
        asked = {"response_type": "code", "client_id": self.client["client_id"]}
        path = f"/oauth/authorize?{urlencode(asked)}"
        answer = send(server, "GET", path, cookies=self.cookies)
        return parse_qs(urlsplit(answer.headers["Location"]).query)["code"][0]

    def exchange(self, server: RunningServer, code: str) -> requests.Response:
        return server.exchange_code(code, **self.client)

    def is_signed_in(self, server: RunningServer) -> bool:
        return send(server, "GET", "/account", cookies=self.cookies).status_code == 200


@pytest.fixture
def player(request, servers, store) -> Player:
    return Player(servers, store, re.sub(r"\W|_", "", request.node.name)[-20:].lower())


def test_racing_exchanges_at_both_servers_have_one_winner(player, servers):
    for _ in range(5):
        code = player.new_code(servers[0])
        answers = race(servers, functools.partial(player.exchange, code=code))
        statuses = [answer.status_code for answer in answers]
        assert Counter(statuses) == {200: 1, 400: RACERS - 1}
        token = answers[statuses.index(200)].json()["access_token"]
        assert [each.whois(token).status_code for each in servers] == [401] * 2  # RFC 6749 4.1.2


def test_racing_refreshes_at_both_servers_get_the_same_token(player, servers, store):
    client_id, text = player.client["client_id"], secrets.token_urlsafe(32)
    grant = store.users.read(player.id).grants[client_id]
    code = AuthorizationCode(client_id, player.id, grant.id, grant.scope, None, None)
    code.family = secrets.token_urlsafe(12)
    store.codes.add(text, code)
    form = {"grant_type": "authorization_code", "code": text}
    answer = servers[0].refresh("", **player.client, **form)
    for _ in range(5):
        token = answer.json()["refresh_token"]
        answers = race(servers, lambda server: server.refresh(token, **player.client))  # noqa: B023
        assert {each.status_code for each in answers} == {200}
        [following] = {each.json()["refresh_token"] for each in answers}
        assert following != token
        answer = answers[0]


def test_a_clock_that_is_behind_changes_nothing_for_players(player, servers, late_server):
    """A session, a token and a page of one server hold at the other's next request."""
    for one, other in ((servers[0], late_server), (late_server, servers[0])):
        form = {"name": player.name, "password": PASSWORD}
        signed_in = send(one, "POST", "/sign-in", data=form)
        player.cookies = {"identity_session": signed_in.cookies["identity_session"]}
        assert player.is_signed_in(other)
        answer = player.exchange(other, player.new_code(one))
        assert one.whois(answer.json()["access_token"]).status_code == 200
        answer = player.exchange(one, player.new_code(one))
        assert other.whois(answer.json()["access_token"]).status_code == 200
        query = urlencode({"response_type": "code", "scope": "email", **player.client})
        page = send(one, "GET", f"/oauth/authorize?{query}", cookies=player.cookies).text
        signed = re.search('name="request" value="([^"]+)"', page)[1]
        time.sleep(1.1)  # an earlier press does not count at the late server
        form = {"request": signed, "decision": "deny"}
        answer = send(other, "POST", "/oauth/authorize", data=form, cookies=player.cookies)
        assert "error=access_denied" in answer.headers["Location"]


def test_sign_out_holds_at_the_other_server(player, servers):
    one, other = servers
    assert player.is_signed_in(one) and player.is_signed_in(other)
    assert send(one, "POST", "/sign-out", cookies=player.cookies).status_code == 303
    assert not player.is_signed_in(other)


@pytest.mark.parametrize("act", ["suspend", "withdraw"])
def test_suspension_or_withdrawn_consent_holds_at_the_other_server(player, servers, act):
    one, other = servers
    code, token = player.new_code(one), player.exchange(one, player.new_code(one)).json()
    if act == "suspend":
        one.command_output("user", "suspend", player.name)
        assert not player.is_signed_in(other)
    else:
        form = {"client_id": player.client["client_id"]}
        answer = send(one, "POST", "/account/apps/withdraw", data=form, cookies=player.cookies)
        assert answer.status_code == 303
    assert other.whois(token["access_token"]).status_code == 401
    assert player.exchange(other, code).status_code == 400


def test_guesses_are_counted_exactly_over_both_servers(player, servers):
    headers = {"X-Forwarded-For": "10.9.9.9"}
    form = {"name": player.name, "password": "correct horse battery stable"}

    def guess(server: RunningServer) -> int:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:  # 503: one place for each address in each worker
            answer = send(server, "POST", "/sign-in", data=form, headers=headers)
            if answer.status_code != 503:
                return answer.status_code
            time.sleep(0.1)
        raise AssertionError("still busy")

    statuses = Counter(race(servers, guess) + race(servers, guess))
    assert statuses == {403: ATTEMPTS_PER_NAME, 429: 2 * RACERS - ATTEMPTS_PER_NAME}
    right = form | {"password": PASSWORD}
    for each in servers:
        answer = send(each, "POST", "/sign-in", data=right, headers=headers)
        assert answer.status_code == 429


def test_rotated_key_reaches_both_servers_within_a_second(player, servers):
    assert all(player.is_signed_in(each) for each in servers)
    assert "new key" in servers[0].command_output("rotate-key", "--drop-old")
    # The command itself waits: when it returns, no server believes in the old key.
    assert not any(player.is_signed_in(each) for each in servers)


def test_racing_demotions_keep_an_administrator(servers, store):
    for each in store.users.administrators():
        with store.users.edit(each.id) as user:
            user.mod_level = 0
    players = [Player(servers, store, name) for name in ("castor", "pollux")]
    for each in players:
        with store.users.edit(each.id) as user:
            user.mod_level = ADMINISTRATOR
    presses = []
    for player, other, server in zip(players, reversed(players), servers, strict=True):
        path, session = f"/users/{other.id}", {"cookies": player.cookies}
        page = send(server, "GET", path, **session).text
        form = {"stamp": re.search('name="stamp" value="([^"]+)"', page)[1], "mod_level": "0"}
        press = functools.partial(send, server, "POST", f"{path}/mod-level", data=form, **session)
        presses.append(press)
    with ThreadPoolExecutor(2) as threads:
        statuses = [answer.status_code for answer in threads.map(lambda press: press(), presses)]
    # The second is refused as the last administrator, or as no administrator any more.
    assert statuses.count(303) == 1 and max(statuses) < 500, statuses
    assert len(store.users.administrators()) == 1


@pytest.mark.slow  # tests/test_mail.py lets threads race for each letter on each backend
def test_two_machines_send_each_letter_once(url, store):
    mail_server = MailServer()
    config = {"SMTP_URL": mail_server.url(), "MAIL_FROM": "site@games.example"}
    letter = Letter("Hello", ["Hello."], "https://id.example.org/", "Open the site")
    with running_server(STORAGE=url, **config), running_server(STORAGE=url, **config):
        for number in range(40):
            to = f"p{number}@example.org"
            body = compose(store, config | {"SITE_NAME": "Games"}, to, letter, "en")
            store.records(OUTBOX).add(new_message(MAIL, "password", body, to=to))
        outbox = store.records(OUTBOX)
        wait_until(lambda: not any(outbox.page("queue", each) for each in waiting_queues(MAIL)))
    mail_server.close()
    assert len(mail_server.recipients) == len(set(mail_server.recipients)) == 40
