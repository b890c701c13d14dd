"""Letters: the dialogue with a mail server, and what the outbox does after each of its replies."""

import base64
import contextlib
import functools
import io
import re
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
from email import message_from_bytes
from email.header import decode_header, make_header
from email.policy import SMTP
from email.utils import getaddresses
from pathlib import Path

import pytest
from aiosmtpd.smtp import AuthResult
from conftest import on_each_backend
from forms import edit, race
from mail_server import (
    CUT,
    SECRET,
    SILENCE,
    USER,
    MailServer,
    TimeLimit,
    scripted_server,
    silent_address,
    text_of_letter,
)
from markupsafe import escape
from PIL import Image
from pseudo import catalogue_in, catalogue_of
from waiting import PATIENCE

from identity.access.mail_channel import UNCONFIRMED_AN_HOUR, Mail, count_unconfirmed_letter
from identity.messages import mail, smtp
from identity.messages.letter import Letter
from identity.messages.mail import new_mailer, send_test
from identity.messages.outbox import MAIL, Channel, Paused, Postponed, Refused, Sender, new_message
from identity.senders import Senders
from identity.site.clock import check_clock
from identity.site.look import colours_of
from identity.site.settings import SettingError, parse_smtp_url, read_settings
from model.errors import StorageFailed
from model.kinds import LOGOS, LOOKS, OUTBOX, given_up_of, waiting_queues
from model.records import User, now_ms
from model.site_records import Logo, Look
from model.words import say
from pages.kit.files import STATIC

CONFIG = {"SITE_NAME": "Zoë's Games", "MAIL_FROM": "players@games.example"}
CONFIG |= {"BASE_URL": "https://id.example.org", "LANGUAGE": "en"}
LETTER = Letter("Hello Zoë", ["Some <b>text</b>."], f"https://x.example/#{'a' * 200}", "Go on")
BROKEN = ["a@[", "=?utf-8?q??=@x.example", "=?utf-8?q?a=0D=0ABcc=3Ax?=@x.example", "a@ex!ample.org"]
BROKEN += [
    *("ada@example.org]1", "b.example!ada@c.example", "ada%b.example@c.example", "a@b..example")
]
BROKEN += ["a@bücher\u3002example", "\uff41da@example.org"]
CREDENTIALS = "us%40er:pass%3Aword%2F%25"


class NoStorage:
    """A storage of which nothing can be read: a letter then looks as the settings say."""

    def records(self, kind: object) -> None:
        raise StorageFailed("away")


compose = functools.partial(mail.compose, NoStorage(), language="en")


def config_of(url: str) -> dict:
    return CONFIG | {"SMTP_URL": url}


@pytest.fixture
def sender(storage, mail_server):
    return Sender(storage, Mail(storage, config_of(mail_server.url())))


@pytest.fixture
def put(storage):
    """A function that puts a letter into the outbox."""

    def put(to: str = "ada@example.org", good_for: int = 0) -> str:
        good_until = now_ms() + good_for * 1000 if good_for else 0
        time.sleep(0.002)  # ids of one millisecond have no order
        body = compose(CONFIG, to, LETTER)
        message = new_message(MAIL, "password", body, to=to, good_until=good_until)
        storage.records(OUTBOX).add(message)
        return message.id

    return put


def waiting(storage) -> list:
    outbox = storage.records(OUTBOX)
    return [each for queue in waiting_queues(MAIL) for each in outbox.page("queue", queue)]


def given_up(storage) -> list:
    return storage.records(OUTBOX).page("queue", given_up_of(MAIL))


def send_now(storage, sender) -> None:
    for each in waiting(storage):
        edit(storage.records(OUTBOX), each.id, due=now_ms())
    sender._paused_until = float("-inf")  # noqa: SLF001
    sender.send_due(0)


# -- the letter -----------------------------------------------------------------------------------


def test_letter_is_plain_and_html_with_nothing_encoded(storage, sender, mail_server, put):
    put()
    sender.send_due(0)
    [letter] = mail_server.letters
    assert letter["Auto-Submitted"] == "auto-generated"
    assert letter["From"] == "Zoë's Games <players@games.example>" and letter["Subject"]
    assert letter["Message-ID"].endswith("@games.example>")
    assert mail_server.greeting_name == "id.example.org"
    html = letter.get_body(("html",)).get_content()
    assert LETTER.link in text_of_letter(letter).splitlines()
    assert f'href="{LETTER.link}"' in html and "&lt;b&gt;" in html
    texts = [each for each in letter.walk() if each.get_content_maintype() == "text"]
    assert {each["Content-Transfer-Encoding"] for each in texts} == {"8bit"} and len(texts) == 2
    assert text_of_letter(letter).startswith("Hello,\n") and "<p>Hello,</p>" in html
    assert waiting(storage) == []
    assert smtp.own_name("http://127.0.0.1:8000") == "[127.0.0.1]"
    assert smtp.own_name("http://[::1]:8000") == "[IPv6:::1]"


