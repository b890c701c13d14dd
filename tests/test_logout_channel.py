"""Back-channel logout (OpenID Connect Back-Channel Logout 1.0): who is told what, and how."""

import contextlib
import functools
import http.server
import itertools
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote, urlencode

import pytest
from click.testing import CliRunner
from conformance.conftest import make_key
from conftest import Program, on_each_backend
from cryptography.hazmat.primitives.asymmetric import rsa
from forms import change_password, edit, is_signed_in, parse, problems_of, set_by_link, text_of
from joserfc import jwt
from joserfc.jwk import KeySet
from test_device import Device, decide
from waiting import PATIENCE

from identity.access import links
from identity.acts import accounts, logouts
from identity.acts import sessions as session_acts
from identity.acts.actors import COMMAND, Actor, Authority
from identity.acts.logouts import EVERYTHING
from identity.messages import webhook
from identity.messages.outbox import LOGOUT, Sender, new_message
from identity.oauth import logout_channel, programs
from identity.oauth.logout_channel import Logouts
from identity_admin import identity_server_command
from model.errors import StorageFailed
from model.kinds import OUTBOX, given_up_of, queue_of
from model.records import ADMINISTRATOR, MODERATOR, Grant, now_ms
from storage import Storage

SITE = "http://localhost"
FORUM, WIKI = "https://forum.example/callback", "https://wiki.example/callback"
NUMBERS = itertools.count(1)


@pytest.fixture
def app(make_app, monkeypatch):
    monkeypatch.setattr(rsa, "generate_private_key", make_key)
    return make_app(OPENID="on", CLIENT_REGISTRATION="members")


class Receiver:
    """A program at an address of this machine: it keeps what arrives, and answers as it is told."""

    def __init__(self) -> None:
        self.received: list[tuple[dict, str]] = []  # headers, logout tokens
        self.answer: bytes | Callable[[socket.socket], None] = b"HTTP/1.1 200 OK\r\n\r\n"
        self.was_left = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                receiver.received.append((dict(self.headers), parse_qs(body)["logout_token"][0]))
                answer = receiver.answer
                answer(self.connection) if callable(answer) else self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/logout"
        serve = functools.partial(self.server.serve_forever, poll_interval=0.01)
        threading.Thread(target=serve, daemon=True).start()

    def repeat(self, piece: bytes, pause: float, connection: socket.socket) -> None:
        """Answer with a piece again and again, until the sender leaves."""
        with contextlib.suppress(OSError):
            for _ in range(round(PATIENCE / pause)):
                connection.sendall(piece)
                threading.Event().wait(pause)
            return
        self.was_left.set()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


@pytest.fixture
def add_app(register):
    """A function that registers an app that is told of sign-outs at a URI."""

    def add_app(name: str, uri: str = "", callback: str = FORUM, **fields) -> Program:
        uri = uri or f"https://{name.lower()}.example/logout"
        return register(callback, name=name, backchannel_logout_uri=uri, **fields)

    return add_app


@pytest.fixture
def send(store):
    """A function that sends what is due."""
    sender = Sender(store, Logouts(store, SITE))
    return lambda: sender.send_due(0)


def waiting(store: Storage) -> list:
    return store.records(OUTBOX).page("queue", queue_of(LOGOUT))


def told(store: Storage) -> dict[str, list[str]]:
    """Return the sids of the messages in the outbox by the name of their app, and empty it."""
    found = {}
    for each in waiting(store):
        found.setdefault(store.clients.read(each.to).name, []).extend(json.loads(each.body)["sids"])
        store.records(OUTBOX).delete(each.id)
    return found


def read_token(store: Storage, token: str) -> jwt.Token:
    """Return a token that this server signed."""
    keys = [store.openid_keys.read(each).jwk for each in store.openid_keys.ids()]
    return jwt.decode(token, KeySet.import_key_set({"keys": keys}), algorithms=["RS256"])


def id_token(program: Program, browser) -> str:
    """Allow an app in a browser, and return the ID token that it gets."""
    return program.exchange_standard(browser.allow(program, scope="openid")).json["id_token"]


