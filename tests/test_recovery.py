"""Getting back in by mail: confirmed addresses, lost passwords, and letters about changes."""

import functools
import json
import time
from collections.abc import Iterator
from urllib.parse import parse_qs

import fixtures
import pytest
from authenticator import add_passkey, use_passkey
from click.testing import CliRunner
from conftest import PASSWORD, Browser
from forms import edit, from_address, hidden_field, parse, problems_of, signed_in, text_of
from mail_server import code_in, link_in, text_of_letter
from pseudo import catalogue_in, catalogue_of

from identity.access import letters, links
from identity.access.links import CONFIRMATION, give_sign_in_link
from identity.access.mail_channel import Mail
from identity.access.passwords import hash_password, verify_password
from identity.acts import accounts, reports
from identity.acts.actors import COMMAND, Actor, Authority
from identity.acts.emails import CHOICES
from identity.messages.outbox import MAIL, Sender, new_message
from identity.site.settings import SETTINGS
from identity_admin import identity_server_command
from model.errors import EmailTaken, StorageFailed
from model.kinds import OUTBOX, PASSKEYS, REPORTS, waiting_queues
from model.records import ADMINISTRATOR, MODERATOR, Suspension, User
from pages.entry import recovery
from pages.kit.proof import PROOF_AGE
from storage.users import Users

NEW = "another good phrase"
EMAIL = "ada@example.org"
deliver = fixtures.deliver
BROKEN = [
    *("a@[", "ada@example.org]1", "=?utf-8?q?b=40c.example=00?=x@d.example"),
    "a%b.example@c.example",
]


@pytest.fixture
def app(make_app, mail_server):
    return make_app(
        SMTP_URL=mail_server.url(),
        MAIL_FROM="site@games.example",
        SIGN_UP="open",
        SIGN_UPS_AN_HOUR="100",
    )


@pytest.fixture
def ada(store):
    user = store.users.register("Ada", EMAIL, hash_password(PASSWORD))
    return store.users.change_email(user.id, EMAIL, verified=True)


@pytest.fixture
def request_letter(browser, deliver):
    """A function that asks for a letter in a browser, and returns its link and its code."""

    def request_letter(email: str = EMAIL, by: Browser = browser) -> tuple[str, str]:
        deliver()  # letters about what came before
        assert by.post("/recover", data={"email": email}).status_code == 303
        [text] = deliver()
        assert text.startswith("Hello ") and not text.startswith("Hello,")  # the address is known
        return link_in(text), code_in(text)

    return request_letter


def set_password(browser, **fields: str):
    return browser.post("/recover/password", data={"new_password": NEW} | fields)


def has_password(store, user, password: str) -> bool:
    return verify_password(store.users.read(user.id).password_hash, password)


# -- a lost password ------------------------------------------------------------------------------


def test_single_forms_focus_their_first_field(anyone):
    for path in ("/sign-in", "/recover"):
        soup = parse(anyone.get(path))
        assert soup.select("[autofocus]") == [soup.select_one("main input:not([type=hidden])")]


def test_link_works_in_the_browser_that_asked(store, ada, browser, open_browser, request_letter):
    other = signed_in(open_browser())
    link, _ = request_letter()
    assert link.startswith("http://localhost/recover#")
    page = browser.post("/recover/password", data={"link": link})
    assert page.status_code == 200 and not parse(page).select("[name=code]")
    assert has_password(store, ada, PASSWORD)
    assert set_password(browser, link=link).status_code == 303
    assert browser.get("/account").status_code == 200
    assert other.get("/account").status_code == 303  # all other sessions end
    assert has_password(store, ada, NEW)
    lines = [(each["act"], each["by"], each["user"]) for each in store.audit.read()]
    assert lines == [(f"user {act}", ada.id, ada.id) for act in ("recovery-link", "new-password")]


def test_code_works_without_the_link_in_the_browser_that_asked(store, ada, browser, request_letter):
    _, code = request_letter()
    assert set_password(browser, code=f"{code[:3]} {code[3:]}").status_code == 303
    assert has_password(store, ada, NEW)


def test_another_device_needs_link_and_code(store, ada, open_browser, request_letter):
    (link, code), phone = request_letter(), open_browser()
    page = phone.post("/recover/password", data={"link": link})
    assert parse(page).select("[name=code]") and page.status_code == 200
    for fields in ({"link": link}, {"link": link, "code": ""}, {"code": code}, {}):
        assert set_password(phone, **fields).status_code == 400, fields
    wrong = f"{(int(code) + 1) % 10**6:06d}"
    assert set_password(phone, link=link, code=wrong).status_code == 403
    assert has_password(store, ada, PASSWORD)
    assert set_password(phone, link=link, code=code).status_code == 303


def test_link_and_code_end_with_their_use_a_change_or_after_an_hour(
    store, ada, browser, open_browser, request_letter, clock, subtests
):
    def change_password() -> None:
        edit(store.users, ada.id, password_hash=hash_password("a third good phrase"))

    for name, end in {
        "used": lambda: set_password(browser, link=request_letter()[0]),
        "password": change_password,
        "an hour": lambda: clock.shift(links.LINK_MAX_AGE + 1),
        "address": lambda: store.users.change_email(ada.id, "new@example.org"),
    }.items():
        asked, phone = open_browser(), open_browser()
        link, code = request_letter(by=asked)
        moderators = links.issue_sign_in_link(store, "", store.users.read(ada.id)).partition("#")[2]
        end()
        before = store.users.read(ada.id).password_hash
        with subtests.test(name):
            ways = [(asked, {"link": link}), (phone, {"link": link, "code": code})]
            ways += [] if name == "address" else [(phone, {"link": moderators})]
            for by, fields in ways:
                page = set_password(by, **fields)
                assert page.status_code == 403 and "recognise this link" in page.text
            assert set_password(asked, code=code).status_code in (400, 403)
            assert store.users.read(ada.id).password_hash == before
        clock.shift(2 * links.LINK_MAX_AGE)  # with the limit of letters


def test_link_names_the_account_alone(store, ada, bob, browser, request_letter):
    """Nothing but the link names the account: no field, and no address that was typed here."""
    store.users.change_email(bob.id, bob.email, verified=True)
    link, code = request_letter(bob.email)
    for fields in ({"email": EMAIL}, {"name": "Ada", "user": str(ada.id)}, {"user_id": "1"}):
        set_password(browser, link=f"{link}x", **fields)
    browser.post("/recover", data={"email": EMAIL})  # this browser now asked for Ada's
    assert set_password(browser, code=code, email=EMAIL).status_code == 403
    assert set_password(browser, link=link, code=code, email=EMAIL).status_code == 303
    assert has_password(store, ada, PASSWORD) and has_password(store, bob, NEW)