@on_each_backend
def test_check_finds_nothing_wrong_with_a_letter_that_waits(storage, put):
    put()
    assert list(storage.verify()) == []


def test_no_line_of_a_long_reason_is_too_long(mail_server):
    """Servers refuse such a letter (RFC 5321 4.5.3.1.6): nobody would read of the suspension."""
    text = "A moderator took {} off the home page. The reason: {}."
    with contextlib.closing(new_mailer(config_of(mail_server.url()))) as mailer:
        for character in ('"', "😀"):
            reason = text.format(character * 60, character * 200)
            content = compose(CONFIG, "ada@example.org", LETTER._replace(text=[reason]))
            assert max(map(len, content.encode().split(b"\r\n"))) <= 998
            mailer.send("ada@example.org", content.encode())
            shown = text_of_letter(mail_server.letters[-1])
            assert reason.replace(" ", "") in re.sub(r"\s", "", shown)


def test_letter_looks_like_the_site_and_loads_nothing(storage, subtests):
    """The logo is a part of the letter: the door, also for one that is damaged, or the site's."""
    output, door = io.BytesIO(), Path(STATIC, "touch-icon.png").read_bytes()
    Image.new("RGBA", (256, 256), (255, 0, 0, 255)).save(output, "WEBP", lossless=True)
    logos = storage.records(LOGOS)
    logos.add(Logo(1, base64.b64encode(b"damaged").decode()))
    logos.add(Logo(2, base64.b64encode(output.getvalue()).decode()))
    looks = [Look("site", 1), Look("site", 1, accent="#7a3fb0", logo=1, name="Chess & <Friends>")]
    for look in (*looks, Look("site", 1, logo=2)):
        with subtests.test(logo=look.logo):
            storage.records(LOOKS).put(look)
            composed = mail.compose(storage, CONFIG, "ada@example.org", LETTER, "en", "Noor")
            message = message_from_bytes(composed.encode(), policy=SMTP)
            html = message.get_body(("html",)).get_content()
            [image] = [each for each in message.walk() if each.get_content_type() == "image/png"]
            assert re.findall(r'src="(.*?)"', html) == ["cid:" + image["Content-ID"].strip("<>")]
            assert "url(" not in html and "@import" not in html and "<link" not in html
            content = image.get_content()
            assert (content == door) == (look.logo != 2) and len(content) < 1000
            for theme in colours_of(look.accent):
                used = ("sky", "card", "ink", "frame", "leaf", "on-leaf", "soft")
                assert all(theme[each] in html for each in used)
            name = look.name or CONFIG["SITE_NAME"]
            assert message["From"].addresses[0].display_name == name
            assert f"<strong>{escape(name)}</strong>" in html and "<p>Hello Noor,</p>" in html
            assert text_of_letter(message).startswith("Hello Noor,\n\nSome <b>text</b>.")


def test_letter_in_another_language(tmp_path, subtests):
    """Its words, and what every letter says; a sentence without a translation stays English."""
    translated = {
        "A test of %(site)s": "%(site)s" + "からのテストメールです" * 9,
        "Some <b>text</b> of %(site)s.": "<b>%(site)s</b>の文章。",
        "Hello %(name)s,": "%(name)sさん、こんにちは。",
        "Set a new password": "新しいパスワード",
        "%(words)s:": "%(words)s：",
        "In another browser you also need this code: %(code)s": "コード: %(code)s",
        "If the button does not work, copy this address:": "このアドレスをコピー:",
    }
    site = "Zoë & Noor"
    subject = say("A test of %(site)s", site=site)
    text = say("Some <b>text</b> of %(site)s.", site=site)
    words, end = say("Set a new password"), (say("Was that you?"),)
    letter = Letter(subject, [text], "https://x.example/#a", words, "012345", end)
    for code, direction in (("ja", "ltr"), ("ar", "rtl")):
        with subtests.test(code), catalogue_in(tmp_path, code, catalogue_of(translated)):
            content = mail.compose(NoStorage(), CONFIG, "ada@b.example", letter, code, "Noor")
            head = content.partition("\r\n\r\n")[0]
            assert head.isascii() and max(map(len, head.split("\r\n"))) < 80
            message = message_from_bytes(content.encode(), policy=SMTP)
            assert message["Subject"] == "Zoë & Noor" + "からのテストメールです" * 9
            assert text_of_letter(message).split("\n\n") == [
                "Noorさん、こんにちは。",
                f"<b>{site}</b>の文章。",
                "新しいパスワード：\nhttps://x.example/#a",
                "コード: 012345",
                "Was that you?\n",
            ]
            html = message.get_body(("html",)).get_content()
            assert f'lang="{code}" dir="{direction}"' in html
            for each in ("Noorさん", "&lt;b&gt;Zoë &amp; Noor&lt;/b&gt;の", ">新しいパスワード<"):
                assert each in html
            assert "コード: 012345" in html and "このアドレスをコピー:" in html