def sid_in(store: Storage, token: str) -> str:
    return read_token(store, token).claims["sid"]


def by(store: Storage, user_id: int) -> Authority:
    return Authority(store, Actor(user_id))


# -- who is told what ------------------------------------------------------------------------------


class SignedIn:
    """A player in two browsers, who allowed a forum in the first one and a wiki in both."""

    def __init__(self, store, enter, open_browser, apps, name: str) -> None:
        forum, wiki, quiet = apps
        self.first, self.second = enter(name), open_browser()
        self.second.sign_in(name)
        self.id = store.users.find_by_login(name).id
        self.hint, _ = id_token(forum, self.first), id_token(quiet, self.first)
        self.sids = [sid_in(store, id_token(wiki, each)) for each in (self.first, self.second)]
        assert sid_in(store, self.hint) == self.sids[0] != self.sids[1]

    def log_out(self, **asked: str):
        return self.first.get(f"/oauth/logout?{urlencode(asked)}")

    def confirm(self, client_id: str) -> None:
        """Sign out at an app that sends no hint."""
        assert self.log_out(client_id=client_id).status_code == 200 and is_signed_in(self.first)
        self.first.post("/oauth/logout/confirm", data={"client_id": client_id})

    def end_others(self) -> int:
        """Sign out everything but the second browser; return the status."""
        return self.second.post("/account/sign-out-others").status_code


@pytest.fixture
def apps(add_app, register) -> tuple[Program, Program, Program]:
    """A forum and a wiki that are told, an app that wants it not, and one that nobody allowed."""
    add_app("Stranger", callback="https://stranger.example/callback")
    quiet = register("https://quiet.example/callback", name="Quiet")
    return add_app("Forum"), add_app("Wiki", callback=WIKI), quiet


@pytest.fixture
def sign_in_twice(store, enter, open_browser, apps):
    return functools.partial(SignedIn, store, enter, open_browser, apps)


def test_each_app_is_told_what_ended(store, sign_in_twice, apps, enter, open_browser, subtests):
    enter("Boss", ADMINISTRATOR)
    command, admin = Authority(store, COMMAND), by(store, 1)
    forum, wiki, _ = apps

    def end_first(one: SignedIn) -> None:
        form = {"session": store.users.read(one.id).sessions[0].id}
        one.second.post("/account/sessions/end", data=form)

    def reset(one: SignedIn) -> None:
        link = links.issue_sign_in_link(store, "", store.users.read(one.id))
        set_by_link(open_browser(), link)

    def leave_group(one: SignedIn) -> None:
        edit(store.clients, wiki.id, only_groups=["flair:vip"])
        edit(store.users, one.id, flairs=["none", "vip"])
        accounts.revoke_flair(admin, one.id, "vip")
        edit(store.clients, wiki.id, only_groups=[])

    def sign_in_often(one: SignedIn) -> None:
        for _ in range(session_acts.SESSIONS_KEPT - 1):
            one.second.sign_in(store.users.read(one.id).name)

    def end_test_of_app(one: SignedIn) -> None:
        edit(store.users, one.id, grants={forum.id: Grant("test", [], now_ms())})
        accounts.withdraw(by(store, one.id), one.id, forum.id)

    first, all_of_it = {"Forum": [0], "Wiki": [0]}, {"Forum": ["", 1, 0], "Wiki": ["", 1, 0]}
    for act, expected in {
        lambda one: one.first.post("/sign-out"): first,
        end_first: first,
        lambda one: one.log_out(id_token_hint=one.hint): {"Wiki": [0]},
        lambda one: one.confirm(forum.id): first,
        sign_in_often: first,
        lambda one: one.end_others(): {"Forum": ["", 0], "Wiki": ["", 0]},
        lambda one: session_acts.sign_out(command, one.id): all_of_it,
        lambda one: change_password(one.first): all_of_it,
        reset: all_of_it,
        lambda one: accounts.suspend(admin, one.id): all_of_it,
        lambda one: accounts.delete_user(admin, one.id): all_of_it,
        lambda one: accounts.delete_user(by(store, one.id), one.id): all_of_it,
        lambda one: accounts.withdraw(by(store, one.id), one.id, wiki.id): {"Wiki": ["", 1, 0]},
        leave_group: {"Wiki": ["", 1, 0]},
        end_test_of_app: {},
    }.items():
        one = sign_in_twice(f"Guest {next(NUMBERS)}")
        with subtests.test(one.id):
            assert told(store) == {}
            act(one)
            names = {"": EVERYTHING} | dict(enumerate(one.sids))
            wanted = {name: [names[each] for each in sids] for name, sids in expected.items()}
            assert told(store) == wanted


