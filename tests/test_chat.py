"""The webhook that tells the community's chat what happens, and its outbox."""

import contextlib
import functools
import hashlib
import hmac
import http.server
import json
import socket
import ssl
import subprocess
import threading
import time
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from forms import edit
from mail_server import silent_address
from pseudo import catalogue_in, catalogue_of

from identity.acts import apps as app_acts
from identity.acts import chat as chat_acts
from identity.acts import reports as report_acts
from identity.acts.actors import COMMAND, Actor, Authority
from identity.messages import webhook as webhooks
from identity.messages.outbox import CHAT, Channel, NotSent, Sender, announce
from identity.messages.webhook import Chat as ChatChannel
from identity.messages.webhook import check_address, deliver, is_public_address
from identity.site.clock import check_clock
from model.kinds import OUTBOX, WEBHOOKS, given_up_of, queue_of
from model.records import ADMINISTRATOR, MODERATOR, now_ms
from model.site_records import Message, Webhook
from model.words import say

PATH = "/admin/chat"
SITE = "https://id.example.org"
EVENTS = ["player", "report", "game", "listed", "suspension"]


class Chat:
    """A chat on this machine that keeps what it is sent, and responds as it is told."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.received: list[tuple[dict, bytes]] = []
        self.status, self.headers, self.drip = 204, {}, 0.0
        chat = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                chat.received.append((dict(self.headers), body))
                with contextlib.suppress(OSError):
                    if chat.drip:
                        for _ in range(40):
                            self.wfile.write(b"H")
                            time.sleep(chat.drip)
                    self.send_response(chat.status)
                    for each in chat.headers.items():
                        self.send_header(*each)
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        # The poll is how long the end of a test waits.
        serve = functools.partial(self.server.serve_forever, poll_interval=0.01)
        threading.Thread(target=serve, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def chat():
    chat = Chat()
    yield chat
    chat.close()


@pytest.fixture
def tell(storage, chat):
    """A function that connects the storage to the chat, in a format, and returns the sender."""

    def tell(format_name: str = "json", events: list[str] = EVENTS):
        url = f"http://127.0.0.1:{chat.port}/hook?x=1"
        storage.records(WEBHOOKS).add(Webhook("chat", 5, url, format_name, events, "the key"))
        return Sender(storage, ChatChannel(storage, SITE, True, "en"))

    return tell


CLAIM = 60_000  # milliseconds, as on a database


def waiting(storage) -> list:
    return storage.records(OUTBOX).page("queue", queue_of(CHAT))


def given_up(storage) -> list:
    return storage.records(OUTBOX).page("queue", given_up_of(CHAT))


def make_due(storage) -> None:
    for each in waiting(storage):
        edit(storage.records(OUTBOX), each.id, due=now_ms())


# -- sending --------------------------------------------------------------------------------------


def test_signed_json_is_delivered_once(storage, chat, tell):
    sender = tell()
    announce(storage, "player", "New player: Ada.", "/users/7")
    [message] = waiting(storage)
    sender.send_due(0)
    sender.send_due(0)
    assert waiting(storage) == []
    [(headers, body)] = chat.received
    assert json.loads(body) == {
        "id": message.id,
        "event": "player",
        "time": message.created,
        "site": SITE,
        "text": "New player: Ada.",
        "url": f"{SITE}/users/7",
    }
    stamp = headers["X-Identity-Timestamp"]
    signed = hmac.new(b"the key", f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["X-Identity-Signature"] == f"sha256={signed}"
    assert abs(int(stamp) - time.time()) < 60


def test_names_mention_and_format_nothing_in_discord(storage, chat, tell):
    sender = tell("discord")
    announce(storage, "player", "New player: @everyone _x_ [a](b) <@1> https://a.b.", "/users/7")
    sender.send_due(0)
    [(_, body)] = chat.received
    sent = json.loads(body)
    assert sent["allowed_mentions"] == {"parse": []}
    assert sent["content"] == (
        "New player: \\@everyone \\_x\\_ \\[a\\]\\(b\\) \\<\\@1\\> https\\://a.b. "
        "<https://id.example.org/users/7>"
    )


def test_only_chosen_events_are_told_and_a_full_outbox_drops_them(storage, tell, monkeypatch):
    monkeypatch.setattr("identity.messages.outbox.MOST_CHAT_MESSAGES", 2)
    tell(events=["report"])
    for event, number in (("player", 0), ("report", 1), ("report", 2), ("report", 2)):
        announce(storage, event, "x", "/")
        assert len(waiting(storage)) == number


def test_failed_message_is_tried_again_and_then_given_up(storage, chat, tell, subtests):
    sender, chat.status = tell(), 500
    announce(storage, "player", "x", "/")
    for number, delay in enumerate(ChatChannel.delays):
        with subtests.test(number=number):
            sender.send_due(0)
            [message] = waiting(storage)
            assert message.tries == number + 1
            assert message.problem == "It answered with the status 500."
            assert delay * 1000 - 5000 < message.due - now_ms() <= delay * 1000
            sender.send_due(0)  # not yet
            assert len(chat.received) == number + 1
            make_due(storage)
    sender.send_due(0)
    [message] = given_up(storage)
    assert waiting(storage) == [] and message.problem
    chat.status = 200
    storage.users.register("Boss", "", "", ADMINISTRATOR)
    chat_acts.send_again(Authority(storage, Actor(1)))
    sender.send_due(0)
    assert waiting(storage) == given_up(storage) == []


def test_chat_may_ask_to_wait(storage, chat, tell):
    sender, chat.status, chat.headers = tell(), 429, {"Retry-After": "30"}
    announce(storage, "player", "x", "/")
    announce(storage, "player", "y", "/")
    sender.send_due(0)
    first, second = waiting(storage)
    assert first.tries == second.tries == 0 and 25_000 < first.due - now_ms() <= 30_000
    sender.send_due(0)
    assert len(chat.received) == 1  # the second waits as well
    chat.status = 204
    make_due(storage)
    Sender(storage, ChatChannel(storage, SITE, True, "en")).send_due(0)  # the time has passed
    assert waiting(storage) == [] and len(chat.received) == 3


def test_date_of_the_response_is_compared_with_our_clock(storage, chat, tell):
    sender, handler, told = tell(), chat.server.RequestHandlerClass, []
    for ahead in (0, 3600, 0):
        date = formatdate(time.time() - ahead, usegmt=True)
        handler.date_time_string = lambda _, date=date: date
        announce(storage, "player", "x", "/")
        sender.send_due(0)
        told.append([each.problem for each in check_clock(storage)])
    assert told[0] == told[2] == [] and "1 hour ahead of that of the webhook" in told[1][0]


def test_redirect_is_not_followed(storage, chat, tell):
    sender, chat.status = tell(), 302
    chat.headers = {"Location": f"http://127.0.0.1:{chat.port}/elsewhere"}
    announce(storage, "player", "x", "/")
    sender.send_due(0)
    assert "status 302" in waiting(storage)[0].problem and len(chat.received) == 1


@pytest.mark.live
def test_slow_response_ends_after_five_seconds(storage, chat, tell, monkeypatch):
    """Each byte comes soon enough; the limit is one of the whole message."""
    monkeypatch.setattr(webhooks, "TIMEOUT", 1)
    sender, chat.drip = tell(), 0.3
    announce(storage, "player", "x", "/")
    started = time.monotonic()
    sender.send_due(0)
    assert time.monotonic() - started < 4
    assert "could not be reached" in waiting(storage)[0].problem


def test_message_of_a_killed_sender_is_sent_by_another(storage, chat, tell):
    sender = tell()
    announce(storage, "player", "x", "/")

    class Dying(Channel):
        name = CHAT

        def send(self, message: Message) -> None:
            raise SystemExit

    with pytest.raises(SystemExit):
        Sender(storage, Dying()).send_due(CLAIM)
    sender.send_due(CLAIM)
    assert chat.received == []  # it may still be sending
    [message] = waiting(storage)
    assert 0 < message.claimed - now_ms() <= CLAIM
    sender.send_due(0)  # where one process sends, the one before has ended
    assert len(chat.received) == 1


def test_messages_that_wait_long_hold_up_no_newer_one(storage, chat, tell):
    """The chat is there again, and what failed before is due in hours."""
    sender, outbox = tell(), storage.records(OUTBOX)
    for _ in range(300):
        announce(storage, "player", "x", "/")
    for each in waiting(storage):
        with outbox.edit(each.id) as message:
            message.due += 3_600_000
    announce(storage, "player", "new", "/")
    sender.send_due(0)
    assert [json.loads(body)["text"] for _, body in chat.received] == ["new"]


def test_outbox_that_cannot_be_saved_fails_nobody(store, caplog):
    store.records(WEBHOOKS).add(Webhook("chat", 5, "https://x.example/", "json", EVENTS, "k"))
    folder = Path(store.layout.path("outbox"))
    folder.rmdir()
    folder.touch()
    announce(store, "player", "x", "/")
    assert "a message is dropped" in caplog.text


# -- the address ----------------------------------------------------------------------------------


def test_address_inside_a_network_is_refused():
    inside = (
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "2001:db8::1"),
        *("::ffff:8.8.8.8", "::ffff:127.0.0.1", "::8.8.8.8", "64:ff9b::808:808", "2002:808:808::"),
        *("2001:0:808:808::", "64:ff9b:1::808:808", "::ffff:0:808:808"),
        *("fec0::1", "3fff::1", "2001:1::1", "192.0.0.9", "192.88.99.1"),
    )
    assert [each for each in inside if is_public_address(each)] == []
    assert all(map(is_public_address, ("8.8.8.8", "162.159.128.233", "2606:4700::1111")))


def test_bad_addresses_are_refused(monkeypatch):
    found = {"good.example": ["8.8.8.8"], "mixed.example": ["8.8.8.8", "10.0.0.1"]}

    def resolve(host, port, **_):
        if host not in found:
            raise socket.gaierror
        return [(socket.AF_INET, 1, 6, "", (each, port)) for each in found[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert check_address("https://good.example/x?y=1", private=False) is None
    for url in (
        *("", "good.example", "http://good.example/", "ftp://good.example/", "https:///x"),
        *("https://mixed.example/", "https://gone.example/", "https://a:b@good.example/"),
        *("https://good.example:0/", "https://good.example:99999/", "https://good.example/ä"),
        *("https://good.example/\nHost: x", f"https://good.example/{'x' * 500}", "https://[::1/"),
    ):
        assert check_address(url, private=False), url
    assert check_address("http://mixed.example/", private=True) is None


def test_address_is_checked_again_at_each_message(storage, chat, tell):
    """The setting was turned off, or the name leads elsewhere since."""
    tell()
    announce(storage, "player", "x", "/")
    Sender(storage, ChatChannel(storage, SITE, False, "en")).send_due(0)
    assert "https" in waiting(storage)[0].problem and chat.received == []
    with pytest.raises(NotSent, match="private network"):
        deliver("https://127.0.0.1/", False, b"", {})


def test_next_address_of_a_host_is_tried(chat, monkeypatch, subtests):
    """The first one refuses, has no route, or is silent."""
    monkeypatch.setattr(webhooks, "TIMEOUT", 3)
    with silent_address(chat.port) as silent:
        for address in ("127.0.0.3", "::1", "fe80::1", silent):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            found = [
                (family, 1, 6, "", (address, chat.port)),
                (2, 1, 6, "", ("127.0.0.1", chat.port)),
            ]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, found=found, **__: found)
            url = f"http://chat.example:{chat.port}/"
            with subtests.test(address):
                assert deliver(url, True, b"{}", {})[0] == 204
            with subtests.test(address, alone=True), monkeypatch.context() as patch:
                patch.setattr(socket, "getaddrinfo", lambda *_, found=found, **__: found[:1])
                with pytest.raises(NotSent, match="could not be reached"):
                    deliver(url, True, b"{}", {})
            with subtests.test(address, private=False), pytest.raises(NotSent):
                deliver(url, False, b"{}", {})


def test_host_header_is_that_of_the_address(subtests):
    for url, host in (
        ("http://chat.example/", "chat.example"),
        ("http://chat.example:8080/", "chat.example:8080"),
        ("http://chat.example:443/", "chat.example:443"),
        ("http://[2606:4700::1111]/", "[2606:4700::1111]"),
    ):
        with subtests.test(url):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                theirs.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                assert webhooks.exchange(ours, urlsplit(url), b"{}", {})[0] == 204
                assert f"\r\nHost: {host}\r\n" in theirs.recv(4096).decode()


@pytest.mark.live
def test_certificate_of_another_name_is_refused(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-keyout", key, "-out", certificate, "-subj", "/CN=other.example"]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    chat = Chat(context)
    url = f"https://localhost:{chat.port}/"
    with pytest.raises(NotSent, match="CERTIFICATE_VERIFY_FAILED"):
        deliver(url, True, b"{}", {})
    chat.close()
    assert chat.received == []


def told(store) -> list[tuple[str, str]]:
    """Return the events and texts in the outbox, and empty it."""
    found = []
    for each in store.records(OUTBOX).page("queue", queue_of(CHAT)):
        found.append((each.event, json.loads(each.body)["text"]))
        store.records(OUTBOX).delete(each.id)
    return found


def test_chat_has_the_language_of_the_site(store, tmp_path):
    webhook = Webhook("chat", 5, SITE, "discord", EVENTS, "k")
    store.records(WEBHOOKS).add(webhook)
    announce(store, "player", say("New player: %(name)s.", name="Grace"), "/users/7")
    [message] = store.records(OUTBOX).page("queue", queue_of(CHAT))
    german = catalogue_of({"New player: %(name)s.": "Neu dabei: %(name)s."})
    with catalogue_in(tmp_path, "de", german):
        body, _ = webhooks.content_of(webhook, SITE, message, "de")
    assert "Neu dabei: Grace." in json.loads(body)["content"]


def test_acts_tell_the_chat(app, store, enter, add_players):
    app.config["SIGN_UP"] = "open"
    store.records(WEBHOOKS).add(Webhook("chat", 5, "https://x.example/", "json", EVENTS, "k"))
    boss = enter("Boss", ADMINISTRATOR)
    form = {"name": "Grace", "email": "", "password": "three random words"}
    boss.get("/sign-up")
    assert app.test_client().post("/sign-up", data=form).status_code == 303
    grace = store.users.find_by_login("Grace")
    assert told(store) == [("player", "New player: Grace.")]
    [warden, bob] = add_players("Warden", mod_level=MODERATOR) + add_players("Bob")
    by = Authority(store, Actor(bob.id))
    report_acts.report(by, grace, "spam", "Secret words.")
    report_acts.report(by, warden, "spam", "")  # only administrators read it
    assert told(store) == [("report", "Grace was reported: Spam.")]
    fields = {"name": "Kart", "redirect_uris": [], "game_url": "https://kart.example/"}
    game, _ = app_acts.register_client(by, bob.id, True, **fields)
    for number in range(40):  # a member who wants to fill the channel
        url = None if number % 2 == 0 else f"https://kart{number}.example/"
        app_acts.change_client(by, game.id, game_url=url)
    found = told(store)
    assert set(found) == {("game", "Kart waits to be listed.")} and len(found) == 10
    for listed in (True, True, False, True):
        app_acts.set_listed(Authority(store, Actor(warden.id)), game.id, listed)
    assert told(store) == [("listed", "A new game is on the home page: Kart.")] * 2
    own, _ = app_acts.register_client(
        Authority(store, COMMAND), None, **fields | {"name": "Chess", "game_url": None}
    )
    assert told(store) == []  # it is no game yet
    app_acts.change_client(Authority(store, COMMAND), own.id, game_url="https://chess.example/")
    app_acts.change_client(Authority(store, COMMAND), own.id, description="For two.")
    assert told(store) == [("listed", "A new game is on the home page: Chess.")]
    boss.post(f"/users/{grace.id}/suspend", data={"length": "1 week", "reason": "Private."})
    assert told(store) == [("suspension", "Boss suspended Grace for 7 days.")]


# -- the page -------------------------------------------------------------------------------------


def save(browser, seen: int = 0, **fields):
    form = {"url": "https://chat.example/secret", "format": "json", "events": ["player"]}
    return browser.post(PATH, data=form | {"seen": seen} | fields)


@pytest.fixture
def boss(enter, monkeypatch):
    """The browser of an administrator; every host is on the internet."""
    address = [(socket.AF_INET, 1, 6, "", ("8.8.8.8", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: address)
    return enter("Boss", ADMINISTRATOR)


def test_secrets_are_shown_once_or_never(store, boss):
    page = save(boss)
    key = store.records(WEBHOOKS).read("chat").key
    assert (page.status_code, page.text.count(key), "/secret" in page.text) == (201, 1, False)
    page = boss.get(PATH)
    assert "chat.example" in page.text and "/secret" not in page.text and key not in page.text
    changed = store.records(WEBHOOKS).read("chat").changed
    assert save(boss, changed, url="", events=["report"]).status_code == 303
    kept = store.records(WEBHOOKS).read("chat")
    assert (kept.url, kept.key, kept.events) == ("https://chat.example/secret", key, ["report"])
    page = boss.post(f"{PATH}/key", data={"seen": kept.changed})
    assert page.status_code == 201 and store.records(WEBHOOKS).read("chat").key in page.text
    kept = store.records(WEBHOOKS).read("chat")
    assert boss.post(f"{PATH}/remove", data={"seen": kept.changed}).status_code == 303
    assert store.records(WEBHOOKS).ids() == []
    assert not any("secret" in str(line) for line in store.audit.read())


def test_first_webhook_of_two_is_kept(store, boss, monkeypatch):
    """Both administrators look before the first one saves. And no key is made for no webhook."""
    assert boss.post(f"{PATH}/key", data={"seen": 0}).status_code == 409
    assert store.records(WEBHOOKS).ids() == []
    save(boss)
    monkeypatch.setattr("identity.acts.chat.find_webhook", lambda _: None)
    assert save(boss, events=["report"]).status_code == 409
    assert store.records(WEBHOOKS).read("chat").events == ["player"]


def test_test_message_is_sent_whatever_is_chosen(store, boss):
    save(boss)
    assert boss.post(f"{PATH}/test").status_code == 303
    assert [event for event, _ in told(store)] == ["test"]
