"""The grant under attack: what RFC 9700 asks for and no other test holds."""

import hashlib
import html
import re
import statistics
import time
from collections.abc import Callable
from urllib.parse import quote, urljoin, urlsplit

import pytest
from conftest import PASSWORD, all_clients
from forms import hidden_field
from hypothesis import example, given
from hypothesis import strategies as st
from werkzeug.security import check_password_hash, generate_password_hash

from identity import links, passwords, signing
from identity.links import issue_first_account_link, issue_sign_in_link
from identity.passwords import NOBODYS_HASH, PASSWORD_METHOD
from identity.sessions import local_address

CALLBACK = "https://space.example/callback"
GAME = "https://game.example/"


# -- what is signed opens the one door it was made for --------------------------------------------


@pytest.fixture
def signed(app, store, adas_browser, ada, program) -> dict[str, str]:
    """One of everything that the server signs, for Ada, good right now; by its purpose."""
    game, _ = store.add_client("Game", [], None, game_url=GAME)
    page = adas_browser.get(f"/play/{game.id}")
    consent = hidden_field(adas_browser.get(program.link()), "request")
    token = program.token_for(adas_browser.allow(program))
    with app.app_context():
        links = (
            issue_first_account_link(store, "http://localhost"),
            issue_sign_in_link(store, "http://localhost", ada),
        )
    return {
        "access token": token,
        "session": adas_browser.get_cookie("session").value,
        "consent": consent,
        "game": html.unescape(re.search('data-request="([^"]*)"', page.text)[1]),
        "first account": links[0].partition("invite=")[2],
        "sign-in link": links[1].partition("link=")[2],
    }


def doors(app, adas_browser, anyone, program, game_id: str) -> dict[str, Callable[[str], bool]]:
    """What each purpose opens: True where a text opened it."""

    def decide(text: str) -> bool:
        data = {"request": text, "decision": "allow"}
        return adas_browser.post("/oauth/authorize", data=data).status_code == 303

    def ask_as_game(text: str) -> bool:
        data = {"request": text, "decision": "allow"}
        return "code" in adas_browser.post(f"/play/{game_id}/authorize", data=data).json

    def is_first_account(text: str) -> bool:
        with app.app_context():
            return links.is_first_account_invite(app.extensions["storage"], text)

    return {
        "access token": lambda text: program.whois(text).status_code == 200,
        "session": lambda text: (
            anyone.get("/account", headers={"Cookie": f"session={text}"}).status_code == 200
        ),
        "consent": decide,
        "game": ask_as_game,
        "first account": is_first_account,
        "sign-in link": lambda text: (
            "for <bdi" in anyone.get("/new-password", query_string={"link": text}).text
        ),
    }


def opened(app, store, adas_browser, anyone, program, signed) -> set[tuple[str, str]]:
    """Which signed text opens which door."""
    [game_id] = (each.id for each in all_clients(store) if each.game_url)
    every_door = doors(app, adas_browser, anyone, program, game_id)
    return {
        (purpose, door)
        for purpose, text in signed.items()
        for door, opens in every_door.items()
        if opens(text)
    }


def test_what_is_signed_for_one_purpose_opens_no_other_door(
    app, store, adas_browser, anyone, program, signed
):
    """RFC 9700 2.3: nothing stands for more than it was given for. All against all."""
    own_doors = {(purpose, purpose) for purpose in signed}
    assert opened(app, store, adas_browser, anyone, program, signed) == own_doors


@pytest.fixture
def one_key_for_all(monkeypatch) -> None:
    """The server, broken: every purpose is signed alike."""
    real_serializer = signing.serializer
    for module in ("identity.links", "identity.sessions", "identity_server"):
        monkeypatch.setattr(
            f"{module}.serializer", lambda _, *store: real_serializer("everything", *store)
        )


def test_a_key_that_purposes_share_would_be_found_out(
    one_key_for_all, app, store, adas_browser, anyone, program, signed
):
    """The negative control of the test above."""
    found = opened(app, store, adas_browser, anyone, program, signed)
    assert any(purpose != door for purpose, door in found)


# -- where the browser is sent --------------------------------------------------------------------