def test_hint_of_another_player_leaves_nobody_out(store, sign_in_twice, apps):
    one, two = sign_in_twice("Ada"), sign_in_twice("Bob")
    assert one.log_out(id_token_hint=two.hint).status_code == 200 and is_signed_in(one.first)
    one.confirm(apps[0].id)
    assert told(store).keys() == {"Forum", "Wiki"}


def test_sid_stays_when_an_app_asks_for_the_password_again(store, sign_in_twice, apps):
    """Other programs know the browser by it, and are told of its sign-out alone."""
    one = sign_in_twice("Ada")
    for _ in range(2):
        asks = one.first.get(apps[0].link(scope="openid", prompt="login"))
        one.first.sign_in("Ada", next=unquote(asks.location.partition("next=")[2]))
    assert told(store) == {}
    assert sid_in(store, id_token(apps[0], one.first)) == one.sids[0]
    one.first.post("/sign-out")
    assert told(store) == {"Forum": [one.sids[0]], "Wiki": [one.sids[0]]}


def test_device_has_a_sid_of_its_own(store, anyone, adas_browser, ada, apps):
    """The browser in which its code was typed is another session. Other apps are told nothing."""
    id_token(apps[0], adas_browser)
    fields = {"public": True, "device": True, "backchannel_logout_uri": "https://tv.example/logout"}
    client, _ = store.clients.register("TV", [], None, **fields)
    device, sids = Device(anyone, client.id, None, ""), []
    for _ in range(2):
        started = device.start(scope="openid offline_access").json
        decide(adas_browser, adas_browser.post("/device", data={"user_code": started["user_code"]}))
        sids.append(sid_in(store, device.poll(started).json["id_token"]))
    [browser], family = (
        store.users.read(ada.id).sessions,
        store.users.read(ada.id).grants[client.id].families[0],
    )
    assert len({*sids, browser.sid}) == 3
    for expected in ({"TV": [sids[0]]}, {}):  # it ends once
        adas_browser.post("/account/sessions/end", data={"session": family})
        assert told(store) == expected
    adas_browser.post("/account/sign-out-others")
    assert told(store) == {"TV": [EVERYTHING, sids[1]], "Forum": [EVERYTHING]}


@on_each_backend
def test_failure_between_loses_no_message(store, apps, sign_in_twice, monkeypatch, subtests):
    """Either nothing has ended, or the apps are told of it."""
    one, command = sign_in_twice("Ada"), Authority(store, COMMAND)
    [first, _] = [each.id for each in store.users.read(one.id).sessions]

    def fail(*_: object) -> None:
        raise StorageFailed("the disk refused")

    for name, act in {
        "sign-out": lambda: session_acts.end_sign_in(by(store, one.id), one.id, first),
        "suspension": lambda: accounts.suspend(command, one.id),
        "withdrawal": lambda: accounts.withdraw(by(store, one.id), one.id, apps[0].id),
        "deletion": lambda: accounts.delete_user(command, one.id),
    }.items():
        last = "remove" if name == "deletion" else "save"
        for records, broken in ((store.records(OUTBOX), "put"), (store.users, last)):
            with subtests.test(name, broken=broken), monkeypatch.context() as patch:
                patch.setattr(records, broken, fail)
                with pytest.raises(StorageFailed):
                    act()
                user = store.users.read(one.id)
                assert len(user.sessions) == 2 and not user.suspended and apps[0].id in user.grants
    told(store)
    session_acts.end_sign_in(by(store, one.id), one.id, first)
    assert told(store) == {"Forum": [one.sids[0]], "Wiki": [one.sids[0]]}