def test_letters_go_to_the_confirmed_address(store, ada, browser, mail_server, deliver, bob):
    """The typed one may be that of another mailbox."""
    for typed in ("ADA@example.org", " ada@example.org"):
        browser.post("/recover", data={"email": typed})
    browser.post("/recover", data={"email": "Ada"})  # a name
    assert len(deliver()) == 2
    assert mail_server.recipients == [EMAIL] * 2
    browser.post("/recover", data={"email": bob.email})
    assert deliver() == [] and browser.get("/recover").status_code == 200


def test_codes_are_guessed_five_times(store, ada, browser, open_browser, request_letter):
    """Whoever knows an address could else keep its player out, who cannot ask for more letters."""
    link, code = request_letter()
    wrong = f"{(int(code) + 1) % 10**6:06d}"
    for typed, status in [(wrong, 403)] * links.CODE_TRIES + [(code, 429)]:  # in all browsers
        assert set_password(open_browser(), link=link, code=typed).status_code == status
    for _ in range(letters.LETTERS_AN_HOUR - 1):
        link, code = request_letter()
        statuses = [set_password(browser, code="1234567").status_code for _ in range(6)]
        assert statuses == [403] * links.CODE_TRIES + [429]
    assert has_password(store, ada, PASSWORD)
    assert set_password(open_browser(), link=link, code=code).status_code == 303
    assert has_password(store, ada, NEW)


def test_codes_of_a_player_are_guessed_so_often_a_day(ada, browser, monkeypatch):
    """Whoever asks for letters again and again guesses no more, and learns not who is known."""
    monkeypatch.setattr(letters, "LETTERS_AN_HOUR", 100)
    monkeypatch.setattr(letters, "LETTERS_OF_NETWORK", 100)
    for email in (EMAIL, "nobody@example.org"):
        statuses = []
        for _ in range(7):
            browser.post("/recover", data={"email": email})
            statuses += [set_password(browser, code="1234567").status_code for _ in range(4)]
        assert statuses == [403] * links.CODE_TRIES_A_DAY + [429] * 8


def test_suspended_player_gets_no_session_by_link_or_code(store, ada, browser, request_letter):
    link, code = request_letter()
    edit(store.users, ada.id, suspension=Suspension("command", reason="Insults"))
    moderators = links.issue_sign_in_link(store, "", ada).partition("#")[2]
    ways = ({"link": link}, {"code": code}, {"link": link, "code": code}, {"link": moderators})
    for fields in ways:
        page = set_password(browser, **fields)
        words = "You are suspended. The reason: Insults."
        assert (page.status_code, words in text_of(page)) == (403, True), fields
    page = browser.post("/recover/password", data={"link": moderators})
    assert words in text_of(page) and not parse(page).select("[name=new_password]")
    assert store.users.read(ada.id).suspended and has_password(store, ada, PASSWORD)
    store.users.delete(ada.id)
    assert {set_password(browser, **fields).status_code for fields in ways} == {403}
    assert browser.get("/account").status_code == 303


def test_response_does_not_tell_whether_an_address_is_known(store, ada, open_browser, clock):
    seen = set()
    for number, email in enumerate([EMAIL, "eva@example.org", "adx@example.org"]):
        browser = open_browser()
        browser.environ_base["REMOTE_ADDR"] = f"10.0.0.{number}"
        answer = browser.post("/recover", data={"email": email})
        page = browser.get("/recover")
        cookie = browser.get_cookie("identity_session").value
        seen.add((answer.status_code, answer.location, len(answer.data), len(cookie)))
        seen.add((page.status_code, page.text.replace(email, "X"), str(page.headers)))
        for _ in range(2):
            browser.post("/recover", data={"email": email})
        limited = browser.post("/recover", data={"email": email})
        assert "You can ask again in" in problems_of(limited)["email"]
        seen.add((limited.status_code, limited.text.replace(email, "X"), str(limited.headers)))
    assert len(seen) == 3


def test_typed_address_that_was_not_looked_up_in_time_is_forgotten(store, browser, deliver, clock):
    """The mail server was away. Administrators need not read what guests typed."""
    browser.post("/recover", data={"email": "eva@example.org"})
    clock.shift(links.LINK_MAX_AGE + 1)
    assert deliver() == [] and store.records(OUTBOX).ids() == []


def test_request_looks_nothing_up(ada, browser, monkeypatch):
    """So the time that it takes cannot tell who is known either."""

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Users, "find_by_login", fail)
    assert browser.post("/recover", data={"email": EMAIL}).status_code == 303


def test_time_of_a_letter_does_not_tell_who_is_known(ada, browser, deliver, mail_server):
    """Nobody is written to, but the dialogue begins, and the next letter waits as long."""
    mail_server.pauses["RCPT"] = 0.8  # seconds
    for number, email in enumerate((EMAIL, "eva@example.org"), 1):
        browser.post("/recover", data={"email": email})
        begun = time.monotonic()
        assert len(deliver()) == (email == EMAIL)
        assert time.monotonic() - begun > 0.8, email
        assert mail_server.connections == number
    assert mail_server.recipients == [EMAIL]


def test_server_that_is_away_does_not_tell_who_is_known(store, ada, app, browser):
    for email in (EMAIL, "eva@example.org"):
        browser.post("/recover", data={"email": email})
        config = app.config | {"SMTP_URL": "smtp://localhost:1"}
        Sender(store, Mail(store, config)).send_due(0)
    first, second = store.records(OUTBOX).page("queue", waiting_queues(MAIL)[0])
    assert first.problem == second.problem != ""
    assert first.body == second.body == ""


