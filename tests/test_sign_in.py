"""Sign-in, sign-out and sessions: `identity.access.sessions`, `identity.access.passwords`."""

import html
import itertools
import time
from email.utils import parsedate_to_datetime

import pytest
from conftest import PASSWORD
from forms import edit, hidden_field, parse, signed_in
from werkzeug.security import check_password_hash, generate_password_hash

from identity.access import passwords
from identity.access.passwords import NOBODYS_HASH, PASSWORD_METHOD
from model.records import Suspension, now_ms
from model.rules import check_hash_format
from pages.kit.forms import NO_COOKIES

REAL_METHOD = "scrypt:32768:8:3"
FOURTEEN_DAYS = 14 * 86400  # seconds


def is_signed_in(browser) -> bool:
    page = browser.get("/")
    assert page.status_code == 200
    return "Hello, <bdi>Ada</bdi>" in page.text


def cookie_parts(answer) -> dict[str, str]:
    """Return name, value and attributes (in lower case) of the only cookie that is set."""
    [header] = answer.headers.getlist("Set-Cookie")
    pair, *attributes = header.split("; ")
    parts = {key.lower(): value for key, _, value in (each.partition("=") for each in attributes)}
    name, _, value = pair.partition("=")
    return parts | {"name": name, "value": value}


def test_sign_in_normalizes_name_and_email(open_browser, ada, subtests):
    for name in (
        *("Ada", "ada", "ADA", " ada ", "\u202fada", "Ａｄａ"),
        *("ada@example.org", "ADA@Example.ORG", "ada@example.org "),
    ):
        with subtests.test(name):
            assert is_signed_in(signed_in(open_browser(), name))


def test_password_must_match_exactly_and_a_damaged_hash_is_503(browser, ada, store):
    for password in (PASSWORD + " ", PASSWORD.upper(), "", PASSWORD[:-1], "wrong"):
        assert browser.sign_in(password=password).status_code == 403
    assert browser.post(f"/sign-in?name=Ada&password={PASSWORD}").status_code == 403
    assert not is_signed_in(browser)
    for damaged in ("wrapped:", "wrapped:|", "wrapped:a$b$c|pbkdf2", "md9$a$b"):
        edit(store.users, ada.id, password_hash=damaged)
        assert browser.sign_in().status_code == 503


KEPT = ["/", "/a", "/a?b=c&d=%2B+%26", "/oauth/authorize?state=%22", "/a//b", "/.//evil.example"]
DROPPED = [
    *("", "//evil.example", "/\\evil.example", "\\\\evil.example", "\\/evil.example", "///x"),
    *("https://evil.example", "javascript:alert(1)", "evil.example", "a", "?a", "#a", " /a"),
    *("/\t/evil.example", "/a\r\nSet-Cookie: x=y", "/a\nb", "/\0", "/\x7f", "\t/a", "/a\n"),
    *("http:/a", "https:evil.example", "/\x1f/evil.example", "／/evil.example"),
]


def test_next_is_followed_on_this_site_only(open_browser, ada, subtests):
    """By each page that has one, and after a wrong password as well."""
    for number, address in enumerate(KEPT + DROPPED):
        leads_to = address if address in KEPT else "/"
        with subtests.test(address):
            browser = open_browser()
            pages = [
                browser.get("/sign-in", query_string={"next": address}),
                browser.sign_in(f"Nobody {number}", next=address),
            ]
            assert [hidden_field(each, "next") for each in pages] == [leads_to] * 2
            answers = [
                browser.sign_in(next=address),
                browser.get("/sign-in", query_string={"next": address}),
                browser.post("/sign-out", data={"next": address}),
            ]
            assert [each.location for each in answers] == [leads_to] * 3


def without_name(page, name: str) -> str:
    return page.text.replace(str(html.escape(name)), "NAME")


