"""Attacks on the grant and on sessions: requirements of RFC 9700 that no other test covers."""

import hashlib
import html
import re
import statistics
import time
from urllib.parse import quote, urljoin, urlsplit

import pytest
from conftest import PASSWORD
from forms import edit, hidden_field, signed_in
from hypothesis import example, given
from hypothesis import strategies as st
from werkzeug.security import check_password_hash, generate_password_hash

from identity.access import passwords
from identity.access.links import (
    is_first_account_invite,
    issue_first_account_link,
    issue_sign_in_link,
)
from model.records import Client, Suspension


@pytest.fixture
def game(store) -> Client:
    return store.clients.register("Game", [], None, game_url="https://game.example/")[0]


@pytest.fixture
def signed_values(store, adas_browser, ada, program, game) -> dict[str, str]:
    """One valid value of every kind that the server signs, for Ada, by purpose."""
    play_page = adas_browser.get(f"/play/{game.id}").text
    return {
        "consent": hidden_field(adas_browser.get(program.link()), "request"),
        "access token": program.token_for(adas_browser.allow(program)),
        "session": adas_browser.get_cookie("identity_session").value,
        "game": html.unescape(re.search('data-request="([^"]*)"', play_page)[1]),
        "first account": issue_first_account_link(store, "").partition("invite=")[2],
        "sign-in link": issue_sign_in_link(store, "", ada).partition("#")[2],
        "stamp": adas_browser.issue_stamp(),
    }


def test_signature_has_one_purpose(store, adas_browser, anyone, program, game, signed_values):
    """RFC 9700 2.3: a value gives no more access than was granted. Tries all pairs."""

    def post(path: str, **fields: str):
        return adas_browser.post(path, data=fields)

    accepts = {
        "consent": lambda text: (
            post("/oauth/authorize", request=text, decision="allow").status_code == 303
        ),
        "access token": lambda text: program.whois(text).status_code == 200,
        "session": lambda text: is_signed_in(anyone, text),
        "game": lambda text: (
            "code" in post(f"/play/{game.id}/authorize", request=text, decision="allow").json
        ),
        "first account": lambda text: is_first_account_invite(store, text),
        "sign-in link": lambda text: "For <bdi" in post("/recover/password", link=text).text,
        "stamp": lambda text: post("/account/picture/remove", stamp=text).status_code == 303,
    }
    accepted = {
        (purpose, accepted_for)
        for purpose, text in signed_values.items()
        for accepted_for in accepts
        if accepts[accepted_for](text)
    }
    assert accepted == {(purpose, purpose) for purpose in signed_values}


def browser_origin(location: str, base: str = "https://id.example.org/sign-in") -> str:
    """Return the origin of a Location (WHATWG URL: tabs are removed, "\\" is read as "/")."""
    text = re.sub("[\t\r\n]", "", location.strip("".join(map(chr, range(33)))))
    parts = urlsplit(urljoin(base, text.replace("\\", "/")))
    return f"{parts.scheme}://{parts.netloc}"


URL_PARTS = [
    *("/", "\\", "//", "evil.example", ":", "@", "?", "#", "%", "%2f", "%5c", "%09", ".", ".."),
    *("\t", "\n", "\r", "\0", " ", "http:", "javascript:", "é", "\u2028", "\u3000", "\x85"),
    *("／", "。", "\ufeff", "\u200b", "[", "]", ";", "&", "="),
]


@given(st.one_of(st.lists(st.sampled_from(URL_PARTS)).map("".join), st.text().map("/{}".format)))
@example("/\\evil.example")
@example("/\t/evil.example")
@example("//evil.example")
@example("https://evil.example")
def test_next_never_redirects_to_another_origin(browser, ada, address):
    """RFC 9700 4.11.2: the server is not an open redirector."""
    answers = [
        browser.sign_in(next=address),
        browser.get("/sign-in", query_string={"next": address}),
    ]
    answers += [browser.get("/sign-in", query_string=f"then={address}")]  # as it is
    for location in (each.location for each in answers):
        assert location.startswith("/")
        assert location.isascii() and location.isprintable()  # no header injection
        assert browser_origin(location) == "https://id.example.org"


def test_redirects_after_post_are_303(browser, ada, program):
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


def test_pages_with_a_secret_url_load_same_origin_only(browser, store, ada, program):
    """RFC 9700 4.2.4: no third party receives the address as a Referer."""
    link = program.link(state="secret")
    paths = [issue_first_account_link(store, ""), issue_sign_in_link(store, "", ada)]
    pages = [browser.get(path) for path in (*paths, f"/sign-in?next={quote(link)}")]
    browser.sign_in()
    for page in (*pages, browser.get(link)):
        assert page.status_code == 200
        assert page.headers["Referrer-Policy"] == "same-origin"
        loaded = re.findall(r'<(?:link|script|img|iframe)[^>]* (?:href|src)="([^"]*)"', page.text)
        assert loaded
        assert all(re.match("/[a-z]", each) for each in loaded)


def test_invitation_is_stored_as_a_hash_only(store, faults):
    invite = store.invites.issue(days=7)
    stored = faults.stored_text()
    assert hashlib.sha256(invite.encode()).hexdigest() in stored
    assert invite not in stored


def is_signed_in(anyone, cookie: str) -> bool:
    """Return whether a session cookie with this value opens the account page."""
    headers = {"Cookie": f"identity_session={cookie}"}
    return anyone.get("/account", headers=headers).status_code == 200