# -- floods ----------------------------------------------------------------------------------------


def test_flood_of_sign_outs_is_dropped_and_logged(store, sign_in_twice, monkeypatch, caplog):
    monkeypatch.setattr(logouts, "TOLD_AN_HOUR", 2)
    one = sign_in_twice("Ada")
    for number in range(4):
        one.first.post("/sign-out")
        assert not is_signed_in(one.first)
        one.first.sign_in("Ada")
        assert len(waiting(store)) == 2 * min(number + 1, 2)
    assert caplog.text.count("too many") == 2
    told(store)
    assert one.end_others() == 303 and told(store).keys() == {"Forum", "Wiki"}


def test_thief_who_signs_out_nothing_tells_nothing(store, sign_in_twice):
    one = sign_in_twice("Ada")
    assert [one.end_others() for _ in range(3)] == [303] * 3 and len(waiting(store)) == 2


def test_player_who_ends_everything_all_day_silences_no_app(store, sign_in_twice, monkeypatch):
    """Their apps are told once more each, and other players' as before."""
    monkeypatch.setattr(logouts, "ALL_ENDED_AN_HOUR", 2)
    ada, bob = sign_in_twice("Ada"), sign_in_twice("Bob")
    for messages in (2, 4, 4, 4):
        ada.end_others()
        ada.first.sign_in("Ada")
        assert len(waiting(store)) == messages
    bob.end_others()
    assert len(waiting(store)) == 6


def test_full_queue_of_an_app_takes_what_must_not_be_lost(store, sign_in_twice, monkeypatch):
    monkeypatch.setattr(logouts, "MOST_WAITING", 3)
    ada, bob = sign_in_twice("Ada"), sign_in_twice("Bob")

    def sign_out() -> None:
        bob.first.sign_in("Bob")
        bob.first.post("/sign-out")

    def end_others(one: SignedIn, name: str) -> None:
        one.first.sign_in(name)
        one.end_others()

    for act, messages in (
        (sign_out, 2),
        *[(lambda: end_others(ada, "Ada"), number) for number in (4, 6, 6)],
        (sign_out, 6),
        *[(lambda: end_others(bob, "Bob"), 8)] * 3,  # once for each app: signed when it is sent
        (lambda: accounts.suspend(Authority(store, COMMAND), ada.id), 10),
    ):
        act()
        assert len(waiting(store)) == messages


# -- the token -------------------------------------------------------------------------------------


class Told:
    """A forum with a receiver, which Ada allowed."""

    def __init__(self, store: Storage, forum: Program, browser, receiver: Receiver, send) -> None:
        self.store, self.forum, self.receiver = store, forum, receiver
        self.browser, self.send = browser, send
        id_token(forum, browser)

    def change(self, **fields: object) -> None:
        edit(self.store.clients, self.forum.id, **fields)

    def sign_out(self) -> list[str]:
        """Sign Ada out, send as a new process does, and return the problems of what waits."""
        self.browser.sign_in()
        self.browser.post("/sign-out")
        Sender(self.store, Logouts(self.store, SITE)).send_due(0)
        return [each.problem for each in waiting(self.store)]


@pytest.fixture
def one(store, add_app, adas_browser, receiver, send) -> Told:
    return Told(store, add_app("Forum", receiver.url), adas_browser, receiver, send)