def test_test_letter_is_in_the_language_of_the_site(tmp_path, mail_server):
    german = catalogue_of({"A test of %(site)s": "Ein Test von %(site)s"})
    config = config_of(mail_server.url()) | {"LANGUAGE": "de"}
    with catalogue_in(tmp_path, "de", german):
        send_test(NoStorage(), config, "ada@example.org")
    [letter] = mail_server.letters
    assert letter["Subject"] == "Ein Test von Zoë's Games"


def test_header_cannot_be_injected():
    for site in ("x\nBcc: eve@example.org", "x\r\n\r\nbody", "x\rBcc: eve@example.org"):
        with pytest.raises(ValueError):
            compose(CONFIG | {"SITE_NAME": site}, "ada@example.org", LETTER)
        with pytest.raises(ValueError):
            compose(CONFIG, "ada@example.org", LETTER._replace(subject=site))
    with pytest.raises(ValueError):
        compose(CONFIG, "ada@example.org\r\nBcc: eve@example.org", LETTER)


def test_sender_is_one_mailbox_whatever_the_site_is_called(subtests):
    """Also on Pythons whose `email` unquotes a name that it encodes, or decodes it once more."""
    names = ["Games", "Zoë", "游戏" * 30, "Games, Ltd", 'The "x" \\', "x@y.example"]
    ends = (",", ":", ";", " (", ")", " <", ">", ' "', "\\")
    names += ["a <b@c.example>", *(f"Zoë{each} b@c.example" for each in ends)]
    names += ["=?utf-8?q?a=2C?= b", "=?utf-8?q?=0D=0ABcc:_x?= ë", "=?utf-8?q?=3Cb@c.example=3E?="]
    for name in names:
        with subtests.test(name):
            letter = LETTER._replace(subject=f"{name} (1)")
            body = compose(CONFIG | {"SITE_NAME": name}, "ada@example.org", letter)
            head = body.partition("\r\n\r\n")[0].replace("\r\n ", " ")
            lines = dict(line.split(": ", 1) for line in head.split("\r\n"))
            [(encoded, address)] = getaddresses([lines["From"]])
            assert address == "players@games.example" and head.isascii()
            assert len(lines) == 8 and max(map(len, body.split("\r\n"))) < 998  # RFC 5322 2.1.1
            for value, shown in ((encoded, name), (lines["Subject"], f"{name} (1)")):
                assert str(make_header(decode_header(value))) == shown


def test_recipient_outside_ascii():
    """RFC 6531 has the local part as it is."""
    for to, header in {
        "ada@müller.example": "ada@xn--mller-kva.example",
        "zoë@b.c": "zoë@b.c",
    }.items():
        assert f"To: {header}\r\n" in compose(CONFIG, to, LETTER)


@pytest.mark.parametrize("extended", [True, False])
def test_letter_outside_ascii_needs_an_extension(storage, put, mail_server, extended, monkeypatch):
    monkeypatch.setattr(mail_server, "extended", extended)
    put("zoë@example.org")
    Sender(storage, Mail(storage, config_of(mail_server.url()))).send_due(0)
    assert mail_server.recipients == ["zoë@example.org"] * extended
    problems = [each.problem for each in given_up(storage)]
    assert ["outside ASCII" in each for each in problems] == [True] * (not extended)


def test_letter_that_cannot_be_removed_is_not_sent_again(storage, sender, mail_server, put):
    put()
    delete = type(storage.records(OUTBOX)).delete

    def fail(*_: object) -> None:
        raise StorageFailed("the disk")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(storage.records(OUTBOX)), "delete", fail)
        with pytest.raises(StorageFailed):
            sender.send_due(0)
    assert delete is type(storage.records(OUTBOX)).delete
    sender.send_due(0)
    assert len(mail_server.letters) == 1 and waiting(storage) == []


def test_address_that_breaks_the_rule_gets_no_letter(storage, sender, mail_server, put):
    """An earlier version may have stored it, and even composed the letter. It holds up no other."""
    injected = compose(CONFIG, "ada@example.org", LETTER).replace("ada@", "ada@example.org]1,a@")
    for number, address in enumerate(BROKEN, 1):
        with pytest.raises(ValueError):
            compose(CONFIG, address, LETTER)
        user = User(number, f"Ada {number}", address, "", email_verified=True)
        storage.users.insert(user)
        for body in ("", injected):
            kind = "password" if body else "recovery"
            message = new_message(MAIL, kind, body, to=address, good_until=2**60)
            storage.records(OUTBOX).add(message)
    put()
    sender.send_due(0)
    assert mail_server.recipients == ["ada@example.org"] and waiting(storage) == []
    problems = {each.problem for each in given_up(storage)}
    assert len(given_up(storage)) == 2 * len(BROKEN)
    assert all(each.startswith("No letter can be sent to") for each in problems)