def test_sign_in_during_suspension_creates_no_session(store, browser, ada, monkeypatch):
    """The player is suspended after the password check and before the session is stored."""
    real_edit = store.users.edit

    def edit_after_suspension(user_id: int):
        monkeypatch.setattr(store.users, "edit", real_edit)
        with real_edit(user_id) as user:
            user.suspension, user.sessions = Suspension("command"), []
        return real_edit(user_id)

    monkeypatch.setattr(store.users, "edit", edit_after_suspension)
    assert browser.sign_in().status_code == 403
    assert store.users.read(ada.id).sessions == []
    assert browser.get_cookie("identity_session") is None


def test_session_expires_after_14_days_despite_use(adas_browser, clock):
    """A stolen cookie cannot be renewed by use, although each notice sets the cookie again."""
    for _ in range(13):
        clock.shift(86_400)
        assert adas_browser.post("/account", data={"bio": "x"}).location == "/account"
        assert adas_browser.get("/account").status_code == 200
    clock.shift(86_401)
    assert adas_browser.get("/account").status_code == 303


def test_copied_cookie_is_invalid_after_the_session_ends(adas_browser, open_browser, anyone):
    new_password = "quite another one"
    other = signed_in(open_browser())
    copied = other.get_cookie("identity_session").value
    assert is_signed_in(anyone, copied)
    assert adas_browser.post("/account/sign-out-others").status_code == 303
    assert not is_signed_in(anyone, copied)
    for path, fields in (
        ("/sign-out", {}),
        ("/account/password", {"current_password": PASSWORD, "new_password": new_password}),
        ("/account/delete", {"password": new_password}),
    ):
        copied = adas_browser.get_cookie("identity_session").value
        assert is_signed_in(anyone, copied)
        assert adas_browser.post(path, data=fields).status_code == 303
        assert not is_signed_in(anyone, copied)
        adas_browser.sign_in(password=new_password if "password" in path else PASSWORD)


def test_session_fixation_is_prevented(open_browser, anyone, ada, bob):
    """The attacker's session cookie is planted in the victim's browser before sign-in."""
    attackers_browser, victims_browser = open_browser(), open_browser()
    attackers_browser.sign_in("Bob")
    planted = attackers_browser.get_cookie("identity_session").value
    victims_browser.set_cookie("identity_session", planted)
    victims_browser.sign_in("Ada")
    page = anyone.get("/account", headers={"Cookie": f"identity_session={planted}"})
    assert ("Bob" in page.text, "Ada" in page.text) == (True, False)
    assert victims_browser.get_cookie("identity_session").value != planted


# test_sign_in.py counts hash calls with a stub; these tests measure the real hash functions, with
# an eighth of the work of each method and of each step of a wrapped hash: the ratios stay.
PASSWORD_METHOD, WRAPPING_STEP = "scrypt:4096:8:3", "scrypt:512:8"
NOBODYS_HASH = f"{PASSWORD_METHOD}$0000000000000000${'0' * 128}"


def processor_times(browser, *names: str) -> list[float]:
    """Return the median thread time, in seconds, of five wrong passwords for each name."""
    browser.sign_in("nobody", "wrong")  # the first attempt of a process includes calibration
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(5):
        for name in names:
            started = time.thread_time()
            assert browser.sign_in(name, "wrong").status_code == 403
            times[name].append(time.thread_time() - started)
    return [statistics.median(each) for each in times.values()]


@pytest.fixture
def production_password_hash(store, ada, monkeypatch) -> None:
    """Store Ada's password with a hash method like that of production."""
    monkeypatch.setattr(passwords, "WRAPPING_STEP", WRAPPING_STEP)
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", PASSWORD_METHOD)
    monkeypatch.setattr(passwords, "NOBODYS_HASH", NOBODYS_HASH)
    edit(store.users, ada.id, password_hash=passwords.hash_password(PASSWORD))
    assert check_password_hash(store.users.read(ada.id).password_hash, PASSWORD)


# Without a hash the ratio would be 1/1000; with the cheapest hash in use, 1/3.
SIMILAR = pytest.approx(1, abs=0.4)


@pytest.mark.timing
def test_sign_in_time_does_not_reveal_whether_a_name_exists(browser, production_password_hash):
    known, unknown = processor_times(browser, "Ada", "Zoe")
    assert unknown / known == SIMILAR


@pytest.mark.timing
@pytest.mark.parametrize("wrap", [str, passwords.wrap_hash])
@pytest.mark.parametrize("method", ["scrypt:4096:8:1", "pbkdf2:sha256:32500"])
def test_sign_in_time_does_not_reveal_an_imported_account(
    browser, store, ada, production_password_hash, method, wrap
):
    password_hash = wrap(generate_password_hash(PASSWORD, method))
    edit(store.users, ada.id, password_hash=password_hash)
    known, unknown = processor_times(browser, "Ada", "Zoe")
    assert known / unknown == SIMILAR


@pytest.mark.timing
def test_cheaper_hash_for_unknown_names_is_detected(browser, production_password_hash, monkeypatch):
    """Negative control: a third of the work for an unknown name."""
    real_check = passwords.check_password_hash
    cheaper_hashes = {NOBODYS_HASH: NOBODYS_HASH.replace(PASSWORD_METHOD, "scrypt:4096:8:1")}
    monkeypatch.setattr(
        passwords,
        "check_password_hash",
        lambda kept, typed: real_check(cheaper_hashes.get(kept, kept), typed),
    )
    known, unknown = processor_times(browser, "Ada", "Zoe")
    assert unknown / known != SIMILAR