def test_letters_are_limited_by_network_and_mailbox(ada, open_browser):
    """A network that cannot be parsed is one, and a mailbox has many spellings."""

    def ask(*asked: tuple[str, str]) -> list[int]:
        browsers = [from_address(open_browser(), address) for _, address in asked]
        posts = zip(browsers, asked, strict=True)
        return [
            each.post("/recover", data={"email": email}).status_code for each, (email, _) in posts
        ]

    spellings = ("x@bücher.example", "x@xn--bcher-kva.example", "X@BÜCHER\u3002example")
    assert ask(*((EMAIL, f"10.0.0.{n}") for n in range(4))) == [303] * 3 + [429]
    same = enumerate([*spellings, "x@Bücher.example"])
    assert ask(*((email, f"10.0.2.{n}") for n, email in same)) == [303] * 3 + [429]
    assert ask(*((f"x{n}@example.org", "10.0.1.1") for n in range(11))) == [303] * 10 + [429]
    unknown = enumerate(["", "x", "?"] * 4)
    assert ask(*((f"y{n}@example.org", each) for n, each in unknown)) == [303] * 10 + [429] * 2
    # No spelling of another one, which a parser would make of it.
    assert ask(*((broken, "10.0.3.1") for broken in BROKEN)) == [400] * len(BROKEN)


def test_failed_tries_from_this_network_are_given_back(ada, browser, request_letter):
    for _ in range(10):
        browser.sign_in(password="wrong")
    assert browser.sign_in().status_code == 429
    link, _ = request_letter()
    assert set_password(browser, link=link).status_code == 303
    browser.post("/sign-out")
    assert browser.sign_in(password=NEW).status_code == 303


def test_page_of_a_link_says_and_changes_nothing(browser, store, ada, request_letter, faults):
    """A moderator's link opens the same page as that of a letter, and its text is the secret."""
    [form] = parse(browser.get("/recover")).select("form[data-link]")
    assert form.select("[data-opened]") and "email" not in form.text
    request_letter()
    before = faults.stored_text()
    for path in ("/recover", "/recover?again", "/confirm", "/recover/password"):
        for method in (browser.get, browser.head):
            method(path)
    assert faults.stored_text() == before


def test_link_of_a_moderator_works_anywhere_also_without_mail(make_app, tmp_path):
    app = make_app(DATA_DIR=str(tmp_path / "other"))
    store = app.extensions["storage"]
    user = store.users.register("Ada", "", hash_password(PASSWORD))
    link = give_sign_in_link(Authority(store, COMMAND), user.id, "http://localhost")
    browser = Browser(app, app.response_class)
    assert browser.get("/recover").status_code == 200
    assert set_password(browser, link=link).status_code == 303
    for path in ("/recover", "/confirm", "/account/email/confirm", "/account/email/letters"):
        assert browser.post(path).status_code == 404, path
    assert browser.get("/confirm").status_code == 404
    page = Browser(app, app.response_class).get("/sign-in")
    assert "Ask an administrator" in page.text and "/recover" not in page.text


# -- the way back to an app -----------------------------------------------------------------------

# As an app may encode it: what RFC 6749 A.5 has, and all else that is UTF-8.
STATES = [
    *("", "%00", "%0D%0Aa%0A", "+%2B%20", "%25%2526%26a%3Db%23", "%F0%9F%98%80e%CC%81", "a==&x=1")
]
STATES += ["%22%27%3C%3E", "[]{}|~!*'();", "%E2%80%A8%E2%80%AE%C2%85", "%zz%", "then=/x&next=/y"]
STATES += ["x" * 7600, "%F0%9F%98%80" * 630, "+" * 7600, "a=" * 3800, "%26" * 2500]
LINE_LENGTH = 8190 - len("GET  HTTP/1.1")  # characters of an address, for gunicorn and nginx
# The words of the link on the sign-in page
STEPS = {"sign in": None, "sign up": "Create an account"}
STEPS |= dict.fromkeys(("code", "link"), "Set a new one")


@pytest.fixture
def visit(app):
    """A function that returns a page in a browser, as it is sent over the network."""

    def visit(browser: Browser, address: str):
        assert len(address) <= LINE_LENGTH
        return browser.get(address)

    return visit


@pytest.fixture
def sign_in_by(ada, visit, deliver, clock):
    """A function that signs in from the sign-in page, and returns the response."""

    def sign_in_by(way: str, browser: Browser, page, number: int):
        if way != "sign in":
            links_shown = parse(page).select("main a")
            page = visit(browser, *(a["href"] for a in links_shown if a.text == STEPS[way]))
        field = {"next": hidden_field(page, "next")}
        if way == "sign in":
            return browser.sign_in(**field)
        if way == "sign up":
            form = {"name": f"Eva {number}", "email": "", "password": PASSWORD}
            return browser.post("/sign-up", data=form | field)
        clock.shift(links.LINK_MAX_AGE)  # with its limit of letters
        deliver()
        page = visit(browser, browser.post("/recover", data={"email": EMAIL, **field}).location)
        field["next"], [text] = parse(page).select("[name=next]")[0]["value"], deliver()
        proof = {"code": code_in(text)} if way == "code" else {"link": link_in(text)}
        if way == "link":  # in a new tab, where letter_link.js fills in `next`
            page = browser.post("/recover/password", data=proof | field)
            field["next"] = hidden_field(page, "next")
        return set_password(browser, **proof, **field)

    return sign_in_by


@pytest.mark.load
@pytest.mark.parametrize("way", STEPS)
def test_state_comes_back_unchanged(open_browser, register, visit, sign_in_by, subtests, way):
    """RFC 9700 4.7.1, of any length that a server takes, whichever pages are between."""
    forum = register("https://forum.example/in")
    for number, state in enumerate(STATES):
        browser = open_browser()
        browser.environ_base["REMOTE_ADDR"] = f"10.0.0.{number}"
        with subtests.test(state[:20]):
            answer = visit(browser, f"{forum.link()}&state={state}")
            answer = sign_in_by(way, browser, visit(browser, answer.location), number)
            if answer.location.startswith("/welcome?"):
                [link] = parse(visit(browser, answer.location)).select("main a.button:not(.second)")
                answer = visit(browser, link["href"])
            else:
                answer = visit(browser, answer.location)
            if answer.status_code == 200:
                assert len(hidden_field(answer, "next")) <= LINE_LENGTH  # for another account
                answer = browser.decide(answer)
            assert parse_qs(f"state={state}", True)["state"] == [
                forum.read_callback(answer)["state"]
            ]


def test_what_cannot_be_given_back_is_refused(store, ada, open_browser, register, subtests):
    """RFC 9700 4.7.1: it would be another text for the app, or be cut off."""
    forum, browser = register("https://forum.example/in"), open_browser()
    for state in ("%FF", "%ED%A0%80", "a%C3", "x" * 8000):
        with subtests.test(state[:20]):
            page = browser.get(f"{forum.link()}&state={state}")
            assert (page.status_code, page.location) == (400, None)
    assert browser.get(f"{forum.link()}&login_hint=%E9").status_code == 303