def test_unknown_name_is_answered_as_a_wrong_password(store, browser, ada, bob):
    store.users.delete(bob.id)
    wrong = browser.sign_in("Ada", "wrong")
    assert wrong.status_code == 403
    for name in ("Zoe", "Bob", "bob@example.org", "zoe@example.org", "../users/1", "/etc/passwd"):
        answer = browser.sign_in(name)
        assert answer.status_code == 403
        assert without_name(answer, name) == without_name(wrong, "Ada")
        assert sorted(answer.headers.keys()) == sorted(wrong.headers.keys())
    store.users.rename(ada.id, "Grace")  # the old name is as good as unknown
    answer = browser.sign_in("Ada", "wrong")
    assert (answer.status_code, without_name(answer, "Ada")) == (403, without_name(wrong, "Ada"))


def test_every_sign_in_takes_as_many_hashes(store, browser, ada, monkeypatch, subtests):
    """The time does not tell whether a name exists, has a password or was imported.

    Each Unicode form of what was typed is hashed once, whatever the account has.

    tests/attacks/test_grant.py measures the times of the real hashes.
    """
    hashed = []
    monkeypatch.setattr(passwords, "NOBODYS_HASH", NOBODYS_HASH)
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", PASSWORD_METHOD)
    monkeypatch.setattr(passwords, "wrapping_method", lambda method: f"rest of {method}")
    monkeypatch.setattr(passwords, "legacy_digest", lambda method, *_: hashed.append(method))

    def check_password_hash(kept_hash: str, password: str) -> bool:
        hashed.append(kept_hash.partition("$")[0])
        return False

    monkeypatch.setattr(passwords, "check_password_hash", check_password_hash)
    legacy = "pbkdf2:sha256:1000"
    wrapped = f"wrapped:rest of {legacy}$salt$00|{legacy}$salt"
    for name, kept_hash, expected in (
        ("Zoe", "", [REAL_METHOD]),
        ("Ada", "", [REAL_METHOD]),
        ("Ada", f"{REAL_METHOD}$salt$00", [REAL_METHOD]),
        ("Ada", f"{legacy}$salt$00", [legacy, f"rest of {legacy}"]),
        ("Ada", wrapped, [legacy, f"rest of {legacy}"]),
    ):
        with subtests.test(name, kept_hash=kept_hash):
            edit(store.users, ada.id, password_hash=kept_hash)
            for password, forms in (("crème", 1), ("cre\u0300me", 2)):
                hashed.clear()
                assert browser.sign_in(name, password).status_code == 403
                assert hashed == expected * forms


def test_suspended_player_reads_reason_and_end(app, store, browser, ada):
    end = 4_102_482_600_000  # 1 January 2100, 10:30 UTC
    ended = '<time datetime="2100-01-01T10:30Z">1 January 2100, 10:30 UTC</time>'
    ended = f"You are suspended until {ended}."  # static/times.js reads the element
    app.config["ABOUT_URL"] = "https://example.org/?a=1&b=2"
    ask = '<a href="https://example.org/?a=1&amp;b=2">A mistake? Write to us.</a>'
    wrong = browser.sign_in(password="wrong").data
    for reason, until, words in (
        ("", None, f"You are suspended. {ask}"),
        ("", end, f"{ended} {ask}"),
        ("Rude <b>", None, f"You are suspended. The reason: Rude &lt;b&gt;. {ask}"),
        ("Rude!", end, f"{ended} The reason: Rude! {ask}"),
    ):
        edit(store.users, ada.id, suspension=Suspension("command", 0, reason, until))
        answer = browser.sign_in()
        assert (answer.status_code, words in answer.text) == (403, True)
        assert "Set-Cookie" not in answer.headers
        assert browser.sign_in(password="wrong").data == wrong
    assert store.users.read(ada.id).sessions == []


def test_password_hashes_have_the_owasp_parameters(monkeypatch):
    assert PASSWORD_METHOD == REAL_METHOD
    assert NOBODYS_HASH.startswith(f"{REAL_METHOD}$")
    monkeypatch.setattr(passwords, "PASSWORD_METHOD", PASSWORD_METHOD)
    kept_hash = passwords.hash_password(PASSWORD)
    assert kept_hash.startswith(f"{REAL_METHOD}$")
    assert check_password_hash(kept_hash, PASSWORD)