def test_letter_with_other_headers_is_not_sent(mail_server, subtests):
    good = compose(CONFIG, "ada@example.org", LETTER)
    to = "To: ada@example.org"
    changes = [(to, f"{to}{end}Bcc: eve@example.org") for end in ("\r\n", "\n", "\r")]
    changes += [(to, f"{to}\r\n{to}"), (to, ""), (to, "To: eve@example.org"), ("Date", "Bcc")]
    changes += [(to, f"{to}, eve@example.org"), (to, f"{to},\r\n eve@example.org")]
    changes += [("Subject: ", "\r\nSubject: "), ("Subject: ", "Subject: x\r\n\r\n")]
    mailer = new_mailer(config_of(mail_server.url()))
    for old, new in changes:
        with subtests.test(new), pytest.raises(Refused, match="other headers"):
            mailer.send("ada@example.org", good.replace(old, new, 1).encode())
    folded = good.replace("To: ", "To:\r\n ", 1)  # as earlier versions wrote a long address
    mailer.send("ada@example.org", folded.encode())
    mailer.close()
    assert mail_server.recipients == ["ada@example.org"]


def test_recipient_is_sent_exactly_as_it_was_checked(mail_server, subtests):
    mailer = new_mailer(config_of(mail_server.url()))
    addresses = [f"a{each}b@example.org" for each in "#$&'*+-/=?^_`{|}~"]
    addresses += ["Ada@Example.ORG", "a=b=c?@example.org", "zoë@example.org", "आदा@b.example"]
    addresses += [f"{'a' * 64}@{'b' * 63}.{'c' * 63}.{'d' * 61}"]
    for address in addresses:
        with subtests.test(address):
            body = compose(CONFIG, address, LETTER)
            mailer.send(address, body.encode())
            assert mail_server.recipients[-1] == address and f"\r\nTo: {address}\r\n" in body
    mailer.close()


def test_domain_is_sent_as_idna_and_never_as_that_of_another_owner(mail_server):
    """IDNA 2003, as in Python's own codec, made "fass" of "faß"."""
    mailer = new_mailer(config_of(mail_server.url()))
    sent = ["ada@xn--mller-kva.example", "ada@xn--fa-hia.example", "ada@xn--mller-kva.example"]
    for address in ("ada@Müller.example", "ada@faß.example", sent[0]):
        mailer.send(address, compose(CONFIG, address, LETTER).encode())
    mailer.close()
    assert mail_server.recipients == sent == [each["To"] for each in mail_server.letters]


# -- replies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replies", "to", "connections"),
    [
        ({"gone@example.org": "550 No"}, "gone@example.org", 1),
        ({"gone@example.org": "550 No", "RSET": CUT}, "gone@example.org", 2),  # it hangs up
        # RFC 6531 3.4: the reply to MAIL may be about the address outside ASCII.
        ({"SMTPUTF8": "550 No"}, "zoë@example.org", 1),
    ],
)
def test_refused_letter_is_given_up_and_holds_up_no_other(
    storage, sender, mail_server, put, replies, to, connections
):
    mail_server.replies |= replies
    for each in (to, "ada@example.org"):
        put(each)
    sender.send_due(0)
    assert mail_server.recipients == ["ada@example.org"]
    assert mail_server.connections == connections
    [letter] = given_up(storage)
    assert "550 No" in letter.problem and waiting(storage) == []
    assert letter.tries == 1


def test_deferred_letter_is_tried_again_and_holds_up_no_other(storage, sender, mail_server, put):
    mail_server.replies["later@example.org"] = "450 Try later"
    for to in ("later@example.org", "ada@example.org"):
        put(to)
    sender.send_due(0)
    assert mail_server.recipients == ["ada@example.org"]
    for number, delay in enumerate((60, 300, 1800, 7200), 1):
        [letter] = waiting(storage)
        assert letter.tries == number and abs(letter.due - now_ms() - delay * 1000) < 5000
        send_now(storage, sender)
    assert waiting(storage) == [] and [each.tries for each in given_up(storage)] == [5]


def test_problem_of_the_installation_pauses_all(storage, sender, mail_server, put):
    mail_server.replies["MAIL"] = "550 No"
    for _ in range(3):
        put()
    sender.send_due(0)
    assert mail_server.connections == 1
    sender.send_due(0)
    assert mail_server.connections == 1  # still paused
    for _ in range(5):
        send_now(storage, sender)
    letters = waiting(storage)
    assert [each.tries for each in letters] == [0, 0, 0] and letters[0].problem
    mail_server.replies.clear()
    send_now(storage, sender)
    assert len(mail_server.letters) == 3 and waiting(storage) == given_up(storage) == []