def test_token_is_a_logout_token(one, store, ada, clock):
    """Back-Channel Logout 1.0, 2.4 and 2.5."""
    [session] = store.users.read(ada.id).sessions
    one.receiver.answer = b"HTTP/1.1 500 Error\r\n\r\n"
    accounts.suspend(Authority(store, COMMAND), ada.id)
    one.send()
    clock.shift(60)
    one.receiver.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
    one.send()
    assert waiting(store) == []
    tokens = [read_token(store, token) for _, token in one.receiver.received]
    shared = {"iss": SITE, "aud": one.forum.id, "sub": str(ada.id)}
    shared |= {"events": {"http://schemas.openid.net/event/backchannel-logout": {}}}
    now = now_ms() // 1000
    more = ((now - 60, {}), (now, {}), (now, {"sid": session.sid}))  # and no nonce
    for token, (issued, own) in zip(tokens, more, strict=True):
        times = {"iat": issued, "exp": issued + 120, "jti": token.claims["jti"]}
        assert token.claims == shared | own | times
        assert (token.header["typ"], token.header["alg"]) == ("logout+jwt", "RS256")
    assert len({each.claims["jti"] for each in tokens}) == 3
    headers, _ = one.receiver.received[0]
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert headers["User-Agent"] == "Identity-Server" and "Cookie" not in headers


def test_logout_token_is_good_for_nothing_else(one):
    assert one.sign_out() == []
    [(_, token)], forum = one.receiver.received, one.forum
    one.browser.sign_in()
    assert forum.whois(token).status_code == 401
    assert one.browser.get(f"/oauth/logout?id_token_hint={token}").status_code == 400
    assert is_signed_in(one.browser)
    hinted = one.browser.get(forum.link(scope="openid", id_token_hint=token))
    assert "error" in forum.read_callback(hinted)
    assert forum.exchange_standard(token).json["error"] == "invalid_grant"
    refused = forum.exchange_standard("x", grant_type="refresh_token", refresh_token=token)
    assert refused.json["error"] == "invalid_grant"


def test_answer_tells_whether_the_app_is_told_again(one, store, subtests):
    """Back-Channel Logout 1.0, 2.8. A redirect is not followed."""
    for number, status in enumerate((200, 204, 299, 400, 501, 302, 401, 404, 500, 503), 1):
        with subtests.test(status):
            location = f"Location: {one.receiver.url}\r\n\r\n"
            one.receiver.answer = f"HTTP/1.1 {status} X\r\n{location}".encode()
            is_told = status < 300 or status in (400, 501)
            assert one.sign_out() == [f"It answered with the status {status}."] * (not is_told)
            assert len(one.receiver.received) == number
            told(store)


# -- bad receivers ---------------------------------------------------------------------------------