def test_legacy_hash_is_replaced_at_sign_in(store, browser, ada, subtests):
    weaker = ("scrypt:1024:8:1", "pbkdf2:sha256:1000", "pbkdf2:sha1:1")
    for method, wrap in itertools.product(weaker, (str, passwords.wrap_hash)):
        with subtests.test(method, wrap=wrap):
            legacy_hash = wrap(generate_password_hash(PASSWORD, method))
            edit(store.users, ada.id, password_hash=legacy_hash)
            browser.sign_in(password="wrong")
            assert store.users.read(ada.id).password_hash == legacy_hash
            assert browser.sign_in().status_code == 303
            new_hash = store.users.read(ada.id).password_hash
            assert new_hash.startswith(f"{passwords.PASSWORD_METHOD}$")
            assert check_password_hash(new_hash, PASSWORD)
            assert browser.sign_in().status_code == 303
            assert store.users.read(ada.id).password_hash == new_hash


def test_wrapped_hash_works_without_the_legacy_digest(monkeypatch):
    """Times that were measured beside other load give no hash that a restore would refuse."""
    legacy_hash = generate_password_hash(PASSWORD, "pbkdf2:sha256:1000")
    method, salt, digest = legacy_hash.split("$")
    monkeypatch.setattr(passwords, "wrapping_method", passwords.wrapping_method.__wrapped__)
    for step_time in (0.001, 1000):  # the last one gives a cheap hash
        times = {PASSWORD_METHOD: 2, method: 1, f"{passwords.WRAPPING_STEP}:1": step_time}
        monkeypatch.setattr(passwords, "processor_time", times.get)
        outer = f"wrapped:{passwords.wrapping_method(method)}$salt${'0' * 128}"
        assert check_hash_format(f"{outer}|{method}${salt}") is None
    wrapped = passwords.wrap_hash(legacy_hash)
    assert check_hash_format(wrapped) is None
    assert wrapped.endswith(f"|{method}${salt}") and digest not in wrapped
    assert passwords.verify_password(wrapped, PASSWORD)
    assert not passwords.verify_password(wrapped, digest)


def test_browser_that_keeps_no_cookies_is_told(make_app, ada, subtests):
    """Not the sign-in page again and again; nor does the sign-up create an account.

    Programs send the form alone, as docs/grant.md does, and need no cookie before.
    """
    app = make_app(SIGN_UP="open")
    store, anyone = app.extensions["storage"], app.test_client(use_cookies=False)
    for path, name in (("/sign-in", "Ada"), ("/sign-up", "Bob")):
        with subtests.test(path):
            page = anyone.get(path)
            fields = {each["name"]: each["value"] for each in parse(page).select("[type=hidden]")}
            fields |= {"name": name, "password": PASSWORD}
            answer = anyone.post(path, data=fields)
            assert (answer.status_code, NO_COOKIES in html.unescape(answer.text)) == (400, True)
            # Negative control: with its cookie.
            cookie = page.headers["Set-Cookie"].partition(";")[0]
            assert anyone.post(path, data=fields, headers={"Cookie": cookie}).status_code == 303
            assert anyone.post(path, data=fields | {"name": "Eve"}).status_code == 400
    assert [each.name for each in map(store.users.read, store.users.ids())] == ["Ada", "Bob"]
    assert anyone.post("/sign-in", data={"name": "Ada", "password": PASSWORD}).status_code == 303


@pytest.mark.parametrize(
    ("base_url", "name"),
    [("http://localhost", "identity_session"), ("https://id.example.org", "__Host-session")],
)
def test_cookie_is_httponly_lax_and_lasts_14_days(make_app, base_url, name):
    """At https it is also secure, and no sibling site can set it."""
    app = make_app(BASE_URL=base_url)
    password_hash = passwords.hash_password(PASSWORD)
    app.extensions["storage"].users.register("Ada", "ada@example.org", password_hash)
    browser, form = app.test_client(), {"name": "Ada", "password": PASSWORD}
    cookie = cookie_parts(browser.post("/sign-in", data=form, base_url=base_url))
    seconds = parsedate_to_datetime(cookie["expires"]).timestamp() - time.time()
    assert abs(seconds - FOURTEEN_DAYS) < 60
    told = cookie_parts(browser.post("/sign-out", base_url=base_url))  # of a guest's notice
    assert "max-age" not in told and cookie["value"].partition(".")[0] not in told["value"]
    page = browser.get("/", base_url=base_url)
    assert "You are signed out." in page.text
    deleted = cookie_parts(page)
    assert (deleted["value"], deleted["max-age"]) == ("", "0")
    for each in (cookie, told, deleted):
        assert (each["name"], each["samesite"], each["path"]) == (name, "Lax", "/")
        assert "httponly" in each and "domain" not in each
        assert ("secure" in each) == (name == "__Host-session")