# -- confirming an address ------------------------------------------------------------------------


@pytest.fixture
def sign_up(open_browser):
    """A function that creates an account, and returns its browser."""

    def sign_up(name: str = "Eva", email: str = "eva@example.org") -> Browser:
        browser = open_browser()
        form = {"name": name, "email": email, "password": PASSWORD}
        assert browser.post("/sign-up", data=form).status_code == 303
        return browser

    return sign_up


@pytest.fixture
def eva(ada, sign_up):
    """The browser of a new player who has an address to confirm."""
    return sign_up()


def is_confirmed(store, name: str = "Eva") -> bool:
    return store.users.find_by_login(name).email_verified


def test_sign_up_asks_to_confirm_by_link_or_code(store, ada, sign_up, deliver, subtests):
    for name in ("Eva", "Kim", "Lea"):
        browser = sign_up(name, f"{name}@example.org")
        [text] = deliver()
        assert name not in text.replace(f"{name}@example.org", "")  # whoever signs up chose it
        fields = {"Eva": {"link": link_in(text)}, "Kim": {"code": code_in(text)}}
        fields["Lea"] = {"link": link_in(text), "code": code_in(text)}
        with subtests.test(name):
            assert not is_confirmed(store, name)
            assert browser.post("/confirm", data=fields[name]).status_code == 303
            assert is_confirmed(store, name)


def test_another_browser_confirms_with_the_code(store, eva, open_browser, deliver):
    """Else an attacker could sign up with the address of somebody who follows each link."""
    [text], phone = deliver(), open_browser()
    link, code = link_in(text), code_in(text)
    wrong = f"{(int(code) + 1) % 10**6:06d}"
    for fields, status in (
        *(({}, 400), ({"code": code}, 400), ({"link": link}, 400), ({"link": "x"}, 403)),
        ({"link": link, "code": wrong}, 403),
    ):
        assert phone.post("/confirm", data=fields).status_code == status, fields
    assert not is_confirmed(store)
    assert phone.post("/confirm", data={"link": link, "code": code}).status_code == 303
    assert is_confirmed(store)
    assert phone.get("/account").status_code == 303  # it signs nobody in
    assert eva.post("/confirm", data={"link": link}).status_code == 403  # used


@pytest.fixture
def sign_up_stranger(open_browser, clock):
    """Return a function that signs up a player in a network of their own, who need not wait."""

    def sign_up(number: int) -> Browser:
        clock.shift(1)  # ids of one millisecond have no order
        browser = open_browser()
        browser.environ_base["REMOTE_ADDR"] = f"10.0.{number}.1"
        form = {"name": f"Eva{number}", "email": f"eva{number}@example.org", "password": PASSWORD}
        assert browser.post("/sign-up", data=form).status_code == 303
        return browser

    return sign_up


def test_repeated_letters_hold_up_no_newcomer(ada, sign_up_stranger, deliver, mail_server, clock):
    browsers = [sign_up_stranger(number) for number in range(12)]
    assert len(deliver()) == 12
    for _ in range(3):
        clock.shift(3601)
        for browser in browsers:
            assert browser.post("/account/email/confirm").status_code == 303
        assert len(deliver()) == 10
    sign_up_stranger(12)
    assert len(deliver()) == 1 and mail_server.recipients[-1] == "eva12@example.org"


def test_strangers_get_so_many_letters_an_hour(
    store, ada, open_browser, sign_up_stranger, deliver, mail_server, clock, subtests
):
    """From as many networks as it may be. Others wait, and nobody who has confirmed waits."""
    browsers = [sign_up_stranger(number) for number in range(44)]
    open_browser().post("/recover", data={"email": EMAIL})
    store.users.delete(store.users.find_by_login("eva0").id)  # uses up no turn
    assert len(deliver()) == 21 and EMAIL in mail_server.recipients
    clock.shift(3590)
    browsers[1].post(
        "/account/email", data={"email": "eva@x.example", "current_password": PASSWORD}
    )
    assert deliver() == []
    with subtests.test("what waits has not failed"):
        letters = store.records(OUTBOX).page("queue", waiting_queues(MAIL)[0])
        assert {(each.tries, each.problem) for each in letters} == {(0, "")}
    clock.shift(11)
    texts = deliver()
    assert len(texts) == 20
    clock.shift(3590)  # a link is good from when it is sent
    link, code = link_in(texts[-1]), code_in(texts[-1])
    form = {"link": link, "code": code}
    assert open_browser().post("/confirm", data=form).status_code == 303
    assert is_confirmed(store, mail_server.recipients[-1])
    clock.shift(11)
    assert len(deliver()) == 4
    assert sorted(mail_server.recipients) == sorted(
        [EMAIL, "eva@x.example", *(f"eva{number}@example.org" for number in range(1, 44))]
    )


def test_link_is_bound_to_its_address(store, eva, deliver):
    [text] = deliver()
    eva.post("/account/email", data={"email": "b@example.org", "current_password": PASSWORD})
    assert eva.post("/confirm", data={"link": link_in(text)}).status_code == 403
    [text] = deliver()
    assert eva.post("/confirm", data={"link": link_in(text)}).status_code == 303
    eva.post("/account/email", data={"email": "c@example.org", "current_password": PASSWORD})
    assert not is_confirmed(store)


def test_players_cannot_set_their_own_verified(store, eva, subtests):
    fields = {"email_verified": "true", "emailVerified": "1", "verified": "yes"}
    account = {"name": "Eva", "bio": "x", "email": "x@example.org", "current_password": PASSWORD}
    for path in ("/account", "/account/email", "/account/email/letters", "/sign-up", "/confirm"):
        eva.post(path, data=account | fields)
    assert not is_confirmed(store)


def test_sign_up_whose_letter_cannot_be_counted_is_done(store, ada, sign_up, monkeypatch):
    def fail(*_: object) -> None:
        raise StorageFailed("the disk")

    monkeypatch.setattr(letters, "count_letter", fail)
    assert sign_up().get("/account").status_code == 200


def test_letter_can_be_asked_for_again(store, eva, browser, deliver):
    texts = deliver()
    for _ in range(letters.LETTERS_AN_HOUR):  # uses up none of the player's
        browser.post("/recover", data={"email": "eva@example.org"})
    for _ in range(3):
        assert eva.post("/account/email/confirm").status_code == 303
        texts += deliver()
    assert len(texts) == letters.LETTERS_AN_HOUR
    assert "Look in your mailbox" in eva.get("/account/security").text
    assert eva.post("/confirm", data={"code": code_in(texts[-1])}).status_code == 303


