"""Attacks on the grant and on sessions: requirements of RFC 9700 that no other test covers."""

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
from storage.records import Suspension

CALLBACK = "https://space.example/callback"
GAME = "https://game.example/"


# -- each signed value is valid for one purpose ---------------------------------------------------


@pytest.fixture
def signed_values(app, store, adas_browser, ada, program) -> dict[str, str]:
    """One valid value of every kind that the server signs, for Ada, by purpose."""
    game, _ = store.clients.register("Game", [], None, game_url=GAME)
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
        "stamp": adas_browser.issue_stamp(),
    }


def acceptance_checks(
    app, adas_browser, anyone, program, game_id: str
) -> dict[str, Callable[[str], bool]]:
    """Return a function per purpose that tells whether the server accepts a value for it."""

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
            "For <bdi" in anyone.get("/new-password", query_string={"link": text}).text
        ),
        "stamp": lambda text: (
            adas_browser.post("/account/picture/remove", data={"stamp": text}).status_code == 303
        ),
    }


def accepted_pairs(
    app, store, adas_browser, anyone, program, signed_values
) -> set[tuple[str, str]]:
    """Return the pairs (purpose signed for, purpose accepted for)."""
    [game_id] = (each.id for each in all_clients(store) if each.game_url)
    checks = acceptance_checks(app, adas_browser, anyone, program, game_id)
    return {
        (purpose, accepted_for)
        for purpose, text in signed_values.items()
        for accepted_for, accepts in checks.items()
        if accepts(text)
    }


def test_signature_is_valid_for_its_own_purpose_only(
    app, store, adas_browser, anyone, program, signed_values
):
    """RFC 9700 2.3: a value gives no more access than was granted. Tries all pairs."""
    same_purpose = {(purpose, purpose) for purpose in signed_values}
    assert accepted_pairs(app, store, adas_browser, anyone, program, signed_values) == same_purpose


@pytest.fixture
def shared_serializer(monkeypatch) -> None:
    """Break the server: sign every purpose with the same serializer."""
    real_serializer = signing.serializer
    for module in ("identity.links", "identity.sessions", "identity.stamps", "identity_server"):
        monkeypatch.setattr(
            f"{module}.serializer", lambda _, *store: real_serializer("everything", *store)
        )


def test_shared_serializer_is_detected(
    shared_serializer, app, store, adas_browser, anyone, program, signed_values
):
    """Negative control of the test above."""
    found = accepted_pairs(app, store, adas_browser, anyone, program, signed_values)
    assert any(purpose != accepted_for for purpose, accepted_for in found)


# -- redirects ------------------------------------------------------------------------------------


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
def test_next_never_redirects_to_another_origin(browser, ada, address):
    """RFC 9700 4.11.2: the server is not an open redirector."""
    location = browser.sign_in(next=address).location
    assert location.startswith("/")
    assert location.isascii() and location.isprintable()  # no header injection
    assert browser_origin(location) == "https://id.example.org"


@pytest.mark.parametrize("broken", ["//evil.example", "/\\evil.example", "https://evil.example"])
def test_foreign_next_is_detected(broken):
    """Negative control: `browser_origin` recognizes these as foreign origins."""
    assert browser_origin(broken).endswith("//evil.example")
    assert local_address(broken) == "/"


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


# -- secrets in addresses and on disk -------------------------------------------------------------


def test_pages_with_a_secret_in_the_url_load_only_same_origin_resources(
    app, browser, store, ada, program
):
    """RFC 9700 4.2.4: no third party receives the address as a Referer."""
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


def test_invitation_is_stored_as_a_hash_only(store, faults):
    invite = store.invites.issue(days=7)
    stored = faults.stored_text()
    assert hashlib.sha256(invite.encode()).hexdigest() in stored
    assert invite not in stored


# -- sessions -------------------------------------------------------------------------------------


def is_signed_in(anyone, cookie: str) -> bool:
    """Return whether a session cookie with this value opens the account page."""
    return anyone.get("/account", headers={"Cookie": f"session={cookie}"}).status_code == 200


def test_sign_in_during_suspension_creates_no_session(store, browser, anyone, ada, monkeypatch):
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
    assert browser.get_cookie("session") is None


def test_session_expires_after_14_days_despite_use(adas_browser, clock):
    """A stolen cookie cannot be renewed by use, although each notice sets the cookie again."""
    for _ in range(13):
        clock.shift(86_400)
        assert adas_browser.post("/account", data={"bio": "x"}).location == "/account"
        assert adas_browser.get("/account").status_code == 200
    clock.shift(86_401)
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
def test_copied_cookie_is_invalid_after_the_session_ends(adas_browser, anyone, path, fields):
    copied = str(adas_browser.get_cookie("session").value)
    assert is_signed_in(anyone, copied)
    assert adas_browser.post(path, data=fields).status_code == 303
    assert not is_signed_in(anyone, copied)


def test_session_fixation_is_prevented(open_browser, anyone, ada, bob):
    """The attacker's session cookie is planted in the victim's browser before sign-in."""
    attacker_browser, victim_browser = open_browser(), open_browser()
    attacker_browser.sign_in("Bob")
    planted = attacker_browser.get_cookie("session").value
    victim_browser.set_cookie("session", planted)
    victim_browser.sign_in("Ada")
    page = anyone.get("/account", headers={"Cookie": f"session={planted}"})
    assert "Bob" in page.text
    assert "Ada" not in page.text
    assert victim_browser.get_cookie("session").value != planted


# -- timing ---------------------------------------------------------------------------------------

# test_sign_in.py counts hash calls with a stub; these tests measure the real hash function.


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
    """Store Ada's password with the production hash method."""
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", PASSWORD_METHOD)
    monkeypatch.setattr(passwords, "NOBODYS_HASH", NOBODYS_HASH)
    with store.users.edit(ada.id) as user:
        user.password_hash = passwords.hash_password(PASSWORD)
    assert check_password_hash(store.users.read(ada.id).password_hash, PASSWORD)


# Without a hash the ratio would be 1/1000; with the cheapest hash in use, 1/3.
SIMILAR = pytest.approx(1, abs=0.4)


@pytest.mark.timing
def test_sign_in_time_does_not_reveal_whether_a_name_exists(browser, production_password_hash):
    known, unknown = processor_times(browser, "Ada", "Zoe")
    assert unknown / known == SIMILAR


@pytest.mark.timing
@pytest.mark.parametrize("wrap", [str, passwords.wrap_hash])
@pytest.mark.parametrize("method", ["scrypt:32768:8:1", "pbkdf2:sha256:260000"])
def test_sign_in_time_does_not_reveal_an_imported_account(
    browser, store, ada, production_password_hash, method, wrap
):
    password_hash = wrap(generate_password_hash(PASSWORD, method))
    with store.users.edit(ada.id) as user:
        user.password_hash = password_hash
    known, unknown = processor_times(browser, "Ada", "Zoe")
    assert known / unknown == SIMILAR


@pytest.mark.timing
def test_cheaper_hash_for_unknown_names_is_detected(browser, production_password_hash, monkeypatch):
    """Negative control: a third of the work for an unknown name."""
    real_check = passwords.check_password_hash
    cheaper_hashes = {NOBODYS_HASH: NOBODYS_HASH.replace(PASSWORD_METHOD, "scrypt:32768:8:1")}
    monkeypatch.setattr(
        passwords,
        "check_password_hash",
        lambda kept, typed: real_check(cheaper_hashes.get(kept, kept), typed),
    )
    known, unknown = processor_times(browser, "Ada", "Zoe")
    assert unknown / known != SIMILAR