def test_cookie_of_version_1_0_is_renamed_and_that_of_another_program_stays(adas_browser, anyone):
    """Its player stays signed in. A picture, which caches keep, gets no cookie.

    All ports of 127.0.0.1 share cookies (RFC 6265 8.5), and Flask calls its own "session".
    """
    adas_browser.set_cookie("session", "eyJ1c2VyIjoxfQ.aaaaaa.bbbbbb")
    assert adas_browser.get("/account").status_code == 200
    assert adas_browser.get_cookie("session").value == "eyJ1c2VyIjoxfQ.aaaaaa.bbbbbb"
    value = adas_browser.get_cookie("identity_session").value
    old = {"Cookie": f"session={value}"}
    assert "Set-Cookie" not in anyone.get("/static/style.css", headers=old).headers
    answer = anyone.get("/account", headers=old)
    assert answer.status_code == 200
    new, deleted = sorted(answer.headers.getlist("Set-Cookie"))
    assert deleted.startswith("session=; Expires=Thu, 01 Jan 1970")
    assert new.startswith("identity_session=")
    # Of several cookies nothing tells which is planted, and the old one must not decide.
    both = {"Cookie": f"identity_session=x; identity_session={value}; session={value}"}
    assert anyone.get("/account", headers=both).status_code == 303
    adas_browser.post("/sign-out")
    assert anyone.get("/account", headers=old).status_code == 303


def test_each_sign_in_creates_a_session_and_20_are_kept(store, browser, ada, open_browser):
    words = {
        "": "Unknown browser",
        "Links (2.29; Linux x86_64)": "Browser on Linux",
        "Mozilla/5.0 Firefox/130.0": "Firefox",
        "<script>Firefox</script> Android": "Firefox on Android",
        "Mozilla/5.0 (Windows NT 10.0) Chrome/120 Safari/537.36 Edg/120": "Edge on Windows",
        "Mozilla/5.0 (Linux; Android 14) Chrome/120 Mobile Safari/537.36": "Chrome on Android",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17 like Mac OS X) Safari/604.1": "Safari on an iPhone",
    }
    before, cookies = now_ms(), set()
    for user_agent in words:
        browser.environ_base["HTTP_USER_AGENT"] = user_agent
        cookies.add(cookie_parts(browser.sign_in())["value"])
    sessions = store.users.read(ada.id).sessions
    assert [each.browser for each in sessions] == list(words.values())
    assert len(cookies) == len({each.id for each in sessions}) == len(words)
    assert before <= sessions[0].since <= sessions[-1].since <= now_ms()
    browsers = [open_browser() for _ in range(22)]
    for each in browsers:
        each.sign_in()
    assert [is_signed_in(each) for each in browsers] == [False] * 2 + [True] * 20
    assert len(store.users.read(ada.id).sessions) == 20


def test_sign_out_replaces_the_cookie_in_any_case(browser, ada, faults, subtests):
    for name, fail in (
        ("not writable", lambda: faults.refuse_saves("users")),
        ("damaged", lambda: faults.damage_user(ada.id)),
        ("deleted", lambda: faults.remove_user(ada.id)),
    ):
        with subtests.test(name):
            browser.sign_in()
            fail()
            signed_in = browser.get_cookie("identity_session").value
            assert browser.post("/sign-out").status_code == 303
            assert browser.get_cookie("identity_session").value != signed_in
            assert not is_signed_in(browser)
            faults.allow_saves()
            if name == "damaged":
                faults.repair_user(ada.id)