def test_apps_get_confirmed_addresses_alone(store, ada, eva, program, deliver):
    def whois() -> dict:
        page = eva.get(program.link(scope="email"))
        told = text_of(page)
        code = program.read_callback(eva.decide(page))["code"]
        return program.whois(program.token_for(code)).json, told

    answer, told = whois()
    assert "email" not in answer and "once you have confirmed it" in told
    [text] = deliver()
    eva.post("/confirm", data={"link": link_in(text)})
    with store.users.edit(store.users.find_by_login("Eva").id) as user:
        user.grants.clear()
    answer, told = whois()
    assert answer["email"] == "eva@example.org" and "your email, eva@example.org" in told


def test_address_from_before_that_breaks_the_rule(store, ada, open_browser, program, deliver):
    """Its player signs in and may replace it. Nobody sends letters there, and no app gets it."""
    for number, email in enumerate(BROKEN):
        user = User(70 + number, f"Eve {number}", email, hash_password(PASSWORD))
        user.email_verified = bool(number % 2)
        store.users.insert(user)
        eve = signed_in(open_browser(), email)
        token = program.token_for(eve.allow(program, scope="email openid"))
        assert "email" not in program.whois(token).json
        header = {"Authorization": f"Bearer {token}"}
        claims = program.http.get("/oauth/userinfo", headers=header).json
        assert not {"email", "email_verified"} & claims.keys()
        if not user.email_verified:
            eve.post("/account/email/confirm")
            assert "send emails to this address" in eve.get("/account/security").text
        change_email(eve, f"eve{number}@example.org")
        assert [each for each in deliver() if "Confirm this address" not in each] == []


def test_spelling_of_an_address_from_before_is_no_change(store, ada, open_browser):
    """Earlier versions stored a domain as it was typed."""
    user = User(70, "Eve", "eve@bücher.example", hash_password(PASSWORD), email_verified=True)
    store.users.insert(user)
    browser = signed_in(open_browser(), "eve@xn--bcher-kva.example")
    form = {"email": "eve@bücher.example", "current_password": PASSWORD}
    page = browser.post("/account/email", data=form)
    assert problems_of(page) == {"email": "This is your email already."}
    assert store.users.read(70) == user or store.users.read(70).email_verified
    form = {"name": "Kim", "email": "eve@xn--bcher-kva.example", "password": PASSWORD}
    assert open_browser().post("/sign-up", data=form).status_code == 409


def test_players_from_before_are_asked_at_sign_in(store, bob, browser):
    assert browser.sign_in("Bob").status_code == 303
    assert "Confirm your email" in browser.get("/").text
    assert "Confirm your email" not in browser.get("/").text
    assert "Not confirmed" in text_of(browser.get("/account/security"))


@pytest.fixture
def thief(ada, open_browser, deliver) -> Browser:
    """Another browser in which Ada is signed in, by somebody who knows the password."""
    thief = signed_in(open_browser())
    deliver()
    return thief


def change_email(browser: Browser, email: str) -> None:
    form = {"email": email, "current_password": PASSWORD}
    assert browser.post("/account/email", data=form).status_code == 303


def sorted_letters(texts: list[str]) -> list[str]:
    """Return the letter to an old address first: letters of one millisecond have no order."""
    return sorted(texts, key=lambda text: "does not have this address" not in text)


# -- letters about changes ------------------------------------------------------------------------


def test_letters_on_changes(store, ada, browser, deliver, open_browser):
    browser.sign_in()
    [text] = deliver()
    assert "in a browser that is new to it" in text
    browser.post("/account/password", data={"current_password": PASSWORD, "new_password": NEW})
    [text] = deliver()
    assert "Your password at Identity Server was changed." in text
    assert "http://localhost/recover" in text and "#" not in text  # no link that opens anything
    browser.post("/sign-out")
    browser.sign_in(password=NEW)
    assert deliver() == []  # this browser is known
    for boxes, count in (([], 0), (["sign-in"], 1)):
        browser.post("/account/email/letters", data={"letters": boxes})
        deliver()
        assert open_browser().sign_in(password=NEW).status_code == 303
        assert len(deliver()) == count


GERMAN = {
    "Your password at %(site)s was changed.": "Dein Passwort bei %(site)s wurde geändert.",
    "Your account at %(site)s was used in a browser that is new to it.": "Neuer Browser: %(site)s.",
    "Your account at %(site)s does not have this address any more.": "Neue Adresse: %(site)s.",
    "A player became a moderator or an administrator of %(site)s.": "Mehr Rechte: %(site)s.",
    "On %(time)s, from %(address)s.": "Am %(time)s, von %(address)s.",
    "%(date)s, %(time)s UTC": "%(date)s um %(time)s UTC",
    "Your account was deleted (%(site)s)": "Dein Konto wurde gelöscht (%(site)s)",
    "Somebody asked for a new password for your account at %(site)s.": "Passwort für %(site)s.",
    "Somebody typed this address at %(site)s. If that was you, confirm it.": "Adresse: %(site)s.",
    "From now on your pages and emails of %(site)s are in this language: %(language)s.": (
        "Ab jetzt ist alles von %(site)s in dieser Sprache: %(language)s."
    ),
}


@pytest.fixture
def german(tmp_path) -> Iterator[None]:
    """A catalogue with some sentences of letters."""
    with catalogue_in(tmp_path, "de", catalogue_of(GERMAN)):
        yield


def speak(browser: Browser, code: str) -> Browser:
    """Let the browser ask for pages in this language; return it."""
    browser.environ_base["HTTP_ACCEPT_LANGUAGE"] = code
    return browser


@pytest.mark.parametrize(("kept", "asked"), [("de", "en"), ("en", "de"), ("", "de")])
def test_alerts_are_in_the_language_of_the_player(
    store, ada, browser, enter, deliver, german, kept, asked
):
    """Whoever signs in, or changes the account, may be a thief, whose browser asks for another."""
    edit(store.users, ada.id, language=kept, mod_level=ADMINISTRATOR)
    speak(browser, asked).sign_in()
    browser.post("/account/password", data={"current_password": PASSWORD, "new_password": NEW})
    boss, bob = speak(enter("Boss", ADMINISTRATOR), asked), store.users.register("Bob", "", "")
    boss.post(f"/users/{bob.id}/mod-level", data={"mod_level": str(MODERATOR)})
    browser.post("/account/email", data={"email": "", "current_password": NEW})
    texts, is_german = "\n".join(deliver()), kept == "de"
    for english in list(GERMAN)[:5]:
        begin = english.partition("%")[0], GERMAN[english].partition("%")[0]
        assert [each in texts for each in begin] == [not is_german, is_german], english
    assert (" um " in texts) == is_german