def test_broken_dialogue_holds_up_no_other(storage, put, mail_server, monkeypatch, subtests):
    """As many as they are: after each pause one is begun that caused none, also of later queues."""
    broken = {"RCPT 421": "421 Closing", "RCPT cut": CUT, "RCPT silence": SILENCE}
    for name, reply in broken.items():
        with subtests.test(name), monkeypatch.context() as patch:
            patch.setattr(threading, "Timer", functools.partial(TimeLimit, mail_server))
            bad = [f"bad{number}@{name.split()[1]}.example" for number in range(2)]
            mail_server.replies = dict.fromkeys(bad, reply)
            ids = [put(each, good_for=3600) for each in bad]
            put("ada@example.org")
            sender = Sender(storage, Mail(storage, config_of(mail_server.url())))
            mail_server.recipients.clear()
            for _ in range(3):
                send_now(storage, sender)
            assert mail_server.recipients == ["ada@example.org"]
            for _ in range(2):
                send_now(storage, sender)
            sender.send_due(0)
            letters = [storage.records(OUTBOX).read(each) for each in ids]
            assert all(each.tries >= 1 and each.due > now_ms() + 50_000 for each in letters)
            paused = sender._paused_until  # noqa: SLF001
            assert paused < time.monotonic() + 10  # it grew with no further failure
            for each in ids:
                storage.records(OUTBOX).delete(each)


def test_letter_that_data_refuses_is_given_up(storage, sender, mail_server, put):
    """At once, or at the fifth try if that always breaks the dialogue."""
    mail_server.replies["DATA"] = "554 Looks like spam"
    put()
    sender.send_due(0)
    [letter] = given_up(storage)
    assert "554 Looks like spam" in letter.problem
    storage.records(OUTBOX).delete(letter.id)
    mail_server.replies["DATA"] = "421 Closing"
    put()
    tries = []
    for _ in range(6):
        send_now(storage, sender)
        tries += [each.tries for each in [*waiting(storage), *given_up(storage)]]
    assert tries == [0, 1, 2, 3, 4, 5]
    assert "421 Closing" in given_up(storage)[0].problem


def test_host_or_reply_that_python_cannot_decode_pauses_all(storage, put):
    put()
    ready = b"220 x\r\n250-x\r\n250 AUTH CRAM-MD5\r\n334 A\r\n535 No\r\n535 No\r\n"
    with scripted_server(ready, 30.0) as port:
        for place in (f"{CREDENTIALS}@127.0.0.1:{port}", "mail..example"):
            send_now(storage, Sender(storage, Mail(storage, config_of(f"smtp://{place}"))))
            [letter] = waiting(storage)
            assert "cannot be used" in letter.problem and letter.tries == 0


def test_date_in_the_greeting_is_compared_with_our_clock(storage, put):
    put()
    greeting = b"220 mail.example ESMTP Exim 4.96 Sat, 01 Jan 2000 10:00:00 +0000\r\n"
    with scripted_server(greeting, b"500 x\r\n" * 3, 30.0) as port:
        send_now(storage, Sender(storage, Mail(storage, config_of(f"smtp://127.0.0.1:{port}"))))
    [advice] = check_clock(storage)
    assert "days ahead of that of the mail server" in advice.problem


def test_endless_reply_is_not_kept_in_memory(storage, put):
    put()
    endless = [b"220-" + b"x" * 8000 + b"\r\n"] * 3000
    with scripted_server(*endless, 30.0) as port:
        tracemalloc.start()
        send_now(storage, Sender(storage, Mail(storage, config_of(f"smtp://127.0.0.1:{port}"))))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 5_000_000 and "ended the connection" in waiting(storage)[0].problem


def test_connection_cut_after_data_is_tried_again(storage, sender, mail_server, put):
    mail_server.cuts = 1
    put()
    send_now(storage, sender)
    assert waiting(storage)[0].tries == 0
    mail_server.replies["QUIT"] = "421 Too long"  # sends no letter again
    for _ in range(2):
        send_now(storage, sender)
        assert len(mail_server.letters) == 1 and waiting(storage) == []


def test_letter_that_always_breaks_the_connection_holds_up_no_other(sender, mail_server, put):
    mail_server.cuts = 1
    put("poison@example.org")
    put("ada@example.org")
    sender.send_due(0)
    sender._paused_until = float("-inf")  # noqa: SLF001
    sender.send_due(0)  # the first one is not due yet
    assert mail_server.recipients == ["ada@example.org"]


def test_pause_grows_to_a_minute(storage, put):
    sender, pauses = Sender(storage, Mail(storage, config_of("smtp://localhost:1"))), []
    put()
    for _ in range(8):
        send_now(storage, sender)
        pauses.append(round(sender._paused_until - time.monotonic()))  # noqa: SLF001
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    assert "cannot be reached" in waiting(storage)[0].problem