def where_a_browser_goes(location: str, base: str = "https://id.example.org/sign-in") -> str:
    """The origin that a browser resolves a Location to (WHATWG URL: tabs go, "\\" is "/")."""
    text = re.sub("[\t\r\n]", "", location.strip("".join(map(chr, range(33)))))
    parts = urlsplit(urljoin(base, text.replace("\\", "/")))
    return f"{parts.scheme}://{parts.netloc}"


BITS = [
    *("/", "\\", "//", "evil.example", ":", "@", "?", "#", "%", "%2f", "%5c", "%09", ".", ".."),
    *("\t", "\n", "\r", "\0", " ", "http:", "javascript:", "é", "\u2028", "\u3000", "\x85"),
    *("／", "。", "\ufeff", "\u200b", "[", "]", ";", "&", "="),
]


@given(st.one_of(st.lists(st.sampled_from(BITS)).map("".join), st.text().map("/{}".format)))
@example("/\\evil.example")
@example("/\t/evil.example")
@example("//evil.example")
def test_no_next_leads_to_another_origin(browser, ada, address):
    """RFC 9700 4.11.2: the server is no open redirector."""
    location = browser.sign_in(next=address).location
    assert location.startswith("/")
    assert location.isascii() and location.isprintable()  # and splits no header
    assert where_a_browser_goes(location) == "https://id.example.org"


@pytest.mark.parametrize("broken", ["//evil.example", "/\\evil.example", "https://evil.example"])
def test_a_next_that_leads_elsewhere_would_be_found_out(broken):
    """The negative control: what is asked of each Location tells these apart."""
    assert where_a_browser_goes(broken).endswith("//evil.example")
    assert local_address(broken) == "/"


def test_every_way_back_after_a_post_is_303(browser, ada, program):
    """RFC 9700 4.12: a 307 would post the player's password or answer on to the client."""
    answers = [
        browser.sign_in(next=program.link()),
        browser.decide(browser.get(program.link()), "deny"),
        browser.decide(browser.get(program.link())),
        browser.get(program.link()),
        browser.post("/account", data={"bio": "x"}),
        browser.post("/account/apps/withdraw", data={"client_id": program.id}),
        browser.post("/sign-out", data={"next": program.link()}),
        browser.get(program.link()),
    ]
    assert [answer.status_code for answer in answers] == [303] * len(answers)


# -- what a page on the way gives away ------------------------------------------------------------


def test_pages_with_a_secret_in_their_address_load_nothing_from_elsewhere(
    app, browser, store, ada, program
):
    """RFC 9700 4.2.4: no third party learns an address from the Referer of what a page loads."""
    with app.app_context():
        secret_addresses = [
            issue_first_account_link(store, "http://localhost"),
            issue_sign_in_link(store, "http://localhost", ada),
        ]
    link = f"/sign-in?next={quote(program.link(state='secret'))}"
    paths = [urlsplit(each)._replace(scheme="", netloc="").geturl() for each in secret_addresses]
    pages = [browser.get(path) for path in paths]
    pages.append(browser.get(link))
    browser.sign_in()
    pages.append(browser.get(program.link(state="secret")))
    for page in pages:
        assert page.status_code == 200
        assert page.headers["Referrer-Policy"] == "same-origin"
        loaded = re.findall(r'<(?:link|script|img|iframe)[^>]* (?:href|src)="([^"]*)"', page.text)
        assert loaded
        assert all(re.match("/[a-z]", each) for each in loaded)


def test_an_invitation_stands_on_the_disk_as_its_hash_alone(store, tmp_path):
    invite = store.issue_invite(days=7)
    files = {each.name: each for each in (tmp_path / "instance").rglob("*") if each.is_file()}
    assert f"{hashlib.sha256(invite.encode()).hexdigest()}.json" in files
    for name, file in files.items():
        assert invite not in name and invite.encode() not in file.read_bytes()


# -- sessions -------------------------------------------------------------------------------------


def is_signed_in(anyone, cookie: str) -> bool:
    """True where a cookie of this value opens the account page."""
    return anyone.get("/account", headers={"Cookie": f"session={cookie}"}).status_code == 200


def test_a_session_that_begins_while_the_player_is_suspended_stays_dead_when_restored(
    store, browser, anyone, ada, monkeypatch
):
    """Suspended between the look at the password and the new session."""
    real_edit = store.edit_user

    def suspend_first(user_id: int):
        monkeypatch.setattr(store, "edit_user", real_edit)
        with real_edit(user_id) as user:
            user.suspended, user.sessions = True, []
        return real_edit(user_id)

    monkeypatch.setattr(store, "edit_user", suspend_first)
    assert browser.sign_in().status_code == 403
    assert store.read_user(ada.id).sessions == []
    assert browser.get_cookie("session") is None