def test_letters_on_acts_are_in_the_language_of_the_player(
    store, ada, browser, deliver, mail_server, german
):
    edit(store.users, ada.id, language="de")
    speak(browser, "en").sign_in()
    browser.post("/account/delete", data={"password": PASSWORD})
    deliver()
    subjects = [each["Subject"] for each in mail_server.letters]
    assert "Dein Konto wurde gelöscht (Identity Server)" in subjects


@pytest.mark.parametrize(
    ("kept", "asked", "is_german"),
    [("", "de", True), ("", "en", False), ("en", "de", False), ("de", "en", True)],
)
def test_letter_that_was_asked_for_is_in_the_language_of_the_player_or_the_page(
    store, ada, browser, deliver, german, kept, asked, is_german
):
    edit(store.users, ada.id, language=kept)
    speak(browser, asked).post("/recover", data={"email": EMAIL})
    [text] = deliver()
    assert ("Passwort für Identity Server." in text) == is_german


def test_letters_asked_for_without_a_language_are_in_that_of_the_site(
    make_app, store, ada, mail_server, german
):
    """An earlier version kept none for a lost password; one that confirms an address has none."""
    app = make_app(SMTP_URL=mail_server.url(), MAIL_FROM="site@games.example", LANGUAGE="de")
    store.users.register("Eva", "eva@example.org", "")
    for kind, to in (("recovery", EMAIL), (CONFIRMATION, "eva@example.org")):
        message = new_message(MAIL, kind, "", to=to, good_until=2**60)
        store.records(OUTBOX).add(message)
    Sender(store, Mail(store, app.config)).send_due(0)
    texts = "".join(map(text_of_letter, mail_server.letters))
    assert "Passwort für Identity Server." in texts and "Adresse: Identity Server." in texts


def test_letter_on_a_new_language_is_in_the_old_one(app, store, ada, deliver, german):
    """A thief could else make all later letters unreadable, unseen."""
    edit(store.users, ada.id, language="de")
    before = store.users.read(ada.id)
    edit(store.users, ada.id, language="ja")
    with app.test_request_context(headers={"Accept-Language": "ja"}):
        letters.notify(before, "language", language="ja")
        letters.notify(store.users.read(ada.id), "language", language="")
    texts = sorted(deliver())
    assert "von Identity Server in dieser Sprache: 日本語." in "".join(texts)
    assert "in the language of your browser" in "".join(texts)


def test_letter_on_a_deletion(store, app, ada, bob, browser, enter, deliver, monkeypatch, subtests):
    """By the player, an administrator and the command; none to an address that is not confirmed."""
    boss = enter("Boss", ADMINISTRATOR)
    cy, _ = store.users.register("Cy", "cy@example.org", ""), browser.sign_in()
    store.users.change_email(cy.id, cy.email, verified=True)
    deliver()

    def run_command(*arguments: str) -> None:
        for name in SETTINGS:
            monkeypatch.setenv(f"IDENTITY_{name}", str(app.config[name]))
        done = CliRunner().invoke(identity_server_command, arguments)
        assert done.exit_code == 0, done.output

    password, words = {"password": PASSWORD}, "was deleted on"
    for by, delete, expected in (
        (
            "player",
            lambda: browser.post("/account/delete", data=password),
            f"Ada Your account {words}",
        ),
        ("administrator", lambda: boss.post(f"/users/{bob.id}/delete", data=password), None),
        (
            "command",
            lambda: run_command("user", "delete", "Cy", "--yes"),
            "Cy An administrator deleted",
        ),
    ):
        with subtests.test(by):
            delete()
            texts = deliver()
            begun = [text.replace(",\n\n", " ").startswith(f"Hello {expected}") for text in texts]
            assert begun == [True] * bool(expected)
    assert [store.users.find_by_login(each) for each in ("Ada", "Bob", "Cy")] == [None] * 3
    dan = store.users.register("Dan", "dan@example.org", "")
    store.users.change_email(dan.id, dan.email, verified=True)
    assert boss.post(f"/users/{dan.id}/delete").status_code == 303
    [text] = deliver()
    assert "\n\nAn administrator deleted your account on" in text
    assert "127.0.0.1" not in text and "/recover" not in text


@pytest.fixture
def acts(store, ada, bob, enter) -> dict[str, tuple[str, dict]]:
    """The path and the form of what a moderator does to Ada or her game, by the kind of letter."""
    game, _ = store.clients.register("Kart", [], ada.id, game_url="https://kart.example/")
    reports.report(Authority(store, Actor(ada.id)), bob, "spam", "")
    [report] = store.records(REPORTS).ids()
    return {
        "report": (f"/admin/reports/{report}", {"answer": "Bob is warned."}),
        "game": (f"/play/{game.id}/listed", {"listed": "no", "reason": "No sound"}),
        "warning": (f"/users/{ada.id}/warn", {"warning": "Read https://evil.example/"}),
        "suspension": (f"/users/{ada.id}/suspend", {"length": "1 week", "reason": "Spam"}),
    }


def test_letters_on_what_moderators_do(ada, acts, enter, deliver, clock, subtests):
    clock.move_to(1_795_132_800)  # 20 November 2026
    warden = enter("Warden", MODERATOR)
    said = {
        "report": "A moderator has read your report of",
        "game": "A moderator decided not to put Kart on the home page. The reason: No sound.",
        "warning": "A moderator sent you a warning. Read and confirm it on the site.",
        "suspension": "You are suspended until 27 November 2026, 00:00 UTC. The reason: Spam.",
    }
    for kind, (path, form) in acts.items():
        with subtests.test(kind):
            assert warden.post(path, data=form).status_code == 303
            [text] = deliver()
            assert said[kind] in text and "http://localhost" in text
            assert ("turn off emails like this" in text) == (kind in CHOICES)
            assert not any(each in text for each in ("Warden", "warned", "evil.example"))