def test_good_links_go_before_notices(storage, sender, mail_server, put, clock):
    put(good_for=10)
    clock.shift(11)
    for number in range(30):
        put(f"notice{number}@example.org")
    put("link@example.org", good_for=3600)
    sender.send_due(0)
    assert mail_server.recipients[0] == "link@example.org"
    assert len(mail_server.recipients) == 31 and mail_server.connections == 1
    [letter] = given_up(storage)
    assert "expired" in letter.problem and letter.tries == 0


def test_slow_server_is_left_after_the_time_limit(storage, put, monkeypatch, subtests):
    """Silence, a byte now and then, in the greeting and later."""
    monkeypatch.setattr(smtp, "TIMEOUT", 1)
    ready = b"220 x\r\n250 x\r\n250 OK\r\n"
    for name, script in {
        "silent": [2.0 * PATIENCE],
        "slow greeting": [*[b"2", 0.3] * 400],
        "slow later": [ready, *[b"2", 0.3] * 400],
    }.items():
        with subtests.test(name), scripted_server(*script) as port:
            sender = Sender(storage, Mail(storage, config_of(f"smtp://127.0.0.1:{port}")))
            put()
            started = time.monotonic()
            send_now(storage, sender)
            assert time.monotonic() - started < PATIENCE
            problem = waiting(storage)[0].problem
            assert "longer than" in problem or "respond" in problem