def test_no_use_of_a_session_makes_it_last_longer_than_14_days(adas_browser, clock):
    """A stolen cookie is not kept alive: each message to the player makes the cookie anew."""
    for _ in range(13):
        clock.ahead += 86_400
        assert adas_browser.post("/account", data={"bio": "x"}).location == "/account"
        assert adas_browser.get("/account").status_code == 200
    clock.ahead += 86_401
    assert adas_browser.get("/account").status_code == 303


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/sign-out", {}),
        ("/account/sign-out-everywhere", {}),
        ("/account/password", {"current_password": PASSWORD, "new_password": "quite another one"}),
        ("/account/delete", {"password": PASSWORD}),
    ],
)
def test_a_copied_cookie_dies_with_every_way_to_end_the_session(adas_browser, anyone, path, fields):
    copied = str(adas_browser.get_cookie("session").value)
    assert is_signed_in(anyone, copied)
    assert adas_browser.post(path, data=fields).status_code == 303
    assert not is_signed_in(anyone, copied)


def test_a_planted_session_does_not_become_the_victims(open_browser, anyone, ada, bob):
    """Session fixation: the attacker's own cookie in the victim's browser, who then signs in."""
    attackers, victims = open_browser(), open_browser()
    attackers.sign_in("Bob")
    planted = attackers.get_cookie("session").value
    victims.set_cookie("session", planted)
    victims.sign_in("Ada")
    page = anyone.get("/account", headers={"Cookie": f"session={planted}"})
    assert "Bob" in page.text
    assert "Ada" not in page.text
    assert victims.get_cookie("session").value != planted


# -- time -----------------------------------------------------------------------------------------

# Hashes are counted, without making any, by test_sign_in.py: here is that the real ones cost that.


def processor_times(browser, *names: str) -> list[float]:
    """Seconds of this thread for wrong passwords at each name: medians of five tries, in turns."""
    browser.sign_in("nobody", "wrong")  # the first in a process measures the machine as well
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(5):
        for name in names:
            started = time.thread_time()
            assert browser.sign_in(name, "wrong").status_code == 403
            times[name].append(time.thread_time() - started)
    return [statistics.median(each) for each in times.values()]


@pytest.fixture
def real_passwords(store, ada, monkeypatch) -> None:
    """Ada's password is kept as players' are."""
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", PASSWORD_METHOD)
    monkeypatch.setattr(passwords, "NOBODYS_HASH", NOBODYS_HASH)
    with store.edit_user(ada.id) as user:
        user.password_hash = passwords.hash_password(PASSWORD)
    assert check_password_hash(store.read_user(ada.id).password_hash, PASSWORD)


# A hash left out is a thousandth of the work, the cheapest in use a third of it.
ALIKE = pytest.approx(1, abs=0.4)


@pytest.mark.timing
def test_the_time_of_an_answer_does_not_tell_whether_a_name_exists(browser, real_passwords):
    known, unknown = processor_times(browser, "Ada", "Zoe")
    assert unknown / known == ALIKE


@pytest.mark.timing
def test_nor_does_it_where_the_account_was_imported(browser, store, ada, real_passwords):
    with store.edit_user(ada.id) as user:
        user.password_hash = generate_password_hash(PASSWORD, "scrypt:32768:8:1")
    known, unknown = processor_times(browser, "Ada", "Zoe")
    assert known / unknown == ALIKE


@pytest.mark.timing
def test_a_hash_that_costs_less_for_nobody_would_be_found_out(browser, real_passwords, monkeypatch):
    """The negative control: a third of the work for a name that there is not."""
    work = passwords.check_password_hash
    cheaper = {NOBODYS_HASH: NOBODYS_HASH.replace(PASSWORD_METHOD, "scrypt:32768:8:1")}
    monkeypatch.setattr(
        passwords,
        "check_password_hash",
        lambda kept, typed: work(cheaper.get(kept, kept), typed),
    )
    known, unknown = processor_times(browser, "Ada", "Zoe")
    assert unknown / known != ALIKE