def test_bad_receiver_is_left_in_time(one, store, monkeypatch, subtests):
    monkeypatch.setattr(logout_channel, "FIRST_TIMEOUT", 0.5)
    monkeypatch.setattr(webhook, "TIMEOUT", PATIENCE)
    began = time.monotonic()
    for name, answer in {
        "drips": functools.partial(one.receiver.repeat, b"H", 0.05),
        "is silent": lambda _: one.receiver.was_left.wait(PATIENCE),
        "closes": socket.socket.close,
        "is no web server": b"SSH-2.0-OpenSSH_9.2\r\n",
        "sends many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    }.items():
        with subtests.test(name):
            one.receiver.answer = answer
            [problem] = one.sign_out()
            assert "could not be reached" in problem
            told(store)
    one.receiver.was_left.set()
    assert time.monotonic() - began < PATIENCE / 2


def test_no_more_than_64_kb_of_an_answer_are_read(one):
    piece = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n" + b"x" * 10_000
    one.receiver.answer = functools.partial(one.receiver.repeat, piece, 0.001)
    assert one.sign_out() == [] and one.receiver.was_left.wait(PATIENCE)


def test_host_that_cannot_be_reached_is_tried_later(one, monkeypatch, subtests):
    monkeypatch.setattr(logout_channel, "FIRST_TIMEOUT", 0.3)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        refusing = free.getsockname()[1]
    for uri, expected in (
        (f"http://127.0.0.1:{refusing}/", "It could not be reached (ConnectionRefused"),
        ("http://nowhere.invalid/", "No such host was found."),
    ):
        with subtests.test(uri):
            one.change(backchannel_logout_uri=uri)
            [problem] = one.sign_out()
            assert problem.startswith(expected)
            told(one.store)


def test_app_is_told_as_it_is_when_the_message_is_sent(one, store, clock, subtests):
    """It moved, wants it no more, is disabled or deleted; or OpenID Connect was off for long."""
    old = {"backchannel_logout_uri": "http://127.0.0.1:8/old", "disabled": False}
    for after, number in (
        ({"backchannel_logout_uri": one.receiver.url}, 1),
        ({"backchannel_logout_uri": ""}, 1),
        ({"backchannel_logout_uri": one.receiver.url, "disabled": True}, 1),
        ({"backchannel_logout_uri": one.receiver.url, "name": "Late"}, 1),
        (None, 1),
    ):
        with subtests.test(str(after)):
            one.change(**old)
            one.browser.sign_in()
            one.browser.post("/sign-out")
            one.change(**after) if after else store.clients.delete(one.forum.id)
            clock.shift(4 * 86_400 if after and "name" in after else 0)
            one.send()
            assert waiting(store) == [] and len(one.receiver.received) == number


def test_app_of_a_member_never_reaches_a_private_address(one, store, bob):
    """Not even if it was registered by an administrator who is none any more, or who left."""
    plain, private = (
        "The address does not start with https://.",
        "The host is in a private network.",
    )
    secure = one.receiver.url.replace("http", "https")
    for owner_id, level, url, problem in (
        (bob.id, 0, one.receiver.url, plain),
        (bob.id, MODERATOR, secure, private),
        (99, 0, secure, private),
        (bob.id, ADMINISTRATOR, one.receiver.url, None),
    ):
        edit(store.users, bob.id, mod_level=level)
        one.change(owner_id=owner_id, backchannel_logout_uri=url)
        assert one.sign_out() == [problem] * (problem is not None)
        assert len(one.receiver.received) == (problem is None)
        told(store)


# -- nobody is held up -----------------------------------------------------------------------------


def put(store: Storage, program: Program, *sids: str) -> None:
    """Put a message about an app into the outbox, as `tell_app` does, in the order of the calls."""
    body = json.dumps({"client": program.id, "user": 1, "sids": sids})
    message = new_message(LOGOUT, "logout", body, to=program.id)
    message.id = f"{now_ms():015d}-{next(NUMBERS):08x}"
    store.records(OUTBOX).add(message)


class Seconds:
    """Deliveries that take some seconds each, by the host, of a clock that only they move."""

    def __init__(self, monkeypatch, clock) -> None:
        self.now, self.took, self.told, self.spent = 1000.0, {}, [], Counter()
        self.clock = clock
        monkeypatch.setattr(logout_channel, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(logout_channel, "deliver", self.deliver)

    def deliver(self, url: str, private: bool, body: bytes, headers: dict, timeout: float):
        host = url.split("/")[2].removesuffix(".example")
        took = self.took.get(host, 0.01)
        self.now += min(took, timeout)
        self.spent[host] += min(took, timeout)
        if took > timeout:
            raise webhook.NotSent("It could not be reached (TimeoutError).")
        self.told.append((host, parse_qs(body.decode())["logout_token"][0]))
        return 200, {}

    def shift(self, seconds: float) -> None:
        self.now += seconds
        self.clock.shift(seconds)

    def hosts(self) -> list[str]:
        return [host for host, _ in self.told]


@pytest.fixture
def seconds(app, monkeypatch, clock) -> Seconds:
    return Seconds(monkeypatch, clock)


def test_time_of_a_whole_message_is_bounded(store, add_app, send, seconds):
    """An app that takes 1.9 seconds for each token gets one at a time, which is no failure."""
    seconds.took = {"forum": 1.9}
    put(store, add_app("Forum"), EVERYTHING, *map(str, range(20)))
    for spent in (2, 4, 6):
        send()
        assert seconds.spent["forum"] == pytest.approx(spent)
        assert [each.tries for each in waiting(store)] == [0]
        seconds.shift(2)
    sids = [read_token(store, token).claims.get("sid", EVERYTHING) for _, token in seconds.told]
    assert sids == [EVERYTHING, "0", "1"]  # nothing twice
    seconds.took = {}
    send()
    assert len(seconds.told) == 21 and waiting(store) == []


def test_dead_app_is_tried_once_for_all_its_messages(store, add_app, send, seconds):
    dead, good = add_app("Dead"), add_app("Good", callback=WIKI)
    seconds.took = {"dead": 99}
    for program in (dead, dead, good):
        put(store, program, "a")
    for shift, spent in ((0, 2), (0, 2), (59, 2), (2, 7), (59, 7), (2, 9)):
        seconds.shift(shift)
        send()
        assert seconds.spent["dead"] == spent and seconds.hosts() == ["good"]
    assert [each.tries for each in waiting(store)] == [2, 1]
    seconds.took = {}
    seconds.shift(3600)
    send()
    assert waiting(store) == []


def test_app_that_fails_holds_up_no_other_of_its_host(store, app, add_app, bob, receiver, send):
    """And a member whose app names the host of others holds up none of theirs."""
    broken, good = add_app("Broken", receiver.url), add_app("Good", receiver.url, WIKI)
    member = add_app("Member", receiver.url, "https://other.example/callback", owner_id=bob.id)
    receiver.answer = b"HTTP/1.1 404 Not Found\r\n\r\n"
    for program in (broken, broken):
        put(store, program, "a")
    send()
    assert len(receiver.received) == 1  # the second one waits
    receiver.answer = b"HTTP/1.1 200 OK\r\n\r\n"
    for program in (good, member, good):
        put(store, program, "a")
    send()
    assert len(receiver.received) == 3


def test_dead_app_is_given_up_after_a_day_and_a_half(store, add_app, send, seconds, enter):
    """So are all its messages, of which none was tried as often; the list of apps has them."""
    uri = "https://dead.example/logout"
    dead, deleted = add_app("Dead <b>", uri), add_app("Deleted", uri, WIKI)
    seconds.took = {"dead": 99}
    for each in (dead, dead, dead, deleted):
        put(store, each, "a")
    hours = 0
    while waiting(store):
        send()
        seconds.shift(1200)
        hours += 1 / 3
        assert hours < 42 and (hours > 35 or len(waiting(store)) == 4)
    given_up = store.records(OUTBOX).page("queue", given_up_of(LOGOUT))
    assert {each.problem for each in given_up} == {"It could not be reached (TimeoutError)."}
    assert len(given_up) == 4 and seconds.spent["dead"] < 5 * 50
    assert store.records(OUTBOX).count_between("app", dead.id, dead.id) == 0  # none waits
    edit(store.records(OUTBOX), given_up[2].id, problem="The newest.")
    store.clients.delete(deleted.id)
    [row] = parse(enter("Boss", ADMINISTRATOR).get("/admin/apps")).select("ul.rows li")
    assert re.fullmatch(r"Dead <b>[34]. hours ago\. The newest\.", row.text)
    seconds.shift(31 * 86_400)
    assert "Not told" not in enter("Other", ADMINISTRATOR).get("/admin/apps").text


def test_slow_apps_of_one_member_have_their_share_of_time(store, add_app, bob, send, seconds):
    """Others are told at once; and a member with some dead apps has another told at once."""
    slow = [add_app(f"Slow{number}", owner_id=bob.id) for number in range(8)]
    good = add_app("Good", callback=WIKI)
    seconds.took = dict.fromkeys(("slow0", "slow1", "slow2"), 99)
    seconds.took |= {f"slow{number}": 1.9 for number in range(3, 8)}
    for each in (*slow, good):
        put(store, each, "a")
    send()
    assert seconds.hosts() == ["slow3", "good"]
    for minute in range(30):
        put(store, good, "a")
        for _ in range(20):
            seconds.shift(3)
            send()
        assert seconds.spent.total() - seconds.spent["good"] <= 6 + 5 + (seconds.now - 1000) / 30
        assert seconds.spent["good"] == pytest.approx(0.01 * (minute + 2))
    assert {*seconds.hosts()} == {"good", *(f"slow{number}" for number in range(3, 8))}


# -- the address of an app -------------------------------------------------------------------------


BAD = ("ftp://a.example/", "a.example", "https://a:b@a.example/", "https://a.example/#x")
BAD += ("https://a.example/a b", f"https://a.example/{'x' * 2000}", "javascript:alert(1)")
BAD += ("https://a.example/<b>", "https://a.example:25/")


def test_form_takes_an_address_and_mends_what_is_pasted(store, adas_browser, ada, enter, add_app):
    forum = add_app("Forum", "https://old.example/", owner_id=ada.id)
    path, boss = f"/developer/{forum.id}", enter("Boss", ADMINISTRATOR)

    def save(browser, uri: str):
        form = {"name": "Forum", "redirect_uris": FORUM, "who": "everybody"}
        return browser.post(path, data=form | {"backchannel_logout_uri": uri})

    def kept() -> str:
        return store.clients.read(forum.id).backchannel_logout_uri

    shown = parse(adas_browser.get(path)).select_one("details #backchannel_logout_uri")
    assert shown["value"] == "https://old.example/"
    for uri in (*BAD, "http://a.example/"):
        page = save(adas_browser, uri)
        assert page.status_code == 400 and "backchannel_logout_uri" in problems_of(page), uri
    assert kept() == "https://old.example/"
    for pasted in ("https://a.example/x", " <https://a.example/x>\n", "\u200bhttps://a.example/x."):
        assert save(adas_browser, pasted).status_code == 303 and kept() == "https://a.example/x"
    edit(store.clients, forum.id, owner_id=None)
    assert save(boss, "http://forum:8080/out").status_code == 303
    assert "http://forum:8080/out is not encrypted" in text_of(boss.get(path))
    edit(store.clients, forum.id, owner_id=ada.id)  # what it has is not checked again
    assert save(adas_browser, "http://forum:8080/out").status_code == 303
    assert save(adas_browser, "").status_code == 303 and kept() == ""


def test_command_takes_the_same_addresses(store, ada, folders, environment):
    environment.setenv("IDENTITY_DATA_DIR", folders[0])
    environment.setenv("IDENTITY_PICTURE_DIR", folders[1])
    run = functools.partial(CliRunner().invoke, identity_server_command)
    add = ["client", "add", "Forum", "--redirect-uri", FORUM, "--json", "--backchannel-logout-uri"]
    for uri in BAD:
        assert "backchannel" in run([*add, uri]).stderr, uri
    assert "https://" in run([*add, "http://a.example/", "--owner", "Ada"]).stderr
    shown = json.loads(run([*add, "<http://forum:8080/out>"]).stdout)
    assert shown["backchannel_logout_uri"] == "http://forum:8080/out"
    change = ["client", "set", shown["client_id"], "--json", "--backchannel-logout-uri"]
    assert json.loads(run([*change, ""]).stdout)["backchannel_logout_uri"] == ""


def test_page_of_a_program_may_name_the_address(store, adas_browser, monkeypatch):
    name, page = next(iter(programs.find_program_pages().items()))
    page = re.sub("^- Back-channel.*\n", "", page, flags=re.MULTILINE)
    line = f"- Back-channel logout: `{programs.read_page(page).address}/out`\n\n## Settings"
    page = page.replace("\n## Settings", line, 1)
    monkeypatch.setattr(programs, "find_program_pages", lambda: {name: page})
    for scheme, expected in (("https", "https://a.example/x/out"), ("http", "")):
        form = {"kind": "program", "program": name, "address": f"{scheme}://a.example/x/"}
        assert adas_browser.post("/developer", data=form).status_code == 201
        [client] = map(store.clients.read, store.clients.ids())
        assert client.backchannel_logout_uri == expected
        store.clients.delete(client.id)