def test_letters_that_a_player_turned_off(store, ada, acts, browser, enter, deliver):
    """All but those of a suspension; the notices stay."""
    signed_in(browser).post("/account/email/letters", data={"letters": "sign-in"})
    assert store.users.read(ada.id).muted == ["report", "game", "warning"]
    boxes = parse(browser.get("/account/security")).select("[name=letters][checked]")
    assert [each["value"] for each in boxes] == ["sign-in"]
    deliver()
    warden = enter("Warden", MODERATOR)
    for path, form in acts.values():
        assert warden.post(path, data=form).status_code == 303
    [text] = deliver()
    assert "You are suspended" in text
    assert len(store.users.read(ada.id).notices) == 2


def test_mute_of_version_1_1_0_holds(store, ada, browser, deliver):
    edit(store.users, ada.id, quiet_sign_ins=True)
    assert signed_in(browser) and deliver() == []
    assert not parse(browser.get("/account/security")).select("[value=sign-in][checked]")


def test_letters_because_of_one_moderator_are_limited(store, app, ada, deliver, monkeypatch):
    """The acts are done all the same; what the command does is not limited."""
    monkeypatch.setattr(letters, "WRITTEN_AN_HOUR", 2)
    write = functools.partial(letters.write_to, app.config)
    warden = store.users.register("Warden", "", "", MODERATOR)
    players = [store.users.register(f"Cy {n}", f"cy{n}@example.org", "") for n in range(3)]
    for actor, count in ((Actor(warden.id), 2), (COMMAND, 3)):
        for each in players:
            store.users.change_email(each.id, each.email, verified=True)
            accounts.suspend(Authority(store, actor, write), each.id, str(actor.id))
        assert len(deliver()) == count


def test_no_other_letters_use_up_those_on_suspensions(store, app, ada, bob, deliver, monkeypatch):
    """A moderator could have them dropped by letters to an accomplice."""
    monkeypatch.setattr(letters, "WRITTEN_AN_HOUR", 1)
    warden = store.users.register("Warden", "", "", ADMINISTRATOR)
    by = Authority(store, Actor(warden.id), functools.partial(letters.write_to, app.config))
    store.users.change_email(bob.id, "bob@example.org", verified=True)
    for number in range(2):
        by.notify(bob.id, f"Decision {number}.", "game")
    accounts.suspend(by, ada.id)
    accounts.delete_user(by, ada.id)
    assert len(deliver()) == 3


def test_command_sends_letters(store, app, ada, deliver, monkeypatch):
    for name in SETTINGS:
        monkeypatch.setenv(f"IDENTITY_{name}", str(app.config[name]))
    arguments = ("user", "suspend", "Ada", "--reason", "Spam")
    assert CliRunner().invoke(identity_server_command, arguments).exit_code == 0
    [text] = deliver()
    assert "You are suspended. The reason: Spam." in text


def test_letters_on_passkeys_and_recovery_codes(store, ada, browser, open_browser, deliver):
    browser.sign_in()
    deliver()
    phone = add_passkey(browser)
    [text] = deliver()
    assert "A passkey was added to your account" in text
    assert "Then remove the passkeys that are not yours" in text  # a password removes none
    [code, *_] = parse(browser.post("/account/recovery-codes")).select("code")
    assert open_browser().sign_in(password=code.text).status_code == 303
    letters = "\n".join(deliver())
    assert "One of your recovery codes" in letters and "in a browser that is new" in letters
    assert use_passkey(open_browser(), phone).status_code == 200
    [text] = deliver()
    assert "in a browser that is new" in text


def test_letters_on_what_is_removed(store, ada, browser, deliver, subtests):
    browser.sign_in()
    for _ in range(3):
        add_passkey(browser)
    key = store.records(PASSKEYS).page("user", str(ada.id))[0]
    deliver()
    for path, fields, told in (
        ("passkeys/remove", {"id": key.id}, "A passkey of your account"),
        ("passkeys/remove", {"id": key.id}, None),  # it was removed in another tab
        ("recovery-codes", {}, "New recovery codes were created"),
        ("password/remove", {}, "Your password at Identity Server was removed."),
        ("password/remove", {}, None),
        ("email/letters", {"letters": ["report"]}, "sends you no email"),
        ("email/letters", {"letters": []}, None),
        ("email/letters", {"letters": ["sign-in"]}, None),
    ):
        with subtests.test(path, fields=fields):
            assert browser.post(f"/account/{path}", data=fields).status_code in (201, 303)
            texts = deliver()
            assert len(texts) == (told is not None)
            assert told is None or told in texts[0]


def test_copied_cookie_mutes_and_removes_nothing(store, ada, browser, deliver, clock, subtests):
    """A proof is asked for by a page that sends the same form."""
    browser.sign_in()
    for _ in range(3):
        add_passkey(browser)
    key = store.records(PASSKEYS).page("user", str(ada.id))[0]
    deliver()
    acts = {
        "/account/passkeys/remove": {"id": [key.id]},
        "/account/email/letters": {"letters": ["report"]},
        "/account/password/remove": {},
        "/account/recovery-codes": {},
    }
    for path, fields in acts.items():
        with subtests.test(path):
            clock.shift(PROOF_AGE)
            before = store.users.read(ada.id), store.records(PASSKEYS).page("user", str(ada.id))
            page = browser.post(path, data=fields)
            assert page.status_code == 403
            form = next(form for form in parse(page).select(f'form[action="{path}"]'))
            assert form.select("input[name=password]")
            assert deliver() == [] and before[0].muted == []
            again = store.users.read(ada.id), store.records(PASSKEYS).page("user", str(ada.id))
            assert again == before
    clock.shift(PROOF_AGE)
    fields = {"letters": ["sign-in"]}  # mutes others
    assert browser.post("/account/email/letters", data=fields).status_code == 303
    for path, fields in acts.items():
        if path == "/account/password/remove":
            continue
        clock.shift(PROOF_AGE)
        done = browser.post(path, data=fields | {"password": PASSWORD})
        assert done.status_code in (201, 303)
        assert len(deliver()) == 1


def test_administrators_get_a_letter_when_somebody_rises(store, ada, bob, enter, deliver):
    edit(store.users, ada.id, mod_level=ADMINISTRATOR)
    boss = enter("Boss", ADMINISTRATOR)  # without a confirmed address
    for level, count in ((MODERATOR, 1), (0, 0), (ADMINISTRATOR, 1)):
        deliver()
        form = {"mod_level": str(level)}
        assert boss.post(f"/users/{bob.id}/mod-level", data=form).status_code == 303
        texts = deliver()
        assert len(texts) == count
        assert all("a moderator or an administrator" in text for text in texts)
        assert all("http://localhost/admin/log" in text for text in texts)
    assert "made Bob, player id" in text_of(boss.get("/"))