def test_next_address_of_a_silent_host_gets_its_share_of_the_time(mail_server, monkeypatch):
    port = int(mail_server.url().rpartition(":")[2])
    with silent_address(port) as silent:
        found = [(socket.AF_INET, 1, 6, "", (each, port)) for each in (silent, "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        config = config_of(f"smtp+cleartext://mail.example:{port}")
        send_test(NoStorage(), config, "ada@example.org", timeout=6)
    assert mail_server.recipients == ["ada@example.org"]


@on_each_backend
def test_racing_senders_send_each_letter_once(storage, mail_server, put):
    """On a database each machine sends; on flat files one process does, but need not claim."""
    claim = storage.lead("outbox-mail") or 60_000
    for number in range(20):
        put(f"p{number}@example.org")
    channels = [Mail(storage, config_of(mail_server.url())) for _ in range(4)]
    race(*(functools.partial(Sender(storage, each).send_due, claim) for each in channels))
    assert len(mail_server.recipients) == len(set(mail_server.recipients)) == 20
    assert waiting(storage) == []


@on_each_backend
def test_racing_turns_of_strangers_are_as_many_as_may_be(storage):
    def claim() -> bool:
        with contextlib.suppress(Postponed):
            count_unconfirmed_letter(storage, UNCONFIRMED_AN_HOUR)
            return True
        return False

    assert sum(race(*[claim] * 40)) == UNCONFIRMED_AN_HOUR
    with pytest.raises(Postponed) as refusal:
        count_unconfirmed_letter(storage, UNCONFIRMED_AN_HOUR)
    assert 0 < refusal.value.due - now_ms() <= 3_600_000


@on_each_backend
def test_claimed_letter_is_left_to_its_sender(storage, sender, mail_server, put):
    put()
    [letter] = waiting(storage)
    edit(storage.records(OUTBOX), letter.id, claimed=storage.time() + 60_000)
    sender.send_due(120_000)
    assert mail_server.letters == []
    edit(storage.records(OUTBOX), letter.id, claimed=storage.time() - 1)  # the sender was killed
    sender.send_due(120_000)
    assert len(mail_server.letters) == 1 and waiting(storage) == []


def test_stop_waits_for_all_senders_together(open_installation, put, monkeypatch):
    """Of the mail server and the chat both may be silent."""

    class Silent(Channel):
        poll, delays = 0.01, [1]
        name, begun, released = MAIL, threading.Barrier(3), threading.Event()

        def send(self, message: object) -> None:
            self.begun.wait()
            self.released.wait()
            raise Paused("It is silent.")

    monkeypatch.setattr("identity.senders.STOP_TIMEOUT", 4)
    put()
    senders = Senders(open_installation(), [Silent(), Silent()])
    senders.start()
    Silent.begun.wait(PATIENCE)
    started = time.monotonic()
    senders.stop()
    assert 3.9 < time.monotonic() - started < 7.9
    Silent.released.set()
    senders.stop()


def test_one_process_sends_and_none_whose_folder_was_replaced(open_installation, tmp_path):
    first, second = open_installation(), open_installation()
    assert (first.lead("outbox-mail"), second.lead("outbox-mail")) == (0, None)
    assert first.lead("outbox-mail") == 0
    first.close()
    assert (second.lead("outbox-mail"), first.lead("outbox-mail")) == (0, None)
    (tmp_path / "instance").rename(tmp_path / "old")
    assert open_installation().lead("outbox-mail") == 0
    assert (first.lead("outbox-mail"), second.lead("outbox-mail")) == (None, None)


# -- TLS and credentials --------------------------------------------------------------------------


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A function that returns a key with its certificate, for a name."""

    def certificates(name: str) -> tuple[ssl.SSLContext, str]:
        folder = tmp_path_factory.mktemp("certificate")
        key, certificate = folder / "key.pem", folder / "cert.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        command += ["-keyout", key, "-out", certificate, "-subj", f"/CN={name}"]
        command += ["-addext", f"subjectAltName=DNS:{name}"]
        subprocess.run(command, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context, str(certificate)

    return certificates


def send_letter(url: str) -> list[str]:
    """Send a letter, and return the dialogue. Raises NotSent."""
    lines = []
    mailer = new_mailer(config_of(url), lines.append)
    try:
        mailer.send("ada@example.org", compose(CONFIG, "ada@example.org", LETTER).encode())
    finally:
        mailer.close()
        assert not any(SECRET in each or "dXNA" in each for each in lines)
    return lines


@pytest.mark.live
@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_credentials_are_sent_by_tls_alone(certificates, monkeypatch, scheme):
    context, path = certificates("localhost")
    server = MailServer(context, tls=scheme == "smtps", auth=True)
    try:
        with pytest.raises(Paused, match="certificate of the server is not valid"):
            send_letter(server.url(scheme, CREDENTIALS))
        monkeypatch.setenv("SSL_CERT_FILE", path)
        assert any("AUTH ***" in each for each in send_letter(server.url(scheme, CREDENTIALS)))
        assert len(server.letters) == 1
        with pytest.raises(Paused, match="refused the user and the password: 535"):
            send_letter(server.url(scheme, f"{CREDENTIALS}x"))
        with pytest.raises(Paused, match="refused the sender: 530"):
            send_letter(server.url(scheme))
    finally:
        server.close()


@pytest.mark.live
def test_certificate_of_another_name_is_refused(certificates, monkeypatch):
    context, path = certificates("other.example")
    monkeypatch.setenv("SSL_CERT_FILE", path)
    server = MailServer(context, auth=True)
    with pytest.raises(Paused, match="use the name in its certificate"):
        send_letter(server.url("smtp", CREDENTIALS))
    server.close()


def test_no_password_without_tls_but_to_loopback(monkeypatch):
    server = MailServer(auth=True)
    send_letter(server.url("smtp", CREDENTIALS))
    monkeypatch.setattr(smtp, "is_loopback", lambda host: False)
    with pytest.raises(Paused, match="offers no TLS"):
        send_letter(server.url("smtp", CREDENTIALS))
    server.close()
    assert server.connections == 2 and len(server.letters) == 1
    with pytest.raises(ValueError, match="has no TLS, so it takes no password"):
        parse_smtp_url("smtp+cleartext://ada:secret@mail.example")


def test_letters_leave_the_machine_by_tls_alone(storage, put, mail_server, monkeypatch, subtests):
    """Not offered, removed from the reply by somebody in between, refused, no EHLO at all."""
    put()
    with subtests.test("loopback"):
        assert "> STARTTLS" not in send_letter(mail_server.url())
    monkeypatch.setattr(smtp, "is_loopback", lambda host: False)
    ready, letter = b"220 x\r\n", compose(CONFIG, "ada@example.org", LETTER).encode()
    for name, script, words in (
        ("not offered", b"250-x\r\n250 8BITMIME\r\n", "offers no TLS"),
        ("removed", b"250-x\r\n250-8BITMIME\r\n250 XXXXXXXA\r\n", "offers no TLS"),
        ("refused", b"250-x\r\n250 STARTTLS\r\n454 Not now\r\n", "refused TLS: 454 Not now"),
        ("no EHLO", b"500 What?\r\n250 x\r\n", "offers no TLS"),
    ):
        with subtests.test(name), scripted_server(ready + script, 30.0) as port:
            lines = []
            mailer = new_mailer(config_of(f"smtp://127.0.0.1:{port}"), lines.append)
            with pytest.raises(Paused, match=words):
                mailer.send("ada@example.org", letter)
            assert not any(each.startswith("> MAIL") for each in lines)
    with subtests.test("the channel"):
        sender = Sender(storage, Mail(storage, config_of(mail_server.url())))
        sender.send_due(0)
        [letter] = waiting(storage)
        assert letter.tries == 0 and "smtp+cleartext://" in letter.problem
    with subtests.test("setting"):
        send_letter(mail_server.url("smtp+cleartext"))


def test_servers_sign_in_in_their_own_way(monkeypatch, subtests):
    """AUTH LOGIN without an initial response, names in small letters, the form of old servers."""

    async def login(self, server, args: list[str]) -> AuthResult:
        if len(args) > 1:
            await server.push("501 No initial response here")
            return AuthResult(success=False, handled=True)
        return await server.auth_LOGIN(server, args)

    monkeypatch.setattr(MailServer, "auth_LOGIN", login, raising=False)
    with contextlib.closing(MailServer(auth=True, without=("PLAIN",))) as server:
        send_letter(server.url("smtp", CREDENTIALS))
        assert len(server.letters) == 1
    rest = b"250 OK\r\n250 OK\r\n354 Go\r\n250 OK\r\n"
    for offer in ("AUTH login", "AUTH=LOGIN", "AUTH NTLM Login", "AUTH plain"):
        asks = b"334 VXNlcm5hbWU6\r\n334 UGFzc3dvcmQ6\r\n" if "plain" not in offer else b""
        hello = f"220 x\r\n250-x\r\n250 {offer}\r\n".encode()
        with (
            subtests.test(offer),
            scripted_server(hello + asks + b"235 OK\r\n" + rest, 5.0) as port,
        ):
            send_letter(f"smtp://{CREDENTIALS}@127.0.0.1:{port}")


def test_server_that_takes_no_password_as_we_send_it_is_named(subtests):
    for reply, names in (
        ("250-x\r\n250 AUTH NTLM", "offers: NTLM."),
        ("250-x\r\n250 AUTH gssapi XOAUTH2", "offers: GSSAPI XOAUTH2."),
        ("250-x\r\n250 AUTH", "offers: none."),
        ("250 x", "offers: none."),
        ("500 What?\r\n250 x", "offers: none."),
    ):
        script = f"220 x\r\n{reply}\r\n".encode()
        refusal = pytest.raises(Paused, match=f"PLAIN, LOGIN or CRAM-MD5.* {names}")
        with subtests.test(reply), scripted_server(script, 5.0) as port, refusal:
            send_letter(f"smtp://{CREDENTIALS}@127.0.0.1:{port}")


def test_server_without_extensions_gets_ascii(mail_server, monkeypatch, subtests):
    """RFC 6152 3: no other bytes without 8BITMIME. RFC 5321 3.2: some know HELO alone."""
    has_extension = smtp.Dialogue.has_extn
    monkeypatch.setattr(
        smtp.Dialogue, "has_extn", lambda *of: of[1] != "8bitmime" and has_extension(*of)
    )
    letter = LETTER._replace(text=["Zoë's letter = =3D."])
    content = compose(CONFIG, "ada@example.org", letter)
    with contextlib.closing(new_mailer(config_of(mail_server.url()))) as mailer:
        mailer.send("ada@example.org", content.encode())
    [arrived] = mail_server.letters
    assert arrived.as_bytes().isascii() and not content.isascii()
    text = text_of_letter(arrived)
    assert "Zoë's letter = =3D." in text and letter.link in text.splitlines()
    assert f'href="{letter.link}"' in arrived.get_body(("html",)).get_content()
    whole = smtp.in_ascii(content.encode()).decode()
    assert whole.partition("\r\n\r\n")[0] == content.partition("\r\n\r\n")[0]
    for hello in ("250 x", "500 What?\r\n250 x"):
        script = f"220 x\r\n{hello}\r\n250 OK\r\n250 OK\r\n354 Go\r\n250 OK\r\n".encode()
        with subtests.test(hello), scripted_server(script, 5.0) as port:
            assert "> data" in send_letter(f"smtp://127.0.0.1:{port}")


def test_url_of_the_server(environment):
    assert parse_smtp_url(f"smtps://{CREDENTIALS}@mail.example")[:] == (
        *("mail.example", 465, True),
        *(USER, SECRET, False),
    )
    assert parse_smtp_url("smtp://mail.example:25")[:3] == ("mail.example", 25, False)
    assert parse_smtp_url("smtp+cleartext://relay")[:3] == ("relay", 25, False)
    for url in (
        *("mail.example", "http://mail.example", "smtp://", "smtp://a b.example", "smtp://x/y"),
        *("smtp://ada@example.org:secret@x.example", "smtp://ada:sec#ret@x.example"),
        *("smtp://ada:secret\uff1a@x.example", "smtp://ada:secret@[x.example"),
        *("smtp://ada:secret%C3%BC@x.example", "smtp://ada:secret%ff@x.example"),
        *("smtp://ada:secret@x.example:99999", "smtp://ada@x.example", "smtp://x.example?a"),
    ):
        with pytest.raises(SettingError) as refusal:
            read_settings({"SMTP_URL": url, "MAIL_FROM": "a@b.example"})
        assert "secret" not in str(refusal.value) and "IDENTITY_SMTP_URL" in str(refusal.value)
    for sender in ("", "x", "zoë@b.example"):
        with pytest.raises(SettingError, match="IDENTITY_MAIL_FROM"):
            read_settings({"SMTP_URL": "smtp://localhost", "MAIL_FROM": sender})