def test_way_back_removes_what_a_thief_added(store, ada, browser, open_browser, thief, deliver):
    key = add_passkey(thief)
    [code, *_] = parse(thief.post("/account/recovery-codes")).select("code")
    deliver()
    thief.post("/account/email/letters", data={"letters": []})
    edit(store.users, ada.id, language="ja")
    change_email(thief, "")
    old = next(each for each in deliver() if "/recover#" in each)
    assert set_password(browser, link=link_in(old)).status_code == 303
    user = store.users.read(ada.id)
    assert (user.muted, user.language) == ([], "")
    assert use_passkey(open_browser(), key).status_code == 404
    assert open_browser().sign_in(password=code.text).status_code == 403


def test_thiefs_passkey_fails_during_the_way_back(store, ada, browser, thief, deliver, monkeypatch):
    key, real = add_passkey(thief), recovery.set_new_password
    deliver()
    change_email(thief, "")
    [old] = deliver()

    def set_new_password(*values: object) -> None:
        real(*values)
        assert use_passkey(thief, key).status_code == 404

    monkeypatch.setattr(recovery, "set_new_password", set_new_password)
    assert set_password(browser, link=link_in(old)).status_code == 303
    assert len(store.users.read(ada.id).sessions) == 1


def test_way_back_to_a_replaced_address(store, ada, bob, browser, thief, deliver, clock):
    change_email(thief, "thief@example.org")
    old, new = sorted_letters(deliver())
    thief.post("/confirm", data={"link": link_in(new)})
    with pytest.raises(EmailTaken):  # kept from others
        store.users.change_email(bob.id, EMAIL)
    change_email(thief, "thief2@example.org")
    thiefs, _ = sorted_letters(deliver())
    clock.shift(86_400)
    page = browser.post("/recover/password", data={"link": link_in(old)})
    assert f"Your email becomes {EMAIL} again." in text_of(page)
    assert set_password(browser, link=link_in(old)).status_code == 303
    user = store.users.read(ada.id)
    assert (user.email, user.email_verified) == (EMAIL, True)
    assert thief.get("/account").status_code == 303 and has_password(store, ada, NEW)
    for text in (old, thiefs):  # the thief had confirmed an address, too
        assert set_password(thief, link=link_in(text)).status_code == 403
    assert store.users.read(ada.id).email == EMAIL


def test_thiefs_way_back_leaves_that_of_the_player(store, ada, browser, thief, deliver):
    change_email(thief, "thief@example.org")
    old, new = sorted_letters(deliver())
    thief.post("/confirm", data={"link": link_in(new)})
    change_email(thief, "")
    [thiefs] = deliver()
    assert set_password(thief, link=link_in(thiefs)).status_code == 303
    assert set_password(browser, link=link_in(old)).status_code == 303
    assert store.users.read(ada.id).email == EMAIL


def test_first_confirmed_address_comes_first(store, ada, browser, thief, deliver, clock):
    """The player changed the address by the form, so the thief had a way back as well."""
    browser.sign_in()
    deliver()
    texts = []
    for who, email in ((thief, "thief@example.org"), (browser, EMAIL), (thief, "")):
        clock.shift(1)
        change_email(who, email)
        old, *new = sorted_letters(deliver())
        texts.append(old)
        if new:
            who.post("/confirm", data={"link": link_in(*new)})
    old, thiefs, _ = texts
    clock.shift(1)
    assert set_password(thief, link=link_in(thiefs)).status_code == 303
    assert set_password(browser, link=link_in(old)).status_code == 303
    assert set_password(thief, link=link_in(thiefs)).status_code == 403
    assert store.users.read(ada.id).email == EMAIL


def test_way_back_outlives_another_spelling(store, ada, bob, browser, thief, deliver):
    """A thief would else change the letters of the address first, which confirms nothing."""
    change_email(thief, EMAIL.upper())
    old, _ = sorted_letters(deliver())
    change_email(thief, "thief@example.org")
    with pytest.raises(EmailTaken):
        store.users.change_email(bob.id, EMAIL)
    assert set_password(browser, link=link_in(old)).status_code == 303
    assert store.users.read(ada.id).email == EMAIL


def test_way_back_ends_after_three_days(store, ada, bob, browser, deliver, clock):
    browser.sign_in()
    change_email(browser, "")
    old, _ = sorted_letters(deliver())
    clock.shift(3 * 86_400 + 1)
    assert set_password(browser, link=link_in(old)).status_code == 403
    store.users.change_email(bob.id, EMAIL)


def test_nobody_fills_a_mailbox_or_the_outbox(
    ada, open_browser, deliver, store, browser, monkeypatch
):
    for _ in range(letters.NOTICES_AN_HOUR + 5):
        open_browser().sign_in()
    assert len(deliver()) == letters.NOTICES_AN_HOUR
    monkeypatch.setattr(letters, "MOST_LETTERS_WAITING", 0)
    page = browser.post("/recover", data={"email": EMAIL})
    assert page.status_code == 503 and problems_of(page)
    assert not any(store.records(OUTBOX).page("queue", each) for each in waiting_queues(MAIL))


def test_letters_stay_out_of_backups_copies_and_exports(store, ada, browser, request_letter):
    link, code = request_letter()
    browser.post("/recover", data={"email": EMAIL})
    with store.snapshot() as snapshot:
        kinds = [each for each in (OUTBOX,) if each.copied or each.archived]
        assert kinds == [] and list(snapshot.users())
    browser.sign_in()
    assert link.partition("#")[2] not in json.dumps(browser.get("/account/export").json)


def test_administrators_see_letters_without_their_text(store, ada, enter, browser, deliver):
    queue = functools.partial(new_message, MAIL, "password", "the text", to="x@example.org")
    given_up, waits = queue(given_up=5, problem="550 No"), queue(problem="It is away.")
    for each in (given_up, waits):
        store.records(OUTBOX).add(each)
    boss = enter("Boss", 2)
    page = text_of(boss.get("/admin"))
    assert "x@example.org : password" in page and "550 No" in page and "It is away." in page
    assert "the text" not in page
    assert "550 No" not in enter("Warden", MODERATOR).get("/admin").text
